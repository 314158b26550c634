// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open MPI as the messenger's host: what the protocols of `engine::messenger` call. Grade: hot. Threads: the one that
//! has entered the PML. Tests: `pml/tests.rs`.

use engine::messenger::arrived::Arrived;
use engine::messenger::header::MAX_SIZE;
use engine::messenger::host::{Host, Moved};
use engine::messenger::matching::Envelope;
use engine::messenger::passage::Passage;
use engine::messenger::transfer_id::Transfers;

use super::datatype::UserData;
use super::handle::Handle;
use super::instance::{Pml, State};
use super::reading::WatchedReads;
use super::request::{Core, Outcome};
use super::{finish, incoming, transmit, watch};
use crate::runtime::memory::Registered;
use crate::runtime::variables::now;

impl Host for State {
    type Handle = Handle;
    type Data = UserData;
    type Registration = Registered;
    type WatchedReads = WatchedReads;
    type Process = Pml;

    fn core(&mut self, request: Handle) -> &mut Core {
        self.requests.core(request)
    }

    fn transfers(&mut self) -> &mut Transfers<Handle> {
        &mut self.transfers
    }

    fn rank(&mut self, request: Handle) -> i32 {
        self.communicator(request).rank
    }

    fn eager_limit(&self, pml: &Pml) -> usize {
        pml.rails().first().map_or(0, |rail| now::eager_limit(rail.copy_size) - MAX_SIZE)
    }

    fn take_posted(&mut self, send: Handle, envelope: Envelope, length: usize) -> Result<Handle, u64> {
        let communicator = self.communicator(send);
        let told = (|_: &mut State, _| Some(Passage::ONESELF), |_: &mut State| {});
        watch::take_posted(self, communicator, envelope, (length, length), told)
    }

    fn keep(&mut self, pml: &Pml, send: Handle, envelope: Envelope, message: Arrived) {
        let (communicator, from) = (self.communicator(send), message.from);
        incoming::keep(pml, self, communicator, (envelope, message), || Some(from));
    }

    fn note(&mut self, receive: Handle, outcome: &Outcome) {
        finish::note(self.requests.get(receive), outcome);
    }

    fn copy(&mut self, send: Handle, receive: Handle) {
        let [from, to] = self.requests.cores([send, receive]);
        if !from.data.copy_to(&mut to.data) {
            finish::note_not_put(self.requests.get(receive));
        }
    }

    fn goes(&mut self, request: Handle, passage: Passage) {
        watch::goes(self, request, |_| Some(passage));
    }

    fn begins(&mut self, request: Handle, moved: Moved) {
        watch::begins(self, request, moved);
    }

    fn ends(&mut self, request: Handle, moved: Moved) {
        watch::ends(self, request, moved);
    }

    fn finish(&mut self, request: Handle) {
        finish::finish(self, request);
    }

    fn cannot_pack(&mut self, length: usize) {
        transmit::cannot_pack(self, length);
    }
}
