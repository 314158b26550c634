// SPDX-License-Identifier: MIT OR Apache-2.0
//! The posted requests of a port whose tokens must come back: one slab, and a list through it for each connection. Used
//! by `tx`: pushed when posted, popped when completed. Grade: hot: a push or a pop touches one 16-byte entry; it
//! allocates only when more requests are in flight than ever before. An inline send without a token takes no entry.
//! Tests: below.

use crate::transport::completion::Token;
use crate::transport::work_request::is_done;

const NONE: u32 = u32::MAX;

/// The requests of one connection, oldest first; their entries are in the port's [`Posted`].
#[derive(Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
}

impl Default for List {
    fn default() -> Self {
        List { head: NONE, tail: NONE }
    }
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    token: Token,
    sequence: u32,
    next: u32,
}

/// The entries of all connections, and the free ones.
#[derive(Debug)]
pub(super) struct Posted {
    entries: Vec<Entry>,
    free: u32,
}

impl Posted {
    /// Makes a slab that holds `entries` requests before it allocates again.
    pub(super) fn with_capacity(entries: usize) -> Self {
        Posted { entries: Vec::with_capacity(entries), free: NONE }
    }

    /// Notes the token of the request numbered `sequence`.
    #[inline]
    pub(super) fn push(&mut self, list: &mut List, sequence: u32, token: Token) {
        let entry = Entry { token, sequence, next: NONE };
        let index = match self.entries.get_mut(self.free as usize) {
            Some(place) => {
                let index = self.free;
                self.free = place.next;
                *place = entry;
                index
            }
            None => self.grow(entry),
        };
        if list.head == NONE {
            list.head = index;
        } else if let Some(youngest) = self.entries.get_mut(list.tail as usize) {
            youngest.next = index;
        }
        list.tail = index;
    }

    #[cold]
    fn grow(&mut self, entry: Entry) -> u32 {
        self.entries.push(entry);
        (self.entries.len() - 1) as u32
    }

    /// Removes the oldest request, if it is numbered `through` or before; returns its number and token.
    #[inline]
    pub(super) fn pop_through(&mut self, list: &mut List, through: u32) -> Option<(u32, Token)> {
        let entry = self.entries.get_mut(list.head as usize)?;
        if !is_done(entry.sequence, through) {
            return None;
        }
        let next = std::mem::replace(&mut entry.next, self.free);
        self.free = std::mem::replace(&mut list.head, next);
        Some((entry.sequence, entry.token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(posted: &mut Posted, list: &mut List, through: u32) -> Vec<u64> {
        std::iter::from_fn(|| posted.pop_through(list, through)).map(|(_, token)| token.0).collect()
    }

    #[test]
    fn tokens_come_back_in_order_up_to_the_completed_one() {
        let (mut posted, mut list) = (Posted::with_capacity(4), List::default());
        for (sequence, token) in [(1, 10), (3, 30), (4, 40)] {
            posted.push(&mut list, sequence, Token(token));
        }
        assert_eq!(tokens(&mut posted, &mut list, 0), [0; 0]);
        assert_eq!(tokens(&mut posted, &mut list, 3), [10, 30]);
        posted.push(&mut list, 5, Token(50));
        assert_eq!(tokens(&mut posted, &mut list, 9), [40, 50]);
    }

    #[test]
    fn connections_reuse_each_others_entries() {
        let mut posted = Posted::with_capacity(0);
        let (mut a, mut b) = (List::default(), List::default());
        for round in 0..100 {
            posted.push(&mut a, round, Token(1));
            posted.push(&mut b, round, Token(2));
            assert_eq!(tokens(&mut posted, &mut a, round), [1]);
            assert_eq!(tokens(&mut posted, &mut b, round), [2]);
        }
        assert_eq!(posted.entries.len(), 2);
    }
}
