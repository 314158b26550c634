// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests of an endpoint: operations from their call until their completion is reported.
//!
//! Grade: hot. Threads: the one that has entered the endpoint. Tests: `simulation`, `hw-tests`.

use crate::messenger::events::Watched;
use crate::messenger::matching::{FiTag, Tagged};
use crate::messenger::receive::queues::FIRST;
use crate::messenger::request::{self, Role, Transfer};
use crate::messenger::route::Route;

use super::environment::{Data as _, Environment};
use super::{Kind, State};

/// The messenger's record of a request.
pub(super) type Core<E> = request::Core<State<E>>;
/// What a receive has matched.
pub(super) type Outcome = request::Outcome<Tagged>;

/// Names a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(pub u32);

/// What the completion of an operation says, besides its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The program's context of the operation, an address.
    pub context: usize,
    /// Tagged or not.
    pub kind: Kind,
    /// Whether a successful completion is written.
    pub is_reported: bool,
    /// Who hears of its end.
    pub hears: Hears,
}

impl Call {
    /// Whether a successful end is one completion, and no more.
    #[inline(always)]
    pub fn is_plain(self) -> bool {
        self.is_reported && self.hears == Hears::Queue
    }
}

/// Who hears of the end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hears {
    /// Its queue and its counters.
    All,
    /// Its queue: no counter counts it, or it is a search, which receives nothing.
    Queue,
    /// Nobody: it is the provider's own.
    Nobody,
}

/// An operation that has not ended.
pub struct Request<E: Environment> {
    /// The messenger's record.
    pub core: Core<E>,
    /// What its completion says.
    pub call: Call,
    /// What a receive has matched.
    pub outcome: Option<Outcome>,
    /// The buffer for several messages whose receive this is.
    pub buffer: Option<usize>,
    /// Whether it is a receive whose end, if it succeeds, is one completion of its queue, and no more.
    pub is_plain: bool,
    is_active: bool,
    /// The next free request, of one that is free.
    next: Handle,
}

/// The requests. One that is given back serves again, with its memory.
pub struct Requests<E: Environment> {
    all: Vec<Request<E>>,
    /// The request that was given back last, or the one that [`Self::add`] makes next.
    free: Handle,
}

impl<E: Environment> Default for Requests<E> {
    fn default() -> Self {
        Requests { all: Vec::new(), free: Handle(0) }
    }
}

impl<E: Environment> Requests<E> {
    /// Takes a request for this operation, which has no data yet.
    #[inline(always)]
    pub fn take(&mut self, role: Role, (peer, tag): (u64, FiTag), call: Call) -> (Handle, &mut Request<E>) {
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
            data: E::Data::NONE,
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
    /// Returns a request in use.
    pub fn get(&mut self, request: Handle) -> &mut Request<E> {
        &mut self.all[request.0 as usize]
    }

    /// Copies the data of a send that has not ended, because the program reuses their memory.
    pub(super) fn copy_data(&mut self, send: Handle) {
        if let Request { core, is_active: true, .. } = self.get(send)
            && !core.data.is_copied()
        {
            core.data = core.data.copied();
        }
    }

    /// Returns two requests.
    pub(super) fn pair(&mut self, of: [Handle; 2]) -> [&mut Request<E>; 2] {
        self.all.get_disjoint_mut(of.map(|request| request.0 as usize)).expect("two requests")
    }

    /// Gives a request back, to which nothing refers any more.
    #[inline(always)]
    pub fn give_back(&mut self, request: Handle) {
        let next = self.free;
        let known = self.get(request);
        debug_assert!(known.is_active && matches!(known.core.transfer, Transfer::None), "its transfer has ended");
        known.is_active = false;
        known.next = next;
        known.core.data.free();
        self.free = request;
    }

    /// Returns the requests in use.
    pub fn active(&self) -> impl Iterator<Item = (Handle, &Request<E>)> {
        let all = self.all.iter().enumerate();
        all.filter(|(_, request)| request.is_active).map(|(index, request)| (Handle(index as u32), request))
    }
}
