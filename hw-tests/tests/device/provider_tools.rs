// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tools show of libfabric's programs and of MPICH: `ibex trace`, `explain` and `view` of jobs that the
//! provider records, `ibex top` of a running one, and the flight recorder of a failure. Setup grade; one test at a
//! time.

use crate::launch::Launch;
use crate::mpis::{IN_PYTHON, MPICH, OPEN_MPI, started_inside};
use crate::one_sided::MINIMAL;
use crate::provider::{installed, job};
use crate::recorder::{a_place, is_controlled, sound, trace};
use crate::site::{Site, command};
use crate::test::Test;
use anyhow::{Context, Result, ensure};
use hw_tests::Folder;
use ibex_messages::Job as Messages;
use ibex_trace::{Folder as Trace, Reader};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

pub(crate) fn tests() -> Vec<Test> {
    let on = |name: &str, run: fn(&mut Site) -> Result<()>| Test::on_emulated(name, run);
    vec![
        on("a trace of libfabric's messages has a match and an end for each", is_balanced).quick(),
        on("ibex explain tells of MPICH's messages", explains_mpich).quick().device_independent(),
        on("MPI_Pcontrol stops and resumes a trace of a stock MPICH", is_controlled_by_mpich).device_independent(),
        on("a trace has the calls of a stock Open MPI, which lacks those of MPI 4", has_calls_of_openmpi)
            .device_independent(),
        on("a trace keeps the processes apart that MPICH spawns", keeps_spawned_apart).device_independent(),
        on("ibex top shows processes and peers of libfabric", shows_on_top).quick(),
        on("ibex top shows each endpoint of a process by itself", shows_endpoints).quick(),
        on("the flight recorder of a libfabric program that ended well is gone", keeps_none).quick(),
        on("the flight recorder of a libfabric program that lost a peer stays", keeps_flight),
    ]
}

/// Returns the numbers of events of a file, lost ones included, by their names without prefixes.
pub(crate) fn counted(reader: &Reader) -> BTreeMap<&str, u64> {
    let names = reader.head().types.iter().map(|of| of.name.trim_start_matches("ibex_"));
    names.zip(reader.counts()).map(|(name, counts)| (name, counts.events + counts.lost)).collect()
}

/// Both endpoints of these programs are of one process. All receives but the cancelled ones match.
fn is_balanced(site: &mut Site) -> Result<()> {
    let (_folder, path) = installed()?;
    for program in ["fi_matching", "fi_sizes", "fi_multi_recv", "fi_search"] {
        let (place, ibex, program) = (a_place()?, command()?, site.program(program)?);
        let to = trace(&place).display().to_string();
        let words = [ibex.as_str(), "trace", "--events", "all", "-o", &to, "--", &program];
        let outcome = site.fabric(1)?.run(&job(words, &path))?.checked()?;
        ensure!(outcome.stderr.contains("recorded "), "ibex trace does not say what it recorded: {outcome}");
        let folder = sound(&trace(&place))?;
        let [reader] = folder.readers() else { anyhow::bail!("{} files of one process", folder.readers().len()) };
        let of = counted(reader);
        let count = |name: &str| of.get(name).copied().unwrap_or(0);
        let (arrived, matched) = (count("comm_msg_arrived"), count("comm_msg_match_posted_req"));
        let (stored, taken) = (count("comm_msg_insert_in_unex_q"), count("comm_msg_remove_from_unex_q"));
        ensure!(arrived > 0 && arrived == matched + stored, "{arrived} arrive, {matched} match, {stored} are stored");
        ensure!(taken <= stored && taken == count("comm_req_match_unex"), "{taken} of {stored} are taken");
        ensure!(count("comm_req_xfer_begin") == count("comm_req_xfer_end"), "begins and ends of transfers: {of:?}");
        ensure!(count("xfer_begin") == count("xfer_end"), "begins and ends of transfers: {of:?}");
        let posted = (count("comm_req_insert_in_posted_q"), count("comm_req_remove_from_posted_q"));
        ensure!(posted.0 >= posted.1 && posted.1 >= matched, "{posted:?} receives are posted and leave");
        let read = Messages::read(&folder);
        ensure!(read.messages.len() as u64 == arrived, "{} messages, and {arrived} arrived", read.messages.len());
        ensure!(read.messages.iter().all(|of| of.send.is_some() && of.receive.is_some()), "{:?}", read.faults);
        site.cases += 1;
    }
    has_whole_tags(site, &path)
}

/// The tags of `fi_matching` differ in single bits, of all halves.
fn has_whole_tags(site: &mut Site, path: &str) -> Result<()> {
    let (place, program) = (a_place()?, site.program("fi_matching")?);
    let to = trace(&place).display().to_string();
    let job = job([program.as_str()], path).env("IBEX_TRACE", &to);
    site.fabric(1)?.run(&job)?.checked()?;
    let read = Messages::read(&Trace::open(&trace(&place))?);
    let tag = 0x8000_0000_8000_0001_u64.cast_signed();
    for bit in [0, 21, 42, 63] {
        ensure!(
            read.messages.iter().any(|of| of.tag == tag ^ (1 << bit)),
            "no message has the tag {tag:#x} but for {bit}"
        );
    }
    let names: Vec<&str> = read.communicators.iter().map(|of| of.name.as_str()).collect();
    ensure!(names == ["tagged messages", "untagged messages"], "{names:?}");
    Ok(())
}

fn said(words: &[&str], place: &Path) -> Result<String> {
    let output = Command::new(command()?).args(words).arg(place).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "ibex {words:?} failed: {text}{}", String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

fn explains_mpich(site: &mut Site) -> Result<()> {
    let place = a_place()?;
    let to = trace(&place).display().to_string();
    let inside = ["trace", "-o", &to, "--"];
    let Some(outcome) = started_inside(site, &inside, MPICH, 2, &["bin/python", "-c", IN_PYTHON])? else {
        return Ok(());
    };
    let outcome = outcome.checked()?;
    ensure!(outcome.stderr.contains("of 2 ranks on 1 host"), "ibex trace does not say what it recorded: {outcome}");
    let folder = sound(&trace(&place))?;
    let ranks: Vec<_> = folder.readers().iter().map(|reader| (reader.head().rank, reader.head().ranks)).collect();
    ensure!(ranks == [(Some(0), Some(2)), (Some(1), Some(2))], "{ranks:?}");
    // The processes of mpi4py load their MPI with a module.
    has_calls(&folder, 50)?;
    let read = Messages::read(&folder);
    let whole = |from, to| {
        let all = read.messages.iter().filter(|of| (of.sender, of.receiver) == (from, to));
        all.filter(|of| of.send.is_some() && of.receive.is_some_and(|side| side.ended.is_some())).count()
    };
    ensure!(whole(0, 1) > 10 && whole(1, 0) > 10, "few messages are whole: {:?}", read.faults);
    let told = said(&["explain"], &trace(&place))?;
    ensure!(told.contains("messages among 2 ranks"), "ibex explain does not tell of them: {told}");
    let life = said(&["explain", "--message", "0:1"], &trace(&place))?;
    ensure!(life.contains("From rank 0 to rank 1") && life.contains("tag 0x"), "ibex explain --message: {life}");
    let page = place.file("view.html").display().to_string();
    said(&["view", "-o", &page], &trace(&place))?;
    ensure!(std::fs::metadata(&page)?.len() > 10_000, "ibex view writes no page");
    Ok(())
}

/// MPICH's own part of libfabric's tags: the highest of these bits, in messages of its collective operations.
const TAG_BITS: i64 = 0x8000_0fff;

fn is_controlled_by_mpich(site: &mut Site) -> Result<()> {
    let place = a_place()?;
    let to = trace(&place).display().to_string();
    let Some(outcome) = started_inside(site, &["trace", "-o", &to, "--"], MPICH, 2, &["programs/pcontrol"])? else {
        return Ok(());
    };
    Launch::new("pcontrol", 2).judge(site, outcome)?;
    is_controlled(&trace(&place), TAG_BITS)?;
    Ok(())
}

/// Programs look whether an MPI has them, so the library that overrides them must not be there.
fn has_calls_of_openmpi(site: &mut Site) -> Result<()> {
    let place = a_place()?;
    let to = trace(&place).display().to_string();
    let words = ["programs/collectives"];
    let Some(outcome) = started_inside(site, &["trace", "-o", &to, "--"], OPEN_MPI, 2, &words)? else { return Ok(()) };
    Launch::new("collectives", 2).judge(site, outcome)?;
    has_calls(&sound(&trace(&place))?, 101)
}

/// Checks that the trace has at least so many calls of MPI of each process.
fn has_calls(folder: &Trace, least: u64) -> Result<()> {
    for reader in folder.readers() {
        let calls = counted(reader).get("mpi_call_end").copied().unwrap_or(0);
        ensure!(calls >= least, "{calls} calls of MPI of rank {:?} are recorded", reader.head().rank);
    }
    Ok(())
}

/// Two processes, spawned one after the other, each send a message to their parent.
const SPAWNS: &str = "import sys
from mpi4py import MPI
parent = MPI.Comm.Get_parent()
if parent == MPI.COMM_NULL:
    for _ in range(2):
        child = MPI.COMM_SELF.Spawn(sys.executable, [__file__], maxprocs=1)
        assert child.recv(source=0, tag=1) == 'sent'
        child.Disconnect()
else:
    parent.send('sent', dest=0, tag=1)
    parent.Disconnect()";

fn keeps_spawned_apart(site: &mut Site) -> Result<()> {
    let place = a_place()?;
    let to = trace(&place).display().to_string();
    let inside = ["trace", "-o", &to, "--"];
    let script = place.file("spawns.py");
    std::fs::write(&script, SPAWNS)?;
    let words = ["bin/python", &script.display().to_string()];
    let Some(outcome) = started_inside(site, &inside, MPICH, 1, &words)? else { return Ok(()) };
    outcome.checked()?;
    let folder = sound(&trace(&place))?;
    let read = Messages::read(&folder);
    ensure!(read.ranks.len() == 3, "{} processes: {:?}", read.ranks.len(), read.faults);
    let whole = read.messages.iter().filter(|of| of.send.is_some() && of.receive.is_some());
    let mut senders: Vec<_> = whole.filter(|of| of.receiver == 0).map(|of| of.sender).collect();
    senders.sort_unstable();
    senders.dedup();
    ensure!(senders == [1, 2], "whole messages to the parent come from {senders:?}: {:?}", read.faults);
    Ok(())
}

/// Both sides of `fi_pingpong`, until `ibex top` shows their messages to each other.
const SHOWN: &str = "fi_pingpong -c -p ibex -e rdm -I 10000000 >/dev/null & server=$!
    (until fi_pingpong -c -p ibex -e rdm -I 10000000 127.0.0.1 >/dev/null
     do kill -0 $server || exit; sleep 0.1; done) & client=$!
    until $0 --json >$1 && [ $(grep -c '\"requests\": [1-9]' $1) -ge 2 ]; do kill -0 $server || exit; done
    kill $server $(pgrep -P $client); wait; cat $1";

fn shows_on_top(site: &mut Site) -> Result<()> {
    let ((_folder, path), flights) = (installed()?, flights()?);
    let folder = flights.path().display().to_string();
    let (top, seen) = (format!("{} top --folder {folder} --once --interval 0.2", command()?), format!("{folder}/seen"));
    let job = job(["bash", "-c", SHOWN, &top, &seen], &path).env("FI_IBEX_FLIGHT_RECORDER", &folder);
    let said = site.fabric(1)?.run(&job)?.stdout;
    let shown = said.matches("\"state\": \"ready\"").count();
    ensure!(shown >= 2 && said.contains("\"program\": \"fi_pingpong\""), "ibex top shows no peers: {said}");
    Ok(())
}

/// A process with two endpoints, until `ibex top` shows a message received by one.
const ENDPOINTS: &str = "$2 & program=$!
    until $0 --json >$1 && grep -q '\"received\": [1-9]' $1; do kill -0 $program || exit; done
    kill $program; wait; cat $1";

fn shows_endpoints(site: &mut Site) -> Result<()> {
    let ((_folder, path), flights) = (installed()?, flights()?);
    let folder = flights.path().display().to_string();
    let (top, seen) = (format!("{} top --folder {folder} --once --interval 0.2", command()?), format!("{folder}/seen"));
    let words = ["bash", "-c", ENDPOINTS, &top, &seen, &site.program("fi_one_way")?];
    let said = site.fabric(1)?.run(&job(words, &path).env("FI_IBEX_FLIGHT_RECORDER", &folder))?.stdout;
    let (_, ports) = said.split_once("\"ports\":").context("no port")?;
    let (first, second) = ports.split_once(":1 (2)\"").with_context(|| format!("one endpoint alone: {said}"))?;
    ensure!(first.contains("\"received\": 0,") && !second.contains("\"received\": 0,"), "mixed up: {said}");
    Ok(())
}

fn flights() -> Result<Folder> {
    Folder::within(Path::new("/dev/shm"), "ibex-flight-test")
}

/// On an adapter without inline data, too, endpoints tell each other that they leave, so no connection fails.
fn keeps_none(site: &mut Site) -> Result<()> {
    let (program, (_folder, path), flights) = (site.program("fi_matching")?, installed()?, flights()?);
    let folder = flights.path().display().to_string();
    for profile in ["", MINIMAL] {
        let job = job([program.as_str()], &path).env("FI_IBEX_FLIGHT_RECORDER", &folder);
        site.fabric_on(&format!("[[device]]\nname = \"hca0\"\n{profile}"))?.run(&job)?.checked()?;
        let left = std::fs::read_dir(flights.path())?.count();
        ensure!(left == 0, "{left} files are left of a program that ended well: {profile}");
    }
    Ok(())
}

fn keeps_flight(site: &mut Site) -> Result<()> {
    let (program, (_folder, path), flights) = (site.program("lost_peers")?, installed()?, flights()?);
    let job = job([program.as_str()], &path).env("FI_IBEX_FLIGHT_RECORDER", flights.path().display().to_string());
    site.fabric(1)?.run(&job)?.checked()?;
    // The processes that the program starts are a job of their own.
    let told = said(&["flight"], flights.path())?;
    let names_failure = told.contains("the connection to rank") && told.contains("failed with status");
    ensure!(told.contains(": lost_peers on ") && names_failure, "ibex flight does not tell: {told}");
    Ok(())
}
