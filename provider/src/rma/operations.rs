// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operations of an endpoint that have not ended, by number. Grade: pending. Threads: the one that has entered the
//! endpoint. Tests: below.

use ibex::transport::EndpointId;

use super::End;
use super::local::Local;
use super::notice::Notice;
use super::watch::Watched;
use crate::cq::Failure;

/// An operation with a peer.
pub(crate) struct Operation {
    /// Flags of its completion.
    pub(crate) flags: u64,
    pub(crate) end: End,
    pub(crate) to: EndpointId,
    /// Requests at the port that have not ended, and answers that have not come.
    pub(crate) posted: u32,
    /// Why a request failed: the first reason.
    pub(crate) failure: Option<Failure<'static>>,
    pub(crate) local: Local,
    /// What the peer is told once it has succeeded.
    pub(crate) notice: Option<Box<Notice>>,
    /// What its events say, while a tool listens.
    pub(crate) watched: Option<Box<Watched>>,
}

#[derive(Default)]
pub(crate) struct Operations {
    places: Vec<Option<Operation>>,
    free: Vec<u32>,
}

impl Operations {
    /// Returns the number of the operation that is put next.
    pub(crate) fn next(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.places.len() as u32)
    }

    /// Returns the number behind all that are in use.
    pub(crate) fn next_new(&self) -> u32 {
        self.places.len() as u32
    }

    pub(crate) fn put(&mut self, number: u32, operation: Operation) {
        match self.free.pop() {
            Some(free) => self.places[free as usize] = Some(operation),
            None => self.places.push(Some(operation)),
        }
        debug_assert!(self.places[number as usize].is_some(), "`next` has given it");
    }

    /// Notes the end of a request. Returns the operation if it was the last one.
    pub(crate) fn ended(&mut self, number: u32, failure: Option<Failure<'static>>) -> Option<Operation> {
        let place = self.places.get_mut(number as usize)?;
        let operation = place.as_mut()?;
        operation.failure = operation.failure.or(failure);
        operation.posted -= 1;
        if operation.posted > 0 {
            return None;
        }
        self.free.push(number);
        place.take()
    }

    pub(crate) fn get(&mut self, number: u32) -> Option<&mut Operation> {
        self.places.get_mut(number as usize)?.as_mut()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Operation> {
        self.places.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rma::{LOST, REFUSED};

    fn operation(context: usize, posted: u32) -> Operation {
        let end = End { context, is_reported: true };
        Operation {
            flags: 0,
            end,
            to: EndpointId::from_index(0),
            posted,
            failure: None,
            local: Local::None,
            notice: None,
            watched: None,
        }
    }

    #[test]
    fn an_operation_ends_with_its_last_request_and_its_first_reason_and_its_number_serves_again() {
        let mut operations = Operations::default();
        for (number, posted) in [(0, 1), (1, 3), (2, 1)] {
            assert_eq!(operations.next(), number);
            operations.put(number, operation(number as usize, posted));
        }
        assert!(operations.ended(1, None).is_none());
        assert!(operations.ended(1, Some(REFUSED)).is_none());
        let ended = operations.ended(1, Some(LOST)).expect("it was the last");
        assert_eq!((ended.end.context, ended.failure), (1, Some(REFUSED)));
        assert!(operations.ended(1, None).is_none() && operations.ended(7, None).is_none(), "there is no such one");
        assert_eq!(operations.next(), 1);
        operations.put(1, operation(9, 1));
        assert_eq!(operations.next(), 3);
        assert_eq!(operations.all().map(|operation| operation.end.context).collect::<Vec<_>>(), [0, 9, 2]);
    }
}
