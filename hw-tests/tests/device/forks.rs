// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that fork, on emulated adapters below a kernel that does not copy for them, or does: whether ibex asks
//! libibverbs to protect registered memory, and in time.
//!
//! softhca notes each call of `ibv_fork_init` in the fabric's folder. On other devices each case is skipped. Setup
//! grade; one at a time.

use crate::launch::Launch;
use crate::site::Site;
use crate::test::Test;
use anyhow::{Result, ensure};

/// The tests of this file.
pub(crate) fn tests() -> Vec<Test> {
    let cases = CASES.iter().map(|(sentence, kernel, wanted, asks)| {
        Test::on_emulated(*sentence, move |site| is_asked(site, kernel, wanted, *asks))
    });
    cases.collect()
}

/// What is shown; what the kernel and libibverbs do; `btl_ibex_fork_support`; whether each process asks libibverbs.
static CASES: &[(&str, &str, &str, bool)] = &[
    ("ranks fork safely where libibverbs must see to it", "disabled", "auto", true),
    ("ranks fork safely where libibverbs must see to it without fail", "disabled", "yes", true),
    ("libibverbs is not asked to make a fork safe where the kernel copies memory", "unneeded", "yes", false),
    ("libibverbs is not asked to make a fork safe where it does already", "enabled", "yes", false),
    ("libibverbs is not asked to make a fork safe where the user does not want it", "disabled", "no", false),
];

fn below(kernel: &str) -> String {
    format!("[[device]]\nname = \"softhca0\"\n[device.behaviour]\nfork = \"{kernel}\"\n")
}

fn is_asked(site: &mut Site, kernel: &str, wanted: &str, asks: bool) -> Result<()> {
    let launch = Launch::new("fork_exec", 2).scale(0.25);
    launch.with("btl_ibex_fork_support", wanted).on_adapters(below(kernel)).passes(site)?;
    let calls = site.noted("fork-init")?;
    let answers: Vec<&str> = calls.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    let expected: &[&str] = if asks { &["0", "0"] } else { &[] };
    ensure!(answers == expected, "ibv_fork_init got {answers:?} instead of {expected:?}");
    Ok(())
}
