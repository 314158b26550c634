// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who is registered for what: the lists who delivers goes by, and the freed ones on their way out.
//!
//! Owns [`EDITIONS`], by which a thread knows whether the list it has is still the right one, and tells `attention.rs` who listens. A change makes a new list under the lock; a list never changes. The lock is
//! held while lists are made and handed out, never while a callback runs, so a callback may call all of this.
//!
//! Path: setup, [`snapshot`] once per change and thread. Threads: any.
//! Tests: `tests/handles.rs`, `tests/free.rs`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use super::attention;
use super::clock::HostClock;
use super::deliver;
use super::handle::{Callback, Calls, DroppedCallback, FreeCallback, Handle, HandleId, Options};
use super::presence::{Grace, Threads};
use super::row::{Safety, TypeId};
use super::table::COUNT;

/// The registration has been freed already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freed;

/// Per type: 0, or the edition of the list of its registrations.
pub(super) static EDITIONS: [AtomicU64; COUNT] = [const { AtomicU64::new(0) }; COUNT];

/// The threads that may deliver.
pub(super) static DELIVERING: LazyLock<Threads> = LazyLock::new(Threads::new);

/// A registration, and what it calls in this edition.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) handle: Arc<Handle>,
    pub(super) calls: Arc<Calls>,
    active: bool,
}

/// A list of registrations, and its edition.
#[derive(Clone)]
pub(super) struct Snapshot {
    pub(super) edition: u64,
    pub(super) list: Arc<[Entry]>,
}

/// What a change has put out of use. Dropped after the lock: a tool's callback goes with it, and may do anything.
type Old = (Option<Arc<[Entry]>>, Option<Arc<[Entry]>>);

/// A freed registration that somebody may still see.
pub(super) struct Leaving {
    pub(super) entry: Entry,
    pub(super) grace: Grace,
    pub(super) on_free: Option<FreeCallback>,
}

struct Registry {
    edition: u64,
    /// All registrations that are not freed.
    all: Vec<Entry>,
    /// The same and the leaving ones, for who empties buffers.
    everything: Option<Arc<[Entry]>>,
    lists: [Option<Arc<[Entry]>>; COUNT],
    leaving: Vec<Leaving>,
}

/// The next registration's name.
static NEXT: AtomicU64 = AtomicU64::new(1);

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    edition: 0,
    all: Vec::new(),
    everything: None,
    lists: [const { None }; COUNT],
    leaving: Vec::new(),
});

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    /// Says whether anybody is registered for messages.
    fn follow_messages(&self) {
        attention::follow_messages(self.all.iter().any(|entry| attention::is_of_messages(entry.handle.kind)));
    }

    /// Makes the list of a type anew.
    fn renew(&mut self, kind: TypeId) -> Old {
        let listens = |entry: &&Entry| entry.handle.kind == kind && entry.active && !entry.calls.is_empty();
        let list: Arc<[Entry]> = self.all.iter().filter(listens).cloned().collect();
        self.edition += 1;
        let word = if list.is_empty() { 0 } else { self.edition };
        let listens = |as_it_happens| list.iter().any(|entry| entry.handle.as_it_happens == as_it_happens);
        let (as_it_happens, ordered) = (listens(true), listens(false));
        let old = (self.lists[kind.index()].replace(list), self.everything.take());
        EDITIONS[kind.index()].store(word, Ordering::SeqCst);
        attention::listen(kind, as_it_happens, ordered);
        if word != 0 {
            deliver::attend();
        }
        old
    }
}

/// Changes what a registration calls.
fn change(handle: &Handle, change: impl FnOnce(&mut Calls)) -> Result<(), Freed> {
    let mut registry = registry();
    let entry = registry.all.iter_mut().find(|entry| entry.handle.id == handle.id).ok_or(Freed)?;
    let mut calls = (*entry.calls).clone();
    change(&mut calls);
    let before = std::mem::replace(&mut entry.calls, Arc::new(calls));
    entry.handle.revision.fetch_add(1, Ordering::SeqCst);
    let old = registry.renew(handle.kind);
    drop(registry);
    if handle.waiting() > 0 || handle.is_losing() {
        // It may be for the new ones.
        attention::flag(attention::RINGS);
    }
    drop((before, old));
    Ok(())
}

/// A new registration for events of a type; without callbacks it does nothing.
#[must_use]
pub fn register(kind: TypeId, options: Options) -> Arc<Handle> {
    // The clock is chosen before the first event needs it.
    let _ = HostClock::get();
    let id = HandleId(NEXT.fetch_add(1, Ordering::Relaxed));
    let handle = Arc::new(Handle::new(id, kind, options));
    let entry = Entry { handle: Arc::clone(&handle), calls: Arc::default(), active: true };
    let mut registry = registry();
    registry.all.push(entry);
    registry.follow_messages();
    let old = registry.everything.take();
    drop(registry);
    drop(old);
    handle
}

/// The registration of this name, unless it was freed.
#[must_use]
pub fn find(id: HandleId) -> Option<Arc<Handle>> {
    registry().all.iter().find(|entry| entry.handle.id == id).map(|entry| Arc::clone(&entry.handle))
}

/// All registrations that are not freed.
#[must_use]
pub fn all() -> Vec<Arc<Handle>> {
    registry().all.iter().map(|entry| Arc::clone(&entry.handle)).collect()
}

/// Sets, replaces or takes away the callback for one level. Every event goes to that of the least level that is fit for where it
/// happens; others of the same registration do not get it.
///
/// # Errors
/// [`Freed`].
pub fn set_callback(handle: &Handle, level: Safety, callback: Option<Callback>) -> Result<(), Freed> {
    let mut old = None;
    let changed = change(handle, |calls| old = calls.set(level, callback));
    drop(old);
    changed
}

/// Sets, replaces or takes away what is called when events were lost.
///
/// # Errors
/// [`Freed`].
pub fn set_dropped(handle: &Handle, callback: Option<DroppedCallback>) -> Result<(), Freed> {
    let mut old = None;
    let changed = change(handle, |calls| old = std::mem::replace(&mut calls.dropped, callback));
    drop(old);
    changed
}

/// Lets a registration take events, or not, without losing what it is.
///
/// # Errors
/// [`Freed`].
pub fn set_active(handle: &Handle, active: bool) -> Result<(), Freed> {
    let mut registry = registry();
    let entry = registry.all.iter_mut().find(|entry| entry.handle.id == handle.id).ok_or(Freed)?;
    entry.active = active;
    let old = registry.renew(handle.kind);
    drop(registry);
    drop(old);
    Ok(())
}

/// Frees a registration. It takes no event from now on; what waits in its buffer is delivered; then, when no thread can be within
/// a callback of it any more, `on_free` is called, once: before this returns where that is possible, else from a later delivery.
/// May be called from within one of its own callbacks. `context` says what a callback must be fit for here.
///
/// # Errors
/// [`Freed`].
pub fn free(handle: &Handle, context: Safety, on_free: Option<FreeCallback>) -> Result<(), Freed> {
    let old = {
        let mut registry = registry();
        let index = registry.all.iter().position(|entry| entry.handle.id == handle.id).ok_or(Freed)?;
        if !handle.begin_closing() {
            return Err(Freed);
        }
        let entry = registry.all.remove(index);
        registry.follow_messages();
        let old = registry.renew(handle.kind);
        let grace = DELIVERING.grace();
        registry.leaving.push(Leaving { entry, grace, on_free });
        attention::flag(attention::LEAVING);
        old
    };
    drop(old);
    deliver::settle(context);
    Ok(())
}

/// The list of a type; `None` when nobody listens.
#[cold]
pub(super) fn snapshot(kind: TypeId) -> Option<Snapshot> {
    let registry = registry();
    let edition = EDITIONS[kind.index()].load(Ordering::SeqCst);
    let list = registry.lists[kind.index()].clone()?;
    (edition != 0).then_some(Snapshot { edition, list })
}

/// All registrations, for who empties buffers. Those on their way out are emptied by [`deliver::settle`].
pub(super) fn everything() -> Arc<[Entry]> {
    let mut registry = registry();
    if let Some(list) = &registry.everything {
        return Arc::clone(list);
    }
    let list: Arc<[Entry]> = registry.all.iter().cloned().collect();
    registry.everything = Some(Arc::clone(&list));
    list
}

/// One that is on its way out and that nobody can see any more; `None` where there is none.
pub(super) fn take_leaving() -> Option<Leaving> {
    let mut registry = registry();
    let index = registry.leaving.iter_mut().position(|leaving| leaving.grace.is_over());
    let taken = index.map(|index| registry.leaving.remove(index));
    if registry.leaving.is_empty() {
        // Under the lock, as the flag is raised under it.
        attention::unflag(attention::LEAVING);
    }
    taken
}

/// It could not be finished now.
pub(super) fn put_back(leaving: Leaving) {
    let mut registry = registry();
    registry.leaving.push(leaving);
    attention::flag(attention::LEAVING);
}
