// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pml_iprobe`, `pml_probe`, `pml_improbe`, `pml_mprobe`: whether a message has arrived, and which.
//!
//! A probe that finds nothing calls Open MPI's progress engine, because the program may call nothing else. Grade:
//! pending. Threads: any. Tests: `pt2pt_matching.c` in `hw-tests/mpi`.

use std::ffi::c_int;
use std::mem::{MaybeUninit, forget};
use std::ptr::{NonNull, null_mut};

use engine::messenger::matching::MessageHandle;
use engine::messenger::receive::probe::{self, Found};
use ibex_ffi::openmpi::sys;

use super::receive::say;
use super::{Code, answer, there};
use crate::pml::communicator::Comm;
use crate::pml::instance::Pml;
use crate::pml::progress::{Idle, leave, poll};
use crate::runtime::entry::Argument;
use crate::runtime::libmpi;

/// Place of a status; `None` if the program ignores it.
pub(crate) type Status<'call> = Option<&'call mut sys::ompi_status_public_t>;

/// The arguments of a probe.
#[derive(Clone, Copy)]
struct Probed {
    of: (i32, i32),
    comm: Comm,
}

impl Probed {
    /// Polls once and searches. `takes`: takes the message out.
    fn look(self, pml: &Pml, takes: bool) -> Option<Found> {
        let mut state = pml.enter()?;
        poll(pml, &mut state);
        let found = probe::probe(pml, &mut *state, self.comm.part(), self.of, takes);
        leave(pml, state);
        found
    }

    /// [`Self::look`] until a message is found.
    fn wait(self, pml: &Pml, takes: bool) -> Found {
        let mut idle = Idle::new();
        loop {
            if let Some(found) = self.look(pml, takes) {
                return found;
            }
            idle.nothing_happened();
        }
    }
}

fn say_found(status: Status<'_>, found: &Found) {
    let ended = sys::ompi_status_public_t {
        MPI_SOURCE: found.envelope.source(),
        MPI_TAG: found.envelope.tag(),
        MPI_ERROR: sys::OPAL_SUCCESS,
        _cancelled: 0,
        _ucount: found.length,
    };
    say(status, &ended);
}

/// Argument of MPI: its handle for the message of a matched probe, which has a reference to the communicator; or, as
/// the place of one, anything.
#[repr(transparent)]
pub(crate) struct Matched(MaybeUninit<*mut sys::ompi_message_t>);

// SAFETY: the same pointer.
unsafe impl Argument<*mut *mut sys::ompi_message_t> for &mut Matched {}

impl Matched {
    /// Returns the communicator with its reference, and the message, and sets the handle to null.
    pub(super) fn take(&mut self) -> (Comm, MessageHandle) {
        // SAFETY: M4: MPI's handle is a message of Open MPI's that `NewMessage::pass` has filled in, and that is
        // returned once; its communicator lives.
        unsafe {
            let message = self.0.assume_init();
            let (comm, bits) = ((*message).comm, (*message).req_ptr.addr() as u64);
            libmpi::ibex_message_return(message);
            self.0.write(libmpi::ibex_message_null());
            (Comm::new(comm), MessageHandle::from_bits(bits))
        }
    }

    #[cfg(test)]
    pub(crate) fn nothing() -> Self {
        Matched(MaybeUninit::uninit())
    }

    fn set_null(&mut self) {
        // SAFETY: takes the address of an object that Open MPI never frees.
        self.0.write(unsafe { libmpi::ibex_message_null() });
    }
}

/// A new message of Open MPI's, with a reference to the communicator. Made before the search, because a message that is
/// taken out without a handle is lost.
struct NewMessage(NonNull<sys::ompi_message_t>);

impl NewMessage {
    fn new(comm: Comm) -> Result<Self, Code> {
        // SAFETY: M4: MPI's communicator lives.
        let message = unsafe { libmpi::ibex_message_alloc(comm.raw()) };
        NonNull::new(message).map(NewMessage).ok_or(Code::NO_RESOURCE)
    }

    /// Fills the message in and passes it to MPI.
    fn pass(mut self, found: &Found, place: &mut Matched) {
        // SAFETY: Open MPI has returned this message from its list, and only this value has it.
        let message = unsafe { self.0.as_mut() };
        let bits = found.message.map_or(0, MessageHandle::bits);
        message.req_ptr = null_mut::<std::ffi::c_void>().with_addr(bits as usize);
        message.peer = found.envelope.source();
        message.count = found.length;
        place.0.write(self.0.as_ptr());
        forget(self);
    }
}

impl Drop for NewMessage {
    fn drop(&mut self) {
        // SAFETY: the message of `new`, not passed to MPI, and the reference that came with it; both are released once.
        unsafe {
            let comm = self.0.as_ref().comm;
            libmpi::ibex_message_return(self.0.as_ptr());
            libmpi::ibex_communicator_release(comm);
        }
    }
}

pub(crate) extern "C" fn pml_iprobe(
    from: c_int,
    tag: c_int,
    comm: Comm,
    matched: &mut MaybeUninit<c_int>,
    status: Status<'_>,
) -> c_int {
    answer("pml_iprobe", || {
        let found = Probed { of: (from, tag), comm }.look(there()?, false);
        matched.write(found.is_some().into());
        match found {
            Some(found) => say_found(status, &found),
            None => libmpi::progress(),
        }
        Ok(())
    })
}

pub(crate) extern "C" fn pml_probe(from: c_int, tag: c_int, comm: Comm, status: Status<'_>) -> c_int {
    answer("pml_probe", || {
        say_found(status, &Probed { of: (from, tag), comm }.wait(there()?, false));
        Ok(())
    })
}

pub(crate) extern "C" fn pml_improbe(
    from: c_int,
    tag: c_int,
    comm: Comm,
    matched: &mut MaybeUninit<c_int>,
    message: &mut Matched,
    status: Status<'_>,
) -> c_int {
    answer("pml_improbe", || {
        let (pml, new) = (there()?, NewMessage::new(comm)?);
        let found = Probed { of: (from, tag), comm }.look(pml, true);
        matched.write(found.is_some().into());
        if let Some(found) = found {
            new.pass(&found, message);
            say_found(status, &found);
        } else {
            message.set_null();
            libmpi::progress();
        }
        Ok(())
    })
}

pub(crate) extern "C" fn pml_mprobe(
    from: c_int,
    tag: c_int,
    comm: Comm,
    message: &mut Matched,
    status: Status<'_>,
) -> c_int {
    answer("pml_mprobe", || {
        let (pml, new) = (there()?, NewMessage::new(comm)?);
        let found = Probed { of: (from, tag), comm }.wait(pml, true);
        new.pass(&found, message);
        say_found(status, &found);
        Ok(())
    })
}
