// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completions other than messages: completed requests, failed peers, changed links. Called by `progress` for each such
//! event, outside the port: callbacks to Open MPI run in here and may call ibex again. Afterwards the descriptors to
//! give back are in the chain [`FinishedDescriptors`]. Grade: hot for completions. Threads: any. Tests: the device
//! tests in `hw-tests`.

use std::ffi::c_int;

use engine::transport::{Batch, Completion, EndpointId, Failed};
use ibex_ffi::openmpi::sys;

use super::module::Module;
use super::one_sided::operation::Operation;
use super::token::{Record, record};
use super::two_sided::descriptor::pool::{Descriptor, FinishedDescriptors};
use super::two_sided::descriptor::put_back_registration;
use super::two_sided::detour::{self, Again};
use super::{failures, watch};
use crate::runtime::free_list::Owned;
use crate::runtime::operation_chain::OperationChain;

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
                    // SAFETY: the engine gives a token back once, so nobody else has this module's descriptor.
                    let descriptor = unsafe { Owned::new(descriptor) };
                    let (descriptor, status) = match outcome {
                        Ok(()) => (descriptor, sys::OPAL_SUCCESS),
                        Err(failed) => match not_sent(module, descriptor, to, failed) {
                            Some(not_sent) => not_sent,
                            None => return,
                        },
                    };
                    send_done(module, descriptor, to, status, finished);
                }
                Some(Record::Operation(operation)) => {
                    let stamp = if WATCHED { stamp(module, batch, index) } else { None };
                    // SAFETY: the engine gives a token back once, so nobody else has this module's operation.
                    operation_done(module, unsafe { Owned::new(operation) }, to, outcome, stamp);
                }
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
#[cold]
#[inline(never)]
fn not_sent(
    module: &Module,
    descriptor: Owned<Descriptor>,
    to: EndpointId,
    failed: Failed,
) -> Option<(Owned<Descriptor>, c_int)> {
    let descriptor = match detour::again(module, to, descriptor, failed) {
        Again::UnderWay => return None,
        Again::Sent(descriptor) => return Some((descriptor, sys::OPAL_SUCCESS)),
        Again::Failed(descriptor) => descriptor,
    };
    if !failed.posted && failures::has_failed(module, to) {
        // The peer waits for the message, so Open MPI must end the job even if it has asked for no callback.
        failures::lost(module, to);
    }
    let has_callback = descriptor.callback_wanted;
    Some((descriptor, if has_callback { failures::failed(module, to, failed) } else { sys::OPAL_ERROR }))
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
#[inline]
fn send_done(
    module: &Module,
    mut descriptor: Owned<Descriptor>,
    to: EndpointId,
    status: c_int,
    finished: &mut FinishedDescriptors,
) {
    // Read now: the callback may free a descriptor of Open MPI's.
    let owned = descriptor.base.des_flags & sys::MCA_BTL_DES_FLAGS_BTL_OWNERSHIP != 0;
    if descriptor.callback_wanted
        && let Some(function) = descriptor.base.des_cbfunc
    {
        // SAFETY: the callback that Open MPI set, with the descriptor it sent (btl.h), which nobody uses meanwhile.
        unsafe { function(module.as_raw(), module.pointer(to), descriptor.as_ptr().cast(), status) };
    }
    if owned {
        put_back_registration(module, &mut descriptor);
        finished.push(descriptor);
    }
}

/// Calls Open MPI back for the completed operations in a chain, and gives their records back.
#[inline]
pub(crate) fn operations_done(done: OperationChain) {
    for link in done.links() {
        // SAFETY: the operation is in the chain, so complete, and this is its only callback.
        unsafe { link.cast::<Operation>().as_ref().call.call(sys::OPAL_SUCCESS) };
    }
    for link in done.into_links() {
        // SAFETY: the chain has ended, so nobody else has the record; a link is the first field of an operation.
        give_back(unsafe { Owned::new(link.cast::<Operation>()) });
    }
}

/// Calls Open MPI back for a completed operation, raises its event, and gives the record back.
#[inline]
pub(super) fn operation_done(
    module: &Module,
    operation: Owned<Operation>,
    to: EndpointId,
    outcome: Result<(), Failed>,
    stamp: watch::Stamp,
) {
    // SAFETY: no request has it as its token any more, so it is complete; this is its only callback.
    unsafe { operation.call.call(status(module, to, outcome)) };
    if let Some(watched) = &operation.watched {
        watch::done(watched, outcome, stamp);
    }
    give_back(operation);
}

/// Gives the record of an operation back to its module.
#[inline]
pub(super) fn give_back(operation: Owned<Operation>) {
    // `None`: the port is entered further up the stack, which does not happen, as the engine does not call back.
    if let Some(state) = operation.call.module().enter() {
        // SAFETY: an operation has a record of its module.
        unsafe { state.operations.give_back(operation) };
    }
}
