// SPDX-License-Identifier: MIT OR Apache-2.0
//! C functions of a tool, with events that the tests raise.

mod communicators;
mod copies;
mod dropped;
mod endings;
#[path = "../../../../src/events/tests/held_up.rs"]
pub(super) mod held_up;
mod require_none;

use std::ffi::{CStr, c_int};
use std::ptr::{null, null_mut};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use engine::events::{self, PortAsync, Safety, XferEnd};

use super::arguments::{Out, Text};
use super::host::{Code, Info};
use super::mpi_t::registration::{DroppedFunction, FreeFunction, InstancePointer, RegistrationHandle};
use super::mpi_t::require_none::ibex_events_flush;
use super::mpi_t::{
    MPI_T_event_copy, MPI_T_event_get_index, MPI_T_event_get_num, MPI_T_event_get_source, MPI_T_event_get_timestamp,
    MPI_T_event_handle_alloc, MPI_T_event_handle_free, MPI_T_event_read, MPI_T_event_register_callback,
    MPI_T_event_set_dropped_handler, PMPI_T_event_read,
};
use crate::runtime::entry::{Opaque, entry3, entry4, entry5};

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
        initialise();
    }
    guard
}

fn initialise() {
    let mut provided = 0;
    // SAFETY: the MPI's function with room for its answer; 0 is MPI_THREAD_SINGLE.
    assert_eq!(unsafe { PMPI_T_init_thread(0, &raw mut provided) }, 0);
}

#[derive(Debug, Default)]
struct Seen {
    events: Vec<(i32, u64, Vec<u8>, c_int)>,
    dropped: Vec<(i64, c_int)>,
    freed: usize,
}

extern "C" fn on_xfer_end(instance: InstancePointer, _: RegistrationHandle, level: c_int, seen: &Mutex<Seen>) {
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
    seen.lock().expect("no panic").events.push((tag, bytes, whole, level));
}

extern "C" fn on_dropped(count: i64, _: RegistrationHandle, source: c_int, level: c_int, seen: &Mutex<Seen>) {
    assert!(source >= 0);
    seen.lock().expect("no panic").dropped.push((count, level));
}

extern "C" fn on_free(_: RegistrationHandle, _: c_int, seen: &Mutex<Seen>) {
    seen.lock().expect("no panic").freed += 1;
}

extern "C" fn frees_itself(_: InstancePointer, own: RegistrationHandle, _: c_int, seen: &Mutex<Seen>) {
    free_noted(own, seen);
    let mut seen = seen.lock().expect("no panic");
    assert_eq!(seen.freed, 0, "not while its callback runs");
    seen.events.push((0, 0, Vec::new(), 0));
}

/// Returns the result of a call that looks for the index of a type.
fn index_of(name: Text<'_>) -> (c_int, c_int) {
    let mut index = -1;
    // SAFETY: there is room for the result.
    (unsafe { MPI_T_event_get_index(name, Out::to(&mut index)) }, index)
}

/// Calls the function that returns the number of types, and delivers events.
fn number_of_types(number: Out<'_, c_int>) -> c_int {
    // SAFETY: null, or there is room for the result.
    unsafe { MPI_T_event_get_num(number) }
}

fn alloc(name: &CStr) -> RegistrationHandle {
    let ((code, index), mut registration) = (index_of(Text::of(name)), RegistrationHandle(0));
    // SAFETY: there is room for the result.
    let made = unsafe { MPI_T_event_handle_alloc(index, null(), Info::null(), Out::to(&mut registration)) };
    assert_eq!((code, made), (0, 0));
    registration
}

fn opaque<T>(user: &T) -> Opaque {
    Opaque(std::ptr::from_ref(user).cast_mut().cast())
}

type OnEvent<T> = extern "C" fn(InstancePointer, RegistrationHandle, c_int, &T);

/// Sets the callback of a registration for a level. `user` outlives the registration.
fn set_callback<T>(registration: RegistrationHandle, level: c_int, user: &T, function: OnEvent<T>) {
    let function = Some(entry4::<(), _, _, _, _, _, _, _, _>(function));
    // SAFETY: the function with its argument.
    let code = unsafe { MPI_T_event_register_callback(registration, level, Info::null(), opaque(user), function) };
    assert_eq!(code, 0);
}

/// Makes a registration with a callback of this level. `user` outlives it.
fn registered<T>(name: &CStr, level: c_int, user: &T, function: OnEvent<T>) -> RegistrationHandle {
    let registration = alloc(name);
    set_callback(registration, level, user, function);
    registration
}

/// Sets or removes the handler of a registration whose callbacks have a [`Seen`].
fn count_dropped(registration: RegistrationHandle, is_counted: bool) {
    let function = is_counted.then_some(entry5(on_dropped) as DroppedFunction);
    // SAFETY: the function with the argument of a callback.
    assert_eq!(unsafe { MPI_T_event_set_dropped_handler(registration, function) }, 0);
}

type OnFree<T> = extern "C" fn(RegistrationHandle, c_int, &T);

/// Frees a registration, and returns the code. `user` exists until `function` has been called.
fn free_with<T>(registration: RegistrationHandle, user: &T, function: Option<OnFree<T>>) -> c_int {
    let function = function.map(|function| entry3::<(), _, _, _, _, _, _>(function) as FreeFunction);
    // SAFETY: the function with its argument.
    unsafe { MPI_T_event_handle_free(registration, opaque(user), function) }
}

fn free_noted(registration: RegistrationHandle, seen: &Mutex<Seen>) {
    assert_eq!(free_with(registration, seen, Some(on_free)), 0);
}

/// Frees a registration that has had all its events. Another test may have initialised MPI in another thread; then only
/// a flush calls a callback that may do anything.
fn free(registration: RegistrationHandle) {
    assert_eq!(free_with(registration, &(), None), 0);
    assert_eq!(ibex_events_flush(), 0);
}

fn raise(events: usize) {
    for _ in 0..events {
        events::raise(Safety::MpiRestricted, XferEnd::default);
    }
}

#[test]
fn a_callback_reads_the_raised_values_and_gets_the_safety_level_of_its_place() {
    let _alone = alone();
    let seen = Mutex::new(Seen::default());
    let registration = registered(c"ibex_xfer_end", 3, &seen, on_xfer_end);
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
    registered(c"ibex_port_async", 2, &seen, frees_itself);
    events::raise(Safety::MpiRestricted, PortAsync::default);
    events::raise(Safety::MpiRestricted, PortAsync::default);
    let seen = seen.into_inner().expect("no panic");
    assert_eq!((seen.events.len(), seen.freed), (1, 1));
}

#[test]
fn a_name_that_is_not_text_is_unknown() {
    let _alone = alone();
    assert_eq!(index_of(Text::of(c"btl_ibex_\xff")).0, Code::InvalidName.number());
    assert_eq!(index_of(Text::NULL).0, Code::Invalid.number());
}
