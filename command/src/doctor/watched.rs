// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings about counters that grow and clocks that drift. Called by [`super`]. Grade: setup. Tests: below.

use super::finding::{Finding, Severity};
use super::watch::Seen;

/// Parts per million beyond which a clock's rate is wrong. Crystals keep to 100.
const DRIFT: f64 = 200.0;

/// Counters that do not grow on a sound link (the kernel's names), their meaning, and the advice.
const ERRORS: [(&str, &str, &str); 15] = [
    ("symbol_error", "bits of the link are wrong", CABLE),
    ("link_error_recovery", "the link recovers from errors", CABLE),
    ("link_downed", "the link goes down", CABLE),
    ("port_rcv_errors", "packets arrive damaged", CABLE),
    ("local_link_integrity_errors", "the link has too many errors", CABLE),
    ("excessive_buffer_overrun_errors", "buffers of the port overrun", CONGESTION),
    ("port_xmit_discards", "the port drops what it should send", CONGESTION),
    ("VL15_dropped", "packets of the subnet manager are dropped", CONGESTION),
    ("out_of_sequence", "packets are lost", CONGESTION),
    ("packet_seq_err", "packets are lost", CONGESTION),
    ("local_ack_timeout_err", "packets are not acknowledged, and sent again", CONGESTION),
    ("implied_nak_seq_err", "acknowledgements are lost", CONGESTION),
    ("retransmits", "packets are sent again", CONGESTION),
    ("rnr_nak_retry_err", "receivers were not ready for too long", RECEIVERS),
    ("req_cqe_error", "requests fail", "check the kernel's log and the messages of the jobs"),
];

const CABLE: &str = "clean or replace cable and transceivers, check the switch's port, update firmware";
const CONGESTION: &str = "on Ethernet set up flow control (PFC or ECN) on hosts and switches, with btl_ibex_traffic_class; look for \
                          congestion and bad links (ibdiagnet)";
const RECEIVERS: &str = "raise btl_ibex_receive_queue_depth of the job that receives";

pub(super) fn judge(seen: &Seen) -> Vec<Finding> {
    let grown = seen.grown.iter().flat_map(|(place, counters)| {
        let error = move |(name, meaning, mend): &(&str, &str, &str)| {
            let more = counters.get(*name)?;
            let found = format!("{name} has grown by {more} in {:.1} s: {meaning}", seen.seconds);
            let finding = Finding::new(Severity::Warning, "counters", format!("port {place}"), found);
            Some(finding.expected("no growth").mended(*mend))
        };
        ERRORS.iter().filter_map(error)
    });
    let drifts = seen.drifts.iter().filter(|(_, drift)| drift.abs() > DRIFT).map(|(place, drift)| {
        let found = format!("it runs {drift:.0} parts per million faster than its nominal rate");
        let finding = Finding::new(Severity::Warning, "clock", format!("clock of {place}"), found);
        finding
            .expected(format!("at most {DRIFT}"))
            .mended("update the adapter's firmware, or do without its clock: btl_ibex_event_adapter_clock 0")
    });
    grown.chain(drifts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::counters::Counters;

    #[test]
    fn growing_errors_and_drifting_clocks_are_findings_and_traffic_is_not() {
        let counters = Counters::from([("port_xmit_data".to_owned(), 7), ("local_ack_timeout_err".to_owned(), 3)]);
        let seen = Seen {
            seconds: 2.0,
            grown: vec![("a:1".into(), counters)],
            drifts: vec![("a".into(), 80.0), ("b".into(), -5000.0)],
        };
        let found: Vec<_> = judge(&seen).into_iter().map(|finding| finding.measured).collect();
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("local_ack_timeout_err has grown by 3 in 2.0 s"));
        assert!(found[1].contains("-5000 parts"));
    }
}
