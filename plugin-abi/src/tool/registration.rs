// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registrations as a tool sees them: `MPI_T_event_registration`, its callbacks and its info keys.
//!
//! A handle given to C is the registration's number as a pointer; it is looked up and never dereferenced, so a wrong one is an
//! error code. Called by `mpi_t.rs`. Grade: setup; what is called for an event is made here and runs where it happens, without
//! allocation. Threads: any. Tests: `tests/tool.rs`.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::without_provenance_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::events::{self, Handle, HandleId, Options, Record, Safety, SourceId, TypeId};

use super::host::{self, Code, Info};
use crate::variables::events as defaults;
use crate::watch;

/// Whether events wait until progress delivers them.
const BUFFERED: &CStr = c"ibex_buffered";

/// How many events may wait.
const BUFFER_EVENTS: &CStr = c"ibex_buffer_events";

/// The most events a buffer may hold: 128 MiB.
const BUFFER_MOST: usize = 1 << 20;

/// An `MPI_T_event_registration`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Registration(*mut c_void);

/// An `MPI_T_event_instance`: the record, valid within the callback.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Instance(*const Record);

/// `MPI_T_event_cb_function`
pub(crate) type EventFunction = unsafe extern "C" fn(Instance, Registration, c_int, *mut c_void);
/// `MPI_T_event_free_cb_function`
pub(crate) type FreeFunction = unsafe extern "C" fn(Registration, c_int, *mut c_void);
/// `MPI_T_event_dropped_cb_function`
pub(crate) type DroppedFunction = unsafe extern "C" fn(i64, Registration, c_int, c_int, *mut c_void);

/// What a tool gave for a registration, beyond what the engine keeps of it.
#[derive(Default)]
struct Given {
    /// What the callback of each level was registered with.
    users: [Option<User>; 4],
    dropped: Option<DroppedFunction>,
}

impl Given {
    /// What to call for losses, and with what: with that of the callback of the least level that is fit. Where none is, nothing is
    /// called (MPI 4.1, section 15.3.8, on dropped events).
    fn dropped(&self, needed: Safety) -> Option<(DroppedFunction, User)> {
        Some((self.dropped?, self.users[needed.index()..].iter().flatten().next().copied()?))
    }
}

type Shared = Arc<Mutex<Given>>;

static GIVEN: Mutex<BTreeMap<u64, Shared>> = Mutex::new(BTreeMap::new());

/// The content of a lock, which no callback runs under.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// The event whose callback this thread runs.
    static SHOWN: Cell<*const Record> = const { Cell::new(std::ptr::null()) };
}

/// A tool's pointer on its way through the engine, which may call from another thread than the one that gave it.
#[derive(Clone, Copy)]
struct User(*mut c_void);

// SAFETY: never dereferenced by ibex; whether the tool may use it in another thread is what the levels of safety are about.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

impl User {
    fn pointer(self) -> *mut c_void {
        self.0
    }
}

impl Registration {
    fn of(handle: &Handle) -> Registration {
        Registration(without_provenance_mut(handle.id.0 as usize))
    }

    /// The engine's registration, and what the tool gave for it. Those of PERUSE are none of these.
    fn given(self) -> Result<(Arc<Handle>, Shared), Code> {
        let id = self.0.addr() as u64;
        let given = lock(&GIVEN).get(&id).cloned().ok_or(Code::InvalidHandle)?;
        Ok((events::find(HandleId(id)).ok_or(Code::InvalidHandle)?, given))
    }

    fn handle(self) -> Result<Arc<Handle>, Code> {
        Ok(self.given()?.0)
    }
}

impl Instance {
    /// The event, where this thread runs the callback it was given to.
    #[inline]
    pub(crate) fn record<'a>(self) -> Option<&'a Record> {
        if self.0.is_null() || SHOWN.get() != self.0 {
            return None;
        }
        // SAFETY: the record outlives the callback, which this thread is in, and is not written meanwhile.
        unsafe { self.0.as_ref() }
    }
}

/// The level of a `MPI_T_cb_safety`.
pub(crate) fn level(number: c_int) -> Result<Safety, Code> {
    Safety::ALL.into_iter().find(|level| level.index() as c_int == number).ok_or(Code::Invalid)
}

/// What the keys of an info object set; absent and unreadable ones set nothing (MPI 4.1, section 10).
struct Hints {
    buffered: Option<bool>,
    room: Option<usize>,
}

impl Hints {
    /// # Safety
    /// `info` is a valid info object, or `MPI_INFO_NULL`.
    unsafe fn read(info: Info) -> Hints {
        // SAFETY: this function's rule.
        let (buffered, room) = unsafe { (info.value(BUFFERED), info.value(BUFFER_EVENTS)) };
        Hints {
            buffered: buffered.and_then(|text| text.parse().ok()),
            room: room.and_then(|text| text.parse().ok()).filter(|room| (1..=BUFFER_MOST).contains(room)),
        }
    }
}

/// `MPI_T_event_handle_alloc`
///
/// # Safety
/// `object` is null, or points to an `MPI_Comm` of whatever value, for a type that is bound to one; `info` is valid or null.
pub(crate) unsafe fn alloc(kind: TypeId, object: *const c_void, info: Info) -> Result<Registration, Code> {
    let object = if kind.row().bound.is_none() || object.is_null() {
        None
    } else {
        // SAFETY: this function's rule.
        let context = unsafe { host::context(object) }.ok_or(Code::Invalid)?;
        // SAFETY: as above, and it is valid.
        if !unsafe { host::tell_when_freed(object, communicator_freed) } {
            return Err(Code::Invalid);
        }
        Some(context)
    };
    // SAFETY: this function's rule.
    let hints = unsafe { Hints::read(info) };
    let buffered = hints.buffered.unwrap_or_else(defaults::default_buffered);
    let room = hints.room.unwrap_or_else(|| default_room(buffered));
    let handle = events::register(kind, Options { object, buffered, room });
    let given = Shared::default();
    let teller = Arc::clone(&given);
    let dropped: events::DroppedCallback =
        Arc::new(move |count, source, handle, level| tell_dropped(&teller, count, source, handle, level));
    lock(&GIVEN).insert(handle.id.0, given);
    events::set_dropped(&handle, Some(dropped)).map_err(|_| Code::InvalidHandle)?;
    Ok(Registration::of(&handle))
}

/// Tells the tool of losses, if it wants to know; else they are forgotten.
fn tell_dropped(given: &Mutex<Given>, count: u64, source: SourceId, handle: &Handle, level: Safety) {
    let wanted = lock(given).dropped(level);
    if let Some((function, user)) = wanted
        && host::may_call()
    {
        let (count, source) = (count as i64, source.index() as c_int);
        // SAFETY: the tool's function, with what the tool gave for a callback.
        unsafe { function(count, Registration::of(handle), source, level.index() as c_int, user.pointer()) };
    }
}

/// A communicator is freed: what is registered for it gets no more, as its number may become another's.
extern "C" fn communicator_freed(context: u64) {
    crate::guard::fence("the end of a communicator", (), || {
        // What happened in it is still shown.
        watch::catch_up();
        let is_ours = |handle: &&Arc<Handle>| lock(&GIVEN).contains_key(&handle.id.0);
        for handle in events::all().iter().filter(|handle| handle.object == Some(context)).filter(is_ours) {
            // One that is just being freed needs nothing more.
            let _ = events::set_active(handle, false);
        }
    });
}

/// How many events may wait where nobody says.
fn default_room(buffered: bool) -> usize {
    if buffered { defaults::default_room() } else { Options::default().room }
}

/// The keys and values of a registration, as a new object.
fn keys(buffered: bool, room: usize) -> Info {
    Info::with(&[(BUFFERED, if buffered { "true" } else { "false" }), (BUFFER_EVENTS, &room.to_string())])
}

/// What a registration has that says nothing, as a new object.
pub(crate) fn default_info() -> Info {
    let buffered = defaults::default_buffered();
    keys(buffered, default_room(buffered).max(2).next_power_of_two())
}

/// `MPI_T_event_handle_set_info`: whether events wait can be changed; how many, not.
///
/// # Safety
/// `info` is valid or null.
pub(crate) unsafe fn set_info(registration: Registration, info: Info) -> Result<(), Code> {
    let handle = registration.handle()?;
    // SAFETY: this function's rule.
    if let Some(buffered) = unsafe { Hints::read(info) }.buffered {
        handle.set_buffered(buffered);
    }
    Ok(())
}

/// `MPI_T_event_handle_get_info`
pub(crate) fn info(registration: Registration) -> Result<Info, Code> {
    let handle = registration.handle()?;
    Ok(keys(handle.is_buffered(), handle.room()))
}

/// `MPI_T_event_register_callback`; without a function the level's callback is taken away.
pub(crate) fn register(
    registration: Registration,
    level: Safety,
    user: *mut c_void,
    function: Option<EventFunction>,
) -> Result<(), Code> {
    let (handle, given) = registration.given()?;
    let user = User(user);
    let callback = function.map(|function| -> events::Callback {
        Arc::new(move |record: &Record, handle: &Handle, needed: Safety| {
            if !host::may_call() {
                return;
            }
            // A signal handler may have come within another callback.
            let before = SHOWN.replace(record);
            // SAFETY: the tool's function with what the tool gave for it; the record outlives the call.
            unsafe { function(Instance(record), Registration::of(handle), needed.index() as c_int, user.pointer()) };
            SHOWN.set(before);
        })
    });
    lock(&given).users[level.index()] = function.map(|_| user);
    events::set_callback(&handle, level, callback).map_err(|_| Code::InvalidHandle)
}

/// `MPI_T_event_callback_set_info` and `MPI_T_event_callback_get_info`: callbacks have no keys.
pub(crate) fn check_callback(registration: Registration, level: Safety) -> Result<(), Code> {
    let (_, given) = registration.given()?;
    let is_there = lock(&given).users[level.index()].is_some();
    if is_there { Ok(()) } else { Err(Code::Invalid) }
}

/// `MPI_T_event_set_dropped_handler`; without a function it is taken away.
pub(crate) fn set_dropped(registration: Registration, function: Option<DroppedFunction>) -> Result<(), Code> {
    let (_, given) = registration.given()?;
    // What was lost before is the former one's to be told.
    events::deliver(0, Safety::MpiRestricted);
    lock(&given).dropped = function;
    Ok(())
}

/// `MPI_T_event_handle_free`
pub(crate) fn free(registration: Registration, user: *mut c_void, function: Option<FreeFunction>) -> Result<(), Code> {
    let handle = registration.handle()?;
    let user = User(user);
    let on_free = function.map(|function| -> events::FreeCallback {
        Box::new(move |handle: &Handle, level: Safety| {
            if host::may_call() {
                // SAFETY: the tool's function with what the tool gave for it.
                unsafe { function(Registration::of(handle), level.index() as c_int, user.pointer()) };
            }
        })
    });
    // What happened before is still shown.
    watch::catch_up();
    // Called by the tool, from wherever it may call: nothing is asked of its callbacks that it does not know.
    events::free(&handle, Safety::None, on_free).map_err(|_| Code::InvalidHandle)?;
    lock(&GIVEN).remove(&handle.id.0);
    Ok(())
}
