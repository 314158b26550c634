// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pml_add_comm` and `pml_del_comm`: communicators come and go.
//!
//! The second is called when the last reference goes, in `MPI_Finalize` whatever is pending, or never; so it drops what
//! waits, and what is left `pmlm_finalize` drops. Contexts are used again. Grade: setup. Threads: any.

use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};

use ibex_ffi::openmpi::{release, sys};

use super::communicator::Communicator;
use super::flow;
use super::incoming::deliver;
use super::instance::pml;
use super::listening::follow;
use super::members;
use super::parting;
use super::progress::leave;
use crate::runtime::guard::fence;
use crate::runtime::listeners;

/// `pml_add_comm`: before any traffic.
pub(crate) unsafe extern "C" fn pml_add_comm(comm: *mut sys::ompi_communicator_t) -> c_int {
    fence("pml_add_comm", sys::OPAL_ERROR, || {
        let Some(pml) = pml() else { return sys::OPAL_ERR_NOT_AVAILABLE };
        // SAFETY: P4: a communicator that Open MPI has filled in.
        let (peers, rank, context) = unsafe { (sys::ibex_comm_peers(comm), (*comm).c_my_rank, release::context(comm)) };
        let Some(first) = pml.rails().first() else { return sys::OPAL_ERR_NOT_AVAILABLE };
        let mut communicator = Communicator::new(first.entry(), peers as usize, rank, context);
        communicator.comm = comm;
        let communicator = NonNull::from(Box::leak(communicator));
        // SAFETY: P4: just made; `pml_del_comm` says that it goes, or `is_not_followed`.
        unsafe {
            members::created(comm);
            listeners::begins(comm);
        }
        let Some(mut state) = pml.enter() else {
            // SAFETY: just leaked, and nobody has it; P4.
            unsafe { is_not_followed(comm, communicator) };
            return sys::OPAL_ERR_OUT_OF_RESOURCE;
        };
        // SAFETY: P3; just leaked, and `comm` lives.
        unsafe { follow(communicator.as_ref()) };
        let Ok(kept) = state.contexts.add(context, communicator) else {
            drop(state);
            // SAFETY: just leaked, and nobody has it; P4.
            unsafe { is_not_followed(comm, communicator) };
            return sys::OPAL_ERROR;
        };
        // SAFETY: P4: one that Open MPI has filled in.
        unsafe {
            (*comm).c_pml_comm = communicator.as_ptr().cast();
            parting::joined(pml, &mut state, comm, context);
        }
        for (envelope, message) in kept {
            flow::give_up(pml, &mut state, &message);
            deliver(pml, &mut state, context, envelope, message);
        }
        leave(pml, state);
        sys::OPAL_SUCCESS
    })
}

/// Undoes what was begun for a communicator that the PML cannot follow. Nothing is entered.
///
/// # Safety
/// Open MPI's communicator lives; the PML's was leaked, and nobody has it.
unsafe fn is_not_followed(comm: *mut sys::ompi_communicator_t, communicator: NonNull<Communicator>) {
    // SAFETY: it was leaked, and nobody has it.
    let communicator = unsafe { Box::from_raw(communicator.as_ptr()) };
    // SAFETY: Open MPI's communicator lives.
    unsafe { listeners::ends(comm) };
    members::freed(communicator.context);
}

/// `pml_del_comm`.
pub(crate) unsafe extern "C" fn pml_del_comm(comm: *mut sys::ompi_communicator_t) -> c_int {
    fence("pml_del_comm", sys::OPAL_ERROR, || {
        let Some(pml) = pml() else { return sys::OPAL_ERR_NOT_AVAILABLE };
        // SAFETY: P4: a communicator of Open MPI's that is still there.
        unsafe { listeners::ends(comm) };
        let Some(mut state) = pml.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
        // SAFETY: P4: a communicator of Open MPI's that is still there.
        let communicator = unsafe { std::mem::replace(&mut (*comm).c_pml_comm, null_mut()) };
        let mut was_there = None;
        if let Some(communicator) = NonNull::new(communicator.cast::<c_void>().cast::<Communicator>()) {
            // SAFETY: leaked by `pml_add_comm`, and taken out of the table here, once.
            let communicator = unsafe { Box::from_raw(communicator.as_ptr()) };
            let context = communicator.context;
            state.contexts.remove(context);
            was_there = Some(context);
            // Receives that nothing came for stay as they are: whoever holds them can still free them.
            for message in communicator.into_queues().into_remains().messages {
                flow::give_up(pml, &mut state, &message.message);
            }
            parting::left(pml, &mut state, context);
        }
        leave(pml, state);
        // Another thread may have the number again once this has returned.
        if let Some(context) = was_there {
            members::freed(context);
        }
        sys::OPAL_SUCCESS
    })
}
