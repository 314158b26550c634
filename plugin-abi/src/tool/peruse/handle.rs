// SPDX-License-Identifier: MIT OR Apache-2.0
//! Event handles of PERUSE: an event, a communicator, a callback, and whether its window is open.
//!
//! A `peruse_event_h` is a number that is looked up; a wrong one is an error code. Each handle is a registration of the engine,
//! inactive until its window is opened, whose callback looks whether the event's communicator is the handle's, or a copy of it where
//! copies are to be followed. Grade: setup; [`Handle::event`] runs where events happen, without allocation. Threads: any.
//! Tests: `tests.rs`, `tests/tool/peruse.c`.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::events::{self, Options, Record, Safety, TypeId, Value};

use super::descriptor::Descriptor;
use super::lock::InUpcall;
use crate::tool::communicator::{self, Byte, Comm, Watched};

/// `peruse_comm_spec_t`
#[repr(C)]
#[derive(Debug)]
pub(super) struct Spec {
    pub(super) comm: Comm,
    pub(super) buf: *mut c_void,
    pub(super) count: c_int,
    pub(super) datatype: Byte,
    pub(super) peer: c_int,
    pub(super) tag: c_int,
    pub(super) operation: c_int,
}

/// `peruse_comm_callback_f`
pub(super) type Function = unsafe extern "C" fn(i64, isize, *mut Spec, *mut c_void) -> c_int;

/// A tool's callback with what it gave for it.
#[derive(Clone, Copy)]
pub(super) struct Callback {
    pub(super) function: Function,
    pub(super) param: *mut c_void,
}

// SAFETY: never dereferenced here; PERUSE lets callbacks be invoked in any thread (5.1.2).
unsafe impl Send for Callback {}
// SAFETY: as above.
unsafe impl Sync for Callback {}

/// One event handle.
pub(super) struct Handle {
    pub(super) number: i64,
    pub(super) descriptor: &'static Descriptor,
    pub(super) comm: Comm,
    pub(super) watched: Arc<Watched>,
    places: Places,
    registration: Arc<events::Handle>,
    callback: Mutex<Callback>,
    active: AtomicBool,
    propagate: AtomicBool,
}

static HANDLES: Mutex<BTreeMap<i64, Arc<Handle>>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicI64 = AtomicI64::new(1);

fn handles() -> MutexGuard<'static, BTreeMap<i64, Arc<Handle>>> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The handle of this number.
pub(super) fn find(number: i64) -> Option<Arc<Handle>> {
    handles().get(&number).cloned()
}

/// A new handle, inactive.
pub(super) fn new(descriptor: &'static Descriptor, comm: Comm, watched: Arc<Watched>, callback: Callback) -> i64 {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let registration = events::register(descriptor.kind, Options::default());
    let handle = Arc::new(Handle {
        number,
        descriptor,
        comm,
        watched,
        places: Places::of(descriptor.kind),
        registration,
        callback: Mutex::new(callback),
        active: AtomicBool::new(false),
        propagate: AtomicBool::new(false),
    });
    handles().insert(number, handle);
    number
}

/// The handle is released: its callback is not called any more, but by a thread that is about to.
pub(super) fn release(number: i64) {
    let handle = handles().remove(&number);
    if let Some(handle) = handle {
        // Refused only where it has been freed already.
        let _ = events::free(&handle.registration, Safety::None, None);
    }
}

/// The handles of a communicator that is gone call nothing any more; they stay, so that their use is an error of its own.
pub(in crate::tool) fn communicator_freed(number: u64) {
    let gone: Vec<_> = handles().values().filter(|handle| handle.watched.number == number).cloned().collect();
    for handle in gone {
        handle.active.store(false, Ordering::Release);
        let _ = events::set_callback(&handle.registration, Safety::AsyncSignalSafe, None);
    }
}

impl Handle {
    pub(super) fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    /// Opens or closes its window.
    pub(super) fn set_active(self: &Arc<Self>, active: bool) {
        if !active {
            // What happened while it was active is still shown.
            crate::watch::catch_up();
        }
        if self.active.swap(active, Ordering::AcqRel) == active {
            return;
        }
        let callback = active.then(|| -> events::Callback {
            // The callback in force: it cannot be replaced while the window is open.
            let (handle, callback) = (Arc::downgrade(self), self.callback());
            Arc::new(move |record: &Record, _: &events::Handle, _| {
                if let Some(handle) = handle.upgrade() {
                    handle.event(record, callback);
                }
            })
        });
        // PERUSE asks of every callback that it be fit for signal handlers (5.1.2).
        let _ = events::set_callback(&self.registration, Safety::AsyncSignalSafe, callback);
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

    /// The communicator of an event, if the handle is to see it.
    fn communicator(&self, context: Option<u64>) -> Option<Comm> {
        if context.is_none() || context == self.watched.context {
            return Some(self.comm);
        }
        if !self.propagate.load(Ordering::Relaxed) {
            return None;
        }
        let (comm, copy) = communicator::of_context(context?)?;
        copy.descends_from(self.watched.number).then_some(comm)
    }

    /// Calls the callback for an event, if it is this handle's.
    fn event(&self, record: &Record, callback: Callback) {
        let at = &self.places;
        let context = number(record, at.context);
        let Some(comm) = self.communicator(context) else { return };
        let received = number(record, at.direction) == Some(1);
        let rank = |job: u64| usize::try_from(job).ok().and_then(|job| self.watched.ranks.get(job).copied());
        let peer = match (context, received) {
            (None, _) => None,
            (_, true) => signed(record, at.source),
            (_, false) => number(record, at.peer).and_then(rank),
        };
        let whole = number(record, at.total).filter(|&total| total > 0);
        let bytes = whole.or_else(|| number(record, at.bytes)).unwrap_or(0);
        let local = number(record, at.local);
        let mut spec = Spec {
            comm,
            buf: local.map_or(null_mut(), |local| std::ptr::with_exposed_provenance_mut(local as usize)),
            count: c_int::try_from(bytes).unwrap_or(c_int::MAX),
            datatype: communicator::byte(),
            peer: peer.unwrap_or(-1),
            tag: signed(record, at.tag).unwrap_or(-1),
            operation: self.descriptor.operation.unwrap_or(if received { RECEIVE } else { SEND }),
        };
        let request = number(record, at.request).filter(|&request| request != 0);
        let id = request.or_else(|| number(record, at.message)).or_else(|| number(record, at.operation)).unwrap_or(0);
        let upcall = InUpcall::new();
        // SAFETY: the tool's function with what the tool gave for it; the specification outlives the call.
        let code = unsafe { (callback.function)(self.number, id as isize, &raw mut spec, callback.param) };
        drop(upcall);
        if code != 0 {
            super::callback_failed(self.descriptor.name, code);
        }
    }
}

const SEND: c_int = 0;
const RECEIVE: c_int = 1;

/// Where the elements are that a callback is told of; found once for a handle.
struct Places {
    context: Option<usize>,
    direction: Option<usize>,
    source: Option<usize>,
    peer: Option<usize>,
    total: Option<usize>,
    bytes: Option<usize>,
    local: Option<usize>,
    tag: Option<usize>,
    request: Option<usize>,
    message: Option<usize>,
    operation: Option<usize>,
}

impl Places {
    fn of(kind: TypeId) -> Places {
        let place = |name| kind.row().elements.iter().position(|element| element.name == name);
        Places {
            context: place("context"),
            direction: place("direction"),
            source: place("source"),
            peer: place("peer"),
            total: place("total"),
            bytes: place("bytes"),
            local: place("local"),
            tag: place("tag"),
            request: place("request"),
            message: place("message"),
            operation: place("operation"),
        }
    }
}

fn number(record: &Record, place: Option<usize>) -> Option<u64> {
    match record.value(place?)? {
        Value::U32(value) => Some(u64::from(value)),
        Value::U64(value) => Some(value),
        Value::I32(_) => None,
    }
}

fn signed(record: &Record, place: Option<usize>) -> Option<i32> {
    match record.value(place?)? {
        Value::I32(value) => Some(value),
        _ => None,
    }
}
