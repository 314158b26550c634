// SPDX-License-Identifier: MIT OR Apache-2.0
//! The model of an adapter, over which the simulation runs the transport, against a device: both run the same random
//! programs of verbs calls, and must report the same. A difference is shown with its seed and a small program.
//!
//! `program` makes programs, `lockstep` runs them and says what is compared, `side` posts and polls on one side,
//! `adapters` has the ports of both. Grade: test.

mod adapters;
mod lockstep;
mod program;
mod side;

use crate::pair::choice;
use ibex::tunables::Tunables;
use ibex_ffi::verbs::{Context, Path, atomic_cap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of programs, and code of the time after which a missing acknowledgement is noticed: on emulated adapters,
/// which answer at once, and on others.
const EMULATED: (u64, u8) = (300, 5);
const OTHERS: (u64, u8) = (40, 14);
/// Time without a completion after which one counts as missing.
const QUIET: Duration = Duration::from_secs(10);
/// Most runs to make a program small.
const RUNS: usize = 120;

/// The device.
struct Hardware {
    context: Arc<Context>,
    /// The path to its own port. Its packets have 256 bytes, so most messages have several.
    path: Path,
    ack_timeout: u8,
    rd_atomic: u8,
    spans: u32,
    has_atomics: bool,
    is_soft_roce: bool,
}

/// Runs programs.
///
/// # Panics
/// If the device differs from the model.
pub(crate) fn check() {
    let choice = choice(&Tunables::default());
    let context = Context::open(&choice.device).expect("a device");
    let attributes = context.attributes().expect("attributes");
    let (count, ack_timeout) = if choice.device.starts_with("softhca") { EMULATED } else { OTHERS };
    let hardware = Hardware {
        context,
        path: Path {
            qp_num: 0,
            psn: 0,
            mtu: 1,
            lid: choice.lid,
            gid: choice.is_ethernet().then_some(choice.gid),
            gid_index: choice.gid_index,
            port: choice.port,
            service_level: 0,
            traffic_class: 0,
        },
        ack_timeout,
        rd_atomic: attributes.max_rd_atomic.0.min(attributes.max_rd_atomic.1).min(4),
        spans: attributes.max_sge,
        has_atomics: attributes.atomic_cap != atomic_cap::NONE,
        is_soft_roce: choice.device.starts_with("rxe"),
    };
    let (start, mut completions) = (Instant::now(), 0);
    for seed in 0..count {
        let steps = program::random(seed);
        match lockstep::run(&steps, &hardware, QUIET) {
            Ok(more) => completions += more,
            Err(difference) => {
                let fails = |steps: &[program::Step]| lockstep::run(steps, &hardware, QUIET / 10).is_err();
                let small = program::shrink(steps, RUNS, fails);
                let again = lockstep::run(&small, &hardware, QUIET).err();
                panic!("seed {seed}: {difference}\nA small program: {small:#?}\n{}", again.unwrap_or_default());
            }
        }
    }
    println!("\n{count} programs, {completions} completions, {:.1} s", start.elapsed().as_secs_f64());
}
