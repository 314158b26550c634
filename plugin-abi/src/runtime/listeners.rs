// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listeners for the events of requests and messages: one table per communicator, read at the site of the event.
//!
//! The PML raises these events and registers itself as their raiser ([`raised_by`]). Tools add and remove listeners,
//! for one communicator or for all. The table is in `c_peruse_handles` of Open MPI's communicator, which a stock Open
//! MPI leaves null; so a site finds it by one load. The site calls a listener with a specification on the stack of the
//! PML: it reads no clock and allocates nothing. Usually an event has one listener, whose function and argument are in
//! the table itself; for several the table has [`call_each`], which iterates over their list.
//!
//! Called by `tool/peruse`, `tool/matching.rs`, `watch.rs` and the PML. Grade: setup; [`Listeners::tell`] is on the
//! path of messages while a tool listens. Threads: see N1. Tests: below, and `hw-tests/tools/peruse_requests.c`.
//! Safety, for every unsafe block in this file and in `tool/matching.rs`:
//! - **N1** Tables and listeners are used by one thread at a time: the thread that has entered the PML (`pml/mod.rs`,
//!   P3) or, while no PML raises events, the one inside [`without_a_face`] (both by [`change`]); or the thread that
//!   creates a communicator, before its first use ([`begins`]). So no other thread is in a callback when its listener
//!   has been removed.
//! - **N2** A table lives from the first `add` to its communicator until [`forget`], which runs before Open MPI frees
//!   the communicator. So `c_peruse_handles` of a live communicator is null or a table. A callback may remove
//!   listeners: their entries in the list stay, as [`TAKEN`], until the next change from outside callbacks.
//! - **N3** The specification outlives the call of a listener. For [`Event::Protocol`] it is the first field of a
//!   [`ProtocolSpec`]. No listener is called for [`Event::Transfer`].
//! - **N4** A listener's function may be called with its `param` until the listener has been removed.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use engine::messenger::passage::Passage;
use ibex_ffi::openmpi::sys;

macro_rules! events {
    ($(#[$of_all:meta])* enum Event { $($(#[$of_one:meta])* $name:ident,)* }) => {
        $(#[$of_all])*
        pub(crate) enum Event { $($(#[$of_one])* $name,)* }

        impl Event {
            pub(crate) const ALL: [Event; [$(Event::$name),*].len()] = [$(Event::$name),*];
        }
    };
}

events! {
    /// Events of requests and messages. The numbers are those of PERUSE (`include/peruse.h`) minus 1.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    enum Event {
        Activate,
        MatchUnexpected,
        InsertPosted,
        RemovePosted,
        XferBegin,
        XferEnd,
        Complete,
        Notify,
        Arrived,
        InsertUnexpected,
        RemoveUnexpected,
        MatchPosted,
        SearchPostedBegin,
        SearchPostedEnd,
        SearchUnexpectedBegin,
        SearchUnexpectedEnd,
        XferContinue,
        Cancel,
        Free,
        /// The protocol of a request's message ([`Listeners::tell_protocol`]). PERUSE has no such event.
        Protocol,
        /// Not an event of PERUSE. While [`NOBODY`] listens to it, the PML raises the engine's transfers and arrivals.
        Transfer,
    }
}

/// `peruse_comm_spec_t`, as a callback gets it, followed by fields that PERUSE does not have.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub(crate) comm: *mut sys::ompi_communicator_t,
    pub(crate) buf: *mut c_void,
    pub(crate) count: c_int,
    pub(crate) datatype: *mut sys::ompi_datatype_t,
    pub(crate) peer: c_int,
    pub(crate) tag: c_int,
    pub(crate) operation: c_int,
    /// Context number of the communicator. This and the following fields are ibex' own; this one fills C's padding.
    pub(crate) context: u32,
    pub(crate) bytes: u64,
    /// Time of the event, once a listener has read the clock. Before that it is 0, or `TOLD` (`tool/instance.rs`) after
    /// the first of several listeners. A lone listener ignores the previous value.
    pub(crate) stamp: u64,
}

impl Spec {
    pub(crate) const EMPTY: Spec = Spec {
        comm: null_mut(),
        buf: null_mut(),
        count: 0,
        datatype: null_mut(),
        peer: 0,
        tag: 0,
        operation: 0,
        context: 0,
        bytes: 0,
        stamp: 0,
    };
}

/// Argument of listeners to [`Event::Protocol`], in place of a [`Spec`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProtocolSpec {
    /// Specification of the request; only `bytes` is the message's.
    pub(crate) spec: Spec,
    /// Number of the message of a receive.
    pub(crate) message: u64,
    pub(crate) passage: Passage,
}

/// `peruse_comm_callback_f`
pub(crate) type Function = unsafe extern "C" fn(i64, isize, *mut Spec, *mut c_void) -> c_int;

#[derive(Clone, Copy)]
pub(crate) struct Listener {
    /// Number of the listener; not 0.
    pub(crate) handle: i64,
    pub(crate) function: Function,
    /// Function that is called instead, while this is the only listener to its event on its communicator.
    pub(crate) alone: Function,
    pub(crate) param: *mut c_void,
}

/// Placeholder for a listener that a callback has removed.
const TAKEN: Listener = Listener { handle: 0, function: ignore, alone: ignore, param: null_mut() };

/// Listener of no tool: it opens the site of [`Event::Transfer`], whose events the engine delivers.
pub(crate) const NOBODY: Listener = Listener { handle: -1, ..TAKEN };

impl Listener {
    fn is_taken(&self) -> bool {
        self.handle == TAKEN.handle
    }
}

unsafe extern "C" fn ignore(_: i64, _: isize, _: *mut Spec, _: *mut c_void) -> c_int {
    0
}

// SAFETY: the pointer is never dereferenced here; PERUSE lets callbacks be invoked in any thread (5.1.2).
unsafe impl Send for Listener {}

pub(crate) struct Upcall {
    /// Calls the listener while some thread holds the tool's lock.
    pub(crate) beside_lock: unsafe fn(Listener, isize, *mut Spec) -> c_int,
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
    /// Counts posted receives and unexpected messages of a live communicator, in the entered PML.
    pub(crate) queues: Queues,
}

pub(crate) type Queues = unsafe fn(*mut sys::ompi_communicator_t) -> [u32; 2];

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
    /// Whether a callback has changed listeners and the PML has not followed the change yet ([`follow`]).
    is_behind: bool,
}

static TABLES: Mutex<Tables> =
    Mutex::new(Tables { of: BTreeMap::new(), comms: BTreeSet::new(), everywhere: Vec::new(), is_behind: false });

/// Communicators whose listeners have changed. For one, [`follow`] does not visit the others, possibly 100,000.
#[derive(Clone, Copy)]
enum Changed {
    Nothing,
    One(usize),
    All,
}

fn tables() -> MutexGuard<'static, Tables> {
    TABLES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tables {
    /// # Safety
    /// N1. The communicator is live, and [`forget`] is called before it is freed.
    unsafe fn add(&mut self, comm: *mut sys::ompi_communicator_t, event: Event, listener: Listener) {
        let table = self.of.entry(comm.addr()).or_insert_with(|| {
            let table = NonNull::from(Box::leak(Box::new(Listeners::new())));
            // SAFETY: N1, and the caller says that the communicator is live.
            unsafe { (*comm).c_peruse_handles = table.as_ptr().cast() };
            Table(table)
        });
        table.listeners().add(event, listener);
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

struct Table(NonNull<Listeners>);

impl Table {
    fn listeners(&self) -> &Listeners {
        // SAFETY: N2: it is in `of`, so alive; N1.
        unsafe { self.0.as_ref() }
    }
}

// SAFETY: the pointer comes from a box, and N1 lets one thread at a time use the table.
unsafe impl Send for Table {}

#[derive(Clone, Copy)]
struct Called {
    function: Option<Function>,
    handle: i64,
    param: *mut c_void,
}

/// The table of a communicator. The holder of a reference keeps N1 while it uses the table ([`Listeners::of`]).
pub(crate) struct Listeners {
    called: [Cell<Called>; Event::ALL.len()],
    /// No reference to a list is held while a listener is called, because a callback may change the lists.
    of: [Cell<Vec<Listener>>; Event::ALL.len()],
}

/// Sets the PML that raises these events from now on; `None`: there is none.
pub(crate) fn raised_by(raiser: Option<Raiser>) {
    if let Some(raiser) = &raiser {
        QUEUES.get_or_init(|| raiser.queues);
    } else {
        // Open MPI does not announce the end of every communicator.
        tables().comms.clear();
    }
    without_a_face(|| *RAISER.lock().unwrap_or_else(PoisonError::into_inner) = raiser);
}

pub(crate) fn are_raised() -> bool {
    RAISER.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

pub(crate) fn is_anybody() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

/// Sets the functions of the tool interface. To be called before the first listener is added.
pub(crate) fn called_by(upcall: Upcall) {
    UPCALL.get_or_init(|| upcall);
}

pub(crate) fn set_locked(is_locked: bool) {
    IS_LOCKED.store(is_locked, Ordering::Relaxed);
}

/// Runs `body` under N1. Then the PML opens or closes the fast paths of the communicators that `body` returns. After a
/// change within a callback the PML does so at the next change from outside callbacks.
fn change(mut body: impl FnMut(bool) -> Changed) {
    let now = || *RAISER.lock().unwrap_or_else(PoisonError::into_inner);
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
            tables().is_behind |= !matches!(what, Changed::Nothing);
        } else {
            follow(raiser, what);
        }
    });
}

/// Runs `body` while no other thread is in here, and so no PML registers itself. A thread may call it recursively.
fn without_a_face(body: impl FnOnce()) {
    static ALONE: Mutex<()> = Mutex::new(());
    thread_local! {
        static IS_ALONE: Cell<bool> = const { Cell::new(false) };
    }
    if IS_ALONE.get() {
        return body();
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    IS_ALONE.set(true);
    // A panic ends the use of ibex in this process (`guard.rs`).
    body();
    IS_ALONE.set(false);
}

/// Lets the PML open or close the fast paths of the changed communicators. To be called in the entered PML.
fn follow(raiser: Raiser, what: Changed) {
    let is_new = (raiser.watch)(is_anybody());
    let mut tables = tables();
    let is_behind = std::mem::take(&mut tables.is_behind);
    // SAFETY: N1; the communicator is live: [`ends`] takes the lock of the tables before one of `comms` goes, and the
    // callers of `add`, `remove` and `forget` say so of theirs.
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
        unsafe { tables().add(comm, event, listener) };
        Changed::One(comm.expose_provenance())
    });
}

/// Adds a listener to all communicators of the PML, present and future ones ([`add`]).
pub(crate) fn add_everywhere(event: Event, listener: Listener, is_wanted: impl Fn() -> bool) {
    change(|_| {
        if !is_wanted() {
            return Changed::Nothing;
        }
        let mut tables = tables();
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
        let mut tables = tables();
        let before = tables.everywhere.len();
        tables.everywhere.retain(|(_, listener)| listener.handle != handle);
        COUNT.fetch_sub(before - tables.everywhere.len(), Ordering::Relaxed);
        for table in tables.of.values() {
            COUNT.fetch_sub(table.listeners().take(event, handle, is_within), Ordering::Relaxed);
        }
        Changed::All
    });
}

/// Adds a communicator of the PML, with the listeners to all communicators.
///
/// # Safety
/// The communicator is live and not in use yet. [`ends`] is called before it is freed.
pub(crate) unsafe fn begins(comm: *mut sys::ompi_communicator_t) {
    let mut tables = tables();
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
    tables().comms.remove(&comm.addr());
    // SAFETY: the caller says that it is live.
    unsafe { forget(comm) };
}

/// Calls the closure with a communicator if the PML has it; it stays live during the call. Any thread.
pub(crate) fn while_live<T>(
    comm: *mut sys::ompi_communicator_t,
    call: impl FnOnce(*mut sys::ompi_communicator_t) -> T,
) -> Option<T> {
    let tables = tables();
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
    QUEUES.get().map_or([0; 2], |queues| unsafe { queues(comm) })
}

/// Returns the PML's function that [`queues`] calls, for callers that call it often.
pub(crate) fn queues_function() -> Queues {
    QUEUES.get().copied().unwrap_or(queues)
}

pub(crate) fn set_alone(event: Event, handle: i64, alone: Function) {
    change(|_| {
        let mut tables = tables();
        for (_, listener) in tables.everywhere.iter_mut().filter(|(_, listener)| listener.handle == handle) {
            listener.alone = alone;
        }
        tables.of.values().for_each(|table| table.listeners().set_alone(event, handle, alone));
        Changed::Nothing
    });
}

/// Removes the listener with this handle, if it is there, from a communicator. Then no other thread is in its callback.
pub(crate) fn remove(comm: *mut sys::ompi_communicator_t, event: Event, handle: i64) {
    change(|is_within| {
        let tables = tables();
        let Some(table) = tables.of.get(&comm.addr()) else { return Changed::Nothing };
        COUNT.fetch_sub(table.listeners().take(event, handle, is_within), Ordering::Relaxed);
        Changed::One(comm.expose_provenance())
    });
}

/// # Safety
/// The communicator is live.
pub(crate) unsafe fn forget(comm: *mut sys::ompi_communicator_t) {
    change(|is_within| {
        let Some(table) = tables().of.remove(&comm.addr()) else { return Changed::Nothing };
        // SAFETY: the caller says that it is live; N1.
        unsafe { (*comm).c_peruse_handles = null_mut() };
        COUNT.fetch_sub(table.listeners().count(), Ordering::Relaxed);
        // Within a callback the table is leaked: its caller still uses it.
        if !is_within {
            // SAFETY: N2: `add` leaked it from a box, and no communicator refers to it any more.
            drop(unsafe { Box::from_raw(table.0.as_ptr()) });
        }
        Changed::One(comm.expose_provenance())
    });
}

impl Listeners {
    fn new() -> Self {
        const NOTHING: Called = Called { function: None, handle: 0, param: null_mut() };
        Listeners {
            called: [const { Cell::new(NOTHING) }; Event::ALL.len()],
            of: [const { Cell::new(Vec::new()) }; Event::ALL.len()],
        }
    }

    #[cfg(test)]
    pub(crate) fn of_test(all: impl Iterator<Item = (Event, Listener)>) -> std::rc::Rc<Self> {
        let table = std::rc::Rc::new(Listeners::new());
        for (event, listener) in all {
            table.add(event, listener);
        }
        table
    }

    /// # Safety
    /// The communicator is live, and N1 holds while the reference is used.
    #[inline(always)]
    pub(crate) unsafe fn of<'call>(comm: *mut sys::ompi_communicator_t) -> Option<&'call Listeners> {
        // SAFETY: the caller says that it is live, so by N2 this is null or a table; N1 keeps it until the caller
        // leaves the PML.
        unsafe { (*comm).c_peruse_handles.cast::<Listeners>().as_ref() }
    }

    fn add(&self, event: Event, listener: Listener) {
        self.change(event, |list| list.push(listener));
    }

    fn set_alone(&self, event: Event, handle: i64, alone: Function) {
        self.change(event, |list| {
            list.iter_mut().filter(|listener| listener.handle == handle).for_each(|listener| listener.alone = alone);
        });
    }

    /// Changes the list of an event, and with it what is called.
    fn change<T>(&self, event: Event, change: impl FnOnce(&mut Vec<Listener>) -> T) -> T {
        let place = &self.of[event as usize];
        let mut list = place.take();
        let result = change(&mut list);
        let (function, handle, param) = match list.as_slice() {
            [Listener { handle, alone, param, .. }] if *handle != TAKEN.handle => (Some(*alone), *handle, *param),
            all if all.iter().all(Listener::is_taken) => (None, 0, null_mut()),
            _ => (Some(call_each as Function), 0, std::ptr::from_ref(place).cast_mut().cast()),
        };
        place.set(list);
        self.called[event as usize].set(Called { function, handle, param });
        result
    }

    /// Removes the listener with this handle. Within a callback, which may be called from an iteration over the list,
    /// [`TAKEN`] takes its place. Returns the number of listeners removed.
    fn take(&self, event: Event, handle: i64, is_within: bool) -> usize {
        self.change(event, |list| {
            let mut taken = 0;
            for listener in list.iter_mut().filter(|listener| listener.handle == handle) {
                *listener = TAKEN;
                taken += 1;
            }
            if !is_within {
                list.retain(|listener| !listener.is_taken());
            }
            taken
        })
    }

    fn count(&self) -> usize {
        let of = |event| self.change(event, |list| list.iter().filter(|listener| !listener.is_taken()).count());
        Event::ALL.into_iter().map(of).sum()
    }

    #[inline(always)]
    pub(crate) fn wants(&self, event: Event) -> bool {
        self.called[event as usize].get().function.is_some()
    }

    #[inline(always)]
    pub(crate) fn tell(&self, event: Event, id: u64, spec: &mut Spec) {
        // SAFETY: N3: the specification is borrowed during the call.
        unsafe { self.tell_raw(event, id, spec) };
    }

    pub(crate) fn tell_protocol(&self, id: u64, spec: &mut ProtocolSpec) {
        // SAFETY: N3: the specification is the first field of `spec`, which is borrowed during the call.
        unsafe { self.tell_raw(Event::Protocol, id, std::ptr::from_mut(spec).cast()) };
    }

    /// # Safety
    /// N3.
    #[inline(always)]
    unsafe fn tell_raw(&self, event: Event, id: u64, spec: *mut Spec) {
        let Called { function, handle, param } = self.called[event as usize].get();
        if let Some(function) = function {
            // SAFETY: N3 by the caller; N4: the listener is in the table.
            unsafe { call(function, handle, param, id as isize, spec) };
        }
    }
}

/// # Safety
/// N3. `function` may be called with `param` (N4).
#[inline(always)]
unsafe fn call(function: Function, handle: i64, param: *mut c_void, id: isize, spec: *mut Spec) {
    if IS_LOCKED.load(Ordering::Relaxed) {
        // SAFETY: N3 and N4, which the caller ensures.
        return unsafe { call_beside_lock(handle, function, param, id, spec) };
    }
    // SAFETY: N4: the function with its argument, a tool's or [`call_each`]; N3: the specification outlives the call.
    let code = unsafe { function(handle, id, spec, param) };
    if code != 0 {
        // If the callback has released its own handle, the event's name can no longer be looked up.
        failed(handle, code);
    }
}

/// Calls each of several listeners. A callback may change the list, so each is copied before it is called.
unsafe extern "C" fn call_each(_: i64, id: isize, spec: *mut Spec, list: *mut c_void) -> c_int {
    // SAFETY: N4: the table's list for this event; N1: nobody else uses it.
    let list = unsafe { &*list.cast_const().cast::<Cell<Vec<Listener>>>() };
    // SAFETY: N3.
    unsafe { (*spec).stamp = 0 };
    let mut place = 0;
    // SAFETY: N1; the reference ends before a listener is called.
    let at = |place: usize| unsafe { &*list.as_ptr() }.get(place).copied();
    while let Some(Listener { handle, function, param, .. }) = at(place) {
        // SAFETY: N3, of this function's caller; N4: the listener is in the list.
        unsafe { call(function, handle, param, id, spec) };
        place += 1;
    }
    0
}

/// # Safety
/// N3. `function` may be called with `param` (N4).
#[cold]
#[inline(never)]
unsafe fn call_beside_lock(handle: i64, function: Function, param: *mut c_void, id: isize, spec: *mut Spec) {
    let listener = Listener { handle, function, alone: function, param };
    let upcall = UPCALL.get();
    // SAFETY: N3 and N4, which the caller ensures.
    let code = upcall.map_or(0, |upcall| unsafe { (upcall.beside_lock)(listener, id, spec) });
    if code != 0 {
        failed(handle, code);
    }
}

#[cold]
#[inline(never)]
fn failed(handle: i64, code: c_int) {
    if let Some(upcall) = UPCALL.get() {
        (upcall.failed)(handle, code);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Told = Vec<(i64, isize)>;

    unsafe extern "C" fn note(handle: i64, id: isize, spec: *mut Spec, param: *mut c_void) -> c_int {
        // SAFETY: `param` points to a vector that outlives the listener, and `buf` to the table, as the test sets them.
        let (told, listeners) = unsafe { (&mut *param.cast::<Told>(), &*(*spec).buf.cast::<Listeners>()) };
        told.push((handle, id));
        if handle == 2 {
            assert_eq!([2, 3].map(|handle| listeners.take(Event::Arrived, handle, true)), [1, 1]);
        }
        0
    }

    #[test]
    fn each_is_told_in_turn_until_it_is_taken_away_also_by_a_callback() {
        let (listeners, mut told) = (Listeners::new(), Told::new());
        let param = (&raw mut told).cast::<c_void>();
        for handle in 1..=4 {
            listeners.add(Event::Arrived, Listener { handle, function: note, alone: note, param });
        }
        let buf = std::ptr::from_ref(&listeners).cast_mut().cast();
        let (comm, datatype) = (null_mut(), null_mut());
        let mut spec = Spec { comm, buf, datatype, operation: 1, ..Spec::EMPTY };
        for id in 0..2 {
            listeners.tell(Event::Arrived, id, &mut spec);
            listeners.tell(Event::Notify, id, &mut spec);
        }
        assert_eq!(told, [(1, 0), (2, 0), (4, 0), (1, 1), (4, 1)]);
        let left = (listeners.count(), listeners.take(Event::Arrived, 1, false), listeners.count());
        assert_eq!(left, (2, 1, 1));
        assert!(listeners.wants(Event::Arrived) && !listeners.wants(Event::Notify));
    }

    unsafe extern "C" fn note_alone(handle: i64, id: isize, _: *mut Spec, param: *mut c_void) -> c_int {
        // SAFETY: `param` points to a vector that outlives the listener, as the test below sets it.
        unsafe { &mut *param.cast::<Told>() }.push((-handle, id));
        0
    }

    #[test]
    fn where_no_face_raises_one_thread_at_a_time_changes_what_listens_and_may_do_so_within_a_change() {
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

    #[test]
    fn one_that_is_alone_is_called_as_such_and_nothing_is_where_the_last_is_taken_within_a_callback() {
        let (listeners, mut told) = (Listeners::new(), Told::new());
        let param = (&raw mut told).cast::<c_void>();
        let buf = std::ptr::from_ref(&listeners).cast_mut().cast();
        let mut spec = Spec { buf, ..Spec::EMPTY };
        let of = |handle| Listener { handle, function: note, alone: note_alone, param };
        let mut tell = |id| listeners.tell(Event::Complete, id, &mut spec);
        listeners.add(Event::Complete, of(5));
        tell(0);
        listeners.add(Event::Complete, of(6));
        tell(1);
        assert_eq!(listeners.take(Event::Complete, 5, true), 1);
        tell(2);
        assert_eq!((listeners.take(Event::Complete, 6, true), listeners.wants(Event::Complete)), (1, false));
        tell(3);
        listeners.add(Event::Complete, of(7));
        tell(4);
        assert_eq!(told, [(-5, 0), (5, 1), (6, 1), (6, 2), (7, 4)]);
    }
}
