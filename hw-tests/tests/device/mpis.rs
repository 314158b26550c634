// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stock MPIs of the Python package index over the libfabric provider, as a user starts them: `ibex run -- mpiexec`.
//! They run the programs of hw-tests/mpi, compiled with their own headers, but those that say `Needs Open MPI`, which
//! means one with ibex' components. `IBEX_MPICH`, `IBEX_INTEL_MPI` and `IBEX_OPEN_MPI` name their folders. A packet that
//! the adapter duplicates shows that it carried the messages. Setup grade; one test at a time.

use crate::launch::{Launch, SCALE};
use crate::listed::every_program_is_listed;
use crate::provider_tools::counted;
use crate::recorder::{a_place, sound, trace};
use crate::site::{Site, command, faults_applied};
use crate::test::Test;
use anyhow::{Result, ensure};
use hw_tests::openmpi::why_needed;
use hw_tests::{Job, Outcome};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use std::{env, fs};

/// An MPI: its name, the variable with its folder, and its launcher's options for more ranks than processors.
#[derive(Clone, Copy)]
pub(crate) struct Stock(&'static str, &'static str, &'static [&'static str]);

pub(crate) const MPICH: Stock = Stock("MPICH", "IBEX_MPICH", &[]);
pub(crate) const INTEL: Stock = Stock("Intel MPI", "IBEX_INTEL_MPI", &[]);
pub(crate) const OPEN_MPI: Stock = Stock("Open MPI", "IBEX_OPEN_MPI", &["--map-by", ":OVERSUBSCRIBE"]);

/// Programs, with the ranks on which MPICH runs them. Intel MPI runs each on the most ranks up to [`USUAL`].
const PROGRAMS: [(&str, &[usize]); 22] = [
    ("allocations", &[2]),
    ("collectives", &[2, 4, 8]),
    ("communicators", &[2, 4, 8]),
    ("connect_cycles", &[2, 4]),
    ("first_contact", &[2, 4, 8]),
    ("fork_exec", &[2, 4]),
    ("init_finalize", &[2, 4]),
    ("linked_list", &[2, 4]),
    ("message_over_2gib", &[2]),
    ("pending_receives", &[2, 4]),
    ("pt2pt_datatypes", &[2, 4]),
    ("pt2pt_flood", &[2]),
    ("pt2pt_matching", &[2, 4]),
    ("pt2pt_modes", &[2, 4, 8]),
    ("pt2pt_requests", &[2, 4]),
    ("rma_atomics", &[2, 4]),
    ("rma_transfer", &[2, 4, 8]),
    ("self_messages", &[2, 4]),
    ("strided_sends", &[2, 4]),
    ("threads", &[2, 4]),
    ("traffic", &[2, 4, 8]),
    ("unexpected_memory", &[2]),
];

/// The most ranks on which a program runs with Intel MPI, and with MPICH on each emulated device.
const USUAL: usize = 4;

const QUICK: [&str; 3] = ["collectives", "pt2pt_modes", "traffic"];

/// Programs that neither MPICH nor Intel MPI runs over ibex, with the reasons.
const NOT_RUN: [(&str, &str); 1] =
    [("shared", "these MPIs have no windows of shared memory if their ranks are not to share memory")];

/// Programs that Intel MPI alone does not run, with the reasons.
const NOT_BY_INTEL: [(&str, &str); 1] =
    [("allocations", "Intel MPI has an allocator of its own, which the program cannot count")];

/// MPICH 5.0 crashes, over any provider, when `MPI_Mrecv` receives a message that `MPI_Mprobe` has found from any
/// source on a duplicated communicator into pieces of memory, unless it unpacks the message by itself.
const UNPACKS: (&str, &str) = ("MPIR_CVAR_CH4_OFI_ENABLE_PT2PT_NOPACK", "0");

/// MiB by which processes of MPICH may grow in `unexpected_memory`. Its short sends end at once, so the sender keeps
/// those that are held back.
const MOST: &str = "96";

/// Programs that mean something only to the tests that start them.
const OF_OTHER_TESTS: [&str; 5] = ["abnormal_exit", "pcontrol", "rail_down", "rma_outside", "waits"];

/// Programs that the launcher starts with two ranks on each of two hosts. Both host names stand for this machine. Ranks
/// on the same host share memory.
const ON_TWO_HOSTS: [&str; 4] = ["collectives", "pt2pt_flood", "rma_transfer", "traffic"];

/// A stand-in for the launcher's remote shell: it ignores the host name and runs the command on this machine.
const REMOTE_SHELL: &str = "#!/bin/sh
while [ \"${1#-}\" != \"$1\" ]; do shift; done
shift
exec sh -c \"$*\"
";

/// Options of `ibex run` with which the adapter also carries messages between ranks of the same host.
pub(crate) const BY_THE_ADAPTER: &[&str] = &["--no-shared-memory"];

/// Intel MPI's own benchmarks, each with the number of tables that it prints on 4 ranks. They check no data.
const OF_INTEL: [(&str, usize); 2] = [("IMB-MPI1", 19), ("IMB-RMA", 22)];

/// Programs that an Open MPI without components runs on two ranks.
const OF_OPEN_MPI: [&str; 4] = ["collectives", "pt2pt_datatypes", "pt2pt_modes", "pt2pt_requests"];

pub(crate) fn tests() -> Vec<Test> {
    let on = |stock: Stock, program: &'static str, ranks: usize| {
        let name = format!("a stock {} runs {program} by ibex run on {ranks} ranks", stock.0).to_lowercase();
        Test::on_emulated(name, move |site| runs(site, stock, ranks, program, &[]))
    };
    let mut tests = vec![
        Test::new("every program in the folder runs with MPICH or says why not", is_listed).quick(),
        Test::on_emulated("ibex run finds the MPI of mpi4py", finds_the_mpi_of_python).quick().device_independent(),
    ];
    for (program, ranks) in PROGRAMS {
        let usual = ranks.iter().copied().filter(|ranks| *ranks <= USUAL).max().unwrap_or(USUAL);
        for ranks in ranks.iter().copied() {
            let test = on(MPICH, program, ranks).quick_if(ranks == 2 && QUICK.contains(&program));
            tests.push(if ranks == usual { test } else { test.device_independent() });
        }
        if !NOT_BY_INTEL.iter().any(|(not, _)| *not == program) {
            tests.push(on(INTEL, program, usual).device_independent());
        }
    }
    for stock in [MPICH, INTEL] {
        for parents in [1, 2] {
            let name = format!("two processes that {parents} of a stock {} spawn talk to them", stock.0).to_lowercase();
            let spawn = move |site: &mut Site| runs(site, stock, parents, "connect_cycles", &["spawn"]);
            tests.push(Test::on_emulated(name, spawn).device_independent());
        }
        let name = format!("a stock {} accumulates by libfabric's atomics", stock.0).to_lowercase();
        tests.push(Test::on_emulated(name, move |site| accumulates(site, stock)));
        for program in ON_TWO_HOSTS {
            let name =
                format!("a stock {} runs {program} by shared memory within hosts, by ibex between them", stock.0);
            let between = move |site: &mut Site| runs_on_two_hosts(site, stock, program);
            tests.push(Test::on_emulated(name.to_lowercase(), between).device_independent());
        }
    }
    for (program, tables) in OF_INTEL {
        let name = format!("a stock intel mpi runs its {program} by ibex run on 4 ranks");
        tests.push(Test::on_emulated(name, move |site| measures(site, program, tables)).device_independent());
    }
    tests.extend(OF_OPEN_MPI.map(|program| on(OPEN_MPI, program, 2).device_independent()));
    tests
}

fn is_listed(site: &mut Site) -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("mpi");
    let mut need_openmpi = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        need_openmpi.extend(why_needed(&path).and_then(|_| Some(path.file_stem()?.to_string_lossy().into_owned())));
    }
    let run = PROGRAMS.map(|(program, _)| program);
    ensure!(run.iter().all(|run| !need_openmpi.contains(&(*run).to_owned())), "a program says that it needs Open MPI");
    let not_run = NOT_RUN.map(|(program, _)| program);
    let others = need_openmpi.iter().map(String::as_str);
    every_program_is_listed("mpi", run.into_iter().chain(not_run).chain(OF_OTHER_TESTS).chain(others), file!())?;
    for (program, reason) in NOT_RUN {
        site.skip(&format!("{program} with MPICH and Intel MPI"), reason);
    }
    for (program, reason) in NOT_BY_INTEL {
        site.skip(&format!("{program} with Intel MPI"), reason);
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
    let job = job(site, (inside, BY_THE_ADAPTER), stock, &["-n", &ranks.to_string()], words)?;
    job.map(|job| watched(site, &job)).transpose()
}

fn watched(site: &mut Site, job: &Job) -> Result<Outcome> {
    let fabric = site.fabric_on(WATCHED)?;
    let outcome = fabric.run(job)?;
    faults_applied(fabric, WATCHED, &outcome)?;
    Ok(outcome)
}

/// Makes a job that runs `words[0]`, a program in the MPI's folder, with the arguments that follow: `ibex run`, with
/// options `run`, starts the MPI's `mpiexec`, with `options`. If `inside` is not empty, `ibex` with these arguments
/// starts `ibex run`. `None`: the MPI is not installed.
pub(crate) fn job(
    site: &mut Site,
    (inside, run): (&[&str], &[&str]),
    stock: Stock,
    options: &[&str],
    words: &[&str],
) -> Result<Option<Job>> {
    let Stock(name, variable, oversubscribed) = stock;
    let Ok(folder) = env::var(variable) else {
        site.skip(words[0], &format!("{name} of PyPI is not there; `cargo xtask test` says why"));
        return Ok(None);
    };
    let ibex = command()?;
    let (mpiexec, program) = (format!("{folder}/bin/mpiexec"), format!("{folder}/{}", words[0]));
    let launcher = [&[&ibex, "run", "--verbose"], run, &["--", &mpiexec]].concat();
    let own = [&[ibex.as_str()], inside].concat();
    let inside = if inside.is_empty() { &[][..] } else { &own };
    let command = [inside, &launcher, options, oversubscribed, &[&program], &words[1..]].concat();
    let mut job = Job::new(command).limit(Duration::from_mins(4)).env(SCALE, (site.share() * 0.5).to_string());
    job.env.extend(["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"].map(|name| (name.into(), "1".into())));
    if words[0].ends_with("/traffic") {
        job = job.env(UNPACKS.0, UNPACKS.1);
    }
    Ok(Some(job))
}

fn runs(site: &mut Site, stock: Stock, ranks: usize, program: &'static str, arguments: &[&str]) -> Result<()> {
    let path = format!("programs/{program}");
    let bound: &[&str] = if program == "unexpected_memory" { &["--most", MOST] } else { &[] };
    match started(site, stock, ranks, &[&[path.as_str()], bound, arguments].concat())? {
        Some(outcome) => Launch::new(program, ranks).judge(site, outcome),
        None => Ok(()),
    }
}

fn runs_on_two_hosts(site: &mut Site, stock: Stock, program: &'static str) -> Result<()> {
    let place = a_place()?;
    let shell = place.file("shell");
    fs::write(&shell, REMOTE_SHELL)?;
    fs::set_permissions(&shell, Permissions::from_mode(0o755))?;
    let [kind, path] =
        if stock.0 == INTEL.0 { ["-bootstrap", "-bootstrap-exec"] } else { ["-launcher", "-launcher-exec"] };
    let shell = shell.display().to_string();
    let options = [kind, "ssh", path, &shell, "-hosts", "first,second", "-ppn", "2", "-n", "4"];
    let words = [&*format!("programs/{program}")];
    let Some(job) = job(site, (&[], &[]), stock, &options, &words)? else { return Ok(()) };
    let outcome = watched(site, &job)?;
    Launch::new(program, 4).judge(site, outcome)
}

/// The trace of the provider shows that the MPI used libfabric's atomics.
fn accumulates(site: &mut Site, stock: Stock) -> Result<()> {
    let place = a_place()?;
    let to = trace(&place).display().to_string();
    let inside = ["trace", "--events", "operations", "-o", &to, "--"];
    let words = ["programs/rma_atomics", "--same-op"];
    let Some(outcome) = started_inside(site, &inside, stock, 2, &words)? else { return Ok(()) };
    Launch::new("rma_atomics", 2).judge(site, outcome)?;
    for reader in sound(&trace(&place))?.readers() {
        let atomics = counted(reader).get("atomic_complete").copied().unwrap_or(0);
        ensure!(atomics > 100, "{atomics} operations of rank {:?} went by atomics of libfabric", reader.head().rank);
    }
    Ok(())
}

/// The loader finds Intel's library for its benchmarks only if it is told where.
const BESIDE_ITS_LIBRARY: &str = "LD_LIBRARY_PATH=\"$LD_LIBRARY_PATH:$0\" exec \"$@\"";

fn measures(site: &mut Site, program: &str, tables: usize) -> Result<()> {
    let words = [&format!("bin/{program}"), "-npmin", "4", "-iter", "5", "-msgsize", "0,8,4096,65536,1048576"];
    let Some(mut job) = job(site, (&[], BY_THE_ADAPTER), INTEL, &["-n", "4"], &words)? else { return Ok(()) };
    let library = format!("{}/lib", env::var(INTEL.1)?);
    job.argv = ["sh", "-c", BESIDE_ITS_LIBRARY, &library].map(str::to_owned).into_iter().chain(job.argv).collect();
    let outcome = watched(site, &job)?.checked()?;
    let printed = outcome.stdout.matches("# Benchmarking ").count();
    ensure!(printed == tables, "{program} printed {printed} tables, not {tables}: {outcome}");
    Ok(())
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
