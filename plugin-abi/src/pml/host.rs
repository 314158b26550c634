// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open MPI as the messenger's host: the requests and their ends. `ports`, `communicator` and `tools` have the other
//! functions that `engine::messenger` calls. Grade: hot. Threads: the one that has entered the PML. Tests:
//! `pml/tests.rs`.

use engine::messenger::host::Host;
use engine::messenger::{self, events};

use super::datatype::UserData;
use super::finish;
use super::instance::State;
use super::request::{Core, Handle, Outcome, Owner};
use crate::runtime::listeners::{Event, Listeners};
use crate::runtime::messages;

impl Host for State {
    type Data = UserData;

    fn core(&mut self, request: Handle) -> &mut Core {
        self.requests.core(request)
    }

    fn messenger(&mut self) -> &mut messenger::State<State> {
        &mut self.messenger
    }

    fn note(&mut self, receive: Handle, outcome: &Outcome) {
        finish::note(self.requests.get(receive), outcome);
    }

    fn noted(&mut self, receive: Handle) -> ((i32, i32), usize) {
        let status = &self.requests.get(receive).base().req_status;
        ((status.MPI_SOURCE, status.MPI_TAG), status._ucount)
    }

    fn copy(&mut self, send: Handle, receive: Handle) {
        let [from, to] = self.requests.cores([send, receive]);
        if !from.data.copy_to(&mut to.data) {
            finish::note_not_put(self.requests.get(receive));
        }
    }

    fn cannot_unpack(&mut self, receive: Handle) {
        finish::note_not_put(self.requests.get(receive));
    }

    fn finish(&mut self, request: Handle) {
        finish::finish(self, request);
    }

    #[inline(always)]
    fn finish_told(&mut self, listeners: &'static Listeners, receive: Handle) {
        if self.requests.get(receive).shell.owner != Owner::WatchedCall {
            return finish::finish_of_others(self, receive);
        }
        events::told(self, listeners, receive, Event::Complete);
        self.requests.get(receive).set_finished(true);
    }

    /// The job ends once nothing is entered.
    #[cold]
    fn fails(&mut self) {
        self.has_failed = true;
        self.has_more = true;
    }

    #[cold]
    fn cannot_pack(&mut self, length: usize) {
        fails_for(self, &messages::cannot_pack(length));
    }

    #[cold]
    fn cannot_send(&mut self, asked: u64, length: u64) {
        fails_for(self, &messages::asked_for(asked, length));
    }
}

/// Ends the job for a reason that no port knows. Prints the reason, unless the job ends already.
fn fails_for(state: &mut State, why: &str) {
    if !state.has_failed {
        messages::operation_failed(why);
    }
    state.fails();
}
