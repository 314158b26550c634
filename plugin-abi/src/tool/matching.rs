// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registrations for what a face raises that does the matching: listeners of `runtime/listeners.rs`, which call a
//! tool's function where the event happens, or put the event into the registration's buffer.
//!
//! The engine has the registration, its buffer, its losses and its end, as of all others; what it does not do is to
//! deliver an event where it happens. A listener knows which function that is, as long as nothing waits in the buffer
//! ([`Quick`]), so that an event costs a call and no look at anything else. What is known so is worked out anew
//! whenever it may have changed, inside the raising face. Called by `registration.rs`. Grade: setup; [`tell`] is on the
//! way of a message that is listened to. Threads: any; [`tell`] one at a time. Tests:
//! `hw-tests/tools/mpi_t_matching.c`.

use std::cell::{OnceCell, UnsafeCell};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::events::{self, Registration, Safety, TypeId};
use ibex_ffi::openmpi::sys;

use super::host;
use super::instance::{
    EventFunction, InstancePointer, MatchingInstance, RegistrationHandle, TOLD, elements, with_matching,
};
use crate::runtime::listeners::{self, Event, Listener, Queues, Spec};
use crate::runtime::watch;

/// A tool's function with what it is called with.
pub(super) type Callback = (EventFunction, *mut c_void);

/// The callback of each level, as far as there is one.
pub(super) type Callbacks = [Option<Callback>; 4];

/// What is called where an event happens.
#[derive(Clone, Copy)]
struct Quick {
    function: EventFunction,
    user_data: *mut c_void,
    /// What callbacks must be fit for there.
    level: c_int,
    /// Whether several threads raised events when that was found, as a number; with [`KEPT`]: the event goes to the
    /// buffer; any other: it has not been found.
    how: u8,
}

/// See [`Quick::how`].
const KEPT: u8 = 2;

impl Quick {
    const UNKNOWN: Quick = Quick { function: nothing, user_data: null_mut(), level: 0, how: u8::MAX };
}

unsafe extern "C" fn nothing(_: InstancePointer, _: RegistrationHandle, _: c_int, _: *mut c_void) {}

/// What can change of a listener.
struct Changing {
    registration: Arc<Registration>,
    callbacks: Callbacks,
    quick: Quick,
}

/// What a listener is registered with: a registration of a tool's.
pub(super) struct Matching {
    handle: RegistrationHandle,
    event_type: TypeId,
    /// How long the queues of a communicator are.
    queues: Queues,
    event: Event,
    /// Of which communicator; null: of all.
    comm: *mut sys::ompi_communicator_t,
    /// Whether functions of a tool may be called: not 0.
    may_call: *const u32,
    changing: UnsafeCell<Changing>,
}

// SAFETY: what can change is used in `listeners::exclusively` and where an event is told, by one thread at a time; of
// the pointers one is compared and handed on, the other to what is always there.
unsafe impl Send for Matching {}
// SAFETY: the same: threads share what is used by one of them at a time.
unsafe impl Sync for Matching {}

/// Those with a callback.
static LISTENING: Mutex<BTreeMap<RegistrationHandle, Arc<Matching>>> = Mutex::new(BTreeMap::new());

fn listening() -> MutexGuard<'static, BTreeMap<RegistrationHandle, Arc<Matching>>> {
    LISTENING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The event that a type stands for, if a face raises it that does the matching.
pub(super) fn event(event_type: TypeId) -> Option<Event> {
    Event::ALL.get(event_type.place_in_matching()?).copied()
}

/// From now on a registration for `event` has these callbacks, asked for where no event is told; from the first on it
/// listens, if it `is_there` then. The caller holds no lock that a callback takes.
///
/// # Safety
/// `comm` is null, or a communicator of MPI's that is live if the registration `is_there`; it is not any more when MPI
/// frees that.
pub(super) unsafe fn listen(
    handle: RegistrationHandle,
    event: Event,
    registration: &Arc<Registration>,
    comm: *mut sys::ompi_communicator_t,
    (callbacks, is_there): (&dyn Fn() -> Callbacks, &dyn Fn() -> bool),
) {
    if callbacks().iter().all(Option::is_none) && !listening().contains_key(&handle) {
        return;
    }
    let (mut is_new, mut former) = (false, Arc::clone(registration));
    let known = Arc::clone(listening().entry(handle).or_insert_with(|| {
        is_new = true;
        let changing =
            Changing { registration: Arc::clone(registration), callbacks: Callbacks::default(), quick: Quick::UNKNOWN };
        let (event_type, may_call) = (registration.event_type, host::init_count());
        let queues = listeners::queues_function();
        Arc::new(Matching { handle, event_type, queues, event, comm, may_call, changing: UnsafeCell::new(changing) })
    }));
    listeners::exclusively(|| {
        // SAFETY: inside the raising face; a callback that this is called from has no reference to it.
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
        // SAFETY: the caller says when it is live; the face that raises these events says when it goes.
        unsafe { listeners::add(comm, event, listener, is_there) };
    }
}

/// Whether its events wait may have changed.
pub(super) fn forget_quick(handle: RegistrationHandle) {
    let known = listening().get(&handle).cloned();
    if let Some(known) = known {
        listeners::exclusively(|| {
            // SAFETY: inside the raising face; a callback that this is called from has no reference to it.
            unsafe { (*known.changing.get()).quick = Quick::UNKNOWN };
            listeners::set_alone(known.event, handle.0, tell_alone);
        });
    }
}

/// A registration listens no more. What is returned is to be kept until no callback of it runs.
pub(super) fn cease(handle: RegistrationHandle) -> Option<Arc<Matching>> {
    let known = listening().remove(&handle)?;
    if known.comm.is_null() {
        listeners::remove_everywhere(known.event, handle.0);
    } else {
        listeners::remove(known.comm, known.event, handle.0);
    }
    Some(known)
}

/// What callbacks must be fit for where these events happen.
#[inline]
fn needed(has_threads: bool) -> Safety {
    if has_threads { Safety::ThreadSafe } else { Safety::MpiRestricted }
}

impl Changing {
    /// The callback of the least level that may be called where events happen.
    fn fit(&self, has_threads: bool) -> Option<&Callback> {
        self.callbacks[needed(has_threads).index()..].iter().flatten().next()
    }

    /// What is to be called where events happen, if that can be.
    fn find_quick(&self, has_threads: bool) -> Option<Quick> {
        if !self.registration.is_direct() {
            return None;
        }
        let level = needed(has_threads).index() as c_int;
        let quick = |&(function, user_data): &Callback| Quick { function, user_data, level, how: has_threads.into() };
        self.fit(has_threads).map(quick)
    }
}

/// The listener's function, where others listen to the same.
unsafe extern "C" fn tell(_: i64, id: isize, spec: *mut Spec, param: *mut c_void) -> c_int {
    // SAFETY: the raiser's, for the call.
    let stamp = unsafe { &mut (*spec).stamp };
    if *stamp == 0 {
        *stamp = TOLD;
    } else {
        events::count_told_again();
    }
    // SAFETY: what the listener was added with; handed on.
    unsafe { tell_one(id as u64, spec, param) };
    0
}

/// The listener's function, where no other listens to the same.
unsafe extern "C" fn tell_alone(_: i64, id: isize, spec: *mut Spec, param: *mut c_void) -> c_int {
    // SAFETY: the raiser's, for the call; what the listener was added with; handed on.
    unsafe {
        (*spec).stamp = TOLD;
        tell_one(id as u64, spec, param);
    }
    0
}

/// The listener's function, where no other listens to the same and its events go to the buffer.
unsafe extern "C" fn keep_alone(_: i64, id: isize, spec: *mut Spec, param: *mut c_void) -> c_int {
    // SAFETY: what the listener was added with; it is kept as long as this may be called.
    let known = unsafe { &*param.cast::<Matching>() };
    // SAFETY: the raiser's, for the call; inside the raising face.
    if !unsafe { known.keep(id as u64, &*spec, events::stamp) } {
        // SAFETY: the raiser's, for the call; inside the raising face.
        unsafe { keep_slowly(known, id as u64, spec) };
    }
    0
}

/// # Safety
/// The raiser's specification. Inside the raising face.
#[cold]
#[inline(never)]
unsafe fn keep_slowly(known: &Matching, id: u64, spec: *mut Spec) {
    // SAFETY: the caller gives the raiser's specification, inside the raising face.
    unsafe {
        (*spec).stamp = TOLD;
        known.tell_slowly(&known.instance(id, spec));
    }
}

/// # Safety
/// The raiser's specification, and what the listener was added with. Inside the raising face.
#[inline(always)]
unsafe fn tell_one(id: u64, spec: *mut Spec, param: *mut c_void) {
    // SAFETY: the caller gives what the listener was added with; it is kept as long as this may be called.
    let known = unsafe { &*param.cast::<Matching>() };
    // SAFETY: inside the raising face; a copy, as what is called may change it.
    let quick = unsafe { &(*known.changing.get()).quick };
    let threads = events::raising_threads();
    if quick.how == threads {
        known.call(*quick, &known.instance(id, spec));
    } else if quick.how == threads | KEPT {
        // SAFETY: inside the raising face.
        unsafe { known.keep_beside_others(id, spec) };
    } else {
        // SAFETY: inside the raising face.
        unsafe { known.tell_slowly(&known.instance(id, spec)) };
    }
}

impl Matching {
    #[inline(always)]
    fn instance(&self, id: u64, spec: *mut Spec) -> MatchingInstance {
        MatchingInstance { spec, id, event_type: self.event_type, made: OnceCell::new() }
    }

    /// Puts an event into the buffer, as long as less than half of that is in use. False: it is not there.
    ///
    /// # Safety
    /// Inside the raising face, by which the specification's communicator is told of.
    #[inline(always)]
    unsafe fn keep(&self, id: u64, spec: &Spec, timestamp: impl FnOnce() -> u64) -> bool {
        // SAFETY: the caller says that the raising face, in which this is, tells of the communicator: it lives.
        let queues = unsafe { (self.queues)(spec.comm) };
        // SAFETY: the caller is inside the raising face; nothing is called while this lives.
        let registration = unsafe { &(*self.changing.get()).registration };
        events::keep_quickly(registration, timestamp(), || elements(id, spec, queues))
    }

    /// [`Self::keep`], where others may have asked for the time.
    ///
    /// # Safety
    /// The raiser's specification. Inside the raising face, by which its communicator is told of.
    #[inline(never)]
    unsafe fn keep_beside_others(&self, id: u64, spec: *mut Spec) {
        let instance = self.instance(id, spec);
        let timestamp = instance.timestamp();
        // SAFETY: the caller gives the raiser's specification, inside the raising face.
        if !unsafe { self.keep(id, &*spec, || timestamp) } {
            // SAFETY: inside the raising face.
            unsafe { self.tell_slowly(&instance) };
        }
    }

    #[inline(always)]
    fn call(&self, Quick { function, user_data, level, .. }: Quick, instance: &MatchingInstance) {
        // SAFETY: an integer that is always there, and of which Open MPI writes all at once.
        if unsafe { AtomicU32::from_ptr(self.may_call.cast_mut()) }.load(Ordering::Relaxed) == 0 {
            return;
        }
        let handle = self.handle;
        // SAFETY: the tool's function with what the tool gave for it; the instance outlives the call.
        with_matching(instance, |pointer| unsafe { function(pointer, handle, level, user_data) });
    }

    /// It is not known what to call, or the event goes to the buffer.
    ///
    /// # Safety
    /// Inside the raising face.
    #[cold]
    #[inline(never)]
    unsafe fn tell_slowly(&self, instance: &MatchingInstance) {
        let has_threads = events::has_threads();
        // SAFETY: the caller is inside the raising face; nothing is called while this lives.
        let changing = unsafe { &mut *self.changing.get() };
        if !changing.registration.is_buffered()
            && let Some(quick) = changing.find_quick(has_threads)
        {
            changing.quick = quick;
            return self.call(quick, instance);
        }
        let was_kept = changing.quick.how == u8::from(has_threads) | KEPT;
        changing.quick = Quick::UNKNOWN;
        // Without a callback it wants nothing.
        if changing.callbacks.iter().any(Option::is_some) {
            events::keep(&changing.registration, &instance.whole());
            let is_fit = changing.fit(has_threads).is_some();
            if changing.registration.look_for_room() || !is_fit {
                watch::serve_soon();
            }
            // What is kept quickly has the elements that most have.
            if is_fit && changing.registration.is_buffered() && self.event != Event::Protocol {
                changing.quick.how = u8::from(has_threads) | KEPT;
                if !was_kept {
                    listeners::set_alone(self.event, self.handle.0, keep_alone);
                }
            }
        }
    }
}
