// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens and closes the fast paths of short messages when tools start or stop listening.
//!
//! While a tool listens to any communicator, [`crate::pml::instance::unwatched`] returns `None`, which blocking
//! receives test, and waits are watched. On a communicator that a tool listens to, short sends find no route
//! (`RouteTable::short_cut`), and polls find no receive (`Queues::set_raises_events` of the engine).
//! Called by `component` ([`offer`]), and through the [`Raiser`] by `runtime/listeners`. Grade: setup. Threads: any;
//! each change enters the PML.
//!
//! **Callbacks that may do anything** run at the end of a call of the program ([`returns`], [`after`]), with
//! nothing entered; not at the end of libmpi's own calls, for collective operations and the like, where a callback that
//! communicates could do harm. The program's messages have a tag of at least 0, or `MPI_ANY_TAG`; those of libmpi have
//! other negative tags. Grade: pending. Tests: `hw-tests/tools/mpi_t_matching.c`.
//!
//! **The end of a wait.** A wait or test frees an ordinary request, which calls the PML (`module/persistent.rs`); a
//! persistent one only becomes inactive. So while a tool listens, Open MPI's table of wait and test functions holds
//! ours ([`watch_waits`]): they call the former function, then raise the event for such requests, and deliver due
//! events. Grade: setup; our functions: hot while a tool listens. Tests: below; `hw-tests/mpi/events.c`.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering, fence as fence_of_memory};

use engine::messenger::matching::ANY_TAG;
use engine::{events, messenger};
use ibex_ffi::openmpi::sys;

use crate::pml::communicator::{Comm, Communicator};
use crate::pml::instance::{Pml, pml, set_watched, unwatched};
use crate::pml::request::{Handle, RawRequests};
use crate::runtime::guard::fence;
use crate::runtime::listeners::{self, Event, Listeners, Queues, Raiser, Spec};
use crate::runtime::watch as serving;
use crate::tool;

/// Registers this PML as the component that raises the events, if it was selected (`is_chosen`), or withdraws it.
pub(crate) fn offer(is_chosen: bool) {
    let queues = Queues { lengths, keep_alone };
    listeners::raised_by(is_chosen.then_some(Raiser { change, watch, follow: follow_one, queues }));
    if !is_chosen {
        return watch_waits(false);
    }
    if pml().is_some_and(Pml::has_threads) {
        events::set_threads();
    }
    // A tool may have registered listeners before MPI was initialised: apply them now.
    listeners::exclusively(|| {});
}

/// # Safety
/// P3: the PML is entered, and nobody has a reference to the queues: a listener to this live communicator, which is the
/// PML's, is being called.
unsafe fn lengths(comm: *mut sys::ompi_communicator_t) -> [u32; 2] {
    // SAFETY: P3, as this function requires.
    let (queues, _) = unsafe { Comm::new(comm).part().queues() };
    [queues.posted(), queues.unexpected()]
}

unsafe extern "C" fn keep_alone(_: i64, id: isize, spec: *mut Spec, param: *mut c_void) -> c_int {
    // SAFETY: N1, N3 and N4 (`runtime/listeners`) by the caller; P3: the communicator of the event is the PML's.
    unsafe { tool::keep_alone(id, spec, param, lengths((*spec).comm)) }
}

fn change(body: &mut dyn FnMut(bool)) {
    let Some(pml) = pml() else { return body(false) };
    let state = pml.enter();
    // `enter` fails only inside a callback, within the PML.
    body(state.is_none());
}

fn watch(is_watched: bool) -> bool {
    let is_new = is_watched != unwatched().is_none();
    if let Some(pml) = pml()
        && is_new
    {
        set_watched(pml, is_watched);
        watch_waits(is_watched);
    }
    is_new
}

/// # Safety
/// P3: the PML is entered. A live communicator of MPI's.
unsafe fn follow_one(comm: *mut sys::ompi_communicator_t) {
    // SAFETY: `comm` lives, as this function requires; P3. `pml_add_comm` follows one that is not added yet.
    unsafe { Comm::new(comm).if_added().map_or((), |communicator| follow(communicator)) }
}

/// Closes the fast paths of a communicator while a tool listens to it, and opens them otherwise.
///
/// # Safety
/// P3: the PML is entered, and nobody has a reference to the queues.
pub(crate) unsafe fn follow(communicator: &Communicator) {
    // SAFETY: P3, as this function requires.
    let (listeners, (queues, lengths)) = unsafe { (Listeners::of(communicator.comm.raw()), communicator.queues()) };
    let is_listened_to = unwatched().is_none() && listeners.is_some();
    communicator.routes.open_short_cut(!is_listened_to);
    queues.set_raises_events(lengths, is_listened_to);
}

/// Delivers due events at the end of a blocking call with this tag.
#[inline(always)]
pub(crate) fn returns(tag: i32) {
    if serving::is_due() && is_programs(tag) {
        serving::serve();
    }
}

fn is_programs(tag: i32) -> bool {
    tag >= 0 || tag == ANY_TAG
}

/// Open MPI's `ompi_request_fns_t`, as an array of pointers: other threads may read an entry while it is replaced.
type Table = [AtomicPtr<c_void>; FUNCTIONS];

const FUNCTIONS: usize = size_of::<sys::ompi_request_fns_t>() / size_of::<*mut c_void>();

/// An entry of Open MPI's table.
struct Replaced {
    /// Function before ours; null if ours was never installed.
    former: AtomicPtr<c_void>,
    /// Whether ours is installed, directly or below a hook that another library installed later.
    is_in: AtomicBool,
}

impl Replaced {
    const fn never() -> Self {
        Replaced { former: AtomicPtr::new(null_mut()), is_in: AtomicBool::new(false) }
    }
}

static REPLACED: [Replaced; FUNCTIONS] = [const { Replaced::never() }; FUNCTIONS];

fn watch_waits(is_watched: bool) {
    // SAFETY: Open MPI's table lives as long as the process, and Open MPI only reads it once MPI is initialised; all
    // accesses of ours are atomic.
    let table = unsafe { &*(&raw const sys::ompi_request_functions).cast::<Table>() };
    // SAFETY: both types are `FUNCTIONS` function pointers.
    let ours = unsafe { std::mem::transmute::<sys::ompi_request_fns_t, [*mut c_void; FUNCTIONS]>(OURS) };
    exchange(table, &REPLACED, ours, is_watched);
}

/// Installs `ours` in the table (`is_watched`), or restores the former functions. If another library has hooked an
/// entry meanwhile, ours stays below its hook: installed above it, the two would call each other for ever.
fn exchange(table: &Table, replaced: &[Replaced; FUNCTIONS], ours: [*mut c_void; FUNCTIONS], is_watched: bool) {
    for ((place, replaced), ours) in table.iter().zip(replaced).zip(ours) {
        // One thread at a time is here. Release pairs with the fence in `former`, whose caller has found `ours`.
        let (now, is_in) = (place.load(Ordering::Relaxed), replaced.is_in.load(Ordering::Relaxed));
        if is_watched && !is_in {
            replaced.former.store(now, Ordering::Relaxed);
            replaced.is_in.store(true, Ordering::Relaxed);
            place.store(ours, Ordering::Release);
        } else if !is_watched && now == ours {
            place.store(replaced.former.load(Ordering::Relaxed), Ordering::Release);
            replaced.is_in.store(false, Ordering::Relaxed);
        }
    }
}

fn former() -> sys::ompi_request_fns_t {
    // Pairs with the Release store of `ours`, which this thread has called.
    fence_of_memory(Ordering::Acquire);
    let functions = REPLACED.each_ref().map(|replaced| replaced.former.load(Ordering::Relaxed));
    // SAFETY: each pointer came from the same entry of such a table, or is null, which is `None`.
    unsafe { std::mem::transmute::<[*mut c_void; FUNCTIONS], sys::ompi_request_fns_t>(functions) }
}

const OURS: sys::ompi_request_fns_t = sys::ompi_request_fns_t {
    req_test: Some(test),
    req_test_any: Some(test_any),
    req_test_all: Some(test_all),
    req_test_some: Some(test_some),
    req_wait: Some(wait),
    req_wait_any: Some(wait_any),
    req_wait_all: Some(wait_all),
    req_wait_some: Some(wait_some),
};

type Requests = *mut *mut sys::ompi_request_t;
type Status = *mut sys::ompi_status_public_t;

/// Calls the former function and then raises the events.
fn after(count: usize, requests: RawRequests, call: impl FnOnce(&sys::ompi_request_fns_t) -> Option<c_int>) -> c_int {
    // SAFETY: M4: MPI's array. Read before the call, which frees the ordinary requests that are complete, and again
    // after it, which has set those to `MPI_REQUEST_NULL`.
    let ours = || unsafe { requests.ours(count) };
    let is_programs = fence("a wait", false, || {
        let state = pml().and_then(Pml::enter);
        state.is_some_and(|mut state| ours().any(|request| is_programs(state.requests.core(request).tag)))
    });
    let code = call(&former()).unwrap_or(sys::OPAL_ERROR);
    fence("the end of a wait", (), || notify(ours()));
    if is_programs {
        fence("the end of a wait", (), serving::serve);
    }
    code
}

fn notify(requests: impl Iterator<Item = Handle>) {
    let Some(mut state) = pml().and_then(Pml::enter) else { return };
    for request in requests {
        let r = state.requests.get(request);
        if r.shell.is_to_notify && r.base().req_state == sys::OMPI_REQUEST_INACTIVE {
            r.shell.is_to_notify = false;
            messenger::events::raise(&mut *state, request, Event::Notify);
        }
    }
}

/// Defines our functions: each calls [`after`] with the former function and its array of requests.
macro_rules! ours {
    ($($name:ident is $former:ident of $count:expr, $requests:ident: ($($argument:ident: $type:ty),*);)*) => { $(
        unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            // SAFETY: M4: libmpi's arguments, among them an array of that many requests.
            unsafe { after($count, RawRequests::new($requests), |former| Some((former.$former?)($($argument),*))) }
        }
    )* };
}

ours! {
    test is req_test of 1, place: (place: Requests, completed: *mut c_int, status: Status);
    test_any is req_test_any of count, all: (count: usize, all: Requests, index: *mut c_int, completed: *mut c_int, status: Status);
    test_all is req_test_all of count, all: (count: usize, all: Requests, completed: *mut c_int, statuses: Status);
    test_some is req_test_some of count, all: (count: usize, all: Requests, ended: *mut c_int, indices: *mut c_int, statuses: Status);
    wait is req_wait of 1, place: (place: Requests, status: Status);
    wait_any is req_wait_any of count, all: (count: usize, all: Requests, index: *mut c_int, status: Status);
    wait_all is req_wait_all of count, all: (count: usize, all: Requests, statuses: Status);
    wait_some is req_wait_some of count, all: (count: usize, all: Requests, ended: *mut c_int, indices: *mut c_int, statuses: Status);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(from: usize) -> [*mut c_void; FUNCTIONS] {
        std::array::from_fn(|index| std::ptr::without_provenance_mut(from + index))
    }

    #[test]
    fn exchange_keeps_the_hook_of_another_library_and_installs_nothing_above_it() {
        let [first, ours, hooked] = [100, 200, 300].map(table);
        let (places, replaced) = (first.map(AtomicPtr::new), [const { Replaced::never() }; FUNCTIONS]);
        let now = || places.each_ref().map(|place| place.load(Ordering::Relaxed));
        exchange(&places, &replaced, ours, false);
        assert_eq!(now(), first);
        for _ in 0..2 {
            exchange(&places, &replaced, ours, true);
            assert_eq!(now(), ours);
        }
        exchange(&places, &replaced, ours, false);
        assert_eq!(now(), first);
        exchange(&places, &replaced, ours, true);
        places[0].store(hooked[0], Ordering::Relaxed);
        for is_watched in [false, true, false] {
            exchange(&places, &replaced, ours, is_watched);
            assert_eq!(now()[0], hooked[0]);
        }
        assert_eq!(now()[1..], first[1..]);
    }

    #[test]
    fn our_function_calls_a_hook_that_another_library_installed_while_nobody_watched() {
        let [first, ours, hooked] = [100, 200, 300].map(table);
        let (places, replaced) = (first.map(AtomicPtr::new), [const { Replaced::never() }; FUNCTIONS]);
        exchange(&places, &replaced, ours, true);
        exchange(&places, &replaced, ours, false);
        places[0].store(hooked[0], Ordering::Relaxed);
        exchange(&places, &replaced, ours, true);
        assert_eq!(replaced[0].former.load(Ordering::Relaxed), hooked[0]);
        exchange(&places, &replaced, ours, false);
        assert_eq!(places[0].load(Ordering::Relaxed), hooked[0]);
    }
}
