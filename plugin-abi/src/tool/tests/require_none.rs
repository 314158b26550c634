// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool's own calls, except for some, run callbacks that may do anything.

use super::*;
use crate::tool::mpi_t::{MPI_T_event_handle_get_info, MPI_T_source_get_timestamp};

const MANY: usize = 1000;

/// Makes a registration whose callback may do anything, and records its events.
fn anywhere(seen: &Mutex<Seen>) -> RegistrationHandle {
    let registration = registered(c"ibex_xfer_end", 0, seen, on_xfer_end);
    count_dropped(registration, true);
    registration
}

fn count(seen: &Mutex<Seen>) -> (usize, usize) {
    let seen = seen.lock().expect("no panic");
    (seen.events.len(), seen.dropped.len())
}

#[test]
fn a_callback_that_may_call_mpi_gets_all_waiting_events_at_the_end_of_a_call_of_the_tool() {
    let _alone = alone();
    let seen = Mutex::new(Seen::default());
    let registration = anywhere(&seen);
    raise(MANY);
    // MPI's progress does this.
    events::deliver(usize::MAX, Safety::MpiRestricted);
    let mut number = 0_i64;
    // SAFETY: there is room for the result.
    assert_eq!(unsafe { MPI_T_source_get_timestamp(0, Out::to(&mut number)) }, 0);
    assert_eq!(count(&seen), (0, 0), "neither within MPI nor where the clock is read");
    let mut types = 0;
    assert_eq!(number_of_types(Out::to(&mut types)), 0);
    // Another test may have initialised MPI in another thread; then a flush delivers to the callback, a call does not.
    let served = if crate::tool::host::may_call_mpi() { MANY } else { 0 };
    assert_eq!(count(&seen), (served, 0));
    raise(MANY);
    assert_eq!(ibex_events_flush(), 0);
    assert_eq!(count(&seen), (2 * MANY, 0));
    assert!(seen.lock().expect("no panic").events.iter().all(|(.., level)| [0, 2].contains(level)));
    raise(MANY);
    free(registration);
    assert_eq!(count(&seen), (3 * MANY, 0));
}

/// Runs `body` in a thread that has not initialised MPI, and does not reuse the number of an ended thread that has.
fn in_a_thread_that_may_not_call_mpi(body: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let within = || {
            if !crate::tool::host::may_call_mpi() {
                return body();
            }
            std::thread::scope(|scope| scope.spawn(body).join().expect("no panic"));
        };
        scope.spawn(within).join().expect("no panic");
    });
}

#[test]
fn a_thread_that_may_not_call_mpi_frees_a_registration_without_calling_its_callback_that_may() {
    let _alone = alone();
    crate::tool::peruse::tests::world();
    let seen = [Mutex::new(Seen::default()), Mutex::new(Seen::default())];
    let registrations = seen.each_ref().map(|seen| (anywhere(seen), seen));
    raise(3);
    let counts = || seen.each_ref().map(|seen| (count(seen), seen.lock().expect("no panic").freed));
    // The second call finds the end of the first one pending.
    in_a_thread_that_may_not_call_mpi(|| {
        for (registration, seen) in registrations {
            free_noted(registration, seen);
        }
    });
    assert_eq!(counts(), [((0, 0), 0); 2], "that thread delivers neither waiting events nor the ends");
    assert_eq!(ibex_events_flush(), 0);
    assert_eq!(counts(), [((3, 0), 1); 2]);
}

#[test]
fn a_call_that_fails_delivers_nothing() {
    let _alone = alone();
    let seen = Mutex::new(Seen::default());
    let registration = anywhere(&seen);
    raise(3);
    assert_ne!(number_of_types(Out::NULL), 0);
    assert_eq!(count(&seen), (0, 0));
    free(registration);
    assert_eq!(count(&seen), (3, 0));
}

/// A callback that tries to deliver more events.
extern "C" fn flushes(_: InstancePointer, _: RegistrationHandle, _: c_int, codes: &Mutex<Vec<c_int>>) {
    codes.lock().expect("no panic").push(ibex_events_flush());
    let mut types = 0;
    codes.lock().expect("no panic").push(number_of_types(Out::to(&mut types)));
}

#[test]
fn within_a_callback_a_flush_fails_and_no_call_delivers_events() {
    let _alone = alone();
    let (seen, codes) = (Mutex::new(Seen::default()), Mutex::new(Vec::<c_int>::new()));
    let waiting = anywhere(&seen);
    raise(1);
    let asking = registered(c"ibex_port_async", 3, &codes, flushes);
    raise(1);
    let before = count(&seen);
    events::raise(Safety::MpiRestricted, PortAsync::default);
    assert_eq!(*codes.lock().expect("no panic"), [Code::Invalid.number(), 0]);
    assert_eq!(count(&seen), before);
    free(asking);
    free(waiting);
    assert_eq!(count(&seen), (2, 0));
}

#[test]
fn a_registration_whose_events_must_wait_gets_the_default_room() {
    let _alone = alone();
    let seen = Mutex::new(Seen::default());
    let room = |levels: &[c_int]| {
        let registration = alloc(c"ibex_xfer_end");
        for level in levels {
            set_callback(registration, *level, &seen, on_xfer_end);
        }
        let room = events::all().pop().expect("just made").room();
        let mut info = Info::null();
        // SAFETY: the registration is valid; room for the answer.
        assert_eq!(unsafe { MPI_T_event_handle_get_info(registration, Out::to(&mut info)) }, 0);
        free(registration);
        room
    };
    assert_eq!(room(&[]), 64);
    assert_eq!(room(&[1]), 64);
    assert_eq!(room(&[2, 0]), 64, "another gets them where they happen");
    assert_eq!(room(&[0]), crate::runtime::variables::now::default_room());
    assert_eq!(room(&[0, 0, 2]), crate::runtime::variables::now::default_room());
}
