// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which PML a job has: what the user's lists say, what ibex declines, and ranks that come to different answers.
//!
//! Setup grade; one test at a time.

use crate::launch::{Launch, says};
use crate::site::Site;
use crate::test::Test;
use anyhow::{Result, ensure};

/// What Open MPI says of the PML it has chosen, with `pml_base_verbose`.
const CHOSEN: &str = "select: component";

/// A list of PMLs or none, one of BTLs or none, a further parameter, and the PML that this gives.
struct Choice {
    sentence: &'static str,
    pml: Option<&'static str>,
    btl: Option<&'static str>,
    also: Option<(&'static str, &'static str)>,
    chosen: &'static str,
    says: &'static [&'static str],
    /// Whether it is in the quick tier.
    quick: bool,
}

const PLAIN: Choice =
    Choice { sentence: "", pml: None, btl: None, also: None, chosen: "ibex", says: &[], quick: false };

/// No port can be used.
const NO_PORT: Option<(&str, &str)> = Some(("btl_ibex_if_exclude", "*"));

static CHOICES: &[Choice] = &[
    Choice { sentence: "whoever asks for nothing has the pml ibex", quick: true, ..PLAIN },
    Choice { sentence: "whoever asks for transports with ibex has the pml ibex", btl: Some("self,ibex"), ..PLAIN },
    Choice { sentence: "whoever leaves other pmls out has the pml ibex", pml: Some("^ucx,cm"), ..PLAIN },
    Choice { sentence: "whoever leaves other transports out has the pml ibex", btl: Some("^tcp,openib"), ..PLAIN },
    Choice { sentence: "whoever asks for ob1 has ob1", pml: Some("ob1"), chosen: "ob1", quick: true, ..PLAIN },
    Choice { sentence: "whoever leaves the pml ibex out has ob1", pml: Some("^ibex,ucx,cm"), chosen: "ob1", ..PLAIN },
    Choice {
        sentence: "whoever asks for transports without ibex has ob1",
        btl: Some("self,sm"),
        chosen: "ob1",
        says: &["the pml declines"],
        ..PLAIN
    },
    Choice {
        sentence: "whoever leaves the transport ibex out has ob1",
        btl: Some("^ibex"),
        chosen: "ob1",
        says: &["the pml declines"],
        ..PLAIN
    },
    Choice {
        sentence: "whoever asks for the pml ibex has it without the transport",
        pml: Some("ibex"),
        btl: Some("self,sm"),
        ..PLAIN
    },
    Choice {
        sentence: "the pml ibex goes below ob1 when its priority does",
        also: Some(("pml_ibex_priority", "5")),
        chosen: "ob1",
        ..PLAIN
    },
    Choice { sentence: "without a port a job has ob1", also: NO_PORT, chosen: "ob1", quick: true, ..PLAIN },
    Choice {
        sentence: "without a port the next of a list is taken",
        pml: Some("ibex,ob1"),
        also: NO_PORT,
        chosen: "ob1",
        says: &["found no port it can use"],
        ..PLAIN
    },
    Choice { sentence: "with a port the first of a list is taken", pml: Some("ibex,ob1"), ..PLAIN },
    Choice {
        sentence: "the pml monitoring stands before the pml ibex",
        pml: Some("ibex,monitoring"),
        also: Some(("pml_monitoring_enable", "1")),
        ..PLAIN
    },
];

/// The tests of this file.
pub(crate) fn tests() -> Vec<Test> {
    let mut tests: Vec<Test> = CHOICES
        .iter()
        .map(|choice| {
            let test = Test::new(choice.sentence, move |site| chooses(site, choice)).device_independent();
            if choice.quick { test.quick() } else { test }
        })
        .collect();
    tests.extend([
        Test::new("a job of one rank has the pml ibex", |site| {
            let outcome = asking(Launch::new("init_finalize", 1), None, None).succeeds(site)?;
            says(&outcome, &[&format!("{CHOSEN} ibex selected")])
        })
        .device_independent(),
        Test::new("the pml ibex alone without a port ends the job and says why", |site| {
            let launch = asking(Launch::of_a_short_exchange(), Some("ibex"), None).with("btl_ibex_if_exclude", "*");
            launch.is_refused_with(site, &["found no port it can use", "if_exclude"]).map(drop)
        })
        .device_independent(),
        Test::new("ranks that chose different pmls end with a message of both and what to set", |site| {
            for values in [["ibex", "ob1"], ["ob1", "ibex"]] {
                let launch = Launch::of_a_short_exchange().each_rank_with("pml", &values).limit(60);
                launch.is_refused_with(site, &["rank 0 on host", "rank 1 on host", "--mca pml ob1 for this job"])?;
            }
            Ok(())
        })
        .device_independent()
        .quick(),
        Test::on_two_nodes("ranks of two hosts that chose different pmls end with a message of both hosts", |site| {
            let launch = Launch::of_a_short_exchange().each_rank_with("pml", &["ob1", "ibex"]).on_two_nodes().limit(60);
            launch.is_refused_with(site, &["rank 0 on host", "--mca pml ob1 for this job"]).map(drop)
        }),
    ]);
    tests
}

/// A run with these lists, that says what is chosen.
fn asking(launch: Launch, pml: Option<&str>, btl: Option<&str>) -> Launch {
    let lists = [("pml", pml), ("btl", btl)];
    let launch = lists.into_iter().fold(launch, |launch, (name, list)| match list {
        Some(list) => launch.with(name, list),
        None => launch.without(name),
    });
    // Where there is no port, the windows of the program are made of messages.
    launch.with("osc", "rdma,pt2pt").with("pml_base_verbose", "10").with("btl_ibex_verbose", "1").limit(60)
}

fn chooses(site: &mut Site, choice: &Choice) -> Result<()> {
    let mut launch = asking(Launch::of_a_short_exchange(), choice.pml, choice.btl);
    if let Some((name, value)) = choice.also {
        launch = launch.with(name, value);
    }
    let outcome = launch.succeeds(site)?;
    says(&outcome, &[&format!("{CHOSEN} {} selected", choice.chosen)])?;
    says(&outcome, choice.says)?;
    let chosen = format!("{CHOSEN} {} selected", choice.chosen);
    let is_other = |line: &str| line.contains(CHOSEN) && line.ends_with(" selected") && !line.ends_with(&chosen);
    ensure!(!outcome.stderr.lines().any(is_other), "a rank has chosen otherwise: {outcome}");
    Ok(())
}
