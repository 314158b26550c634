// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts the communicators that a change of listeners visits when another communicator is made or freed.

use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ibex_ffi::openmpi::sys;

use super::alone;
use crate::runtime::listeners::{self, Event, Function, Listener, Queues, Raiser, Spec};

static LOOKS: AtomicUsize = AtomicUsize::new(0);
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

const RAISER: Raiser = Raiser {
    change: |body| body(false),
    watch: |is_watched| IS_WATCHED.swap(is_watched, Ordering::Relaxed) != is_watched,
    follow: |_| _ = LOOKS.fetch_add(1, Ordering::Relaxed),
    queues: Queues { lengths: |_| [0; 2], keep_alone: nothing },
};

extern "C" fn nothing(_: i64, _: isize, _: *mut Spec, _: *mut std::ffi::c_void) -> std::ffi::c_int {
    0
}

/// Returns the visits that a communicator beside `others` causes in its life, without and with a tool that listens.
fn looks_beside(others: usize) -> [usize; 2] {
    // Only one field of a communicator is written.
    let mut room = vec![MaybeUninit::<sys::ompi_communicator_t>::zeroed(); others + 1];
    let comms: Vec<_> = room.iter_mut().map(MaybeUninit::as_mut_ptr).collect();
    let (one, others) = comms.split_last().expect("there is one");
    for comm in others {
        // SAFETY: memory for a communicator that nobody uses; `ends` is called below.
        unsafe { listeners::begins(*comm) };
    }
    let function: Function = nothing;
    let costs = [false, true].map(|is_listened_to| {
        let before = LOOKS.load(Ordering::Relaxed);
        // SAFETY: memory for a communicator that nobody uses; `ends` is called before it is freed.
        unsafe {
            listeners::begins(*one);
            if is_listened_to {
                let listener = Listener { handle: 7, function, alone: function, param: null_mut() };
                listeners::add(*one, Event::Arrived, listener, || true);
            }
            listeners::ends(*one);
        }
        LOOKS.load(Ordering::Relaxed) - before
    });
    for comm in others {
        // SAFETY: `begins` was called above, and it is still there.
        unsafe { listeners::ends(*comm) };
    }
    costs
}

#[test]
fn add_leaves_out_a_listener_that_is_no_longer_wanted() {
    let _alone = alone();
    listeners::raised_by(Some(RAISER));
    let listener = Listener { handle: 9, function: nothing, alone: nothing, param: null_mut() };
    // SAFETY: `is_wanted` returns false, so the pointer is not used.
    unsafe { listeners::add(std::ptr::dangling_mut(), Event::Arrived, listener, || false) };
    listeners::add_everywhere(Event::Arrived, listener, || false);
    assert!(!listeners::is_anybody());
    listeners::raised_by(None);
}

#[test]
fn a_communicator_costs_the_same_beside_ten_others_as_beside_100_000() {
    let _alone = alone();
    listeners::raised_by(Some(RAISER));
    let few = looks_beside(10);
    assert_eq!((few, looks_beside(100_000)), ([0, 3], few));

    // A tool listens to all.
    let listener = Listener { handle: 8, function: nothing, alone: nothing, param: null_mut() };
    listeners::add_everywhere(Event::Arrived, listener, || true);
    let few = looks_beside(10);
    assert_eq!((few, looks_beside(1000)), ([1, 2], few));
    listeners::remove_everywhere(Event::Arrived, 8);
    listeners::raised_by(None);
}
