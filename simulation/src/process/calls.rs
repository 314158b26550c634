// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program calls: sends, receives, probes and cancels. Called by `world`. Grade: test. Threads: one.

use ibex::messenger::events::{self, Event, Watched};
use ibex::messenger::header::{EAGER_SIZE, EagerSender};
use ibex::messenger::host::{Communicators as _, Data as _, Process as _, Tools as _};
use ibex::messenger::matching::{ANY_SOURCE, ANY_TAG, MessageHandle, Pattern};
use ibex::messenger::rails::lost::{self, OutlivesPeers as _};
use ibex::messenger::rails::routes;
use ibex::messenger::receive::probe::{self, Found};
use ibex::messenger::receive::search::{self, Posting};
use ibex::messenger::request::{Core, Outcome, Role, Transfer};
use ibex::messenger::route::Route;
use ibex::messenger::send;
use ibex::transport::Sent;

use super::request::Request;
use super::{Data, Ended, Handle, Process, Shared};
use crate::program::Mode;

/// The communicator, source and tag of a receive or probe; the wildcards are those of `matching`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) context: u32,
    pub(crate) source: i32,
    pub(crate) tag: i32,
}

impl Wanted {
    pub(crate) fn new(context: u32, from: Option<u32>, tag: Option<i32>) -> Self {
        Wanted { context, source: from.map_or(ANY_SOURCE, |from| from as i32), tag: tag.unwrap_or(ANY_TAG) }
    }
}

impl Process {
    /// Starts a send with this number; a buffered one has room in the attached buffer. `None`: it has ended, and its
    /// data may be used again.
    pub(crate) fn send(
        &mut self,
        number: usize,
        to: (u32, u32, i32),
        mode: Mode,
        (bytes, has_gaps): (&[u8], bool),
    ) -> Option<Handle> {
        self.add_context(to.1);
        let route = self.route(to.0);
        let is_at_once = matches!(mode, Mode::Standard | Mode::Ready) && !has_gaps && self.paths.is_none();
        if is_at_once && self.sends_at_once(route, to, bytes) {
            return None;
        }
        let send = self.make_send(to, mode, (bytes, has_gaps));
        if mode == Mode::Buffered {
            self.requests.get(send).attached = Some(bytes.len());
        }
        self.start(send, number, bytes);
        Some(send)
    }

    /// Makes a send without starting it.
    pub(crate) fn make_send(
        &mut self,
        (to, context, tag): (u32, u32, i32),
        mode: Mode,
        (bytes, has_gaps): (&[u8], bool),
    ) -> Handle {
        self.add_context(context);
        let data = Data::new(&self.memory, bytes, bytes.len(), has_gaps);
        self.make(Role::Send(mode.of_messenger()), (to as i32, context, tag), data)
    }

    fn make(&mut self, role: Role, (peer, context, tag): (i32, u32, i32), data: Data) -> Handle {
        let watched = Watched::NOTHING;
        let core = Core { role, peer, tag, data, posted: 0, route: Route::UNKNOWN, transfer: Transfer::None, watched };
        let (outcome, is_finished, is_persistent) = (None, true, false);
        self.requests.add(Request { core, number: 0, context, outcome, is_finished, is_persistent, attached: None })
    }

    /// Starts a request with this number. A send has these bytes.
    pub(crate) fn start(&mut self, request: Handle, number: usize, bytes: &[u8]) {
        let known = self.requests.get(request);
        assert!(std::mem::take(&mut known.is_finished), "a request is started while it is not active");
        (known.number, known.outcome) = (number, None);
        known.core.data.refill(bytes);
        let (role, peer, tag) = (known.core.role, known.core.peer, known.core.tag);
        let context = known.context;
        let shared = self.shared();
        if role != Role::Receive {
            let route = self.route(peer as u32);
            self.record_start(request);
            return send::begin(&*shared, self, request, route);
        }
        let pattern = Pattern::new(peer, tag);
        let posting = match self.listeners(context) {
            Some(listeners) => search::post_with_events(&*shared, self, request, pattern, listeners),
            None => search::post(&*shared, self, request, pattern),
        };
        if let Posting::Waits(name) = posting {
            self.requests.get(request).core.posted = name;
            if self.settings.outlives
                && let Some(route) = self.source(&shared, request)
                && shared.port(0).failure(route.to()).is_some()
            {
                lost::note(&*shared, self, route);
            }
        }
    }

    /// Lets a request stay when it ends.
    pub(crate) fn make_persistent(&mut self, request: Handle) {
        self.requests.get(request).is_persistent = true;
    }

    /// Frees a persistent request: at once, or when it ends.
    pub(crate) fn free(&mut self, request: Handle) {
        let known = self.requests.get(request);
        known.is_persistent = false;
        if known.is_finished {
            self.requests.remove(request).core.data.free();
        }
    }

    /// Takes room in the attached buffer. False if there is none.
    pub(crate) fn attach(&mut self, length: usize) -> bool {
        let has_room = self.attached + length <= self.settings.attached;
        self.attached += if has_room { length } else { 0 };
        has_room
    }

    /// Sends a short message inside the work request, without a request of the messenger. False: not now.
    fn sends_at_once(&mut self, route: Route, (to, context, tag): (u32, u32, i32), bytes: &[u8]) -> bool {
        let is_short = bytes.len() + EAGER_SIZE <= self.settings.sizes.inline as usize;
        if route == Route::LOOPBACK || !is_short || !self.with_context(context).open.contains(&(to as i32)) {
            return false;
        }
        self.may_send_whole(to as i32);
        let shared = self.shared();
        let header = EagerSender::new(context, self.rank as i32).header(tag);
        if route.as_local().is_some() {
            let is_sent = self.sends_locally_at_once(to, &header, bytes);
            if is_sent {
                self.tell_sent(route, (to, context, tag), bytes.len());
            }
            return is_sent;
        }
        let home = routes::home(&*shared, self, route);
        let mut port = shared.port(home.rail());
        let is_posted = port.send_inline(home.to(), Shared::TAG, header[..].into(), bytes.into()) == Ok(Sent::Posted);
        if is_posted && shared.is_multi_rail() {
            routes::note(&mut port, home, true);
        }
        drop(port);
        if is_posted {
            self.tell_sent(home, (to, context, tag), bytes.len());
        }
        is_posted
    }

    /// Posts a receive with this number and room for so many bytes.
    pub(crate) fn receive(&mut self, number: usize, wanted: Wanted, room: (usize, bool)) -> Handle {
        let receive = self.make_receive(wanted, room);
        self.start(receive, number, &[]);
        receive
    }

    /// Makes a receive without posting it.
    pub(crate) fn make_receive(&mut self, wanted: Wanted, (room, has_gaps): (usize, bool)) -> Handle {
        let Wanted { context, source, tag } = wanted;
        self.add_context(context);
        let data = Data::new(&self.memory, &[], room, has_gaps);
        self.make(Role::Receive, (source, context, tag), data)
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
        let receive = self.make_receive(wanted, room);
        let known = self.requests.get(receive);
        (known.number, known.is_finished) = (number, false);
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
            for event in [Event::RemovePosted, Event::Cancel, Event::Complete] {
                events::raise(self, receive, event);
            }
            self.end(receive);
        }
        is_cancelled
    }

    /// Ends a request, and gives it back unless it is persistent.
    pub(super) fn end(&mut self, request: Handle) {
        self.end_as(request, false);
    }

    /// [`Self::end`]. `has_failed`: because its peer is lost.
    pub(super) fn end_as(&mut self, request: Handle, has_failed: bool) {
        self.record_end(request);
        let known = self.requests.get(request);
        assert!(!std::mem::replace(&mut known.is_finished, true), "a request ends once");
        assert!(matches!(known.core.transfer, Transfer::None), "a request ends after its transfer");
        let (number, outcome, is_persistent) = (known.number, known.outcome, known.is_persistent);
        self.attached -= known.attached.take().unwrap_or(0);
        let bytes =
            if is_persistent { known.core.data.copied() } else { self.requests.remove(request).core.data.free() };
        self.finished.push(Ended { number, outcome, bytes, has_failed });
    }

    /// Returns the ranks of the lost peers if all their requests have ended.
    pub(crate) fn outlived(&self) -> Option<impl Iterator<Item = u32>> {
        (!self.messenger.rails.lost.is_due()).then(|| self.lost.keys().copied())
    }

    /// Takes the requests that have ended since the last call.
    pub(crate) fn take_ended(&mut self) -> Vec<Ended> {
        if self.settings.outlives && self.messenger.rails.lost.is_due() {
            let shared = self.shared();
            lost::end(&*shared, self);
        }
        if self.freed > 0 {
            self.drop_freed();
        }
        std::mem::take(&mut self.finished)
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
