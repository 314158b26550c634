// SPDX-License-Identifier: MIT OR Apache-2.0
//! Communicators under watch: who is in them, what they are copies of, and whether they still are (`communicator.c`).
//!
//! A watched communicator has a number, as an attribute of ibex's; MPI says when one that has it is duplicated (the copy gets a
//! number of its own) or freed. Called by `peruse/`. Grade: setup, but for [`of_context`]. Threads: any; the lock of the table is not
//! held while MPI is called, as MPI calls back. Tests: `tests/tool/peruse.c`.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::host;

/// An `MPI_Comm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Comm(pub(crate) *mut c_void);

// SAFETY: a handle: never dereferenced here, and MPI's functions take it in any thread.
unsafe impl Send for Comm {}
// SAFETY: as above.
unsafe impl Sync for Comm {}

/// An `MPI_Datatype`, for a structure of C's.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Byte(#[allow(dead_code, reason = "C reads it")] *mut c_void);

unsafe extern "C" {
    fn ibex_tool_comm_is_valid(comm: Comm) -> c_int;
    fn ibex_tool_comm_number(comm: Comm) -> u64;
    fn ibex_tool_comm_set_number(
        comm: Comm,
        number: u64,
        on_duplicated: extern "C" fn(u64) -> u64,
        on_freed: extern "C" fn(u64),
    ) -> c_int;
    safe fn ibex_tool_comm_of_context(context: u64) -> Comm;
    fn ibex_tool_comm_ranks(comm: Comm, of_world: *mut c_int, count: c_int) -> c_int;
    safe fn ibex_tool_world_size() -> c_int;
    safe fn ibex_tool_byte() -> Byte;
    safe fn ibex_tool_abort(code: c_int);
}

/// A watched communicator.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) number: u64,
    /// The number of its messages; of a copy it is not known.
    pub(crate) context: Option<u64>,
    /// Per rank of the job its rank here, -1 for none; that of a copy is the original's.
    pub(crate) ranks: Arc<[i32]>,
    /// The numbers of what it is a copy of, the nearest first.
    ancestors: Vec<u64>,
}

impl Watched {
    /// Whether it is a copy, or a copy of a copy, of that one.
    pub(crate) fn descends_from(&self, number: u64) -> bool {
        self.ancestors.contains(&number)
    }
}

/// Held while a communicator gets its number, so that two threads do not give it two.
static WATCHING: Mutex<()> = Mutex::new(());

static WATCHED: Mutex<BTreeMap<u64, Arc<Watched>>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(1);

fn watched() -> MutexGuard<'static, BTreeMap<u64, Arc<Watched>>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether MPI would take it.
///
/// # Safety
/// `comm` is or was a communicator, or is null.
pub(crate) unsafe fn is_valid(comm: Comm) -> bool {
    // SAFETY: this function's rule.
    unsafe { ibex_tool_comm_is_valid(comm) != 0 }
}

/// Watches a communicator from now on; `None` where MPI does not let it.
///
/// # Safety
/// `comm` is a valid communicator, and MPI is initialised and not finalised.
pub(crate) unsafe fn watch(comm: Comm) -> Option<Arc<Watched>> {
    let _watching = WATCHING.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: this function's rule.
    let known = watched().get(&unsafe { ibex_tool_comm_number(comm) }).cloned();
    if let Some(known) = &known
        && known.context.is_some()
    {
        return Some(Arc::clone(known));
    }
    // SAFETY: as above; the pointer is to a local.
    let context = unsafe { host::context((&raw const comm).cast()) };
    if let Some(copy) = known {
        // A copy that now gets handles of its own.
        let full = Arc::new(Watched {
            number: copy.number,
            context,
            ranks: Arc::clone(&copy.ranks),
            ancestors: copy.ancestors.clone(),
        });
        watched().insert(full.number, Arc::clone(&full));
        return Some(full);
    }
    let size = ibex_tool_world_size().max(1);
    let mut ranks = vec![-1; size as usize];
    // SAFETY: as above; room for `size` ranks.
    if unsafe { ibex_tool_comm_ranks(comm, ranks.as_mut_ptr(), size) } == 0 {
        return None;
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let new = Arc::new(Watched { number, context, ranks: ranks.into(), ancestors: Vec::new() });
    watched().insert(number, Arc::clone(&new));
    // SAFETY: this function's rule.
    if unsafe { ibex_tool_comm_set_number(comm, number, duplicated, freed) } == 0 {
        watched().remove(&number);
        return None;
    }
    Some(new)
}

/// Whether it has not been freed.
pub(crate) fn is_alive(number: u64) -> bool {
    watched().contains_key(&number)
}

/// The communicator of this context number, and what is known of it. Hot where copies are followed: MPI is asked for an attribute.
pub(crate) fn of_context(context: u64) -> Option<(Comm, Arc<Watched>)> {
    let comm = ibex_tool_comm_of_context(context);
    if comm.0.is_null() {
        return None;
    }
    // SAFETY: MPI has just said that it has it.
    let number = unsafe { ibex_tool_comm_number(comm) };
    watched().get(&number).map(|found| (comm, Arc::clone(found)))
}

/// `MPI_BYTE`
pub(crate) fn byte() -> Byte {
    ibex_tool_byte()
}

/// Ends the job.
pub(crate) fn abort(code: c_int) {
    ibex_tool_abort(code);
}

/// MPI duplicates a watched communicator.
extern "C" fn duplicated(number: u64) -> u64 {
    crate::guard::fence("watching a communicator", 0, || {
        let mut watched = watched();
        let Some(original) = watched.get(&number) else { return 0 };
        let copy = NEXT.fetch_add(1, Ordering::Relaxed);
        let ancestors = std::iter::once(number).chain(original.ancestors.iter().copied()).collect();
        let new = Watched { number: copy, context: None, ranks: Arc::clone(&original.ranks), ancestors };
        watched.insert(copy, Arc::new(new));
        copy
    })
}

/// MPI frees a watched communicator.
extern "C" fn freed(number: u64) {
    crate::guard::fence("watching a communicator", (), || {
        drop(watched().remove(&number));
        super::peruse::communicator_freed(number);
    });
}
