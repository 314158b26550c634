// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs `ibex_fi_latency`, which measures messages by libfabric's calls between two processes of this host, and reads
//! its output. Called by [`crate::run`]. Grade: setup. Tests: below.

use super::{Line, Measurement, perftest};
use crate::catalogue::{self, Reads, Transport};
use crate::nodes::{Job, Where};
use anyhow::{Context, Result};

pub(crate) const PROGRAM: &str = "ibex_fi_latency";

/// Makes the job that measures one value. `times`: how many times as many messages as in the first measurement.
pub(crate) fn job(place: Where, bytes: u64, times: u32) -> Job {
    let messages = perftest::iterations(Reads::TypicalLatency, bytes, place.kind) * times;
    let mut argv = vec![place.programs.join(PROGRAM).display().to_string(), messages.to_string(), bytes.to_string()];
    argv.extend(place.processors.into_iter().flatten().map(|processor| processor.to_string()));
    let mut job = Job::new(argv);
    job.env.extend(place.of_provider());
    job
}

pub(crate) fn parse(output: &str) -> Result<Measurement> {
    let line = Line::read(PROGRAM, output.trim())?;
    let test = catalogue::test(&line.test).with_context(|| format!("{PROGRAM} measured {}", line.test))?;
    line.measured(PROGRAM, Transport::Ibex, test)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Kind;
    use crate::nodes::place::tests::place;

    #[test]
    fn a_longer_row_has_more_messages_and_the_value_is_that_of_the_line() {
        let place = Where { kind: Kind::SoftHca, processors: Some([0, 2]), ..place() };
        let line = |times| job(place, 8, times).argv.join(" ");
        assert_eq!([1, 2].map(line), [300_000, 600_000].map(|count| format!("/t/mpi/ibex_fi_latency {count} 8 0 2")));
        assert!(job(place, 8, 1).env.contains(&("FI_PROVIDER".to_owned(), "ibex".to_owned())));
        let line =
            r#"{"test":"libfabric_latency","transport":"ibex","bytes":8,"unit":"us","value":0.26,"spread":0.02}"#;
        let found = parse(&format!("{line}\n")).unwrap();
        assert_eq!((found.test.as_str(), found.bytes, found.value), ("libfabric_latency", 8, 0.26));
        assert!(parse(&line.replace("0.26", "0.0")).is_err() && parse("").is_err());
    }
}
