// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tracked communicators: their ranks, their originals, and whether they have been freed (`communicator.c`). Each has a
//! number, an attribute of ibex. MPI calls back when it duplicates such a communicator, whose copy gets its own number,
//! or frees it; this module then notifies `peruse/`. Called by `peruse/`. Grade: setup. Threads: any; the lock of the
//! table is not held during calls of MPI, which calls back. Tests: `tests/tool/peruse.c`,
//! `hw-tests/tools/peruse_communicators.c`.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ibex_ffi::openmpi::sys;
use parking_lot::Mutex;

use super::{host, peruse};
use crate::runtime::entry::Opaque;
use crate::runtime::listeners;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Comm(pub(crate) Opaque);

impl Comm {
    pub(crate) fn as_ptr(self) -> *mut sys::ompi_communicator_t {
        self.0.0.cast()
    }
}

#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Byte(pub(crate) *mut c_void);

unsafe extern "C" {
    #[link_name = "ibex_tool_comm_world"]
    pub(super) safe fn world() -> Comm;
    /// Returns whether MPI has this communicator. The caller knows that MPI is initialised and not finalised.
    #[link_name = "ibex_tool_comm_is_valid"]
    pub(super) safe fn is_valid(comm: Comm) -> bool;
    fn ibex_tool_comm_number(comm: Comm) -> u64;
    fn ibex_tool_comm_set_number(
        comm: Comm,
        number: u64,
        on_duplicated: extern "C" fn(u64, Comm) -> u64,
        on_freed: extern "C" fn(u64),
    ) -> c_int;
    fn ibex_tool_comm_ranks(comm: Comm, of_job: *mut c_int, count: u32) -> u32;
    #[link_name = "ibex_tool_byte"]
    pub(super) safe fn byte() -> Byte;
    #[link_name = "ibex_tool_abort"]
    pub(super) safe fn abort(code: c_int);
}

#[derive(Debug)]
pub(crate) struct TrackedComm {
    pub(crate) number: u64,
    pub(crate) comm: Comm,
    /// Its rank for each rank of the job, -1 for none; a copy shares them with its original.
    pub(crate) ranks: Arc<[i32]>,
    /// Handles that follow it, because they followed its original.
    pub(crate) followers: Arc<[i64]>,
    is_freed: AtomicBool,
}

impl TrackedComm {
    fn new(number: u64, comm: Comm, ranks: Arc<[i32]>, followers: Arc<[i64]>) -> Arc<TrackedComm> {
        Arc::new(TrackedComm { number, comm, ranks, followers, is_freed: AtomicBool::new(false) })
    }

    /// Returns whether MPI has begun to free it. If not, it stays live during [`listeners::exclusively`], because MPI
    /// frees it after `freed` has removed its listeners.
    pub(crate) fn is_freed(&self) -> bool {
        self.is_freed.load(Ordering::SeqCst)
    }
}

/// Held while a communicator gets its number, so that two threads do not give it two numbers.
static NUMBERING: Mutex<()> = Mutex::new(());

static TRACKED: Mutex<BTreeMap<u64, Arc<TrackedComm>>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Tracks a communicator from now on. Returns `None` if it is not valid now, or MPI refuses the attribute.
pub(crate) fn track(comm: Comm) -> Option<Arc<TrackedComm>> {
    let _numbering = NUMBERING.lock();
    if !host::mpi_is_usable() || !is_valid(comm) {
        return None;
    }
    // SAFETY: it is valid, and MPI is initialised and not finalised.
    let number = unsafe { ibex_tool_comm_number(comm) };
    let known = TRACKED.lock().get(&number).cloned();
    if known.is_some() {
        return known;
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // SAFETY: it is valid; with a count of 0 nothing is written.
    let mut ranks = vec![-1; unsafe { ibex_tool_comm_ranks(comm, null_mut(), 0) } as usize];
    // SAFETY: it is valid, and there is room for as many ranks.
    unsafe { ibex_tool_comm_ranks(comm, ranks.as_mut_ptr(), ranks.len() as u32) };
    let new = TrackedComm::new(number, comm, ranks.into(), Arc::default());
    TRACKED.lock().insert(number, Arc::clone(&new));
    // SAFETY: it is valid, and MPI is initialised and not finalised.
    if unsafe { ibex_tool_comm_set_number(comm, number, duplicated, freed) } == 0 {
        TRACKED.lock().remove(&number);
        return None;
    }
    Some(new)
}

pub(crate) fn followed_by_handle(handle: i64) -> Vec<Arc<TrackedComm>> {
    TRACKED.lock().values().filter(|copy| copy.followers.contains(&handle)).cloned().collect()
}

/// MPI calls this when it duplicates a tracked communicator. The handles that are to be propagated follow the copy.
extern "C" fn duplicated(number: u64, comm: Comm) -> u64 {
    crate::runtime::guard::fence("tracking a communicator", 0, || {
        let Some(original) = TRACKED.lock().get(&number).cloned() else { return 0 };
        let followers = peruse::propagated(&original).into();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let copy = TrackedComm::new(number, comm, Arc::clone(&original.ranks), followers);
        TRACKED.lock().insert(number, Arc::clone(&copy));
        peruse::copied(&copy);
        number
    })
}

/// MPI calls this when it frees a tracked communicator. `MPI_COMM_WORLD` is freed at the end, with all others.
extern "C" fn freed(number: u64) {
    crate::runtime::guard::fence("tracking a communicator", (), || {
        let gone = TRACKED.lock().get(&number).cloned();
        let all = gone.as_ref().is_some_and(|gone| gone.comm == world());
        for gone in TRACKED.lock().values().filter(|known| all || known.number == number) {
            gone.is_freed.store(true, Ordering::SeqCst);
        }
        peruse::communicator_freed((!all).then_some(number));
        if let Some(gone) = gone {
            // SAFETY: MPI is deleting its attributes, and frees it afterwards.
            unsafe { listeners::forget(gone.comm.as_ptr()) };
        }
        TRACKED.lock().remove(&number);
    });
}
