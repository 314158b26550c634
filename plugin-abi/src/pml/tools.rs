// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tools see of the PML (`engine::messenger::host::Tools`): the events of requests, messages and searches
//! (`watch`), of transfers (`transfers`), and of reads (`reads`). `listening`
//! opens and closes the fast paths when tools start or stop listening. Called by the messenger. Grade: pending;
//! [`Tools::arrives`] and [`Tools::seeks`] are on the path of a watched message. Threads: the one that has entered the
//! PML. Tests: as in `watch`, and `pml/tests/told.rs`.

use engine::flight::{Kind, NO_PORT, NOBODY, record};
use engine::messenger::header::EAGER_SIZE;
use engine::messenger::host::{Bytes, Moved, Ports, Tools};
use engine::messenger::matching::{Envelope, Message};
use engine::messenger::path_taken::{PathTaken, Protocol, Reason, of_message};
use engine::messenger::rails::routes;
use engine::messenger::receive::arrived::{Arrival, Arrived};
use engine::messenger::receive::probe::Found;
use engine::messenger::rendezvous::stripes::Part;
use engine::messenger::route::{Account, Route};
use engine::transport::Failed;

use super::communicator::Communicator;
use super::instance::{Pml, State};
use super::request::{Handle, Told};
use crate::runtime::listeners::{Event, Listeners};
use crate::runtime::watch::{Completed, number, numbers};

pub(super) mod deferred;
pub(super) mod listening;
pub(super) mod reads;
pub(super) mod transfers;
pub(super) mod watch;

/// The envelope of a message of this communicator.
type Of = (&'static Communicator, Envelope);

impl Tools for State {
    type Listeners = &'static Listeners;
    type Completed = Option<Completed>;

    fn completed(&mut self) -> Option<Completed> {
        transfers::completion()
    }

    fn set_completed(&mut self, completed: Option<Completed>) {
        transfers::completed(completed);
    }

    #[inline(always)]
    fn listeners(&mut self, of: &'static Communicator) -> Option<&'static Listeners> {
        of.comm.listeners(self)
    }

    #[inline(always)]
    fn want_paths(&mut self, listeners: &'static Listeners) -> bool {
        listeners.wants(Event::Protocol)
    }

    #[inline(always)]
    fn arrives(
        &mut self,
        pml: &Pml,
        listeners: &'static Listeners,
        of: Of,
        arrival: &Arrival<'_>,
        search: impl FnOnce(&mut Self) -> Option<Handle>,
    ) -> Result<Handle, u64> {
        let id = numbers(2);
        let number = id + 2;
        let mut spec = watch::spec_of_message(of.0, of.1, arrival.length);
        listeners.tell(Event::Arrived, id, &mut spec);
        if listeners.wants(Event::Transfer) {
            let here = arrival.message.map_or(arrival.length, |message| message.lengths().1);
            transfers::arrived(of.0.comm, id, &spec, here);
        }
        listeners.tell(Event::SearchPostedBegin, number, &mut spec);
        let found = search(self);
        listeners.tell(Event::SearchPostedEnd, number, &mut spec);
        let found = found.ok_or(id)?;
        watch::told(self, listeners, found, Event::RemovePosted);
        listeners.tell(Event::MatchPosted, id, &mut spec);
        watch::has_message(self, listeners, found, (id, arrival.length), |state| match arrival.message {
            None => Some(of_message::came_whole(pml, state, of, arrival.from, (EAGER_SIZE, arrival.length))),
            Some(message) => of_message::came(pml, state, of, message, found),
        });
        Ok(found)
    }

    fn stored(&mut self, of: Of, message: (u64, usize)) {
        watch::tell_of_message(self, of, Event::InsertUnexpected, message);
    }

    #[inline(always)]
    fn seeks(
        &mut self,
        pml: &Pml,
        listeners: &'static Listeners,
        of: &'static Communicator,
        receive: Handle,
        search: impl FnOnce(&mut Self) -> Option<Message<Arrived>>,
    ) -> Option<Message<Arrived>> {
        watch::told(self, listeners, receive, Event::Activate);
        let number = number();
        listeners.tell(Event::SearchUnexpectedBegin, number, &mut self.requests.get(receive).spec);
        let found = search(self);
        listeners.tell(Event::SearchUnexpectedEnd, number, &mut self.requests.get(receive).spec);
        let found = found?;
        let (of, length) = ((of, found.envelope), found.message.length());
        let id = watch::tell_of_message(self, of, Event::RemoveUnexpected, (found.message.id, length));
        watch::request(self, receive, Event::MatchUnexpected);
        let path = |state: &mut State| of_message::came(pml, state, of, &found.message, receive);
        watch::has_message(self, listeners, receive, (id, length), path);
        Some(found)
    }

    fn probes(
        &mut self,
        of: &'static Communicator,
        wanted: (i32, i32),
        search: impl FnOnce(&mut Self) -> Option<Found>,
    ) -> Option<Found> {
        watch::probe(self, of, wanted, search)
    }

    fn set_aside(&mut self, of: Of, message: (u64, usize)) -> u64 {
        watch::tell_of_message(self, of, Event::RemoveUnexpected, message)
    }

    fn gets_aside(&mut self, pml: &Pml, of: &'static Communicator, receive: Handle, message: &Message<Arrived>) {
        watch::request(self, receive, Event::Activate);
        watch::match_probed(self, receive, message, |state| {
            of_message::came(pml, state, (of, message.envelope), &message.message, receive)
        });
    }

    #[inline(always)]
    fn posted(&mut self, listeners: &'static Listeners, receive: Handle) {
        watch::told(self, listeners, receive, Event::InsertPosted);
    }

    fn goes(&mut self, request: Handle, path: PathTaken) {
        watch::goes(self, request, |_| Some(path));
    }

    fn goes_by_route(&mut self, pml: &Pml, request: Handle, route: Route, how: (Protocol, Reason), rails: usize) {
        watch::goes(self, request, |state| Some(of_message::by(pml, routes::home(pml, state, route), how, rails)));
    }

    fn has_begun(&mut self, request: Handle) -> bool {
        self.requests.get(request).shell.told != Told::Nothing
    }

    fn begins(&mut self, request: Handle, moved: Moved) {
        watch::begins_by(self, request, moved, |_| None);
    }

    fn begins_whole(&mut self, pml: &Pml, send: Handle, route: Route) -> bool {
        watch::begins_if(self, send, Bytes::All.posted(), |state| state.has_room(pml, route))
    }

    fn continues(&mut self, request: Handle, moved: Moved) {
        watch::request_by(self, request, Event::XferContinue, moved, |_| None);
    }

    fn ends(&mut self, request: Handle, moved: Moved) {
        watch::ends_by(self, request, moved, |_| None);
    }

    fn ends_whole(&mut self, pml: &Pml, send: Handle, moved: Moved) {
        watch::ends_by(self, send, moved, |state| Some(of_message::sent(pml, state, send)));
    }

    fn begins_reading(&mut self, pml: &Pml, receive: Handle) {
        reads::begins(pml, self, receive);
    }

    fn read_begins(&mut self, pml: &Pml, receive: Handle, rail: usize, part: Part) {
        reads::started(pml, self, receive, rail, part);
    }

    fn read_refused(&mut self, pml: &Pml, receive: Handle, rail: usize, part: Part) {
        reads::refused(pml, self, receive, rail, part);
    }

    fn read_ended(&mut self, pml: &Pml, receive: Handle, rail: usize, part: Part, outcome: Result<(), Failed>) {
        reads::ended(pml, self, receive, rail, (part, outcome));
    }

    fn record_flow(&mut self, pml: &Pml, held_back: Option<Account>) {
        let name = held_back.and_then(|Account(route)| pml.rails().get(route.rail())?.enter()?.peer_name(route.to()));
        let kind = if held_back.is_some() { Kind::SenderHeldBack } else { Kind::SendersLetGo };
        let kept = self.messenger.flow.kept.bytes();
        record((kind, 0), NO_PORT, name.map_or(NOBODY, |name| name.rank), [kept, 0, 0, 0]);
    }
}
