// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reason comes first: whichever request fails, ibex's message comes before those of Open MPI, and names the peer,
//! its host, the port, the queue pair and the status. The request fails on the second of two emulated adapters. Setup
//! grade; one test at a time.

use crate::launch::{Launch, Parameters, says, with_faults};
use crate::programs::{COPIED, WRITTEN};
use crate::site::Site;
use crate::test::Test;
use anyhow::{Result, ensure};

pub(crate) fn tests() -> Vec<Test> {
    let tests = KINDS.iter().enumerate().map(|(index, kind)| {
        let name = format!("the reason is said first when {} fail", kind.sentence);
        Test::on_emulated(name, move |site| is_said_first(site, kind, index))
    });
    tests.collect()
}

struct Kind {
    sentence: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
    parameters: Parameters,
}

/// The bench sends messages of this size in one direction, until the fault ends it.
macro_rules! stream_of {
    ($sentence:literal, $size:literal, $parameters:expr) => {
        kind(
            $sentence,
            "ibex_mpi_bench",
            &["--tests", "bandwidth", "--sizes", $size, "--seconds-per-row", "120"],
            $parameters,
        )
    };
}

const fn kind(
    sentence: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
    parameters: Parameters,
) -> Kind {
    Kind { sentence, program, arguments, parameters }
}

static KINDS: &[Kind] = &[
    stream_of!("inline messages", "8", &[]),
    stream_of!("copied messages", "8K", &[]),
    stream_of!("reads", "256K", &[]),
    stream_of!("fragments of long messages", "256K", &[("btl_ibex_flags", "send")]),
    stream_of!("writes to where the receiver says", "256K", WRITTEN),
    kind("pieces of messages with gaps", "pt2pt_datatypes", &[], COPIED),
    kind("one-sided transfers", "rma_transfer", &[], &[]),
    kind("atomics", "rma_atomics", &[], &[]),
    kind("requests of several threads", "threads", &[], &[]),
];

/// How a request fails: the rest of the fault's table, and the words that ibex must print.
static FAILURES: &[(&str, &str)] = &[
    ("action = \"status\"\nstatus = \"LOC_PROT_ERR\"", "LOC_PROT_ERR"),
    ("action = \"post-send-error\"\nerrno = \"EIO\"\ncount = 0", "Input/output error"),
    ("action = \"status\"\nstatus = \"REM_ACCESS_ERR\"", "REM_ACCESS_ERR"),
    ("action = \"status\"\nstatus = \"RETRY_EXC_ERR\"", "RETRY_EXC_ERR"),
    ("action = \"status\"\nstatus = \"RNR_RETRY_EXC_ERR\"", "RNR_RETRY_EXC_ERR"),
    ("action = \"status\"\nstatus = \"LOC_QP_OP_ERR\"", "LOC_QP_OP_ERR"),
    ("action = \"status\"\nstatus = \"REM_INV_REQ_ERR\"", "REM_INV_REQ_ERR"),
    ("action = \"status\"\nstatus = \"REM_OP_ERR\"", "REM_OP_ERR"),
    ("action = \"status\"\nstatus = \"FATAL_ERR\"", "FATAL_ERR"),
    ("action = \"status\"\nstatus = \"GENERAL_ERR\"", "GENERAL_ERR"),
    ("action = \"status\"\nstatus = \"BAD_RESP_ERR\"", "BAD_RESP_ERR"),
    ("action = \"status\"\nstatus = \"TM_RNDV_INCOMPLETE\"", "TM_RNDV_INCOMPLETE"),
];

/// Numbers of the request that fails. Every program posts more requests than these on the second adapter.
const NTH: [u32; 4] = [12, 40, 90, 150];

fn is_said_first(site: &mut Site, kind: &Kind, index: usize) -> Result<()> {
    if kind.program == "rma_atomics" && !site.device().has_atomics() {
        site.skip("the reason is said first when atomics fail", "the adapters have no atomics");
        return Ok(());
    }
    for (round, nth) in NTH.into_iter().enumerate() {
        // Each kind of request gets two refused posts and two other failures; all kinds together get all failures.
        let which = if round % 3 == 0 { 1 } else { (index * 2 + round) % FAILURES.len() };
        let (rule, status) = FAILURES[which];
        let adapters = with_faults(&format!("[[fault]]\n{rule}\ndevice = \"softhca1\"\nnth = {nth}\n"));
        let launch = Launch::new(kind.program, 2).arguments(kind.arguments).with_all(kind.parameters);
        let outcome = launch.limit(300).on_adapters(adapters).is_refused_with(site, &[])?;
        says(&outcome, &["ibex lost a peer", "to rank ", " on host ", "softhca1:1", "queue pair 0x", status])?;
        // mpirun's own output comes by another way, so its order says nothing.
        let others = ["pml_ob1", "osc_rdma", "FATAL\n", "Out of resource", "MPI_ERR_"];
        let others = others.iter().filter_map(|word| outcome.stderr.find(word)).min();
        let reason = outcome.stderr.find("ibex lost a peer");
        ensure!(others.is_none() || reason < others, "Open MPI's words are before the reason: {outcome}");
    }
    Ok(())
}
