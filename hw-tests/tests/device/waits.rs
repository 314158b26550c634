// SPDX-License-Identifier: MIT OR Apache-2.0
//! Late ranks in traces of real programs: hw-tests/mpi/waits.c makes waits of each kind and prints how long they are.
//! By Open MPI with ibex' components the recorder of event-log records them, by others the libfabric provider. Setup
//! grade; one test at a time.

use crate::launch::Launch;
use crate::mpis::{INTEL, MPICH, Stock, started_inside};
use crate::recorder::{a_place, recorded, sound, trace};
use crate::site::Site;
use crate::test::Test;
use anyhow::{Context, Result, ensure};
use hw_tests::Outcome;
use ibex_messages::{Job, WaitKind};
use ibex_trace::Folder;

pub(crate) fn tests() -> Vec<Test> {
    let tests = [
        Test::on_emulated("the study finds each planted wait and the late rank", |site| found(site, "self,ibex")),
        Test::on_emulated("the study finds the planted waits over shared memory", |site| found(site, "self,sm,ibex")),
        Test::on_emulated("the study finds the planted waits of a stock MPICH", |site| found_of(site, MPICH)),
        Test::on_emulated("the study finds the planted waits of a stock Intel MPI", |site| found_of(site, INTEL)),
        Test::on_emulated("a trace without calls or without matching names no late rank", unknown),
    ];
    tests.into_iter().map(Test::device_independent).collect()
}

/// The tag of the synchronous send.
const SYNCHRONOUS: i64 = 7;

/// A planted wait, in nanoseconds; without a kind there is none.
struct Planted {
    tag: i64,
    kind: Option<WaitKind>,
    least: i64,
    most: i64,
    /// Time for which the kernel gave the ranks no processor: a rank may wait for that instead.
    lost: i64,
}

/// Accepted time of other waits, in nanoseconds.
const SLACK: i64 = 100_000_000;

fn planted(outcome: &Outcome) -> Result<Vec<Planted>> {
    let line = |line: &str| {
        let [tag, kind, least, most, lost] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
        let kind = match kind {
            "late_sender" => Some(WaitKind::LateSender),
            "late_receiver" => Some(WaitKind::LateReceiver),
            "no_progress" => Some(WaitKind::NoProgress),
            "late_wait" => Some(WaitKind::LateWait),
            _ => None,
        };
        let number = |word: &str| word.parse().ok();
        let (least, most, lost) = (number(least)?, number(most)?, number(lost)?);
        Some(Planted { tag: tag.parse().ok()?, kind, least, most, lost })
    };
    let lines = outcome.stdout.lines().filter_map(|text| text.trim().strip_prefix("planted "));
    let planted: Vec<Planted> =
        lines.map(|text| line(text).with_context(|| format!("planted {text}"))).collect::<Result<_>>()?;
    ensure!(planted.len() == 11, "{} lines: {outcome}", planted.len());
    Ok(planted)
}

fn found(site: &mut Site, transports: &str) -> Result<()> {
    let place = a_place()?;
    let launch = recorded(Launch::new("waits", 2).with("pml", "ibex").with("btl", transports).limit(300), &place, "")?;
    let outcome = launch.run(site)?;
    launch.judge(site, outcome.clone())?;
    let job = Job::read(&sound(&trace(&place))?);
    let mut planted = planted(&outcome)?;
    if transports.contains("sm") {
        // Shared memory has no clock of its own: a message comes when its receiver polls.
        for planted in &mut planted {
            planted.kind = planted.kind.filter(|kind| *kind != WaitKind::LateWait);
        }
    }
    has_planted(&job, planted, &outcome, i64::MAX)
}

/// The bits of libfabric's tags in which MPICH and Intel MPI have MPI's.
const TAG_BITS: i64 = 0xffff_ffff;

/// The waits of an MPI over libfabric.
fn found_of(site: &mut Site, stock: Stock) -> Result<()> {
    let place = a_place()?;
    let to = trace(&place).display().to_string();
    let Some(outcome) = started_inside(site, &["trace", "-o", &to, "--"], stock, 2, &["programs/waits"])? else {
        return Ok(());
    };
    Launch::new("waits", 2).judge(site, outcome.clone())?;
    let job = Job::read(&sound(&trace(&place))?);
    for message in job.messages.iter().filter(|message| (1..=10).contains(&(message.tag & TAG_BITS))) {
        let receive = message.receive.context("a message was not received")?;
        ensure!(receive.call.is_some() && receive.by_adapter.arrived, "outside of a call: {message:?}");
    }
    // Libfabric has no synchronous sends: the MPI sends a message of its own as the answer, whose sender is late.
    let mut planted = planted(&outcome)?;
    planted.retain(|planted| planted.tag != SYNCHRONOUS);
    has_planted(&job, planted, &outcome, TAG_BITS)
}

/// Checks that the job has the planted waits. `bits`: those of a tag that are MPI's.
fn has_planted(job: &Job, planted: Vec<Planted>, outcome: &Outcome, bits: i64) -> Result<()> {
    ensure!(job.faults.is_empty(), "{:?}", job.faults);
    let waits = job.message_waits();
    let waited = |tag: i64, kind: WaitKind| -> i64 {
        let of = waits.iter().filter(|(message, wait)| job.messages[*message].tag & bits == tag && wait.kind == kind);
        of.map(|(_, wait)| wait.to.since(wait.from)).sum()
    };
    for Planted { tag, kind, least, most, lost } in planted {
        for of in [WaitKind::LateSender, WaitKind::LateReceiver, WaitKind::NoProgress, WaitKind::LateWait] {
            let (least, most) = if kind == Some(of) { ((least - lost).max(0), most) } else { (0, SLACK + lost) };
            let waited = waited(tag, of);
            ensure!((least..=most).contains(&waited), "tag {tag}: {waited} ns {of:?}, of {least} to {most}: {outcome}");
        }
    }
    Ok(())
}

/// A trace without calls, and one of a transport below another PML.
fn unknown(site: &mut Site) -> Result<()> {
    for (pml, events, words) in [
        ("ibex", "--events messages,communicators", "does not have all calls of MPI of ranks 0, 1:"),
        ("ob1", "", "ibex has not done the matching"),
    ] {
        let place = a_place()?;
        recorded(Launch::new("waits", 2).with("pml", pml).limit(300), &place, events)?.passes(site)?;
        let job = Job::read(&Folder::open(&trace(&place))?);
        ensure!((job.messages.len() > 20) == (pml == "ibex"), "{pml}: {} messages", job.messages.len());
        ensure!(job.message_waits().is_empty(), "{:?}", job.message_waits());
        ensure!(job.faults.iter().any(|fault| fault.contains(words)), "{pml}: {:?}", job.faults);
    }
    Ok(())
}
