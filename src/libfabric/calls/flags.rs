// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the flags of a call ask for: how a send ends, and whether a receive is a search, the receive of a claimed
//! message, or a buffer for several messages.
//!
//! Called for calls that are not sent or posted plainly. Grade: hot. Threads: the one that has entered the endpoint.
//! Tests: `simulation`, `hw-tests`.

use super::peek::Found;
use super::{DELIVERED, Message, Wanted};
use crate::libfabric::environment::{Data as _, Environment};
use crate::libfabric::request::{Call, Hears};
use crate::libfabric::{Kind, Result, Shared, State, fi};
use crate::messenger::request::Mode;

/// Flags of a search and of what it found.
pub const SEARCH: u64 = fi::FI_PEEK | fi::FI_CLAIM | fi::FI_DISCARD;

impl<E: Environment> State<E> {
    /// Starts a send with these flags.
    ///
    /// # Errors
    /// `FI_EINVAL` if nobody has the address.
    #[inline]
    pub fn send_with(
        &mut self,
        shared: &Shared<E::Adapter>,
        (kind, context): (Kind, usize),
        message: Message,
        data: E::Data,
        flags: u64,
    ) -> Result<()> {
        let mode = match flags & DELIVERED {
            0 => Mode::Standard,
            fi::FI_DELIVERY_COMPLETE => Mode::Delivered,
            _ => Mode::Synchronous,
        };
        let call = self.reports.call(fi::FI_SEND, flags, kind, context);
        self.send(shared, call, message, data, (mode, flags & fi::FI_INJECT != 0))
    }

    /// Starts a send that reports nothing, and whose memory is free at once.
    ///
    /// # Errors
    /// As [`Self::send_with`].
    #[inline]
    pub fn inject(&mut self, shared: &Shared<E::Adapter>, kind: Kind, message: Message, data: E::Data) -> Result<()> {
        let call = Call { is_reported: false, ..self.reports.call(fi::FI_SEND, 0, kind, 0) };
        self.send(shared, call, message, data, (Mode::Standard, true))
    }

    /// Posts a receive, or searches, with these flags. `least`: `FI_OPT_MIN_MULTI_RECV`.
    ///
    /// # Errors
    /// `FI_EINVAL` if nobody has the address, or nothing is claimed; `FI_EBADFLAGS`.
    #[inline]
    pub fn receive_with(
        &mut self,
        shared: &Shared<E::Adapter>,
        (kind, context): (Kind, usize),
        wanted: Wanted,
        data: E::Data,
        (flags, least): (u64, usize),
    ) -> Result<()> {
        let call = self.reports.call(fi::FI_RECV, flags, kind, context);
        if flags & (fi::FI_MULTI_RECV | SEARCH) == 0 {
            return self.receive(shared, call, wanted, data);
        }
        self.receive_specially(shared, call, wanted, data, (flags, least))
    }

    /// Posts a buffer for several messages, or searches.
    #[inline(never)]
    fn receive_specially(
        &mut self,
        shared: &Shared<E::Adapter>,
        mut call: Call,
        wanted: Wanted,
        data: E::Data,
        (flags, least): (u64, usize),
    ) -> Result<()> {
        if flags & (fi::FI_PEEK | fi::FI_DISCARD) != 0 {
            call.hears = Hears::Queue;
        }
        if flags & fi::FI_MULTI_RECV != 0 {
            let buffer = data.piece().ok_or(fi::FI_EINVAL)?;
            if call.kind == Kind::Tagged || flags & SEARCH != 0 {
                return Err(fi::FI_EBADFLAGS);
            }
            return self.receive_several(shared, call, wanted, (buffer, least));
        }
        match flags & SEARCH {
            fi::FI_PEEK => self.peek(shared, call, wanted, Found::Stays),
            fi::FI_CLAIM => self.receive_claimed(shared, call, Some(data)),
            of if of & fi::FI_PEEK == 0 && of & fi::FI_CLAIM != 0 => self.receive_claimed(shared, call, None),
            of if of & fi::FI_DISCARD != 0 && of & fi::FI_PEEK != 0 => {
                self.peek(shared, call, wanted, Found::Discarded)
            }
            of if of & fi::FI_CLAIM != 0 => self.peek(shared, call, wanted, Found::Claimed),
            _ => Err(fi::FI_EINVAL),
        }
    }
}
