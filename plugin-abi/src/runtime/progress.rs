// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of progress functions: what each face does with an event that another face has polled.
//!
//! Whichever face polls a port gets the events of all. Its own it handles itself, without this table; another's it hands on
//! here. What concerns every face (a peer that failed, a link that changed) it tells the others. A face fills in its row when
//! its component is made, once; the functions stay, as the library is never unmapped, and find nothing to do where their face has
//! no port. Grade: what is handed on costs an indirect call; without a second face nothing comes here. Threads: any. Tests: below.

use std::sync::OnceLock;

use engine::transport::Batch;

use super::face::Face;

/// What a face does for the others.
#[derive(Clone, Copy)]
pub(crate) struct Functions {
    /// Handles the completion at `index` of a batch of the process' port with this number. No port is entered.
    pub(crate) handle: fn(port: u8, batch: &Batch, index: usize),
    /// Shows tools the arrivals that the face has noted and not shown yet.
    pub(crate) show_arrived: fn(),
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

    fn hand_on(&self, face: Face, port: u8, batch: &Batch, index: usize) {
        if let Some(functions) = self.0[face as usize].get() {
            (functions.handle)(port, batch, index);
        }
    }

    fn tell_others(&self, face: Face, port: u8, batch: &Batch, index: usize) {
        Face::ALL.into_iter().filter(|other| *other != face).for_each(|other| self.hand_on(other, port, batch, index));
    }
}

/// Fills in the row of a face.
pub(crate) fn fill_in(face: Face, functions: Functions) {
    TABLE.fill_in(face, functions);
}

/// Hands an event to the face that it is for.
#[cold]
#[inline(never)]
pub(crate) fn hand_on(face: Face, port: u8, batch: &Batch, index: usize) {
    TABLE.hand_on(face, port, batch, index);
}

/// Tells the other faces of an event that `face` has polled.
#[cold]
#[inline(never)]
pub(crate) fn tell_others(face: Face, port: u8, batch: &Batch, index: usize) {
    TABLE.tell_others(face, port, batch, index);
}

/// Shows tools the arrivals that faces have noted and not shown yet.
pub(crate) fn show_arrived() {
    TABLE.0.iter().filter_map(OnceLock::get).for_each(|functions| (functions.show_arrived)());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU8, Ordering};

    #[test]
    fn an_event_comes_to_the_face_it_is_for_and_what_concerns_all_to_the_others() {
        static TO_BTL: AtomicU8 = AtomicU8::new(0);
        static TO_PML: AtomicU8 = AtomicU8::new(0);
        let table = Table::new();
        let batch = Batch::new();
        table.hand_on(Face::Pml, 3, &batch, 0);
        table.fill_in(
            Face::Btl,
            Functions { handle: |port, _, _| TO_BTL.store(port, Ordering::Relaxed), show_arrived: || {} },
        );
        table.fill_in(
            Face::Pml,
            Functions { handle: |port, _, _| TO_PML.store(port, Ordering::Relaxed), show_arrived: || {} },
        );
        table.hand_on(Face::Pml, 3, &batch, 0);
        assert_eq!((TO_BTL.load(Ordering::Relaxed), TO_PML.load(Ordering::Relaxed)), (0, 3));
        table.tell_others(Face::Pml, 4, &batch, 0);
        assert_eq!((TO_BTL.load(Ordering::Relaxed), TO_PML.load(Ordering::Relaxed)), (4, 3));
    }
}
