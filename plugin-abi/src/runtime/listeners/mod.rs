// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listeners for the events of requests and messages: one table per communicator, read at the site of the event.
//!
//! The PML raises these events and registers itself as their raiser ([`raised_by`]). Tools add and remove listeners,
//! for one communicator or for all. The table is in `c_peruse_handles` of Open MPI's communicator, which a stock Open
//! MPI leaves null; so a site finds it by one load. The site calls a listener with a specification on the stack of the
//! PML: it reads no clock and allocates nothing.
//!
//! Called by `tool/peruse`, `tool/mpi_t/matching.rs`, `watch.rs`, the PML. Grade: setup. Threads: see N1. Tests: below,
//! and `hw-tests/tools/peruse_requests.c`. Safety, for the unsafe blocks of this file, `table.rs` and
//! `tool/mpi_t/matching.rs`:
//! - **N1** Tables and listeners are used by one thread at a time: the thread that has entered the PML (`pml/mod.rs`,
//!   P3) or, while no PML raises events, the one inside [`without_a_face`] (both by [`change`]); or the thread that
//!   creates a communicator, before its first use ([`begins`]). So no other thread is in a callback when its listener
//!   has been removed.
//! - **N2** A table lives from the first `add` to its communicator until [`forget`], which runs before Open MPI frees
//!   the communicator. So `c_peruse_handles` of a live communicator is null or a table. A callback may remove
//!   listeners: their entries in the list stay, as `TAKEN`, until the next change from outside callbacks.
//! - **N3** The specification outlives the call of a listener. For [`Event::Protocol`] it is the first field of a
//!   [`ProtocolSpec`]. No listener is called for [`Event::Transfer`].
//! - **N4** A listener's function may be called with its `param` until the listener has been removed.

mod event;
mod table;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::ptr::null_mut;
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ibex_ffi::openmpi::sys;
use parking_lot::Mutex;

pub(crate) use engine::messenger::events::Event;
pub(crate) use event::{ProtocolSpec, Spec, SpecPointer};
pub(crate) use table::{Function, Listener, Listeners, NOBODY};

pub(crate) struct Upcall {
    /// Runs a call of a listener while some thread holds the tool's lock.
    pub(crate) beside_lock: fn(&mut dyn FnMut()),
    /// Called when a listener has returned another code than success.
    pub(crate) failed: fn(handle: i64, code: c_int),
}

#[derive(Clone, Copy)]
pub(crate) struct Raiser {
    /// Enters the PML and runs the closure: no other thread raises an event meanwhile. Passes true if this thread is
    /// inside a callback, and so had entered the PML already.
    pub(crate) change: fn(&mut dyn FnMut(bool)),
    /// Records, in the entered PML, whether any communicator has a listener. Returns whether that has changed.
    pub(crate) watch: fn(bool) -> bool,
    /// Opens or closes, in the entered PML, the fast paths of this live communicator, depending on its listeners.
    pub(crate) follow: unsafe fn(*mut sys::ompi_communicator_t),
    pub(crate) queues: Queues,
}

#[derive(Clone, Copy)]
pub(crate) struct Queues {
    /// Counts posted receives and unexpected messages of a live communicator, in the entered PML.
    pub(crate) lengths: unsafe fn(*mut sys::ompi_communicator_t) -> [u32; 2],
    /// `keep_alone` of `tool/mpi_t/matching.rs`, which counts them without a call.
    pub(crate) keep_alone: Function,
}

static RAISER: Mutex<Option<Raiser>> = Mutex::new(None);
static QUEUES: OnceLock<Queues> = OnceLock::new();
static UPCALL: OnceLock<Upcall> = OnceLock::new();
static COUNT: AtomicUsize = AtomicUsize::new(0);
static IS_LOCKED: AtomicBool = AtomicBool::new(false);

struct Tables {
    /// Tables by the address of their communicator.
    of: BTreeMap<usize, Table>,
    /// Addresses of the PML's communicators, with or without listeners.
    comms: BTreeSet<usize>,
    everywhere: Vec<(Event, Listener)>,
    /// Whether a callback has changed listeners, so that [`follow`] is still to be called.
    is_behind: bool,
}

static TABLES: Mutex<Tables> =
    Mutex::new(Tables { of: BTreeMap::new(), comms: BTreeSet::new(), everywhere: Vec::new(), is_behind: false });

/// Communicators whose listeners have changed. If only one has, [`follow`] does not visit the others, perhaps 100,000.
#[derive(Clone, Copy)]
enum Changed {
    Nothing,
    One(usize),
    All,
}

impl Tables {
    /// # Safety
    /// N1. The communicator is live, and [`forget`] is called before it is freed.
    unsafe fn add(&mut self, comm: *mut sys::ompi_communicator_t, event: Event, listener: Listener) {
        let table = self.of.entry(comm.addr()).or_insert_with(|| {
            let table = Rc::new(Listeners::new());
            // SAFETY: N1, and the caller says that the communicator is live.
            unsafe { (*comm).c_peruse_handles = Rc::as_ptr(&table).cast_mut().cast() };
            Table(table)
        });
        table.0.add(event, listener);
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

struct Table(Rc<Listeners>);

// SAFETY: N1 lets one thread at a time use the table, here or at the site of an event.
unsafe impl Send for Table {}

/// Sets the PML that raises these events from now on; `None`: there is none.
pub(crate) fn raised_by(raiser: Option<Raiser>) {
    if let Some(raiser) = &raiser {
        QUEUES.get_or_init(|| raiser.queues);
    } else {
        // Open MPI does not announce the end of every communicator.
        TABLES.lock().comms.clear();
    }
    without_a_face(|| *RAISER.lock() = raiser);
}

pub(crate) fn are_raised() -> bool {
    RAISER.lock().is_some()
}

pub(crate) fn is_anybody() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

/// Sets the functions of the tool interface. The caller has added no listener yet.
pub(crate) fn called_by(upcall: Upcall) {
    UPCALL.get_or_init(|| upcall);
}

pub(crate) fn set_locked(is_locked: bool) {
    IS_LOCKED.store(is_locked, Ordering::Relaxed);
}

/// Runs `body` under N1. Then the PML opens or closes the fast paths of the communicators that `body` returns. After a
/// change within a callback the PML does so at the next change from outside callbacks.
fn change(mut body: impl FnMut(bool) -> Changed) {
    let now = || *RAISER.lock();
    let mut raiser = now();
    if raiser.is_none() {
        without_a_face(|| {
            // A PML may have registered itself meanwhile.
            raiser = now();
            if raiser.is_none() {
                body(false);
            }
        });
    }
    let Some(raiser) = raiser else { return };
    (raiser.change)(&mut |is_within| {
        let what = body(is_within);
        if is_within {
            TABLES.lock().is_behind |= !matches!(what, Changed::Nothing);
        } else {
            follow(raiser, what);
        }
    });
}

/// Runs `body` while no other thread is inside this function, so no PML registers itself. May be called recursively.
fn without_a_face(body: impl FnOnce()) {
    static ALONE: Mutex<()> = Mutex::new(());
    thread_local! {
        static IS_ALONE: Cell<bool> = const { Cell::new(false) };
    }
    if IS_ALONE.get() {
        return body();
    }
    let _alone = ALONE.lock();
    IS_ALONE.set(true);
    // A panic ends the use of ibex in this process (`guard.rs`).
    body();
    IS_ALONE.set(false);
}

/// Lets the PML open or close the fast paths of the changed communicators. The caller has entered the PML.
fn follow(raiser: Raiser, what: Changed) {
    let is_new = (raiser.watch)(is_anybody());
    let mut tables = TABLES.lock();
    let is_behind = std::mem::take(&mut tables.is_behind);
    // SAFETY: N1; the communicator is live: [`ends`] takes the lock of the tables before one of `comms` goes, and the
    // callers of `add`, `remove` and `forget` promise it for theirs.
    let look = |comm: usize| unsafe { (raiser.follow)(std::ptr::with_exposed_provenance_mut(comm)) };
    if let Changed::One(comm) = what {
        look(comm);
    }
    if is_new || is_behind || matches!(what, Changed::All) {
        // A communicator without a table has no listener, and had none before.
        tables.of.keys().filter(|comm| tables.comms.contains(comm)).copied().for_each(look);
    }
}

/// Adds a listener to a communicator, if `is_wanted` returns true under N1: by then another thread may have freed the
/// communicator or removed the listener.
///
/// # Safety
/// The communicator is live if `is_wanted` returns true. [`forget`] is called before it is freed, and from then on
/// `is_wanted` returns false.
pub(crate) unsafe fn add(
    comm: *mut sys::ompi_communicator_t,
    event: Event,
    listener: Listener,
    is_wanted: impl Fn() -> bool,
) {
    change(|_| {
        if !is_wanted() {
            return Changed::Nothing;
        }
        // SAFETY: N1; the communicator is live until the end of this change, because `forget` is a change, too.
        unsafe { TABLES.lock().add(comm, event, listener) };
        Changed::One(comm.expose_provenance())
    });
}

/// Adds a listener to all communicators of the PML, present and future ones ([`add`]).
pub(crate) fn add_everywhere(event: Event, listener: Listener, is_wanted: impl Fn() -> bool) {
    change(|_| {
        if !is_wanted() {
            return Changed::Nothing;
        }
        let mut tables = TABLES.lock();
        tables.everywhere.push((event, listener));
        COUNT.fetch_add(1, Ordering::Relaxed);
        for comm in tables.comms.clone() {
            // SAFETY: N1; it is live, because `ends` removes it from `comms` before it is freed.
            unsafe { tables.add(std::ptr::with_exposed_provenance_mut(comm), event, listener) };
        }
        Changed::All
    });
}

pub(crate) fn remove_everywhere(event: Event, handle: i64) {
    change(|is_within| {
        let mut tables = TABLES.lock();
        let before = tables.everywhere.len();
        tables.everywhere.retain(|(_, listener)| listener.handle != handle);
        COUNT.fetch_sub(before - tables.everywhere.len(), Ordering::Relaxed);
        for table in tables.of.values() {
            COUNT.fetch_sub(table.0.take(event, handle, is_within), Ordering::Relaxed);
        }
        Changed::All
    });
}

/// Adds a communicator of the PML, with the listeners to all communicators.
///
/// # Safety
/// The communicator is live and not in use yet. [`ends`] is called before it is freed.
pub(crate) unsafe fn begins(comm: *mut sys::ompi_communicator_t) {
    let mut tables = TABLES.lock();
    tables.comms.insert(comm.expose_provenance());
    for (event, listener) in tables.everywhere.clone() {
        // SAFETY: N1: it is not in use yet; the caller says that it is live, and `ends` is called before its end.
        unsafe { tables.add(comm, event, listener) };
    }
}

/// Removes a communicator of the PML. The caller has not entered the PML, unless this is called from a callback.
///
/// # Safety
/// The communicator is live.
pub(crate) unsafe fn ends(comm: *mut sys::ompi_communicator_t) {
    TABLES.lock().comms.remove(&comm.addr());
    // SAFETY: the caller says that it is live.
    unsafe { forget(comm) };
}

/// Calls the closure with a communicator if the PML has it; it stays live during the call. Any thread.
pub(crate) fn while_live<T>(
    comm: *mut sys::ompi_communicator_t,
    call: impl FnOnce(*mut sys::ompi_communicator_t) -> T,
) -> Option<T> {
    let tables = TABLES.lock();
    tables.comms.contains(&comm.addr()).then(|| call(comm))
}

/// Runs `body` while no other thread is in a callback of a listener.
pub(crate) fn exclusively(mut body: impl FnMut()) {
    change(|_| {
        body();
        Changed::Nothing
    });
}

/// Returns the numbers of posted receives and of unexpected messages of a communicator.
///
/// # Safety
/// N1. The communicator is live, and this thread is notifying one of its listeners.
pub(crate) unsafe fn queues(comm: *mut sys::ompi_communicator_t) -> [u32; 2] {
    // SAFETY: N1 and the caller: the communicator is live, and the PML is entered, as a listener is being notified.
    QUEUES.get().map_or([0; 2], |queues| unsafe { (queues.lengths)(comm) })
}

/// Returns the PML's [`Queues::keep_alone`]; `None` before a PML has registered itself.
pub(crate) fn keep_alone() -> Option<Function> {
    QUEUES.get().map(|queues| queues.keep_alone)
}

pub(crate) fn set_alone(event: Event, handle: i64, alone: Function) {
    change(|_| {
        let mut tables = TABLES.lock();
        for (_, listener) in tables.everywhere.iter_mut().filter(|(_, listener)| listener.handle == handle) {
            listener.alone = alone;
        }
        tables.of.values().for_each(|table| table.0.set_alone(event, handle, alone));
        Changed::Nothing
    });
}

/// Removes the listener with this handle, if it is there, from a communicator. Then no other thread is in its callback.
pub(crate) fn remove(comm: *mut sys::ompi_communicator_t, event: Event, handle: i64) {
    change(|is_within| {
        let tables = TABLES.lock();
        let Some(table) = tables.of.get(&comm.addr()) else { return Changed::Nothing };
        COUNT.fetch_sub(table.0.take(event, handle, is_within), Ordering::Relaxed);
        Changed::One(comm.expose_provenance())
    });
}

/// # Safety
/// The communicator is live.
pub(crate) unsafe fn forget(comm: *mut sys::ompi_communicator_t) {
    change(|is_within| {
        let Some(table) = TABLES.lock().of.remove(&comm.addr()) else { return Changed::Nothing };
        // SAFETY: the caller says that it is live; N1.
        unsafe { (*comm).c_peruse_handles = null_mut() };
        COUNT.fetch_sub(table.0.count(), Ordering::Relaxed);
        if is_within {
            // Leaked: the caller of the callback still uses it.
            std::mem::forget(table);
        }
        Changed::One(comm.expose_provenance())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_changes_the_lists_and_it_may_nest_its_changes() {
        // Other tests set a raiser that does not exclude other threads.
        let _alone = crate::tool::tests::lock();
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        exclusively(|| {
                            most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                            exclusively(std::thread::yield_now);
                            inside.fetch_sub(1, Ordering::SeqCst);
                        });
                    }
                });
            }
        });
        assert_eq!(most.into_inner(), 1);
    }
}
