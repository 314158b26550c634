// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress: polls the port and hands what it reports to the messenger.
//!
//! Called when a program reads a completion queue or a counter, and by calls that search. Grade: hot. Threads: the one
//! that has entered the endpoint. Tests: `simulation`, `hw-tests`.

use std::cell::RefMut;

use crate::events::{self, Safety};
use crate::messenger::events::Completed;
use crate::messenger::host::Process as _;
use crate::messenger::rails::completions::{self, Receiver};
use crate::messenger::send;
use crate::transport::Completion as Event;

use super::environment::{Environment, Others as _};
use super::{Polled, Shared, State};

impl<E: Environment> State<E> {
    /// Takes one batch of completions, and sends the messages whose turn it is. Returns the number of completions.
    #[inline(never)]
    pub fn progress(&mut self, shared: &Shared<E::Adapter>) -> usize {
        self.progress_here(shared)
    }

    /// [`Self::progress`], inlined into its callers.
    #[inline(always)]
    pub fn progress_here(&mut self, shared: &Shared<E::Adapter>) -> usize {
        let count = self.poll_here(shared);
        if self.has_more {
            self.take_turns(shared);
        }
        count
    }

    #[cold]
    #[inline(never)]
    fn take_turns(&mut self, shared: &Shared<E::Adapter>) {
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
    pub fn arm(&mut self, shared: &Shared<E::Adapter>) {
        if let Some(mut port) = shared.enter_port(0) {
            E::arm(&mut port);
        }
        while self.poll(shared) > 0 {
            self.leave(shared);
        }
        self.progress(shared);
    }

    #[inline(never)]
    fn poll(&mut self, shared: &Shared<E::Adapter>) -> usize {
        self.poll_here(shared)
    }

    /// Takes a batch. Returns the number of completions.
    #[inline(always)]
    fn poll_here(&mut self, shared: &Shared<E::Adapter>) -> usize {
        let Ok(mut polled) = shared.polled.try_borrow_mut() else { return 0 };
        let Polled { port, batch: Some(batch), .. } = &mut *polled else { return self.poll_watched(shared, polled) };
        let done = port.poll_direct(batch, Receiver::<_, false>::new(self, 0, None));
        if done.reported > 0 {
            self.handle(shared, polled);
        }
        done.taken + done.reported
    }

    /// [`Self::poll_here`] of an endpoint whose process is recorded, with the adapter's timestamps.
    #[cold]
    #[inline(never)]
    fn poll_watched(&mut self, shared: &Shared<E::Adapter>, mut polled: RefMut<'_, Polled<E::Adapter>>) -> usize {
        let Some(mut batch) = polled.watched.take() else { return 0 };
        self.peers.learn(&polled.port);
        let receiver = Receiver::<_, false>::new(self, 0, None);
        let done = polled.port.poll_direct_watched(&mut batch, receiver);
        if done.reported > 0 {
            let (port, source) = (polled.port.index(), polled.port.source());
            let is_short = polled.port.is_short_of_receives();
            // Another thread may deliver events meanwhile.
            let open = source.and_then(|source| Some((source, events::begin_batch(source)?)));
            drop(polled);
            for (place, completion) in batch.completions().iter().enumerate() {
                let stamp = source.zip(batch.stamp(place));
                self.messenger.completed = Some(Completed { port, stamp });
                self.handle_one(shared, completion);
            }
            self.messenger.completed = None;
            if let Some((source, open)) = open {
                events::end_batch(source, open);
            }
            if is_short && let Some(mut port) = shared.enter_port(0) {
                port.release(&mut batch);
            }
        } else {
            drop(polled);
        }
        shared.polled.borrow_mut().watched = Some(batch);
        done.taken + done.reported
    }

    #[inline]
    fn handle_one(&mut self, shared: &Shared<E::Adapter>, completion: &Event) {
        if !completions::handle(shared, self, 0, completion) && !self.takes_disconnect(shared, completion) {
            E::Others::handle(self, shared, completion);
        }
    }

    #[cold]
    #[inline(never)]
    fn handle(&mut self, shared: &Shared<E::Adapter>, mut polled: RefMut<'_, Polled<E::Adapter>>) {
        let is_short = polled.port.is_short_of_receives();
        let Some(mut batch) = polled.batch.take() else { return };
        drop(polled);
        for completion in batch.completions() {
            self.handle_one(shared, completion);
        }
        let mut polled = shared.polled.borrow_mut();
        if is_short {
            polled.port.release(&mut batch);
        }
        polled.batch = Some(batch);
    }
}
