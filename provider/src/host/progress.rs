// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress: polls the port and hands what it reports to the messenger.
//!
//! Called when a program reads a completion queue or a counter, and by calls that search. Grade: hot. Threads: the one
//! that has entered the endpoint. Tests: `hw-tests`.

use ibex::events::{self, Safety};
use ibex::messenger::host::Process as _;
use ibex::messenger::rails::completions::{self, Receiver};
use ibex::messenger::send;
use ibex::transport::{Batch, Polled};

use super::{Shared, State};
use crate::sys;

impl State {
    /// Takes one batch of completions, and sends the messages whose turn it is.
    pub(crate) fn progress(&mut self, shared: &Shared) {
        self.poll(shared);
        if !self.messenger.flow.turns.is_empty() {
            send::in_turns(shared, self, |state| _ = state.poll(shared));
        }
        if self.recording.is_some() {
            events::progress(Safety::ThreadSafe);
        }
        self.leave(shared);
    }

    /// Progresses until there is nothing to do, and has the port's channel wake those who sleep when there is. Called
    /// before a thread sleeps.
    pub(crate) fn arm(&mut self, shared: &Shared) {
        if let Some(mut port) = shared.enter_port(0)
            && let Err(error) = port.arm()
        {
            // A thread that sleeps progresses at each tick.
            crate::log::line(sys::FI_LOG_WARN, sys::FI_LOG_CQ, &format!("arming a completion queue: {error}"));
        }
        while self.poll(shared) > 0 {
            self.leave(shared);
        }
        self.progress(shared);
    }

    fn poll(&mut self, shared: &Shared) -> usize {
        let Some(mut port) = shared.enter_port(0) else { return 0 };
        let Some(mut batch) = self.batch.take() else { return 0 };
        let Polled { taken, reported } = port.poll_direct(&mut batch, Receiver::<_, false>::new(self, 0, None));
        if reported > 0 {
            let is_short = port.is_short_of_receives();
            drop(port);
            self.handle(shared, &mut batch, is_short);
        }
        self.batch = Some(batch);
        taken + reported
    }

    #[cold]
    #[inline(never)]
    fn handle(&mut self, shared: &Shared, batch: &mut Batch, is_short: bool) {
        if self.recording.is_some()
            && let Some(port) = shared.enter_port(0)
        {
            self.peers.learn(&port);
        }
        for completion in batch.completions() {
            if !completions::handle(shared, self, 0, completion) && !self.takes_disconnect(shared, completion) {
                self.handle_one_sided(shared, completion);
            }
        }
        if is_short && let Some(mut port) = shared.enter_port(0) {
            port.release(batch);
        }
    }
}
