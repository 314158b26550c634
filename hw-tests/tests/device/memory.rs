// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that ranks register, on emulated adapters: with which flags.
//!
//! softhca writes each registration to the file `registrations` of the fabric's folder, where its configuration asks for a trace. On
//! other devices each case is skipped. Setup grade; one at a time.

use crate::Test;
use crate::launch::{Launch, says};
use crate::site::Site;
use anyhow::{Context, Result, ensure};

/// The tests of this file.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::on_emulated("slots and the memory of messages are registered with relaxed ordering", of_messages),
        Test::on_emulated("windows and the targets of atomics are registered with strict ordering", of_windows),
        Test::on_emulated("no memory is registered with relaxed ordering where it is not wanted", unwanted),
        Test::on_emulated("an adapter that refuses relaxed ordering is used without", refused),
    ]
}

/// `enum ibv_access_flags`.
const LOCAL_WRITE: u32 = 1;
const REMOTE_WRITE: u32 = 2;
const REMOTE_READ: u32 = 4;
const REMOTE_ATOMIC: u32 = 8;
const RELAXED: u32 = 1 << 20;

/// Bytes above which memory is that of all receive slots, and of no message of the programs that run here.
const RECEIVE_SLOTS: u64 = 30 << 20;

/// A registration: flags and bytes.
struct Registration {
    flags: u32,
    bytes: u64,
}

impl Registration {
    fn is_relaxed(&self) -> bool {
        self.flags & RELAXED != 0
    }

    fn read(line: &str) -> Option<Registration> {
        let mut words = line.split(' ').skip(2);
        let flags = u32::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        Some(Registration { flags, bytes: words.next()?.parse().ok()? })
    }
}

/// An adapter with the profile's usual limits, these behaviours, and the files of a trace.
fn adapter(behaviour: &str) -> String {
    format!("trace = true\n[[device]]\nname = \"softhca0\"\nprofile = \"mlx5\"\n[device.behaviour]\n{behaviour}\n")
}

/// What two ranks register that run this program to a good end.
fn registered(site: &mut Site, launch: Launch, behaviour: &str) -> Result<Vec<Registration>> {
    launch.environment("IBEX_TEST_SCALE", "0.2").on_adapters(adapter(behaviour)).passes(site)?;
    let lines = site.noted("registrations")?;
    let all: Option<Vec<Registration>> = lines.lines().map(Registration::read).collect();
    let all = all.with_context(|| format!("not lines of registrations: {lines}"))?;
    ensure!(!all.is_empty(), "nothing was registered");
    Ok(all)
}

fn of_messages(site: &mut Site) -> Result<()> {
    let all = registered(site, Launch::new("pt2pt_modes", 2), "")?;
    let slots: Vec<_> = all.iter().filter(|one| one.bytes > RECEIVE_SLOTS).map(|one| one.flags).collect();
    ensure!(slots == [LOCAL_WRITE | RELAXED; 2], "receive slots were registered with {slots:x?}");
    for (whose, flag) in [("the senders'", REMOTE_READ), ("the receivers'", REMOTE_WRITE)] {
        let memory: Vec<_> = all.iter().filter(|one| one.flags & flag != 0).collect();
        ensure!(!memory.is_empty(), "no memory of {whose} was registered");
        ensure!(memory.iter().all(|one| one.is_relaxed()), "{whose} memory was registered with strict ordering");
    }
    Ok(())
}

fn of_windows(site: &mut Site) -> Result<()> {
    for program in ["rma_transfer", "rma_atomics"] {
        let all = registered(site, Launch::new(program, 2), "")?;
        let windows: Vec<_> = all.iter().filter(|one| one.flags & REMOTE_ATOMIC != 0).collect();
        ensure!(!windows.is_empty(), "{program} registered no window");
        ensure!(windows.iter().all(|one| !one.is_relaxed()), "{program} registered a window with relaxed ordering");
    }
    Ok(())
}

fn unwanted(site: &mut Site) -> Result<()> {
    let launch = Launch::new("pt2pt_modes", 2).with("btl_ibex_relaxed_ordering", "0");
    let all = registered(site, launch, "")?;
    ensure!(!all.iter().any(Registration::is_relaxed), "memory was registered with relaxed ordering");
    Ok(())
}

fn refused(site: &mut Site) -> Result<()> {
    let launch = || Launch::new("pt2pt_modes", 2);
    let all = registered(site, launch(), "optional_access = \"eopnotsupp\"")?;
    ensure!(!all.iter().any(Registration::is_relaxed), "the adapter took what it refuses");
    let verbose = launch().with("btl_ibex_verbose", "1").environment("IBEX_TEST_SCALE", "0.2");
    let outcome = verbose.on_adapters(adapter("optional_access = \"eopnotsupp\"")).succeeds(site)?;
    says(&outcome, &["softhca0:1: the adapter refuses memory with relaxed ordering"])
}
