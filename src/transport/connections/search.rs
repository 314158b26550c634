// SPDX-License-Identifier: MIT OR Apache-2.0
//! The search among a peer's ports if addresses leave a choice (`select/partners.rs`): asks one after the other. The
//! *current* port is the one that it asks now. The search exists from the beginning of a connection until it is made.
//! The handshake sends the requests (`connect/handshake/port_attempt.rs`), `port/partner.rs` drives the search, which
//! has neither clock nor adapter. Grade: setup. Threads: the port's. Tests: below, and `port/tests/partners`.

/// Number of requests to a port before the search goes on to the next one.
const TRIES: u32 = 3;
/// The same number if the peer's process is known to answer.
const TRIES_AWAKE: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may be the port to connect to.
    Open,
    /// It declined, being connected to another port of this process.
    Taken,
    /// Datagrams to it do not arrive, although its process answers by TCP.
    Unmet,
}

#[derive(Debug)]
struct Candidate {
    port: u8,
    verdict: Verdict,
    /// Datagrams and TCP packets sent to it in earlier turns; the handshake counts those of the current turn.
    sent: (u32, u32),
    /// Whether it was silent while its process was awake.
    is_ruled_out: bool,
}

/// The peer's candidate ports, best first.
#[derive(Debug)]
pub(crate) struct Search {
    candidates: Vec<Candidate>,
    current: usize,
    /// A port that has sent a hello, and waits until the search has asked the better ports again.
    wanted: Option<usize>,
}

impl Search {
    /// Makes a search among `ports`, which begins with `first`; `None` if there is no choice.
    pub(crate) fn new(ports: &[u8], first: u8) -> Option<Search> {
        let current = ports.iter().position(|port| *port == first).filter(|_| ports.len() > 1)?;
        let candidate =
            |port: &u8| Candidate { port: *port, verdict: Verdict::Open, sent: (0, 0), is_ruled_out: false };
        Some(Search { candidates: ports.iter().map(candidate).collect(), current, wanted: None })
    }

    fn find(&self, port: u8) -> Option<usize> {
        self.candidates.iter().position(|candidate| candidate.port == port)
    }

    pub(crate) fn current(&self) -> u8 {
        self.candidates[self.current].port
    }

    /// Whether addresses pair the current port with this one.
    pub(crate) fn is_first_choice(&self) -> bool {
        self.current == 0
    }

    /// Returns the port that addresses pair.
    pub(crate) fn first_choice(&self) -> u8 {
        self.candidates[0].port
    }

    pub(crate) fn verdict(&self, port: u8) -> Option<Verdict> {
        self.find(port).map(|place| self.candidates[place].verdict)
    }

    /// Whether the current port is no worse than `port`. Both processes rank ports in the same way.
    pub(crate) fn prefers_current_to(&self, port: u8) -> bool {
        self.find(port).is_none_or(|place| self.current <= place)
    }

    /// Number of requests to the current port before the search goes on to the next one.
    pub(crate) fn tries(&self) -> u32 {
        if self.wanted.is_some() { TRIES_AWAKE } else { TRIES }
    }

    /// Whether the endpoint may connect to this port, which has sent a hello: no better port is left that may be silent
    /// only because the peer computes. So addresses decide which ports of one fabric connect, not the order in which
    /// they answer.
    pub(crate) fn may_take(&self, port: u8) -> bool {
        self.find(port).is_some_and(|place| self.better_than(place).is_none())
    }

    /// Returns the best port above `place` that was neither excluded nor ruled out.
    fn better_than(&self, place: usize) -> Option<usize> {
        let is_left = |candidate: &Candidate| candidate.verdict == Verdict::Open && !candidate.is_ruled_out;
        self.candidates[..place].iter().position(is_left)
    }

    /// Notes that this port has sent a hello before its turn: its process is awake, so the search asks the better ports
    /// again first. False if it is asking them already.
    pub(crate) fn want(&mut self, port: u8) -> bool {
        let place = self.find(port).filter(|place| self.wanted.is_none_or(|wanted| *place < wanted));
        self.wanted = place.or(self.wanted);
        place.is_some()
    }

    pub(crate) fn has_wanted(&self) -> bool {
        self.wanted.is_some()
    }

    /// Notes that the current port did not answer.
    pub(crate) fn was_silent(&mut self) {
        self.candidates[self.current].is_ruled_out |= self.wanted.is_some();
        self.wanted = self.wanted.filter(|wanted| *wanted != self.current);
    }

    /// Returns the next port to ask: the current one if no other is open, `None` if none is.
    pub(crate) fn next(&self) -> Option<u8> {
        let is_open = |place: &usize| self.candidates[*place].verdict == Verdict::Open;
        let wanted = self.wanted.map(|wanted| self.better_than(wanted).unwrap_or(wanted)).filter(is_open);
        let count = self.candidates.len();
        let next = (1..=count).map(|step| (self.current + step) % count).find(is_open);
        wanted.or(next).map(|place| self.candidates[place].port)
    }

    pub(crate) fn exclude(&mut self, port: u8, verdict: Verdict) {
        if let Some(place) = self.find(port) {
            self.candidates[place].verdict = verdict;
        }
    }

    /// Makes `port` current. `sent`: packets sent to the former one. Returns the packets sent to `port` in earlier
    /// turns.
    pub(crate) fn ask_port(&mut self, port: u8, sent: (u32, u32)) -> (u32, u32) {
        self.candidates[self.current].sent = sent;
        if let Some(place) = self.find(port) {
            self.current = place;
            self.candidates[place].verdict = Verdict::Open;
        }
        self.candidates[self.current].sent
    }

    /// Lists the ports and their results; `sent`: packets sent to the current port.
    pub(crate) fn tried(&self, sent: (u32, u32)) -> String {
        let what = self.candidates.iter().enumerate().map(|(place, candidate)| {
            let sent = if place == self.current { sent } else { candidate.sent };
            let (port, (datagrams, packets)) = (candidate.port, sent);
            match candidate.verdict {
                Verdict::Taken => format!("its port {port} is connected to another port, or has none to connect to"),
                Verdict::Unmet => format!("{datagrams} datagrams to its port {port} did not arrive, while TCP did"),
                Verdict::Open => {
                    format!("its port {port} left {datagrams} datagrams and {packets} TCP packets unanswered")
                }
            }
        });
        what.collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_needs_two_candidates_of_which_one_is_the_first_port() {
        assert!(Search::new(&[], 0).is_none() && Search::new(&[0], 0).is_none() && Search::new(&[0, 1], 2).is_none());
    }

    #[test]
    fn the_search_asks_all_ports_in_turn_until_they_are_excluded() {
        let mut search = Search::new(&[1, 2, 0], 1).expect("a choice");
        assert!(search.is_first_choice());
        let turns: Vec<u8> = (0..4)
            .map(|_| {
                let next = search.next().expect("one is open");
                search.ask_port(next, (0, 0));
                next
            })
            .collect();
        assert_eq!(turns, [2, 0, 1, 2]);
        search.exclude(0, Verdict::Unmet);
        assert_eq!(search.next(), Some(1));
        search.exclude(1, Verdict::Taken);
        assert_eq!((search.next(), search.current()), (Some(2), 2), "the one that is being asked is the last");
        search.exclude(2, Verdict::Taken);
        assert_eq!(search.next(), None);
    }

    #[test]
    fn a_turn_goes_on_where_the_last_one_of_that_port_ended() {
        let mut search = Search::new(&[1, 2], 1).expect("a choice");
        assert_eq!(search.ask_port(2, (3, 0)), (0, 0));
        assert_eq!(search.ask_port(1, (2, 1)), (3, 0));
        let tried = search.tried((5, 1));
        assert!(tried.contains("port 1 left 5 datagrams and 1 TCP"), "{tried}");
        assert!(tried.contains("port 2 left 2 datagrams and 1 TCP"), "{tried}");
    }

    #[test]
    fn the_search_prefers_a_better_partner_and_never_a_stranger() {
        let mut search = Search::new(&[1, 2, 0], 2).expect("a choice");
        assert_eq!([1, 2, 0, 9].map(|port| search.prefers_current_to(port)), [false, true, true, true]);
        search.ask_port(1, (0, 0));
        assert!(search.prefers_current_to(2));
    }

    #[test]
    fn the_search_asks_better_ports_again_before_it_takes_one_that_has_sent_a_hello() {
        let mut search = Search::new(&[5, 6, 7], 6).expect("a choice");
        assert_eq!([5, 6, 7].map(|port| search.may_take(port)), [true, false, false]);
        assert!(search.want(7) && !search.want(7) && search.want(6), "the better one of two");
        assert_eq!((search.next(), search.tries()), (Some(5), TRIES_AWAKE));
        search.ask_port(5, (0, 0));
        search.was_silent();
        assert!(search.may_take(6) && !search.may_take(7));
        assert_eq!(search.next(), Some(6));
        search.ask_port(6, (0, 0));
        search.was_silent();
        assert_eq!((search.has_wanted(), search.next(), search.tries()), (false, Some(7), TRIES));
    }

    #[test]
    fn an_excluded_port_is_open_again_once_it_is_asked() {
        let mut search = Search::new(&[0, 1], 0).expect("a choice");
        search.exclude(1, Verdict::Unmet);
        search.ask_port(1, (4, 4));
        assert_eq!(search.verdict(1), Some(Verdict::Open));
    }
}
