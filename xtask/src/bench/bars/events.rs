// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounds on the cost of events. A bound within the interval of a ratio is neither met nor missed: the machine is too
//! noisy. Instructions, allocations and counts of events are exact. Grade: setup. Called by [`super`]. Tests: below.

use super::{Outcome, Verdict};
use ibex_bench::{Cost, Ratio, SMALL_BUFFER, Transport};

/// If noise may hide a change by a larger ratio than this, a bound is not called met.
const UNNOTICED: f64 = 1.05;

/// Number of events per second that a thread has to raise and deliver through a buffer.
const DELIVERIES: f64 = 10e6;

pub(super) fn verdicts(cost: &Cost) -> Vec<Verdict> {
    let (unregistered, callbacks) = (Transport::Unregistered, Transport::Callbacks);
    vec![
        at_most(cost, "nobody registered: latency of 8 B", unregistered, 1.01),
        sites(cost),
        at_most(cost, "empty callbacks: latency of 8 B", callbacks, 1.05),
        unchanged(cost, "empty callbacks: latency at 64 KiB and above", "latency"),
        unchanged(cost, "empty callbacks: bandwidth at 64 KiB and above", "bandwidth"),
        allocations(cost),
        deliveries(cost),
        all_accounted_for(cost),
        of_matching(cost, "PML, PERUSE: instructions per event", Transport::Peruse, 40.0),
        of_matching(cost, "PML, MPI_T: instructions per event", Transport::MpiT, 60.0),
        of_matching(cost, "PML, into a buffer: instructions per event", Transport::Kept, 80.0),
        matching_in_all(cost),
        stamped(cost),
    ]
}

fn of_matching(cost: &Cost, what: &'static str, way: Transport, bound: f64) -> Verdict {
    let against = "more than a message whose listener has no event, the callback among them";
    let judged = added(cost, way, Transport::Watched).map(|(added, events)| {
        let of = format!("{added:.0} for the {events} of 8 B");
        (met(added / events <= bound), format!("{:.1}", added / events), of)
    });
    verdict(what, &format!("at most {bound:.0}"), against, judged)
}

fn matching_in_all(cost: &Cost) -> Verdict {
    let plain = cost.message(Transport::Ibex).map(|message| message.instructions);
    let judged = added(cost, Transport::Peruse, Transport::Ibex).zip(plain).map(|((added, _), plain)| {
        let part = added / plain;
        (met(part <= 0.25), format!("{:.0} %", 100.0 * part), format!("{added:.0} of {plain:.0}"))
    });
    let against = "of the instructions of a message that nobody listens to";
    verdict("PML, PERUSE: all events of 8 B", "at most 25 %", against, judged)
}

fn stamped(cost: &Cost) -> Verdict {
    let judged = added(cost, Transport::Stamped, Transport::Unstamped)
        .map(|(added, _)| (met(added <= 20.0), format!("{added:.0}"), "the arrival of 8 B".to_owned()));
    verdict(
        "PML, by the adapter's clock: instructions of an event",
        "at most 20",
        "more than one by the host's",
        judged,
    )
}

fn at_most(cost: &Cost, what: &'static str, transport: Transport, bound: f64) -> Verdict {
    let judged = cost.find("latency", transport, Some(8)).map(|ratio| {
        let outcome = match ratio {
            _ if ratio.least > bound => Outcome::NotMet,
            _ if ratio.median > bound || ratio.greatest > bound * UNNOTICED => Outcome::Unclear,
            _ => Outcome::Met,
        };
        measured(outcome, ratio)
    });
    verdict(what, &format!("at most {bound:.2} x"), "a build without events", judged)
}

fn unchanged(cost: &Cost, what: &'static str, test: &str) -> Verdict {
    let judged = cost.find(test, Transport::Callbacks, None).map(|ratio| {
        let outcome = match ratio.slowdown() {
            (least, _) if least > 1.0 => Outcome::NotMet,
            (_, most) if most > UNNOTICED => Outcome::Unclear,
            _ => Outcome::Met,
        };
        measured(outcome, ratio)
    });
    verdict(what, "no measurable change", "to a build without events", judged)
}

fn sites(cost: &Cost) -> Verdict {
    let judged = sites_of_message(cost).map(|(sites, instructions)| {
        let of = format!("{instructions:.1} for the {sites:.1} events of a message of 8 B");
        (met(instructions <= 2.0 * sites), format!("{:.2}", instructions / sites), of)
    });
    verdict("nobody registered: instructions per site", "at most 2", "more than a build without events", judged)
}

/// Returns the number of a message's sites, which is its number of events if a tool listens to all, and the
/// instructions that these sites take together if no tool listens.
fn sites_of_message(cost: &Cost) -> Option<(f64, f64)> {
    let (without, with) = (cost.message(Transport::WithoutEvents)?, cost.message(Transport::Unregistered)?);
    let sites = cost.message(Transport::Callbacks)?.events;
    (sites > 0.0).then_some((sites, with.instructions_of_ibex - without.instructions_of_ibex))
}

/// Returns the instructions that listening in this way adds to a message over the PML, compared with `to`; and the
/// number of its events. PERUSE has as many as `MPI_T`.
fn added(cost: &Cost, way: Transport, to: Transport) -> Option<(f64, f64)> {
    let (plain, watched) = (cost.message(to)?, cost.message(way)?);
    // Includes the events of the job's start and end, a few per thousand.
    let counting = [Transport::MpiT, Transport::Kept, Transport::Delivered].into_iter();
    let counted = counting.filter_map(|way| cost.message(way)).map(|message| message.events);
    let events = counted.fold(0.0, f64::max).round();
    (events > 0.0).then_some((watched.instructions - plain.instructions, events))
}

fn allocations(cost: &Cost) -> Verdict {
    let watched = [Transport::Callbacks, Transport::Buffered].into_iter().filter_map(|way| cost.message(way));
    let most = watched.map(|message| message.allocations).max_by(f64::total_cmp);
    let judged = most.map(|most| (met(most == 0.0), most.to_string(), "messages of 8 B".to_owned()));
    verdict("callbacks, buffered: allocations per message", "0", "in the whole process", judged)
}

fn deliveries(cost: &Cost) -> Verdict {
    let judged = cost
        .deliveries_per_second
        .map(|rate| (met(rate >= DELIVERIES), format!("{:.1} M/s", rate / 1e6), "the engine alone".to_owned()));
    let bound = format!("at least {:.0} M/s", DELIVERIES / 1e6);
    verdict("through a buffer: events", &bound, "raised and delivered by one thread", judged)
}

fn all_accounted_for(cost: &Cost) -> Verdict {
    let lossy = cost.counts.iter().any(|counts| counts.what == SMALL_BUFFER && counts.counts.dropped > 0);
    let raised: u64 = cost.counts.iter().map(|counts| counts.counts.raised).sum();
    let dropped: u64 = cost.counts.iter().map(|counts| counts.counts.dropped).sum();
    let exact = cost.counts.iter().all(|counts| counts.counts.add_up());
    let all = if exact { "all" } else { "not all" }.to_owned();
    let judged = lossy.then(|| (met(exact), all, format!("{raised} raised, {dropped} dropped")));
    verdict("each event: delivered, or lost and told", "every one", "of those raised", judged)
}

fn measured(outcome: Outcome, ratio: &Ratio) -> (Outcome, String, String) {
    (outcome, format!("{:.3}", ratio.median), format!("{:.3} to {:.3}", ratio.least, ratio.greatest))
}

fn met(met: bool) -> Outcome {
    if met { Outcome::Met } else { Outcome::NotMet }
}

/// `judged`: the outcome, the value, and its range or size; `None` if nothing was measured.
fn verdict(
    what: &'static str,
    bound: &str,
    against: &'static str,
    judged: Option<(Outcome, String, String)>,
) -> Verdict {
    let (outcome, measured) = match judged {
        Some((outcome, value, of)) => (outcome, Some((value, of))),
        None => (Outcome::NotMeasured, None),
    };
    Verdict { what, against, bound: bound.to_owned(), measured, outcome }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibex_bench::{Counts, Message, NamedCounts};

    fn cost(ratios: Vec<Ratio>) -> Cost {
        Cost { ratios, messages: Vec::new(), counts: Vec::new(), deliveries_per_second: None }
    }

    fn ratio(test: &str, transport: Transport, bytes: Option<u64>, [median, least, greatest]: [f64; 3]) -> Ratio {
        let (test, transport) = (test.to_owned(), transport.name().to_owned());
        Ratio { test, transport, bytes, median, least, greatest }
    }

    fn outcome(cost: &Cost, what: &str) -> Outcome {
        let verdicts = verdicts(cost);
        let mut wanted = verdicts.iter().filter(|verdict| verdict.what.starts_with(what));
        let found = wanted.next().expect("there is such a bar").outcome;
        assert!(wanted.next().is_none(), "several bars are called {what}");
        found
    }

    #[test]
    fn a_bound_inside_the_interval_is_neither_met_nor_missed() {
        let judged = |between: [f64; 3]| {
            let measured = ratio("latency", Transport::Unregistered, Some(8), between);
            outcome(&cost(vec![measured]), "nobody registered: latency")
        };
        assert_eq!(judged([1.005, 1.0, 1.02]), Outcome::Met);
        assert_eq!(judged([1.005, 1.0, 1.2]), Outcome::Unclear);
        assert_eq!(judged([1.05, 1.0, 1.06]), Outcome::Unclear);
        assert_eq!(judged([1.05, 1.02, 1.2]), Outcome::NotMet);
        assert_eq!(outcome(&cost(Vec::new()), "nobody registered: latency"), Outcome::NotMeasured);
    }

    #[test]
    fn callbacks_must_not_be_slower_with_large_messages_and_small_ones_do_not_count() {
        let judged = |large: [f64; 3]| {
            let small = ratio("latency", Transport::Callbacks, Some(4096), [5.0; 3]);
            let large = ratio("latency", Transport::Callbacks, None, large);
            outcome(&cost(vec![small, large]), "empty callbacks: latency at 64 KiB")
        };
        assert_eq!((judged([1.02, 0.99, 1.03]), judged([1.02, 1.01, 1.03])), (Outcome::Met, Outcome::NotMet));
        assert_eq!(judged([1.0, 0.8, 1.2]), Outcome::Unclear);
    }

    fn message(transport: Transport, instructions: f64, events: f64, allocations: f64) -> Message {
        let transport = transport.name().to_owned();
        Message { transport, instructions_of_ibex: instructions, instructions, events, allocations }
    }

    #[test]
    fn a_message_has_as_many_sites_as_events_and_each_may_take_two_instructions() {
        let judged = |unregistered| {
            let messages = vec![
                message(Transport::WithoutEvents, 1000.0, 0.0, 0.0),
                message(Transport::Unregistered, unregistered, 0.0, 0.0),
                message(Transport::Callbacks, 3000.0, 5.0, 0.0),
            ];
            outcome(&Cost { messages, ..cost(Vec::new()) }, "nobody registered: instructions")
        };
        assert_eq!((judged(1010.0), judged(1011.0)), (Outcome::Met, Outcome::NotMet));
    }

    #[test]
    fn matching_events_are_judged_each_and_all_together() {
        let messages = vec![
            message(Transport::Ibex, 600.0, 0.0, 0.0),
            message(Transport::Watched, 650.0, 0.0, 0.0),
            message(Transport::Peruse, 1050.0, 0.0, 0.0),
            message(Transport::MpiT, 1250.0, 10.02, 0.0),
            message(Transport::Kept, 1460.0, 10.02, 0.0),
            message(Transport::Stamped, 721.0, 1.0, 0.0),
            message(Transport::Unstamped, 700.0, 1.0, 0.0),
        ];
        let cost = Cost { messages, ..cost(Vec::new()) };
        let names =
            ["PML, PERUSE: instructions", "PML, MPI_T", "PML, into", "PML, PERUSE: all", "PML, by the adapter's"];
        let outcomes = names.map(|of| outcome(&cost, of));
        assert_eq!(outcomes, [Outcome::Met, Outcome::Met, Outcome::NotMet, Outcome::NotMet, Outcome::NotMet]);
        assert_eq!(added(&cost, Transport::Peruse, Transport::Ibex), Some((450.0, 10.0)));
        assert_eq!(added(&cost, Transport::Delivered, Transport::Ibex), None);
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
        let counts = Counts { raised: 10, delivered: 7, dropped: 2, late: 1, told: 3 };
        let judged = |counts| {
            let counts = vec![NamedCounts { what: SMALL_BUFFER.to_owned(), counts }];
            outcome(&Cost { counts, ..cost(Vec::new()) }, "each event")
        };
        assert_eq!(judged(counts), Outcome::Met);
        assert_eq!(judged(Counts { told: 2, ..counts }), Outcome::NotMet);
        assert_eq!(judged(Counts { raised: 11, ..counts }), Outcome::NotMet);
        assert_eq!(judged(Counts { raised: 7, dropped: 0, late: 0, told: 0, ..counts }), Outcome::NotMeasured);
    }
}
