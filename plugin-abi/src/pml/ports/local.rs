// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processes of this host: makes them reachable by shared memory, and receives and sends messages there.
//!
//! The BTL calls [`arrived`] with each message, from this PML's polls or from Open MPI's progress. Called by `context`
//! ([`add`], [`remove`]), `progress` ([`poll`]) and the messenger (`engine::messenger::host::SharedMemory`). Grade:
//! hot; [`add`] and [`remove`]: setup. Threads: any. Tests: `pml/tests.rs`, and `hw-tests/tests/device/local.rs`.

use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};

use engine::messenger::header::{Header, MAX_SIZE};
use engine::messenger::host::{self, Payload};
use engine::messenger::rails::backlog;
use engine::messenger::receive::{self, search};
use engine::messenger::rendezvous::single_copy;
use engine::messenger::route::Route;
use ibex_ffi::openmpi::process::Process;
use ibex_ffi::openmpi::release::{Receiver, received_by};
use ibex_ffi::openmpi::sys;

use super::shared_memory::{EAGER, OTHER, SharedMemory};
use crate::pml::datatype::Extent;
use crate::pml::instance::{Pml, State, pml};
use crate::pml::request::{Handle, Request};
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
        state.messenger.rails.known.insert(peer, Route::local(*at));
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
pub(crate) unsafe fn arrived(
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
            // SAFETY: P4: the message has one segment, whose bytes the BTL has received.
            let bytes = unsafe {
                std::slice::from_raw_parts((*segments).seg_addr.pval.cast::<u8>(), (*segments).seg_len as usize)
            };
            pml.with_state(|state| deal(pml, state, tag, bytes));
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
            pml.with_state(|state| deal(pml, state, tag, &bytes));
        }
    });
}

#[inline(always)]
fn deal(pml: &Pml, state: &mut State, tag: u8, bytes: &[u8]) {
    if tag == EAGER {
        if !search::is_taken(state, bytes, None) {
            receive::handle(pml, state, bytes, || Some(Route::UNKNOWN));
        }
        return;
    }
    // The sender's place.
    let Some((place, bytes)) = bytes.split_first_chunk() else { return };
    let place = u32::from_le_bytes(*place);
    if !pml.shared_memory().is_some_and(|shared| shared.reaches(place)) {
        return;
    }
    receive::handle(pml, state, bytes, || Some(Route::local(place)));
}

/// Receives messages from processes of this host, and sends those that wait. Returns the number of both.
#[inline]
pub(crate) fn poll(pml: &Pml, state: &mut State, shared: &SharedMemory) -> usize {
    let count = pml.within(state, || shared.progress());
    if state.messenger.rails.backlog.is_empty() { count } else { count + backlog::send_waiting(pml, state) }
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

impl host::SharedMemory for State {
    fn room(&self, pml: &Pml) -> Option<usize> {
        pml.shared_memory().map(SharedMemory::room)
    }

    fn send_locally(&mut self, pml: &Pml, to: u32, header: &Header, payload: &Payload<Handle>) -> bool {
        let Some(shared) = pml.shared_memory() else { return false };
        let data = match payload {
            Payload::Nothing => Extent::EMPTY,
            // SAFETY: the payload lives until the end of this call.
            Payload::Packed(bytes) => unsafe { Extent::of_copy(bytes) },
            Payload::Part(send, offset, length) => self.requests.core(*send).data.extent().part(*offset, *length),
        };
        let (tag, bytes, length) = head(shared, header);
        shared.send(to, tag, &bytes[..length], data)
    }

    fn hold_up(&mut self, pml: &Pml, to: u32, waits: bool) {
        if let Some(shared) = pml.shared_memory() {
            shared.hold_up(to, waits);
        }
    }

    /// The BTL calls [`copied`], mostly within this call.
    fn copy_from_process(&mut self, pml: &Pml, receive: Handle, route: Route, (address, wanted): (u64, u64)) -> bool {
        let (Some(shared), Some(from)) = (pml.shared_memory(), route.as_local()) else { return false };
        let (to, data) = (self.requests.core(receive).data.extent().start, receive.pointer().as_ptr().cast());
        // SAFETY: P2: the BTL writes the memory until it calls `copied`, and the receive is finished only there.
        pml.within(self, || unsafe { shared.get(from, (to, wanted as usize), address, Some(copied), data) })
    }
}

/// Returns the tag of a message, the bytes that stand before its data, and their number.
fn head(shared: &SharedMemory, header: &Header) -> (u8, [u8; size_of::<u32>() + MAX_SIZE], usize) {
    let encoded = header.encode();
    let mut bytes = [0; size_of::<u32>() + MAX_SIZE];
    let is_eager = matches!(header, Header::Eager(_));
    let before = if is_eager { 0 } else { size_of::<u32>() };
    let length = before + encoded.as_slice().len();
    bytes[..before].copy_from_slice(&shared.me.to_le_bytes()[..before]);
    bytes[before..length].copy_from_slice(encoded.as_slice());
    (if is_eager { EAGER } else { OTHER }, bytes, length)
}

/// `mca_btl_base_rdma_completion_fn_t`: the BTL has copied the bytes, or has failed to.
unsafe extern "C" fn copied(
    _btl: *mut sys::mca_btl_base_module_t,
    _endpoint: *mut sys::mca_btl_base_endpoint_t,
    _to: *mut c_void,
    _handle: *mut sys::mca_btl_base_registration_handle_t,
    _context: *mut c_void,
    data: *mut c_void,
    status: c_int,
) {
    fence("the end of a copy", (), || {
        let (Some(pml), Some(receive)) = (pml(), NonNull::new(data.cast::<Request>())) else { return };
        // SAFETY: P1: `data` is the receive that `copy_from_process` gave the BTL, which calls this once.
        let receive = unsafe { Handle::new(receive) };
        pml.with_state(|state| single_copy::done(pml, state, receive, status == sys::OPAL_SUCCESS));
    });
}
