// SPDX-License-Identifier: MIT OR Apache-2.0
//! An arrived message, decoded and copied, as the host keeps it until a receive matches it.
//!
//! Made by `receive`, by `search` for whole messages, and by `loopback`. Grade: pending; long messages allocate.
//! Threads: any. Tests: below.

use crate::messenger::flow_control::state::RECORD;
use crate::messenger::header::{Memory, PortKey};
use crate::messenger::request::transfer_id::TransferId;
use crate::messenger::route::Route;

/// A message without its envelope.
#[derive(Debug)]
pub struct Arrived {
    /// Route to its sender; may be [`Route::UNKNOWN`].
    pub from: Route,
    /// Number by which tools know the message; 0 before its first event.
    pub id: u64,
    /// The part that has arrived.
    pub body: Body,
}

/// The arrival of a message, for tools.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Route to its sender; may be [`Route::UNKNOWN`].
    pub from: Route,
    /// Length of the message, bytes.
    pub length: usize,
    /// The message; `None`: an eager one, not copied yet.
    pub message: Option<&'a Arrived>,
}

/// Longest data that is stored without an allocation, bytes.
pub const SHORT: usize = 40;

/// The part of a message that has arrived.
#[derive(Debug)]
pub enum Body {
    /// All the data: its length, and the array that begins with it.
    Short(u8, [u8; SHORT]),
    /// All the data.
    Whole(Box<[u8]>),
    /// All the data. The sender was told that it has arrived.
    Delivered(Box<[u8]>),
    /// All the data. The sender waits until the match is acknowledged.
    Synchronous(Box<[u8]>, TransferId),
    /// The message is announced. The data is in this memory.
    ReadyToSend(TransferId, Memory),
    /// The message is announced with the keys of several ports.
    ReadyToSendKeyed(TransferId, Memory, Box<[PortKey]>),
}

impl Body {
    /// Copies all the data of a message.
    #[inline]
    pub fn copy(bytes: &[u8]) -> Self {
        let mut short = [0; SHORT];
        match short.get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                Body::Short(bytes.len() as u8, short)
            }
            None => Body::Whole(bytes.into()),
        }
    }
}

impl Arrived {
    /// Returns the length of the message, bytes.
    #[inline]
    pub fn length(&self) -> usize {
        match &self.body {
            Body::Short(length, _) => usize::from(*length),
            Body::Whole(bytes) | Body::Delivered(bytes) | Body::Synchronous(bytes, _) => bytes.len(),
            Body::ReadyToSend(_, memory) | Body::ReadyToSendKeyed(_, memory, _) => memory.length() as usize,
        }
    }

    /// Returns the length of the message, and the length of the part that came with its header.
    #[inline]
    pub fn lengths(&self) -> (usize, usize) {
        let all = self.length();
        let is_announced = matches!(self.body, Body::ReadyToSend(..) | Body::ReadyToSendKeyed(..));
        (all, if is_announced { 0 } else { all })
    }

    /// Returns how much memory the message takes, as flow control counts it, bytes.
    #[inline]
    pub fn cost(&self) -> u64 {
        let allocated = match &self.body {
            Body::Whole(bytes) | Body::Delivered(bytes) | Body::Synchronous(bytes, _) => bytes.len(),
            Body::ReadyToSendKeyed(_, _, keys) => size_of_val::<[PortKey]>(keys),
            Body::Short(..) | Body::ReadyToSend(..) => 0,
        };
        RECORD + allocated as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrived_message_fits_a_cache_line() {
        assert!(size_of::<Arrived>() <= 64, "{}", size_of::<Arrived>());
    }
}
