// SPDX-License-Identifier: MIT OR Apache-2.0
//! The specifications with which listeners are called. Grade: setup.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};

use engine::messenger::path_taken::PathTaken;
use ibex_ffi::openmpi::sys;

use crate::runtime::entry::Argument;

/// `peruse_comm_spec_t`, as a callback gets it, followed by fields that PERUSE does not have.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub(crate) comm: *mut sys::ompi_communicator_t,
    pub(crate) buf: *mut c_void,
    pub(crate) count: c_int,
    pub(crate) datatype: *mut sys::ompi_datatype_t,
    pub(crate) peer: c_int,
    pub(crate) tag: c_int,
    pub(crate) operation: c_int,
    /// Context number of the communicator. This and the following fields are ibex' own; this one fills C's padding.
    pub(crate) context: u32,
    pub(crate) bytes: u64,
    /// Time of the event, written by the first listener that reads the clock. Before that it is 0, or `DELIVERED`
    /// (`tool/mpi_t/instance.rs`) if an earlier listener has the event already. A lone listener ignores the value.
    pub(crate) stamp: u64,
}

impl Spec {
    pub(crate) const EMPTY: Spec = Spec {
        comm: null_mut(),
        buf: null_mut(),
        count: 0,
        datatype: null_mut(),
        peer: 0,
        tag: 0,
        operation: 0,
        context: 0,
        bytes: 0,
        stamp: 0,
    };
}

/// Argument of listeners to [`Event::Protocol`](super::Event::Protocol), in place of a [`Spec`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProtocolSpec {
    /// Specification of the request; only `bytes` is the message's.
    pub(crate) spec: Spec,
    /// For a receive: number of its message.
    pub(crate) message: u64,
    pub(crate) path: PathTaken,
}

/// The specification of an event during the call of a listener (N3). Its fields are copied, so no reference to them is
/// held while another listener is called.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct SpecPointer<'call>(NonNull<Spec>, PhantomData<&'call mut Spec>);

// SAFETY: a pointer. N3.
unsafe impl Argument<*mut Spec> for SpecPointer<'_> {}

impl SpecPointer<'_> {
    #[inline(always)]
    pub(crate) fn as_ptr(self) -> *mut Spec {
        self.0.as_ptr()
    }

    #[inline(always)]
    pub(crate) fn fields(self) -> Spec {
        // SAFETY: N3: it outlives the call.
        unsafe { self.0.read() }
    }

    #[inline(always)]
    pub(crate) fn set_stamp(self, stamp: u64) {
        // SAFETY: N3: it outlives the call.
        unsafe { (&raw mut (*self.as_ptr()).stamp).write(stamp) };
    }
}

impl<'call> From<&'call mut Spec> for SpecPointer<'call> {
    #[inline(always)]
    fn from(spec: &'call mut Spec) -> Self {
        SpecPointer(NonNull::from(spec), PhantomData)
    }
}

impl<'call> From<&'call mut ProtocolSpec> for SpecPointer<'call> {
    fn from(spec: &'call mut ProtocolSpec) -> Self {
        SpecPointer(NonNull::from(spec).cast(), PhantomData)
    }
}
