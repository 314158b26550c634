// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of progress functions: what each face does with an event that another face has polled.
//!
//! Whichever face polls a port gets the events of all. Its own it handles itself, without this table; another's it
//! hands on here. Where the PML is in use it alone polls, and the BTL calls it instead: messages of MPI's keep their
//! order only while one at a time polls and deals with them before it calls anybody back. What concerns every face (a
//! peer that failed, a link that changed) it tells the others. A face fills in its row when its component is made,
//! once; the functions stay, as the library is never unmapped, and find nothing to do where their face has no port.
//! Grade: what is handed on costs an indirect call; without a second face nothing comes here. Threads: any. Tests:
//! below.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::transport::Batch;

use super::face::Face;
use super::operation_chain::OperationChain;

/// What a face does for the others.
#[derive(Clone, Copy)]
pub(crate) struct Functions {
    /// Handles the completion at `index` of a batch, which was polled from the process' port with this number. No port
    /// is entered. Safe to call once for each completion, while the batch is not released.
    pub(crate) handle: unsafe fn(port: u8, batch: &Batch, index: usize),
    /// Tells Open MPI of the BTL's operations that a poll has taken, which are the caller's own, and gives their records
    /// back. No port is entered. Safe to call once for a chain.
    pub(crate) operations_done: unsafe fn(&OperationChain),
    /// Shows tools the arrivals that the face has noted and not shown yet. Called before each poll while a tool
    /// listens.
    pub(crate) show_arrived: fn(),
    /// Polls every port the face uses, where it polls for others. No port is entered. Returns the number of events.
    pub(crate) poll: Option<fn() -> c_int>,
    /// Tells the face whether another one polls for it.
    pub(crate) is_polled_for: fn(bool),
}

/// The rows, one for each face.
struct Table([OnceLock<Functions>; Face::ALL.len()]);

static TABLE: Table = Table::new();

impl Table {
    const fn new() -> Self {
        Table([const { OnceLock::new() }; Face::ALL.len()])
    }

    fn fill_in(&self, face: Face, functions: Functions) {
        self.0[face as usize].get_or_init(|| functions);
    }

    /// # Safety
    /// That of [`Functions::handle`].
    unsafe fn hand_on(&self, face: Face, port: u8, batch: &Batch, index: usize) {
        if let Some(functions) = self.0[face as usize].get() {
            // SAFETY: this function's rule.
            unsafe { (functions.handle)(port, batch, index) };
        }
    }

    /// # Safety
    /// As above.
    unsafe fn tell_others(&self, face: Face, port: u8, batch: &Batch, index: usize) {
        for other in Face::ALL.into_iter().filter(|other| *other != face) {
            // SAFETY: this function's rule, for a face that has not handled the event.
            unsafe { self.hand_on(other, port, batch, index) };
        }
    }
}

/// Fills in the row of a face.
pub(crate) fn fill_in(face: Face, functions: Functions) {
    TABLE.fill_in(face, functions);
}

/// Hands an event to the face that it is for.
///
/// # Safety
/// The event is one of the batch, which was polled from that port and is not released; no face has handled it.
#[cold]
#[inline(never)]
pub(crate) unsafe fn hand_on(face: Face, port: u8, batch: &Batch, index: usize) {
    // SAFETY: this function's rule.
    unsafe { TABLE.hand_on(face, port, batch, index) };
}

/// Has the BTL tell of its operations that another face's poll has taken.
///
/// # Safety
/// They are the caller's own, and no port is entered.
pub(crate) unsafe fn operations_done(done: &OperationChain) {
    if let Some(functions) = TABLE.0[Face::Btl as usize].get() {
        // SAFETY: this function's rule.
        unsafe { (functions.operations_done)(done) };
    }
}

/// Tells the other faces of an event that `face` has polled.
///
/// # Safety
/// As for [`hand_on`], but that `face` has handled it.
#[cold]
#[inline(never)]
pub(crate) unsafe fn tell_others(face: Face, port: u8, batch: &Batch, index: usize) {
    // SAFETY: this function's rule.
    unsafe { TABLE.tell_others(face, port, batch, index) };
}

/// Whether the process has this face.
pub(crate) fn is_there(face: Face) -> bool {
    TABLE.0[face as usize].get().is_some()
}

/// Has a face poll.
pub(crate) fn poll(face: Face) -> c_int {
    TABLE.0[face as usize].get().and_then(|functions| functions.poll).map_or(0, |poll| poll())
}

/// Whether the ports were polled since somebody asked.
static WERE_POLLED: AtomicBool = AtomicBool::new(false);

/// The face that polls for others has polled every port.
#[inline]
pub(crate) fn note_poll() {
    WERE_POLLED.store(true, Ordering::Relaxed);
}

/// Whether that face has polled since this was asked last: it need not once more. With several threads it may be polled
/// once too often.
pub(crate) fn take_poll() -> bool {
    let were_polled = WERE_POLLED.load(Ordering::Relaxed);
    if were_polled {
        WERE_POLLED.store(false, Ordering::Relaxed);
    }
    were_polled
}

/// Tells the other faces whether this one polls for them.
pub(crate) fn polls_for_others(face: Face, polls: bool) {
    for other in Face::ALL.into_iter().filter(|other| *other != face) {
        if let Some(functions) = TABLE.0[other as usize].get() {
            (functions.is_polled_for)(polls);
        }
    }
}

/// Shows tools the arrivals that faces have noted and not shown yet.
pub(crate) fn show_arrived() {
    TABLE.0.iter().filter_map(OnceLock::get).for_each(|functions| (functions.show_arrived)());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU8;

    #[test]
    fn an_event_comes_to_the_face_it_is_for_and_what_concerns_all_to_the_others() {
        static TO_BTL: AtomicU8 = AtomicU8::new(0);
        static TO_PML: AtomicU8 = AtomicU8::new(0);
        let table = Table::new();
        let batch = Batch::new();
        let fill_in = |face, handle: fn(u8, &Batch, usize)| {
            let nothing =
                Functions { handle, operations_done: |_| {}, show_arrived: || {}, poll: None, is_polled_for: |_| {} };
            table.fill_in(face, nothing);
        };
        // SAFETY: the functions filled in below take any completion.
        let hand_on = |face, port| unsafe { table.hand_on(face, port, &batch, 0) };
        let heard = || (TO_BTL.load(Ordering::Relaxed), TO_PML.load(Ordering::Relaxed));
        hand_on(Face::Pml, 3);
        assert_eq!(heard(), (0, 0), "there is no such face yet");
        fill_in(Face::Btl, |port, _, _| TO_BTL.store(port, Ordering::Relaxed));
        fill_in(Face::Pml, |port, _, _| TO_PML.store(port, Ordering::Relaxed));
        hand_on(Face::Pml, 3);
        assert_eq!(heard(), (0, 3));
        // SAFETY: as above.
        unsafe { table.tell_others(Face::Pml, 4, &batch, 0) };
        assert_eq!(heard(), (4, 3));
    }
}
