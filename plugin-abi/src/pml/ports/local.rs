// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processes of this host: makes them reachable by shared memory, and receives and sends messages there.
//!
//! The BTL passes each message ([`Receives`]), from this PML's polls or from Open MPI's progress. Called by `context`
//! ([`add`], [`remove`]), `progress` ([`poll`]) and the messenger (`engine::messenger::host::SharedMemory`). Grade:
//! hot; [`add`] and [`remove`]: setup. Threads: any. Tests: `pml/tests.rs`, and `hw-tests/tests/device/local.rs`.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use engine::messenger::header::{Header, MAX_SIZE};
use engine::messenger::host::{self, Payload};
use engine::messenger::rails::backlog;
use engine::messenger::receive::{self, search};
use engine::messenger::rendezvous::single_copy;
use engine::messenger::route::Route;
use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::InlineSpan;

use crate::pml::instance::{Pml, State, pml};
use crate::pml::request::{Handle, Request};
use crate::runtime::guard::fence;
use crate::runtime::shared_memory::{EAGER, OTHER, Receives, SharedMemory};
use crate::runtime::variables::now;
use crate::runtime::{messages, modex, shared_memory};

/// Adds the processes that shared memory reaches. Called once, with all processes of the host, in order of rank.
pub(crate) unsafe fn add(pml: &Pml, procs: &[*mut sys::ompi_proc_t]) {
    if pml.shared_memory().is_some() {
        return;
    }
    // SAFETY: P4: live processes; Open MPI opens the BTLs before a PML adds processes.
    let Some((shared, reached)) = (unsafe { SharedMemory::open::<Pml>(procs) }) else { return };
    let Some(mut state) = pml.enter() else { return };
    for (place, name) in &reached {
        let peer = modex::from_openmpi(*name);
        state.messenger.rails.known.insert(peer, Route::local(*place));
        if now::verbosity() > 0 {
            messages::verbose(&format!("rank {} is reached by shared memory", peer.rank));
        }
    }
    drop(state);
    if !reached.is_empty() {
        pml.use_shared_memory(shared);
    }
}

impl Receives for Pml {
    #[inline(always)]
    fn received(btl: *mut sys::mca_btl_base_module_t, tag: u8, bytes: &[u8]) {
        let Some(pml) = pml() else { return };
        // A BTL for a network may not deliver messages with these tags.
        if pml.shared_memory().is_some_and(|shared| shared.is(btl)) {
            // Without `leave`, which could enter the BTL from its own callback; the next progress does that.
            pml.state.with(|state| deal(pml, state, tag, bytes));
        }
    }
}

#[inline(always)]
fn deal(pml: &Pml, state: &mut State, tag: u8, bytes: &[u8]) {
    if tag == EAGER {
        if !search::is_taken(state, bytes, |_, _, _, _| false) {
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
    let count = pml.state.within(state, || shared.progress());
    if state.messenger.rails.backlog.is_empty() { count } else { count + backlog::send_waiting(pml, state) }
}

/// Removes processes that were added.
pub(crate) unsafe fn remove(pml: &Pml, procs: &[*mut sys::ompi_proc_t]) {
    if pml.shared_memory().is_some() {
        // SAFETY: P4: live processes that were added.
        unsafe { shared_memory::remove(procs) };
    }
}

impl host::SharedMemory for State {
    fn room(&self, pml: &Pml) -> Option<usize> {
        pml.shared_memory().map(SharedMemory::room)
    }

    fn send_locally(&mut self, pml: &Pml, to: u32, header: &Header, payload: &Payload<Handle>) -> bool {
        let Some(shared) = pml.shared_memory() else { return false };
        let part;
        let data = match payload {
            Payload::Nothing => InlineSpan::EMPTY,
            Payload::Packed(bytes) => (&bytes[..]).into(),
            Payload::Part(send, offset, length) => {
                part = self.requests.core(*send).data.extent().part(*offset, *length);
                part.span()
            }
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
        pml.state.within(self, || unsafe { shared.get(from, (to, wanted as usize), address, Some(copied), data) })
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
        pml.state.with(|state| single_copy::done(pml, state, receive, status == sys::OPAL_SUCCESS));
    });
}
