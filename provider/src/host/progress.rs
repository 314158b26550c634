// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress: polls the port and hands what it reports to the messenger.
//!
//! Called when a program reads a completion queue or a counter, and by calls that search. Grade: hot. Threads: the one
//! that has entered the endpoint. Tests: `hw-tests`.

use std::cell::RefMut;

use ibex::events::{self, Safety};
use ibex::messenger::host::Process as _;
use ibex::messenger::rails::completions::{self, Receiver};
use ibex::messenger::send;

use super::{Polled, Shared, State};
use crate::sys;

impl State {
    /// Takes one batch of completions, and sends the messages whose turn it is.
    #[inline(never)]
    pub(crate) fn progress(&mut self, shared: &Shared) {
        self.progress_here(shared);
    }

    /// [`Self::progress`], inlined into its callers.
    #[inline(always)]
    pub(crate) fn progress_here(&mut self, shared: &Shared) {
        self.poll_here(shared);
        if self.has_more {
            self.take_turns(shared);
        }
    }

    #[cold]
    #[inline(never)]
    fn take_turns(&mut self, shared: &Shared) {
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

    #[inline(never)]
    fn poll(&mut self, shared: &Shared) -> usize {
        self.poll_here(shared)
    }

    /// Takes a batch. Returns the number of completions.
    #[inline(always)]
    fn poll_here(&mut self, shared: &Shared) -> usize {
        let Ok(mut polled) = shared.polled.try_borrow_mut() else { return 0 };
        let Polled { port, batch: Some(batch) } = &mut *polled else { return 0 };
        let done = port.poll_direct(batch, Receiver::<_, false>::new(self, 0, None));
        if done.reported > 0 {
            self.handle(shared, polled);
        }
        done.taken + done.reported
    }

    #[cold]
    #[inline(never)]
    fn handle(&mut self, shared: &Shared, mut polled: RefMut<'_, Polled>) {
        if self.recording.is_some() {
            self.peers.learn(&polled.port);
        }
        let is_short = polled.port.is_short_of_receives();
        let Some(mut batch) = polled.batch.take() else { return };
        drop(polled);
        for completion in batch.completions() {
            if !completions::handle(shared, self, 0, completion) && !self.takes_disconnect(shared, completion) {
                self.handle_one_sided(shared, completion);
            }
        }
        let mut polled = shared.polled.borrow_mut();
        if is_short {
            polled.port.release(&mut batch);
        }
        polled.batch = Some(batch);
    }
}
