// SPDX-License-Identifier: MIT OR Apache-2.0
//! An instance ends with its callback; a registration and the interface end, too.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::mpi_t::{MPI_T_event_get_num, MPI_T_event_handle_set_info};
use super::*;

unsafe extern "C" {
    fn PMPI_T_finalize() -> c_int;
}

fn code_of_reading(instance: InstancePointer) -> c_int {
    let mut time = -7;
    // SAFETY: the call detects that the pointer is no valid instance; there is room for the result.
    let code = unsafe { MPI_T_event_get_timestamp(instance, Out::to(&mut time)) };
    assert_eq!(time == -7, code != 0, "the time is written if and only if the instance is valid");
    code
}

struct Elsewhere(InstancePointer);
// SAFETY: the other thread passes it to a call that refuses it, and does not dereference it.
unsafe impl Send for Elsewhere {}

unsafe extern "C" fn shares_it(instance: InstancePointer, _: RegistrationHandle, _: c_int, user: *mut c_void) {
    assert_eq!(code_of_reading(instance), 0);
    let elsewhere = Elsewhere(instance);
    let code =
        std::thread::scope(|scope| scope.spawn(move || code_of_reading({ elsewhere }.0)).join().expect("no panic"));
    assert_eq!(code, Code::InvalidHandle.number(), "it is invalid in another thread");
    // SAFETY: the test passes a pointer to its own variable.
    unsafe { *user.cast::<Option<InstancePointer>>() = Some(instance) };
}

#[test]
fn an_instance_is_valid_only_in_its_callback_and_thread() {
    let _alone = alone();
    let mut kept: Option<InstancePointer> = None;
    let registration = registered(c"ibex_port_async", 3, (&raw mut kept).cast(), shares_it);
    events::raise(Safety::MpiRestricted, PortAsync::default);
    free(registration);
    assert_eq!(code_of_reading(kept.expect("it was called")), Code::InvalidHandle.number());
}

/// Lets a callback wait until another thread has freed its registration.
struct Meeting {
    inside: Barrier,
    freed: Barrier,
    returned: AtomicBool,
    told: AtomicBool,
}

unsafe extern "C" fn meets(_: InstancePointer, own: RegistrationHandle, _: c_int, user: *mut c_void) {
    // SAFETY: a variable of the test, which outlives the registration.
    let meeting = unsafe { &*user.cast::<Meeting>() };
    meeting.inside.wait();
    meeting.freed.wait();
    // SAFETY: a handle of a registration that has been freed.
    unsafe {
        let code = Code::InvalidHandle.number();
        assert_eq!(MPI_T_event_handle_set_info(own, Info::null()), code);
        assert_eq!(MPI_T_event_handle_free(own, null_mut(), None), code);
    }
    meeting.returned.store(true, Ordering::SeqCst);
}

unsafe extern "C" fn after_meeting(_: RegistrationHandle, _: c_int, user: *mut c_void) {
    // SAFETY: a variable of the test, which outlives the registration.
    let meeting = unsafe { &*user.cast::<Meeting>() };
    assert!(meeting.returned.load(Ordering::SeqCst), "not while a callback runs");
    assert!(!meeting.told.swap(true, Ordering::SeqCst), "once");
}

#[test]
fn a_registration_freed_during_its_callback_is_invalid_at_once_and_ends_after_it() {
    let _alone = alone();
    let (inside, freed) = (Barrier::new(2), Barrier::new(2));
    let meeting = Meeting { inside, freed, returned: AtomicBool::new(false), told: AtomicBool::new(false) };
    let user = std::ptr::from_ref(&meeting).cast_mut().cast();
    let registration = registered(c"ibex_port_async", 3, user, meets);
    std::thread::scope(|scope| {
        let raising = scope.spawn(|| events::raise(Safety::MpiRestricted, PortAsync::default));
        meeting.inside.wait();
        // SAFETY: the registration is valid; the meeting outlives it.
        unsafe { assert_eq!(MPI_T_event_handle_free(registration, user, Some(after_meeting)), 0) };
        meeting.freed.wait();
        raising.join().expect("no panic");
    });
    events::deliver(usize::MAX, Safety::MpiRestricted);
    assert!(meeting.told.load(Ordering::SeqCst));
}

#[test]
fn ibex_calls_no_callback_while_the_interface_is_not_initialised() {
    let _alone = alone();
    let seen = Mutex::new(Seen::default());
    let registration = registered(c"ibex_xfer_end", 3, user(&seen), on_xfer_end);
    // SAFETY: the registration is valid; `seen` outlives it. Pointers to locals.
    unsafe {
        events::raise(Safety::MpiRestricted, XferEnd::default);
        assert_eq!(PMPI_T_finalize(), 0);
        events::raise(Safety::MpiRestricted, XferEnd::default);
        let (mut provided, mut count) = (0, -7);
        let code = Code::NotInitialized.number();
        assert_eq!(MPI_T_event_get_num(Out::to(&mut count)), code);
        assert_eq!(MPI_T_event_handle_free(registration, user(&seen), Some(on_free)), code);
        assert_eq!((seen.lock().expect("no panic").events.len(), count), (1, -7));
        assert_eq!(PMPI_T_init_thread(0, &raw mut provided), 0);
        events::raise(Safety::MpiRestricted, XferEnd::default);
        assert_eq!(MPI_T_event_handle_free(registration, user(&seen), Some(on_free)), 0);
    }
    let seen = seen.into_inner().expect("no panic");
    assert_eq!((seen.events.len(), seen.freed), (2, 1));
}
