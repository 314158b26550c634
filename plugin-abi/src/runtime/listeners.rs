// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who listens to what becomes of requests and messages: a table at each communicator, read where such an event
//! happens.
//!
//! A face that does the matching raises these events and says so ([`raised_by`]); tools add and take away listeners
//! (`tool/peruse`, `tool/matching.rs`), of one communicator or of all. The table hangs at Open MPI's communicator, in
//! the field that is PERUSE's there and that a stock Open MPI leaves null; so who raises finds it by one load, and what
//! another communicator's listener wants is never looked at. A listener is called where the event happens, with the
//! specification that the raiser has on its stack: no clock is read and nothing is allocated. Mostly an event has one
//! listener; its function and what that is called with are in the table itself, so that raising is two looks and a
//! call. Where there are several, a function of ours is in its place that goes through the list.
//!
//! Tables are read by who has entered the raising face, and changed inside it as well ([`Raiser::change`]). So nobody
//! is in a listener's callback when it has been taken away, and no lock is taken where an event happens. A callback may
//! itself take listeners away: their places stay until the next change from outside. Grade: setup; [`Listeners::tell`]
//! is on the way of a message that is listened to. Threads: who has entered the raising face. Tests: below, and
//! `hw-tests/tools/peruse_requests.c`.

use std::cell::{Cell, UnsafeCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use engine::events::SourceId;
use ibex_ffi::openmpi::sys;

/// Declares the events, and all of them in the order of their numbers.
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
    /// What happens to a request or a message. The numbers are PERUSE's (`include/peruse.h`), less 1.
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
        /// PERUSE has no such event; [`Listeners::tell_protocol`] tells it.
        Protocol,
        /// One of those before that are of a transfer, or an arrival, with what the engine's events tell of it; PERUSE has
        /// no such event. [`Listeners::tell_transfer`] tells it.
        Transfer,
    }
}

/// `peruse_comm_spec_t`, as a callback gets it; and behind it what callbacks of PERUSE know nothing of.
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
    /// The communicator's context number. From here on what C has no name for: this fills its structure up.
    pub(crate) context: u32,
    /// The bytes that it is of.
    pub(crate) bytes: u64,
    /// When the event happened that is told now, if a listener has asked; 0: none of several has been told yet. What it
    /// was before means nothing to a listener that is alone.
    pub(crate) stamp: u64,
}

impl Spec {
    /// Of nothing.
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

/// How the bytes of a message go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Protocol {
    /// Inside the work request.
    Inline,
    /// Copied into a buffer, sent, and copied out.
    Copied,
    /// Announced, and read by the receiver.
    Read,
    /// Announced, and sent in copied pieces.
    Pieces,
    /// By the memory that the processes of a host share.
    SharedMemory,
    /// Copied within this process.
    Oneself,
}

/// Why they go so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Reason {
    /// For their length.
    Size,
    /// The sender is to hear that its message is matched.
    Synchronous,
    /// A datatype has gaps, here or there.
    Gaps,
    /// Memory could not be registered.
    NotRegistered,
    /// The receiver holds its senders back.
    HeldBack,
    /// The adapter cannot do what would be better, or not now: there is no connection yet, or no room.
    Adapter,
    /// They stay in this process.
    Oneself,
    /// The other process is on this host.
    SameHost,
}

/// How the bytes of a message go, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passage {
    pub(crate) protocol: Protocol,
    pub(crate) reason: Reason,
    /// The port's place among the process's; [`Passage::NO_PORT`]: none.
    pub(crate) port: u32,
    /// This side's queue pair; 0: none.
    pub(crate) queue_pair: u32,
    /// By how many ports they go.
    pub(crate) rails: u32,
}

impl Passage {
    /// See [`Passage::port`].
    pub(crate) const NO_PORT: u32 = u32::MAX;
}

/// What [`Event::Protocol`] is told with, in place of a [`Spec`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProtocolSpec {
    /// The request's, but that `bytes` are the message's.
    pub(crate) spec: Spec,
    /// Of a receive: the number of its message.
    pub(crate) message: u64,
    pub(crate) passage: Passage,
}

/// What has happened to a message's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Arrived,
    Begins,
    Continues,
    Ends,
}

/// A completion of the adapter's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completed {
    /// Which of the process' ports reported it.
    pub(crate) port: u8,
    /// The port's source and the adapter's raw timestamp; `None` where the adapter stamps no completions.
    pub(crate) stamp: Option<(SourceId, u64)>,
}

/// What [`Event::Transfer`] is told with, in place of a [`Spec`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransferSpec {
    /// First, as a listener gets its address; of an arrival the message's, else the request's.
    pub(crate) spec: Spec,
    pub(crate) step: Step,
    /// What tools know the message by; of a send, which has none, the request.
    pub(crate) message: u64,
    /// The bytes that this is of: their offset in the message, and how many.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// The bytes of the whole message, as sent.
    pub(crate) total: u64,
    /// The sender's rank in the communicator, and the message's tag.
    pub(crate) source: i32,
    pub(crate) tag: i32,
    /// The rank of the other process in its job.
    pub(crate) process: u32,
    /// The completion that reported the step; `None` of a post, and of what the processor copies.
    pub(crate) completed: Option<Completed>,
}

/// `peruse_comm_callback_f`
pub(crate) type Function = unsafe extern "C" fn(i64, isize, *mut Spec, *mut c_void) -> c_int;

/// A tool's callback, with what it is called with.
#[derive(Clone, Copy)]
pub(crate) struct Listener {
    /// Not 0.
    pub(crate) handle: i64,
    pub(crate) function: Function,
    /// What is called in its place while no other listens to the same event of the same communicator.
    pub(crate) alone: Function,
    pub(crate) param: *mut c_void,
}

/// At the place of one that a callback has taken away.
const TAKEN: Listener = Listener { handle: 0, function: ignore, alone: ignore, param: null_mut() };

impl Listener {
    fn is_taken(&self) -> bool {
        self.handle == TAKEN.handle
    }
}

unsafe extern "C" fn ignore(_: i64, _: isize, _: *mut Spec, _: *mut c_void) -> c_int {
    0
}

// SAFETY: never dereferenced here; PERUSE lets callbacks be invoked in any thread (5.1.2).
unsafe impl Send for Listener {}

/// What the tool interface does where a callback is not simply called, or fails.
pub(crate) struct Upcall {
    /// Calls it while some thread has the tool's lock.
    pub(crate) beside_lock: unsafe fn(Listener, isize, *mut Spec) -> c_int,
    /// It returned other than success.
    pub(crate) failed: fn(handle: i64, code: c_int),
}

/// What a face does that raises these events.
#[derive(Clone, Copy)]
pub(crate) struct Raiser {
    /// Runs this inside the face: no other thread raises meanwhile. True is passed within a callback of this thread.
    pub(crate) change: fn(&mut dyn FnMut(bool)),
    /// Notes, inside the face, whether anybody listens to any communicator. Returns whether that is new.
    pub(crate) watch: fn(bool) -> bool,
    /// Looks, inside the face, whether anybody listens to this live communicator.
    pub(crate) follow: unsafe fn(*mut sys::ompi_communicator_t),
    /// How many receives wait, and how many messages are unexpected, on a live communicator; by who is inside.
    pub(crate) queues: Queues,
}

pub(crate) type Queues = unsafe fn(*mut sys::ompi_communicator_t) -> [u32; 2];

static RAISER: Mutex<Option<Raiser>> = Mutex::new(None);
static QUEUES: OnceLock<Queues> = OnceLock::new();
static UPCALL: OnceLock<Upcall> = OnceLock::new();
static COUNT: AtomicUsize = AtomicUsize::new(0);
static IS_LOCKED: AtomicBool = AtomicBool::new(false);

/// What is known of all communicators.
struct Tables {
    /// By the address of their communicator.
    of: BTreeMap<usize, Table>,
    /// The communicators of the raising face, whether anybody listens to them or not.
    comms: BTreeSet<usize>,
    /// Who listens to all of them.
    everywhere: Vec<(Event, Listener)>,
    /// A callback has changed something that the raising face has not looked at.
    is_behind: bool,
}

static TABLES: Mutex<Tables> =
    Mutex::new(Tables { of: BTreeMap::new(), comms: BTreeSet::new(), everywhere: Vec::new(), is_behind: false });

/// Of which communicators the listeners have changed: where it is one, the others are not looked at, of which there may
/// be 100,000.
#[derive(Clone, Copy)]
enum Changed {
    Nothing,
    /// A live one, by its address.
    One(usize),
    All,
}

fn tables() -> MutexGuard<'static, Tables> {
    TABLES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tables {
    /// Adds a listener to a communicator.
    ///
    /// # Safety
    /// A live communicator of MPI's, for which [`forget`] is called before it goes; inside the raising face, or nobody
    /// uses the communicator yet.
    unsafe fn add(&mut self, comm: *mut sys::ompi_communicator_t, event: Event, listener: Listener) {
        let table = self.of.entry(comm.addr()).or_insert_with(|| {
            let table = NonNull::from(Box::leak(Box::new(Listeners::new())));
            // SAFETY: the caller says that it lives; no other thread raises an event on it, or nobody uses it yet.
            unsafe { (*comm).c_peruse_handles = table.as_ptr().cast() };
            Table(table)
        });
        // SAFETY: of the table, so alive; inside the raising face.
        unsafe { table.0.as_ref().add(event, listener) };
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

struct Table(NonNull<Listeners>);

// SAFETY: made from a box, and used as `Listeners` says.
unsafe impl Send for Table {}

/// What is called where an event happens.
#[derive(Clone, Copy)]
struct Called {
    /// `None`: nobody listens.
    function: Option<Function>,
    handle: i64,
    param: *mut c_void,
}

/// The listeners of a communicator.
pub(crate) struct Listeners {
    called: [Cell<Called>; Event::ALL.len()],
    of: [UnsafeCell<Vec<Listener>>; Event::ALL.len()],
}

/// A face raises these events from now on; `None`: none does.
pub(crate) fn raised_by(raiser: Option<Raiser>) {
    if let Some(raiser) = &raiser {
        QUEUES.get_or_init(|| raiser.queues);
    } else {
        // Open MPI does not say of each that it goes.
        tables().comms.clear();
    }
    without_a_face(|| *RAISER.lock().unwrap_or_else(PoisonError::into_inner) = raiser);
}

/// Whether a face of this process raises these events.
pub(crate) fn are_raised() -> bool {
    RAISER.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// Whether anybody listens, on any communicator.
pub(crate) fn is_anybody() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

/// Says what the tool interface does, before the first listener is added.
pub(crate) fn called_by(upcall: Upcall) {
    UPCALL.get_or_init(|| upcall);
}

/// Whether any thread has the tool's lock.
pub(crate) fn set_locked(is_locked: bool) {
    IS_LOCKED.store(is_locked, Ordering::Relaxed);
}

/// Runs this where no other thread raises an event. Then the raising face looks who listens where it says that this has
/// changed; after a change within a callback, at the next one from outside.
fn change(mut body: impl FnMut(bool) -> Changed) {
    let now = || *RAISER.lock().unwrap_or_else(PoisonError::into_inner);
    let mut raiser = now();
    if raiser.is_none() {
        without_a_face(|| {
            // One may be there by now.
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

/// Runs this while no other thread does so, and none says that a face raises. It may come back here.
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

/// Inside the raising face: it looks who listens.
fn follow(raiser: Raiser, what: Changed) {
    let is_new = (raiser.watch)(is_anybody());
    let mut tables = tables();
    let is_behind = std::mem::take(&mut tables.is_behind);
    // SAFETY: live: the face has it, and `ends` takes the lock of the tables first; or the caller of what has changed
    // says so.
    let look = |comm: usize| unsafe { (raiser.follow)(std::ptr::with_exposed_provenance_mut(comm)) };
    if let Changed::One(comm) = what {
        look(comm);
    }
    if is_new || is_behind || matches!(what, Changed::All) {
        // To one without a table nobody listens, nor did before.
        tables.of.keys().filter(|comm| tables.comms.contains(comm)).copied().for_each(look);
    }
}

/// Adds a listener to a communicator, if `is_wanted` says so where nothing else changes: another thread may have freed
/// the communicator by then, or have taken the listener away.
///
/// # Safety
/// A communicator of MPI's that is live if `is_wanted` says so; [`forget`] is called before it goes, when `is_wanted` says
/// so no more.
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
        // SAFETY: inside the raising face, which `forget` takes as well; so the caller says that it lives until the end
        // of this change.
        unsafe { tables().add(comm, event, listener) };
        Changed::One(comm.expose_provenance())
    });
}

/// [`add`] to all communicators of the raising face, those that are yet to be made among them.
pub(crate) fn add_everywhere(event: Event, listener: Listener, is_wanted: impl Fn() -> bool) {
    change(|_| {
        if !is_wanted() {
            return Changed::Nothing;
        }
        let mut tables = tables();
        tables.everywhere.push((event, listener));
        COUNT.fetch_add(1, Ordering::Relaxed);
        for comm in tables.comms.clone() {
            // SAFETY: it is live, and `ends` is called before it goes; inside the raising face.
            unsafe { tables.add(std::ptr::with_exposed_provenance_mut(comm), event, listener) };
        }
        Changed::All
    });
}

/// Takes the listener of a handle away from all communicators. As [`remove`].
pub(crate) fn remove_everywhere(event: Event, handle: i64) {
    change(|is_within| {
        let mut tables = tables();
        let before = tables.everywhere.len();
        tables.everywhere.retain(|(_, listener)| listener.handle != handle);
        COUNT.fetch_sub(before - tables.everywhere.len(), Ordering::Relaxed);
        for table in tables.of.values() {
            // SAFETY: of the table, so alive; inside the raising face.
            COUNT.fetch_sub(unsafe { table.0.as_ref().take(event, handle, is_within) }, Ordering::Relaxed);
        }
        Changed::All
    });
}

/// The raising face has this communicator from now on.
///
/// # Safety
/// A live communicator that nobody uses yet; [`ends`] is called before it goes.
pub(crate) unsafe fn begins(comm: *mut sys::ompi_communicator_t) {
    let mut tables = tables();
    tables.comms.insert(comm.expose_provenance());
    for (event, listener) in tables.everywhere.clone() {
        // SAFETY: the caller says that it lives, that nobody uses it yet, and that `ends` is called before it goes.
        unsafe { tables.add(comm, event, listener) };
    }
}

/// It has it no more. Not from within the face, but for a callback.
///
/// # Safety
/// It is live.
pub(crate) unsafe fn ends(comm: *mut sys::ompi_communicator_t) {
    tables().comms.remove(&comm.addr());
    // SAFETY: the caller says that it is live.
    unsafe { forget(comm) };
}

/// Calls this with a communicator, if the raising face has it; it does not go meanwhile. Any thread.
pub(crate) fn while_live<T>(
    comm: *mut sys::ompi_communicator_t,
    call: impl FnOnce(*mut sys::ompi_communicator_t) -> T,
) -> Option<T> {
    let tables = tables();
    tables.comms.contains(&comm.addr()).then(|| call(comm))
}

/// Runs this where no listener is called, but by this thread, if that is within one.
pub(crate) fn exclusively(mut body: impl FnMut()) {
    change(|_| {
        body();
        Changed::Nothing
    });
}

/// How many receives wait, and how many messages are unexpected, on a communicator.
///
/// # Safety
/// A live communicator, of which a listener is told by this thread now.
pub(crate) unsafe fn queues(comm: *mut sys::ompi_communicator_t) -> [u32; 2] {
    // SAFETY: the caller says that it lives, and that this thread tells a listener of it: inside the raising face.
    QUEUES.get().map_or([0; 2], |queues| unsafe { queues(comm) })
}

/// What tells that, for who asks often.
pub(crate) fn queues_function() -> Queues {
    QUEUES.get().copied().unwrap_or(queues)
}

/// From now on this is called for the listener of a handle where it is alone ([`Listener::alone`]).
pub(crate) fn set_alone(event: Event, handle: i64, alone: Function) {
    change(|_| {
        let mut tables = tables();
        for (_, listener) in tables.everywhere.iter_mut().filter(|(_, listener)| listener.handle == handle) {
            listener.alone = alone;
        }
        for table in tables.of.values() {
            // SAFETY: of the table, so alive; inside the raising face.
            unsafe { table.0.as_ref().set_alone(event, handle, alone) };
        }
        Changed::Nothing
    });
}

/// Takes the listener of a handle away from a communicator, if it is there. No thread is in its callback then but this
/// one.
pub(crate) fn remove(comm: *mut sys::ompi_communicator_t, event: Event, handle: i64) {
    change(|is_within| {
        let tables = tables();
        let Some(table) = tables.of.get(&comm.addr()) else { return Changed::Nothing };
        // SAFETY: of the table, so alive; inside the raising face.
        COUNT.fetch_sub(unsafe { table.0.as_ref().take(event, handle, is_within) }, Ordering::Relaxed);
        Changed::One(comm.expose_provenance())
    });
}

/// A communicator goes: nobody listens to it.
///
/// # Safety
/// It is live.
pub(crate) unsafe fn forget(comm: *mut sys::ompi_communicator_t) {
    change(|is_within| {
        let Some(table) = tables().of.remove(&comm.addr()) else { return Changed::Nothing };
        // SAFETY: the caller says that it is live; no other thread raises an event meanwhile (`change`).
        unsafe { (*comm).c_peruse_handles = null_mut() };
        // SAFETY: of the table until now; inside the raising face.
        COUNT.fetch_sub(unsafe { table.0.as_ref().count() }, Ordering::Relaxed);
        // From within a callback of it the table is left: whoever calls is not through with it.
        if !is_within {
            // SAFETY: leaked by `add`, and nobody finds it any more.
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
            of: [const { UnsafeCell::new(Vec::new()) }; Event::ALL.len()],
        }
    }

    /// Those of a communicator.
    ///
    /// # Safety
    /// A live communicator; the caller has entered the raising face.
    #[inline(always)]
    pub(crate) unsafe fn of<'call>(comm: *mut sys::ompi_communicator_t) -> Option<&'call Listeners> {
        // SAFETY: the caller says that it lives: null, or a table of `add`, which goes only inside the raising face.
        unsafe { (*comm).c_peruse_handles.cast::<Listeners>().as_ref() }
    }

    /// # Safety
    /// Inside the raising face, with no other reference to it.
    #[allow(clippy::mut_from_ref, reason = "what permits it is that the face is entered once at a time")]
    unsafe fn list(&self, event: Event) -> &mut Vec<Listener> {
        // SAFETY: the caller is inside the raising face, alone, and has no other reference to the list.
        unsafe { &mut *self.of[event as usize].get() }
    }

    /// # Safety
    /// Inside the raising face, with no reference to the event's list.
    unsafe fn add(&self, event: Event, listener: Listener) {
        // SAFETY: the caller is inside the raising face; each reference to the list ends before the next is made.
        unsafe {
            self.list(event).push(listener);
            self.follow(event);
        }
    }

    /// # Safety
    /// Inside the raising face, with no reference to the event's list.
    unsafe fn set_alone(&self, event: Event, handle: i64, alone: Function) {
        // SAFETY: the caller is inside the raising face; each reference to the list ends before the next is made.
        unsafe {
            for listener in self.list(event).iter_mut().filter(|listener| listener.handle == handle) {
                listener.alone = alone;
            }
            self.follow(event);
        }
    }

    /// Works out what is called for an event, after its list has changed.
    ///
    /// # Safety
    /// Inside the raising face, with no reference to the event's list.
    unsafe fn follow(&self, event: Event) {
        // SAFETY: the caller is inside the raising face, with no reference to the list.
        let list = unsafe { self.list(event) };
        let called = match list.as_slice() {
            [Listener { handle, alone, param, .. }] if *handle != TAKEN.handle => (Some(*alone), *handle, *param),
            all if all.iter().all(Listener::is_taken) => (None, 0, null_mut()),
            _ => (Some(call_each as Function), 0, self.of[event as usize].get().cast()),
        };
        let (function, handle, param) = called;
        self.called[event as usize].set(Called { function, handle, param });
    }

    /// Takes the listener of a handle out, or empties its place where a callback may be going through the list. Returns
    /// how many there were.
    ///
    /// # Safety
    /// Inside the raising face, with no reference to the event's list.
    unsafe fn take(&self, event: Event, handle: i64, is_within: bool) -> usize {
        // SAFETY: the caller is inside the raising face, with no reference to the list.
        let list = unsafe { self.list(event) };
        let mut taken = 0;
        for listener in list.iter_mut().filter(|listener| listener.handle == handle) {
            *listener = TAKEN;
            taken += 1;
        }
        if !is_within {
            list.retain(|listener| !listener.is_taken());
        }
        // SAFETY: inside the raising face; the reference above is used no more.
        unsafe { self.follow(event) };
        taken
    }

    /// # Safety
    /// Inside the raising face, with no reference to the lists.
    unsafe fn count(&self) -> usize {
        // SAFETY: the caller is inside the raising face, with no reference to the lists.
        self.of.iter().map(|list| unsafe { &*list.get() }.iter().filter(|listener| !listener.is_taken()).count()).sum()
    }

    /// Whether anybody listens to it.
    ///
    /// # Safety
    /// Inside the raising face.
    #[inline(always)]
    pub(crate) unsafe fn wants(&self, event: Event) -> bool {
        self.called[event as usize].get().function.is_some()
    }

    /// Tells all who listen to it.
    ///
    /// # Safety
    /// Inside the raising face.
    #[inline(always)]
    pub(crate) unsafe fn tell(&self, event: Event, id: u64, spec: &mut Spec) {
        // SAFETY: inside the raising face; the specification outlives the call.
        unsafe { self.tell_raw(event, id, spec) };
    }

    /// Tells all who listen to it by which protocol the bytes of a request's message go.
    ///
    /// # Safety
    /// Inside the raising face.
    pub(crate) unsafe fn tell_protocol(&self, id: u64, spec: &mut ProtocolSpec) {
        // SAFETY: inside the raising face; who listens to this event knows what stands behind the specification.
        unsafe { self.tell_raw(Event::Protocol, id, std::ptr::from_mut(spec).cast()) };
    }

    /// Tells all who listen to it what has happened to the bytes of a request's message, or that a message has arrived.
    ///
    /// # Safety
    /// As for [`Self::tell`].
    pub(crate) unsafe fn tell_transfer(&self, id: u64, spec: &mut TransferSpec) {
        // SAFETY: inside the raising face; who listens to this event knows what stands behind the specification.
        unsafe { self.tell_raw(Event::Transfer, id, std::ptr::from_mut(spec).cast()) };
    }

    /// # Safety
    /// Inside the raising face; a specification that outlives the call.
    #[inline(always)]
    unsafe fn tell_raw(&self, event: Event, id: u64, spec: *mut Spec) {
        let Called { function, handle, param } = self.called[event as usize].get();
        if let Some(function) = function {
            // SAFETY: the caller says that the specification outlives the call.
            unsafe { call(function, handle, param, id as isize, spec) };
        }
    }
}

/// # Safety
/// A specification that outlives the call.
#[inline(always)]
unsafe fn call(function: Function, handle: i64, param: *mut c_void, id: isize, spec: *mut Spec) {
    if IS_LOCKED.load(Ordering::Relaxed) {
        // SAFETY: the caller says that the specification outlives the call.
        return unsafe { call_beside_lock(handle, function, param, id, spec) };
    }
    // SAFETY: the tool's function with what the tool gave for it, or [`call_each`] with its list; `spec` outlives it.
    let code = unsafe { function(handle, id, spec, param) };
    if code != 0 {
        // Of one whose own callback has released it the name is not known any more.
        failed(handle, code);
    }
}

/// Calls each of several. The list is what it is called with; a callback may change that, so that no reference to it is
/// kept over a call.
unsafe extern "C" fn call_each(_: i64, id: isize, spec: *mut Spec, list: *mut c_void) -> c_int {
    let list = list.cast_const().cast::<Vec<Listener>>();
    // SAFETY: the raiser's, for the call.
    unsafe { (*spec).stamp = 0 };
    let mut place = 0;
    // SAFETY: of the table whose event is told, which is inside the raising face.
    while let Some(Listener { handle, function, param, .. }) = unsafe { &*list }.get(place).copied() {
        // SAFETY: the raiser's specification, which outlives the call.
        unsafe { call(function, handle, param, id, spec) };
        place += 1;
    }
    0
}

/// # Safety
/// A specification that outlives the call.
#[cold]
#[inline(never)]
unsafe fn call_beside_lock(handle: i64, function: Function, param: *mut c_void, id: isize, spec: *mut Spec) {
    let listener = Listener { handle, function, alone: function, param };
    let upcall = UPCALL.get();
    // SAFETY: the function with what goes with it; the caller says that the specification outlives the call.
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
        // SAFETY: the test gives a pointer to what outlives the listener, and a table as a buffer; valid within the
        // callback.
        let (told, listeners) = unsafe { (&mut *param.cast::<Told>(), &*(*spec).buf.cast::<Listeners>()) };
        told.push((handle, id));
        // One that takes itself away, and another that would have been next.
        if handle == 2 {
            // SAFETY: nobody else uses it.
            assert_eq!([2, 3].map(|handle| unsafe { listeners.take(Event::Arrived, handle, true) }), [1, 1]);
        }
        0
    }

    #[test]
    fn each_is_told_in_turn_until_it_is_taken_away_also_by_a_callback() {
        let (listeners, mut told) = (Listeners::new(), Told::new());
        let param = (&raw mut told).cast::<c_void>();
        for handle in 1..=4 {
            // SAFETY: nobody else uses it.
            unsafe { listeners.add(Event::Arrived, Listener { handle, function: note, alone: note, param }) };
        }
        let buf = std::ptr::from_ref(&listeners).cast_mut().cast();
        let (comm, datatype) = (null_mut(), null_mut());
        let mut spec = Spec { comm, buf, datatype, operation: 1, ..Spec::EMPTY };
        for id in 0..2 {
            // SAFETY: nobody else uses it.
            unsafe { listeners.tell(Event::Arrived, id, &mut spec) };
            // SAFETY: nobody else uses it.
            unsafe { listeners.tell(Event::Notify, id, &mut spec) };
        }
        assert_eq!(told, [(1, 0), (2, 0), (4, 0), (1, 1), (4, 1)]);
        // SAFETY: nobody else uses it.
        let left = unsafe { (listeners.count(), listeners.take(Event::Arrived, 1, false), listeners.count()) };
        assert_eq!(left, (2, 1, 1));
        // SAFETY: nobody else uses it.
        assert!(unsafe { listeners.wants(Event::Arrived) && !listeners.wants(Event::Notify) });
    }

    unsafe extern "C" fn note_alone(handle: i64, id: isize, _: *mut Spec, param: *mut c_void) -> c_int {
        // SAFETY: the test gives a pointer to what outlives the listener.
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
        // SAFETY: nobody else uses it.
        let mut tell = |id| unsafe { listeners.tell(Event::Complete, id, &mut spec) };
        // SAFETY: nobody else uses it.
        unsafe { listeners.add(Event::Complete, of(5)) };
        tell(0);
        // SAFETY: nobody else uses it.
        unsafe { listeners.add(Event::Complete, of(6)) };
        tell(1);
        // SAFETY: nobody else uses it.
        assert_eq!(unsafe { listeners.take(Event::Complete, 5, true) }, 1);
        tell(2);
        // SAFETY: nobody else uses it.
        assert_eq!(unsafe { (listeners.take(Event::Complete, 6, true), listeners.wants(Event::Complete)) }, (1, false));
        tell(3);
        // SAFETY: nobody else uses it.
        unsafe { listeners.add(Event::Complete, of(7)) };
        tell(4);
        assert_eq!(told, [(-5, 0), (5, 1), (6, 1), (6, 2), (7, 4)]);
    }
}
