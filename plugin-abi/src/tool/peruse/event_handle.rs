// SPDX-License-Identifier: MIT OR Apache-2.0
//! Event handles of PERUSE: an event, a communicator, a callback, and whether its window is open.
//!
//! A `peruse_event_h` is a number (`handle_numbers.rs`) that is looked up; a wrong one is an error code. Each handle is
//! a registration of the engine, whose callback looks whether the event's communicator is the handle's, or a copy that
//! it follows. Of one whose communicator is gone the number alone is left until it is released. When a window has been
//! closed no callback runs any more, so that a tool may free what it gave for it; who closes one waits for callbacks of
//! other threads, but not from within a callback, nor with the tool's lock. Grade: setup; [`EventHandle::event`] runs
//! where events happen, without allocation. Threads: any. Tests: `tests.rs`, `tests/tool/peruse.c`,
//! `hw-tests/tools/peruse_*.c`.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::events::{self, EventInstance, Options, Safety, TypeId, Value};

use super::code::Code;
use super::lock::{self, InUpcall};
use super::supported::{RaisedBy, SupportedEvent};
use crate::runtime::listeners::{self, Event, Function, Listener, Spec, Upcall};
use crate::tool::communicator::{self, Comm, TrackedComm};
use crate::tool::host;

/// A tool's callback with what it gave for it.
#[derive(Clone, Copy)]
pub(super) struct Callback {
    pub(super) function: Function,
    pub(super) param: *mut c_void,
}

// SAFETY: never dereferenced here; PERUSE lets callbacks be invoked in any thread (5.1.2).
unsafe impl Send for Callback {}
// SAFETY: never dereferenced here; PERUSE lets callbacks be invoked in any thread (5.1.2).
unsafe impl Sync for Callback {}

/// One event handle.
pub(super) struct EventHandle {
    number: i64,
    pub(super) supported: &'static SupportedEvent,
    pub(super) comm: Comm,
    tracked: Arc<TrackedComm>,
    raised: Raised,
    /// Locked while the window is opened or closed, too.
    callback: Mutex<Callback>,
    /// Odd while its window is open; each has another number, as a thread may come late with the callback of one that
    /// was closed.
    window: AtomicU64,
    /// Its window opens no more: it is released, or its communicator gone.
    is_ended: AtomicBool,
    propagate: AtomicBool,
}

/// Whose event it is of.
enum Raised {
    /// The transport's: a registration of the engine, `PERUSE_PUT`, `PERUSE_GET` or `PERUSE_ACC`, and where the elements are that a
    /// callback is told of.
    Transport { registration: Arc<events::Registration>, operation: c_int, elements: ElementIndices },
    /// The matching's.
    Matching(Event),
}

/// By number; `None` once the communicator is gone.
static HANDLES: Mutex<BTreeMap<i64, Option<Arc<EventHandle>>>> = Mutex::new(BTreeMap::new());

fn handles() -> MutexGuard<'static, BTreeMap<i64, Option<Arc<EventHandle>>>> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The handle of this number.
///
/// # Errors
/// There is none, or its communicator is gone.
pub(super) fn find(number: i64) -> Result<Arc<EventHandle>, Code> {
    match handles().get(&number) {
        // Not every MPI says in MPI_Finalize that it frees the communicators that the program has left: Open MPI 5 does not.
        Some(Some(handle)) if !host::mpi_was_finalized() => Ok(Arc::clone(handle)),
        Some(_) => Err(Code::MpiObject),
        None => Err(Code::EventHandle),
    }
}

/// A new handle, inactive; returns its number.
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
            elements: ElementIndices::of(event_type),
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
    handles().insert(number, Some(Arc::clone(&handle)));
    // Another thread may have begun to free it, and have found no handle yet.
    if handle.tracked.is_freed() {
        lose_object(&handle);
    }
    number
}

/// The handle is released. That of a communicator that is gone says so here for the last time.
///
/// # Errors
/// Those of [`find`].
pub(super) fn release(number: i64) -> Result<(), Code> {
    match find(number) {
        Ok(handle) => handle.end(),
        Err(code) => {
            // Nothing but its number is left where the communicator is gone; now not even that.
            handles().remove(&number);
            return Err(code);
        }
    }
    handles().remove(&number);
    Ok(())
}

/// The handles of a communicator that is gone (`None`: of all) call nothing any more; their use is an error of its own.
pub(in crate::tool) fn communicator_freed(number: Option<u64>) {
    // What was received on it is still shown, to those that follow it as well.
    catch_up();
    let gone: Vec<_> = {
        let handles = handles();
        let of = |handle: &&Arc<EventHandle>| number.is_none_or(|number| handle.tracked.number == number);
        handles.values().flatten().filter(of).cloned().collect()
    };
    for handle in gone {
        lose_object(&handle);
    }
}

/// The communicator of a handle is gone.
fn lose_object(handle: &EventHandle) {
    handle.end();
    // Not one that was released meanwhile.
    handles().entry(handle.number).and_modify(|entry| *entry = None);
}

/// The handles that follow a copy of this communicator, if it is made now.
pub(in crate::tool) fn propagated(original: &TrackedComm) -> Vec<i64> {
    let follows = |handle: &&Arc<EventHandle>| {
        let watches = handle.tracked.number == original.number || original.followers.contains(&handle.number);
        watches && handle.propagate.load(Ordering::Relaxed)
    };
    handles().values().flatten().filter(follows).map(|handle| handle.number).collect()
}

/// There is a copy of a communicator, with the handles that follow it.
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

/// Whether that is the number of an open window.
fn is_open(window: u64) -> bool {
    window % 2 == 1
}

/// Shows all that has happened.
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

    /// Opens its window, unless another thread has ended it meanwhile.
    pub(super) fn activate(self: &Arc<Self>) {
        let callback = self.callback.lock().unwrap_or_else(PoisonError::into_inner);
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
        // The callback in force: it cannot be replaced while the window is open.
        let (handle, callback) = (Arc::downgrade(self), *callback);
        let on_event: events::Callback = Arc::new(move |instance: &EventInstance, _: &events::Registration, _| {
            if let Some(handle) = handle.upgrade() {
                handle.event(instance, window, callback);
            }
        });
        // PERUSE asks of every callback that it be fit for signal handlers (5.1.2).
        let _ = events::set_callback(registration, Safety::AsyncSignalSafe, Some(on_event));
    }

    /// What is called where the matching raises its event.
    fn listener(&self, callback: Callback) -> Listener {
        let Callback { function, param } = callback;
        Listener { handle: self.number, function, alone: function, param }
    }

    /// [`Self::activate`] of an event of the matching's, on these communicators. Without the handle's lock, for which a
    /// callback in another thread may be waiting; so that thread may close the window meanwhile, or MPI free them.
    fn listen(&self, event: Event, window: u64, listener: Listener, comms: &[Arc<TrackedComm>]) {
        for comm in comms {
            let is_wanted = || self.window.load(Ordering::SeqCst) == window && !comm.is_freed();
            // SAFETY: what is tracked is live until `communicator::freed` has noted that, and then forgotten the
            // listeners.
            unsafe { listeners::add(comm.comm.0.cast(), event, listener, is_wanted) };
        }
    }

    /// The listeners of a window that is closed: all, as none is added for it any more.
    fn take_listeners(&self, event: Event) {
        listeners::remove(self.comm.0.cast(), event, self.number);
        for copy in communicator::followed_by_handle(self.number) {
            listeners::remove(copy.comm.0.cast(), event, self.number);
        }
    }

    /// [`Self::deactivate`] of an event of the matching's, which is shown as it happens. Without the lock, as
    /// [`Self::listen`].
    fn ignore(&self, event: Event) {
        let callback = self.callback.lock().unwrap_or_else(PoisonError::into_inner);
        let was_active = self.is_active();
        if was_active {
            self.window.fetch_add(1, Ordering::SeqCst);
        }
        drop(callback);
        if was_active {
            self.take_listeners(event);
        }
    }

    /// Closes its window. What happened while it was open is still shown.
    pub(super) fn deactivate(&self) {
        let registration = match &self.raised {
            Raised::Transport { registration, .. } => registration,
            Raised::Matching(event) => return self.ignore(*event),
        };
        catch_up();
        let callback = self.callback.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_active() {
            self.window.fetch_add(1, Ordering::SeqCst);
            let _ = events::set_callback(registration, Safety::AsyncSignalSafe, None);
        }
        drop(callback);
        if lock::may_wait_for_callbacks() {
            events::wait_for_callbacks();
        }
    }

    /// Closes its window for good.
    fn end(&self) {
        // Before the lock is taken under which it is closed: who opens it before that is seen there.
        self.is_ended.store(true, Ordering::SeqCst);
        self.deactivate();
        if let Raised::Transport { registration, .. } = &self.raised {
            // Refused only where it has been freed already.
            let _ = events::free(registration, crate::runtime::watch::SAFETY, None);
        }
    }

    pub(super) fn callback(&self) -> Callback {
        *self.callback.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_callback(&self, callback: Callback) {
        *self.callback.lock().unwrap_or_else(PoisonError::into_inner) = callback;
    }

    pub(super) fn set_propagate(&self, propagate: bool) {
        self.propagate.store(propagate, Ordering::Relaxed);
    }

    /// An event of the transport's, for the callback of a window. It belongs to no communicator.
    fn event(&self, instance: &EventInstance, window: u64, Callback { function, param }: Callback) {
        let Raised::Transport { operation, elements: at, .. } = &self.raised else { return };
        // After the thread has entered the delivery: who has closed the window waits for it, or it sees that.
        if self.window.load(Ordering::SeqCst) != window {
            return;
        }
        let rank = |in_job: u64| self.tracked.ranks.get(usize::try_from(in_job).ok()?).copied();
        let number = |index| number(instance, index).unwrap_or(0);
        // A read of a message is told by the message's events.
        if number(at.request) != 0 {
            return;
        }
        let mut spec = Spec {
            comm: self.comm.0.cast(),
            buf: std::ptr::with_exposed_provenance_mut(number(at.local) as usize),
            count: c_int::try_from(number(at.bytes)).unwrap_or(c_int::MAX),
            datatype: communicator::byte().0.cast(),
            peer: rank(number(at.peer)).unwrap_or(-1),
            tag: -1,
            operation: *operation,
            ..Spec::EMPTY
        };
        let upcall = InUpcall::new();
        // SAFETY: the tool's function with what the tool gave for it; the specification outlives the call.
        let code = unsafe { function(self.number, number(at.operation) as isize, &raw mut spec, param) };
        drop(upcall);
        if code != 0 {
            callback_failed(self.supported.name, code);
        }
    }
}

/// Where the elements are that a callback is told of; found once for a handle.
struct ElementIndices {
    peer: Option<usize>,
    bytes: Option<usize>,
    local: Option<usize>,
    operation: Option<usize>,
    request: Option<usize>,
}

impl ElementIndices {
    fn of(event_type: TypeId) -> ElementIndices {
        let index = |name| event_type.row().elements.iter().position(|element| element.name == name);
        ElementIndices {
            peer: index("peer"),
            bytes: index("bytes"),
            local: index("local"),
            operation: index("operation"),
            request: index("request"),
        }
    }
}

fn number(instance: &EventInstance, index: Option<usize>) -> Option<u64> {
    match instance.value(index?)? {
        Value::U32(value) => Some(u64::from(value)),
        Value::U64(value) => Some(value),
        Value::I32(_) => None,
    }
}

/// What is done for callbacks of the matching's events.
pub(super) const UPCALL: Upcall = Upcall { beside_lock, failed };

/// Calls a callback that may ask for the tool's lock while some thread has it.
///
/// # Safety
/// A listener's own function and parameter; a specification that outlives the call.
unsafe fn beside_lock(listener: Listener, id: isize, spec: *mut Spec) -> c_int {
    let _upcall = InUpcall::new();
    // SAFETY: the caller gives a listener's own function and parameter; the specification outlives the call.
    unsafe { (listener.function)(listener.handle, id, spec, listener.param) }
}

#[cold]
fn failed(handle: i64, code: c_int) {
    callback_failed(find(handle).map_or(c"an event", |handle| handle.supported.name), code);
}

/// A tool's callback returned other than success: the job ends (5.1.2).
#[cold]
fn callback_failed(event: &CStr, code: c_int) {
    crate::runtime::messages::callback_failed(&event.to_string_lossy(), code);
    // Of an exit status the low 8 bits are left, and 0 would be success.
    communicator::abort(if code as u8 == 0 { 1 } else { code });
}
