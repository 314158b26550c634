// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the target of a one-sided operation is told, because its adapter says nothing: remote CQ data, and accesses to
//! regions that count them ([`mr::is_counted`]). A notice is a message of the port. That of a write follows the write by
//! the same queue pair, so the data are in the target's memory when it arrives. That of any other operation is sent when
//! the operation has ended, because an adapter may fetch the data of a read later than it takes a message behind it.
//!
//! ```text
//! byte 0: version, 1   1: access without CQ data: 1 a read, 2 a write, 3 both; 0: CQ data of a write   2-7: 0
//! 8-15: remote CQ data   16-23: number of bytes written   24-: keys, 8 bytes each, of regions that count      little-endian
//! ```
//!
//! Called by `rma`, and for each completion of a poll that is not the messenger's. Grade: pending. Threads: the one
//! that has entered the endpoint, and no port. Tests: below, and `hw-tests/libfabric`.

use std::sync::Arc;

use ibex::messenger::host::{Memory as _, Process as _};
use ibex::messenger::rails::completions::ByRail;
use ibex::messenger::route::Route;
use ibex::transport::adapter::verbs::Verbs;
use ibex::transport::{Completion as Event, EndpointId, Failed, Port, Refused, Token, WhenDiverted};

use super::{ATOMIC, NOTICE, TOKEN};
use crate::cq::Completion;
use crate::host::{Shared, State};
use crate::{atomic, mr, sys};

const VERSION: u64 = 1;

/// Number of no operation, for notices of operations that have ended.
const NONE: u32 = u32::MAX;

/// What the target of an operation is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    /// What the operation does with the regions (`FI_REMOTE_READ`, `FI_REMOTE_WRITE`).
    access: u64,
    /// Remote CQ data, and the number of bytes written.
    data: Option<(u64, usize)>,
    /// Keys of the regions that count accesses, each once.
    keys: Vec<u64>,
}

impl Notice {
    /// Returns what to tell about an operation on the regions with these keys; `None`: nothing.
    pub(crate) fn of(access: u64, data: Option<(u64, usize)>, keys: impl Iterator<Item = u64>) -> Option<Self> {
        let mut counted = Vec::new();
        for key in keys.filter(|key| mr::is_counted(*key)) {
            if !counted.contains(&key) {
                counted.push(key);
            }
        }
        (data.is_some() || !counted.is_empty()).then_some(Notice { access, data, keys: counted })
    }

    fn encode(&self) -> Vec<u8> {
        let access =
            u64::from(self.access & sys::FI_REMOTE_READ != 0) | u64::from(self.access & sys::FI_REMOTE_WRITE != 0) << 1;
        let (kind, data, length) = self.data.map_or((access, 0, 0), |(data, length)| (0, data, length));
        let words = [VERSION | kind << 8, data, length as u64].into_iter().chain(self.keys.iter().copied());
        words.flat_map(u64::to_le_bytes).collect()
    }

    /// Reads a message; `None` if it is none.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks();
        let [kind, data, length, keys @ ..] = words else { return None };
        let [kind, data, length] = [kind, data, length].map(|word| u64::from_le_bytes(*word));
        if !rest.is_empty() || kind & 0xff != VERSION || kind >> 8 > 3 {
            return None;
        }
        let access = match kind >> 8 {
            1 => sys::FI_REMOTE_READ,
            3 => sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE,
            _ => sys::FI_REMOTE_WRITE,
        };
        let data = (kind >> 8 == 0).then_some((data, length as usize));
        Some(Notice { access, data, keys: keys.iter().map(|key| u64::from_le_bytes(*key)).collect() })
    }

    /// Queues it, behind all earlier requests to the peer. `number`: of the operation that awaits its end.
    pub(super) fn post(&self, port: &mut Port<Verbs>, to: EndpointId, number: u32) -> Result<(), Refused> {
        let bytes = self.encode();
        let (length, token) = (bytes.len() as u32, Token(TOKEN << 32 | u64::from(number)));
        port.queue_bytes(to, NOTICE, (Arc::from(bytes), length), token, WhenDiverted::Wait)
    }
}

/// Handles the end of a request that was reported in a batch, which may have failed.
fn ends(state: &mut State, token: Token, failed: Option<Failed>) {
    state.others.ended(token, failed, &state.reports);
    state.has_more |= state.others.is_due();
}

/// Handles a completion of a poll that is not the messenger's.
pub(crate) fn handle(state: &mut State, shared: &Shared, event: &Event) {
    match *event {
        Event::Request { token, outcome, .. } => ends(state, token, outcome.err()),
        Event::Message { ref message, immediate, qp_num, .. } if immediate.tag() == NOTICE => {
            let sender = ByRail { rail: 0, immediate, qp_num }.route(shared).map(Route::bits);
            if let (Some(notice), Some(sender)) = (Notice::decode(state.received(message)), sender) {
                report(state, shared, sender, &notice);
            }
        }
        Event::Message { ref message, immediate, qp_num, .. } if immediate.tag() == ATOMIC => {
            if let Some(sender) = (ByRail { rail: 0, immediate, qp_num }).route(shared) {
                let bytes = state.received(message);
                atomic::handle(state, shared, sender.to(), bytes);
            }
        }
        _ => {}
    }
}

/// Reports a peer's operation: an entry with remote CQ data comes after all earlier messages.
pub(super) fn report(state: &mut State, shared: &Shared, sender: u64, Notice { access, data, keys }: &Notice) {
    match *data {
        Some((data, length)) => {
            state.put_late(shared);
            let flags = sys::FI_RMA | sys::FI_REMOTE_WRITE | sys::FI_REMOTE_CQ_DATA;
            let source = state.address_of(shared, sender);
            state.reports.succeeded(true, Completion { flags, length, data, source, ..Completion::default() });
        }
        None => state.reports.accessed(*access),
    }
    state.others.domain.regions.count(keys, *access);
}

/// Sends the notices of operations that have ended. No port is entered.
pub(crate) fn send(state: &mut State, shared: &Shared) {
    let Some(mut port) = shared.enter_port(0) else { return };
    for (to, notice) in state.others.notices.drain(..) {
        // If the connection has failed, nobody is told.
        _ = notice.post(&mut port, to, NONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes before the keys.
    const SIZE: usize = 24;

    const KEYS: [u64; 2] = [1 << 63 | 5, 1 << 63 | 6];

    #[test]
    fn a_notice_has_its_bytes_and_nothing_else_is_one() {
        let with_data =
            Notice { access: sys::FI_REMOTE_WRITE, data: Some((0x1122_3344_5566_7788, 3)), keys: Vec::new() };
        let bytes = with_data.encode();
        assert_eq!(bytes[..9], [1, 0, 0, 0, 0, 0, 0, 0, 0x88]);
        assert_eq!((bytes[15], bytes[16], bytes[23], bytes.len()), (0x11, 3, 0, SIZE));
        assert_eq!(Notice::decode(&bytes), Some(with_data.clone()));
        let read = Notice { access: sys::FI_REMOTE_READ, data: None, keys: KEYS.to_vec() };
        let bytes = read.encode();
        assert_eq!((bytes[..2].to_vec(), bytes[SIZE], bytes[39], bytes.len()), (vec![1, 1], 5, 0x80, SIZE + 16));
        for access in [sys::FI_REMOTE_READ, sys::FI_REMOTE_WRITE, sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE] {
            let notice = Notice { access, ..read.clone() };
            assert_eq!(Notice::decode(&notice.encode()), Some(notice));
        }
        let both = Notice { keys: KEYS.to_vec(), ..with_data };
        assert_eq!(Notice::decode(&both.encode()), Some(both));
        assert_eq!(Notice::decode(&bytes[..23]), None);
        assert_eq!(Notice::decode(&[bytes.as_slice(), &[0]].concat()), None);
        assert_eq!(Notice::decode(&[2; 24]), None);
        assert_eq!(Notice::decode(&[1; 24]), None, "no such access");
    }

    #[test]
    fn a_target_is_told_of_data_and_of_regions_that_count() {
        let of = |data, keys: &[u64]| Notice::of(sys::FI_REMOTE_WRITE, data, keys.iter().copied());
        assert_eq!(of(None, &[5, 6]), None);
        assert_eq!(of(Some((7, 8)), &[5]).map(|notice| notice.keys), Some(Vec::new()));
        assert_eq!(of(None, &[KEYS[1], 5, KEYS[0], KEYS[1]]).map(|notice| notice.keys), Some(vec![KEYS[1], KEYS[0]]));
    }
}
