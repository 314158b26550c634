// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exports a job that never ran, and says what that took: `cargo run --release -p ibex-export --example made -- FORMAT
//! OUT [MESSAGES [RANKS]]`.

use std::path::Path;
use std::time::Instant;

use ibex_export::{Format, export};
use ibex_messages::Job;

/// The most memory that this process has had, in MiB.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = arguments.first().ok_or("which format?")?;
    let format = Format::ALL.into_iter().find(|format| format.name() == name).ok_or("no such format")?;
    let out = arguments.get(1).ok_or("where to?")?;
    let number = |place: usize, default: usize| arguments.get(place).map_or(Ok(default), |text| text.parse());
    let job = Job::synthetic(number(3, 4)? as u32, number(2, 1_000_000)?, 1);
    let before = most_memory();
    let begin = Instant::now();
    export(&job, format, Path::new(out))?;
    println!("{name}: {:.1} s, {before} MiB before, {} MiB at most", begin.elapsed().as_secs_f64(), most_memory());
    Ok(())
}
