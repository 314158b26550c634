// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completions other than messages: completed requests, failed peers, changed links. Called by `progress` for each such
//! event, outside the port: callbacks to Open MPI run in here and may call ibex again. Afterwards the descriptors to
//! give back are in the chain [`FinishedDescriptors`]. Grade: hot for completions. Threads: any. Tests: the device
//! tests in `hw-tests`.

use std::ffi::c_int;
use std::ptr::null_mut;

use engine::transport::{Batch, Completion, EndpointId, Failed};
use ibex_ffi::openmpi::sys;

use super::module::Module;
use super::one_sided::operation::Operation;
use super::token::{Record, record};
use super::two_sided::descriptor::pool::{Descriptor, take_registration};
use super::two_sided::detour::{self, Again};
use super::{failures, watch};
use crate::runtime::operation_chain::{Link, OperationChain};

/// Descriptors to give back after the callbacks of a batch, linked through the descriptors themselves.
pub(crate) struct FinishedDescriptors(pub(crate) *mut Descriptor);

impl FinishedDescriptors {
    pub(crate) const NONE: FinishedDescriptors = FinishedDescriptors(null_mut());
}

#[cold]
#[inline(never)]
pub(crate) fn stamp(module: &Module, batch: &Batch, index: usize) -> watch::Stamp {
    module.source().zip(batch.stamp(index))
}

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
                        // SAFETY: the engine gives a token back once, so nobody else has this module's descriptor.
                        Err(failed) => match unsafe { not_sent(module, descriptor, to, failed) } {
                            Some(status) => status,
                            None => return,
                        },
                    };
                    // SAFETY: the engine gives a token back once, so nobody else has this module's descriptor.
                    unsafe { send_done(module, descriptor, to, status, finished) };
                }
                // SAFETY: the engine gives a token back once, so nobody else has this module's operation.
                Some(Record::Operation(operation)) => unsafe {
                    let stamp = if WATCHED { stamp(module, batch, index) } else { None };
                    operation_done(module, operation.as_ptr(), to, outcome, stamp);
                },
                // The PML has processed its request, or is not in use any more.
                None => {}
            }
        }
        Completion::PeerFailed { peer } => failures::peer_failed(module, peer),
        Completion::LinkChanged { is_up } => detour::link_changed(module, is_up),
        Completion::Message { .. } => {}
    }
}

/// Processes a message that this port did not send. Returns the status of its send; `None`: it is being sent again.
///
/// # Safety
/// `descriptor` is this module's, and the engine has given it back.
#[cold]
#[inline(never)]
unsafe fn not_sent(module: &Module, descriptor: *mut Descriptor, to: EndpointId, failed: Failed) -> Option<c_int> {
    // SAFETY: M2, M3: the engine has given it back; a posted message is not sent again.
    match unsafe { detour::again(module, to, descriptor, failed) } {
        Again::UnderWay => return None,
        Again::Sent => return Some(sys::OPAL_SUCCESS),
        Again::Failed => {}
    }
    if !failed.posted && failures::has_failed(module, to) {
        // The peer waits for the message, so Open MPI must end the job even if it has asked for no callback.
        failures::lost(module, to);
    }
    // SAFETY: M2: it is not being sent again, so nobody else uses it.
    let is_told = unsafe { (*descriptor).callback_wanted };
    Some(if is_told { failures::failed(module, to, failed) } else { sys::OPAL_ERROR })
}

/// Returns Open MPI's status of a request. Prints a failure for the user first.
#[inline]
fn status(module: &Module, to: EndpointId, outcome: Result<(), Failed>) -> c_int {
    match outcome {
        Ok(()) => sys::OPAL_SUCCESS,
        Err(failed) => failures::failed(module, to, failed),
    }
}

/// Calls Open MPI back for a completed send, and puts the descriptor on the chain if ibex owns it.
///
/// # Safety
/// `descriptor` is this module's, and the engine has given it back.
#[inline]
unsafe fn send_done(
    module: &Module,
    descriptor: *mut Descriptor,
    to: EndpointId,
    status: c_int,
    finished: &mut FinishedDescriptors,
) {
    // SAFETY: M2: the engine has given it back, and Open MPI has not been called back, so nobody else uses it.
    let wanted = unsafe { (*descriptor).callback_wanted };
    // SAFETY: M2: nobody else uses it before the callback. Read now: the callback may free a descriptor of Open MPI's.
    let owned = unsafe { (*descriptor).base.des_flags } & sys::MCA_BTL_DES_FLAGS_BTL_OWNERSHIP != 0;
    if wanted {
        // SAFETY: M2: nobody else uses it before the callback.
        let function = unsafe { (*descriptor).base.des_cbfunc };
        if let Some(function) = function {
            // SAFETY: the callback that Open MPI set, with the descriptor it sent (btl.h).
            unsafe { function(module.as_raw(), module.pointer(to), descriptor.cast(), status) };
        }
    }
    if owned {
        // SAFETY: ibex owns it, so Open MPI does not use it after the callback.
        if let Some(registered) = unsafe { take_registration(descriptor) } {
            // SAFETY: R3: the send that named it has completed.
            unsafe { module.memory().put_back(registered) };
        }
        // SAFETY: ibex owns it, so Open MPI does not use it after the callback.
        unsafe { (*descriptor).next = finished.0 };
        finished.0 = descriptor;
    }
}

/// Calls Open MPI back for the completed operations in a chain, and gives their records back.
///
/// # Safety
/// The caller owns the chain, and no port is entered.
#[inline]
pub(crate) unsafe fn operations_done(done: &OperationChain) {
    let Some(first) = done.first() else { return };
    let mut next = Some(first);
    while let Some(link) = next {
        // SAFETY: the caller owns the chain; a link is the first field of an operation.
        let call = unsafe { (*link.cast::<Operation>().as_ptr()).call };
        // SAFETY: the operation is in the chain, so complete, and this is its only callback.
        unsafe { call.call(sys::OPAL_SUCCESS) };
        // SAFETY: the link is in the chain.
        next = unsafe { Link::next(link) };
    }
    let mut next = Some(first);
    while let Some(link) = next {
        let operation = link.cast::<Operation>().as_ptr();
        // SAFETY: the caller owns the chain, and all callbacks have run; M1: the record belongs to this module.
        unsafe {
            next = Link::next(link);
            give_back(Module::from_raw((*operation).call.btl), operation);
        }
    }
}

/// Calls Open MPI back for a completed operation, tells tools, and gives the record back.
///
/// # Safety
/// `operation` is one of this module's, and no request has it as its token any more.
#[inline]
pub(super) unsafe fn operation_done(
    module: &Module,
    operation: *mut Operation,
    to: EndpointId,
    outcome: Result<(), Failed>,
    stamp: watch::Stamp,
) {
    // SAFETY: no request has it as its token any more, so nobody else uses it.
    let &Operation { call, watched, .. } = unsafe { &*operation };
    // SAFETY: no request has it as its token any more, so it is complete; this is its only callback.
    unsafe { call.call(status(module, to, outcome)) };
    if call.is_watched {
        // SAFETY: `is_watched` is set only after the field was written.
        watch::done(unsafe { watched.assume_init_ref() }, outcome, stamp);
    }
    // SAFETY: no request has it as its token any more, and its callback has run.
    unsafe { give_back(module, operation) };
}

/// # Safety
/// The record is one of this module's, and the caller owns it.
#[inline]
pub(super) unsafe fn give_back(module: &Module, operation: *mut Operation) {
    // `None`: the port is entered further up the stack, which does not happen, as the engine does not call back.
    if let Some(state) = module.enter() {
        // SAFETY: the caller owns the record, which is one of this module's.
        unsafe { state.operations.give_back(operation) };
    }
}
