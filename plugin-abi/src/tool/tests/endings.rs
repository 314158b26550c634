// SPDX-License-Identifier: MIT OR Apache-2.0
//! An instance ends with its callback; a registration and the interface end, too.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::mpi_t::MPI_T_event_handle_set_info;
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

extern "C" fn shares_it(
    instance: InstancePointer,
    _: RegistrationHandle,
    _: c_int,
    kept: &Mutex<Option<InstancePointer>>,
) {
    assert_eq!(code_of_reading(instance), 0);
    let code = std::thread::scope(|scope| scope.spawn(|| code_of_reading(instance)).join().expect("no panic"));
    assert_eq!(code, Code::InvalidHandle.number(), "it is invalid in another thread");
    *kept.lock().expect("no panic") = Some(instance);
}

#[test]
fn an_instance_is_valid_only_in_its_callback_and_thread() {
    let _alone = alone();
    let kept = Mutex::new(None);
    let registration = registered(c"ibex_port_async", 3, &kept, shares_it);
    events::raise(Safety::MpiRestricted, PortAsync::default);
    free(registration);
    let kept = kept.into_inner().expect("no panic").expect("it was called");
    assert_eq!(code_of_reading(kept), Code::InvalidHandle.number());
}

/// Lets a callback wait until another thread has freed its registration.
struct Meeting {
    inside: Barrier,
    freed: Barrier,
    returned: AtomicBool,
    has_ended: AtomicBool,
}

extern "C" fn meets(_: InstancePointer, own: RegistrationHandle, _: c_int, meeting: &Meeting) {
    meeting.inside.wait();
    meeting.freed.wait();
    let code = Code::InvalidHandle.number();
    // SAFETY: the call detects that the registration has been freed.
    assert_eq!(unsafe { MPI_T_event_handle_set_info(own, Info::null()) }, code);
    assert_eq!(free_with(own, &(), None), code);
    meeting.returned.store(true, Ordering::SeqCst);
}

extern "C" fn after_meeting(_: RegistrationHandle, _: c_int, meeting: &Meeting) {
    assert!(meeting.returned.load(Ordering::SeqCst), "not while a callback runs");
    assert!(!meeting.has_ended.swap(true, Ordering::SeqCst), "once");
}

#[test]
fn a_registration_freed_during_its_callback_is_invalid_at_once_and_ends_after_it() {
    let _alone = alone();
    let (inside, freed) = (Barrier::new(2), Barrier::new(2));
    let meeting = Meeting { inside, freed, returned: AtomicBool::new(false), has_ended: AtomicBool::new(false) };
    let registration = registered(c"ibex_port_async", 3, &meeting, meets);
    std::thread::scope(|scope| {
        let raising = scope.spawn(|| events::raise(Safety::MpiRestricted, PortAsync::default));
        meeting.inside.wait();
        assert_eq!(free_with(registration, &meeting, Some(after_meeting)), 0);
        meeting.freed.wait();
        raising.join().expect("no panic");
    });
    events::deliver(usize::MAX, Safety::MpiRestricted);
    assert!(meeting.has_ended.load(Ordering::SeqCst));
}

#[test]
fn ibex_calls_no_callback_while_the_interface_is_not_initialised() {
    let _alone = alone();
    let seen = Mutex::new(Seen::default());
    let registration = registered(c"ibex_xfer_end", 3, &seen, on_xfer_end);
    events::raise(Safety::MpiRestricted, XferEnd::default);
    // SAFETY: the interface is initialised.
    assert_eq!(unsafe { PMPI_T_finalize() }, 0);
    events::raise(Safety::MpiRestricted, XferEnd::default);
    let (mut count, code) = (-7, Code::NotInitialized.number());
    assert_eq!(number_of_types(Out::to(&mut count)), code);
    assert_eq!(free_with(registration, &seen, Some(on_free)), code);
    assert_eq!((seen.lock().expect("no panic").events.len(), count), (1, -7));
    initialise();
    events::raise(Safety::MpiRestricted, XferEnd::default);
    free_noted(registration, &seen);
    let seen = seen.into_inner().expect("no panic");
    assert_eq!((seen.events.len(), seen.freed), (2, 1));
}
