// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registry: immutable lists of registrations for delivering threads, and the freed registrations not yet finished.
//! Owns [`LIST_VERSIONS`], by which a thread knows whether its list is current, and sets `interest_mask.rs`. A change
//! makes a new list under the lock, which is never held while a callback runs; so a callback may call this file. Grade:
//! setup, [`snapshot`] once per change and thread. Threads: any. Tests: `tests/registrations.rs`, `tests/free.rs`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use super::registration::{Callback, Callbacks, DroppedCallback, FreeCallback, Options, Registration, RegistrationId};
use crate::events::delivery::quiescence::{DeliveringThreads, GracePeriod};
use crate::events::sources::port_source;
use crate::events::types::table::COUNT;
use crate::events::{HostClock, Safety, TypeId, interest_mask};

/// The registration has been freed already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlreadyFreed;

/// Per type the version of its list of registrations; 0 if the list is empty.
pub(in crate::events) static LIST_VERSIONS: [AtomicU64; COUNT] = [const { AtomicU64::new(0) }; COUNT];

pub(in crate::events) static DELIVERING: LazyLock<DeliveringThreads> = LazyLock::new(DeliveringThreads::new);

/// A registration, and its callbacks in this version.
#[derive(Clone)]
pub(in crate::events) struct Entry {
    pub(in crate::events) registration: Arc<Registration>,
    pub(in crate::events) calls: Arc<Callbacks>,
    active: bool,
}

#[derive(Clone)]
pub(in crate::events) struct Snapshot {
    pub(in crate::events) version: u64,
    pub(in crate::events) list: Arc<[Entry]>,
}

/// The lists that a change replaced. Dropped without the lock, because dropping a tool's callback may run any code.
type Replaced = (Option<Arc<[Entry]>>, Option<Arc<[Entry]>>);

/// A freed registration that a thread may still see.
pub(super) struct PendingFree {
    pub(super) entry: Entry,
    pub(super) grace_period: GracePeriod,
    pub(super) on_free: Option<FreeCallback>,
    /// The level that callbacks had to have where it was freed.
    pub(super) safety: Safety,
}

struct Registry {
    version: u64,
    all: Vec<Entry>,
    /// `all` as an immutable list, for the thread that empties buffers; `None` after a change.
    all_entries: Option<Arc<[Entry]>>,
    lists: [Option<Arc<[Entry]>>; COUNT],
    pending_frees: Vec<PendingFree>,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    version: 0,
    all: Vec::new(),
    all_entries: None,
    lists: [const { None }; COUNT],
    pending_frees: Vec::new(),
});

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    fn renew(&mut self, event_type: TypeId) -> Replaced {
        let listens =
            |entry: &&Entry| entry.registration.event_type == event_type && entry.active && !entry.calls.is_empty();
        let list: Arc<[Entry]> = self.all.iter().filter(listens).cloned().collect();
        self.version += 1;
        let word = if list.is_empty() { 0 } else { self.version };
        let listens = |immediate| list.iter().any(|entry| entry.registration.immediate == immediate);
        let (immediate, ordered) = (listens(true), listens(false));
        let old = (self.lists[event_type.index()].replace(list), self.all_entries.take());
        LIST_VERSIONS[event_type.index()].store(word, Ordering::SeqCst);
        interest_mask::set_interest(event_type, immediate, ordered);
        if word != 0 && event_type.place_in_matching().is_none() {
            port_source::tool_listens();
        }
        old
    }
}

/// Changes an entry. `change` returns the callback that it replaced; this drops it after it has released the lock.
fn change<T>(registration: &Registration, change: impl FnOnce(&mut Entry) -> T) -> Result<(), AlreadyFreed> {
    let mut registry = registry();
    let entry = registry.all.iter_mut().find(|entry| entry.registration.id == registration.id).ok_or(AlreadyFreed)?;
    let replaced = change(entry);
    entry.registration.revision.fetch_add(1, Ordering::SeqCst);
    let old = registry.renew(registration.event_type);
    drop(registry);
    if registration.waiting() > 0 || registration.has_unreported_drops() {
        // The new callbacks may be fit for the waiting events.
        interest_mask::set_pending(interest_mask::BUFFERS);
    }
    drop((replaced, old));
    Ok(())
}

/// Makes a registration for events of a type; without callbacks it does nothing.
#[must_use]
pub fn register(event_type: TypeId, options: Options) -> Arc<Registration> {
    // The clock is chosen before the first event needs it.
    let _ = HostClock::get();
    let id = RegistrationId(NEXT_ID.fetch_add(1, Ordering::Relaxed));
    let registration = Arc::new(Registration::new(id, event_type, options));
    let entry = Entry { registration: Arc::clone(&registration), calls: Arc::default(), active: true };
    let mut registry = registry();
    registry.all.push(entry);
    let old = registry.all_entries.take();
    drop(registry);
    drop(old);
    registration
}

/// Finds a registration by its name, unless it was freed.
pub fn find(id: RegistrationId) -> Option<Arc<Registration>> {
    registry().all.iter().find(|entry| entry.registration.id == id).map(|entry| Arc::clone(&entry.registration))
}

/// All registrations that are not freed.
pub fn all() -> Vec<Arc<Registration>> {
    registry().all.iter().map(|entry| Arc::clone(&entry.registration)).collect()
}

/// Sets or removes the callback of a level. An event calls that of the lowest level that is fit where it happens.
///
/// # Errors
/// [`AlreadyFreed`].
pub fn set_callback(
    registration: &Registration,
    level: Safety,
    callback: Option<Callback>,
) -> Result<(), AlreadyFreed> {
    change(registration, |entry| Arc::make_mut(&mut entry.calls).set(level, callback))
}

/// Sets, replaces or removes the callback for lost events.
///
/// # Errors
/// [`AlreadyFreed`].
pub fn set_dropped(registration: &Registration, callback: Option<DroppedCallback>) -> Result<(), AlreadyFreed> {
    change(registration, |entry| std::mem::replace(&mut Arc::make_mut(&mut entry.calls).dropped, callback))
}

/// Activates or deactivates a registration, which keeps its callbacks and its buffer.
///
/// # Errors
/// [`AlreadyFreed`].
pub fn set_active(registration: &Registration, active: bool) -> Result<(), AlreadyFreed> {
    change(registration, |entry| entry.active = active)
}

/// Removes a registration: it gets no event from now on, and `free.rs` finishes it once no thread can see it any more.
pub(super) fn remove(
    registration: &Registration,
    safety: Safety,
    on_free: Option<FreeCallback>,
) -> Result<(), AlreadyFreed> {
    let mut registry = registry();
    let index = registry.all.iter().position(|entry| entry.registration.id == registration.id).ok_or(AlreadyFreed)?;
    registration.close();
    let entry = registry.all.remove(index);
    let old = registry.renew(registration.event_type);
    let grace_period = DELIVERING.grace_period();
    registry.pending_frees.push(PendingFree { entry, grace_period, on_free, safety });
    interest_mask::set_pending(interest_mask::FREES);
    drop(registry);
    drop(old);
    Ok(())
}

#[cold]
pub(in crate::events) fn snapshot(event_type: TypeId) -> Option<Snapshot> {
    let registry = registry();
    let version = LIST_VERSIONS[event_type.index()].load(Ordering::SeqCst);
    let list = registry.lists[event_type.index()].clone()?;
    (version != 0).then_some(Snapshot { version, list })
}

/// All registrations, for the thread that empties buffers; `free.rs` empties the freed ones.
pub(in crate::events) fn all_entries() -> Arc<[Entry]> {
    let mut registry = registry();
    if let Some(list) = &registry.all_entries {
        return Arc::clone(list);
    }
    let list: Arc<[Entry]> = registry.all.iter().cloned().collect();
    registry.all_entries = Some(Arc::clone(&list));
    list
}

pub(super) fn take_pending_free() -> Option<PendingFree> {
    let mut registry = registry();
    let index = registry.pending_frees.iter_mut().position(|pending| pending.grace_period.is_over());
    let taken = index.map(|index| registry.pending_frees.remove(index));
    if registry.pending_frees.is_empty() {
        // Under the lock, as the bit is set under it.
        interest_mask::clear_pending(interest_mask::FREES);
    }
    taken
}

pub(super) fn put_pending_free_back(pending: PendingFree) {
    let mut registry = registry();
    registry.pending_frees.push(pending);
    interest_mask::set_pending(interest_mask::FREES);
}
