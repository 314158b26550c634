// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order of pairs: every two hosts once, with each host in one pair at a time (a round-robin tournament). Called by
//! `session`. Grade: setup. Tests: below.

/// Returns the rounds of pairs. All hosts but the last form a circle, which turns by one place per round; opposite
/// hosts are a pair, and the host without an opposite pairs with the last. With an odd number, one pauses per round.
pub(super) fn rounds(hosts: usize) -> Vec<Vec<(usize, usize)>> {
    if hosts < 2 {
        return Vec::new();
    }
    let places = hosts.next_multiple_of(2);
    let circle = places - 1;
    let round = |round: usize| {
        let facing = (1..places / 2).map(|step| ((round + step) % circle, (round + circle - step) % circle));
        let pairs = facing.chain([(round, circle)]).filter(|(one, other)| *one.max(other) < hosts);
        pairs.map(|(one, other)| (one.min(other), one.max(other))).collect()
    };
    (0..circle).map(round).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_two_hosts_meet_once_and_none_is_in_two_pairs_at_a_time() {
        for hosts in 0..20 {
            let mut met = HashSet::new();
            for round in rounds(hosts) {
                let mut busy = HashSet::new();
                for (one, other) in round {
                    assert!(one < other && other < hosts, "{one} and {other} of {hosts}");
                    assert!(met.insert((one, other)), "{one} and {other} of {hosts} twice");
                    assert!(busy.insert(one) && busy.insert(other), "{one} or {other} of {hosts} in two pairs");
                }
            }
            assert_eq!(met.len(), hosts * hosts.saturating_sub(1) / 2);
        }
        assert_eq!(rounds(4).len(), 3);
        assert_eq!(rounds(5).len(), 5);
    }
}
