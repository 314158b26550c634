// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pml_iprobe`, `pml_probe`, `pml_improbe`, `pml_mprobe`: whether a message has arrived, and which.
//!
//! A probe that finds nothing calls Open MPI's progress engine, because the program may call nothing else. Grade:
//! pending. Threads: any. Tests: `pt2pt_matching.c` in `hw-tests/mpi`.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use engine::messenger::flow_control;
use engine::messenger::host::Communicators;
use engine::messenger::matching::{Envelope, Pattern};
use ibex_ffi::openmpi::sys;

use super::communicator::{Communicator, Queues};
use super::instance::{Pml, pml};
use super::libmpi;
use super::progress::{Idle, leave, poll};
use super::receive::say;
use super::tools::watch;
use crate::runtime::guard::fence;

/// The arguments of a probe.
struct Probed {
    from: i32,
    tag: i32,
    comm: *mut sys::ompi_communicator_t,
}

/// A message that was found; it has a handle if it was taken out.
pub(super) struct Found {
    pub(super) envelope: Envelope,
    pub(super) length: usize,
    pub(super) handle: Option<u64>,
}

impl Probed {
    /// Polls once and searches. `takes`: takes the message out.
    unsafe fn look(&self, pml: &Pml, takes: bool) -> Option<Found> {
        let mut state = pml.enter()?;
        poll(pml, &mut state);
        let (pattern, of) = (Pattern::new(self.from, self.tag), (self.from, self.tag));
        // SAFETY: P4: MPI's communicator.
        let communicator = unsafe { Communicator::of(self.comm) };
        let found = if takes {
            let search = |queues: &mut Queues| {
                let message = queues.matched_probe(pattern).found?;
                let length = queues.message_mut(message.message).map_or(0, |arrived| arrived.length());
                Some((message, length))
            };
            watch::probe(&mut state, communicator, of, search).map(|(message, length)| {
                communicator.has_taken(&mut state, length);
                watch::taken(&mut state, communicator, message.envelope, message.message);
                Found { envelope: message.envelope, length, handle: Some(message.message.bits()) }
            })
        } else {
            let search = |queues: &mut Queues| {
                let message = queues.probe(pattern).found?;
                Some(Found { envelope: message.envelope, length: message.message.length(), handle: None })
            };
            watch::probe(&mut state, communicator, of, search)
        };
        // A matched probe does not answer its message, so it, too, asks for more if the queue is empty now.
        if found.is_none() || takes && state.queues(communicator).unexpected() == 0 {
            flow_control::found_nothing(pml, &mut *state, communicator.context);
        }
        leave(pml, state);
        found
    }

    /// [`Self::look`] until a message is found.
    unsafe fn wait(&self, pml: &Pml, takes: bool) -> Found {
        let mut idle = Idle::new();
        loop {
            // SAFETY: P4: MPI's communicator lives, as this function requires.
            if let Some(found) = unsafe { self.look(pml, takes) } {
                return found;
            }
            idle.nothing_happened();
        }
    }
}

impl Found {
    unsafe fn say(&self, status: *mut sys::ompi_status_public_t) {
        let found = sys::ompi_status_public_t {
            MPI_SOURCE: self.envelope.source(),
            MPI_TAG: self.envelope.tag(),
            MPI_ERROR: sys::OPAL_SUCCESS,
            _cancelled: 0,
            _ucount: self.length,
        };
        // SAFETY: P4: `status` is null or MPI's, as this function requires.
        unsafe { say(status, &found) };
    }
}

/// MPI's handle for a message, with a reference to the communicator. Made before the search, because a message that is
/// taken out without a handle is lost.
struct Handle(NonNull<sys::ompi_message_t>);

impl Handle {
    unsafe fn new(comm: *mut sys::ompi_communicator_t) -> Option<Handle> {
        // SAFETY: P4: MPI's communicator lives, as this function requires.
        NonNull::new(unsafe { libmpi::ibex_message_alloc(comm) }).map(Handle)
    }

    /// Fills the handle in and passes it to MPI.
    fn hold(self, found: &Found) -> *mut sys::ompi_message_t {
        let mut message = ManuallyDrop::new(self).0;
        // SAFETY: Open MPI has returned this message from its list, and only this handle has it.
        let of_mpi = unsafe { message.as_mut() };
        of_mpi.req_ptr = std::ptr::without_provenance_mut(found.handle.unwrap_or_default() as usize);
        of_mpi.peer = found.envelope.source();
        of_mpi.count = found.length;
        message.as_ptr()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the message of `new`, not passed to MPI, and the reference that came with it; both are released once.
        unsafe {
            let comm = self.0.as_ref().comm;
            libmpi::ibex_message_return(self.0.as_ptr());
            libmpi::ibex_communicator_release(comm);
        }
    }
}

pub(crate) unsafe extern "C" fn pml_iprobe(
    from: c_int,
    tag: c_int,
    comm: *mut sys::ompi_communicator_t,
    matched: *mut c_int,
    status: *mut sys::ompi_status_public_t,
) -> c_int {
    fence("pml_iprobe", sys::OPAL_ERROR, || {
        let Some(pml) = pml() else { return sys::OPAL_ERR_NOT_AVAILABLE };
        // SAFETY: P4: MPI's arguments. `look` has left the PML, so nothing is entered in `opal_progress`.
        unsafe {
            let found = Probed { from, tag, comm }.look(pml, false);
            matched.write(c_int::from(found.is_some()));
            match found {
                Some(found) => found.say(status),
                None => {
                    libmpi::opal_progress();
                }
            }
        }
        sys::OPAL_SUCCESS
    })
}

pub(crate) unsafe extern "C" fn pml_probe(
    from: c_int,
    tag: c_int,
    comm: *mut sys::ompi_communicator_t,
    status: *mut sys::ompi_status_public_t,
) -> c_int {
    fence("pml_probe", sys::OPAL_ERROR, || {
        let Some(pml) = pml() else { return sys::OPAL_ERR_NOT_AVAILABLE };
        // SAFETY: P4: MPI's arguments.
        unsafe { Probed { from, tag, comm }.wait(pml, false).say(status) };
        sys::OPAL_SUCCESS
    })
}

pub(crate) unsafe extern "C" fn pml_improbe(
    from: c_int,
    tag: c_int,
    comm: *mut sys::ompi_communicator_t,
    matched: *mut c_int,
    message: *mut *mut sys::ompi_message_t,
    status: *mut sys::ompi_status_public_t,
) -> c_int {
    fence("pml_improbe", sys::OPAL_ERROR, || {
        let Some(pml) = pml() else { return sys::OPAL_ERR_NOT_AVAILABLE };
        // SAFETY: P4: MPI's arguments. `look` has left the PML, so nothing is entered in `opal_progress`.
        unsafe {
            let Some(handle) = Handle::new(comm) else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
            let found = Probed { from, tag, comm }.look(pml, true);
            matched.write(c_int::from(found.is_some()));
            if let Some(found) = found {
                message.write(handle.hold(&found));
                found.say(status);
            } else {
                message.write(libmpi::ibex_message_null());
                libmpi::opal_progress();
            }
        }
        sys::OPAL_SUCCESS
    })
}

pub(crate) unsafe extern "C" fn pml_mprobe(
    from: c_int,
    tag: c_int,
    comm: *mut sys::ompi_communicator_t,
    message: *mut *mut sys::ompi_message_t,
    status: *mut sys::ompi_status_public_t,
) -> c_int {
    fence("pml_mprobe", sys::OPAL_ERROR, || {
        let Some(pml) = pml() else { return sys::OPAL_ERR_NOT_AVAILABLE };
        // SAFETY: P4: MPI's arguments.
        unsafe {
            let Some(handle) = Handle::new(comm) else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
            let found = Probed { from, tag, comm }.wait(pml, true);
            message.write(handle.hold(&found));
            found.say(status);
        }
        sys::OPAL_SUCCESS
    })
}
