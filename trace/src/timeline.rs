// SPDX-License-Identifier: MIT OR Apache-2.0
//! One time line for the files of a job: from the monotonic clock of each process's host to nanoseconds since 1970. If
//! processes of a host have samples of another rank's clock ([`Clock::Rank`]), linear interpolation relates the host to
//! that clock; a host without samples uses its time of day, with an unknown error. All hosts measured against the same
//! one use its time of day. Called by `folder.rs`. Path: setup; [`Timeline::time`] is pending, once per event. Threads:
//! plain data. Tests: below; tests/folder.rs.

use std::collections::HashMap;

use crate::clock::{Clock, ClockSample, Relation};
use crate::reader::Reader;

/// The conversion from a process's clock to the common time line.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// The relation to the reference clock; `None`: this is the reference clock.
    relation: Option<Relation>,
    /// The offset of the reference clock to nanoseconds since 1970.
    calendar: i64,
    /// Whether the first file's clock is its reference.
    is_measured: bool,
}

impl Timeline {
    /// The common time at a time of the process's monotonic clock, nanoseconds since 1970.
    pub fn time(&self, monotonic: i64) -> i64 {
        let measured = |relation: &Relation| relation.time(monotonic.max(0).cast_unsigned());
        let time = self.relation.as_ref().and_then(measured).unwrap_or(monotonic);
        time.saturating_add(self.calendar)
    }

    /// The largest error bound, relative to the first file's host, of all times from `first` to `last`, nanoseconds.
    /// `None`: unknown, the clocks were never compared.
    pub fn widest(&self, first: i64, last: i64) -> Option<i64> {
        let [first, last] = [first, last].map(|time| time.max(0).cast_unsigned());
        let error = self.relation.as_ref().map_or(Some(0), |relation| relation.widest(first, last))?;
        self.is_measured.then_some(error)
    }
}

struct Said<'a> {
    world: u32,
    rank: Option<u32>,
    own: Which<'a>,
    calendar: i64,
    samples: &'a [ClockSample],
}

/// A clock of a job: that of a file, or that of a rank without a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Which<'a> {
    Of(&'a str, &'a str),
    Rank(u32, u32),
}

/// The time lines of the files, relative to the first file where possible.
pub(crate) fn of<'a>(readers: &'a [Reader]) -> Vec<Timeline> {
    let said = |reader: &'a Reader| {
        let head = reader.head();
        Said {
            world: head.world,
            rank: head.rank,
            own: Which::Of(&head.host, &head.clock),
            calendar: head.calendar,
            samples: reader.samples(),
        }
    };
    let files: Vec<Said<'_>> = readers.iter().map(said).collect();
    lines(&files)
}

fn lines<'a>(files: &[Said<'a>]) -> Vec<Timeline> {
    let which = |world, rank| {
        let found = files.iter().find(|file| file.world == world && file.rank == Some(rank));
        found.map_or(Which::Rank(world, rank), |file| file.own)
    };
    let mut calendars: HashMap<Which<'_>, i64> = HashMap::new();
    let mut against: HashMap<Which<'_>, (Which<'_>, Vec<ClockSample>)> = HashMap::new();
    for file in files {
        let own = file.own;
        // A clock's calendar is that of its first file.
        calendars.entry(own).or_insert(file.calendar);
        for sample in file.samples {
            let Clock::Rank(rank) = sample.clock else { continue };
            let other = which(file.world, rank);
            let (target, samples) = against.entry(own).or_insert_with(|| (other, Vec::new()));
            // All processes of a host have the same samples of the start and the end.
            if other != own && *target == other && !samples.contains(sample) {
                samples.push(*sample);
            }
        }
    }
    let relations: HashMap<Which<'_>, (Which<'_>, Relation)> =
        against.into_iter().filter_map(|(own, (target, samples))| Some((own, (target, relation(samples)?)))).collect();
    // The reference itself has no samples: rank 0 answers and does not ask.
    let root = |file: &Said<'a>| relations.get(&file.own).map_or(file.own, |(target, _)| *target);
    let roots: Vec<Which<'_>> = files.iter().map(root).collect();
    // The clock of a rank without a file has the calendar of the first that was measured against it.
    for file in files {
        if let Some((target, relation)) = relations.get(&file.own)
            && let Some((monotonic, shown)) = relation.first()
        {
            calendars.entry(*target).or_insert(monotonic.saturating_add(file.calendar).saturating_sub(shown));
        }
    }
    let line = |(file, root): (&Said<'a>, &Which<'a>)| Timeline {
        relation: relations.get(&file.own).map(|(_, relation)| relation.clone()),
        calendar: calendars.get(root).copied().unwrap_or(file.calendar),
        is_measured: roots.first() == Some(root),
    };
    files.iter().zip(&roots).map(line).collect()
}

fn relation(mut samples: Vec<ClockSample>) -> Option<Relation> {
    samples.sort_by_key(|sample| sample.before.midpoint(sample.after));
    let mut relation = Relation::new(1_000_000_000);
    for sample in samples {
        let own = u64::try_from(sample.before.midpoint(sample.after)).ok()?;
        let (shown, half) = (sample.shown.cast_signed(), (sample.after.abs_diff(sample.before) / 2 + 1).cast_signed());
        let (before, after) = (shown.saturating_sub(half), shown.saturating_add(half));
        relation.add(ClockSample { shown: own, before, after, ..sample });
    }
    relation.settle();
    relation.first().is_some().then_some(relation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn said<'a>(rank: u32, clock: &'a str, calendar: i64, samples: &'a [ClockSample]) -> Said<'a> {
        Said { world: 0, rank: Some(rank), own: Which::Of("n", clock), calendar, samples }
    }

    fn sample(shown: u64, before: i64, after: i64) -> ClockSample {
        ClockSample { clock: Clock::Rank(0), shown, before, after }
    }

    fn error(line: &Timeline, at: i64) -> Option<i64> {
        line.widest(at, at)
    }

    #[test]
    fn a_host_that_was_measured_goes_by_the_other_clock_and_has_its_calendar() {
        let samples = [sample(1_000, 50_000, 50_200), sample(1_001_000, 1_050_000, 1_050_400)];
        let files = [said(0, "a", 7_000_000, &[]), said(1, "b", 9_999_999, &samples), said(2, "b", 0, &[])];
        let lines = lines(&files);
        assert_eq!((lines[0].time(500), error(&lines[0], 500)), (7_000_500, Some(0)));
        for line in &lines[1..] {
            assert_eq!([50_100, 1_050_200].map(|own| line.time(own)), [7_001_000, 8_001_000]);
            assert_eq!(line.time(60_100), 7_011_000 - 1, "half a nanosecond in ten thousand");
            assert!(error(line, 50_100).is_some_and(|error| (101..=203).contains(&error)), "{:?}", error(line, 50_100));
            assert!(error(line, 100_000_000) > error(line, 1_050_200), "it grows beyond the samples");
        }
    }

    #[test]
    fn a_host_that_was_not_measured_goes_by_its_calendar_and_has_no_bound() {
        let lines = lines(&[said(0, "a", 100, &[]), said(1, "b", 200, &[])]);
        assert_eq!((lines[1].time(5), error(&lines[1], 5)), (205, None));
    }

    #[test]
    fn hosts_that_were_measured_against_a_rank_without_a_file_agree() {
        let (one, two) = ([sample(1_000, 500, 500)], [sample(2_000, 800, 800)]);
        let lines = lines(&[said(1, "b", 10_000, &one), said(2, "c", 77, &two)]);
        assert_eq!((lines[0].time(500), lines[1].time(800)), (10_500, 11_500));
        assert!(lines.iter().all(|line| error(line, 800).is_some()));
    }

    /// A host's clock, up to 100 millionths too fast or slow, at a rate that varies by a millionth. It may jump once,
    /// like that of a virtual machine that was stopped or moved.
    #[derive(Debug, Clone, Copy)]
    struct Made {
        began: i64,
        drift: f64,
        wander: f64,
        /// Time of the jump, and its length.
        jump: (i64, i64),
    }

    impl Made {
        fn shows(self, truth: i64) -> i64 {
            let seconds = truth as f64 / 1e9;
            let jumped = if truth >= self.jump.0 { self.jump.1 } else { 0 };
            self.began + truth + jumped + (truth as f64 * self.drift + (seconds * 0.7).sin() * self.wander * 1e9) as i64
        }
    }

    proptest! {
        #[test]
        fn no_message_arrives_before_it_was_sent_by_more_than_the_bounds(
            began in proptest::collection::vec(0_i64..1 << 50, 3),
            drift in proptest::collection::vec(-100e-6_f64..100e-6, 3),
            wander in proptest::collection::vec(-1e-6_f64..1e-6, 3),
            trips in proptest::collection::vec((500_i64..20_000, 500_i64..20_000), 8),
            sends in proptest::collection::vec((0_i64..12_000_000_000, 300_i64..5_000, 0..3_usize, 0..3_usize), 200),
            is_killed in any::<bool>(),
        ) {
            let clock = |host: usize| Made { began: began[host], drift: drift[host], wander: wander[host], jump: (0, 0) };
            // Each other host asks at the beginning and, unless it was killed, at the end. Messages take any time.
            let exchange = |host: usize, at: i64, (there, back): (i64, i64)| ClockSample {
                clock: Clock::Rank(0),
                shown: clock(0).shows(at + there).cast_unsigned(),
                before: clock(host).shows(at),
                after: clock(host).shows(at + there + back),
            };
            let ends = if is_killed { vec![0] } else { vec![0, 12_000_000_000] };
            let samples: Vec<Vec<ClockSample>> = (1..3)
                .map(|host| ends.iter().enumerate().map(|(n, at)| exchange(host, *at, trips[host * 2 + n])).collect())
                .collect();
            let files = [said(0, "a", 0, &[]), said(1, "b", 0, &samples[0]), said(2, "c", 0, &samples[1])];
            let lines = lines(&files);
            let error = |host: usize, at| error(&lines[host], at).expect("measured");
            for (at, way, from, to) in sends {
                let (sent, arrived) = (clock(from).shows(at), clock(to).shows(at + way));
                let bound = error(from, sent) + error(to, arrived);
                let took = lines[to].time(arrived) - lines[from].time(sent);
                prop_assert!(took >= -bound, "{took} ns, and the bound is {bound}");
                prop_assert!((took - way).abs() <= bound + way / 1000 + 2, "{took} of {way}: {bound}");
            }
        }

        #[test]
        fn exchanges_at_intervals_bound_the_error_of_clocks_that_drift_and_jump(
            drift in proptest::collection::vec(-100e-6_f64..100e-6, 3),
            wander in proptest::collection::vec(-1e-6_f64..1e-6, 3),
            jump in (0..3_usize, 500_000_000_i64..11_000_000_000, 1_000_000_i64..3_000_000_000),
            trips in proptest::collection::vec((20_000_i64..100_000, 20_000_i64..100_000), 26),
            late in proptest::collection::vec(0..8_i64, 26),
            sends in proptest::collection::vec((0_i64..12_000_000_000, 300_i64..5_000, 0..3_usize, 0..3_usize), 200),
        ) {
            let (whose, at, by) = jump;
            let clock = |host: usize| Made {
                began: 1 << 40,
                drift: drift[host],
                wander: wander[host],
                jump: if host == whose { (at, by) } else { (0, 0) },
            };
            // Asks each second by datagrams, of which some come late, and at both ends by quick messages of MPI.
            let exchange = |host: usize, n: usize| {
                let (at, (mut there, mut back), late) = (n as i64 * 1_000_000_000, trips[host * 13 - 13 + n], late[host * 13 - 13 + n]);
                if n == 0 || n == 12 {
                    (there, back) = (there / 20, back / 20);
                } else if late == 0 && n % 2 == 1 {
                    back *= 50;
                }
                ClockSample {
                    clock: Clock::Rank(0),
                    shown: clock(0).shows(at + there).cast_unsigned(),
                    before: clock(host).shows(at),
                    after: clock(host).shows(at + there + back),
                }
            };
            let samples: Vec<Vec<_>> = (1..3).map(|host| (0..13).map(|n| exchange(host, n)).collect()).collect();
            let files = [said(0, "a", 0, &[]), said(1, "b", 0, &samples[0]), said(2, "c", 0, &samples[1])];
            let lines = lines(&files);
            let bound = |host: usize, at| error(&lines[host], at).expect("measured");
            for (sent_at, way, from, to) in sends {
                let (sent, arrived) = (clock(from).shows(sent_at), clock(to).shows(sent_at + way));
                let error = bound(from, sent) + bound(to, arrived);
                let took = lines[to].time(arrived) - lines[from].time(sent);
                // Rank 0's clock is the reference even while it jumps.
                let bound = error + if whose == 0 && (sent_at..=sent_at + way).contains(&at) { by } else { 0 };
                prop_assert!((took - way).abs() <= bound + way / 1000 + 2, "{took} of {way}: {bound}");
                if (sent_at - at).abs() > 5_000_000_000 {
                    prop_assert!(error < 320_000, "{error} far from the jump");
                }
            }
            for (host, line) in lines.iter().enumerate() {
                let all = line.widest(clock(host).shows(0), clock(host).shows(12_000_000_000)).expect("measured");
                let times = (0..120).map(|n| clock(host).shows(n * 100_000_000));
                let some = times.filter_map(|own| error(line, own)).max();
                prop_assert!(some <= Some(all), "{some:?} is beyond {all}");
            }
        }

        #[test]
        fn the_common_clock_keeps_the_order_of_times(
            samples in proptest::collection::vec((0_u64..1 << 40, 0_i64..1 << 40, 0_i64..10_000), 0..8),
            mut times in proptest::collection::vec(0_i64..1 << 41, 50),
        ) {
            let samples: Vec<_> = samples.iter().map(|(shown, at, took)| sample(*shown, *at, at + took)).collect();
            let lines = lines(&[said(0, "a", 5, &[]), said(1, "b", 9, &samples)]);
            times.sort_unstable();
            prop_assert!(times.windows(2).all(|two| lines[1].time(two[0]) <= lines[1].time(two[1])));
        }
    }
}
