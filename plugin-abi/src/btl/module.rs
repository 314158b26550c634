// SPDX-License-Identifier: MIT OR Apache-2.0
//! A module: one port, as Open MPI sees it.
//!
//! Made by `component` for each usable port, used through the functions named in its structure (`functions`), dropped in
//! `btl_finalize`. It lives on the heap at one address. What the port can goes into its fields in [`Module::new`].
//! Grade: setup, but for the accessors. Threads: the fields never change after [`Module::new`]; the rest is reached by
//! who has entered the port ([`State`]).

use std::cell::UnsafeCell;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use engine::events::SourceId;
use engine::peer::PeerName;
use engine::transport::{Atomics, EndpointId, Port, PortError};
use engine::tunables::Tunables;
use ibex_ffi::openmpi::release::REMOTE_COMPLETION;
use ibex_ffi::openmpi::sys;

use super::descriptor::pool::Descriptors;
use super::endpoint::EndpointRange;
use super::operation::Operations;
use crate::runtime::exclusive::{Entered, Exclusive};
use crate::runtime::frame::Frames;
use crate::runtime::memory::Memory;
use crate::runtime::operation_chain::OperationChain;
use crate::runtime::port::OpenPort;
use crate::runtime::ports::MAX_PORTS;

/// The most a work request can carry, bytes: the greatest value of the parameter `max_inline`.
pub(crate) const INLINE_MAX: usize = 1024;

/// Send slots that are registered at once when none is free: a registration costs some microseconds, whatever its size, and
/// so many of the largest are 2 MiB.
const SLOTS_AT_ONCE: u32 = 64;

/// What one caller at a time may use: the port, and the records that the module has for it.
pub(crate) struct State<'a> {
    pub(crate) descriptors: &'a mut Descriptors,
    pub(crate) operations: &'a mut Operations,
    pub(crate) frames: &'a mut Frames,
    /// Operations that a poll has found done.
    pub(crate) done: &'a mut OperationChain,
    pub(crate) port: Entered<'a, Port>,
}

/// The records of a module.
struct Records {
    descriptors: Descriptors,
    operations: Operations,
    frames: Frames,
    done: OperationChain,
}

/// A module: Open MPI's structure, then ibex's.
#[repr(C)]
pub(crate) struct Module {
    base: sys::mca_btl_base_module_t,
    /// Let go of before the records: none is the adapter's when the port is closed.
    port: Arc<OpenPort>,
    /// The port's, so that the way to it is one load.
    entry: NonNull<Exclusive<Port>>,
    records: UnsafeCell<Records>,
    /// Bytes that fit in a work request.
    pub(crate) max_inline: usize,
    /// Bytes of the largest put or get.
    pub(crate) max_message: usize,
    /// Bytes from which contiguous data is sent in place.
    pub(crate) zero_copy_min: usize,
    /// Bytes of the largest message.
    pub(crate) max_send_size: usize,
    /// Place among the ports this process publishes.
    pub(crate) index: u8,
    /// Whether the adapter has atomics.
    pub(crate) has_atomics: bool,
    endpoints: EndpointRange,
    /// `mca_btl_base_module_error_cb_fn_t` as an address; 0: none registered.
    error_callback: AtomicUsize,
    /// Flushes until the next that is to let others go on.
    flushes_left: AtomicU32,
    /// Some peers' messages go by other ports.
    detouring: AtomicBool,
}

/// What ibex can do at most of `btl_flags`; what a user adds to it is taken off again.
pub(crate) const FLAGS: u32 = sys::MCA_BTL_FLAGS_SEND
    | sys::MCA_BTL_FLAGS_PUT
    | sys::MCA_BTL_FLAGS_GET
    | sys::MCA_BTL_FLAGS_SEND_INPLACE
    | sys::MCA_BTL_FLAGS_ATOMIC_FOPS;

/// So many flushes poll their port alone, and then one lets all of Open MPI go on: a program may do nothing else than
/// flush, while others wait for what only `opal_progress` moves.
const FLUSHES: u32 = 31;

/// The largest read, in bytes, asked of a software adapter: one that sends a whole message ahead of the reader has it
/// copied from memory; this much, as often as reads are in flight by default (4), stays in the processor's cache.
/// Measured on soft-RoCE: messages of 1 MiB come a third faster.
const SOFTWARE_GET_LIMIT: usize = 32 << 10;

impl Module {
    /// A module for an open port, with the send slots that it has from the start. `settings` are the template's fields
    /// as the user has set them; `without_atomics` gives them other atomics where the adapter has none.
    ///
    /// # Errors
    /// Memory, or the limit of locked memory, does not suffice.
    pub(crate) fn new(
        settings: &sys::mca_btl_base_module_t,
        port: &Arc<OpenPort>,
        tunables: &Tunables,
        without_atomics: fn(&mut sys::mca_btl_base_module_t),
    ) -> Result<Box<Self>, PortError> {
        let attributes = port.attributes();
        let endpoints = EndpointRange::new().map_err(|error| PortError {
            place: port.place().to_owned(),
            doing: "taking addresses for its endpoints".to_owned(),
            bytes: None,
            error,
        })?;
        let max_message = usize::try_from(attributes.max_message).unwrap_or(usize::MAX).min(u32::MAX as usize);
        let mut base = *settings;
        // Another face may have opened the port, for smaller messages.
        for limit in [&mut base.btl_max_send_size, &mut base.btl_eager_limit, &mut base.btl_rndv_eager_limit] {
            *limit = (*limit).min(port.receive_size());
        }
        base.btl_flags &= FLAGS;
        // A write over a reliable connection is acknowledged by the peer's adapter. Not a flag that a user may set: Open
        // MPI's list of those, which the parameter btl_ibex_flags takes, does not know it.
        base.btl_flags |= REMOTE_COMPLETION;
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
            Atomics::None => without_atomics(&mut base),
            Atomics::Adapter => {}
            Atomics::Host => base.btl_atomic_flags |= sys::MCA_BTL_ATOMIC_SUPPORTS_GLOB,
        }
        let mut descriptors = Descriptors::new(
            base.btl_eager_limit.max(base.btl_rndv_eager_limit),
            base.btl_max_send_size,
            tunables.send_slots_max as u32,
            SLOTS_AT_ONCE,
        );
        if let Some(mut state) = port.enter() {
            descriptors.reserve(|size, count| state.grow(size, count))?;
        }
        let records = Records {
            descriptors,
            operations: Operations::new(),
            frames: Frames::default(),
            done: OperationChain::EMPTY,
        };
        Ok(Box::new(Module {
            base,
            port: Arc::clone(port),
            entry: NonNull::from(port.exclusive()),
            records: UnsafeCell::new(records),
            max_inline: (attributes.max_inline as usize).min(INLINE_MAX),
            max_message,
            // What is sent in place is of two spans, the header and the data.
            zero_copy_min: if attributes.gathers { tunables.zero_copy_min as usize } else { usize::MAX },
            max_send_size: base.btl_max_send_size,
            index: port.index(),
            has_atomics: attributes.atomics != Atomics::None,
            endpoints,
            error_callback: AtomicUsize::new(0),
            flushes_left: AtomicU32::new(FLUSHES),
            detouring: AtomicBool::new(false),
        }))
    }

    /// The data rate of its port, in Mb/s.
    pub(crate) fn mbps(&self) -> u32 {
        self.port.attributes().mbps
    }

    /// How much longer it takes than the fastest port; see `settings`.
    pub(crate) fn set_latency(&mut self, microseconds: u32) {
        self.base.btl_latency = microseconds;
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
    pub(crate) fn enter(&self) -> Option<State<'_>> {
        self.entry().enter().map(|port| self.state(port))
    }

    /// Does not wait.
    #[inline]
    pub(crate) fn try_enter(&self) -> Option<State<'_>> {
        self.entry().try_enter().map(|port| self.state(port))
    }

    #[inline]
    fn entry(&self) -> &Exclusive<Port> {
        // SAFETY: the port's, which lives as long as this module holds it.
        unsafe { self.entry.as_ref() }
    }

    /// What comes with the right to use the port.
    #[inline]
    fn state<'a>(&'a self, port: Entered<'a, Port>) -> State<'a> {
        // SAFETY: reached here alone, with the right to this module's port, which exists once at a time and lives as
        // long as what is returned.
        let Records { descriptors, operations, frames, done } = unsafe { &mut *self.records.get() };
        State { descriptors, operations, frames, done, port }
    }

    /// The port's registrations.
    #[inline]
    pub(crate) fn memory(&self) -> &Memory {
        self.port.memory()
    }

    /// The process that an endpoint is of.
    pub(crate) fn peer_name(&self, id: EndpointId) -> Option<PeerName> {
        self.enter()?.port.peer_name(id)
    }

    /// Device and port, as `rxe0:1`.
    pub(crate) fn place(&self) -> &str {
        self.port.place()
    }

    /// The source of its adapter's events; `None` where it does not stamp completions.
    pub(crate) fn source(&self) -> Option<SourceId> {
        self.port.source()
    }

    /// What Open MPI calls an endpoint of this module.
    #[inline]
    pub(crate) fn pointer(&self, id: EndpointId) -> *mut sys::mca_btl_base_endpoint_t {
        self.endpoints.pointer(id)
    }

    /// Whom to tell that a peer is lost.
    pub(crate) fn error_callback(&self) -> sys::mca_btl_base_module_error_cb_fn_t {
        let address = self.error_callback.load(Ordering::Acquire);
        // SAFETY: an address that `set_error_callback` stored, or 0, which is `None` of a nullable function pointer.
        unsafe { std::mem::transmute::<usize, sys::mca_btl_base_module_error_cb_fn_t>(address) }
    }

    /// See [`Self::error_callback`].
    pub(crate) fn set_error_callback(&self, callback: sys::mca_btl_base_module_error_cb_fn_t) {
        self.error_callback.store(callback.map_or(0, |function| function as usize), Ordering::Release);
    }

    /// A flush begins: whether all of Open MPI is to go on in it, and not this port alone.
    #[inline]
    pub(crate) fn is_others_turn(&self) -> bool {
        // Relaxed, and in two steps: with several threads one flush more or less is no matter.
        let left = self.flushes_left.load(Ordering::Relaxed);
        self.flushes_left.store(if left == 0 { FLUSHES } else { left - 1 }, Ordering::Relaxed);
        left == 0
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
}

static MODULES: [AtomicPtr<Module>; MAX_PORTS] = [const { AtomicPtr::new(null_mut()) }; MAX_PORTS];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The component is opened: there is none.
pub(crate) fn start_anew() {
    COUNT.store(0, Ordering::Release);
}

/// Takes up a module. Returns Open MPI's pointer to it.
pub(crate) fn add(module: Box<Module>) -> *mut sys::mca_btl_base_module_t {
    let index = count();
    let module = Box::into_raw(module);
    MODULES[index].store(module, Ordering::Release);
    COUNT.store(index + 1, Ordering::Release);
    module.cast()
}

fn count() -> usize {
    // Acquire: what init wrote to a module before it published it.
    COUNT.load(Ordering::Acquire)
}

/// Whether there has been more than one.
pub(crate) fn are_several() -> bool {
    count() > 1
}

/// The modules in use.
#[inline]
pub(crate) fn all() -> impl Iterator<Item = &'static Module> {
    let used = &MODULES[..count()];
    // SAFETY: M1: in the table from init until its finalize, which comes after all else.
    used.iter().filter_map(|place| unsafe { place.load(Ordering::Acquire).as_ref() })
}

/// Takes a module back that is being finalized.
///
/// # Safety
/// M1, and Open MPI's last call for the module: nobody uses it any more.
pub(crate) unsafe fn remove(module: *mut sys::mca_btl_base_module_t) -> Box<Module> {
    for place in &MODULES {
        // Open MPI has stopped calling progress by now; the exchange is for the threads' memory model alone.
        let _ = place.compare_exchange(module.cast(), null_mut(), Ordering::AcqRel, Ordering::Acquire);
    }
    // SAFETY: leaked from a box by `add`; taken back once, as the caller says that this is the last call for it.
    unsafe { Box::from_raw(module.cast::<Module>()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_mpis_part_of_a_module_stands_first() {
        assert_eq!(std::mem::offset_of!(Module, base), 0);
    }
}
