// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registrations for the PML's events of requests and messages. Each is a listener (`runtime/listeners`), which
//! calls the tool's function at the site of the event, or puts the event into the registration's buffer.
//!
//! The engine has the registration with its buffer, its losses and its end, as for every event type; only the delivery
//! at the site is here. A listener caches in [`Quick`] which function to call, as long as its buffer is empty; so an
//! event costs one call. Each change that may concern the cache empties it, in the entered PML. Called by
//! `registration.rs`. Grade: hot for [`deliver_shared`] and [`deliver_alone`] while a tool listens, else setup.
//! Threads: any; these two one at a time. Safety: N1 to N4 of `runtime/listeners`. Tests:
//! `hw-tests/tools/mpi_t_matching.c`.

use std::cell::{Cell, OnceCell, UnsafeCell};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use engine::events::{self, Registration, Safety, TypeId};
use ibex_ffi::openmpi::sys;
use parking_lot::Mutex;

use super::instance::{
    DELIVERED, EventFunction, InstancePointer, MatchingInstance, RegistrationHandle, elements, with_matching,
};
use crate::runtime::entry::{Opaque, entry4};
use crate::runtime::listeners::{self, Event, Function, Listener, Spec, SpecPointer};
use crate::runtime::watch;
use crate::tool::host;

pub(super) type Callback = (EventFunction, Opaque);

/// The callbacks of a registration, by safety level.
pub(super) type Callbacks = [Option<Callback>; 4];

/// Cached decision about an event at its site: a function to call, or the buffer.
#[derive(Clone, Copy)]
struct Quick {
    function: EventFunction,
    user_data: Opaque,
    /// Safety level that a callback needs there.
    level: c_int,
    /// [`events::raising_threads`] at the time of the decision: the function is called. With [`KEPT`]: the event goes
    /// to the buffer. Any other value: no decision yet.
    how: u8,
}

const KEPT: u8 = 2;

impl Quick {
    const UNKNOWN: Quick = Quick { function: nothing, user_data: Opaque(null_mut()), level: 0, how: u8::MAX };
}

extern "C" fn nothing(_: InstancePointer, _: RegistrationHandle, _: c_int, _: Opaque) {}

pub(super) struct Matching {
    handle: RegistrationHandle,
    event_type: TypeId,
    event: Event,
    /// Communicator to listen to; null: all.
    comm: *mut sys::ompi_communicator_t,
    /// Open MPI's count of calls of `MPI_T_init_thread`; 0: no function of a tool may be called.
    may_call: &'static AtomicU32,
    registration: UnsafeCell<Arc<Registration>>,
    callbacks: Cell<Callbacks>,
    quick: Cell<Quick>,
}

// SAFETY: N1 for the cells; `comm` is only compared and passed on.
unsafe impl Send for Matching {}
// SAFETY: N1: one thread at a time uses the cells.
unsafe impl Sync for Matching {}

/// Listeners of all registrations that have a callback.
static LISTENING: Mutex<BTreeMap<RegistrationHandle, Arc<Matching>>> = Mutex::new(BTreeMap::new());

pub(super) fn event(event_type: TypeId) -> Option<Event> {
    Event::ALL.get(event_type.place_in_matching()?).copied()
}

/// Sets the callbacks of a registration to those that `callbacks` returns, under N1. A registration without a listener
/// gets one, if `is_there` returns true under N1. The caller holds no lock that a callback takes.
///
/// # Safety
/// `comm` is null, or a communicator that is live while `is_there` returns true, which ends before MPI frees it.
pub(super) unsafe fn listen(
    handle: RegistrationHandle,
    event: Event,
    registration: &Arc<Registration>,
    comm: *mut sys::ompi_communicator_t,
    (callbacks, is_there): (&dyn Fn() -> Callbacks, &dyn Fn() -> bool),
) {
    if callbacks().iter().all(Option::is_none) && !LISTENING.lock().contains_key(&handle) {
        return;
    }
    let (mut is_new, mut former) = (false, Arc::clone(registration));
    let known = Arc::clone(LISTENING.lock().entry(handle).or_insert_with(|| {
        is_new = true;
        let (event_type, may_call) = (registration.event_type, host::init_count());
        let (callbacks, quick) = (Cell::default(), Cell::new(Quick::UNKNOWN));
        let registration = UnsafeCell::new(Arc::clone(registration));
        Arc::new(Matching { handle, event_type, event, comm, may_call, registration, callbacks, quick })
    }));
    listeners::exclusively(|| {
        // SAFETY: N1 (`exclusively`); where a callback calls this, no reference to it is held.
        std::mem::swap(unsafe { &mut *known.registration.get() }, &mut former);
        known.callbacks.set(callbacks());
        known.forget_quick();
    });
    if !is_new {
        return;
    }
    let param = Arc::as_ptr(&known).cast_mut().cast();
    let listener = Listener { handle: handle.0, function: entry4(deliver_shared), alone: DELIVER_ALONE, param };
    if comm.is_null() {
        listeners::add_everywhere(event, listener, is_there);
    } else if listeners::are_raised() {
        // SAFETY: the caller says when the communicator is live; the PML calls `ends` before it is freed.
        unsafe { listeners::add(comm, event, listener, is_there) };
    }
}

/// Empties the cache of a listener. Called when its registration begins or ceases to buffer events.
pub(super) fn forget_quick(handle: RegistrationHandle) {
    let known = LISTENING.lock().get(&handle).cloned();
    if let Some(known) = known {
        listeners::exclusively(|| known.forget_quick());
    }
}

/// Removes the listener of a registration. The caller keeps the returned value until no callback of it runs.
pub(super) fn cease(handle: RegistrationHandle) -> Option<Arc<Matching>> {
    let known = LISTENING.lock().remove(&handle)?;
    if known.comm.is_null() {
        listeners::remove_everywhere(known.event, handle.0);
    } else {
        listeners::remove(known.comm, known.event, handle.0);
    }
    Some(known)
}

#[inline]
fn needed(has_threads: bool) -> Safety {
    if has_threads { Safety::ThreadSafe } else { Safety::MpiRestricted }
}

/// Function of a listener that shares its event with others.
extern "C" fn deliver_shared(_: i64, id: isize, spec: SpecPointer<'_>, listener: &Matching) -> c_int {
    if spec.fields().stamp == 0 {
        spec.set_stamp(DELIVERED);
    } else {
        events::count_further_delivery();
    }
    listener.deliver(id as u64, spec);
    0
}

/// Function of a lone listener.
extern "C" fn deliver_alone(_: i64, id: isize, spec: SpecPointer<'_>, listener: &Matching) -> c_int {
    spec.set_stamp(DELIVERED);
    listener.deliver(id as u64, spec);
    0
}

const DELIVER_ALONE: Function = entry4(deliver_alone);

/// Function of a lone listener whose events go to the buffer, with the lengths of the queues.
///
/// # Safety
/// N1, N3, N4: `param` is that listener's.
#[inline(always)]
pub(crate) unsafe fn keep_alone(id: isize, spec: *mut Spec, param: *mut c_void, queues: [u32; 2]) -> c_int {
    // SAFETY: N3, N4: `param` is this listener's, which `cease` returns only after its removal.
    let (spec, known) = unsafe { (SpecPointer::from(&mut *spec), &*param.cast::<Matching>()) };
    if !events::stamp_by_counter().is_some_and(|timestamp| known.keep(id as u64, spec, queues, timestamp)) {
        spec.set_stamp(DELIVERED);
        known.keep_otherwise(id as u64, spec);
    }
    0
}

impl Matching {
    /// Decides anew about the next event. N1.
    fn forget_quick(&self) {
        self.quick.set(Quick::UNKNOWN);
        listeners::set_alone(self.event, self.handle.0, DELIVER_ALONE);
    }

    #[inline(always)]
    fn deliver(&self, id: u64, spec: SpecPointer<'_>) {
        let (quick, threads) = (self.quick.get(), events::raising_threads());
        if quick.how == threads {
            self.call(quick, &self.instance(id, spec));
        } else if quick.how == threads | KEPT {
            self.keep_otherwise(id, spec);
        } else {
            self.deliver_slowly(&self.instance(id, spec));
        }
    }

    #[inline(always)]
    fn instance<'call>(&self, id: u64, spec: SpecPointer<'call>) -> MatchingInstance<'call> {
        MatchingInstance { spec, id, event_type: self.event_type, made: OnceCell::new() }
    }

    /// Puts an event into the buffer while less than half of that is in use. Returns false if the event is not in it.
    #[inline(always)]
    fn keep(&self, id: u64, spec: SpecPointer<'_>, queues: [u32; 2], timestamp: u64) -> bool {
        // SAFETY: N1; nothing is called while this reference lives.
        let registration = unsafe { &*self.registration.get() };
        events::keep_quickly(registration, timestamp, || elements(id, &spec.fields(), queues))
    }

    /// [`Self::keep`] by any clock, which an earlier one of several listeners may have read, or
    /// [`Self::deliver_slowly`].
    #[inline(never)]
    fn keep_otherwise(&self, id: u64, spec: SpecPointer<'_>) {
        let instance = self.instance(id, spec);
        if !self.keep(id, spec, instance.queues(), instance.timestamp()) {
            self.deliver_slowly(&instance);
        }
    }

    #[inline(always)]
    fn call(&self, Quick { function, user_data, level, .. }: Quick, instance: &MatchingInstance<'_>) {
        if self.may_call.load(Ordering::Relaxed) == 0 {
            return;
        }
        let handle = self.handle;
        // SAFETY: N4: the tool's function with its argument; the instance outlives the call.
        with_matching(instance, |pointer| unsafe { function(pointer, handle, level, user_data) });
    }

    /// Decides anew about an event, and calls the tool's function or fills the buffer.
    #[cold]
    #[inline(never)]
    fn deliver_slowly(&self, instance: &MatchingInstance<'_>) {
        let has_threads = events::has_threads();
        let (needed, callbacks) = (needed(has_threads).index(), self.callbacks.get());
        // SAFETY: N1; `self.call`, which may change it, is passed a copy of all it needs.
        let registration = Arc::clone(unsafe { &*self.registration.get() });
        let fit = callbacks[needed..].iter().flatten().next();
        if !registration.is_buffered()
            && registration.is_direct()
            && let Some(&(function, user_data)) = fit
        {
            // One may be called there, and the buffer is empty.
            let quick = Quick { function, user_data, level: needed as c_int, how: has_threads.into() };
            self.quick.set(quick);
            return self.call(quick, instance);
        }
        let was_kept = self.quick.replace(Quick::UNKNOWN).how == u8::from(has_threads) | KEPT;
        // A registration without a callback gets no events.
        if callbacks.iter().any(Option::is_some) {
            events::keep(&registration, &instance.whole());
            if registration.look_for_room() || fit.is_none() {
                watch::serve_soon();
            }
            // `keep` writes the elements of `MatchingEvent`, which a protocol event does not have.
            if fit.is_some() && registration.is_buffered() && self.event != Event::Protocol {
                self.quick.set(Quick { how: u8::from(has_threads) | KEPT, ..Quick::UNKNOWN });
                if let Some(keep_alone) = listeners::keep_alone().filter(|_| !was_kept) {
                    listeners::set_alone(self.event, self.handle.0, keep_alone);
                }
            }
        }
    }
}
