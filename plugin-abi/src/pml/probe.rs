// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pml_iprobe`, `pml_probe`, `pml_improbe`, `pml_mprobe`: whether a message has arrived, and which.
//!
//! A probe that finds nothing calls Open MPI's progress engine, because the program may call nothing else. Grade:
//! pending. Threads: any. Tests: `pt2pt_matching.c` in `hw-tests/mpi`.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use engine::messenger::matching::MessageHandle;
use engine::messenger::receive::probe::{self, Found};
use ibex_ffi::openmpi::sys;

use super::communicator::Communicator;
use super::instance::{Pml, pml};
use super::libmpi;
use super::progress::{Idle, leave, poll};
use super::receive::say;
use crate::runtime::guard::fence;

/// The arguments of a probe.
struct Probed {
    from: i32,
    tag: i32,
    comm: *mut sys::ompi_communicator_t,
}

impl Probed {
    /// Polls once and searches. `takes`: takes the message out.
    unsafe fn look(&self, pml: &Pml, takes: bool) -> Option<Found> {
        let mut state = pml.enter()?;
        poll(pml, &mut state);
        // SAFETY: P4: MPI's communicator.
        let communicator = unsafe { Communicator::of(self.comm) };
        let found = probe::probe(pml, &mut *state, communicator, (self.from, self.tag), takes);
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

/// # Safety
/// P4: `status` is null or MPI's.
unsafe fn say_found(found: &Found, status: *mut sys::ompi_status_public_t) {
    let found = sys::ompi_status_public_t {
        MPI_SOURCE: found.envelope.source(),
        MPI_TAG: found.envelope.tag(),
        MPI_ERROR: sys::OPAL_SUCCESS,
        _cancelled: 0,
        _ucount: found.length,
    };
    // SAFETY: P4: `status` is null or MPI's, as this function requires.
    unsafe { say(status, &found) };
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
        of_mpi.req_ptr = std::ptr::without_provenance_mut(found.message.map_or(0, MessageHandle::bits) as usize);
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
                Some(found) => say_found(&found, status),
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
        unsafe { say_found(&Probed { from, tag, comm }.wait(pml, false), status) };
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
                say_found(&found, status);
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
            say_found(&found, status);
        }
        sys::OPAL_SUCCESS
    })
}
