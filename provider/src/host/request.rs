// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests of an endpoint: operations from their call until their completion is reported.
//!
//! Grade: hot. Threads: the one that has entered the endpoint. Tests: `hw-tests`.

use ibex::messenger::events::Watched;
use ibex::messenger::matching::{FiTag, Tagged};
use ibex::messenger::receive::queues::FIRST;
use ibex::messenger::request::{self, Role, Transfer};
use ibex::messenger::route::Route;

use super::data::Data;
use super::{Kind, State};

pub(crate) type Core = request::Core<State>;
pub(super) type Outcome = request::Outcome<Tagged>;

/// Names a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(pub(super) u32);

/// What the completion of an operation says, besides its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// The program's context of the operation, an address.
    pub(crate) context: usize,
    /// Tagged or not.
    pub(crate) kind: Kind,
    /// Whether a successful completion is written.
    pub(crate) is_reported: bool,
    pub(crate) hears: Hears,
}

impl Call {
    /// Whether a successful end is one completion, and no more.
    #[inline(always)]
    pub(crate) fn is_plain(self) -> bool {
        self.is_reported && self.hears == Hears::Queue
    }
}

/// Who hears of the end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hears {
    /// Its queue and its counters.
    All,
    /// Its queue: no counter counts it, or it is a search, which receives nothing.
    Queue,
    /// Nobody: it is the provider's own.
    Nobody,
}

pub(crate) struct Request {
    pub(crate) core: Core,
    pub(super) call: Call,
    /// What a receive has matched.
    pub(super) outcome: Option<Outcome>,
    /// The buffer for several messages whose receive this is.
    pub(super) buffer: Option<usize>,
    /// Whether it is a receive whose end, if it succeeds, is one completion of its queue, and no more.
    pub(super) is_plain: bool,
    is_active: bool,
    /// The next free request, of one that is free.
    next: Handle,
}

/// The requests. One that is given back serves again, with its memory.
pub(crate) struct Requests {
    all: Vec<Request>,
    /// The request that was given back last, or the one that [`Self::add`] makes next.
    free: Handle,
}

impl Default for Requests {
    fn default() -> Self {
        Requests { all: Vec::new(), free: Handle(0) }
    }
}

impl Requests {
    /// Takes a request for this operation, which has no data yet.
    #[inline(always)]
    pub(super) fn take(&mut self, role: Role, (peer, tag): (u64, FiTag), call: Call) -> (Handle, &mut Request) {
        let taken = self.free;
        if taken.0 as usize >= self.all.len() {
            self.add();
        }
        let request = &mut self.all[taken.0 as usize];
        self.free = request.next;
        request.core.role = role;
        request.core.peer = peer;
        request.core.tag = tag;
        request.core.posted = FIRST;
        request.core.route = Route::UNKNOWN;
        request.core.watched = Watched::NOTHING;
        request.call = call;
        request.outcome = None;
        request.buffer = None;
        request.is_plain = role == Role::Receive && call.is_plain();
        request.is_active = true;
        (taken, request)
    }

    /// Adds a request that is not in use.
    #[cold]
    #[inline(never)]
    fn add(&mut self) {
        let core = Core {
            role: Role::Receive,
            peer: 0,
            tag: FiTag { tag: 0, ignore: 0, data: None },
            data: Data::NONE,
            posted: 0,
            route: Route::UNKNOWN,
            transfer: Transfer::None,
            watched: Watched::NOTHING,
        };
        let call = Call { context: 0, kind: Kind::Message, is_reported: false, hears: Hears::Nobody };
        let next = Handle(self.all.len() as u32 + 1);
        self.all.push(Request { core, call, outcome: None, buffer: None, is_plain: false, is_active: false, next });
    }

    #[inline(always)]
    pub(super) fn get(&mut self, request: Handle) -> &mut Request {
        &mut self.all[request.0 as usize]
    }

    /// Copies the data of a send that has not ended, because the program reuses their memory.
    pub(super) fn copy_data(&mut self, send: Handle) {
        let Request { core, is_active: true, .. } = self.get(send) else { return };
        core.data = core.data.copied();
    }

    /// Returns two requests.
    pub(super) fn pair(&mut self, of: [Handle; 2]) -> [&mut Request; 2] {
        self.all.get_disjoint_mut(of.map(|request| request.0 as usize)).expect("two requests")
    }

    /// Gives a request back, to which nothing refers any more.
    #[inline(always)]
    pub(super) fn give_back(&mut self, request: Handle) {
        let next = self.free;
        let known = self.get(request);
        debug_assert!(known.is_active && matches!(known.core.transfer, Transfer::None), "its transfer has ended");
        known.is_active = false;
        known.next = next;
        known.core.data.free();
        self.free = request;
    }

    /// Returns the requests in use.
    pub(crate) fn active(&self) -> impl Iterator<Item = (Handle, &Request)> {
        let all = self.all.iter().enumerate();
        all.filter(|(_, request)| request.is_active).map(|(index, request)| (Handle(index as u32), request))
    }
}
