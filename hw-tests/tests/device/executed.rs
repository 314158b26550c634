// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares events with the trace of emulated adapters (hw-tests/mpi/trace.h reads it): the requests that an adapter
//! executed, and the time of each by its clock. Setup grade; one test at a time.

use crate::launch::Launch;
use crate::programs::{COPIED, STARVED};
use crate::rails::adapters;
use crate::site::Site;
use crate::test::{Property, Test};
use anyhow::Result;
use hw_tests::Device;

const STAMPS: Property = (Device::has_stamps, "the adapters do not stamp completions");

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::on_emulated("the events of a job match the work of the adapters and their timestamps", executed)
            .needing(STAMPS),
        Test::on_emulated(
            "the events of a job match the adapters' work under narrow clocks that drift and wrap",
            executed_by_narrow_clocks,
        )
        .needing(STAMPS),
        Test::on_emulated("tools in several threads see the same of adapters with narrow clocks", |site| {
            let launch = Launch::new("events_tools", 2).arguments(&["--threads", "3"]).with("pml", "ibex");
            launch.on_adapters(traced(NARROW_CLOCKS)).passes(site)
        }),
    ]
}

/// Clocks of two adapters that drift apart and never wrap.
const CLOCKS: [&str; 2] = [
    "[device.clock]\ndrift_ppm = 80.0",
    "[device.clock]\nfrequency_hz = 156250000\noffset = 0x0f000000\ndrift_ppm = -60.0",
];

/// Clocks of two adapters that wrap 15 and 9 times a second.
const NARROW_CLOCKS: [&str; 2] = [
    "[device.clock]\nmask_bits = 26\ndrift_ppm = 80.0",
    "[device.clock]\nfrequency_hz = 156250000\nmask_bits = 24\noffset = 0x0f000000\ndrift_ppm = -60.0",
];

fn traced([first, second]: [&str; 2]) -> String {
    format!("trace = true\n{}", adapters(first, second))
}

/// Runs the random patterns of a seed; the program compares their events with the trace.
fn compare(launch: Launch, adapters: &str, arguments: &[&str], site: &mut Site) -> Result<()> {
    let arguments = [arguments, &["--adapter", "softhca"]].concat();
    launch.with("pml", "ibex").arguments(&arguments).on_adapters(adapters).passes(site)
}

fn executed(site: &mut Site) -> Result<()> {
    let (one, two) = ("trace = true\n[[device]]\nname = \"softhca0\"\n", &traced(CLOCKS));
    for (seed, ranks, patterns) in [("1", 2, "3000"), ("2", 3, "1500"), ("3", 4, "1500")] {
        let arguments = ["--trace", "exact", "--seed", seed, "--patterns", patterns];
        compare(Launch::new("events", ranks), two, &arguments, site)?;
    }
    let with = |parameters| Launch::new("events", 4).with_all(parameters);
    compare(with(&[]), one, &["--trace", "exact", "--seed", "7", "--patterns", "1000"], site)?;
    compare(with(STARVED), one, &["--trace", "exact", "--seed", "8", "--patterns", "500"], site)?;
    compare(with(STARVED), two, &["--trace", "exact", "--seed", "4", "--patterns", "1000"], site)?;
    compare(with(COPIED), two, &["--trace", "exact", "--seed", "5", "--patterns", "500"], site)
}

fn executed_by_narrow_clocks(site: &mut Site) -> Result<()> {
    for (seed, ranks, threads) in [("1", 2, "1"), ("2", 4, "1"), ("3", 2, "3")] {
        let arguments = ["--trace", "narrow", "--seed", seed, "--patterns", "1500", "--threads", threads];
        compare(Launch::new("events", ranks), &traced(NARROW_CLOCKS), &arguments, site)?;
    }
    Ok(())
}
