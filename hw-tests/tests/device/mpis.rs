// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stock MPIs of the Python package index over the libfabric provider, as a user starts them: `ibex run -- mpiexec`.
//! They run the programs of hw-tests/mpi, compiled with their own headers, but those that say `Needs Open MPI`, which
//! means one with ibex' components. `IBEX_MPICH` and `IBEX_OPEN_MPI` name their folders. A packet that the adapter
//! duplicates shows that it carried the messages. Setup grade; one test at a time.

use crate::launch::{Launch, SCALE};
use crate::listed::every_program_is_listed;
use crate::site::{Site, command, faults_applied};
use crate::test::Test;
use anyhow::{Result, ensure};
use hw_tests::openmpi::why_needed;
use hw_tests::{Job, Outcome};
use std::path::Path;
use std::time::Duration;
use std::{env, fs};

/// An MPI: its name, the variable with its folder, and its launcher's options for more ranks than processors.
#[derive(Clone, Copy)]
pub(crate) struct Stock(&'static str, &'static str, &'static [&'static str]);

pub(crate) const MPICH: Stock = Stock("MPICH", "IBEX_MPICH", &[]);
const OPEN_MPI: Stock = Stock("Open MPI", "IBEX_OPEN_MPI", &["--map-by", ":OVERSUBSCRIBE"]);

/// Programs that MPICH runs, with their ranks.
const OF_MPICH: [(&str, &[usize]); 22] = [
    ("allocations", &[2]),
    ("collectives", &[2, 4]),
    ("communicators", &[2, 4]),
    ("connect_cycles", &[2, 4]),
    ("first_contact", &[2, 4]),
    ("fork_exec", &[2, 4]),
    ("init_finalize", &[2, 4]),
    ("linked_list", &[2, 4]),
    ("message_over_2gib", &[2]),
    ("pending_receives", &[2, 4]),
    ("pt2pt_datatypes", &[2, 4]),
    ("pt2pt_flood", &[2]),
    ("pt2pt_matching", &[2, 4]),
    ("pt2pt_modes", &[2, 4]),
    ("pt2pt_requests", &[2, 4]),
    ("rma_atomics", &[2, 4]),
    ("rma_transfer", &[2, 4]),
    ("self_messages", &[2, 4]),
    ("strided_sends", &[2, 4]),
    ("threads", &[2, 4]),
    ("traffic", &[2, 4]),
    ("unexpected_memory", &[2]),
];

const QUICK: [&str; 3] = ["collectives", "pt2pt_modes", "traffic"];

/// Programs that run with MPICH, but not over ibex, with the reasons.
const NOT_RUN: [(&str, &str); 1] =
    [("shared", "MPICH has no windows of shared memory if its ranks are not to share memory")];

/// MPICH 5.0 crashes, over any provider, when `MPI_Mrecv` receives a message that `MPI_Mprobe` has found from any
/// source on a duplicated communicator into pieces of memory, unless it unpacks the message by itself.
const UNPACKS: (&str, &str) = ("MPIR_CVAR_CH4_OFI_ENABLE_PT2PT_NOPACK", "0");

/// MiB by which processes of MPICH may grow in `unexpected_memory`. Its short sends end at once, so the sender keeps
/// those that are held back.
const MOST: &str = "96";

/// Programs that mean something only to the tests that start them.
const OF_OTHER_TESTS: [&str; 5] = ["abnormal_exit", "pcontrol", "rail_down", "rma_outside", "waits"];

/// Programs that an Open MPI without components runs on two ranks.
const OF_OPEN_MPI: [&str; 4] = ["collectives", "pt2pt_datatypes", "pt2pt_modes", "pt2pt_requests"];

pub(crate) fn tests() -> Vec<Test> {
    let on = |stock: Stock, program: &'static str, ranks: usize| {
        let name = format!("a stock {} runs {program} by ibex run on {ranks} ranks", stock.0).to_lowercase();
        Test::on_emulated(name, move |site| runs(site, stock, program, ranks)).device_independent()
    };
    let mut tests = vec![
        Test::new("every program in the folder runs with MPICH or says why not", is_listed).quick(),
        Test::on_emulated("ibex run finds the MPI of mpi4py", finds_the_mpi_of_python).quick().device_independent(),
    ];
    for (program, ranks) in OF_MPICH {
        let test = |ranks: &usize| on(MPICH, program, *ranks).quick_if(*ranks == 2 && QUICK.contains(&program));
        tests.extend(ranks.iter().map(test));
    }
    tests.extend(OF_OPEN_MPI.map(|program| on(OPEN_MPI, program, 2)));
    tests
}

fn is_listed(site: &mut Site) -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("mpi");
    let mut need_openmpi = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        need_openmpi.extend(why_needed(&path).and_then(|_| Some(path.file_stem()?.to_string_lossy().into_owned())));
    }
    let run = OF_MPICH.map(|(program, _)| program);
    ensure!(run.iter().all(|run| !need_openmpi.contains(&(*run).to_owned())), "a program says that it needs Open MPI");
    let not_run = NOT_RUN.map(|(program, _)| program);
    let others = need_openmpi.iter().map(String::as_str);
    every_program_is_listed("mpi", run.into_iter().chain(not_run).chain(OF_OTHER_TESTS).chain(others), file!())?;
    for (program, reason) in NOT_RUN {
        site.skip(&format!("{program} with MPICH"), reason);
    }
    Ok(())
}

/// The adapter repeats a packet of a connection, which its receiver notices and drops.
const WATCHED: &str = "[[device]]\n[[fault]]\naction = \"duplicate\"\nqp_type = \"rc\"\nnth = 1\n";

/// Runs a command of an MPI's folder by `ibex run`, whose messages must all go by the adapter. `None`: it is not here.
fn started(site: &mut Site, stock: Stock, ranks: usize, words: &[&str]) -> Result<Option<Outcome>> {
    started_inside(site, &[], stock, ranks, words)
}

/// [`started`], inside another command of `ibex`.
pub(crate) fn started_inside(
    site: &mut Site,
    inside: &[&str],
    stock: Stock,
    ranks: usize,
    words: &[&str],
) -> Result<Option<Outcome>> {
    let Stock(name, variable, options) = stock;
    let Ok(folder) = env::var(variable) else {
        site.skip(words[0], &format!("{name} of PyPI is not there; `cargo xtask test` says why"));
        return Ok(None);
    };
    let (ibex, ranks) = (command()?, ranks.to_string());
    let (mpiexec, program) = (format!("{folder}/bin/mpiexec"), format!("{folder}/{}", words[0]));
    let launcher = [&ibex, "run", "--verbose", "--no-shared-memory", "--", &mpiexec, "-n", &ranks];
    let own = [&[ibex.as_str()], inside].concat();
    let inside = if inside.is_empty() { &[][..] } else { &own };
    let command = [inside, &launcher, options, &[&program], &words[1..]].concat();
    let mut job = Job::new(command).limit(Duration::from_mins(4)).env(SCALE, (site.share() * 0.5).to_string());
    job.env.extend(["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"].map(|name| (name.into(), "1".into())));
    if words[0].ends_with("/traffic") {
        job = job.env(UNPACKS.0, UNPACKS.1);
    }
    let fabric = site.fabric_on(WATCHED)?;
    let outcome = fabric.run(&job)?;
    faults_applied(fabric, WATCHED, &outcome)?;
    Ok(Some(outcome))
}

fn runs(site: &mut Site, stock: Stock, program: &'static str, ranks: usize) -> Result<()> {
    let path = format!("programs/{program}");
    let words: &[&str] = if program == "unexpected_memory" { &[&path, "--most", MOST] } else { &[&path] };
    match started(site, stock, ranks, words)? {
        Some(outcome) => Launch::new(program, ranks).judge(site, outcome),
        None => Ok(()),
    }
}

pub(crate) const IN_PYTHON: &str = "from mpi4py import MPI; world = MPI.COMM_WORLD
for round in range(50): assert world.allgather(world.rank * round) == [rank * round for rank in range(world.size)]
if world.rank == 0: print(world.size, 'ranks agree by', MPI.Get_library_version().split()[0])";

fn finds_the_mpi_of_python(site: &mut Site) -> Result<()> {
    let Some(outcome) = started(site, MPICH, 2, &["bin/python", "-c", IN_PYTHON])? else { return Ok(()) };
    let outcome = outcome.checked()?;
    ensure!(outcome.stderr.contains("bin/python loads MPICH"), "ibex run does not say what it found: {outcome}");
    ensure!(outcome.stdout == "2 ranks agree by MPICH\n", "two ranks do not agree: {outcome}");
    Ok(())
}
