// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every parameter at its least and its greatest value, and just beyond: a short job with messages of all sizes
//! succeeds, or is refused with the parameter's name and range.
//!
//! Each value is tried alone, and many at a time, in random sets that are the same in each run. A set has at most one
//! parameter of loss, patience or connecting: several could keep ranks from connecting. Setup grade; one at a time.

use crate::launch::{Launch, over_the_pml, says};
use crate::site::Site;
use crate::test::Test;
use anyhow::{Context, Result, ensure};
use hw_tests::Ending;
use hw_tests::openmpi::Series;
use ibex::connect::Random;
use ibex::tunables::{Faces, Kind, Row, TABLE};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::on_emulated("each parameter may have the least and the most that it is permitted", at_the_bounds),
        Test::on_emulated("each parameter may have the least and the most while nothing else is set", nothing_else)
            .device_independent(),
        Test::on_emulated("the limits that depend on each other follow the one that is set", limits)
            .device_independent()
            .quick(),
        Test::on_emulated("a job at a bound that few adapters support runs or ends naming the parameter", alone),
        Test::on_emulated("ibex refuses each parameter's values just beyond its bounds and names the bounds", beyond)
            .device_independent(),
    ]
}

/// Greatest values to try, where a bound needs more memory or time than a test has.
const MOST: &[(&str, u64)] = &[
    // Adapters make no longer queues with the most inline data. [`alone`] tries more.
    ("send_queue_depth", 1024),
    // This takes some 256 MiB for each port. [`alone`] tries more.
    ("completion_queue_depth", 65536),
    // A slot is 32 KiB: the most would be 1 GiB for each rank. [`alone`] tries it.
    ("receive_queue_depth", 4096),
];

/// Parameters of which a job changes at most one.
const ONE_AT_A_TIME: &[&str] = &["ack_timeout", "link_outage", "probe_interval", "connect_via", "connect_timeout"];

/// Parameters that need something of the adapter or the fabric, or that end a job with a message of their own.
const ALONE: &[&str] = &["gid_index", "pkey_index", "mtu", "fork_support", "priority"];

/// Parameters whose absolute maximum is tried as well, alone.
const WHOLE: &[&str] = &["send_queue_depth", "completion_queue_depth", "receive_queue_depth"];

fn bounds(row: &Row) -> Vec<String> {
    match row.kind {
        Kind::Count { min, max, .. } => {
            let most = MOST.iter().find(|(name, _)| *name == row.name).map_or(max, |(_, most)| *most);
            vec![min.to_string(), most.to_string()]
        }
        Kind::Flag { .. } => vec!["true".to_owned(), "false".to_owned()],
        Kind::Text { choices, .. } => {
            choices.iter().flat_map(|choice| choice.split("..=")).map(str::to_owned).collect()
        }
    }
}

/// Returns values that a row refuses; there are none for free text.
fn just_beyond(row: &Row) -> Vec<String> {
    match row.kind {
        Kind::Count { min, max, .. } => {
            // Open MPI reads -1 as the greatest number.
            let below = min.checked_sub(1).map_or_else(|| "-1".to_owned(), |below| below.to_string());
            let above = max.checked_add(1).map(|above| above.to_string());
            above.map_or_else(Vec::new, |above| vec![below, above])
        }
        Kind::Text { choices: [], .. } | Kind::Flag { .. } => Vec::new(),
        Kind::Text { .. } => vec!["neither".to_owned()],
    }
}

fn rows(is_wanted: impl Fn(&Row) -> bool) -> Vec<&'static Row> {
    TABLE.iter().filter(|row| is_wanted(row)).collect()
}

fn at_the_bounds(site: &mut Site) -> Result<()> {
    let is_one = |row: &Row| ONE_AT_A_TIME.contains(&row.name);
    let together = rows(|row| !is_one(row) && !ALONE.contains(&row.name) && !bounds(row).is_empty());
    let singles = rows(is_one).into_iter().flat_map(|row| bounds(row).into_iter().map(move |value| (row, value)));
    let mut random = Random::new(21);
    for (job, (single, value)) in singles.enumerate() {
        let over = if job.is_multiple_of(2) { "ob1" } else { "the pml" };
        let mut set = vec![(single, value)];
        for row in &together {
            let mut values = bounds(row);
            // First each value once, so that none is left out; then random ones.
            let turn = if job / 2 < values.len() { job / 2 } else { random.below(values.len() as u64) as usize };
            set.push((*row, values.swap_remove(turn)));
        }
        let passed = if over == "ob1" {
            set.retain(|(row, _)| row.faces != Faces::Pml);
            traffic(job, &set).passes(site)
        } else {
            over_the_pml(|| traffic(job, &set).passes(site))
        };
        passed.with_context(|| format!("job {job} over {over}"))?;
    }
    Ok(())
}

fn nothing_else(site: &mut Site) -> Result<()> {
    for row in rows(|row| !ALONE.contains(&row.name)) {
        for value in bounds(row) {
            let launch = traffic(0, &[(row, value.clone())]).scale(0.1);
            let passed =
                if row.faces == Faces::Pml { over_the_pml(|| launch.passes(site)) } else { launch.passes(site) };
            passed.with_context(|| format!("{} {value}", row.full_name()))?;
        }
    }
    Ok(())
}

/// The limits that Open MPI has for every BTL and ibex checks: the least, the greatest, and contradictory ones; and
/// small and large values of what Open MPI alone reads.
fn limits(site: &mut Site) -> Result<()> {
    let header = Series::here()?.largest_ob1_header();
    let limits = [
        ("btl_ibex_max_send_size", [4096, 1 << 20]),
        ("btl_ibex_eager_limit", [header, 1 << 20]),
        ("btl_ibex_rndv_eager_limit", [header, 1 << 20]),
        ("btl_ibex_rdma_pipeline_frag_size", [4096, 1 << 31]),
    ];
    let others = [
        ("btl_ibex_rdma_pipeline_send_length", [0, 1 << 31]),
        ("btl_ibex_min_rdma_pipeline_size", [0, 1 << 31]),
        ("btl_ibex_latency", [0, 1 << 20]),
        ("btl_ibex_bandwidth", [0, 1 << 20]),
        ("btl_ibex_exclusivity", [0, 1 << 16]),
    ];
    for (name, values) in limits.into_iter().chain(others) {
        for value in values.map(|value| value.to_string()) {
            let launch = || traffic(0, &[]).scale(0.1).with(name, &value);
            launch().passes(site).with_context(|| format!("{name} {value} over ob1"))?;
            if limits.iter().any(|(limit, _)| *limit == name) {
                over_the_pml(|| launch().passes(site)).with_context(|| format!("{name} {value} over the pml"))?;
            }
        }
    }
    let at_odds = traffic(0, &[]).with("btl_ibex_eager_limit", "4096").with("btl_ibex_rndv_eager_limit", "8192");
    let reason = format!("btl_ibex_rndv_eager_limit is 8192, but may be {header} to 4096");
    at_odds.is_refused_with(site, &[&reason]).map(drop)
}

/// Random traffic of two ranks, of sizes around all limits of the protocols; every other pair of jobs shares memory.
fn traffic(job: usize, set: &[(&Row, String)]) -> Launch {
    let launch = Launch::new("traffic", 2).arguments(&["--seed", &job.to_string(), "--messages", "24"]);
    let launch = launch.scale(0.2).limit(60);
    let launch = if job % 4 < 2 { launch } else { launch.with("btl", "self,sm,ibex") };
    set.iter().fold(launch, |launch, (row, value)| launch.with(&row.full_name(), value))
}

fn alone(site: &mut Site) -> Result<()> {
    let most = |row: &Row| match row.kind {
        Kind::Count { max, .. } if WHOLE.contains(&row.name) => vec![max.to_string()],
        _ => bounds(row),
    };
    for row in rows(|row| ALONE.contains(&row.name) || WHOLE.contains(&row.name)) {
        for value in most(row) {
            let outcome = over_the_pml(|| traffic(0, &[(row, value.clone())]).run(site))?;
            ensure!(matches!(outcome.ending, Ending::Exited(_)), "{} {value}: {outcome}", row.name);
            if !outcome.success() {
                says(&outcome, &[&row.full_name(), &value])?;
            }
        }
    }
    Ok(())
}

/// Eight ranks, each with another value that ibex refuses, in a job that goes on without ibex.
fn beyond(site: &mut Site) -> Result<()> {
    let values: Vec<_> = rows(|_| true)
        .into_iter()
        .flat_map(|row| just_beyond(row).into_iter().map(move |value| (row, value)))
        .collect();
    for ranks in values.chunks(8) {
        let own: Vec<String> = ranks.iter().map(|(row, value)| format!("{}={value}", row.full_name())).collect();
        let launch =
            Launch::new("init_finalize", 1).without("pml").with("btl", "self,sm,ibex").each_rank_with_own(&own);
        let outcome = launch.limit(60).succeeds(site)?;
        for (row, value) in ranks {
            let value = if value == "-1" { u64::MAX.to_string() } else { value.clone() };
            says(&outcome, &[&format!("{} is", row.full_name()), &value, &row.permitted()])?;
        }
    }
    Ok(())
}
