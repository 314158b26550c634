// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registrations for the PML's events of requests and messages. Each is a listener (`runtime/listeners.rs`), which
//! calls the tool's function at the site of the event, or puts the event into the registration's buffer.
//!
//! The engine has the registration with its buffer, its losses and its end, as for every event type; only the delivery
//! at the site is here. A listener caches in [`Quick`] which function to call, as long as its buffer is empty; so an
//! event costs one call. Each change that may concern the cache empties it, in the entered PML. Called by
//! `registration.rs`. Grade: setup; [`tell`] is on the path of messages while a tool listens. Threads: any; [`tell`]
//! one at a time. Safety: N1 to N4 of `runtime/listeners.rs`. Tests: `hw-tests/tools/mpi_t_matching.c`.

use std::cell::{OnceCell, UnsafeCell};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use engine::events::{self, Registration, Safety, TypeId};
use ibex_ffi::openmpi::sys;
use parking_lot::Mutex;

use super::host;
use super::instance::{
    EventFunction, InstancePointer, MatchingInstance, RegistrationHandle, TOLD, elements, with_matching,
};
use crate::runtime::listeners::{self, Event, Listener, Spec};
use crate::runtime::watch;

pub(super) type Callback = (EventFunction, *mut c_void);

/// The callbacks of a registration, by safety level.
pub(super) type Callbacks = [Option<Callback>; 4];

/// Cached decision about an event at its site: a function to call, or the buffer.
#[derive(Clone, Copy)]
struct Quick {
    function: EventFunction,
    user_data: *mut c_void,
    /// Safety level that a callback needs there.
    level: c_int,
    /// [`events::raising_threads`] at the time of the decision: the function is called. With [`KEPT`]: the event goes
    /// to the buffer. Any other value: no decision yet.
    how: u8,
}

const KEPT: u8 = 2;

impl Quick {
    const UNKNOWN: Quick = Quick { function: nothing, user_data: null_mut(), level: 0, how: u8::MAX };
}

unsafe extern "C" fn nothing(_: InstancePointer, _: RegistrationHandle, _: c_int, _: *mut c_void) {}

struct Changing {
    registration: Arc<Registration>,
    callbacks: Callbacks,
    quick: Quick,
}

pub(super) struct Matching {
    handle: RegistrationHandle,
    event_type: TypeId,
    event: Event,
    /// Communicator to listen to; null: all.
    comm: *mut sys::ompi_communicator_t,
    /// Open MPI's count of calls of `MPI_T_init_thread`; 0: no function of a tool may be called.
    may_call: *const u32,
    changing: UnsafeCell<Changing>,
}

// SAFETY: N1 for `changing`; `comm` is only compared and passed on; `may_call` points to a static integer.
unsafe impl Send for Matching {}
// SAFETY: see `Send`: one thread at a time uses the shared fields.
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
        let changing =
            Changing { registration: Arc::clone(registration), callbacks: Callbacks::default(), quick: Quick::UNKNOWN };
        let (event_type, may_call) = (registration.event_type, host::init_count());
        Arc::new(Matching { handle, event_type, event, comm, may_call, changing: UnsafeCell::new(changing) })
    }));
    listeners::exclusively(|| {
        // SAFETY: N1 (`exclusively`); where a callback calls this, no reference to `changing` is held.
        let changing = unsafe { &mut *known.changing.get() };
        std::mem::swap(&mut changing.registration, &mut former);
        (changing.callbacks, changing.quick) = (callbacks(), Quick::UNKNOWN);
        listeners::set_alone(event, handle.0, tell_alone);
    });
    if !is_new {
        return;
    }
    let param = Arc::as_ptr(&known).cast_mut().cast();
    let listener = Listener { handle: handle.0, function: tell, alone: tell_alone, param };
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
        listeners::exclusively(|| {
            // SAFETY: N1 (`exclusively`); where a callback calls this, no reference to `changing` is held.
            unsafe { (*known.changing.get()).quick = Quick::UNKNOWN };
            listeners::set_alone(known.event, handle.0, tell_alone);
        });
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

impl Changing {
    fn fit(&self, has_threads: bool) -> Option<&Callback> {
        self.callbacks[needed(has_threads).index()..].iter().flatten().next()
    }

    /// Returns the function to call at the site of an event, if one may be called there and the buffer is empty.
    fn find_quick(&self, has_threads: bool) -> Option<Quick> {
        if !self.registration.is_direct() {
            return None;
        }
        let level = needed(has_threads).index() as c_int;
        let quick = |&(function, user_data): &Callback| Quick { function, user_data, level, how: has_threads.into() };
        self.fit(has_threads).map(quick)
    }
}

/// Function of a listener that shares its event with others.
unsafe extern "C" fn tell(_: i64, id: isize, spec: *mut Spec, param: *mut c_void) -> c_int {
    // SAFETY: N3; no other reference to it is held.
    let stamp = unsafe { &mut (*spec).stamp };
    if *stamp == 0 {
        *stamp = TOLD;
    } else {
        events::count_told_again();
    }
    // SAFETY: N1, N3; N4: `param` is this listener's.
    unsafe { tell_one(id as u64, spec, param) };
    0
}

/// Function of a lone listener.
unsafe extern "C" fn tell_alone(_: i64, id: isize, spec: *mut Spec, param: *mut c_void) -> c_int {
    // SAFETY: N1, N3; N4: `param` is this listener's.
    unsafe {
        (*spec).stamp = TOLD;
        tell_one(id as u64, spec, param);
    }
    0
}

/// Function of a lone listener whose events go to the buffer, with the lengths of the queues.
///
/// # Safety
/// N1, N3, N4: `param` is that listener's.
#[inline(always)]
pub(crate) unsafe fn keep_alone(id: isize, spec: *mut Spec, param: *mut c_void, queues: [u32; 2]) -> c_int {
    // SAFETY: N4: `param` is this listener's, which `cease` returns only after its removal.
    let known = unsafe { &*param.cast::<Matching>() };
    // SAFETY: N1, N3.
    let keep = |timestamp| unsafe { known.keep(id as u64, &*spec, queues, timestamp) };
    if !events::stamp_by_counter().is_some_and(keep) {
        // SAFETY: N1, N3.
        unsafe {
            (*spec).stamp = TOLD;
            known.keep_otherwise(id as u64, spec);
        }
    }
    0
}

/// # Safety
/// N1, N3. `param` is a listener that was added with this function (N4).
#[inline(always)]
unsafe fn tell_one(id: u64, spec: *mut Spec, param: *mut c_void) {
    // SAFETY: N4: `param` is this listener's, which `cease` returns only after its removal.
    let known = unsafe { &*param.cast::<Matching>() };
    // SAFETY: N1; the value is copied before a callback is called, which may change it.
    let quick = unsafe { &(*known.changing.get()).quick };
    let threads = events::raising_threads();
    if quick.how == threads {
        known.call(*quick, &known.instance(id, spec));
    } else if quick.how == threads | KEPT {
        // SAFETY: N1, N3, which the caller ensures.
        unsafe { known.keep_otherwise(id, spec) };
    } else {
        // SAFETY: N1, which the caller ensures.
        unsafe { known.tell_slowly(&known.instance(id, spec)) };
    }
}

impl Matching {
    #[inline(always)]
    fn instance(&self, id: u64, spec: *mut Spec) -> MatchingInstance {
        MatchingInstance { spec, id, event_type: self.event_type, made: OnceCell::new() }
    }

    /// Puts an event into the buffer while less than half of that is in use. Returns false if the event is not in it.
    ///
    /// # Safety
    /// N1.
    #[inline(always)]
    unsafe fn keep(&self, id: u64, spec: &Spec, queues: [u32; 2], timestamp: u64) -> bool {
        // SAFETY: N1; nothing is called while this reference lives.
        let registration = unsafe { &(*self.changing.get()).registration };
        events::keep_quickly(registration, timestamp, || elements(id, spec, queues))
    }

    /// [`Self::keep`] by any clock, which an earlier one of several listeners may have read, or [`Self::tell_slowly`].
    ///
    /// # Safety
    /// N1, N3. The specification's communicator is the one whose listeners are being notified.
    #[inline(never)]
    unsafe fn keep_otherwise(&self, id: u64, spec: *mut Spec) {
        let instance = self.instance(id, spec);
        // SAFETY: N1, N3, which the caller ensures; the communicator is the one whose listeners are being notified.
        unsafe {
            let queues = listeners::queues((*spec).comm);
            if !self.keep(id, &*spec, queues, instance.timestamp()) {
                self.tell_slowly(&instance);
            }
        }
    }

    #[inline(always)]
    fn call(&self, Quick { function, user_data, level, .. }: Quick, instance: &MatchingInstance) {
        // SAFETY: the integer is always there, and aligned; Open MPI writes it with one store.
        if unsafe { AtomicU32::from_ptr(self.may_call.cast_mut()) }.load(Ordering::Relaxed) == 0 {
            return;
        }
        let handle = self.handle;
        // SAFETY: N4: the tool's function with its argument; the instance outlives the call.
        with_matching(instance, |pointer| unsafe { function(pointer, handle, level, user_data) });
    }

    /// Decides anew about an event, and calls the tool's function or fills the buffer.
    ///
    /// # Safety
    /// N1.
    #[cold]
    #[inline(never)]
    unsafe fn tell_slowly(&self, instance: &MatchingInstance) {
        let has_threads = events::has_threads();
        // SAFETY: N1; the reference is not used after `self.call`, which may change the value.
        let changing = unsafe { &mut *self.changing.get() };
        if !changing.registration.is_buffered()
            && let Some(quick) = changing.find_quick(has_threads)
        {
            changing.quick = quick;
            return self.call(quick, instance);
        }
        let was_kept = changing.quick.how == u8::from(has_threads) | KEPT;
        changing.quick = Quick::UNKNOWN;
        // A registration without a callback gets no events.
        if changing.callbacks.iter().any(Option::is_some) {
            events::keep(&changing.registration, &instance.whole());
            let is_fit = changing.fit(has_threads).is_some();
            if changing.registration.look_for_room() || !is_fit {
                watch::serve_soon();
            }
            // `keep` writes the elements of `MatchingEvent`, which a protocol event does not have.
            if is_fit && changing.registration.is_buffered() && self.event != Event::Protocol {
                changing.quick.how = u8::from(has_threads) | KEPT;
                if let Some(keep_alone) = listeners::keep_alone().filter(|_| !was_kept) {
                    listeners::set_alone(self.event, self.handle.0, keep_alone);
                }
            }
        }
    }
}
