// SPDX-License-Identifier: MIT OR Apache-2.0
//! Searches for messages that have arrived (`FI_PEEK`): what is found stays, is claimed for a later receive, or is
//! dropped.
//!
//! Called by `flags.rs`. Grade: pending. Threads: the one that has entered the endpoint. Tests: `simulation`,
//! `hw-tests`.

use crate::messenger::matching::{ADDR_UNSPEC, MessageHandle, Tagged};
use crate::messenger::receive::probe;
use crate::messenger::request::Role;

use super::{Wanted, completion_of};
use crate::libfabric::environment::{Data as _, Environment};
use crate::libfabric::request::{Call, Hears};
use crate::libfabric::{Kind, Result, Shared, State, fi, tag};

/// What happens to the message that a search finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It stays for later receives.
    Stays,
    /// It is claimed: [`State::receive_claimed`] with the same context receives it.
    Claimed,
    /// It is dropped.
    Discarded,
}

impl<E: Environment> State<E> {
    /// Searches the unexpected messages. The completion says what was found, or that nothing was.
    pub(super) fn peek(&mut self, shared: &Shared<E::Adapter>, call: Call, wanted: Wanted, found: Found) -> Result<()> {
        self.progress(shared);
        let of = self.wanted(shared, wanted)?;
        let Some(message) = probe::probe(shared, self, call.kind, of, found != Found::Stays) else {
            self.fail_receive(call, 0, fi::FI_ENOMSG, "no message that matches the search has arrived");
            self.leave(shared);
            return Ok(());
        };
        let Tagged { source, tag, data } = message.envelope;
        let completion = completion_of(call, tag, data, message.length);
        self.complete(call, completion, Some(source));
        match (found, message.message) {
            (Found::Claimed, Some(handle)) => _ = self.claimed.insert(call.context, (handle, completion, source)),
            (Found::Discarded, Some(handle)) => self.drop_message(shared, call.kind, handle),
            _ => {}
        }
        self.leave(shared);
        Ok(())
    }

    /// Receives the message that a search with the same context has claimed. Without `data`, drops it, and reports the
    /// same as the search.
    pub(super) fn receive_claimed(
        &mut self,
        shared: &Shared<E::Adapter>,
        call: Call,
        data: Option<E::Data>,
    ) -> Result<()> {
        let (message, completion, source) = self.claimed.remove(&call.context).ok_or(fi::FI_EINVAL)?;
        let Some(data) = data else {
            self.complete(call, completion, Some(source));
            self.drop_message(shared, call.kind, message);
            return Ok(());
        };
        self.receive_probed(shared, call, message, data);
        Ok(())
    }

    fn receive_probed(&mut self, shared: &Shared<E::Adapter>, call: Call, message: MessageHandle, data: E::Data) {
        let (receive, request) = self.requests.take(Role::Receive, (ADDR_UNSPEC, tag(0, None)), call);
        request.core.data = data;
        probe::receive(shared, self, receive, message);
        self.leave(shared);
    }

    /// Receives no byte of a message, and reports nothing.
    fn drop_message(&mut self, shared: &Shared<E::Adapter>, kind: Kind, message: MessageHandle) {
        self.receive_probed(
            shared,
            Call { context: 0, kind, is_reported: false, hears: Hears::Nobody },
            message,
            E::Data::NONE,
        );
    }
}
