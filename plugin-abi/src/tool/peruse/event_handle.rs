// SPDX-License-Identifier: MIT OR Apache-2.0
//! Event handles of PERUSE: an event, a communicator, a callback, and a window, open while the handle is active.
//!
//! A `peruse_event_h` is a number (`handle_numbers.rs`) that is looked up; a wrong one gives an error code. A handle
//! for an event of the transport is a registration of the engine; one for an event of requests and messages is a
//! listener (`runtime/listeners`) to its communicator and to the copies that it follows. Once its communicator is
//! freed, only its number is left until it is released. When a window has been closed, its callback runs no more, so
//! that the tool may free the callback's data: the closing thread waits for callbacks in other threads, except from
//! within a callback or while it holds the tool's lock. Grade: setup; [`EventHandle::event`] runs at the sites of
//! events, without allocation. Threads: any. Safety: N1 to N4 of `runtime/listeners`. Tests: `tests`,
//! `tests/tool/peruse.c`, `hw-tests/tools/peruse_*.c`.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use engine::events::{self, EventInstance, Options, Safety, Value};
use parking_lot::Mutex;

use super::Code;
use super::lock::{self, InUpcall};
use super::supported::{RaisedBy, SupportedEvent};
use crate::runtime::entry::Opaque;
use crate::runtime::listeners::{self, Event, Function, Listener, Spec, Upcall};
use crate::tool::communicator::{self, Comm, TrackedComm};
use crate::tool::host;

#[derive(Clone, Copy)]
pub(super) struct Callback {
    pub(super) function: Function,
    /// PERUSE lets callbacks be invoked in any thread (5.1.2).
    pub(super) param: Opaque,
}

pub(super) struct EventHandle {
    number: i64,
    pub(super) supported: &'static SupportedEvent,
    pub(super) comm: Comm,
    tracked: Arc<TrackedComm>,
    raised: Raised,
    /// Also locked while the window is opened or closed.
    callback: Mutex<Callback>,
    /// Number of the window; odd while it is open. Each window has another number, because a thread may still be about
    /// to run the callback of a closed one.
    window: AtomicU64,
    /// Whether the window stays closed: the handle is released, or its communicator freed.
    is_ended: AtomicBool,
    propagate: AtomicBool,
}

enum Raised {
    /// The transport: registration, `PERUSE_PUT`, `PERUSE_GET` or `PERUSE_ACC`, and indexes of [`ELEMENTS`].
    Transport { registration: Arc<events::Registration>, operation: c_int, elements: [Option<usize>; ELEMENTS.len()] },
    /// The PML.
    Matching(Event),
}

/// Handles by number; `None` once the communicator is freed.
static HANDLES: Mutex<BTreeMap<i64, Option<Arc<EventHandle>>>> = Mutex::new(BTreeMap::new());

/// Returns the handle with this number; an error if there is none, or its communicator has been freed.
pub(super) fn find(number: i64) -> Result<Arc<EventHandle>, Code> {
    match HANDLES.lock().get(&number) {
        // Open MPI 5 does not announce in MPI_Finalize that it frees the communicators that the program has not freed.
        Some(Some(handle)) if !host::mpi_was_finalized() => Ok(Arc::clone(handle)),
        Some(_) => Err(Code::MpiObject),
        None => Err(Code::EventHandle),
    }
}

pub(super) fn new(
    supported: &'static SupportedEvent,
    comm: Comm,
    tracked: Arc<TrackedComm>,
    callback: Callback,
) -> i64 {
    let number = crate::tool::handle_numbers::number();
    let raised = match supported.raised_by {
        RaisedBy::Matching(event) => Raised::Matching(event),
        RaisedBy::Transport(event_type, operation) => Raised::Transport {
            operation,
            registration: events::register(event_type, Options { immediate: true, ..Options::default() }),
            elements: ELEMENTS.map(|name| event_type.row().elements.iter().position(|element| element.name == name)),
        },
    };
    let handle = Arc::new(EventHandle {
        number,
        supported,
        comm,
        tracked,
        raised,
        callback: Mutex::new(callback),
        window: AtomicU64::new(0),
        is_ended: AtomicBool::new(false),
        propagate: AtomicBool::new(false),
    });
    HANDLES.lock().insert(number, Some(Arc::clone(&handle)));
    // Another thread may have begun to free the communicator before the handle was in the table.
    if handle.tracked.is_freed() {
        lose_object(&handle);
    }
    number
}

/// Releases a handle. If its communicator has been freed, this returns the error of [`find`] and removes the number.
pub(super) fn release(number: i64) -> Result<(), Code> {
    match find(number) {
        Ok(handle) => handle.end(),
        Err(code) => {
            HANDLES.lock().remove(&number);
            return Err(code);
        }
    }
    HANDLES.lock().remove(&number);
    Ok(())
}

/// Ends the handles of a freed communicator (`None`: all handles). Using one is an error with a code of its own.
pub(in crate::tool) fn communicator_freed(number: Option<u64>) {
    // Delivers the events so far, also to the handles that follow it.
    catch_up();
    let gone: Vec<_> = {
        let handles = HANDLES.lock();
        let of = |handle: &&Arc<EventHandle>| number.is_none_or(|number| handle.tracked.number == number);
        handles.values().flatten().filter(of).cloned().collect()
    };
    for handle in gone {
        lose_object(&handle);
    }
}

fn lose_object(handle: &EventHandle) {
    handle.end();
    // It stays removed if it was released meanwhile.
    HANDLES.lock().entry(handle.number).and_modify(|entry| *entry = None);
}

/// Returns the handles that shall follow a copy of a tracked communicator.
pub(in crate::tool) fn propagated(original: &TrackedComm) -> Vec<i64> {
    let follows = |handle: &&Arc<EventHandle>| {
        let watches = handle.tracked.number == original.number || original.followers.contains(&handle.number);
        watches && handle.propagate.load(Ordering::Relaxed)
    };
    HANDLES.lock().values().flatten().filter(follows).map(|handle| handle.number).collect()
}

/// Listens to a new copy, which has its followers.
pub(in crate::tool) fn copied(copy: &Arc<TrackedComm>) {
    let follows: Vec<_> = copy.followers.iter().filter_map(|number| find(*number).ok()).collect();
    for handle in follows {
        let window = handle.window.load(Ordering::SeqCst);
        if let Raised::Matching(event) = handle.raised
            && is_open(window)
        {
            handle.listen(event, window, handle.listener(handle.callback()), std::slice::from_ref(copy));
        }
    }
}

fn is_open(window: u64) -> bool {
    window % 2 == 1
}

fn catch_up() {
    if lock::may_wait_for_callbacks() {
        events::catch_up_all(crate::runtime::watch::SAFETY);
    } else {
        crate::runtime::watch::catch_up();
    }
}

impl EventHandle {
    pub(super) fn is_active(&self) -> bool {
        is_open(self.window.load(Ordering::Relaxed))
    }

    /// Opens the window, unless another thread has ended the handle.
    pub(super) fn activate(self: &Arc<Self>) {
        let callback = self.callback.lock();
        if self.is_active() || self.is_ended.load(Ordering::SeqCst) {
            return;
        }
        let window = self.window.fetch_add(1, Ordering::SeqCst) + 1;
        let registration = match &self.raised {
            Raised::Transport { registration, .. } => registration,
            Raised::Matching(event) => {
                let listener = self.listener(*callback);
                drop(callback);
                let follows = self.propagate.load(Ordering::Relaxed);
                let copies = if follows { communicator::followed_by_handle(self.number) } else { Vec::new() };
                self.listen(*event, window, listener, std::slice::from_ref(&self.tracked));
                return self.listen(*event, window, listener, &copies);
            }
        };
        // The callback cannot be replaced while the window is open.
        let (handle, callback) = (Arc::downgrade(self), *callback);
        let on_event: events::Callback = Arc::new(move |instance: &EventInstance, _: &events::Registration, _| {
            if let Some(handle) = handle.upgrade() {
                handle.event(instance, window, callback);
            }
        });
        // PERUSE requires every callback to be safe in signal handlers (5.1.2).
        let _ = events::set_callback(registration, Safety::AsyncSignalSafe, Some(on_event));
    }

    fn listener(&self, callback: Callback) -> Listener {
        let Callback { function, param } = callback;
        Listener { handle: self.number, function, alone: function, param: param.0 }
    }

    /// Adds the listener to these communicators. The handle's lock is not held, because a callback in another thread
    /// may wait for it; so meanwhile that thread may close the window, and MPI may free a communicator.
    fn listen(&self, event: Event, window: u64, listener: Listener, comms: &[Arc<TrackedComm>]) {
        for comm in comms {
            let is_wanted = || self.window.load(Ordering::SeqCst) == window && !comm.is_freed();
            // SAFETY: it is live while `is_freed` is false: `freed` sets that and calls `forget` before MPI frees it.
            unsafe { listeners::add(comm.comm.as_ptr(), event, listener, is_wanted) };
        }
    }

    /// Removes the listeners of a closed window, for which no listener is added any more.
    fn take_listeners(&self, event: Event) {
        listeners::remove(self.comm.as_ptr(), event, self.number);
        for copy in communicator::followed_by_handle(self.number) {
            listeners::remove(copy.comm.as_ptr(), event, self.number);
        }
    }

    /// Closes the window of a handle for the PML's events, which are delivered where they happen. The handle's lock is
    /// not held while listeners are removed, as in [`Self::listen`].
    fn ignore(&self, event: Event) {
        let callback = self.callback.lock();
        let was_active = self.is_active();
        if was_active {
            self.window.fetch_add(1, Ordering::SeqCst);
        }
        drop(callback);
        if was_active {
            self.take_listeners(event);
        }
    }

    /// Closes the window, after delivering the events that happened while it was open.
    pub(super) fn deactivate(&self) {
        let registration = match &self.raised {
            Raised::Transport { registration, .. } => registration,
            Raised::Matching(event) => return self.ignore(*event),
        };
        catch_up();
        let callback = self.callback.lock();
        if self.is_active() {
            self.window.fetch_add(1, Ordering::SeqCst);
            let _ = events::set_callback(registration, Safety::AsyncSignalSafe, None);
        }
        drop(callback);
        if lock::may_wait_for_callbacks() {
            events::wait_for_callbacks();
        }
    }

    fn end(&self) {
        // Before `deactivate` locks `callback`: it closes a window opened earlier, and `activate` later finds this.
        self.is_ended.store(true, Ordering::SeqCst);
        self.deactivate();
        if let Raised::Transport { registration, .. } = &self.raised {
            // Fails only if it has been freed already.
            let _ = events::free(registration, crate::runtime::watch::SAFETY, None);
        }
    }

    pub(super) fn callback(&self) -> Callback {
        *self.callback.lock()
    }

    pub(super) fn set_callback(&self, callback: Callback) {
        *self.callback.lock() = callback;
    }

    pub(super) fn set_propagate(&self, propagate: bool) {
        self.propagate.store(propagate, Ordering::Relaxed);
    }

    /// Calls the callback of a window for an event of the transport. Such an event belongs to no communicator.
    fn event(&self, instance: &EventInstance, window: u64, Callback { function, param }: Callback) {
        let Raised::Transport { operation, elements, .. } = &self.raised else { return };
        // This thread has entered the delivery: a thread that closes the window either waits for it, or is seen here.
        if self.window.load(Ordering::SeqCst) != window {
            return;
        }
        let rank = |in_job: u64| self.tracked.ranks.get(usize::try_from(in_job).ok()?).copied();
        let [request, id, local, bytes, peer] = elements.map(|index| number(instance, index).unwrap_or(0));
        // A read with a request is part of a message, and reported by the message's events.
        if request != 0 {
            return;
        }
        let mut spec = Spec {
            comm: self.comm.as_ptr(),
            buf: std::ptr::with_exposed_provenance_mut(local as usize),
            count: c_int::try_from(bytes).unwrap_or(c_int::MAX),
            datatype: communicator::byte().0.cast(),
            peer: rank(peer).unwrap_or(-1),
            tag: -1,
            operation: *operation,
            ..Spec::EMPTY
        };
        let upcall = InUpcall::new();
        // SAFETY: the tool's function with its argument; the specification outlives the call.
        let code = unsafe { function(self.number, id as isize, &raw mut spec, param.0) };
        drop(upcall);
        if code != 0 {
            callback_failed(self.supported.name, code);
        }
    }
}

/// Elements of a transport event that a callback gets, and `request`.
const ELEMENTS: [&str; 5] = ["request", "operation", "local", "bytes", "peer"];

fn number(instance: &EventInstance, index: Option<usize>) -> Option<u64> {
    match instance.value(index?)? {
        Value::U32(value) => Some(u64::from(value)),
        Value::U64(value) => Some(value),
        Value::I32(_) => None,
    }
}

pub(super) const UPCALL: Upcall = Upcall { beside_lock, failed };

/// Runs a callback that may take the tool's lock while some thread holds it.
fn beside_lock(call: &mut dyn FnMut()) {
    let _upcall = InUpcall::new();
    call();
}

#[cold]
fn failed(handle: i64, code: c_int) {
    callback_failed(find(handle).map_or(c"an event", |handle| handle.supported.name), code);
}

/// Prints that a tool's callback has returned an error, and ends the job (5.1.2).
#[cold]
fn callback_failed(event: &CStr, code: c_int) {
    crate::runtime::messages::callback_failed(&event.to_string_lossy(), code);
    // An exit status keeps only the low 8 bits, and 0 would mean success.
    communicator::abort(if code as u8 == 0 { 1 } else { code });
}
