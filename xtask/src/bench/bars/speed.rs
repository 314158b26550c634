// SPDX-License-Identifier: MIT OR Apache-2.0
//! The speeds that ibex has to reach, as ratios of two values measured in the same run. On adapters and soft-RoCE ibex
//! is compared with the raw adapter. On emulated adapters it is compared with the other transports, because an
//! operation of the adapter takes no longer than the software above it; and the adapter with the host's memory. A value
//! whose rounds differ widely is not judged. Grade: setup. Called by [`super`]. Tests: below.

use super::{Outcome, Verdict};
use ibex_bench::{Kind, Mpi, Ratio, Report, Row, Transport, size};

#[derive(Debug)]
struct Bar {
    what: &'static str,
    against: &'static str,
    test: &'static str,
    of: Transport,
    to: Transport,
    /// Smallest and largest size of the bar, in bytes.
    sizes: (u64, u64),
    bound: Bound,
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
    Below(f64),
}

use Bound::{AtLeast, AtMost, Below};
use Transport::{IbexBtl, Openib, Ucx};

const EVERY_SIZE: (u64, u64) = (0, u64::MAX);
const SHORT: (u64, u64) = (8, 512);
const FROM_64_KIB: (u64, u64) = (64 << 10, u64::MAX);
const BOTH_WAYS: &str = "bidirectional_bandwidth";
const BETTER_WRITE_OR_READ: &str = "the better of ib_write_bw and ib_read_bw";

static AGAINST_RAW: [Bar; 4] = [
    Bar::raw("latency of 8 B", "ib_send_lat", "latency", (8, 8), AtMost(1.15)),
    Bar::raw("bandwidth at 1 MiB and above", BETTER_WRITE_OR_READ, "bandwidth", (1 << 20, u64::MAX), AtLeast(0.95)),
    Bar::raw("bandwidth at 64 KiB", BETTER_WRITE_OR_READ, "bandwidth", (64 << 10, 64 << 10), AtLeast(0.85)),
    Bar::raw("message rate of 8 B, window 64", "ib_send_bw -s 8", "message_rate", (8, 8), AtLeast(0.9)),
];

static EMULATED: [Bar; 27] = [
    Bar::to("instructions per message", Ucx, "instructions", EVERY_SIZE, AtMost(0.60)),
    Bar::to("instructions per message, nonblocking", Ucx, "nonblocking_instructions", EVERY_SIZE, AtMost(0.65)),
    Bar::raw("latency of 8 B", "ib_send_lat", "latency", (8, 8), AtMost(1.05)),
    Bar::raw("latency from 4 to 64 KiB", "ib_send_lat", "latency", (4 << 10, 64 << 10), AtMost(1.15)),
    Bar::to("latency at every size", Openib, "latency", EVERY_SIZE, Below(1.0)),
    Bar::to("latency at every size", Ucx, "latency", EVERY_SIZE, Below(1.0)),
    Bar::to("latency at every size", IbexBtl, "latency", EVERY_SIZE, Below(1.0)),
    Bar::raw("latency of 8 B, libfabric", "ib_send_lat", "libfabric_latency", (8, 8), AtMost(1.10)),
    Bar::raw("bandwidth from 64 KiB", BETTER_WRITE_OR_READ, "bandwidth", FROM_64_KIB, AtLeast(0.97)),
    Bar::raw("bandwidth at 16 KiB", BETTER_WRITE_OR_READ, "bandwidth", (16 << 10, 16 << 10), AtLeast(0.85)),
    Bar::raw("bidirectional bandwidth from 64 KiB", "the same with -b", BOTH_WAYS, FROM_64_KIB, AtLeast(0.97)),
    Bar::raw("bidirectional bandwidth at 16 KiB", "the same with -b", BOTH_WAYS, (16 << 10, 16 << 10), AtLeast(0.85)),
    Bar::raw("message rate of 8 B, window 64", "ib_send_bw -s 8", "message_rate", (8, 8), AtLeast(1.0)),
    Bar::to("message rate of 8 B, window 64", Ucx, "message_rate", (8, 8), AtLeast(1.25)),
    Bar::to("put of 8 to 512 B", Openib, "put_latency", SHORT, AtMost(1.0)),
    Bar::to("put of 8 to 512 B", Ucx, "put_latency", SHORT, AtMost(1.0)),
    Bar::to("get of 8 to 512 B", Openib, "get_latency", SHORT, AtMost(1.0)),
    Bar::to("get of 8 to 512 B", Ucx, "get_latency", SHORT, AtMost(1.0)),
    Bar::to("puts of 8 to 512 B, 64 in flight", Openib, "put_bandwidth", SHORT, AtLeast(1.0)),
    Bar::to("puts of 8 to 512 B, 64 in flight", Ucx, "put_bandwidth", SHORT, AtLeast(1.0)),
    Bar::to("gets of 8 to 512 B, 64 in flight", Openib, "get_bandwidth", SHORT, AtLeast(1.0)),
    Bar::to("gets of 8 to 512 B, 64 in flight", Ucx, "get_bandwidth", SHORT, AtLeast(1.0)),
    Bar::to("8 B behind 64 MiB", Transport::Uncut, "share", (64 << 20, 64 << 20), AtMost(0.5)),
    Bar::of_btl("BTL: instructions per message", Openib, "instructions"),
    Bar::of_btl("BTL: latency at every size", Openib, "latency"),
    Bar::adapter("adapter: send and receive of 8 B", "a flag in shared memory", "host_latency", AtMost(5.0)),
    Bar::adapter("adapter: RDMA write of 1 MiB", "process_vm_writev", "host_bandwidth", AtLeast(0.8)),
];

/// A stock MPI over ibex is compared with Debian's MPICH over UCX.
static OF_STOCK: [Bar; 5] = [
    Bar::to("instructions per message of 8 B", Ucx, "instructions", (8, 8), AtMost(0.80)),
    Bar::to("latency at every size", Ucx, "latency", EVERY_SIZE, AtMost(1.0)),
    Bar::to("bandwidth at every size", Ucx, "bandwidth", EVERY_SIZE, AtLeast(1.0)),
    Bar::to("bidirectional bandwidth at every size", Ucx, BOTH_WAYS, EVERY_SIZE, AtLeast(1.0)),
    Bar::to("message rate at every size", Ucx, "message_rate", EVERY_SIZE, AtLeast(1.0)),
];

pub(super) fn verdicts(kind: Kind, mpi: Mpi, report: &Report) -> Vec<Verdict> {
    let bars: &[Bar] = match (mpi, kind) {
        (Mpi::Stock(_), _) => &OF_STOCK,
        (Mpi::OpenMpi, Kind::SoftHca) => &EMULATED,
        (Mpi::OpenMpi, _) => &AGAINST_RAW,
    };
    let has_pieces = kind != Kind::SoftRoce && matches!(mpi, Mpi::OpenMpi);
    let of_pieces = has_pieces.then(|| in_pieces(report));
    bars.iter().map(|bar| bar.verdict(report)).chain(of_pieces).collect()
}

/// Judges pairs of values, because a hundredth is less than a machine's speed drifts in a bench.
fn in_pieces(report: &Report) -> Verdict {
    const BOUND: f64 = 0.99;
    let missed = report.pairs("pieces").find(|(_, ratio)| ratio.greatest < BOUND);
    let worst = missed.or_else(|| report.pairs("pieces").min_by(|a, b| a.1.median.total_cmp(&b.1.median)));
    let outcome = worst.map_or(Outcome::NotMeasured, |(_, ratio)| match ratio {
        _ if ratio.greatest < BOUND => Outcome::NotMet,
        _ if ratio.median < BOUND => Outcome::Unclear,
        _ => Outcome::Met,
    });
    let shown = |(bytes, ratio): (u64, &Ratio)| {
        (format!("{:.3}", ratio.median), format!("{}, {:.2} to {:.2}", size(bytes), ratio.least, ratio.greatest))
    };
    let bound = format!("at least {BOUND:.2} x");
    Verdict { what: "bandwidth in pieces", against: "one read", bound, measured: worst.map(shown), outcome }
}

impl Bar {
    const fn raw(
        what: &'static str,
        against: &'static str,
        test: &'static str,
        sizes: (u64, u64),
        bound: Bound,
    ) -> Self {
        Self { what, against, test, of: Transport::Ibex, to: Transport::Raw, sizes, bound }
    }

    /// Compares ibex with another transport of MPI.
    const fn to(what: &'static str, to: Transport, test: &'static str, sizes: (u64, u64), bound: Bound) -> Self {
        Self { what, against: to.name(), test, of: Transport::Ibex, to, sizes, bound }
    }

    /// Compares ibex's BTL under ob1 with another transport, which has to take longer.
    const fn of_btl(what: &'static str, to: Transport, test: &'static str) -> Self {
        Self { what, against: to.name(), test, of: Transport::IbexBtl, to, sizes: EVERY_SIZE, bound: Bound::Below(1.0) }
    }

    const fn adapter(what: &'static str, against: &'static str, test: &'static str, bound: Bound) -> Self {
        Self { what, against, test, of: Transport::Raw, to: Transport::Memory, sizes: EVERY_SIZE, bound }
    }

    fn verdict(&self, report: &Report) -> Verdict {
        let worst = self.worst(report);
        let outcome = worst.map_or(Outcome::NotMeasured, |(ratio, _)| self.judge(ratio));
        let (outcome, measured) = match self.widest(report) {
            // The bar is missed if one size misses it; it is met only if all sizes are steady.
            Some((percent, bytes)) if outcome != Outcome::NotMet => {
                (Outcome::NotJudged, Some((format!("spread {percent:.0} %"), bytes)))
            }
            _ => (outcome, worst.map(|(ratio, bytes)| (format!("{ratio:.2}"), bytes))),
        };
        let measured = measured.map(|(value, bytes)| (value, size(bytes)));
        Verdict { what: self.what, against: self.against, bound: self.bound(), measured, outcome }
    }

    fn judge(&self, ratio: f64) -> Outcome {
        let met = match self.bound {
            Bound::AtMost(bound) => ratio <= bound,
            Bound::AtLeast(bound) => ratio >= bound,
            Bound::Below(bound) => ratio < bound,
        };
        if met { Outcome::Met } else { Outcome::NotMet }
    }

    fn bound(&self) -> String {
        match self.bound {
            Bound::AtMost(ratio) => format!("at most {ratio:.2} x"),
            Bound::AtLeast(ratio) => format!("at least {ratio:.2} x"),
            Bound::Below(ratio) => format!("below {ratio:.2} x"),
        }
    }

    /// Returns the sizes of the bar, each with the two values that it compares.
    fn compared<'a>(&'a self, report: &'a Report) -> impl Iterator<Item = (u64, [&'a Row; 2])> {
        let sizes = report.sizes(self.test).into_iter().filter(|size| (self.sizes.0..=self.sizes.1).contains(size));
        sizes.filter_map(|size| {
            Some((size, [report.row(self.test, self.of, size)?, report.row(self.test, self.to, size)?]))
        })
    }

    /// Returns the worst ratio of the steady values, and its size.
    fn worst(&self, report: &Report) -> Option<(f64, u64)> {
        let steady = self.compared(report).filter(|(_, rows)| !rows.iter().any(|row| row.unsteady));
        let ratios = steady.filter_map(|(size, _)| Some((report.ratio(self.test, self.of, self.to, size)?, size)));
        match self.bound {
            Bound::AtMost(_) | Bound::Below(_) => ratios.max_by(|a, b| a.0.total_cmp(&b.0)),
            Bound::AtLeast(_) => ratios.min_by(|a, b| a.0.total_cmp(&b.0)),
        }
    }

    /// Returns the greatest spread of an unsteady value, in percent, and its size.
    fn widest(&self, report: &Report) -> Option<(f64, u64)> {
        let unsteady = self.compared(report).flat_map(|(size, rows)| {
            rows.into_iter().filter(|row| row.unsteady).map(move |row| (100.0 * row.spread / row.value, size))
        });
        unsteady.max_by(|a, b| a.0.total_cmp(&b.0))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::{Value, json};

    pub(in crate::bench::bars) fn row(test: &str, transport: &str, bytes: u64, value: f64) -> Value {
        json!({"test": test, "transport": transport, "bytes": bytes, "unit": "", "value": value, "spread": 0.0})
    }

    pub(in crate::bench::bars) fn report(rows: &[Value]) -> Report {
        let report = json!({"device": "softhca0", "rows": rows, "instructions": []});
        serde_json::from_value(report).expect("a report has no other field that must be there")
    }

    #[test]
    fn a_bar_over_several_sizes_is_judged_by_the_worst() {
        let of_size = |(bytes, ratio): (u64, f64)| {
            [row("bandwidth", "ibex", bytes, 100.0 * ratio), row("bandwidth", "raw", bytes, 100.0)]
        };
        let rows = [(64 << 10, 0.86), (1 << 20, 0.99), (4 << 20, 0.94)].map(of_size).concat();
        let verdicts = verdicts(Kind::SoftRoce, Mpi::OpenMpi, &report(&rows));
        assert_eq!(verdicts[1].measured, Some(("0.94".to_owned(), "4 MiB".to_owned())));
        assert_eq!(
            verdicts.iter().map(|verdict| verdict.outcome.word()).collect::<Vec<_>>(),
            ["not measured", "not met", "met", "not measured"]
        );
    }

    #[test]
    fn a_stock_mpi_has_the_bars_of_debians_mpich_alone() {
        let folder = std::path::Path::new("/t");
        let mpich = Mpi::Stock(ibex_bench::Stock {
            family: ibex_bench::Family::Mpich,
            folder,
            provider: folder,
            of_debian: folder,
        });
        let rows = [("ibex", 81.0), ("ucx", 100.0)].map(|(transport, count)| row("instructions", transport, 8, count));
        let verdicts = verdicts(Kind::SoftHca, mpich, &report(&rows));
        assert_eq!((verdicts.len(), verdicts[0].outcome), (OF_STOCK.len(), Outcome::NotMet));
        assert!(verdicts.iter().all(|verdict| verdict.against == "ucx"));
    }

    #[test]
    fn pieces_are_as_fast_as_one_read_if_pairs_of_values_say_so() {
        let judged = |ratios: [[f64; 3]; 2]| {
            let pair = |(bytes, [median, least, greatest]): (u64, [f64; 3])| {
                json!({"test": "pieces", "transport": "ibex", "bytes": bytes, "median": median, "least": least,
                    "greatest": greatest})
            };
            let mut with_pairs = serde_json::to_value(report(&[])).expect("a report is JSON");
            with_pairs["pairs"] = [1 << 20, 64 << 20].into_iter().zip(ratios).map(pair).collect();
            in_pieces(&serde_json::from_value(with_pairs).expect("of a report"))
        };
        let shown = |text: [&str; 2]| Some(text.map(str::to_owned).into());
        let met = judged([[0.99, 0.95, 1.1], [1.2, 1.1, 1.3]]);
        assert_eq!((met.outcome, met.measured), (Outcome::Met, shown(["0.990", "1 MiB, 0.95 to 1.10"])));
        assert_eq!(judged([[0.97, 0.95, 1.1], [1.2, 1.1, 1.3]]).outcome, Outcome::Unclear);
        let missed = judged([[0.97, 0.95, 1.1], [0.98, 0.971, 0.984]]);
        assert_eq!((missed.outcome, missed.measured), (Outcome::NotMet, shown(["0.980", "64 MiB, 0.97 to 0.98"])));
    }

    #[test]
    fn a_latency_just_at_its_bound_meets_it() {
        let rows = [row("latency", "ibex", 8, 115.0), row("latency", "raw", 8, 100.0)];
        let verdicts = verdicts(Kind::SoftRoce, Mpi::OpenMpi, &report(&rows));
        assert_eq!(verdicts[0].outcome, Outcome::Met);
        assert_eq!(verdicts[0].bound, "at most 1.15 x");
    }

    #[test]
    fn on_emulated_adapters_one_size_at_which_another_is_as_fast_misses_the_bar() {
        let latency =
            |transport, eight, large| [row("latency", transport, 8, eight), row("latency", transport, 4096, large)];
        let rows = [latency("ibex", 10.0, 30.0), latency("openib", 20.0, 40.0), latency("ucx", 20.0, 30.0)];
        let verdicts = verdicts(Kind::SoftHca, Mpi::OpenMpi, &report(&rows.concat()));
        let said = |against: &str| {
            let of = |verdict: &&Verdict| verdict.what == "latency at every size" && verdict.against == against;
            let verdict = verdicts.iter().find(of).expect("there is such a bar");
            (verdict.measured.clone(), verdict.outcome)
        };
        let measured = |ratio: &str| Some((ratio.to_owned(), "4 KiB".to_owned()));
        assert_eq!(said("openib"), (measured("0.75"), Outcome::Met));
        assert_eq!(said("ucx"), (measured("1.00"), Outcome::NotMet));
        assert_eq!(said("ibex-btl"), (None, Outcome::NotMeasured));
    }

    #[test]
    fn an_unsteady_value_meets_no_bar_and_does_not_hide_a_size_that_misses_it() {
        let bar = |of_4_kib: f64| {
            let mut unsteady = row("latency", "ucx", 8, 2.0);
            unsteady["spread"] = 1.0.into();
            unsteady["unsteady"] = true.into();
            let rows = [
                row("latency", "ibex", 8, 1.0),
                unsteady,
                row("latency", "ibex", 4096, of_4_kib),
                row("latency", "ucx", 4096, 2.0),
            ];
            let verdicts = verdicts(Kind::SoftHca, Mpi::OpenMpi, &report(&rows));
            let of = |verdict: &Verdict| verdict.what == "latency at every size" && verdict.against == "ucx";
            verdicts
                .into_iter()
                .find(of)
                .map(|verdict| (verdict.outcome, verdict.measured))
                .expect("there is such a bar")
        };
        let said = |value: &str, size: &str| Some((value.to_owned(), size.to_owned()));
        assert_eq!(bar(1.0), (Outcome::NotJudged, said("spread 50 %", "8 B")));
        assert_eq!(bar(3.0), (Outcome::NotMet, said("1.50", "4 KiB")));
    }
}
