// SPDX-License-Identifier: MIT OR Apache-2.0
//! One-sided MPI of those who set nothing: no PML, no list of transports, none of the components of windows.
//!
//! Open MPI then chooses between ibex and its own shared memory for each window. Setup grade; one test at a time.

use crate::launch::Launch;
use crate::test::Test;
use anyhow::Result;

/// The tests of this file.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("one-sided operations between ranks of a host are right in a job that sets nothing", |site| {
            one_sided(|program| plain(program).passes(site))
        })
        .quick(),
        Test::new("one-sided operations between ranks of a host are right in a job that sets ob1 alone", |site| {
            one_sided(|program| plain(program).with("pml", "ob1").passes(site))
        }),
        // A BTL that osc/rdma took without looking whether it reaches all ranks would hang here.
        Test::new("ranks have windows in common of which one has no port", |site| {
            let transports = ["self,tcp,ibex", "self,tcp,ibex", "self,tcp"];
            let launch = plain("rma_transfer").with("pml", "ob1").each_rank_with("btl", &transports);
            launch.with("osc", "rdma,pt2pt").scale(0.2).passes(site)
        })
        .device_independent(),
    ]
}

/// Ranks of a program with what Open MPI chooses.
fn plain(program: &'static str) -> Launch {
    Launch::new(program, 3).without("pml").without("btl").without("osc")
}

fn one_sided(mut passes: impl FnMut(&'static str) -> Result<()>) -> Result<()> {
    ["rma_atomics", "rma_transfer", "linked_list"].into_iter().try_for_each(&mut passes)
}
