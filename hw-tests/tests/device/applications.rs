// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unmodified programs of Debian: the HPC Challenge must have the same results over ibex as over shared memory, and
//! `NetPIPE` must receive what it sent. Run on emulated adapters, by both of ibex's faces. Setup grade; one at a time.

use crate::launch::Launch;
use crate::site::Site;
use crate::test::Test;
use anyhow::{Context, Result, ensure};

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::on_emulated("the hpc challenge gives the same results over ibex as over shared memory", hpc_challenge)
            .device_independent(),
    ];
    let over_ob1 = [("ob1", NETPIPE[0])];
    for (pml, (how, options)) in NETPIPE.map(|kind| ("ibex", kind)).into_iter().chain(over_ob1) {
        let name = format!("netpipe over the pml {pml} finds {how} as they were sent");
        tests.push(Test::on_emulated(name, move |site| netpipe(site, pml, options)).device_independent());
    }
    tests
}

/// Kinds of messages, and `NetPIPE`'s options for them; it checks messages up to 4 MiB.
const NETPIPE: [(&str, &[&str]); 4] = [
    ("messages", &["-i", "-u", "4194304", "-n", "5"]),
    ("messages with receives that wait", &["-i", "-u", "4194304", "-n", "5", "-a"]),
    ("messages from any source at addresses of any alignment", &["-i", "-u", "4194304", "-n", "5", "-z", "-O", "1,3"]),
    ("synchronous messages both ways at once", &["-i", "-u", "4194304", "-n", "5", "-a", "-S", "-2"]),
];

fn netpipe(site: &mut Site, pml: &str, options: &[&str]) -> Result<()> {
    let launch = Launch::new("/usr/bin/NPopenmpi", 2).arguments(options).with("pml", pml);
    let outcome = launch.inside("cd \"$(mktemp -d)\" && \"$@\" 2>&1").succeeds(site)?;
    let lengths: Vec<&str> = outcome.stdout.lines().filter(|line| line.contains(" bytes ")).collect();
    ensure!(lengths.len() >= 40, "only {} lengths were tried: {outcome}", lengths.len());
    ensure!(lengths.iter().all(|line| line.ends_with("Integrity check passed")), "messages were not right: {outcome}");
    Ok(())
}

/// `hpccinf.txt`: matrices of 240 in blocks of 40 on 2 x 2 processes, and one more of 150 to be transposed.
const INPUT: &str = "what is run\non 4 ranks\nHPL.out\n8 device\n1 sizes\n240\n1 block sizes\n40\n0 mapping\n1 grids\n2 Ps\n2 Qs\n\
                     16.0 threshold\n1\n2 PFACTs\n1\n4 NBMINs\n1\n2 NDIVs\n1\n1 RFACTs\n1\n1 BCASTs\n1\n1 DEPTHs\n2 SWAP\n\
                     64\n0 L1\n0 U\n1 equilibration\n8 alignment\n-\n1 more for PTRANS\n150\n1 more block sizes\n24\n";

/// Results of the HPC Challenge other than times and rates.
const FINDINGS: [&str; 7] = [
    "HPL_N",
    "PTRANS_residual",
    "MPIRandomAccess_N",
    "MPIRandomAccess_Errors",
    "MPIRandomAccess_LCG_Errors",
    "MPIFFT_N",
    "MPIFFT_maxErr",
];

fn hpc_challenge(site: &mut Site) -> Result<()> {
    let over_shared_memory = findings(site, "ob1", "self,sm")?;
    for (pml, btl) in [("ibex", "self,ibex"), ("ibex", "self,sm,ibex"), ("ob1", "self,ibex")] {
        let over_ibex = findings(site, pml, btl)?;
        ensure!(over_ibex == over_shared_memory, "by {pml} and {btl}: {over_ibex:?}, and not {over_shared_memory:?}");
    }
    Ok(())
}

fn findings(site: &mut Site, pml: &str, btl: &str) -> Result<Vec<String>> {
    let script = format!(
        "cd \"$(mktemp -d)\" && printf '%s' '{INPUT}' > hpccinf.txt && \"$@\" && sed -n '/Begin of Summary/,$p' hpccoutf.txt"
    );
    let launch = Launch::new("/usr/bin/hpcc", 4).with("pml", pml).with("btl", btl).inside(script).limit(300);
    let outcome = launch.succeeds(site)?;
    let value = |name: &str| outcome.stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    ensure!(value("Success") == Some("1"), "it did not succeed: {outcome}");
    let found = |name: &&str| Some(format!("{name}={}", value(name)?));
    FINDINGS.iter().map(|name| found(name).with_context(|| format!("it does not say {name}: {outcome}"))).collect()
}
