// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the environment asks for: which events, and where to; and what the launcher says there of the rank.
//!
//! `IBEX_LOG_EVENTS`: names, separated by comma, colon, semicolon or space, with or without `ibex_` (or `btl_ibex_`, as
//! it was); `all` for all; unset or empty: at the end, what there is, is listed. `IBEX_LOG_FILE`: the file of a rank;
//! `%r` stands for the rank, `%h` for the host, `%p` for the process; without any of them the rank is appended; unset:
//! standard error. Grade: setup. Tests: below.

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// List what there is, at the end.
    List,
    /// Write down these; each a name as it was given.
    Events(Vec<String>),
}

impl Wanted {
    /// From the value of `IBEX_LOG_EVENTS`.
    pub(crate) fn from(value: Option<&str>) -> Wanted {
        let names = value.unwrap_or_default().split([',', ':', ';', ' ', '\t', '\n']);
        let mut names: Vec<String> = names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let mut seen = std::collections::BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        if names.is_empty() { Wanted::List } else { Wanted::Events(names) }
    }

    /// Of types with these names, the wanted ones, and the names nothing has.
    pub(crate) fn choose(&self, types: &[&str]) -> (Vec<usize>, Vec<String>) {
        let Wanted::Events(names) = self else { return (Vec::new(), Vec::new()) };
        let is = |name: &str, known: &str| name == "all" || short(known) == short(name);
        let wanted = |known: &&str| names.iter().any(|name| is(name, known));
        let chosen = types.iter().enumerate().filter(|(_, known)| wanted(known)).map(|(index, _)| index).collect();
        let unknown = names.iter().filter(|name| !types.iter().any(|known| is(name, known))).cloned().collect();
        (chosen, unknown)
    }
}

/// The name of an event without ibex's prefix, or that which it had before.
pub(crate) fn short(name: &str) -> &str {
    name.strip_prefix("btl_").unwrap_or(name).strip_prefix("ibex_").unwrap_or(name)
}

/// The rank that the launcher gave this process; `variable` has the environment's.
pub(crate) fn launched(variable: impl Fn(&str) -> Option<String>) -> Option<u32> {
    ["OMPI_COMM_WORLD_RANK", "PMIX_RANK"].iter().find_map(|name| variable(name)?.parse().ok())
}

/// What stands for the rank. Of a process whose rank nobody knows: its number.
pub(crate) fn rank(known: Option<u32>, process: u32) -> String {
    known.map_or_else(|| format!("p{process}"), |rank| rank.to_string())
}

/// The file of a rank, from the value of `IBEX_LOG_FILE`. `None`: standard error.
pub(crate) fn file(value: Option<&str>, rank: &str, host: &str, process: u32) -> Option<String> {
    let pattern = value.filter(|pattern| !pattern.is_empty())?;
    let name = pattern.replace("%r", rank).replace("%h", host).replace("%p", &process.to_string());
    Some(if name == pattern { format!("{pattern}.{rank}") } else { name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_separated_by_comma_colon_semicolon_or_space() {
        let names = |names: &[&str]| Wanted::Events(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(Wanted::from(Some("a,b:c;d e")), names(&["a", "b", "c", "d", "e"]));
        assert_eq!(Wanted::from(Some(" a, ,b a")), names(&["a", "b"]));
        for nothing in [None, Some(""), Some(" ,;: ")] {
            assert_eq!(Wanted::from(nothing), Wanted::List);
        }
    }

    #[test]
    fn a_name_has_the_prefix_or_not_and_one_that_nothing_has_is_told() {
        let types = ["ibex_xfer_begin", "ibex_xfer_end", "other"];
        let chosen = |text| Wanted::from(Some(text)).choose(&types);
        assert_eq!(chosen("xfer_end,btl_ibex_xfer_begin"), (vec![0, 1], vec![]));
        assert_eq!(chosen("ibex_xfer_end"), (vec![1], vec![]));
        assert_eq!(chosen("other xfer"), (vec![2], vec!["xfer".to_owned()]));
        assert_eq!(chosen("all"), (vec![0, 1, 2], vec![]));
        assert_eq!(Wanted::List.choose(&types), (vec![], vec![]));
    }

    #[test]
    fn a_rank_is_known_from_the_launcher_or_else_the_process_is_named() {
        let launched_with = |given: &'static [(&str, &str)]| {
            launched(|name| given.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(launched_with(&[("PMIX_RANK", "3")]), Some(3));
        assert_eq!(launched_with(&[("PMIX_RANK", "x"), ("OMPI_COMM_WORLD_RANK", "0")]), Some(0));
        assert_eq!(launched_with(&[]), None);
        assert_eq!((rank(Some(3), 77), rank(None, 77)), ("3".to_owned(), "p77".to_owned()));
    }

    #[test]
    fn every_rank_has_a_file_of_its_own() {
        assert_eq!(file(None, "3", "n1", 7), None);
        assert_eq!(file(Some(""), "3", "n1", 7), None);
        assert_eq!(file(Some("/tmp/log"), "3", "n1", 7).as_deref(), Some("/tmp/log.3"));
        assert_eq!(file(Some("/tmp/%h-%r-%p.txt"), "3", "n1", 7).as_deref(), Some("/tmp/n1-3-7.txt"));
    }
}
