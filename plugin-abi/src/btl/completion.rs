// SPDX-License-Identifier: MIT OR Apache-2.0
//! What has happened beside messages received: requests that are done, peers that failed, links that changed.
//!
//! Called by `progress` for each such event, outside of the port: callbacks to Open MPI run in here and may call ibex
//! again. What the callbacks leave to be given back is chained in [`FinishedDescriptors`]. Grade: hot for completions.
//! Threads: any.

use std::ffi::c_int;
use std::ptr::null_mut;

use engine::transport::{Batch, Completion, EndpointId, Failed};
use ibex_ffi::openmpi::sys;

use super::descriptor::pool::{Descriptor, take_registration};
use super::detour::{self, Again};
use super::module::Module;
use super::operation::Operation;
use super::token::{Record, record};
use super::{failures, watch};
use crate::runtime::operation_chain::{Link, OperationChain};

/// The descriptors that the callbacks of a batch have left to be given back: a chain through the descriptors
/// themselves.
pub(crate) struct FinishedDescriptors(pub(crate) *mut Descriptor);

impl FinishedDescriptors {
    pub(crate) const NONE: FinishedDescriptors = FinishedDescriptors(null_mut());
}

/// What the adapter stamped the completion at `index` of a batch with, while a tool listens.
#[cold]
#[inline(never)]
pub(crate) fn stamp(module: &Module, batch: &Batch, index: usize) -> watch::Stamp {
    module.source().zip(batch.stamp(index))
}

/// Something other than a message.
#[inline(never)]
pub(crate) fn handle_non_message<const WATCHED: bool>(
    module: &Module,
    batch: &Batch,
    (index, completion): (usize, &Completion),
    finished: &mut FinishedDescriptors,
) {
    match *completion {
        Completion::Request { token, to, outcome } => {
            match record(token) {
                Some(Record::Descriptor(descriptor)) => {
                    let descriptor = descriptor.as_ptr();
                    let status = match outcome {
                        Ok(()) => sys::OPAL_SUCCESS,
                        // SAFETY: the engine gives a token back once, and it was one of this module's descriptors.
                        Err(failed) => match unsafe { not_sent(module, descriptor, to, failed) } {
                            Some(status) => status,
                            None => return,
                        },
                    };
                    // SAFETY: the engine gives a token back once, and it was one of this module's descriptors.
                    unsafe { send_done(module, descriptor, to, status, finished) };
                }
                // SAFETY: the engine gives a token back once, and it was one of this module's operations.
                Some(Record::Operation(operation)) => unsafe {
                    let stamp = if WATCHED { stamp(module, batch, index) } else { None };
                    operation_done(module, operation.as_ptr(), to, outcome, stamp);
                },
                // The PML's, which has dealt with it, or is in use no more.
                None => {}
            }
        }
        Completion::PeerFailed { peer } => failures::peer_failed(module, peer),
        Completion::LinkChanged { is_up } => detour::link_changed(module, is_up),
        Completion::Message { .. } => {}
    }
}

/// A message did not reach its peer by this port: how its send ended all the same; `None`: it is under way again.
///
/// # Safety
/// `descriptor` is the adapter's no more, and one of this module's.
#[cold]
#[inline(never)]
unsafe fn not_sent(module: &Module, descriptor: *mut Descriptor, to: EndpointId, failed: Failed) -> Option<c_int> {
    // SAFETY: M2, M3: the adapter has it no more, as the caller says; what was posted is not sent again.
    match unsafe { detour::again(module, to, descriptor, failed) } {
        Again::UnderWay => return None,
        Again::Sent => return Some(sys::OPAL_SUCCESS),
        Again::Failed => {}
    }
    if !failed.posted && failures::has_failed(module, to) {
        // Open MPI need not have asked to hear of it, and the peer would wait for it.
        failures::lost(module, to);
    }
    // SAFETY: M2: it is not under way again, so that nobody else uses it.
    let is_told = unsafe { (*descriptor).callback_wanted };
    Some(if is_told { failures::failed(module, to, failed) } else { sys::OPAL_ERROR })
}

/// How a request ended, as Open MPI says it. That it failed Open MPI hears after the user.
#[inline]
fn status(module: &Module, to: EndpointId, outcome: Result<(), Failed>) -> c_int {
    match outcome {
        Ok(()) => sys::OPAL_SUCCESS,
        Err(failed) => failures::failed(module, to, failed),
    }
}

/// A descriptor's send is done.
///
/// # Safety
/// `descriptor` is the adapter's no more, and one of this module's.
#[inline]
unsafe fn send_done(
    module: &Module,
    descriptor: *mut Descriptor,
    to: EndpointId,
    status: c_int,
    finished: &mut FinishedDescriptors,
) {
    // SAFETY: the caller says that the adapter has it no more, and Open MPI is not told yet.
    let wanted = unsafe { (*descriptor).callback_wanted };
    // SAFETY: nobody else uses it before the callback, which may free a descriptor that is not ibex's to free.
    let owned = unsafe { (*descriptor).base.des_flags } & sys::MCA_BTL_DES_FLAGS_BTL_OWNERSHIP != 0;
    if wanted {
        // SAFETY: nobody else uses it before the callback.
        let function = unsafe { (*descriptor).base.des_cbfunc };
        if let Some(function) = function {
            // SAFETY: the callback Open MPI set, with what it sent (btl.h, mca_btl_base_completion_fn_t).
            unsafe { function(module.as_raw(), module.pointer(to), descriptor.cast(), status) };
        }
    }
    if owned {
        // SAFETY: ibex's own: Open MPI is through with it.
        if let Some(registered) = unsafe { take_registration(descriptor) } {
            // SAFETY: the send that named it is done (R3).
            unsafe { module.memory().put_back(registered) };
        }
        // SAFETY: ibex's own: Open MPI is through with it.
        unsafe { (*descriptor).next = finished.0 };
        finished.0 = descriptor;
    }
}

/// Tells Open MPI of operations that a poll has taken, which have succeeded, and gives their records back.
///
/// # Safety
/// They are the caller's own, and no port is entered.
#[inline]
pub(crate) unsafe fn operations_done(done: &OperationChain) {
    let Some(first) = done.first() else { return };
    let mut next = Some(first);
    while let Some(link) = next {
        // SAFETY: the caller has the chain alone; a link is the start of an operation.
        let call = unsafe { (*link.cast::<Operation>().as_ptr()).call };
        // SAFETY: in the chain, so over, and Open MPI is told of it once, here.
        unsafe { call.call(sys::OPAL_SUCCESS) };
        // SAFETY: in the chain.
        next = unsafe { Link::next(link) };
    }
    let mut next = Some(first);
    while let Some(link) = next {
        let operation = link.cast::<Operation>().as_ptr();
        // SAFETY: the caller has the chain alone, and Open MPI was told of all of it; M1: its module's.
        unsafe {
            next = Link::next(link);
            give_back(Module::from_raw((*operation).call.btl), operation);
        }
    }
}

/// A put, a get or an atomic is done, and was in a batch.
///
/// # Safety
/// `operation` is one of this module's, and no request has it as its token any more.
#[inline]
unsafe fn operation_done(
    module: &Module,
    operation: *mut Operation,
    to: EndpointId,
    outcome: Result<(), Failed>,
    stamp: watch::Stamp,
) {
    // SAFETY: the caller says that no request has it as its token any more: nobody else uses it.
    let &Operation { call, watched, .. } = unsafe { &*operation };
    // SAFETY: no request has it as its token any more, so it is over; Open MPI is told once, here.
    unsafe { call.call(status(module, to, outcome)) };
    if call.is_watched {
        // SAFETY: `is_watched` says that it was written.
        watch::done(unsafe { watched.assume_init_ref() }, outcome, stamp);
    }
    // SAFETY: no request has it as its token any more, and Open MPI was told.
    unsafe { give_back(module, operation) };
}

/// Gives a record back, once Open MPI was told.
///
/// # Safety
/// It is one of this module's, and the caller's own.
#[inline]
unsafe fn give_back(module: &Module, operation: *mut Operation) {
    // `None` would be a call from within an engine call, and those do not call back.
    if let Some(state) = module.enter() {
        // SAFETY: the caller says that the record is one of this module's, and its own.
        unsafe { state.operations.give_back(operation) };
    }
}
