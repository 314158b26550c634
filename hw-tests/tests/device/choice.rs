// SPDX-License-Identifier: MIT OR Apache-2.0
//! The PML that a job uses: by the user's lists, if ibex declines, and if ranks choose differently; and windows without
//! parameters, for which Open MPI chooses ibex or its shared memory. Setup grade; one test at a time.

use crate::launch::{Launch, Parameters, says};
use crate::site::Site;
use crate::test::Test;
use anyhow::{Result, ensure};

/// Beginning of the line by which Open MPI reports its choice of PML, with `pml_base_verbose`.
const CHOSEN: &str = "select: component";

/// Parameters that a user sets (PMLs, BTLs and others), and the PML that Open MPI then chooses.
struct Choice {
    sentence: &'static str,
    parameters: Parameters,
    chosen: &'static str,
    says: &'static [&'static str],
    quick: bool,
}

const fn choice(sentence: &'static str, parameters: Parameters, chosen: &'static str) -> Choice {
    Choice { sentence, parameters, chosen, says: &[], quick: false }
}

impl Choice {
    const fn saying(self, says: &'static [&'static str]) -> Self {
        Self { says, ..self }
    }

    const fn quick(self) -> Self {
        Self { quick: true, ..self }
    }
}

const NO_PORT: (&str, &str) = ("btl_ibex_if_exclude", "*");

static CHOICES: &[Choice] = &[
    choice("a job that names no component has the pml ibex", &[], "ibex").quick(),
    choice("a job that names ibex among the btls has the pml ibex", &[("btl", "self,ibex")], "ibex"),
    choice("a job that excludes other pmls has the pml ibex", &[("pml", "^ucx,cm")], "ibex"),
    choice("a job that excludes other btls has the pml ibex", &[("btl", "^tcp,openib")], "ibex"),
    choice("a job that names ob1 has ob1", &[("pml", "ob1")], "ob1").quick(),
    choice("a job that excludes the pml ibex has ob1", &[("pml", "^ibex,ucx,cm")], "ob1"),
    choice("a job that names btls without ibex has ob1", &[("btl", "self,sm")], "ob1").saying(&["the pml declines"]),
    choice("a job that excludes the btl ibex has ob1", &[("btl", "^ibex")], "ob1").saying(&["the pml declines"]),
    choice("a job that names the pml ibex has it without the btl", &[("pml", "ibex"), ("btl", "self,sm")], "ibex"),
    choice("the pml ibex goes below ob1 when its priority does", &[("pml_ibex_priority", "5")], "ob1"),
    choice("without a port a job has ob1", &[NO_PORT], "ob1").quick(),
    choice("without a port the next of a list is taken", &[("pml", "ibex,ob1"), NO_PORT], "ob1")
        .saying(&["found no port it can use"]),
    choice("with a port the first of a list is taken", &[("pml", "ibex,ob1")], "ibex"),
    choice(
        "the pml monitoring stands before the pml ibex",
        &[("pml", "ibex,monitoring"), ("pml_monitoring_enable", "1")],
        "ibex",
    ),
];

pub(crate) fn tests() -> Vec<Test> {
    let mut tests: Vec<Test> = CHOICES
        .iter()
        .map(|choice| {
            let test = Test::new(choice.sentence, move |site| chooses(site, choice)).device_independent();
            test.quick_if(choice.quick)
        })
        .collect();
    let of_one_device = [
        Test::new("one-sided operations between ranks of a host are right in a job that sets ob1 alone", |site| {
            ONE_SIDED.iter().try_for_each(|&program| plain(program).with("pml", "ob1").passes(site))
        }),
        Test::new("ranks of a host share memory and the pointer of a file in a job that sets nothing", |site| {
            plain("shared").passes(site)
        })
        .quick(),
        // This hangs if osc/rdma takes a BTL without checking that it reaches all ranks.
        Test::new("ranks share windows with a rank that has no port", |site| {
            let transports = ["self,tcp,ibex", "self,tcp,ibex", "self,tcp"];
            let launch = plain("rma_transfer").with("pml", "ob1").each_rank_with("btl", &transports);
            launch.with("osc", "rdma,pt2pt").scale(0.2).passes(site)
        }),
        Test::new("a job of one rank has the pml ibex", |site| {
            let outcome = asking(Launch::new("init_finalize", 1), &[]).succeeds(site)?;
            says(&outcome, &[&format!("{CHOSEN} ibex selected")])
        }),
        Test::new("the pml ibex alone without a port ends the job and says why", |site| {
            let launch = asking(Launch::of_a_short_exchange(), &[("pml", "ibex"), NO_PORT]);
            launch.is_refused_with(site, &["found no port it can use", "if_exclude"]).map(drop)
        }),
        Test::new("ranks that chose different pmls end with a message of both and of the parameter to set", |site| {
            for values in [["ibex", "ob1"], ["ob1", "ibex"]] {
                let launch = Launch::of_a_short_exchange().each_rank_with("pml", &values).limit(60);
                launch.is_refused_with(site, &["rank 0 on host", "rank 1 on host", "--mca pml ob1 for this job"])?;
            }
            Ok(())
        })
        .quick(),
    ];
    tests.extend(of_one_device.map(Test::device_independent));
    tests.extend([
        Test::new("one-sided operations between ranks of a host are right in a job that sets nothing", |site| {
            ONE_SIDED.iter().chain(&["threads"]).try_for_each(|&program| plain(program).passes(site))
        })
        .quick(),
        Test::on_two_nodes("ranks of two hosts that chose different pmls end with a message of both hosts", |site| {
            let launch = Launch::of_a_short_exchange().each_rank_with("pml", &["ob1", "ibex"]).on_two_nodes().limit(60);
            launch.is_refused_with(site, &["rank 0 on host", "--mca pml ob1 for this job"]).map(drop)
        }),
    ]);
    tests
}

/// Runs with these parameters and no other lists of PMLs or BTLs; Open MPI prints its choice.
fn asking(launch: Launch, parameters: Parameters) -> Launch {
    let launch = launch.without("pml").without("btl").with_all(parameters);
    // If there is no port, osc/pt2pt makes windows of messages.
    launch.with("osc", "rdma,pt2pt").with("pml_base_verbose", "10").with("btl_ibex_verbose", "1").limit(60)
}

fn chooses(site: &mut Site, choice: &Choice) -> Result<()> {
    let outcome = asking(Launch::of_a_short_exchange(), choice.parameters).succeeds(site)?;
    let chosen = format!("{CHOSEN} {} selected", choice.chosen);
    says(&outcome, &[&chosen])?;
    says(&outcome, choice.says)?;
    let is_other = |line: &str| line.contains(CHOSEN) && line.ends_with(" selected") && !line.ends_with(&chosen);
    ensure!(!outcome.stderr.lines().any(is_other), "a rank has chosen otherwise: {outcome}");
    Ok(())
}

/// Ranks of a program, with Open MPI's own choice of components.
fn plain(program: &'static str) -> Launch {
    Launch::new(program, 3).without("pml").without("btl").without("osc")
}

const ONE_SIDED: [&str; 3] = ["rma_atomics", "rma_transfer", "linked_list"];
