// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raises the events of requests, messages and searches, for every host: which, when, and in which order.
//!
//! A site first asks the host for the listeners to the communicator ([`Tools::listeners`]), and raises the event where
//! it happens. Tools know a request by a number, from its first event until its owner knows of its end or has freed it
//! ([`Watched::renew`]); a message from its arrival to its match ([`messages`]); and a search while it lasts. No number
//! is used twice. [`transfers`] has the events with the bytes of each step, [`reads`] those of RDMA reads, and
//! [`at_once`] those of a send without a request.
//!
//! Called by the protocols where a step happens, and by the host for the events of its calls. Grade: pending; hot for a
//! watched message. Threads: the one that has entered the messenger. Tests: `messenger/tests`, those of the hosts, and
//! `hw-tests/tools/peruse_requests.c`.
//!
//! [`Tools::listeners`]: super::host::Tools::listeners

use std::hint::cold_path;

use super::host::{Data, Host};
use super::path_taken::{PathTaken, Protocol, Reason, lookup};
use super::request::Role;
use super::route::Route;
use crate::events::{EventGroup, Safety, SourceId};
use transfers::{Bytes, Moved};

pub mod at_once;
pub mod messages;
pub mod reads;
pub mod transfers;

macro_rules! events {
    ($(#[$of_all:meta])* enum Event { $($(#[$of_one:meta])* $name:ident,)* }) => {
        $(#[$of_all])*
        pub enum Event { $($(#[$of_one])* $name,)* }

        impl Event {
            /// All events.
            pub const ALL: [Event; [$(Event::$name),*].len()] = [$(Event::$name),*];
        }
    };
}

events! {
    /// Events of requests, messages and searches, which [`crate::events::TABLE`] describes. The numbers are those of
    /// PERUSE (`peruse.h`) minus 1.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs, reason = "the table has them")]
    #[repr(u8)]
    enum Event {
        Activate,
        MatchUnexpected,
        InsertPosted,
        RemovePosted,
        XferBegin,
        XferEnd,
        Complete,
        Notify,
        Arrived,
        InsertUnexpected,
        RemoveUnexpected,
        MatchPosted,
        SearchPostedBegin,
        SearchPostedEnd,
        SearchUnexpectedBegin,
        SearchUnexpectedEnd,
        XferContinue,
        Cancel,
        Free,
        /// The protocol of a request's message. PERUSE has no such event.
        Protocol,
        /// No PERUSE event. A host whose listeners hear it raises transfers and arrivals.
        Transfer,
    }
}

/// Events of a transfer that were raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raised {
    /// None.
    Nothing,
    /// Its begin.
    Begin,
    /// Its end.
    End,
}

/// What tools know of a request.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    /// Its number; 0 before its first event.
    pub id: u64,
    /// Numbers of the receive and of its message. Valid only if the first equals `id`.
    message: (u64, u64),
    /// Events of its transfer.
    pub raised: Raised,
}

impl Watched {
    /// A request of which tools know nothing.
    pub const NOTHING: Watched = Watched { id: 0, message: (0, 0), raised: Raised::Nothing };

    /// Begins a use of the request, which tools know by this number; 0: they do not know it yet, or any longer.
    #[inline(always)]
    pub fn renew(&mut self, id: u64) {
        (self.id, self.raised) = (id, Raised::Nothing);
    }

    /// Returns the number of the message of a receive; 0: it is not known.
    pub(super) fn message(&self) -> u64 {
        if self.message.0 == self.id { self.message.1 } else { 0 }
    }
}

/// A port's completion, which the messenger handles now.
#[derive(Clone, Copy, Debug)]
pub struct Completed {
    /// Number of the port among those of the process.
    pub port: u8,
    /// The port's source and the adapter's raw timestamp; `None` if the adapter stamps no completions.
    pub stamp: Option<(SourceId, u64)>,
}

/// Safety level of callbacks inside a call of the MPI library.
const SAFETY: Safety = Safety::MpiRestricted;

/// Raises events while the host is entered; callbacks run when it has been left. The timestamp is the adapter's if a
/// completion reported the events, else the present time of the host's clock.
fn stage(group: EventGroup, by: Option<Completed>) {
    match by.and_then(|by| by.stamp) {
        Some((source, stamp)) => group.stage_seen(source, stamp, SAFETY),
        None => group.stage(SAFETY),
    }
}

/// Raises an event of a request.
#[inline(always)]
pub fn raise<H: Host>(host: &mut H, request: H::Handle, event: Event) {
    if let Some(listeners) = host.listeners_of(request) {
        raise_if_wanted(host, listeners, request, event);
    }
}

#[cold]
#[inline(never)]
fn raise_if_wanted<H: Host>(host: &mut H, listeners: H::Listeners, request: H::Handle, event: Event) {
    if H::wants(listeners, event) && !host.is_silent(request) {
        let id = number_of(host, request);
        host.raise(listeners, event, id, request);
    }
}

/// [`raise`], with the listeners of its communicator at hand. Fast if the request has a number.
#[inline(always)]
pub fn raise_to<H: Host>(host: &mut H, listeners: H::Listeners, request: H::Handle, event: Event) {
    let id = host.core(request).watched.id;
    if id == 0 {
        return raise_if_wanted(host, listeners, request, event);
    }
    host.raise(listeners, event, id, request);
}

/// Returns the number by which tools know a request, which gets one if it has none.
#[inline(always)]
pub fn number_of<H: Host>(host: &mut H, request: H::Handle) -> u64 {
    let id = host.core(request).watched.id;
    if id == 0 { introduce(host, request) } else { id }
}

#[cold]
#[inline(never)]
fn introduce<H: Host>(host: &mut H, request: H::Handle) -> u64 {
    let id = host.numbers(1);
    set_number(host, request, id);
    id
}

/// Gives a request a number.
pub fn set_number<H: Host>(host: &mut H, request: H::Handle, id: u64) {
    host.core(request).watched.id = id;
    host.introduce(request);
}

// ---- transfers ------------------------------------------------------------------------------------------------------

/// Whether the event that the first data of a request's message moves was raised.
pub(super) fn has_begun<H: Host>(host: &mut H, request: H::Handle) -> bool {
    host.core(request).watched.raised != Raised::Nothing
}

/// Raises the event that the first data of a request's message is about to be sent or stored, once.
#[inline]
pub(super) fn begins<H: Host>(host: &mut H, request: H::Handle, moved: Moved) {
    begins_by(host, request, moved, |_| None);
}

/// [`begins`], after the path of the data, if `how` returns it. Does nothing for a silent request, whose owner gives it
/// back without resetting it.
#[inline]
fn begins_by<H: Host>(host: &mut H, request: H::Handle, moved: Moved, how: impl FnOnce(&mut H) -> Option<PathTaken>) {
    if !has_begun(host, request) && !host.is_silent(request) {
        host.core(request).watched.raised = Raised::Begin;
        raise_step(host, request, Event::XferBegin, moved, how);
    }
}

/// [`begins`] for a message that is sent whole by this route. If tools listen and the route has no room, raises nothing
/// and returns false: the message pends, so its transfer does not begin.
#[inline]
pub(super) fn begins_whole<H: Host>(process: &H::Process, host: &mut H, send: H::Handle, route: Route) -> bool {
    if has_begun(host, send) || host.is_silent(send) {
        return true;
    }
    if host.listeners_of(send).is_some() && !host.has_room(process, route) {
        return false;
    }
    begins(host, send, Bytes::All.posted());
    true
}

/// Raises the event that data of a request's message has moved, neither the first nor the last.
pub(super) fn continues<H: Host>(host: &mut H, request: H::Handle, moved: Moved) {
    raise_step(host, request, Event::XferContinue, moved, |_| None);
}

/// Raises the event that the adapter has the last data, or that it is stored, once.
#[inline]
pub fn ends<H: Host>(host: &mut H, request: H::Handle, moved: Moved) {
    ends_by(host, request, moved, |_| None);
}

/// [`ends`] for a message that is sent whole, with its path.
#[inline]
pub(super) fn ends_whole<H: Host>(process: &H::Process, host: &mut H, send: H::Handle, moved: Moved) {
    ends_by(host, send, moved, |host| Some(lookup::sent(process, host, send)));
}

#[inline]
fn ends_by<H: Host>(host: &mut H, request: H::Handle, moved: Moved, how: impl FnOnce(&mut H) -> Option<PathTaken>) {
    if host.core(request).watched.raised != Raised::End && !host.is_silent(request) {
        host.core(request).watched.raised = Raised::End;
        raise_step(host, request, Event::XferEnd, moved, how);
    }
}

#[inline(always)]
fn raise_step<H: Host>(
    host: &mut H,
    of: H::Handle,
    event: Event,
    moved: Moved,
    how: impl FnOnce(&mut H) -> Option<PathTaken>,
) {
    if let Some(listeners) = host.listeners_of(of) {
        raise_path_to(host, listeners, of, how);
        raise_if_wanted(host, listeners, of, event);
        transfers::raise_step(host, listeners, of, event, moved);
    }
}

/// [`begins`] or [`ends`] of a whole message to its receive, which is finished next; so nothing else asks which events
/// were raised.
#[inline(always)]
pub fn raise_whole<H: Host>(host: &mut H, listeners: H::Listeners, receive: H::Handle, event: Event, bytes: Bytes) {
    raise_to(host, listeners, receive, event);
    transfers::raise_step(host, listeners, receive, event, bytes.completed());
}

// ---- paths ----------------------------------------------------------------------------------------------------------

/// Raises the event that says by which protocol, and by which port, a request's message goes.
pub(super) fn raise_path<H: Host>(host: &mut H, request: H::Handle, path: PathTaken) {
    if let Some(listeners) = host.listeners_of(request) {
        raise_path_to(host, listeners, request, |_| Some(path));
    }
}

/// [`raise_path`] for data that goes to or comes from the peer of this route, by so many rails.
pub(super) fn raise_path_by<H: Host>(
    process: &H::Process,
    host: &mut H,
    request: H::Handle,
    route: Route,
    how: (Protocol, Reason),
    rails: usize,
) {
    if let Some(listeners) = host.listeners_of(request) {
        let path = |host: &mut H| Some(lookup::by(process, host.home(process, route), how, rails));
        raise_path_to(host, listeners, request, path);
    }
}

/// Raises the event of the path of a request's message, if a tool wants it and `how` returns the path.
#[inline(always)]
fn raise_path_to<H: Host>(
    host: &mut H,
    listeners: H::Listeners,
    of: H::Handle,
    how: impl FnOnce(&mut H) -> Option<PathTaken>,
) {
    if H::wants(listeners, Event::Protocol) && !host.is_silent(of) {
        cold_path();
        let role = host.core(of).role;
        if H::wants_paths(listeners, role)
            && let Some(path) = how(host)
        {
            let length = if role == Role::Receive { host.noted(of).1 } else { host.core(of).data.length() };
            raise_wanted_path(host, listeners, of, length, path);
        }
    }
}

#[cold]
#[inline(never)]
fn raise_wanted_path<H: Host>(
    host: &mut H,
    listeners: H::Listeners,
    request: H::Handle,
    length: usize,
    path: PathTaken,
) {
    number_of(host, request);
    let message = host.core(request).watched.message();
    host.raise_path(listeners, request, (message, length), path);
}
