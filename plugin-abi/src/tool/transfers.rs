// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfers of the PML as events of the engine: `ibex_msg_arrived`, `ibex_xfer_begin`, `ibex_xfer_continue`,
//! `ibex_xfer_end`.
//!
//! While a tool is registered for one of them, or for RDMA reads (which name the numbers of their requests), one
//! listener to all communicators gives them to the engine. Their source is the port whose completion reported them, or
//! else the thread. The engine finds the registrations for the communicator. Called by `registration.rs` when
//! registrations come and go. Grade: setup; [`tell`] runs at the site of a transfer, in the entered PML. Threads: any;
//! [`tell`] one at a time. Safety: N1 to N4 of `runtime/listeners.rs`. Tests: `hw-tests/tools/mpi_t_transfers.c`.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use engine::events::{self, EventGroup, MsgArrived, XferBegin, XferContinue, XferEnd};

use crate::runtime::listeners::{self, Event, Listener, Spec, Step, TransferSpec};
use crate::runtime::watch;

/// Handle of the listener; no registration has it.
const HANDLE: i64 = -1;

/// Whether the listener is added.
static LISTENS: Mutex<bool> = Mutex::new(false);

/// Adds or removes the listener. To be called when a registration has got a callback or was freed. The caller holds no
/// lock that a callback takes.
pub(super) fn follow() {
    let wanted = events::interest().has_transfers();
    let mut listens = LISTENS.lock().unwrap_or_else(PoisonError::into_inner);
    if wanted == *listens {
        return;
    }
    *listens = wanted;
    watch::set_transfers(wanted);
    if wanted {
        let listener = Listener { handle: HANDLE, function: tell, alone: tell, param: null_mut() };
        listeners::add_everywhere(Event::Transfer, listener, || true);
    } else {
        listeners::remove_everywhere(Event::Transfer, HANDLE);
    }
}

/// Fills in one of three types with the same elements.
macro_rules! transfer {
    ($type:ident, $request:expr, $told:expr, $port:expr) => {
        $type {
            request: $request,
            message: $told.message,
            offset: $told.offset,
            bytes: $told.bytes,
            total: $told.total,
            context: $told.spec.context,
            source: $told.source,
            tag: $told.tag,
            direction: $told.spec.operation as u32,
            peer: $told.process,
            port: $port,
            thread: events::this_thread(),
        }
    };
}

unsafe extern "C" fn tell(_: i64, id: isize, spec: *mut Spec, _: *mut c_void) -> c_int {
    // SAFETY: N3: this event's specification is the first field of a `TransferSpec`.
    let told = unsafe { &*spec.cast::<TransferSpec>() };
    let request = id as u64;
    let port = told.completed.map_or(u32::MAX, |by| by.port.into());
    let mut group = EventGroup::new(events::interest());
    match told.step {
        Step::Arrived => group.add(|| MsgArrived {
            message: told.message,
            bytes: told.bytes,
            total: told.total,
            context: told.spec.context,
            source: told.source,
            tag: told.tag,
            peer: told.process,
            port,
            thread: events::this_thread(),
        }),
        Step::Begins => group.add(|| transfer!(XferBegin, request, told, port)),
        Step::Continues => group.add(|| transfer!(XferContinue, request, told, port)),
        Step::Ends => group.add(|| transfer!(XferEnd, request, told, port)),
    }
    watch::stage(group, told.completed);
    0
}
