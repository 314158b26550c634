// SPDX-License-Identifier: MIT OR Apache-2.0
//! Durations: pairs of events that begin and end something, and their statistics. The names of types determine the
//! pairs ([`ENDINGS`]). Common elements determine which events belong together: the number of a message or operation if
//! it is not 0, otherwise all identifying elements; the oldest of equal beginnings ends first. Each direction has its
//! own statistics. Called by `writer.rs`. Grade: pending. Threads: the owner's. Tests: below.

use std::collections::{BTreeMap, HashMap, VecDeque};

use ibex_trace::{EventType, Values, short};

/// Suffix of a beginning, suffix of its end, and the name of the pair if it is not made of both types' names.
const ENDINGS: [(&str, &str, Option<&str>); 6] = [
    ("_begin", "_end", None),
    ("_begin", "_established", None),
    ("_started", "_complete", None),
    ("_insert_in_posted_q", "_remove_from_posted_q", Some("receives in the posted queue")),
    ("_insert_in_unex_q", "_remove_from_unex_q", Some("messages in the unexpected queue")),
    ("_req_complete", "_req_notify", Some("done, not asked for")),
];

/// Names of elements that number a message or an operation; 0 is no number.
const NUMBERS: [&str; 3] = ["message", "operation", "id"];

/// Names of elements that identify the events of a pair beside the number.
const WHO: [&str; 3] = ["direction", "peer", "kind"];

/// Names of elements that identify them if there is no number.
const WHICH: [&str; 6] = ["port", "context", "source", "tag", "local", "remote"];

const VALUES: usize = NUMBERS.len() + WHO.len() + WHICH.len();

/// Largest number of open beginnings of a pair, some 20 MB. Further ones are not followed.
const OPEN: usize = 1 << 16;

/// Nanoseconds that a beginning may be later than its end: more than clocks differ, less than a number lives.
const EARLIEST: i64 = 1_000_000;

/// Statistics of the durations of one pair, in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Statistics {
    pub(crate) count: u64,
    pub(crate) min: i64,
    pub(crate) max: i64,
    pub(crate) total: i128,
    /// Number of ends without a beginning.
    pub(crate) unbegun: u64,
    /// Number of beginnings without an end.
    pub(crate) open: u64,
}

impl Statistics {
    /// Adds a duration. With two clocks a short one may come out slightly negative.
    fn add(&mut self, took: i64) {
        let took = took.max(0);
        (self.min, self.max) = if self.count == 0 { (took, took) } else { (self.min.min(took), self.max.max(took)) };
        self.count += 1;
        self.total += i128::from(took);
    }

    pub(crate) fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.total as f64 / self.count as f64 }
    }
}

/// Values of the elements that identify the events of a pair; 0 if there are fewer.
type Key = [u64; VALUES];

pub(crate) struct Pair {
    name: String,
    begin: usize,
    end: usize,
    /// Indexes of the same elements in both types.
    numbers: Vec<(usize, usize)>,
    who: Vec<(usize, usize)>,
    which: Vec<(usize, usize)>,
    /// Element whose values have separate statistics.
    apart: Option<(usize, usize)>,
    /// Times of beginnings; none is empty.
    open: HashMap<Key, VecDeque<i64>>,
    waiting: usize,
    /// Ends with a number whose beginning has not been seen: events of different sources are not ordered.
    early: HashMap<Key, i64>,
    found: BTreeMap<Option<u64>, Statistics>,
}

/// Returns all pairs of the types that are logged.
pub(crate) fn among(types: &[EventType]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (begin, from) in types.iter().enumerate() {
        for (prefix, suffix, called) in ENDINGS {
            let end = from.name.strip_suffix(prefix).map(|stem| format!("{stem}{suffix}"));
            if let Some(end) = end.and_then(|name| types.iter().position(|to| to.name == name)) {
                let both = || format!("{} - {}", short(&from.name), short(&types[end].name));
                pairs.push(Pair::new(called.map_or_else(both, str::to_owned), types, begin, end));
            }
        }
    }
    pairs
}

impl Pair {
    fn new(name: String, types: &[EventType], begin: usize, end: usize) -> Pair {
        let both = |names: &[&str]| -> Vec<(usize, usize)> {
            let places = |name: &&str| Some((types[begin].element(name)?, types[end].element(name)?));
            names.iter().filter_map(places).collect()
        };
        let (numbers, who, which) = (both(&NUMBERS), both(&WHO), both(&WHICH));
        let apart = both(&["direction"]).pop();
        let (open, early, found) = (HashMap::new(), HashMap::new(), BTreeMap::new());
        Pair { name, begin, end, numbers, who, which, apart, open, waiting: 0, early, found }
    }

    /// Returns the statistics with their names; at least one.
    pub(crate) fn found(&self) -> Vec<(String, Statistics)> {
        if self.found.is_empty() {
            return vec![(self.name.clone(), Statistics::default())];
        }
        let named = |(apart, statistics): (&Option<u64>, &Statistics)| match apart {
            Some(value) => (format!("{} direction={value}", self.name), statistics.clone()),
            None => (self.name.clone(), statistics.clone()),
        };
        self.found.iter().map(named).collect()
    }

    /// Takes an event of type `kind` at a time of the common clock.
    pub(crate) fn see(&mut self, kind: usize, values: &Values, time: i64) {
        let is_begin = kind == self.begin;
        if !is_begin && kind != self.end {
            return;
        }
        let key = self.key(values, is_begin);
        let apart = self.apart.map(|(begin, end)| values[if is_begin { begin } else { end }]);
        let found = self.found.entry(apart).or_default();
        if is_begin {
            if let Some(end) = self.early.remove(&key).filter(|end| time - end < EARLIEST) {
                found.unbegun -= 1;
                found.add(end - time);
            } else if self.waiting < OPEN {
                self.waiting += 1;
                found.open += 1;
                self.open.entry(key).or_default().push_back(time);
            }
            return;
        }
        let begun = self.open.get_mut(&key);
        let Some((first, left)) = begun.and_then(|begun| Some((begun.pop_front()?, begun.len()))) else {
            found.unbegun += 1;
            if is_numbered(&key, self.numbers.len()) && self.early.len() < OPEN {
                self.early.insert(key, time);
            }
            return;
        };
        if left == 0 {
            self.open.remove(&key);
        }
        self.waiting -= 1;
        found.open -= 1;
        found.add(time - first);
    }

    /// Removes open beginnings without a number; they still count as open.
    pub(crate) fn forget_unnumbered(&mut self) {
        let numbers = self.numbers.len();
        self.open.retain(|key, _| is_numbered(key, numbers));
        self.waiting = self.open.values().map(VecDeque::len).sum();
    }

    fn key(&self, values: &Values, is_begin: bool) -> Key {
        let value = |&(begin, end): &(usize, usize)| values[if is_begin { begin } else { end }];
        let numbered = self.numbers.iter().any(|number| value(number) != 0);
        let which = if numbered { &[] } else { &self.which[..] };
        let mut key = [0; VALUES];
        for (place, element) in key.iter_mut().zip(self.numbers.iter().chain(&self.who).chain(which)) {
            *place = value(element);
        }
        key
    }
}

fn is_numbered(key: &Key, numbers: usize) -> bool {
    key[..numbers].iter().any(|number| *number != 0)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use ibex_trace::{Element, ElementKind};

    pub(crate) fn made(name: &str, elements: &[&str]) -> EventType {
        let elements = elements.iter().map(|name| Element::new(name, ElementKind::U64, "")).collect();
        EventType { name: name.to_owned(), description: String::new(), elements }
    }

    fn pairs() -> Vec<Pair> {
        let elements = ["message", "tag", "peer"];
        among(&["x_begin", "x_end", "y_started", "y_complete", "x_continue", "z_end"].map(|name| made(name, &elements)))
    }

    fn values<const N: usize>(first: [u64; N]) -> Values {
        std::array::from_fn(|element| first.get(element).copied().unwrap_or(0))
    }

    #[test]
    fn among_finds_pairs_by_their_names() {
        let names: Vec<String> = pairs().iter().map(|pair| pair.found()[0].0.clone()).collect();
        assert_eq!(names, ["x_begin - x_end", "y_started - y_complete"]);
    }

    #[test]
    fn the_number_of_an_entry_joins_its_insertion_and_removal() {
        let names = ["q_req_insert_in_posted_q", "q_req_remove_from_posted_q", "q_req_complete", "q_req_notify"];
        let types = names.map(|name| made(name, &["id", "operation"]));
        let mut pairs = among(&types);
        for (kind, id, time) in [(0, 7, 0), (0, 8, 10), (1, 8, 40), (2, 8, 50), (1, 7, 100), (3, 8, 60)] {
            for pair in &mut pairs {
                pair.see(kind, &values([id, 1]), time);
            }
        }
        let found: Vec<_> = pairs.iter().flat_map(Pair::found).collect();
        let waits = Statistics { count: 2, min: 30, max: 100, total: 130, unbegun: 0, open: 0 };
        let asked = Statistics { count: 1, min: 10, max: 10, total: 10, unbegun: 0, open: 0 };
        assert_eq!(found[0], ("receives in the posted queue".to_owned(), waits));
        assert_eq!(found[1], ("done, not asked for".to_owned(), asked));
    }

    #[test]
    fn the_number_of_a_message_joins_its_begin_and_its_end() {
        let pair = &mut pairs()[0];
        for (kind, message, tag, time) in
            [(0, 1, 5, 100), (0, 2, 5, 200), (4, 1, 5, 250), (1, 2, 6, 300), (1, 1, 5, 700)]
        {
            pair.see(kind, &values([message, tag, 0]), time);
        }
        let wanted = Statistics { count: 2, min: 100, max: 600, total: 700, unbegun: 0, open: 0 };
        let (_, found) = &pair.found()[0];
        assert_eq!((found, pair.waiting, pair.open.len()), (&wanted, 0, 0));
        assert!((found.mean() - 350.0).abs() < 1e-9);
    }

    #[test]
    fn without_a_number_tag_and_peer_join_a_pair_and_the_oldest_begin_ends_first() {
        let pair = &mut pairs()[0];
        for (kind, tag, peer, time) in
            [(0, 5, 1, 0), (0, 5, 1, 10), (0, 5, 2, 20), (1, 5, 1, 100), (1, 6, 1, 100), (1, 5, 2, 100)]
        {
            pair.see(kind, &values([0, tag, peer]), time);
        }
        let wanted = Statistics { count: 2, min: 80, max: 100, total: 180, unbegun: 1, open: 1 };
        assert_eq!(pair.found()[0].1, wanted);
    }

    #[test]
    fn a_begin_before_a_stop_finds_its_end_after_it_only_by_number() {
        let pair = &mut pairs()[0];
        pair.see(0, &values([7, 5, 1]), 0);
        pair.see(0, &values([0, 5, 1]), 10);
        pair.forget_unnumbered();
        assert_eq!((pair.waiting, pair.open.len()), (1, 1));
        for (message, time) in [(0, 100), (7, 200)] {
            pair.see(1, &values([message, 5, 1]), time);
        }
        let wanted = Statistics { count: 1, min: 200, max: 200, total: 200, unbegun: 1, open: 1 };
        assert_eq!(pair.found()[0].1, wanted);
    }

    #[test]
    fn an_end_that_is_delivered_before_its_beginning_belongs_to_it_by_its_number() {
        let pair = &mut pairs()[0];
        for (kind, message, time) in [(1, 7, 130), (0, 7, 100), (1, 8, 100), (0, 8, 110), (1, 0, 200), (0, 0, 190)] {
            pair.see(kind, &values([message, 5, 1]), time);
        }
        // An adapter's clock stamps one end slightly early; the end without a number may belong to any beginning.
        let wanted = Statistics { count: 2, min: 0, max: 30, total: 30, unbegun: 1, open: 1 };
        assert_eq!(pair.found()[0].1, wanted);
        // A number that is reused, long after an end whose beginning was lost.
        pair.see(1, &values([9, 5, 1]), 300);
        pair.see(0, &values([9, 5, 1]), 300 + EARLIEST);
        assert_eq!((pair.found()[0].1.open, pair.found()[0].1.unbegun), (2, 2));
    }

    #[test]
    fn a_pair_follows_a_bounded_number_of_open_begins() {
        let pair = &mut pairs()[0];
        let all = OPEN as u64 + 3;
        (1..=all).for_each(|message| pair.see(0, &values([message, 0, 0]), 0));
        assert_eq!((pair.waiting, pair.open.len()), (OPEN, OPEN));
        (1..=all).for_each(|message| pair.see(1, &values([message, 0, 0]), 1));
        let (_, found) = &pair.found()[0];
        assert_eq!((found.count, found.unbegun, found.open), (OPEN as u64, 3, 0));
    }

    #[test]
    fn each_direction_has_its_own_statistics() {
        let types = ["x_begin", "x_end"].map(|name| made(name, &["message", "direction"]));
        let pair = &mut among(&types)[0];
        for (kind, message, direction, time) in [(0, 1, 0, 0), (0, 1, 1, 5), (1, 1, 0, 100), (0, 2, 1, 200)] {
            pair.see(kind, &values([message, direction]), time);
        }
        let found: Vec<(String, u64, u64)> =
            pair.found().into_iter().map(|(name, found)| (name, found.count, found.open)).collect();
        let wanted =
            [("x_begin - x_end direction=0".to_owned(), 1, 0), ("x_begin - x_end direction=1".to_owned(), 0, 2)];
        assert_eq!(found, wanted);
    }
}
