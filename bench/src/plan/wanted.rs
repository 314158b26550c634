// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of a user, and the plan that they ask for. Parsed by `cargo xtask bench` and `ibex bench`; planned for
//! [`super::available`]. Grade: setup. Tests: below.

use super::Plan;
use crate::catalogue::{self, By, Kind, Mpi, Test, Transport};
use anyhow::{Result, bail};
use clap::builder::PossibleValuesParser;

/// Options of both commands.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Wanted {
    /// Every test, transport and size, and not only the most telling ones in four minutes
    #[arg(long)]
    pub full: bool,
    /// Only these tests [default: latency, bandwidth, message rate, instructions; with --full all]
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(catalogue::test_names()))]
    pub tests: Vec<String>,
    /// Only these transports [default: ibex, raw and the nearest beside them; with --full those that are installed]
    #[arg(long, value_delimiter = ',')]
    pub transports: Vec<Transport>,
    /// Only these sizes of messages, in bytes, as 8,4K,1M
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = size)]
    pub sizes: Vec<u64>,
    /// Repeat each measurement, but for counts of instructions, this many times [default: 3 to 5, as there is time]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub rounds: Option<u8>,
    /// Whether to measure the cost of events, over ibex.
    #[arg(skip)]
    pub events: bool,
}

const LARGEST: u64 = 64 << 20;

fn size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, 1 << 10),
        None => text.strip_suffix(['M', 'm']).map_or((text, 1), |digits| (digits, 1 << 20)),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(unit));
    bytes.filter(|bytes| *bytes <= LARGEST).ok_or_else(|| "a size is 0 to 64M bytes, as 8, 4K or 1M".to_owned())
}

/// Tests of the cost of events, unless the user names some.
const OF_EVENTS: [&str; 3] = ["latency", "bandwidth", "instructions"];

fn tests(kind: Kind, mpi: Mpi, names: &[String], full: bool) -> Result<Vec<&'static Test>> {
    let wanted = |name: &str| names.iter().any(|wanted| wanted == name);
    let tests = catalogue::TESTS.iter();
    if names.is_empty() {
        let wanted = |test: &&Test| mpi.has(kind, test) && (full || catalogue::FEW_TESTS.contains(&test.name));
        return Ok(tests.filter(wanted).collect());
    }
    let tests: Vec<_> = tests.filter(|test| wanted(test.name)).collect();
    if let Some(test) = tests.iter().find(|test| !kind.has(test)) {
        bail!("the test {} needs emulated adapters: --device softhca", test.name);
    }
    if let Some(test) = tests.iter().find(|test| !mpi.has(kind, test)) {
        bail!("the test {} needs Open MPI: leave --mpi out", test.name);
    }
    Ok(tests)
}

fn tests_of_events(kind: Kind, names: &[String]) -> Result<Vec<&'static Test>> {
    let default = || OF_EVENTS.into_iter().filter(|name| catalogue::test(name).is_some_and(|test| kind.has(test)));
    let names = if names.is_empty() { default().map(str::to_owned).collect() } else { names.to_vec() };
    let tests = tests(kind, Mpi::OpenMpi, &names, true)?;
    if let Some(test) = tests.iter().find(|test| !matches!(test.by, By::Messages | By::InstructionCounter(_))) {
        bail!("the test {} is not among those of --events", test.name);
    }
    Ok(tests)
}

impl Plan {
    /// Makes the plan for these options.
    ///
    /// # Errors
    /// A test is not possible on such a device, or with this MPI.
    pub fn chosen(kind: Kind, mpi: Mpi, wanted: &Wanted) -> Result<Self> {
        let mut plan = if wanted.events {
            Self::of_events(kind, wanted.full, tests_of_events(kind, &wanted.tests)?)
        } else {
            let all = || if wanted.full { mpi.transports(kind) } else { mpi.few_transports(kind) };
            let transports = if wanted.transports.is_empty() { all() } else { wanted.transports.clone() };
            Self::new(kind, wanted.full, tests(kind, mpi, &wanted.tests, wanted.full)?, transports)
        };
        if !wanted.sizes.is_empty() {
            plan.sizes.clone_from(&wanted.sizes);
            plan.sizes.sort_unstable();
            plan.sizes.dedup();
        }
        if let Some(rounds) = wanted.rounds {
            let rounds = usize::from(rounds);
            (plan.rounds, plan.rounds_of_the_rest, plan.is_short) = (rounds, rounds, false);
        }
        if plan.values() == 0 {
            bail!(
                "none of these tests has one of these sizes over one of these transports: there is nothing to measure"
            );
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_with_or_without_a_unit() {
        assert_eq!(["0", "8", "4K", "1m"].map(size), [Ok(0), Ok(8), Ok(4096), Ok(1 << 20)]);
        for wrong in ["", "x", "65M", "-1", "99999999999999999999", "18014398509481984K"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_and_rounds_that_are_asked_for_are_measured_and_a_plan_of_nothing_is_refused() {
        let wanted = Wanted { sizes: vec![64, 8, 64], rounds: Some(1), ..Wanted::default() };
        let plan = Plan::chosen(Kind::Adapter, Mpi::OpenMpi, &wanted).unwrap();
        assert_eq!((&plan.sizes[..], plan.rounds(), plan.round(2).len()), (&[8, 64][..], 1, 0));
        let nothing = Wanted { tests: vec!["message_rate".to_owned()], sizes: vec![1 << 20], ..wanted };
        assert!(
            Plan::chosen(Kind::Adapter, Mpi::OpenMpi, &nothing).unwrap_err().to_string().contains("nothing to measure")
        );
    }
}
