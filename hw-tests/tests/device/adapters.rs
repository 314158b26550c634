// SPDX-License-Identifier: MIT OR Apache-2.0
//! Adapters that differ within the rules of verbs: ibex uses what an adapter has, and reports what it lacks. Emulated
//! adapters differ in a few keys, or have the profile of a real one (docs/softhca.md). Setup grade; one at a time.

use crate::launch::{Launch, says};
use crate::site::Site;
use crate::test::Test;
use anyhow::Result;
use hw_tests::openmpi::Series;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::on_emulated("an adapter without atomics connects, however it answers the access flag", without_atomics),
        Test::on_emulated("windows need no parameter over adapters without atomics", windows_without_atomics),
        Test::on_emulated(
            "an atomic on memory that is not there ends the job with the reason, over adapters without atomics",
            atomic_on_nothing,
        )
        .quick(),
        Test::on_emulated(
            "a completion queue that is too short for the receives leaves half of its room to sends",
            short_queue,
        ),
        Test::on_emulated("a completion queue that holds too little refuses the port with its number", tiny_queue),
        Test::on_emulated("ibex copies over an adapter that takes one piece a message", one_piece),
        Test::on_emulated("ibex asks for less inline if an adapter refuses a queue pair without an error", no_errno),
        Test::on_emulated("an adapter without shared receive queues is refused with that reason", no_shared_receives),
    ]
}

fn adapter(tables: &str) -> String {
    format!("[[device]]\nname = \"softhca0\"\n{tables}\n")
}

/// `ibv_modify_qp` may refuse `IBV_ACCESS_REMOTE_ATOMIC` with one of two errors, or accept it.
fn without_atomics(site: &mut Site) -> Result<()> {
    for answer in ["eopnotsupp", "einval", "accepted"] {
        let tables = format!(
            "[device.limits]\natomics = \"none\"\n[device.behaviour]\natomic_access_without_cap = \"{answer}\""
        );
        Launch::of_a_short_exchange().on_adapters(adapter(&tables)).succeeds(site)?;
        let windows = Launch::new("rma_atomics", 2).scale(0.2);
        windows.on_adapters(adapter(&tables)).passes(site)?;
    }
    Ok(())
}

/// Started as a user does it, over either PML, with and without threads.
fn windows_without_atomics(site: &mut Site) -> Result<()> {
    let programs = [("rma_atomics", 1), ("rma_transfer", 2), ("rma_atomics", 2), ("linked_list", 3), ("threads", 2)];
    for profile in ["minimal", "bnxt_re"] {
        for (pml, (program, ranks)) in ["ob1", "ibex"].into_iter().flat_map(|pml| programs.map(|of| (pml, of))) {
            let launch = Launch::new(program, ranks).with("pml", pml).without("osc");
            launch.scale(0.2).on_adapters(adapter(&format!("profile = \"{profile}\""))).passes(site)?;
        }
    }
    Ok(())
}

/// No rank waits for the atomic, whichever PML the job uses.
fn atomic_on_nothing(site: &mut Site) -> Result<()> {
    if Series::here()?.has_atomics_by_messages() {
        site.skip("rma_outside", "this Open MPI performs atomics by messages of its own, and crashes in them");
        return Ok(());
    }
    for pml in ["ob1", "ibex"] {
        let launch = Launch::new("rma_outside", 2).with("pml", pml).without("osc").with("mpi_param_check", "0");
        let launch = launch.limit(60).on_adapters(adapter("profile = \"minimal\""));
        let words = ["ibex: rank 0: an atomic operation on 8 bytes at 0x1000 of rank 1", "was not done", "softhca0:1"];
        launch.is_refused_with(site, &words)?;
    }
    Ok(())
}

fn short_queue(site: &mut Site) -> Result<()> {
    for entries in [64, 255, 1100] {
        let tables = format!("[device.limits]\nmax_cqe = {entries}\nmax_srq_wr = 4096");
        let launch = Launch::new("pt2pt_flood", 2).scale(0.2).with("btl_ibex_verbose", "1");
        let outcome = launch.on_adapters(adapter(&tables)).succeeds(site)?;
        let (receives, asked) = (entries / 2, 1024);
        says(&outcome, &[&format!("{receives} receives"), &format!("instead of {asked}"), "softhca0:1"])?;
    }
    Ok(())
}

fn tiny_queue(site: &mut Site) -> Result<()> {
    let launch = Launch::of_a_short_exchange().on_adapters(adapter("[device.limits]\nmax_cqe = 31"));
    launch.is_refused_with(site, &["ibex cannot use a port", "softhca0:1", "31 entries"]).map(drop)
}

fn one_piece(site: &mut Site) -> Result<()> {
    let tables = "[device.limits]\nmax_sge = 1\nmax_sge_rd = 1\nmax_srq_sge = 1";
    for program in ["pt2pt_modes", "pt2pt_datatypes"] {
        Launch::new(program, 2).scale(0.2).on_adapters(adapter(tables)).passes(site)?;
    }
    Ok(())
}

fn no_errno(site: &mut Site) -> Result<()> {
    let tables = "[device.limits]\nmax_inline = 96\n[device.behaviour]\ncreate_qp_errno_on_limit = \"unset\"";
    Launch::of_a_short_exchange().on_adapters(adapter(tables)).succeeds(site).map(drop)
}

fn no_shared_receives(site: &mut Site) -> Result<()> {
    let launch = Launch::of_a_short_exchange().on_adapters(adapter("profile = \"irdma\""));
    launch.is_refused_with(site, &["ibex cannot use a port", "shared receive queue", "does not have"]).map(drop)
}
