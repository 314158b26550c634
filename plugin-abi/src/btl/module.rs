// SPDX-License-Identifier: MIT OR Apache-2.0
//! A module: one port, in Open MPI's terms. Made by `component` for each usable port, used through the function table
//! (`functions`), dropped in `btl_finalize`. It never moves. Grade: setup, except the accessors. Threads: the fields
//! are constant after [`Module::new`]; the thread that has entered the port uses [`State`]. Tests: `hw-tests`.

use std::cell::UnsafeCell;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use engine::events::SourceId;
use engine::peer::PeerName;
use engine::transport::{Atomics, EndpointId, PortError};
use engine::tunables::Tunables;
use ibex_ffi::openmpi::release::REMOTE_COMPLETION;
use ibex_ffi::openmpi::sys;
use parking_lot::Mutex;

use super::endpoint::EndpointRange;
use super::one_sided::operation::Operations;
use super::two_sided::descriptor::pool::Descriptors;
use crate::runtime::device::{Memory, Port};
use crate::runtime::entry::Argument;
use crate::runtime::exclusive::{Entered, Exclusive};
use crate::runtime::frame::Frames;
use crate::runtime::operation_chain::OperationChain;
use crate::runtime::port::OpenPort;
use crate::runtime::ports::MAX_PORTS;

/// Largest payload of a work request in bytes: the upper bound of the parameter `max_inline`.
pub(crate) const INLINE_MAX: usize = 1024;

/// Number of send slots to register at once when none is free. A registration costs some microseconds, whatever its
/// size, and these slots of the largest size are 2 MiB.
const SLOTS_AT_ONCE: u32 = 64;

/// State that one caller at a time may use: the port, and the records of the module.
pub(crate) struct State<'a> {
    pub(crate) descriptors: &'a mut Descriptors,
    pub(crate) operations: &'a mut Operations,
    pub(crate) frames: &'a mut Frames,
    pub(crate) done: &'a mut OperationChain,
    pub(crate) port: Entered<'a, Port>,
}

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
    /// Declared before the records, so dropped before them: if no other component uses the port, it is closed by then.
    port: Arc<OpenPort>,
    /// Points into `port`, so that entering it takes one load.
    entry: NonNull<Exclusive<Port>>,
    records: UnsafeCell<Records>,
    /// Number of bytes that fit in a work request.
    pub(crate) max_inline: usize,
    /// Size in bytes of the largest put or get.
    pub(crate) max_message: usize,
    /// Size in bytes from which contiguous data is sent in place.
    pub(crate) zero_copy_min: usize,
    pub(crate) max_send_size: usize,
    /// Index among the ports that this process publishes.
    pub(crate) index: u8,
    pub(crate) has_atomics: bool,
    endpoints: EndpointRange,
    error_callback: Mutex<sys::mca_btl_base_module_error_cb_fn_t>,
    /// Number of flushes before the next one that calls `opal_progress`.
    flushes_left: AtomicU32,
    /// Whether messages to some peers are diverted to other ports.
    detouring: AtomicBool,
}

// SAFETY: a pointer, to Open MPI's part of the module, which is the first field. M1.
unsafe impl Argument<*mut sys::mca_btl_base_module_t> for &Module {}
// SAFETY: as above. The last call for a module gets it back from `add`.
unsafe impl Argument<*mut sys::mca_btl_base_module_t> for Box<Module> {}

/// Values of `btl_flags` that ibex supports; others that the user adds are removed.
pub(crate) const FLAGS: u32 = sys::MCA_BTL_FLAGS_SEND
    | sys::MCA_BTL_FLAGS_PUT
    | sys::MCA_BTL_FLAGS_GET
    | sys::MCA_BTL_FLAGS_SEND_INPLACE
    | sys::MCA_BTL_FLAGS_ATOMIC_FOPS;

/// Number of flushes that poll only their port, between two that call `opal_progress`: a program may call nothing but
/// flush, while other processes wait for messages that only `opal_progress` moves.
const FLUSHES: u32 = 31;

/// Largest read in bytes for a software adapter: reads of this size, by default 4 at a time, stay in the processor's
/// cache, from which the reader copies. Measured on soft-RoCE: messages of 1 MiB are a third faster.
const SOFTWARE_GET_LIMIT: usize = 32 << 10;

impl Module {
    /// Makes a module for an open port, with its first send slots. `settings` are the template's fields as the user has
    /// set them; `without_atomics` replaces the atomics if the adapter has none.
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
        // The PML may have opened the port, with smaller receive slots.
        for limit in [&mut base.btl_max_send_size, &mut base.btl_eager_limit, &mut base.btl_rndv_eager_limit] {
            *limit = (*limit).min(port.receive_size());
        }
        base.btl_flags &= FLAGS;
        // The peer's adapter acknowledges a write over a reliable connection. Users cannot set this flag: Open MPI's
        // list for the parameter btl_ibex_flags does not have it.
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
            // A message that is sent in place has two spans, header and data.
            zero_copy_min: if attributes.gathers { tunables.zero_copy_min as usize } else { usize::MAX },
            max_send_size: base.btl_max_send_size,
            index: port.index(),
            has_atomics: attributes.atomics != Atomics::None,
            endpoints,
            error_callback: Mutex::new(None),
            flushes_left: AtomicU32::new(FLUSHES),
            detouring: AtomicBool::new(false),
        }))
    }

    pub(crate) fn mbps(&self) -> u32 {
        self.port.attributes().mbps
    }

    /// Sets how much longer a message takes than on the fastest port; see `settings`.
    pub(crate) fn set_latency(&mut self, microseconds: u32) {
        self.base.btl_latency = microseconds;
    }

    /// # Safety
    /// M1.
    #[inline]
    pub(crate) unsafe fn from_raw<'call>(raw: *mut sys::mca_btl_base_module_t) -> &'call Module {
        // SAFETY: M1: `base` is the first field of a module on the heap, which is shared; only its cells change.
        unsafe { &*raw.cast::<Module>() }
    }

    #[inline]
    pub(crate) fn as_raw(&self) -> *mut sys::mca_btl_base_module_t {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Enters the port; waits for other threads. `None`: this thread is inside already.
    #[inline]
    pub(crate) fn enter(&self) -> Option<State<'_>> {
        self.entry().enter().map(|port| self.state(port))
    }

    #[inline]
    pub(crate) fn try_enter(&self) -> Option<State<'_>> {
        self.entry().try_enter().map(|port| self.state(port))
    }

    #[inline]
    fn entry(&self) -> &Exclusive<Port> {
        // SAFETY: `entry` points into `port`, which lives as long as this module.
        unsafe { self.entry.as_ref() }
    }

    #[inline]
    fn state<'a>(&'a self, port: Entered<'a, Port>) -> State<'a> {
        // SAFETY: only here are the records reached, with the right to this module's port, which exists once at a time
        // and lives as long as the returned value.
        let Records { descriptors, operations, frames, done } = unsafe { &mut *self.records.get() };
        State { descriptors, operations, frames, done, port }
    }

    #[inline]
    pub(crate) fn memory(&self) -> &Memory {
        self.port.memory()
    }

    pub(crate) fn peer_name(&self, id: EndpointId) -> Option<PeerName> {
        self.enter()?.port.peer_name(id)
    }

    pub(crate) fn place(&self) -> &str {
        self.port.place()
    }

    pub(crate) fn source(&self) -> Option<SourceId> {
        self.port.source()
    }

    #[inline]
    pub(crate) fn pointer(&self, id: EndpointId) -> *mut sys::mca_btl_base_endpoint_t {
        self.endpoints.pointer(id)
    }

    pub(crate) fn error_callback(&self) -> sys::mca_btl_base_module_error_cb_fn_t {
        *self.error_callback.lock()
    }

    pub(crate) fn set_error_callback(&self, callback: sys::mca_btl_base_module_error_cb_fn_t) {
        *self.error_callback.lock() = callback;
    }

    /// Counts a flush. Returns whether it is to call `opal_progress`.
    #[inline]
    pub(crate) fn is_others_turn(&self) -> bool {
        // Relaxed, and in two steps: with several threads the interval may differ by a flush.
        let left = self.flushes_left.load(Ordering::Relaxed);
        self.flushes_left.store(if left == 0 { FLUSHES } else { left - 1 }, Ordering::Relaxed);
        left == 0
    }

    pub(crate) fn is_detouring(&self) -> bool {
        // Relaxed: a thread that reads the former value uses this port once more.
        self.detouring.load(Ordering::Relaxed)
    }

    pub(crate) fn has_detours(&self, some: bool) {
        self.detouring.store(some, Ordering::Relaxed);
    }
}

static MODULES: [AtomicPtr<Module>; MAX_PORTS] = [const { AtomicPtr::new(null_mut()) }; MAX_PORTS];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Forgets all modules, because the component is opened.
pub(crate) fn start_anew() {
    COUNT.store(0, Ordering::Release);
}

pub(crate) fn add(module: Box<Module>) -> *mut sys::mca_btl_base_module_t {
    let index = count();
    let module = Box::into_raw(module);
    MODULES[index].store(module, Ordering::Release);
    COUNT.store(index + 1, Ordering::Release);
    module.cast()
}

fn count() -> usize {
    // Acquire: pairs with `add`, which has initialised the modules.
    COUNT.load(Ordering::Acquire)
}

pub(crate) fn are_several() -> bool {
    count() > 1
}

#[inline]
pub(crate) fn all() -> impl Iterator<Item = &'static Module> {
    let used = &MODULES[..count()];
    // SAFETY: M1: in the table from init until finalize, which is Open MPI's last call for the module.
    used.iter().filter_map(|place| unsafe { place.load(Ordering::Acquire).as_ref() })
}

/// Drops a module that [`add`] has leaked.
pub(crate) fn remove(module: Box<Module>) {
    for place in &MODULES {
        // Open MPI has stopped calling progress by now; the exchange only satisfies the memory model.
        let address = std::ptr::from_ref(&*module).cast_mut();
        let _ = place.compare_exchange(address, null_mut(), Ordering::AcqRel, Ordering::Acquire);
    }
    drop(module);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_mpis_part_of_a_module_stands_first() {
        assert_eq!(std::mem::offset_of!(Module, base), 0);
    }
}
