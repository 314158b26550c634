// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that ranks register on emulated adapters: its flags, its pages, and whether ibex asks libibverbs in time
//! to protect it from forks, on kernels that do not copy it for children.
//!
//! softhca writes each registration to the file `registrations` of the fabric's folder, if its configuration asks for a
//! trace, and each call of `ibv_fork_init` to `fork-init`. A test that needs explicit huge pages enlarges this host's
//! pool for its time, if it may. Setup grade; one at a time.

use crate::launch::{Launch, says};
use crate::site::Site;
use crate::test::Test;
use anyhow::{Context, Result, ensure};
use std::thread;
use std::time::Duration;

pub(crate) fn tests() -> Vec<Test> {
    let tests = [
        Test::on_emulated("slots and the memory of messages are registered with relaxed ordering", of_messages),
        Test::on_emulated("windows and the targets of atomics are registered with strict ordering", of_windows),
        Test::on_emulated("no memory is registered with relaxed ordering where it is not wanted", unwanted),
        Test::on_emulated("ibex does without relaxed ordering where an adapter refuses it", refused),
        Test::on_emulated("slots lie in explicit huge pages where the job may take them", in_explicit_pages).alone(),
        Test::on_emulated("slots lie in other pages where the job may not take explicit ones", in_other_pages).alone(),
    ];
    let forks = FORKS.iter().map(|(sentence, kernel, wanted, asks)| {
        Test::on_emulated(*sentence, move |site| is_asked(site, kernel, wanted, *asks))
    });
    tests.map(Test::device_independent).into_iter().chain(forks).collect()
}

/// `enum ibv_access_flags`.
const LOCAL_WRITE: u32 = 1;
const REMOTE_WRITE: u32 = 2;
const REMOTE_READ: u32 = 4;
const REMOTE_ATOMIC: u32 = 8;
const RELAXED: u32 = 1 << 20;

/// A registration of more bytes than this is that of the receive slots.
const RECEIVE_SLOTS: u64 = 30 << 20;

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

/// An adapter with the limits of `mlx5`, these behaviours, and a trace.
fn adapter(behaviour: &str) -> String {
    format!("trace = true\n[[device]]\nname = \"softhca0\"\nprofile = \"mlx5\"\n[device.behaviour]\n{behaviour}\n")
}

/// Runs the program, and returns the registrations of its two ranks.
fn registered(site: &mut Site, launch: Launch, behaviour: &str) -> Result<Vec<Registration>> {
    launch.scale(0.2).on_adapters(adapter(behaviour)).passes(site)?;
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
    let verbose = launch().with("btl_ibex_verbose", "1").scale(0.2);
    let outcome = verbose.on_adapters(adapter("optional_access = \"eopnotsupp\"")).succeeds(site)?;
    says(&outcome, &["softhca0:1: the adapter refuses memory with relaxed ordering"])
}

/// Files with the number of explicit huge pages of the usual size, and of the free ones.
const POOL: [&str; 2] = ["/proc/sys/vm/nr_hugepages", "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"];

/// Explicit huge pages that the receive slots of a port take, and their bytes.
const PAGES: usize = 17;
const IN_PAGES: u64 = (PAGES as u64) << 21;

fn read(path: &str) -> Option<usize> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Waits up to a minute until `pages` pages are free. The kernel frees those of an ended process when nobody else uses
/// its memory map any more.
fn become_free(pages: usize) -> bool {
    (0..600).any(|_| {
        let are_free = read(POOL[1]) == Some(pages);
        if !are_free {
            thread::sleep(Duration::from_millis(100));
        }
        are_free
    })
}

/// The host's pool. Dropping this restores its former size.
struct Pool {
    before: usize,
}

impl Pool {
    /// Makes `pages` free pages, or says why it cannot.
    fn with(pages: usize) -> Result<Pool, String> {
        let before = read(POOL[0]).ok_or_else(|| format!("the kernel has no {}", POOL[0]))?;
        let used = before.saturating_sub(read(POOL[1]).ok_or_else(|| format!("the kernel has no {}", POOL[1]))?);
        std::fs::write(POOL[0], (used + pages).to_string()).map_err(|error| format!("{}: {error}", POOL[0]))?;
        let pool = Pool { before };
        match read(POOL[1]) {
            Some(free) if free == pages => Ok(pool),
            free => Err(format!("the host has {free:?} free huge pages instead of {pages}")),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Err(error) = std::fs::write(POOL[0], self.before.to_string()) {
            println!("{} is no longer {}: {error}", POOL[0], self.before);
        }
    }
}

fn ranks_on(pages: &str) -> Launch {
    Launch::new("pt2pt_modes", 2).with("btl_ibex_huge_pages", pages).with("btl_ibex_verbose", "1")
}

fn in_explicit_pages(site: &mut Site) -> Result<()> {
    let free = 4 * PAGES;
    let pool = match Pool::with(free) {
        Ok(pool) => pool,
        Err(reason) => {
            site.skip("slots lie in explicit huge pages where the job may take them", &reason);
            return Ok(());
        }
    };
    let outcome = ranks_on("auto").scale(0.2).on_adapters(adapter("")).succeeds(site)?;
    says(&outcome, &["softhca0:1: 34816 KiB of receive slots are in explicit huge pages"])?;
    let slots = site.noted("registrations")?;
    let slots = slots.lines().filter_map(Registration::read).filter(|one| one.bytes == IN_PAGES).count();
    ensure!(slots == 2, "{slots} registrations are of whole huge pages");
    ensure!(become_free(free), "{:?} pages are free a minute after the job, of {free}", read(POOL[1]));
    // Here libibverbs has to keep registered memory out of children.
    let forks = Launch::new("fork_exec", 2).with("btl_ibex_huge_pages", "explicit");
    registered(site, forks, "fork = \"disabled\"")?;
    let counted = format!("huge_memory={IN_PAGES}");
    let counts =
        Launch::new("pvars", 2).arguments(&["--no-one-sided", &counted]).with("btl_ibex_huge_pages", "explicit");
    counts.on_adapters(adapter("")).passes(site)?;
    drop(pool);
    Ok(())
}

fn in_other_pages(site: &mut Site) -> Result<()> {
    // The job would take more than half of this pool.
    let pool = Pool::with(4 * PAGES - 1);
    for (wanted, is_possible) in [("auto", pool.is_ok()), ("transparent", true), ("no", true)] {
        if !is_possible {
            continue;
        }
        let outcome = ranks_on(wanted).scale(0.2).on_adapters(adapter("")).succeeds(site)?;
        let is_asked = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        let is_asked = wanted != "no" && is_asked.is_ok_and(|modes| !modes.contains("[never]"));
        let pages = if is_asked { "in pages for which transparent huge pages were asked" } else { "in ordinary pages" };
        says(&outcome, &["32832 KiB of receive slots", pages])?;
    }
    drop(pool);
    let pool = Pool::with(0);
    if pool.is_ok() {
        let outcome = ranks_on("explicit").scale(0.2).on_adapters(adapter("")).succeeds(site)?;
        says(&outcome, &["32832 KiB of receive slots"])?;
    }
    Ok(())
}

/// A sentence; the behaviour of kernel and libibverbs; `btl_ibex_fork_support`; whether each process asks libibverbs.
static FORKS: &[(&str, &str, &str, bool)] = &[
    ("ranks fork safely where libibverbs must see to it", "disabled", "auto", true),
    ("ranks fork safely where libibverbs must see to it without fail", "disabled", "yes", true),
    ("libibverbs is not asked to make a fork safe where the kernel copies memory", "unneeded", "yes", false),
    ("libibverbs is not asked to make a fork safe where it does already", "enabled", "yes", false),
    ("libibverbs is not asked to make a fork safe where the user does not want it", "disabled", "no", false),
];

fn is_asked(site: &mut Site, kernel: &str, wanted: &str, asks: bool) -> Result<()> {
    let adapters = format!("[[device]]\nname = \"softhca0\"\n[device.behaviour]\nfork = \"{kernel}\"\n");
    Launch::new("fork_exec", 2).scale(0.25).with("btl_ibex_fork_support", wanted).on_adapters(adapters).passes(site)?;
    let calls = site.noted("fork-init")?;
    let answers: Vec<&str> = calls.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    let expected: &[&str] = if asks { &["0", "0"] } else { &[] };
    ensure!(answers == expected, "ibv_fork_init got {answers:?} instead of {expected:?}");
    Ok(())
}
