// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages that are sent while a tool listens.
//!
//! Called by `send` behind the branch of its site, with the peer's name: the port is not entered, as tools' callbacks
//! run in here. Path: behind the branch of a site. Threads: any. Tests: `hw-tests/mpi/events.c`.

use std::cell::Cell;

use engine::events::{self, EagerChosen, EventGroup, HostTimestamp, RendezvousChosen};
use engine::peer::PeerName;

use super::ob1::{self, Header};
use super::show::{choose, show};
use super::stamp;
use super::step::Step;
use super::transfer;

/// Bytes of a message that are looked at.
const LOOKED_AT: usize = ob1::LONGEST;

thread_local! {
    /// When this thread began to post a message.
    static POSTING: Cell<Option<HostTimestamp>> = const { Cell::new(None) };
}

/// This thread begins to post a message.
#[cold]
#[inline(never)]
pub(crate) fn posting() {
    POSTING.set(events::interest().has_messages().then(events::host_timestamp));
}

/// When it did; now, where nobody listened then.
pub(crate) fn posting_began() -> HostTimestamp {
    POSTING.take().unwrap_or_else(events::host_timestamp)
}

/// A message that is being sent.
pub(crate) struct Outgoing {
    moment: HostTimestamp,
    /// What it is of a transfer.
    step: Step,
    protocol: Protocol,
}

/// How the sender of a message has chosen to send it; told with its first piece.
#[derive(Clone, Copy)]
enum Protocol {
    Eager,
    Rendezvous,
    /// It was told before.
    Chosen,
}

impl Outgoing {
    /// To this peer, with a tag that [is of use](transfer::is_of_use); of `length` bytes, of which `readable` may be
    /// read from `start` on; begun at `moment`. `None`: there is nothing to be told. To be made before it is posted, as
    /// another thread may then see its answer, unless it [is whole](ob1::is_whole).
    ///
    /// # Safety
    /// As said of `start`.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn new(
        to: PeerName,
        tag: u8,
        (start, readable): (*const u8, usize),
        length: u64,
        moment: HostTimestamp,
    ) -> Option<Outgoing> {
        let mut bytes = [0; LOOKED_AT];
        let looked_at = readable.min(LOOKED_AT);
        // SAFETY: the caller says that `readable` bytes may be read from `start` on; the local array is no shorter.
        unsafe { start.copy_to_nonoverlapping(bytes.as_mut_ptr(), looked_at) };
        let (step, protocol) = outgoing(to, tag, &bytes[..looked_at], length)?;
        Some(Outgoing { moment, step, protocol })
    }

    /// It is posted.
    #[cold]
    #[inline(never)]
    pub(crate) fn posted(&self) {
        let step = &self.step;
        let mut together = EventGroup::new(events::interest());
        match self.protocol {
            Protocol::Eager => choose::<EagerChosen>(&mut together, step),
            Protocol::Rendezvous => choose::<RendezvousChosen>(&mut together, step),
            Protocol::Chosen => {}
        }
        show(&mut together, step);
        // The last read of a message is told to its sender from the callback of its completion.
        stamp::tell(together, if step.received { step.stamp(stamp::current()) } else { None }, || self.moment);
    }
}

fn outgoing(peer: PeerName, tag: u8, start: &[u8], length: u64) -> Option<(Step, Protocol)> {
    let (header, size) = ob1::header(tag, start)?;
    let bytes = length.saturating_sub(size as u64);
    let step = transfer::step(header, bytes, peer, false, events::activation_epoch())?;
    let protocol = match header {
        Header::Match(_) => Protocol::Eager,
        Header::Rendezvous { .. } | Header::Get { .. } => Protocol::Rendezvous,
        _ => Protocol::Chosen,
    };
    Some((step, protocol))
}
