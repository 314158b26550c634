// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remote CQ data of writes: a message of the port, which follows the write by the same queue pair. So the data are in
//! the target's memory when it arrives.
//!
//! ```text
//! byte 0: version, 1   1-7: 0   8-15: remote CQ data   16-23: number of bytes written     little-endian
//! ```
//!
//! Called by `rma`, and for each completion of a poll that is not the messenger's. Grade: pending. Threads: the one
//! that has entered the endpoint, and no port. Tests: below, and `hw-tests/libfabric`.

use ibex::messenger::host::Memory as _;
use ibex::messenger::rails::completions::ByRail;
use ibex::messenger::route::Route;
use ibex::transport::Completion as Event;

use super::{ATOMIC, REMOTE_DATA};
use crate::cq::Completion;
use crate::host::{Shared, State};
use crate::sys;

const SIZE: usize = 24;
const VERSION: u64 = 1;

/// Returns the bytes of the message.
pub(super) fn encode(data: u64, length: usize) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip([VERSION, data, length as u64]) {
        *place = word.to_le_bytes();
    }
    bytes
}

/// Reads a message: the data, and the number of bytes; `None` if it is none.
fn decode(bytes: &[u8]) -> Option<(u64, usize)> {
    let (words, rest) = bytes.as_chunks();
    let [version, data, length] = *words else { return None };
    let is_known = rest.is_empty() && u64::from_le_bytes(version) == VERSION;
    is_known.then_some((u64::from_le_bytes(data), u64::from_le_bytes(length) as usize))
}

impl State {
    /// Handles a completion of a poll that is not the messenger's.
    pub(crate) fn handle_one_sided(&mut self, shared: &Shared, event: &Event) {
        match *event {
            Event::Request { token, outcome, .. } => {
                self.rma.ended(token, outcome.err(), &self.reports);
            }
            Event::Message { ref message, immediate, qp_num, .. } if immediate.tag() == REMOTE_DATA => {
                let sender = ByRail { rail: 0, immediate, qp_num }.route(shared).map(Route::bits);
                if let (Some((data, length)), Some(sender)) = (decode(self.received(message)), sender) {
                    self.report_remote_write(shared, sender, data, length);
                }
            }
            Event::Message { ref message, immediate, qp_num, .. } if immediate.tag() == ATOMIC => {
                if let Some(sender) = (ByRail { rail: 0, immediate, qp_num }).route(shared) {
                    let bytes = self.received(message);
                    self.handle_atomic(shared, sender.to(), bytes);
                }
            }
            _ => {}
        }
    }

    /// Reports a peer's write with remote CQ data, after all earlier messages.
    pub(super) fn report_remote_write(&mut self, shared: &Shared, sender: u64, data: u64, length: usize) {
        self.put_late(shared);
        let (flags, source) =
            (sys::FI_RMA | sys::FI_REMOTE_WRITE | sys::FI_REMOTE_CQ_DATA, self.address_of(shared, sender));
        self.reports.succeeded(true, Completion { flags, length, data, source, ..Completion::default() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_its_bytes_and_nothing_else_is_one() {
        let bytes = encode(0x1122_3344_5566_7788, 3);
        assert_eq!(bytes[..9], [1, 0, 0, 0, 0, 0, 0, 0, 0x88]);
        assert_eq!((bytes[15], bytes[16], bytes[23]), (0x11, 3, 0));
        assert_eq!(decode(&bytes), Some((0x1122_3344_5566_7788, 3)));
        assert_eq!(decode(&bytes[..23]), None);
        assert_eq!(decode(&[bytes.as_slice(), &[0]].concat()), None);
        assert_eq!(decode(&[2; 24]), None);
    }
}
