// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of another process that wait for the receiver's poll: a ring of bytes in the region for each queue pair. A
//! message of up to 12 KiB, with a header, goes through it: a copy in, a copy out, and no system call. It is small, to
//! stay in the caches of both sides; a message that does not fit now takes another path (`wire::receive`). Called by:
//! `wire::receive` (`place`, `at`, `fill`), `cq::poll` (`at`, `empty`). Grade: hot. Thread rule: `place` and `fill`
//! under the receiver's `resp.lock`; `empty` by the owner's poll, in the order of arrival, which is that of the
//! completions. Positions count bytes ever put in, and wrap.

use crate::engine::{Fabric, W32, W64};

pub(crate) const MAX_STAGED: u32 = (12 << 10) + 256;
const RING: u32 = 64 << 10;
const LINE: u32 = 64;

/// The ring's offset, the senders' fields and the owner's lie on different cache lines.
#[repr(C, align(64))]
pub(crate) struct Inbox {
    /// Offset of the ring; 0: there is none.
    ring: W64,
    senders: Senders,
    owner: Owner,
}

#[repr(C, align(64))]
struct Senders {
    filled: W32,
    /// `emptied` as last read: senders look again only when the ring seems full.
    emptied_seen: W32,
}

#[repr(C, align(64))]
struct Owner {
    emptied: W32,
}

#[derive(Clone, Copy)]
pub(crate) struct Stretch {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Inbox {
    /// Gives it a ring. If there is no memory for a ring, the inbox never has room.
    pub(crate) fn begin(&self, fabric: &Fabric) {
        self.clear();
        self.ring.set(fabric.allocate(u64::from(RING)).unwrap_or(0));
    }

    /// Gives the ring back. The caller holds `resp.lock`.
    pub(crate) fn end(&self, fabric: &Fabric) {
        fabric.release(self.ring.swap(0));
    }

    /// Forgets all messages. The caller holds `resp.lock`, or no other thread knows the queue pair.
    pub(crate) fn clear(&self) {
        for word in [&self.senders.filled, &self.senders.emptied_seen, &self.owner.emptied] {
            word.set(0);
        }
    }

    /// Finds room for `len` bytes in one piece, which `fill` takes.
    #[inline]
    pub(crate) fn place(&self, len: u32) -> Option<Stretch> {
        let filled = self.senders.filled.get();
        let need = len.next_multiple_of(LINE);
        let before_end = RING - filled % RING;
        let start = filled.wrapping_add(if before_end < need { before_end } else { 0 });
        let end = start.wrapping_add(need);
        if end.wrapping_sub(self.senders.emptied_seen.get()) > RING {
            self.senders.emptied_seen.set(self.owner.emptied.seen());
            if end.wrapping_sub(self.senders.emptied_seen.get()) > RING {
                return None;
            }
        }
        (self.ring.get() != 0).then_some(Stretch { start, end })
    }

    pub(crate) fn fill(&self, stretch: Stretch) {
        self.senders.filled.set(stretch.end);
    }

    pub(crate) fn at(&self, fabric: &Fabric, stretch: Stretch) -> *mut u8 {
        fabric.region().bytes(self.ring.get() + u64::from(stretch.start % RING))
    }

    /// Frees the stretch, which has been read, and all before it.
    pub(crate) fn empty(&self, stretch: Stretch) {
        self.owner.emptied.publish(stretch.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inbox() -> Inbox {
        let inbox = Inbox {
            ring: W64::default(),
            senders: Senders { filled: W32::default(), emptied_seen: W32::default() },
            owner: Owner { emptied: W32::default() },
        };
        inbox.ring.set(64);
        inbox
    }

    fn put(inbox: &Inbox, len: u32) -> Option<Stretch> {
        inbox.place(len).inspect(|stretch| inbox.fill(*stretch))
    }

    #[test]
    fn a_full_ring_has_no_room_until_it_is_emptied() {
        let inbox = inbox();
        let all: Vec<_> = std::iter::from_fn(|| put(&inbox, 8 << 10)).collect();
        assert_eq!(all.len(), 8);
        inbox.empty(all[0]);
        assert!(put(&inbox, 8 << 10).is_some());
        assert!(put(&inbox, 1).is_none());
        inbox.clear();
        assert!(inbox.place(1).is_some());
        inbox.ring.set(0);
        assert!(inbox.place(1).is_none(), "without a ring there is none");
    }

    #[test]
    fn a_message_lies_in_one_piece_also_where_the_ring_and_its_positions_wrap() {
        let inbox = inbox();
        let start = 0_u32.wrapping_sub(RING);
        for word in [&inbox.senders.filled, &inbox.senders.emptied_seen, &inbox.owner.emptied] {
            word.set(start);
        }
        for len in (0..2000).map(|step| 25 + step * 37 % (MAX_STAGED - 25)) {
            let stretch = put(&inbox, len).expect("it is emptied at once");
            assert!(stretch.start % RING + len <= RING && stretch.end.wrapping_sub(stretch.start) >= len);
            inbox.empty(stretch);
        }
    }
}
