// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the parameters: every row, the bounds, the refusals, and the page made of them.

use super::*;
use std::collections::HashSet;

fn defaults() -> Vec<Value> {
    TABLE.iter().map(Row::default_value).collect()
}

/// The defaults, with another value of one parameter.
fn changed(name: &str, value: Value) -> Vec<Value> {
    let mut values = defaults();
    values[TABLE.iter().position(|row| row.name == name).expect("a row of that name")] = value;
    values
}

fn with(name: &str, value: Value) -> Result<Tunables, OutOfBounds> {
    Tunables::from_values(&changed(name, value))
}

#[test]
fn every_name_occurs_once_and_is_a_plain_word() {
    let names: HashSet<_> = TABLE.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), TABLE.len());
    assert!(names.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')));
}

#[test]
fn every_default_is_inside_its_bounds_and_every_row_has_a_help_text() {
    let _ = Tunables::default();
    for row in TABLE {
        assert!(row.help.ends_with('.') && row.effect.ends_with('.'), "{}", row.name);
        assert!((1..=9).contains(&row.level), "{}", row.name);
    }
}

#[test]
fn every_field_reads_back_the_value_of_its_own_row() {
    // Each row in turn gets a value that differs from its default; only that one must show, under its name, in Debug.
    let before = format!("{:#?}", Tunables::default());
    for row in TABLE {
        let (value, shown) = match row.kind {
            Kind::Count { default, min, .. } if default > min => (Value::Count(default - 1), (default - 1).to_string()),
            Kind::Count { default, .. } => (Value::Count(default + 1), (default + 1).to_string()),
            Kind::Text { choices: [], .. } => (Value::Text("probe".to_owned()), "\"probe\"".to_owned()),
            Kind::Text { choices, .. } => {
                let other = choices[1].split("..=").next().expect("a first part");
                (Value::Text(other.to_owned()), format!("\"{other}\""))
            }
            Kind::Flag { default } => (Value::Flag(!default), (!default).to_string()),
        };
        let after = format!("{:#?}", with(row.name, value).expect(row.name));
        let changed: Vec<_> = before.lines().zip(after.lines()).filter(|(old, new)| old != new).collect();
        assert_eq!(changed.len(), 1, "{}", row.name);
        assert_eq!(changed[0].1.trim(), format!("{}: {shown},", row.name));
    }
}

#[test]
fn every_count_permits_both_of_its_bounds_and_refuses_one_beyond() {
    for row in TABLE {
        let Kind::Count { min, max, .. } = row.kind else { continue };
        with(row.name, Value::Count(min)).expect(row.name);
        with(row.name, Value::Count(max)).expect(row.name);
        for beyond in [min.checked_sub(1), max.checked_add(1)].into_iter().flatten() {
            let refusal = with(row.name, Value::Count(beyond)).expect_err(row.name).to_string();
            for part in [row.full_name(), beyond.to_string(), min.to_string(), max.to_string()] {
                assert!(refusal.contains(&part), "{refusal:?} lacks {part}");
            }
        }
    }
}

#[test]
fn a_refusal_names_parameter_value_and_range_and_gives_advice() {
    let refusal = with("probe_interval", Value::Count(86401)).expect_err("more than a day").to_string();
    assert_eq!(
        refusal,
        "the parameter btl_ibex_probe_interval is 86401, but may be 0 to 86400 seconds: set it so \
         (mpirun --mca btl_ibex_probe_interval VALUE) or leave it out to get 0"
    );
}

#[test]
fn nearest_returns_the_nearest_permitted_count_and_the_usual_refusal() {
    let row = TABLE.iter().find(|row| row.name == "eager_limit").expect("a row");
    assert!([64, 100, 4096].iter().all(|given| row.nearest(*given, 4096).is_none()));
    for (given, nearest) in [(0, 64), (63, 64), (4097, 4096), (u64::MAX, 4096)] {
        let (value, refusal) = row.nearest(given, 4096).expect("beyond");
        assert_eq!(value, nearest);
        let beginning =
            format!("the parameter pml_ibex_eager_limit is {given}, but may be 64 to 4096 bytes: set it so");
        assert!(refusal.to_string().starts_with(&beginning), "{refusal}");
    }
    // The result is never below the minimum.
    assert_eq!(row.nearest(100, 10).map(|(value, _)| value), Some(64));
    assert!(TABLE[0].nearest(0, 0).is_none(), "a text has no counts");
}

#[test]
fn a_text_with_choices_refuses_anything_else() {
    assert_eq!(with("connect_via", Value::Text("tcp".to_owned())).expect("a choice").via(), ConnectVia::Tcp);
    let refusal = with("connect_via", Value::Text("rdmacm".to_owned())).expect_err("no choice").to_string();
    assert!(refusal.contains("\"rdmacm\", but may be one of auto, ud, tcp"), "{refusal}");
}

#[test]
fn a_gid_index_is_auto_or_a_number_up_to_255() {
    let index =
        |text: &str| with("gid_index", Value::Text(text.to_owned())).map(|tunables| tunables.forced_gid_index());
    assert_eq!(index("auto"), Ok(None));
    assert_eq!(index("0"), Ok(Some(0)));
    assert_eq!(index("255"), Ok(Some(255)));
    for bad in ["256", "-1", "+1", "", "1 ", "99999999999999999999999"] {
        index(bad).expect_err(bad);
    }
}

#[test]
fn a_wrong_value_of_the_pml_excludes_the_pml_alone_and_any_other_both_components() {
    let refused = |name: &str, value: Value| {
        [Faces::Btl, Faces::Pml].map(|face| Tunables::for_face(face, &changed(name, value.clone())).is_err())
    };
    assert_eq!(refused("service_level", Value::Count(16)), [true, true]);
    assert_eq!(refused("zero_copy_min", Value::Count(1 << 32)), [true, true]);
    assert_eq!(refused("eager_limit", Value::Count(63)), [false, true]);
}

#[test]
fn from_values_refuses_malformed_lists_of_interfaces_and_both_lists_together() {
    let text = |value: &str| Value::Text(value.to_owned());
    for name in ["tcp_if_include", "tcp_if_exclude"] {
        with(name, text("eth0,10.1.0.0/16")).expect(name);
        let refusal = with(name, text("eth0,10.1/16")).expect_err(name).to_string();
        assert!(refusal.contains(&format!("btl_ibex_{name} is 10.1/16, but may be a list of interface")), "{refusal}");
    }
    let mut values = defaults();
    for (row, value) in TABLE.iter().zip(&mut values).filter(|(row, _)| row.name.starts_with("tcp_if_")) {
        assert_eq!(row.default_value(), text(""));
        *value = text("lo");
    }
    let refusal = Tunables::from_values(&values).expect_err("both").to_string();
    assert!(
        refusal.contains("btl_ibex_tcp_if_exclude is lo") && refusal.contains("btl_ibex_tcp_if_include"),
        "{refusal}"
    );
}

#[test]
fn from_values_refuses_a_missing_value_and_one_of_another_kind() {
    let refusal = with(TABLE[2].name, Value::Count(1)).expect_err("a count for a flag").to_string();
    assert!(refusal.contains(&format!("{} is 1,", TABLE[2].full_name())), "{refusal}");
    for length in [2, TABLE.len() - 1] {
        let refusal = Tunables::from_values(&defaults()[..length]).expect_err("one is missing").to_string();
        assert!(refusal.contains(&format!("{} is missing", TABLE[length].full_name())), "{refusal}");
    }
}

#[test]
fn the_committed_page_matches_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/parameters.md");
    if std::env::var_os("IBEX_WRITE_DOCS").is_some() {
        std::fs::write(path, markdown()).expect("docs/ can be written");
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == markdown(),
        "docs/parameters.md is out of date: run IBEX_WRITE_DOCS=1 cargo test -p ibex tunables"
    );
}
