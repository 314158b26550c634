// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registrations as a tool sees them: `MPI_T_event_registration`, its callbacks and its info keys.
//!
//! A handle given to C is the registration's number as a pointer; it is looked up and never dereferenced, so a wrong one is an
//! error code. Called by `mpi_t.rs`. Grade: setup; what is called for an event is made here and runs where it happens, without
//! allocation. Threads: any. Tests: `tests/tool.rs`.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::without_provenance_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::events::{self, Handle, HandleId, Options, Record, Safety, SourceId, TypeId};

use super::host::{self, Code, Info};
use crate::variables::events as defaults;

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

/// What the callbacks of a registration, one per level, were registered with.
type Users = [AtomicPtr<c_void>; 4];

static USERS: Mutex<BTreeMap<u64, Arc<Users>>> = Mutex::new(BTreeMap::new());

fn users() -> MutexGuard<'static, BTreeMap<u64, Arc<Users>>> {
    USERS.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn handle(self) -> Result<Arc<Handle>, Code> {
        events::find(HandleId(self.0.addr() as u64)).ok_or(Code::InvalidHandle)
    }
}

impl Instance {
    /// The event.
    ///
    /// # Safety
    /// It is null, or was given to a callback that has not returned yet.
    #[inline]
    pub(crate) unsafe fn record<'a>(self) -> Option<&'a Record> {
        // SAFETY: this function's rule; records are not written while a callback sees them.
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
/// `object` is null, or points to an `MPI_Comm`, for a type that is bound to one; `info` is valid or null.
pub(crate) unsafe fn alloc(kind: TypeId, object: *const c_void, info: Info) -> Result<Registration, Code> {
    let object = if kind.row().bound.is_none() || object.is_null() {
        None
    } else {
        // SAFETY: this function's rule.
        Some(unsafe { host::context(object) }.ok_or(Code::Invalid)?)
    };
    // SAFETY: this function's rule.
    let hints = unsafe { Hints::read(info) };
    let buffered = hints.buffered.unwrap_or_else(defaults::default_buffered);
    let room = hints.room.unwrap_or_else(|| if buffered { defaults::default_room() } else { Options::default().room });
    let handle = events::register(kind, Options { object, buffered, room });
    users().insert(handle.id.0, Arc::default());
    Ok(Registration::of(&handle))
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
    let buffered = if handle.is_buffered() { "true" } else { "false" };
    Ok(Info::with(&[(BUFFERED, buffered), (BUFFER_EVENTS, &handle.room().to_string())]))
}

/// `MPI_T_event_register_callback`; without a function the level's callback is taken away.
pub(crate) fn register(
    registration: Registration,
    level: Safety,
    user: *mut c_void,
    function: Option<EventFunction>,
) -> Result<(), Code> {
    let handle = registration.handle()?;
    let known = users().get(&handle.id.0).cloned().ok_or(Code::InvalidHandle)?;
    known[level.index()].store(user, Ordering::Release);
    let user = User(user);
    let callback = function.map(|function| -> events::Callback {
        Arc::new(move |record: &Record, handle: &Handle, level: Safety| {
            // SAFETY: the tool's function with what the tool gave for it; the record outlives the call.
            unsafe { function(Instance(record), Registration::of(handle), level.index() as c_int, user.pointer()) };
        })
    });
    events::set_callback(&handle, level, callback).map_err(|_| Code::InvalidHandle)
}

/// `MPI_T_event_callback_set_info` and `MPI_T_event_callback_get_info`: callbacks have no keys.
pub(crate) fn check_callback(registration: Registration, level: Safety) -> Result<(), Code> {
    let handle = registration.handle()?;
    if events::has_callback(&handle, level) { Ok(()) } else { Err(Code::Invalid) }
}

/// `MPI_T_event_set_dropped_handler`; without a function it is taken away.
pub(crate) fn set_dropped(registration: Registration, function: Option<DroppedFunction>) -> Result<(), Code> {
    let handle = registration.handle()?;
    let users = users().get(&handle.id.0).cloned().ok_or(Code::InvalidHandle)?;
    let callback = function.map(|function| -> events::DroppedCallback {
        Arc::new(move |count: u64, source: SourceId, handle: &Handle, level: Safety| {
            let user = users[level.index()].load(Ordering::Acquire);
            let (count, source) = (count as i64, source.index() as c_int);
            // SAFETY: the tool's function, with what the tool gave for the callback of the same level.
            unsafe { function(count, Registration::of(handle), source, level.index() as c_int, user) };
        })
    });
    events::set_dropped(&handle, callback).map_err(|_| Code::InvalidHandle)
}

/// `MPI_T_event_handle_free`
pub(crate) fn free(registration: Registration, user: *mut c_void, function: Option<FreeFunction>) -> Result<(), Code> {
    let handle = registration.handle()?;
    let user = User(user);
    let on_free = function.map(|function| -> events::FreeCallback {
        Box::new(move |handle: &Handle, level: Safety| {
            // SAFETY: the tool's function with what the tool gave for it.
            unsafe { function(Registration::of(handle), level.index() as c_int, user.pointer()) };
        })
    });
    // What happened before is still shown.
    crate::watch::catch_up();
    // Called by the tool, from wherever it may call: nothing is asked of its callbacks that it does not know.
    events::free(&handle, Safety::None, on_free).map_err(|_| Code::InvalidHandle)?;
    users().remove(&handle.id.0);
    Ok(())
}
