// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of long messages of the libfabric provider: its registrations are kept, and none outlives its pages
//! (`hw-tests/libfabric/fi_freed_memory.c`). On soft-RoCE, which pins pages, a stale one shows in what arrives. Setup
//! grade; one test at a time.

use crate::provider::{self, installed};
use crate::site::{Site, faults_applied};
use crate::test::Test;
use anyhow::{Context, Result, ensure};
use hw_tests::Job;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("no registration of the provider outlives its memory, and later messages find it", |site| {
            is_freed(site, &[])
        })
        .quick(),
        Test::new("no registration of a one-sided operation outlives its memory, and later ones find it", |site| {
            is_freed(site, &["--one-sided"])
        })
        .quick(),
        Test::on_emulated("where memory cannot be registered, the provider makes room, or copies messages", is_refused)
            .quick()
            .device_independent(),
    ]
}

/// Messages of each buffer that find its registration: all but the first.
const FOUND: u32 = 6;

/// What an endpoint prints when it is closed.
#[derive(Debug)]
struct Registrations {
    made: u32,
    found: u32,
    changed: u32,
    evicted: u32,
}

impl Registrations {
    /// Reads `7 registrations of data, found by 6 more; 6 ended with their pages, 0 for others`.
    fn read(line: &str) -> Option<Registrations> {
        let (before, after) = line.split_once(" registrations of data, found by ")?;
        let last = |words: &str| words.rsplit([' ', '>']).next()?.parse().ok();
        let mut numbers = after.split(' ').filter_map(|word| word.parse().ok());
        let (found, changed, evicted) = (numbers.next()?, numbers.next()?, numbers.next()?);
        Some(Registrations { made: last(before)?, found, changed, evicted })
    }
}

fn job(program: &str, arguments: &[&str], path: &str) -> Job {
    let words = std::iter::once(program).chain(arguments.iter().copied());
    provider::job(words, path).env("FI_LOG_LEVEL", "info").env("FI_LOG_PROV", "ibex")
}

fn is_freed(site: &mut Site, arguments: &[&str]) -> Result<()> {
    let ((_folder, path), program) = (installed()?, site.program("fi_freed_memory")?);
    let outcome = site.fabric(1)?.run(&job(&program, arguments, &path))?.checked()?;
    let (mut ways, mut lines) = (0, outcome.stderr.lines());
    while let Some(line) = lines.next() {
        let Some((way, rest)) = line.strip_prefix("memory goes ").and_then(|line| line.split_once(": ")) else {
            continue;
        };
        let numbers: Vec<u32> = rest.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [gone, _, again] = numbers[..] else { continue };
        ensure!(gone > 0 && again > 0, "memory does not go {way} and come again: {rest}");
        for _ in 0..2 {
            let of = lines.find_map(Registrations::read).context("an endpoint does not print its registrations")?;
            // What went last is noticed when memory is registered next; the first message's memory went before.
            ensure!(of.changed >= gone && of.found >= FOUND, "of {gone} buffers that go {way}: {of:?}");
        }
        ways += 1;
    }
    ensure!(ways >= 14, "only {ways} ways were tried:\n{}", outcome.stdout);
    Ok(())
}

/// The system refuses three registrations, and after some more all.
const REFUSALS: &str = "[[device]]\n[[fault]]\naction = \"registration-error\"\nnth = 40\ncount = 3\n\
    [[fault]]\naction = \"registration-error\"\nnth = 60\ncount = 0\n";

fn is_refused(site: &mut Site) -> Result<()> {
    let ((_folder, path), program) = (installed()?, site.program("fi_freed_memory")?);
    let fabric = site.fabric_on(REFUSALS)?;
    let outcome = fabric.run(&job(&program, &["--many"], &path))?.checked()?;
    faults_applied(fabric, REFUSALS, &outcome)?;
    let of: Vec<_> = outcome.stderr.lines().filter_map(Registrations::read).collect();
    let sum = |count: fn(&Registrations) -> u32| of.iter().map(count).sum::<u32>();
    // Room for the first is made by ending one; for those that fail for good, by ending all that were made.
    ensure!(sum(|of| of.evicted) == sum(|of| of.made) && sum(|of| of.made) > 20, "{of:?}");
    Ok(())
}
