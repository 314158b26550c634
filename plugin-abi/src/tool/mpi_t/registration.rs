// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registrations of a tool: `MPI_T_event_registration`, its callbacks and its info keys. A handle given to C is a
//! number as a pointer (`handle_numbers.rs`); it is looked up and never dereferenced. Called by `mpi_t`. Grade:
//! setup; the closures made here run at the sites of events, without allocation. Threads: any. Tests: `tests/tool.rs`.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int};
use std::sync::Arc;

use engine::events::{self, EventInstance, Options, Registration, Safety, SourceId, TypeId};
use parking_lot::Mutex;

use super::instance::with_current;
pub(crate) use super::instance::{EventFunction, InstancePointer, RegistrationHandle};
use super::{matching, require_none};
use crate::runtime::entry::Opaque;
use crate::runtime::variables::now as defaults;
use crate::runtime::watch;
use crate::tool::communicator::Comm;
use crate::tool::handle_numbers;
use crate::tool::host::{self, Code, Info};

/// Key: whether events are buffered until progress delivers them.
const BUFFERED: &CStr = c"ibex_buffered";

/// Key: number of events that the buffer holds.
const BUFFER_EVENTS: &CStr = c"ibex_buffer_events";

/// Largest number of events in a buffer: 128 MiB.
const BUFFER_MOST: usize = 1 << 20;

/// `MPI_T_event_free_cb_function`
pub(crate) type FreeFunction = unsafe extern "C" fn(RegistrationHandle, c_int, Opaque);
/// `MPI_T_event_dropped_cb_function`
pub(crate) type DroppedFunction = unsafe extern "C" fn(i64, RegistrationHandle, c_int, c_int, Opaque);

/// A tool's functions of a registration that the engine does not store.
#[derive(Default)]
struct ToolCallbacks {
    /// Callback of each safety level.
    functions: [Option<EventFunction>; 4],
    user_data: [Option<Opaque>; 4],
    dropped: Option<DroppedFunction>,
}

impl ToolCallbacks {
    /// Returns the function to call for losses, and its argument: that of the callback of the lowest level that is at
    /// least `needed`. Without such a callback there is nothing to call (MPI 4.1, section 15.3.8, on dropped events).
    fn dropped(&self, needed: Safety) -> Option<(DroppedFunction, Opaque)> {
        Some((self.dropped?, self.user_data[needed.index()..].iter().flatten().next().copied()?))
    }

    fn has_callback(&self) -> bool {
        self.user_data.iter().any(Option::is_some)
    }

    fn of_matching(&self) -> matching::Callbacks {
        let callback = |level: usize| Some((self.functions[level]?, self.user_data[level]?));
        [0, 1, 2, 3].map(callback)
    }
}

type SharedCallbacks = Arc<Mutex<ToolCallbacks>>;

#[derive(Clone)]
struct LiveRegistration {
    registration: Arc<Registration>,
    callbacks: SharedCallbacks,
    /// Whether the buffer has the default size.
    has_default_room: bool,
    has_lost_object: bool,
    /// Address of its communicator; 0: all, or none.
    comm: usize,
}

impl LiveRegistration {
    /// Makes it a listener to the PML's events, if its type is one of those and it has a callback.
    fn listen(&self, handle: RegistrationHandle) {
        if let Some(event) = matching::event(self.registration.event_type) {
            let comm = std::ptr::with_exposed_provenance_mut(self.comm);
            let callbacks = || self.callbacks.lock().of_matching();
            // Another thread may free the registration or the communicator meanwhile.
            let is_there = || handle.live().is_ok_and(|known| !known.has_lost_object);
            // SAFETY: `comm` is null, or live until `communicator_freed` sets `has_lost_object`.
            unsafe { matching::listen(handle, event, &self.registration, comm, (&callbacks, &is_there)) };
        }
    }
}

/// No callback runs while this or another mutex of this file is locked.
static LIVE: Mutex<BTreeMap<RegistrationHandle, LiveRegistration>> = Mutex::new(BTreeMap::new());

/// Held while the engine's part of a tool's registration is changed or replaced.
static CHANGING: Mutex<()> = Mutex::new(());

impl RegistrationHandle {
    /// Returns the registration of the handle, unless it has been freed. A handle of PERUSE has none.
    fn live(self) -> Result<LiveRegistration, Code> {
        LIVE.lock().get(&self).cloned().ok_or(Code::InvalidHandle)
    }
}

pub(crate) fn level(number: c_int) -> Result<Safety, Code> {
    Safety::ALL.into_iter().find(|level| level.index() as c_int == number).ok_or(Code::Invalid)
}

/// Values of an info object's keys; `None` for a key that is absent or unreadable (MPI 4.1, section 10).
struct Hints {
    buffered: Option<bool>,
    room: Option<usize>,
}

impl Hints {
    fn read(info: Info) -> Hints {
        let (buffered, room) = (info.value(BUFFERED), info.value(BUFFER_EVENTS));
        Hints {
            buffered: buffered.and_then(|text| text.parse().ok()),
            room: room.and_then(|text| text.parse().ok()).filter(|room| (1..=BUFFER_MOST).contains(room)),
        }
    }
}

/// # Safety
/// `object` is null or, for a type that is bound to one, points to an `MPI_Comm` of any value.
pub(crate) unsafe fn alloc(event_type: TypeId, object: *const Comm, info: Info) -> Result<RegistrationHandle, Code> {
    let (mut comm, mut object_number) = (0, None);
    if event_type.row().bound.is_some() && !object.is_null() {
        // SAFETY: not null, and the type is bound, so the caller says that it points to an `MPI_Comm`.
        let object = unsafe { object.read() };
        let context = host::context(object).ok_or(Code::Invalid)?;
        // SAFETY: `host::context` has found it valid.
        if !unsafe { host::notify_when_freed(&object, communicator_freed) } {
            return Err(Code::Invalid);
        }
        (comm, object_number) = (object.as_ptr().expose_provenance(), Some(context));
    }
    if host::mpi_is_usable() {
        host::explain_codes();
    }
    let hints = Hints::read(info);
    let buffered = hints.buffered.unwrap_or_else(defaults::default_buffered);
    let room = hints.room.unwrap_or_else(|| default_room(buffered));
    let (handle, callbacks) = (RegistrationHandle(handle_numbers::number()), SharedCallbacks::default());
    let registration = register_with_engine(
        handle,
        &callbacks,
        event_type,
        Options { object: object_number, buffered, room, ..Options::default() },
    )?;
    let has_default_room = hints.room.is_none();
    let known = LiveRegistration { registration, callbacks, has_default_room, has_lost_object: false, comm };
    LIVE.lock().insert(handle, known);
    Ok(handle)
}

fn register_with_engine(
    handle: RegistrationHandle,
    callbacks: &SharedCallbacks,
    event_type: TypeId,
    options: Options,
) -> Result<Arc<Registration>, Code> {
    let registration = events::register(event_type, options);
    let callbacks = Arc::clone(callbacks);
    let dropped: events::DroppedCallback =
        Arc::new(move |count, source, _, level| call_dropped_handler(&callbacks, count, source, handle, level));
    events::set_dropped(&registration, Some(dropped)).map_err(|_| Code::InvalidHandle)?;
    Ok(registration)
}

/// Replaces a registration by one with a larger buffer before its first callback, which may do anything. Events wait
/// for such a callback until the tool calls, so they need as much room as those of a buffered registration, unless the
/// tool has set the size. Returns the replaced registration. The caller holds [`CHANGING`].
fn enlarge_buffer(handle: RegistrationHandle) -> Result<Option<Arc<Registration>>, Code> {
    let known = handle.live()?;
    let old = &known.registration;
    let room = default_room(true);
    if !known.has_default_room || old.room() >= room || known.callbacks.lock().has_callback() {
        return Ok(None);
    }
    let options = Options { object: old.object, buffered: old.is_buffered(), room, ..Options::default() };
    let registration = register_with_engine(handle, &known.callbacks, old.event_type, options)?;
    if known.has_lost_object {
        let _ = events::set_active(&registration, false);
    }
    let replaced = LIVE.lock().get_mut(&handle).map(|known| std::mem::replace(&mut known.registration, registration));
    Ok(replaced)
}

fn call_dropped_handler(
    callbacks: &Mutex<ToolCallbacks>,
    count: u64,
    source: SourceId,
    handle: RegistrationHandle,
    level: Safety,
) {
    let wanted = callbacks.lock().dropped(level);
    if let Some((function, user_data)) = wanted
        && host::may_call()
    {
        let (count, source) = (count as i64, source.index() as c_int);
        // SAFETY: the tool's function, with the argument that the tool gave for a callback.
        unsafe { function(count, handle, source, level.index() as c_int, user_data) };
    }
}

/// Ends the events of all registrations for a communicator that is freed, because its number may be reused.
extern "C" fn communicator_freed(context: u64) {
    crate::runtime::guard::fence("the end of a communicator", (), || {
        watch::catch_up();
        let _changing = CHANGING.lock();
        for known in LIVE.lock().values_mut().filter(|known| known.registration.object == Some(context)) {
            known.has_lost_object = true;
            // Fails only for a registration that is being freed.
            let _ = events::set_active(&known.registration, false);
        }
    });
}

fn default_room(buffered: bool) -> usize {
    if buffered { defaults::default_room() } else { Options::default().room }
}

fn keys(buffered: bool, room: usize) -> Info {
    Info::with(&[(BUFFERED, if buffered { "true" } else { "false" }), (BUFFER_EVENTS, &room.to_string())])
}

pub(crate) fn default_info() -> Info {
    let buffered = defaults::default_buffered();
    keys(buffered, default_room(buffered).max(2).next_power_of_two())
}

/// `MPI_T_event_handle_set_info`: changes whether events are buffered. The size of the buffer cannot be changed.
pub(crate) fn set_info(handle: RegistrationHandle, info: Info) -> Result<(), Code> {
    handle.live()?;
    let hints = Hints::read(info);
    let changing = CHANGING.lock();
    let registration = handle.live()?.registration;
    if let Some(buffered) = hints.buffered {
        registration.set_buffered(buffered);
    }
    drop(changing);
    // Without the lock, as in `register`.
    matching::forget_quick(handle);
    Ok(())
}

pub(crate) fn info(handle: RegistrationHandle) -> Result<Info, Code> {
    let registration = handle.live()?.registration;
    Ok(keys(registration.is_buffered(), registration.room()))
}

/// `MPI_T_event_register_callback`; without a function it removes the level's callback.
pub(crate) fn register(
    handle: RegistrationHandle,
    level: Safety,
    user_data: Opaque,
    function: Option<EventFunction>,
) -> Result<(), Code> {
    let callbacks = handle.live()?.callbacks;
    let callback = function.map(|function| -> events::Callback {
        Arc::new(move |instance: &EventInstance, _: &Registration, needed: Safety| {
            if host::may_call() {
                let level = needed.index() as c_int;
                // SAFETY: the tool's function with its argument; the instance outlives the call.
                with_current(instance, |pointer| unsafe { function(pointer, handle, level, user_data) });
            }
        })
    });
    let replaced = {
        let _changing = CHANGING.lock();
        let only_anywhere = level == Safety::None && callback.is_some();
        let replaced = if only_anywhere { enlarge_buffer(handle)? } else { None };
        {
            let mut callbacks = callbacks.lock();
            callbacks.functions[level.index()] = function;
            callbacks.user_data[level.index()] = function.map(|_| user_data);
        }
        let known = handle.live()?;
        events::set_callback(&known.registration, level, callback).map_err(|_| Code::InvalidHandle)?;
        replaced
    };
    if let Some(replaced) = replaced {
        // It never had a callback.
        let _ = events::free(&replaced, watch::SAFETY, None);
    }
    // Without the lock: this waits for callbacks, which may take it.
    handle.live()?.listen(handle);
    watch::follow_transfers();
    Ok(())
}

/// `MPI_T_event_callback_set_info` and `MPI_T_event_callback_get_info`: callbacks have no keys.
pub(crate) fn check_callback(handle: RegistrationHandle, level: Safety) -> Result<(), Code> {
    let callbacks = handle.live()?.callbacks;
    let is_there = callbacks.lock().user_data[level.index()].is_some();
    if is_there { Ok(()) } else { Err(Code::Invalid) }
}

/// `MPI_T_event_set_dropped_handler`; without a function it removes the handler.
pub(crate) fn set_dropped(handle: RegistrationHandle, function: Option<DroppedFunction>) -> Result<(), Code> {
    let callbacks = handle.live()?.callbacks;
    // Earlier losses are reported to the former handler.
    events::deliver(0, Safety::MpiRestricted);
    callbacks.lock().dropped = function;
    Ok(())
}

pub(crate) fn free(handle: RegistrationHandle, user_data: Opaque, function: Option<FreeFunction>) -> Result<(), Code> {
    handle.live()?;
    watch::catch_up();
    // If several threads free it, one of them removes it here.
    let taken = {
        let _changing = CHANGING.lock();
        LIVE.lock().remove(&handle)
    };
    // Without the lock, as in `register`.
    let listener = matching::cease(handle);
    let registration = taken.ok_or(Code::InvalidHandle)?.registration;
    let on_free: events::FreeCallback = Box::new(move |_: &Registration, level: Safety| {
        if let Some(function) = function
            && host::may_call()
        {
            // SAFETY: the tool's function with its argument.
            unsafe { function(handle, level.index() as c_int, user_data) };
        }
        // No callback uses the listener any more.
        drop(listener);
    });
    let freed = events::free_by_tool(&registration, require_none::required_safety(), Some(on_free));
    watch::follow_transfers();
    freed.map_err(|_| Code::InvalidHandle)
}
