// SPDX-License-Identifier: MIT OR Apache-2.0
//! A module: one port, as Open MPI sees it.
//!
//! Made by `component` for each usable port, used through the functions it names in its structure, taken apart in
//! `btl_finalize`. It lives on the heap at one address. What ob1, bml/r2 and osc/rdma read from its fields is filled in
//! [`template`] (before the user's settings, device-free) and [`Module::new`] (by what the port can).
//! Grade: setup, but for the accessors. Threads: the fields never change after [`Module::new`]; the rest is in `state`.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use engine::event::EndpointId;
use engine::events::{self, SourceId};
use engine::port::{Atomics, Port, PortError};
use engine::tunables::Tunables;
use ibex_ffi::openmpi::sys;

use crate::descriptor::Descriptors;
use crate::endpoint::{EndpointRange, endpoint};
use crate::exclusive::{Entered, Exclusive};
use crate::guard::fence;
use crate::memory::Memory;
use crate::progress::Turns;
use crate::rdma::Operations;
use crate::{atomic, component, descriptor, memory, messages, procs, rdma, send, watch};

/// What one caller at a time may use.
pub(crate) struct State {
    // Dropped before the port, whose slots they name.
    pub(crate) descriptors: Descriptors,
    pub(crate) operations: Operations,
    pub(crate) turns: Turns,
    pub(crate) port: Port,
}

/// A module: Open MPI's structure, then ibex's.
#[repr(C)]
pub(crate) struct Module {
    base: sys::mca_btl_base_module_t,
    state: Exclusive<State>,
    memory: Option<Memory>,
    max_inline: usize,
    max_message: usize,
    zero_copy_min: usize,
    max_send_size: usize,
    verbose: u64,
    /// Place among the ports this process publishes.
    index: u8,
    has_atomics: bool,
    /// Device and port, as `rxe0:1`.
    place: String,
    /// The source of its adapter's events, where that stamps completions.
    source: Option<SourceId>,
    endpoints: EndpointRange,
    /// `mca_btl_base_module_error_cb_fn_t` as an address; 0: none registered.
    error_callback: AtomicUsize,
    /// Some peers' messages go by other ports.
    detouring: AtomicBool,
}

/// A module's fields before anything is known of a port: functions, flags and limits that the user may then change.
pub(crate) fn template() -> sys::mca_btl_base_module_t {
    // SAFETY: a C structure of integers and (nullable) pointers, for which zero is a value.
    let mut base: sys::mca_btl_base_module_t = unsafe { std::mem::zeroed() };
    base.btl_component = component::raw();
    base.btl_eager_limit = 12 << 10;
    base.btl_rndv_eager_limit = 12 << 10;
    base.btl_max_send_size = 32 << 10;
    base.btl_rdma_pipeline_send_length = 1 << 20;
    base.btl_rdma_pipeline_frag_size = 1 << 20;
    // Where the sender's memory cannot be registered ob1 takes to its pipeline of puts, a mebibyte at a time, from this size on;
    // it tries for ever where none at all can be registered (pml_ob1_recvreq.c, mca_pml_ob1_recv_request_schedule_once). So only
    // messages that are themselves too large for one registration go that way; the others are copied.
    base.btl_min_rdma_pipeline_size = 1 << 30;
    // Below shared memory (65536), which keeps the peers of a host where it is in use; above TCP (100).
    base.btl_exclusivity = sys::MCA_BTL_EXCLUSIVITY_DEFAULT;
    base.btl_latency = 4;
    base.btl_bandwidth = 0;
    base.btl_flags =
        sys::MCA_BTL_FLAGS_SEND | sys::MCA_BTL_FLAGS_PUT | sys::MCA_BTL_FLAGS_GET | sys::MCA_BTL_FLAGS_ATOMIC_FOPS;
    base.btl_atomic_flags = sys::MCA_BTL_ATOMIC_SUPPORTS_ADD | sys::MCA_BTL_ATOMIC_SUPPORTS_CSWAP;
    base.btl_registration_handle_size = memory::HANDLE_SIZE;
    base.btl_add_procs = Some(procs::btl_add_procs);
    base.btl_del_procs = Some(procs::btl_del_procs);
    base.btl_finalize = Some(btl_finalize);
    base.btl_alloc = Some(descriptor::btl_alloc);
    base.btl_free = Some(descriptor::btl_free);
    base.btl_prepare_src = Some(descriptor::btl_prepare_src);
    base.btl_send = Some(send::btl_send);
    base.btl_sendi = Some(send::btl_sendi);
    base.btl_put = Some(rdma::btl_put);
    base.btl_get = Some(rdma::btl_get);
    base.btl_dump = Some(btl_dump);
    base.btl_atomic_fop = Some(atomic::btl_atomic_fop);
    base.btl_atomic_cswap = Some(atomic::btl_atomic_cswap);
    base.btl_register_mem = Some(memory::btl_register_mem);
    base.btl_deregister_mem = Some(memory::btl_deregister_mem);
    base.btl_register_error = Some(btl_register_error);
    // btl_register: bml/r2 fills mca_btl_base_active_message_trigger instead. btl_flush stays null: osc/rdma goes by the
    // pointer alone, and waits for the callbacks where there is none. btl_atomic_op: osc/rdma uses the fetching one.
    base
}

/// What ibex can do at most of `btl_flags`; what a user adds to it is taken off again.
const FLAGS: u32 = sys::MCA_BTL_FLAGS_SEND
    | sys::MCA_BTL_FLAGS_PUT
    | sys::MCA_BTL_FLAGS_GET
    | sys::MCA_BTL_FLAGS_SEND_INPLACE
    | sys::MCA_BTL_FLAGS_ATOMIC_FOPS;

/// The largest read, in bytes, asked of a software adapter: one that sends a whole message ahead of the reader has it copied
/// from memory; this much, as often as reads are in flight by default (4), stays in the processor's cache. Measured on
/// soft-RoCE: messages of 1 MiB come a third faster.
const SOFTWARE_GET_LIMIT: usize = 32 << 10;

impl Module {
    /// A module for an open port. `settings` are the template's fields as the user has set them. `None` where Open MPI has
    /// no registration cache (`grdma`), or the process no addresses left.
    pub(crate) fn new(
        settings: &sys::mca_btl_base_module_t,
        port: Port,
        index: u8,
        tunables: &Tunables,
        threads: bool,
    ) -> Option<Box<Self>> {
        let attributes = port.attributes().clone();
        let endpoints = EndpointRange::new().ok()?;
        let memory = Memory::new(&port, index)?;
        let source = port.source();
        let max_message = usize::try_from(attributes.max_message).unwrap_or(usize::MAX).min(u32::MAX as usize);
        let mut base = *settings;
        base.btl_flags &= FLAGS;
        if attributes.software {
            base.btl_get_limit = base.btl_get_limit.min(SOFTWARE_GET_LIMIT);
        }
        base.btl_get_limit = base.btl_get_limit.min(max_message);
        base.btl_put_limit = base.btl_put_limit.min(max_message);
        base.btl_get_local_registration_threshold = 0;
        base.btl_put_local_registration_threshold = attributes.max_inline as usize;
        if base.btl_bandwidth == 0 {
            base.btl_bandwidth = attributes.mbps.max(1);
        }
        match attributes.atomics {
            Atomics::None => {
                base.btl_flags &= !sys::MCA_BTL_FLAGS_ATOMIC_FOPS;
                base.btl_atomic_flags = 0;
                base.btl_atomic_fop = None;
                base.btl_atomic_cswap = None;
            }
            Atomics::Adapter => {}
            Atomics::Host => base.btl_atomic_flags |= sys::MCA_BTL_ATOMIC_SUPPORTS_GLOB,
        }
        let descriptors = Descriptors::new(
            base.btl_eager_limit.max(base.btl_rndv_eager_limit),
            base.btl_max_send_size,
            tunables.send_slots_max as u32,
            tunables.send_slots_grow as u32,
        );
        let state = State { descriptors, operations: Operations::new(), turns: Turns::default(), port };
        Some(Box::new(Module {
            base,
            state: Exclusive::new(state, threads),
            memory: Some(memory),
            max_inline: (attributes.max_inline as usize).min(send::INLINE_MAX),
            max_message,
            zero_copy_min: tunables.zero_copy_min as usize,
            max_send_size: base.btl_max_send_size,
            verbose: tunables.verbose,
            index,
            has_atomics: attributes.atomics != Atomics::None,
            place: attributes.place(),
            source,
            endpoints,
            error_callback: AtomicUsize::new(0),
            detouring: AtomicBool::new(false),
        }))
    }

    /// Registers the send slots that the module has from the start.
    ///
    /// # Errors
    /// Memory, or the limit of locked memory, does not suffice. The module is to be ended then.
    pub(crate) fn reserve(&self) -> Result<(), PortError> {
        let Some(mut state) = self.enter() else { return Ok(()) };
        let State { port, descriptors, .. } = &mut *state;
        descriptors.reserve(|size, count| port.grow(size, count))
    }

    /// Ends the port, then the registrations: once no adapter touches memory they may go (R3).
    pub(crate) fn end(mut self: Box<Self>) {
        if let Some(mut state) = self.enter() {
            state.port.close();
        }
        watch::show_arrived();
        if let Some(source) = self.source {
            events::close_port(source, watch::SAFETY);
        }
        if let Some(memory) = self.memory.take() {
            memory.close();
        }
    }

    /// The module behind Open MPI's pointer.
    ///
    /// # Safety
    /// M1.
    #[inline]
    pub(crate) unsafe fn from_raw<'call>(raw: *mut sys::mca_btl_base_module_t) -> &'call Module {
        // SAFETY: M1: `base` is the first field of a module on the heap, which is shared and changed only inside cells.
        unsafe { &*raw.cast::<Module>() }
    }

    /// The pointer that Open MPI knows the module by.
    #[inline]
    pub(crate) fn as_raw(&self) -> *mut sys::mca_btl_base_module_t {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Waits for other threads; `None`: this thread is inside already.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Entered<'_, State>> {
        self.state.enter()
    }

    /// Does not wait.
    #[inline]
    pub(crate) fn try_enter(&self) -> Option<Entered<'_, State>> {
        self.state.try_enter()
    }

    /// The port's registrations.
    #[inline]
    pub(crate) fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("present until btl_finalize, after which Open MPI calls no more")
    }

    /// Bytes that fit in a work request.
    #[inline]
    pub(crate) fn max_inline(&self) -> usize {
        self.max_inline
    }

    /// Bytes of the largest put or get.
    #[inline]
    pub(crate) fn max_message(&self) -> usize {
        self.max_message
    }

    /// Bytes from which contiguous data is sent in place.
    #[inline]
    pub(crate) fn zero_copy_min(&self) -> usize {
        self.zero_copy_min
    }

    /// Bytes of the largest message.
    #[inline]
    pub(crate) fn max_send_size(&self) -> usize {
        self.max_send_size
    }

    /// Whether the adapter has atomics.
    #[inline]
    pub(crate) fn has_atomics(&self) -> bool {
        self.has_atomics
    }

    /// `btl_ibex_verbose`.
    pub(crate) fn verbose(&self) -> u64 {
        self.verbose
    }

    /// Place among the ports this process publishes.
    #[inline]
    pub(crate) fn index(&self) -> u8 {
        self.index
    }

    /// Device and port, as `rxe0:1`.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// The source of its adapter's events; `None` where it does not stamp completions.
    pub(crate) fn source(&self) -> Option<SourceId> {
        self.source
    }

    /// What Open MPI calls an endpoint of this module.
    #[inline]
    pub(crate) fn pointer(&self, id: EndpointId) -> *mut sys::mca_btl_base_endpoint_t {
        self.endpoints.pointer(id)
    }

    /// Whom to tell that a peer is lost.
    pub(crate) fn error_callback(&self) -> sys::mca_btl_base_module_error_cb_fn_t {
        let address = self.error_callback.load(Ordering::Acquire);
        // SAFETY: an address that `btl_register_error` stored, or 0, which is `None` of a nullable function pointer.
        unsafe { std::mem::transmute::<usize, sys::mca_btl_base_module_error_cb_fn_t>(address) }
    }

    /// Whether some peers' messages go by other ports.
    pub(crate) fn is_detouring(&self) -> bool {
        // Relaxed: who learns of it late does what it did before.
        self.detouring.load(Ordering::Relaxed)
    }

    /// See [`Self::is_detouring`].
    pub(crate) fn has_detours(&self, some: bool) {
        self.detouring.store(some, Ordering::Relaxed);
    }

    /// What the ports show while the module lives.
    pub(crate) fn counters(&self) -> Option<Arc<engine::counters::Counters>> {
        self.enter().map(|state| state.port.counters())
    }
}

/// `btl_register_error`.
unsafe extern "C" fn btl_register_error(
    btl: *mut sys::mca_btl_base_module_t,
    callback: sys::mca_btl_base_module_error_cb_fn_t,
) -> c_int {
    fence("btl_register_error", sys::OPAL_ERROR, || {
        // SAFETY: M1.
        let module = unsafe { Module::from_raw(btl) };
        let address = callback.map_or(0, |function| function as usize);
        module.error_callback.store(address, Ordering::Release);
        sys::OPAL_SUCCESS
    })
}

/// `btl_dump`: how an endpoint stands, for a debugger's or a developer's eye.
unsafe extern "C" fn btl_dump(
    btl: *mut sys::mca_btl_base_module_t,
    peer: *mut sys::mca_btl_base_endpoint_t,
    _verbose: c_int,
) {
    fence("btl_dump", (), || {
        // SAFETY: M1.
        let module = unsafe { Module::from_raw(btl) };
        let Some(state) = module.enter() else { return };
        let text = if peer.is_null() { format!("{:?}", state.port) } else { state.port.describe(endpoint(peer)) };
        drop(state);
        messages::verbose(&text);
    });
}

/// `btl_finalize`: ends the port. Nothing of Open MPI's calls into the module afterwards.
unsafe extern "C" fn btl_finalize(btl: *mut sys::mca_btl_base_module_t) -> c_int {
    fence("btl_finalize", sys::OPAL_ERROR, || {
        component::forget(btl);
        // SAFETY: M1, and this is the last call: the module was leaked from a box by `component` and is taken back once.
        unsafe { Box::from_raw(btl.cast::<Module>()) }.end();
        sys::OPAL_SUCCESS
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_mpis_part_of_a_module_stands_first() {
        assert_eq!(std::mem::offset_of!(Module, base), 0);
    }

    #[test]
    fn the_template_has_what_a_btl_must_have_and_leaves_out_what_ibex_does_without() {
        let base = template();
        assert!(base.btl_add_procs.is_some() && base.btl_send.is_some() && base.btl_prepare_src.is_some());
        assert!(base.btl_flush.is_none() && base.btl_atomic_op.is_none() && base.btl_register.is_none());
        assert_eq!(base.btl_flags & !FLAGS, 0);
        assert_eq!(base.btl_flags & sys::MCA_BTL_FLAGS_SEND_INPLACE, 0);
    }
}
