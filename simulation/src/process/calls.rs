// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program calls: sends, receives, probes and cancels. Called by `world`. Grade: test. Threads: one.

use ibex::messenger::header::{EAGER_SIZE, EagerSender};
use ibex::messenger::host::{Communicators as _, Data as _, Process as _};
use ibex::messenger::matching::{MessageHandle, Pattern};
use ibex::messenger::rails::routes;
use ibex::messenger::receive::probe::{self, Found};
use ibex::messenger::receive::search::{self, Posting};
use ibex::messenger::request::{Core, Mode, Outcome, Role, Transfer};
use ibex::messenger::route::Route;
use ibex::messenger::send;
use ibex::transport::Sent;

use super::request::Request;
use super::{Communicator, Data, Ended, Handle, Process, Shared};

/// The communicator, source and tag of a receive or probe; the wildcards are those of `matching`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) context: u32,
    pub(crate) source: i32,
    pub(crate) tag: i32,
}

impl Process {
    /// Starts a send with this number. `None`: it has ended, and its data may be used again.
    pub(crate) fn send(
        &mut self,
        number: usize,
        (to, context, tag): (u32, u32, i32),
        mode: Mode,
        (bytes, has_gaps): (&[u8], bool),
    ) -> Option<Handle> {
        self.add_context(context);
        let route = self.route(to);
        if mode == Mode::Standard && !has_gaps && self.sends_at_once(route, (to, context, tag), bytes) {
            return None;
        }
        let data = Data::new(&self.memory, bytes, bytes.len(), has_gaps);
        let core =
            Core { role: Role::Send(mode), peer: to as i32, tag, data, posted: 0, route, transfer: Transfer::None };
        let send = self.requests.add(Request { core, number, context, outcome: None, is_finished: false });
        let shared = self.shared();
        send::begin(&*shared, self, send, route);
        Some(send)
    }

    /// Sends a short message inside the work request, without a request of the messenger. False: not now.
    fn sends_at_once(&mut self, route: Route, (to, context, tag): (u32, u32, i32), bytes: &[u8]) -> bool {
        let is_short = bytes.len() + EAGER_SIZE <= self.settings.sizes.inline as usize;
        if route == Route::LOOPBACK || !is_short || !self.with_context(context).open.contains(&(to as i32)) {
            return false;
        }
        self.may_send_whole(to as i32);
        let shared = self.shared();
        let home = routes::home(&*shared, self, route);
        let header = EagerSender::new(context, self.rank as i32).header(tag);
        let mut port = shared.port(home.rail());
        let is_posted = port.send_inline(home.to(), Shared::TAG, header[..].into(), bytes.into()) == Ok(Sent::Posted);
        if is_posted && shared.is_multi_rail() {
            routes::note(&mut port, home, true);
        }
        is_posted
    }

    /// Posts a receive with this number and room for so many bytes.
    pub(crate) fn receive(&mut self, number: usize, wanted: Wanted, (room, has_gaps): (usize, bool)) -> Handle {
        self.add_context(wanted.context);
        let receive = self.begin_receive(number, wanted, (room, has_gaps));
        let shared = self.shared();
        if let Posting::Waits(name) = search::post(&*shared, self, receive, Pattern::new(wanted.source, wanted.tag)) {
            self.requests.get(receive).core.posted = name;
        }
        receive
    }

    fn begin_receive(&mut self, number: usize, wanted: Wanted, (room, has_gaps): (usize, bool)) -> Handle {
        let Wanted { context, source, tag } = wanted;
        let data = Data::new(&self.memory, &[], room, has_gaps);
        let route = Route::UNKNOWN;
        let core = Core { role: Role::Receive, peer: source, tag, data, posted: 0, route, transfer: Transfer::None };
        self.requests.add(Request { core, number, context, outcome: None, is_finished: false })
    }

    /// Looks for a message. `takes`: takes it out, for [`Self::receive_probed`].
    pub(crate) fn probe(&mut self, wanted: Wanted, takes: bool) -> Option<Found> {
        self.add_context(wanted.context);
        let shared = self.shared();
        probe::probe(&*shared, self, wanted.context, (wanted.source, wanted.tag), takes)
    }

    /// Receives a message that a probe took out.
    pub(crate) fn receive_probed(
        &mut self,
        number: usize,
        wanted: Wanted,
        message: MessageHandle,
        room: (usize, bool),
    ) -> Handle {
        let receive = self.begin_receive(number, wanted, room);
        let shared = self.shared();
        probe::receive(&*shared, self, receive, message);
        receive
    }

    /// Cancels a receive. Returns whether it had not matched a message; then it ends.
    pub(crate) fn cancel(&mut self, receive: Handle) -> bool {
        let request = self.requests.get(receive);
        let (context, posted) = (request.context, request.core.posted);
        let (queues, lengths) = self.queues(context);
        let is_cancelled = queues.cancel(lengths, posted, receive);
        if is_cancelled {
            self.requests.get(receive).is_finished = true;
            self.finished.push(receive);
        }
        is_cancelled
    }

    /// Adds a communicator unless it is there, and delivers the messages that came before.
    pub(crate) fn add_context(&mut self, context: u32) {
        let Some(early) = self.messenger.contexts.add(context, context) else { return };
        self.communicators.insert(context, Communicator::default());
        let shared = self.shared();
        search::deliver_early(&*shared, self, context, early);
    }

    /// Returns the communicator with this context number.
    pub(super) fn with_context(&mut self, context: u32) -> &mut Communicator {
        self.communicators.get_mut(&context).expect("a communicator is added before it is used")
    }

    /// Takes the requests that have ended since the last call.
    pub(crate) fn take_ended(&mut self) -> Vec<Ended> {
        let finished = std::mem::take(&mut self.finished);
        let end = |handle| {
            let Request { core, number, outcome, is_finished, .. } = self.requests.remove(handle);
            assert!(is_finished && matches!(core.transfer, Transfer::None), "a request ends after its transfer");
            Ended { number, outcome, bytes: core.data.free() }
        };
        finished.into_iter().map(end).collect()
    }

    /// Returns what a receive that has not ended has matched.
    pub(crate) fn matched(&mut self, receive: Handle) -> Option<Outcome> {
        self.requests.get(receive).outcome
    }

    /// Describes a request that has not ended, for a failure.
    pub(crate) fn describe_request(&mut self, handle: Handle) -> String {
        let core = &self.requests.get(handle).core;
        let how = match &core.transfer {
            Transfer::None => "no transfer".to_owned(),
            Transfer::Unanswered { registered, counted, .. } => {
                format!("unanswered, registered {registered:?}, counted {counted}")
            }
            Transfer::Sending(sending) => format!("{sending:?}"),
            Transfer::Reading(reads) => format!("reading, {:?}", reads.stripes),
            Transfer::SingleCopy(..) => "a single copy".to_owned(),
            Transfer::Reassembly(reassembly) => format!("{reassembly:?}"),
        };
        format!("{:?} of {} bytes, tag {}: {how}", core.role, core.data.length(), core.tag)
    }
}
