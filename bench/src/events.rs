// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `--events` adds to a bench: what events cost, as ratios to a build that has none, and the bars for it.
//!
//! The six ways ([`transport::EVENTS`]) take turns, and times are compared as [`super::ratios`] says. A bound that the
//! ratio may keep or miss is neither met nor missed: the machine is too noisy to say. Instructions, allocations and
//! counts of events are exact. Of the events of the matching, over the PML, the instructions alone are counted
//! ([`transport::EVENTS_OF_MATCHING`]).
//!
//! Grade: setup. Called by the bench; read by [`super::table`], [`super::html`], [`super::bars`]. Tests: at the end.

use super::bars::{Outcome, Verdict};
use super::instructions::{self, Counted};
use super::ratios::{Ratio, ratios};
use super::report::{Report, Row};
use super::run::Found;
use super::transport::{self, Transport};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// What is compared with everything else.
const BASE: Transport = transport::EVENTS[0];

/// Where a change of this much would not be noticed for noise, a bound is not called met.
const UNNOTICED: f64 = 1.05;

/// How many events a second a thread has to raise and deliver through a buffer.
const DELIVERIES: f64 = 10e6;

/// The part of `report.json` about events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// Each value over that of the build without events.
    pub(crate) ratios: Vec<Ratio>,
    /// What one 8-byte message takes, sent and received.
    pub(crate) messages: Vec<Message>,
    /// The events of all runs of each way, and of one with a buffer that is too small.
    pub(crate) counts: Vec<NamedCounts>,
    /// Events raised and delivered through a buffer, per second and thread.
    pub(crate) deliveries_per_second: Option<f64>,
}

/// What was counted of one message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Message {
    pub(crate) transport: String,
    /// Instructions of libibex.so.
    pub(crate) instructions_of_ibex: f64,
    /// Of MPI and all below it, the tool's among them, without the adapter's.
    #[serde(default)]
    pub(crate) instructions: f64,
    /// Events raised.
    pub(crate) events: f64,
    /// How often memory was allocated, in all of the process, at the most.
    pub(crate) allocations: f64,
}

/// What became of events, as the transport counts, and what the handler for lost ones was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) raised: u64,
    pub(crate) delivered: u64,
    pub(crate) dropped: u64,
    pub(crate) late: u64,
    pub(crate) told: u64,
}

/// The counts of a way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NamedCounts {
    pub(crate) what: String,
    #[serde(flatten)]
    pub(crate) counts: Counts,
}

/// What the counts with a buffer that is too small are called.
pub(crate) const SMALL_BUFFER: &str = "small buffer";

impl Counts {
    /// What a rank's tool printed at its end; none where a line is something else.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("every_event: rank ")?.split(' ').skip(1);
        let mut count = |name: &str| (words.next()? == name).then(|| words.next()?.parse().ok())?;
        Some(Self {
            raised: count("raised")?,
            delivered: count("delivered")?,
            dropped: count("dropped")?,
            late: count("late")?,
            told: count("told")?,
        })
    }

    /// What the tools of all ranks printed.
    pub(crate) fn of_all(output: &str) -> Self {
        let mut all = Self::default();
        output.lines().filter_map(Self::parse).for_each(|counts| all.add(counts));
        all
    }

    /// The sum of both.
    pub(crate) fn add(&mut self, other: Self) {
        self.raised += other.raised;
        self.delivered += other.delivered;
        self.dropped += other.dropped;
        self.late += other.late;
        self.told += other.told;
    }

    /// Whether each event was delivered or lost, and each loss told.
    fn add_up(self) -> bool {
        self.raised == self.delivered + self.dropped + self.late && self.told == self.dropped + self.late
    }
}

impl Cost {
    /// Of all that a run found, and of what was measured without MPI.
    pub(crate) fn new(found: &Found, deliveries_per_second: Option<f64>) -> Self {
        let counts =
            found.events.iter().map(|(what, counts)| NamedCounts { what: (*what).to_owned(), counts: *counts });
        let messages = found.instructions.iter().map(|(count, counted)| Message::new(count.transport, counted));
        Self {
            ratios: ratios(&found.measured, BASE),
            messages: messages.collect(),
            counts: counts.collect(),
            deliveries_per_second,
        }
    }

    /// Of a way, a test and a size over the build without events: `1.012 (0.998 to 1.020)`.
    pub(crate) fn ratio(&self, test: &str, transport: Transport, bytes: u64) -> Option<String> {
        self.find(test, transport, Some(bytes)).map(Ratio::words)
    }

    /// The ratios as rows of their own, in percent, to be drawn.
    pub(crate) fn percentages(&self, report: &Report) -> Report {
        let row = |ratio: &Ratio| {
            Some(Row {
                test: ratio.test.clone(),
                transport: ratio.transport.clone(),
                bytes: ratio.bytes?,
                metric: "ratio".to_owned(),
                unit: format!("% of {}", BASE.name()),
                value: 100.0 * ratio.median,
                spread: 100.0 * (ratio.greatest - ratio.least),
                ratio_to_raw: None,
            })
        };
        Report { rows: self.ratios.iter().filter_map(row).collect(), ..report.clone() }
    }

    fn find(&self, test: &str, transport: Transport, bytes: Option<u64>) -> Option<&Ratio> {
        let wanted = |ratio: &&Ratio| ratio.test == test && ratio.transport == transport.name() && ratio.bytes == bytes;
        self.ratios.iter().find(wanted)
    }

    fn message(&self, transport: Transport) -> Option<&Message> {
        self.messages.iter().find(|message| message.transport == transport.name())
    }

    /// The sites of a message, which are as many as it has events when all are listened to, and the instructions that
    /// these sites take together while nobody listens.
    fn sites_of_message(&self) -> Option<(f64, f64)> {
        let (without, with) = (self.message(BASE)?, self.message(Transport::Unregistered)?);
        let sites = self.message(Transport::Callbacks)?.events;
        (sites > 0.0).then_some((sites, with.instructions_of_ibex - without.instructions_of_ibex))
    }

    /// What is wanted, and whether it is so.
    pub(crate) fn verdicts(&self) -> Vec<Verdict> {
        let (unregistered, callbacks) = (Transport::Unregistered, Transport::Callbacks);
        vec![
            self.at_most("nobody registered: latency of 8 B", unregistered, 1.01),
            self.sites(),
            self.at_most("empty callbacks: latency of 8 B", callbacks, 1.05),
            self.unchanged("empty callbacks: latency at 64 KiB and above", "latency"),
            self.unchanged("empty callbacks: bandwidth at 64 KiB and above", "bandwidth"),
            self.allocations(),
            self.deliveries(),
            self.all_accounted_for(),
            self.of_matching("PML, PERUSE: instructions per event", Transport::Peruse, 40.0),
            self.of_matching("PML, MPI_T: instructions per event", Transport::MpiT, 60.0),
            self.of_matching("PML, into a buffer: instructions per event", Transport::Kept, 80.0),
            self.matching_in_all(),
        ]
    }

    /// The instructions that the events of a message over the PML add to those of another way, by a way of listening;
    /// and how many they are. PERUSE's are those of `MPI_T`.
    fn added(&self, way: Transport, to: Transport) -> Option<(f64, f64)> {
        let (plain, watched) = (self.message(to)?, self.message(way)?);
        // Those of the start and the end of the job are among them, a few in thousands.
        let counting = [Transport::MpiT, Transport::Kept, Transport::Delivered].into_iter();
        let counted = counting.filter_map(|way| self.message(way)).map(|message| message.events);
        let events = counted.fold(0.0, f64::max).round();
        (events > 0.0).then_some((watched.instructions - plain.instructions, events))
    }

    fn of_matching(&self, what: &'static str, way: Transport, bound: f64) -> Verdict {
        verdict(
            what,
            format!("at most {bound:.0}"),
            "more than a message whose listener has no event, the callback among them",
            self.added(way, Transport::Watched).as_ref(),
            |(added, events)| met(added / events <= bound),
            |(added, events)| (format!("{:.1}", added / events), format!("{added:.0} for the {events} of 8 B")),
        )
    }

    fn matching_in_all(&self) -> Verdict {
        let plain = self.message(Transport::Ibex).map(|message| message.instructions);
        let part = self.added(Transport::Peruse, Transport::Ibex).zip(plain).map(|((added, _), plain)| (added, plain));
        verdict(
            "PML, PERUSE: all events of 8 B",
            "at most 25 %".to_owned(),
            "of the instructions of a message that nobody listens to",
            part.as_ref(),
            |(added, plain)| met(added / plain <= 0.25),
            |(added, plain)| (format!("{:.0} %", 100.0 * added / plain), format!("{added:.0} of {plain:.0}")),
        )
    }

    fn at_most(&self, what: &'static str, transport: Transport, bound: f64) -> Verdict {
        let ratio = self.find("latency", transport, Some(8));
        let judge = |ratio: &Ratio| match ratio {
            _ if ratio.least > bound => Outcome::NotMet,
            _ if ratio.median > bound || ratio.greatest > bound * UNNOTICED => Outcome::Unclear,
            _ => Outcome::Met,
        };
        verdict(what, format!("at most {bound:.2} x"), "a build without events", ratio, judge, measured)
    }

    fn unchanged(&self, what: &'static str, test: &str) -> Verdict {
        let ratio = self.find(test, Transport::Callbacks, None);
        let judge = |ratio: &Ratio| match ratio.slowdown() {
            (least, _) if least > 1.0 => Outcome::NotMet,
            (_, most) if most > UNNOTICED => Outcome::Unclear,
            _ => Outcome::Met,
        };
        verdict(what, "no measurable change".to_owned(), "to a build without events", ratio, judge, measured)
    }

    fn sites(&self) -> Verdict {
        let judge = |(sites, instructions): &(f64, f64)| met(*instructions <= 2.0 * sites);
        verdict(
            "nobody registered: instructions per site",
            "at most 2".to_owned(),
            "more than a build without events",
            self.sites_of_message().as_ref(),
            judge,
            |(sites, instructions)| {
                let of = format!("{instructions:.1} for the {sites:.1} events of a message of 8 B");
                (format!("{:.2}", instructions / sites), of)
            },
        )
    }

    fn allocations(&self) -> Verdict {
        let watched = [Transport::Callbacks, Transport::Buffered].into_iter().filter_map(|way| self.message(way));
        let most = watched.map(|message| message.allocations).max_by(f64::total_cmp);
        verdict(
            "callbacks, buffered: allocations per message",
            "0".to_owned(),
            "in the whole process",
            most.as_ref(),
            |allocations| met(*allocations == 0.0),
            |allocations| (allocations.to_string(), "messages of 8 B".to_owned()),
        )
    }

    fn deliveries(&self) -> Verdict {
        verdict(
            "through a buffer: events",
            format!("at least {:.0} M/s", DELIVERIES / 1e6),
            "raised and delivered by one thread",
            self.deliveries_per_second.as_ref(),
            |rate| met(*rate >= DELIVERIES),
            |rate| (format!("{:.1} M/s", rate / 1e6), "the engine alone".to_owned()),
        )
    }

    fn all_accounted_for(&self) -> Verdict {
        let lossy = self.counts.iter().any(|counts| counts.what == SMALL_BUFFER && counts.counts.dropped > 0);
        let raised: u64 = self.counts.iter().map(|counts| counts.counts.raised).sum();
        let dropped: u64 = self.counts.iter().map(|counts| counts.counts.dropped).sum();
        let exact = self.counts.iter().all(|counts| counts.counts.add_up());
        verdict(
            "each event: delivered, or lost and told",
            "every one".to_owned(),
            "of those raised",
            lossy.then_some(&raised),
            |_| met(exact),
            |raised| (if exact { "all" } else { "not all" }.to_owned(), format!("{raised} raised, {dropped} dropped")),
        )
    }
}

impl Message {
    fn new(transport: Transport, counted: &Counted) -> Self {
        Self {
            transport: transport.name().to_owned(),
            instructions_of_ibex: instructions::of_ibex(&counted.objects),
            instructions: instructions::of_mpi(&counted.objects),
            events: counted.events,
            allocations: counted.allocations,
        }
    }
}

/// A ratio as a verdict shows it: the median, and the interval.
fn measured(ratio: &Ratio) -> (String, String) {
    (format!("{:.3}", ratio.median), format!("{:.3} to {:.3}", ratio.least, ratio.greatest))
}

fn met(met: bool) -> Outcome {
    if met { Outcome::Met } else { Outcome::NotMet }
}

fn verdict<T>(
    what: &'static str,
    bound: String,
    against: &'static str,
    measured: Option<&T>,
    judge: impl Fn(&T) -> Outcome,
    shown: impl Fn(&T) -> (String, String),
) -> Verdict {
    let outcome = measured.map_or(Outcome::NotMeasured, judge);
    Verdict { what, against, bound, measured: measured.map(shown), outcome }
}

/// The median that criterion printed, of a bench that raises and delivers `batch` events: events per second.
///
/// # Errors
/// When it printed none.
pub fn rate(output: &str, bench: &str, batch: f64) -> Result<f64> {
    let named = output.lines().find(|line| line.starts_with(&format!("test {bench} ")));
    let line = named.with_context(|| format!("the bench {bench} printed nothing:\n{output}"))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "ns/iter").and_then(|at| words.get(at.checked_sub(1)?));
    let nanoseconds: f64 = at
        .and_then(|number| number.replace(',', "").parse().ok())
        .with_context(|| format!("the bench {bench} printed no time: {line}"))?;
    Ok(batch * 1e9 / nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::super::ratios::tests::rounds;
    use super::super::report::Measurement;
    use super::*;

    fn cost(measured: Vec<Measurement>) -> Cost {
        Cost::new(&Found { measured, ..Found::default() }, None)
    }

    fn outcome(cost: &Cost, what: &str) -> Outcome {
        let verdicts = cost.verdicts();
        let mut wanted = verdicts.iter().filter(|verdict| verdict.what.starts_with(what));
        let found = wanted.next().expect("there is such a bar").outcome;
        assert!(wanted.next().is_none(), "several bars are called {what}");
        found
    }

    #[test]
    fn a_bound_inside_the_interval_is_neither_met_nor_missed() {
        let judged = |ratios: &[f64]| {
            outcome(&cost(rounds("latency", Transport::Unregistered, 8, ratios)), "nobody registered: latency")
        };
        assert_eq!(judged(&[1.0, 1.005, 1.02]), Outcome::Met);
        assert_eq!(judged(&[1.0, 1.005, 1.2]), Outcome::Unclear);
        assert_eq!(judged(&[1.0, 1.05, 1.06]), Outcome::Unclear);
        assert_eq!(judged(&[1.02, 1.05, 1.2]), Outcome::NotMet);
        assert_eq!(judged(&[]), Outcome::NotMeasured);
    }

    #[test]
    fn callbacks_must_not_be_slower_with_large_messages_and_small_ones_do_not_count() {
        let judged = |large: &[f64]| {
            let small = rounds("latency", Transport::Callbacks, 4096, &[5.0, 5.0, 5.0]);
            let large = rounds("latency", Transport::Callbacks, 1 << 20, large);
            outcome(&cost([small, large].concat()), "empty callbacks: latency at 64 KiB")
        };
        assert_eq!((judged(&[0.99, 1.02, 1.03]), judged(&[1.01, 1.02, 1.03])), (Outcome::Met, Outcome::NotMet));
        assert_eq!(judged(&[0.8, 1.0, 1.2]), Outcome::Unclear);
    }

    fn message(transport: Transport, instructions: f64, events: f64, allocations: f64) -> Message {
        let transport = transport.name().to_owned();
        Message { transport, instructions_of_ibex: instructions, instructions, events, allocations }
    }

    #[test]
    fn a_message_has_as_many_sites_as_events_and_each_may_take_two_instructions() {
        let judged = |unregistered| {
            let messages = vec![
                message(BASE, 1000.0, 0.0, 0.0),
                message(Transport::Unregistered, unregistered, 0.0, 0.0),
                message(Transport::Callbacks, 3000.0, 5.0, 0.0),
            ];
            outcome(&Cost { messages, ..cost(Vec::new()) }, "nobody registered: instructions")
        };
        assert_eq!((judged(1010.0), judged(1011.0)), (Outcome::Met, Outcome::NotMet));
    }

    #[test]
    fn an_event_of_the_matching_costs_what_it_adds_and_all_together_are_a_part_of_the_message() {
        let messages = vec![
            message(Transport::Ibex, 600.0, 0.0, 0.0),
            message(Transport::Watched, 650.0, 0.0, 0.0),
            message(Transport::Peruse, 1050.0, 0.0, 0.0),
            message(Transport::MpiT, 1250.0, 10.02, 0.0),
            message(Transport::Kept, 1460.0, 10.02, 0.0),
        ];
        let cost = Cost { messages, ..cost(Vec::new()) };
        let outcomes =
            ["PML, PERUSE: instructions", "PML, MPI_T", "PML, into", "PML, PERUSE: all"].map(|of| outcome(&cost, of));
        assert_eq!(outcomes, [Outcome::Met, Outcome::Met, Outcome::NotMet, Outcome::NotMet]);
        assert_eq!(cost.added(Transport::Peruse, Transport::Ibex), Some((450.0, 10.0)));
        assert_eq!(cost.added(Transport::Delivered, Transport::Ibex), None);
    }

    #[test]
    fn one_allocation_of_either_kind_of_delivery_is_too_many() {
        let of = |buffered| {
            let messages =
                vec![message(Transport::Callbacks, 1.0, 1.0, 0.0), message(Transport::Buffered, 1.0, 1.0, buffered)];
            outcome(&Cost { messages, ..cost(Vec::new()) }, "callbacks, buffered: allocations")
        };
        assert_eq!((of(0.0), of(0.001)), (Outcome::Met, Outcome::NotMet));
    }

    #[test]
    fn events_that_are_not_accounted_for_are_noticed_and_without_a_loss_nothing_is_shown() {
        let line = "every_event: rank 1 raised 10 delivered 7 dropped 2 late 1 told 3";
        let counts = Counts::parse(line).unwrap();
        assert_eq!(Counts::parse("every_event: rank 1 raised 10"), None);
        assert_eq!(Counts::parse("raised 10"), None);
        let judged = |counts| {
            let counts = vec![NamedCounts { what: SMALL_BUFFER.to_owned(), counts }];
            outcome(&Cost { counts, ..cost(Vec::new()) }, "each event")
        };
        assert_eq!(judged(counts), Outcome::Met);
        assert_eq!(judged(Counts { told: 2, ..counts }), Outcome::NotMet);
        assert_eq!(judged(Counts { raised: 11, ..counts }), Outcome::NotMet);
        assert_eq!(judged(Counts { raised: 7, dropped: 0, late: 0, told: 0, ..counts }), Outcome::NotMeasured);
    }

    #[test]
    fn the_rate_is_read_from_what_the_bench_prints() {
        let output = "test event/clock ... bench:          20 ns/iter (+/- 1)\n\
                      test event/buffer_in_and_out ... bench:      51,200 ns/iter (+/- 99)\n";
        assert!((rate(output, "event/buffer_in_and_out", 1024.0).unwrap() - 20e6).abs() < 1.0);
        assert!(rate(output, "event/other", 1.0).unwrap_err().to_string().contains("event/other"));
    }
}
