// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open MPI as the messenger's host: the requests and their ends. `ports`, `communicator` and `tools` have the other
//! functions that `engine::messenger` calls. Grade: hot. Threads: the one that has entered the PML. Tests:
//! `pml/tests.rs`.

use engine::messenger;
use engine::messenger::host::Host;

use super::datatype::UserData;
use super::finish;
use super::instance::State;
use super::ports::read::WatchedReads;
use super::ports::transmit;
use super::request::{Core, Handle, Outcome};
use crate::runtime::messages;

impl Host for State {
    type Data = UserData;
    type WatchedReads = WatchedReads;

    fn core(&mut self, request: Handle) -> &mut Core {
        self.requests.core(request)
    }

    fn messenger(&mut self) -> &mut messenger::State<State> {
        &mut self.messenger
    }

    fn note(&mut self, receive: Handle, outcome: &Outcome) {
        finish::note(self.requests.get(receive), outcome);
    }

    fn noted(&mut self, receive: Handle) -> (i32, usize) {
        let status = &self.requests.get(receive).base().req_status;
        (status.MPI_SOURCE, status._ucount)
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

    fn fails(&mut self) {
        transmit::failed(self);
    }

    fn cannot_pack(&mut self, length: usize) {
        transmit::cannot_pack(self, length);
    }

    fn cannot_send(&mut self, asked: u64, length: u64) {
        transmit::failed_for(self, &messages::asked_for(asked, length));
    }
}
