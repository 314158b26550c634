// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether this PML is the job's: what the user's lists say, and whether the other ranks have come to the same.
//!
//! Two lists of the user's count. `pml`: a list with ibex, or none, has it considered; `^ibex`, or a list without it,
//! not. `btl`: whoever leaves ibex out of the transports, and asks for no PML, wants those that he has named: the PML
//! declines. Grade: setup. Threads: any. Tests: below; `hw-tests/tests/device/choice.rs`.

use ibex_ffi::openmpi::process::{Name, Process};
use ibex_ffi::openmpi::{release, variable};

use crate::runtime::component::names_ibex;
use crate::runtime::{messages, modex};

/// The PMLs that the user asked for, as he wrote it; empty where he did not.
pub(crate) fn pmls() -> String {
    variable::text(c"pml", None, None).unwrap_or_default()
}

/// Whether the user asked for this one.
pub(crate) fn is_asked_for() -> bool {
    names_ibex(&pmls())
}

/// The names to be added to those that Open MPI considers.
pub(crate) fn considered(list: &str) -> Vec<&str> {
    if names_ibex(list) {
        list.split(',').map(str::trim).collect()
    } else if permits_ibex(list) {
        vec!["ibex"]
    } else {
        Vec::new()
    }
}

/// Why the PML is not for this job, whatever ports there are.
pub(crate) fn declines() -> Option<&'static str> {
    // Open MPI looks into pending requests then, and takes them for such as ob1's and cm's.
    if release::is_fault_tolerant() {
        return Some("the PML declines, as the job is started with fault tolerance: ob1 has it, over the BTL of ibex");
    }
    let btls = variable::text(c"btl", None, None).unwrap_or_default();
    (!is_asked_for() && !permits_ibex(&btls))
        .then_some("the PML declines, as the parameter btl leaves ibex out and the parameter pml does not ask for it")
}

/// Whether a list of the user's permits ibex: it names it, or is empty, or says what else is left out.
fn permits_ibex(list: &str) -> bool {
    match list.trim().strip_prefix('^') {
        Some(without) => !names_ibex(without),
        None => list.trim().is_empty() || names_ibex(list),
    }
}

/// Whether a process has chosen this PML, too; else says that it has not.
pub(crate) fn is_same(process: Process) -> bool {
    let peer = modex::from_openmpi(process.name());
    let is_me = Process::me().is_some_and(|me| me.name() == process.name());
    if is_me || modex::has_pml(peer) {
        return true;
    }
    messages::other_pml(peer, &process.host());
    false
}

/// Says that rank 0 has chosen another PML, if it has. Open MPI compares with it wherever it is, and names no cure.
pub(crate) fn say_of_rank_0() {
    let rank_0 = Process::me().and_then(|me| Process::of(Name { rank: 0, ..me.name() }));
    rank_0.map(is_same);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_of_a_list_with_ibex_is_considered_and_ibex_where_nothing_is_against_it() {
        assert_eq!(considered("ibex"), ["ibex"]);
        assert_eq!(considered("ibex, ob1"), ["ibex", "ob1"]);
        for list in ["", "^ucx", "^ucx,cm"] {
            assert_eq!(considered(list), ["ibex"], "{list:?}");
        }
        for list in ["ob1", "^ibex", "^ucx, ibex", "ibexx", "ucx,ob1"] {
            assert!(considered(list).is_empty(), "{list:?}");
        }
    }

    #[test]
    fn transports_without_ibex_are_no_job_of_its() {
        for (list, permits) in
            [("", true), ("self,ibex", true), ("^tcp", true), ("self,vader", false), ("^ibex", false), ("tcp", false)]
        {
            assert_eq!(permits_ibex(list), permits, "{list:?}");
        }
    }
}
