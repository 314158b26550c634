// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processes of this host: makes them reachable by shared memory, receives messages, and sends those that wait.
//!
//! The BTL calls [`arrived`] with each message, from this PML's polls or from Open MPI's progress. Called by `context`
//! ([`add`], [`remove`]) and `progress` ([`poll`]). Grade: hot; [`add`] and [`remove`]: setup. Threads: any. Tests:
//! `pml/tests.rs`, and `hw-tests/tests/device/local.rs`.

use std::ptr::{NonNull, null_mut};

use engine::messenger::link::Link;
use ibex_ffi::openmpi::process::Process;
use ibex_ffi::openmpi::release::{Receiver, received_by};
use ibex_ffi::openmpi::sys;

use super::backlog::Then;
use super::incoming::{self, Incoming, Sender};
use super::instance::{Pml, State, pml};
use super::shared_memory::{EAGER, OTHER, SharedMemory};
use super::{flow, pieces};
use crate::runtime::guard::fence;
use crate::runtime::variables::now;
use crate::runtime::{messages, modex};

/// Adds the processes that shared memory reaches. Called once, with all processes of the host, in order of rank.
pub(crate) unsafe fn add(pml: &Pml, procs: &[*mut sys::ompi_proc_t]) {
    if pml.shared_memory().is_some() {
        return;
    }
    // SAFETY: Open MPI opens the BTLs before a PML adds processes.
    let Some(btl) = NonNull::new(unsafe { sys::ibex_shared_memory() }) else { return };
    // SAFETY: P4: `procs` are live processes.
    let mut local: Vec<_> = procs.iter().copied().filter(|proc| unsafe { sys::ibex_is_on_this_host(*proc) }).collect();
    // SAFETY: P4: `procs` are live processes.
    let name = |proc: *mut sys::ompi_proc_t| unsafe { Process::from_raw(proc.cast()) }.map(Process::name);
    let me = Process::me().map(Process::name);
    let Some(place) = local.iter().position(|proc| name(*proc) == me) else { return };
    if local.len() < 2 {
        return;
    }
    let mut endpoints = vec![null_mut(); local.len()];
    // SAFETY: P4: `local` has live processes, and `endpoints` as many elements.
    let code = unsafe { sys::ibex_bml_add(local.len(), local.as_mut_ptr(), btl.as_ptr(), endpoints.as_mut_ptr()) };
    if code != sys::OPAL_SUCCESS && endpoints.iter().all(|endpoint| endpoint.is_null()) {
        return;
    }
    // SAFETY: the BTL is open, and has just returned these endpoints.
    let shared = unsafe { SharedMemory::new(btl, &endpoints, place as u32) };
    let Some(shared) = shared else { return };
    for tag in [EAGER, OTHER] {
        // SAFETY: no other component uses these tags, and the library that has the callback is never unmapped.
        unsafe { sys::ibex_bml_listen(tag, received_by::<FromSharedMemory>()) };
    }
    let reached: Vec<u32> = shared.reached().filter(|at| *at != place as u32).collect();
    let Some(mut state) = pml.enter() else { return };
    for at in &reached {
        let Some(name) = name(local[*at as usize]) else { continue };
        let peer = modex::from_openmpi(name);
        state.peers.insert(peer, Link::local(*at));
        if now::verbosity() > 0 {
            messages::verbose(&format!("rank {} is reached by shared memory", peer.rank));
        }
    }
    drop(state);
    if !reached.is_empty() {
        pml.use_shared_memory(shared);
    }
}

struct FromSharedMemory;

impl Receiver for FromSharedMemory {
    unsafe fn received(
        btl: *mut sys::mca_btl_base_module_t,
        tag: u8,
        segments: *const sys::mca_btl_base_segment_t,
        count: usize,
    ) {
        // SAFETY: P4: the BTL is open, and has received the bytes of these segments.
        unsafe { arrived(btl, tag, segments, count) };
    }
}

/// Handles a message; its memory is the BTL's again when this returns.
#[inline(always)]
pub(super) unsafe fn arrived(
    btl: *mut sys::mca_btl_base_module_t,
    tag: u8,
    segments: *const sys::mca_btl_base_segment_t,
    count: usize,
) {
    fence("a message by shared memory", (), || {
        let Some(pml) = pml() else { return };
        // A BTL for a network may not deliver messages with these tags.
        if !pml.shared_memory().is_some_and(|shared| shared.is(btl)) {
            return;
        }
        if count == 1 {
            // SAFETY: P4: the message has one segment.
            let (start, length) = unsafe { ((*segments).seg_addr.pval.cast::<u8>(), (*segments).seg_len as usize) };
            // SAFETY: P4: the BTL has received these bytes.
            pml.with_state(|state| unsafe { deal(pml, state, tag, start, length) });
        } else {
            let mut bytes = Vec::new();
            for index in 0..count {
                // SAFETY: P4: the message has `count` segments.
                let segment = unsafe { &*segments.add(index) };
                // The address of an empty segment may be null.
                if segment.seg_len > 0 {
                    // SAFETY: P4: the BTL has received these bytes.
                    bytes.extend_from_slice(unsafe {
                        std::slice::from_raw_parts(segment.seg_addr.pval.cast::<u8>(), segment.seg_len as usize)
                    });
                }
            }
            // SAFETY: `bytes` lives until this returns.
            pml.with_state(|state| unsafe { deal(pml, state, tag, bytes.as_ptr(), bytes.len()) });
        }
    });
}

/// Size of the sender's place, bytes.
const PLACE: usize = size_of::<u32>();

#[inline(always)]
unsafe fn deal(pml: &Pml, state: &mut State, tag: u8, start: *const u8, length: usize) {
    if tag == EAGER {
        // SAFETY: `start` may be read for `length` bytes, as this function requires.
        unsafe {
            if !incoming::is_taken_whole(state, start, length) {
                let incoming = Incoming { start, length, sender: Sender::Known(Link::UNKNOWN) };
                incoming::message(pml, state, incoming);
            }
        }
        return;
    }
    if length < PLACE {
        return;
    }
    // SAFETY: at least `PLACE` bytes may be read, at any alignment.
    let place = u32::from_le_bytes(unsafe { start.cast::<[u8; PLACE]>().read() });
    if !pml.shared_memory().is_some_and(|shared| shared.reaches(place)) {
        return;
    }
    let sender = Sender::Known(Link::local(place));
    let incoming = Incoming { start: start.wrapping_add(PLACE), length: length - PLACE, sender };
    // SAFETY: the bytes after the place may be read.
    unsafe { incoming::message(pml, state, incoming) };
}

/// Receives messages from processes of this host, and sends those that wait. Returns the number of both.
#[inline]
pub(crate) fn poll(pml: &Pml, state: &mut State, shared: &SharedMemory) -> usize {
    let count = pml.within(state, || shared.progress());
    if state.backlog.is_empty() { count } else { count + send_waiting(pml, state, shared) }
}

#[cold]
#[inline(never)]
fn send_waiting(pml: &Pml, state: &mut State, shared: &SharedMemory) -> usize {
    let mut count = 0;
    for to in 0..state.backlog.places() {
        while let Some(then) = state.backlog.send_first(shared, to) {
            // A turn is no event: messages that find no room have one with each poll.
            count += usize::from(then != Then::Turn);
            match then {
                Then::Nothing => {}
                Then::Turn => flow::has_turn(state, Link::local(to)),
                // SAFETY: P1: this was a fragment of a send, which is therefore not finished.
                Then::Piece(request) => unsafe { pieces::piece_done(pml, state, request) },
            }
        }
    }
    count
}

/// Removes processes from the BTLs to which they were added.
pub(crate) unsafe fn remove(pml: &Pml, procs: &[*mut sys::ompi_proc_t]) {
    if pml.shared_memory().is_none() {
        return;
    }
    // SAFETY: P4: `procs` are live processes.
    let mut local: Vec<_> = procs.iter().copied().filter(|proc| unsafe { sys::ibex_is_on_this_host(*proc) }).collect();
    // SAFETY: P4: live processes that were added.
    unsafe { sys::ibex_bml_remove(local.len(), local.as_mut_ptr()) };
}
