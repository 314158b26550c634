// SPDX-License-Identifier: MIT OR Apache-2.0
//! The flight recorder: a failure, and nothing else, leaves a file, which ibex names and which describes the failure;
//! and the output of `ibex top` and `ibex explain --live` for a running job. Each test has its own folder in shared
//! memory. Setup grade; one test at a time.

use crate::endings::killed;
use crate::launch::Launch;
use crate::recorder::{a_place, trace};
use crate::site::{Site, command};
use crate::test::Test;
use anyhow::{Context, Result, ensure};
use hw_tests::Folder;
use std::fs;
use std::path::Path;
use std::process::Command;

type Run = fn(&mut Site) -> Result<()>;

pub(crate) fn tests() -> Vec<Test> {
    // The quick tier has jobs over the PML that end by themselves.
    let tests: [(&str, Run, bool); 7] = [
        ("the flight recorder tells of a peer that died", peer_dies, false),
        ("the flight recorder tells of a request that failed", request_fails, true),
        ("the flight recorder of a process that is killed stays", all_die, false),
        ("a job that ends well leaves no file of its flight recorder", leaves_nothing, true),
        ("a job without a place for the flight recorder goes on", goes_on_without, true),
        ("top shows the counters of a job's processes", top, false),
        ("explain tells of a process that runs, recorded or not", explain, false),
    ];
    let by_the_pml = tests.map(|(name, run, is_quick)| Test::on_emulated(name, run).over_the_pml().quick_if(is_quick));
    // What fails below ob1 takes another way into the file.
    let below_ob1 = tests.into_iter().take(2).map(|(name, run, _)| Test::on_emulated(name, run).device_independent());
    below_ob1.chain(by_the_pml).collect()
}

fn folder() -> Result<Folder> {
    Folder::within(Path::new("/dev/shm"), "ibex-flight-test")
}

fn name(folder: &Folder) -> String {
    folder.path().display().to_string()
}

fn files(folder: &Folder) -> Result<Vec<String>> {
    let names = fs::read_dir(folder.path())?.map(|file| Ok(file?.file_name().to_string_lossy().into_owned()));
    names.filter(|name| !matches!(name, Ok(log) if log.starts_with(".log"))).collect()
}

fn told(folder: &Folder) -> Result<String> {
    let output = Command::new(command()?).args(["flight", "--last", "0"]).arg(folder.path()).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "ibex flight failed: {text}{}", String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

fn has_all(text: &str, words: &[&str]) -> Result<()> {
    let missing = words.iter().find(|word| !text.contains(**word));
    ensure!(missing.is_none(), "ibex flight does not say {:?}: {text}", missing.unwrap_or(&""));
    Ok(())
}

/// The runtime does not report the death, so ibex must.
fn peer_dies(site: &mut Site) -> Result<()> {
    let folder = folder()?;
    let launch = killed("large", "--enable-recovery").with("btl_ibex_probe_interval", "1");
    let launch = launch.with("btl_ibex_flight_recorder", &name(&folder));
    let named = format!("ibex flight {}/ibex-flight.", name(&folder));
    launch.ends_saying(site, &["ibex lost a peer", "rank 1", &named])?;
    let told = told(&folder)?;
    has_all(&told, &["Rank 0 of job", "Rank 1 of job", "ibex lost a peer", "port opened", "connection begun"])?;
    has_all(&told, &["connected: queue pair", "rank 1: connection failed, queue pair 0x", "IBV_WC_"])
}

fn request_fails(site: &mut Site) -> Result<()> {
    let folder = folder()?;
    let adapters =
        "[[device]]\nname = \"softhca0\"\n[[fault]]\naction = \"status\"\nstatus = \"REM_OP_ERR\"\nnth = 2000\n";
    let arguments = ["--tests", "latency,bandwidth", "--sizes", "8,64K", "--seconds-per-row", "20"];
    let launch = Launch::new("ibex_mpi_bench", 2).arguments(&arguments).limit(300).on_adapters(adapters);
    let named = format!("ibex flight {}/ibex-flight.", name(&folder));
    launch.with("btl_ibex_flight_recorder", &name(&folder)).is_refused_with(site, &["ibex lost a peer", &named])?;
    has_all(&told(&folder)?, &["connection failed, queue pair 0x", "IBV_WC_REM_OP_ERR (11)"])
}

/// The file of a killed process shows what it did last.
fn all_die(site: &mut Site) -> Result<()> {
    let folder = folder()?;
    let launch = Launch::new("abnormal_exit", 2).arguments(&["kill", "--traffic", "small", "--seconds", "600"]);
    launch.with("btl_ibex_flight_recorder", &name(&folder)).limit(720).is_refused_with(site, &[])?;
    has_all(&told(&folder)?, &["Rank 1 of job", "no longer running on this host", "connected: queue pair"])
}

fn leaves_nothing(site: &mut Site) -> Result<()> {
    let folder = folder()?;
    let launch = Launch::of_a_short_exchange().with("btl_ibex_flight_recorder", &name(&folder));
    launch.clone().succeeds(site)?;
    ensure!(files(&folder)?.is_empty(), "files are left: {:?}", files(&folder)?);
    // The logger keeps Open MPI's components open to the end.
    let logger = site.components().parent().context("components lie beside the library")?.join("libibex-log.so");
    let launch = launch
        .environment("LD_PRELOAD", &logger.display().to_string())
        .environment("IBEX_LOG_FILE", &folder.file(".log.%p").display().to_string())
        .environment("IBEX_LOG_EVENTS", "connection_begin");
    launch.succeeds(site)?;
    ensure!(files(&folder)?.is_empty(), "files are left beside a tool: {:?}", files(&folder)?);
    Ok(())
}

fn goes_on_without(site: &mut Site) -> Result<()> {
    let launch = Launch::of_a_short_exchange().with("btl_ibex_flight_recorder", "/nowhere");
    let outcome = launch.succeeds(site)?;
    ensure!(!outcome.stderr.contains("flight"), "a job that did not ask for it tells of it: {outcome}");
    let outcome = launch.clone().with("btl_ibex_verbose", "1").succeeds(site)?;
    ensure!(outcome.stderr.contains("there is no flight recorder: no file in /nowhere"), "it is not told: {outcome}");
    let off = launch.with("btl_ibex_flight_recorder", "no").with("btl_ibex_verbose", "1").succeeds(site)?;
    ensure!(!off.stderr.contains("flight"), "it is off, and said to be missing: {off}");
    Ok(())
}

/// Two ranks that send until the script ends them. Rows of the test `latency` would end after a number of messages.
fn goes_on_inside(script: String, folder: &str) -> Launch {
    let arguments = ["--tests", "bidirectional_bandwidth", "--sizes", "8", "--seconds-per-row", "600"];
    let launch = Launch::new("ibex_mpi_bench", 2).arguments(&arguments).limit(300).inside(script);
    launch.with("btl_ibex_flight_recorder", folder)
}

/// Looks until both ranks show that they send, then ends the job, and looks until they have ended.
fn top(site: &mut Site) -> Result<()> {
    let folder = folder()?;
    let (command, name) = (command()?, name(&folder));
    let top = format!("{command} top --folder {name} --once --interval 0.5");
    let script = format!(
        "\"$@\" & job=$!; \
         until {top} --json >{name}/seen && [ $(grep -c '\"inline_sent\": [1-9][0-9]*[,.]' {name}/seen) -ge 4 ]; do \
         kill -0 $job 2>/dev/null || {{ cat {name}/seen; exit 9; }}; done; \
         cat {name}/seen; {top}; kill $job; wait $job; until {top} | grep 'No matching process'; do :; done"
    );
    let outcome = goes_on_inside(script, &name).run(site)?;
    let said = |text: &str| outcome.stdout.contains(text);
    ensure!(outcome.status() == 0, "top did not show both ranks: {outcome}");
    ensure!(said("\"program\": \"ibex_mpi_bench\"") && said("\"rates\"") && said("\"events_dropped\""), "{outcome}");
    ensure!(said("RANK") && said("softhca0:1") && said("No matching process"), "{outcome}");
    Ok(())
}

/// Asks for a rank's receipt until it contains the text, then ends the job.
fn explain(site: &mut Site) -> Result<()> {
    let asked = |start: &str, sought: &str| -> Result<(Folder, Launch)> {
        let (folder, command) = (folder()?, command()?);
        let name = name(&folder);
        let script = format!(
            "{start} \"$@\" & job=$!; \
             until pid=$(ls {name} | sed -n 's/^ibex-flight[.].*[.]//p' | head -n 1) && [ -n \"$pid\" ] && \
             {command} explain --live $pid --folder {name} --json >{name}/.log.seen 2>{name}/.log.why && \
             grep -q '{sought}' {name}/.log.seen; do \
             kill -0 $job 2>/dev/null || {{ cat {name}/.log.seen {name}/.log.why; exit 9; }}; done; \
             cat {name}/.log.seen; kill $pid; wait $job; exit 0"
        );
        Ok((folder, goes_on_inside(script, &name)))
    };
    let (folder, launch) = asked("", "\"requests\": [1-9]")?;
    let outcome = launch.run(site)?;
    let said = |text: &str| outcome.stdout.contains(text);
    ensure!(outcome.status() == 0, "what a process counts was not told: {outcome}");
    ensure!(said("\"state\": \"ready\"") && said("\"port\": \"softhca") && said("\"inline_sent\""), "{outcome}");
    drop(folder);
    let place = a_place()?;
    let start = format!("{} trace -o {} --", command()?, trace(&place).display());
    // Over ibex's PML at least the second look shows messages.
    let (_folder, launch) = asked(&start, "\"bytes\": [1-9]")?;
    let outcome = launch.with("pml", "ibex").run(site)?;
    ensure!(outcome.status() == 0, "what a process records was not told: {outcome}");
    ensure!(
        outcome.stdout.contains("This is the job so far") && outcome.stdout.contains("\"up_to_bytes\""),
        "{outcome}"
    );
    Ok(())
}
