// SPDX-License-Identifier: MIT OR Apache-2.0
//! C functions of a tool, with events that the tests raise.

mod communicators;
mod copies;
mod dropped;
mod endings;
#[path = "../../../src/events/tests/held_up.rs"]
pub(super) mod held_up;
mod require_none;

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use engine::events::{self, PortAsync, Safety, XferEnd};

use super::arguments::Out;
use super::host::{Code, Info};
use super::mpi_t::{
    MPI_T_event_copy, MPI_T_event_get_index, MPI_T_event_get_source, MPI_T_event_get_timestamp,
    MPI_T_event_handle_alloc, MPI_T_event_handle_free, MPI_T_event_read, MPI_T_event_register_callback,
    MPI_T_event_set_dropped_handler, PMPI_T_event_read,
};
use super::registration::{DroppedFunction, EventFunction, InstancePointer, RegistrationHandle};
use super::require_none::ibex_events_flush;

unsafe extern "C" {
    fn PMPI_T_init_thread(required: c_int, provided: *mut c_int) -> c_int;
}

static ALONE: RwLock<()> = RwLock::new(());

/// Locks out other tests with registrations, and those that call [`beside`].
pub(crate) fn lock() -> RwLockWriteGuard<'static, ()> {
    ALONE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Locks out tests with registrations: they count events, and would get those that the caller raises.
pub(crate) fn beside() -> RwLockReadGuard<'static, ()> {
    ALONE.read().unwrap_or_else(PoisonError::into_inner)
}

/// [`lock`], and initialises the interface.
pub(super) fn alone() -> RwLockWriteGuard<'static, ()> {
    let guard = lock();
    if !super::host::is_initialized() {
        let mut provided = 0;
        // SAFETY: the MPI's function with room for its answer; 0 is MPI_THREAD_SINGLE.
        assert_eq!(unsafe { PMPI_T_init_thread(0, &raw mut provided) }, 0);
    }
    guard
}

#[derive(Debug, Default)]
struct Seen {
    events: Vec<(i32, u64, Vec<u8>, c_int)>,
    dropped: Vec<(i64, c_int)>,
    freed: usize,
}

fn seen<'a>(user: *mut c_void) -> &'a Mutex<Seen> {
    // SAFETY: the tests register a pointer to one that outlives the registration.
    unsafe { &*user.cast::<Mutex<Seen>>() }
}

unsafe extern "C" fn on_xfer_end(instance: InstancePointer, _: RegistrationHandle, level: c_int, user: *mut c_void) {
    let (mut tag, mut bytes, mut whole, mut time, mut source) = (0_i32, 0_u64, vec![0xee_u8; 72], 0_i64, -1);
    let row = engine::events::type_named("xfer_end").expect("it exists").row();
    let place = |name| row.elements.iter().position(|element| element.name == name).expect("an element") as c_int;
    // SAFETY: the instance belongs to this callback, and each buffer has room.
    unsafe {
        assert_eq!(MPI_T_event_read(instance, place("tag"), (&raw mut tag).cast()), 0);
        assert_eq!(PMPI_T_event_read(instance, place("bytes"), (&raw mut bytes).cast()), 0);
        assert_eq!(MPI_T_event_copy(instance, whole.as_mut_ptr().cast()), 0);
        assert_eq!(MPI_T_event_get_timestamp(instance, Out::to(&mut time)), 0);
        assert_eq!(MPI_T_event_get_source(instance, Out::to(&mut source)), 0);
        let index = Code::InvalidIndex.number();
        assert_eq!(MPI_T_event_read(instance, -1, (&raw mut bytes).cast()), index);
        assert_eq!(MPI_T_event_read(instance, 12, (&raw mut bytes).cast()), index);
        let invalid = Code::Invalid.number();
        assert_eq!(MPI_T_event_read(instance, 0, null_mut()), invalid);
        assert_eq!(MPI_T_event_copy(instance, null_mut()), invalid);
        assert_eq!(MPI_T_event_get_timestamp(instance, Out::NULL), invalid);
        assert_eq!(MPI_T_event_get_source(instance, Out::NULL), invalid);
    }
    assert!(time > 0 && source >= 0);
    assert_eq!(whole[row.extent..], [0xee; 4], "nothing beyond the extent");
    seen(user).lock().expect("no panic").events.push((tag, bytes, whole, level));
}

unsafe extern "C" fn on_dropped(count: i64, _: RegistrationHandle, source: c_int, level: c_int, user: *mut c_void) {
    assert!(source >= 0);
    seen(user).lock().expect("no panic").dropped.push((count, level));
}

unsafe extern "C" fn on_free(_: RegistrationHandle, _: c_int, user: *mut c_void) {
    seen(user).lock().expect("no panic").freed += 1;
}

unsafe extern "C" fn frees_itself(_: InstancePointer, own: RegistrationHandle, _: c_int, user: *mut c_void) {
    // SAFETY: a valid registration.
    assert_eq!(unsafe { MPI_T_event_handle_free(own, user, Some(on_free)) }, 0);
    assert_eq!(seen(user).lock().expect("no panic").freed, 0, "not while its callback runs");
    seen(user).lock().expect("no panic").events.push((0, 0, Vec::new(), 0));
}

fn alloc(name: &CStr) -> RegistrationHandle {
    let (mut index, mut registration) = (-1, RegistrationHandle(0));
    // SAFETY: there is room for the results.
    unsafe {
        assert_eq!(MPI_T_event_get_index(name.as_ptr(), Out::to(&mut index)), 0);
        assert_eq!(MPI_T_event_handle_alloc(index, null_mut(), Info::null(), Out::to(&mut registration)), 0);
    }
    registration
}

/// Sets the callback of a registration for a level. `user` points to a value that outlives the registration.
fn set_callback(registration: RegistrationHandle, level: c_int, user: *mut c_void, function: EventFunction) {
    // SAFETY: a valid registration.
    let code = unsafe { MPI_T_event_register_callback(registration, level, Info::null(), user, Some(function)) };
    assert_eq!(code, 0);
}

/// Makes a registration with a callback of this level. `user` points to a value that outlives it.
fn registered(name: &CStr, level: c_int, user: *mut c_void, function: EventFunction) -> RegistrationHandle {
    let registration = alloc(name);
    set_callback(registration, level, user, function);
    registration
}

fn set_dropped(registration: RegistrationHandle, function: Option<DroppedFunction>) {
    // SAFETY: a valid registration.
    assert_eq!(unsafe { MPI_T_event_set_dropped_handler(registration, function) }, 0);
}

fn free_noted(registration: RegistrationHandle, seen: &Mutex<Seen>) {
    // SAFETY: a valid registration, which `seen` outlives.
    assert_eq!(unsafe { MPI_T_event_handle_free(registration, user(seen), Some(on_free)) }, 0);
}

/// Frees a registration that has had all its events. Another test may have initialised MPI in another thread; then only
/// a flush calls a callback that may do anything.
fn free(registration: RegistrationHandle) {
    // SAFETY: a valid registration.
    assert_eq!(unsafe { MPI_T_event_handle_free(registration, null_mut(), None) }, 0);
    assert_eq!(ibex_events_flush(), 0);
}

fn raise(events: usize) {
    for _ in 0..events {
        events::raise(Safety::MpiRestricted, XferEnd::default);
    }
}

fn user(seen: &Mutex<Seen>) -> *mut c_void {
    std::ptr::from_ref(seen).cast_mut().cast()
}

#[test]
fn a_callback_reads_the_raised_values_and_gets_the_safety_level_of_its_place() {
    let _alone = alone();
    let seen = Mutex::new(Seen::default());
    let registration = registered(c"ibex_xfer_end", 3, user(&seen), on_xfer_end);
    events::raise(Safety::MpiRestricted, || XferEnd { tag: -5, bytes: 1 << 40, request: 7, ..XferEnd::default() });
    free_noted(registration, &seen);
    events::raise(Safety::MpiRestricted, XferEnd::default);
    let seen = seen.into_inner().expect("no panic");
    let [(tag, bytes, whole, level)] = &seen.events[..] else { panic!("{seen:?}") };
    // Once a second thread has raised an event, the callback must be thread-safe.
    assert!([1, 2].contains(level), "{level}");
    assert_eq!((*tag, *bytes, seen.freed), (-5, 1 << 40, 1));
    assert_eq!(whole[..8], 7_u64.to_ne_bytes());
}

#[test]
fn a_callback_may_free_its_own_registration() {
    let _alone = alone();
    let seen = Mutex::new(Seen::default());
    registered(c"ibex_port_async", 2, user(&seen), frees_itself);
    events::raise(Safety::MpiRestricted, PortAsync::default);
    events::raise(Safety::MpiRestricted, PortAsync::default);
    let seen = seen.into_inner().expect("no panic");
    assert_eq!((seen.events.len(), seen.freed), (1, 1));
}

#[test]
fn a_name_that_is_not_text_is_unknown() {
    let _alone = alone();
    let mut index = 0;
    // SAFETY: a string that ends in 0, and null.
    unsafe {
        let name = c"btl_ibex_\xff";
        assert_eq!(MPI_T_event_get_index(name.as_ptr(), Out::to(&mut index)), Code::InvalidName.number());
        assert_eq!(MPI_T_event_get_index(null(), Out::to(&mut index)), Code::Invalid.number());
    }
}
