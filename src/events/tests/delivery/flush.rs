// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivery in a tool's own call: callbacks that may do anything run there, and nowhere else.

use crate::events::tests::*;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn an_unrestricted_callback_gets_its_events_inside_a_call_of_the_tool_and_nowhere_else() {
    let (_alone, seen, registration) =
        listening_to(NUMBERED, Safety::None, Options { room: 2048, ..Options::default() });
    (1..=2000).for_each(raise_number);
    deliver_all();
    assert_eq!((seen.numbers().len(), registration.waiting()), (0, 2000));
    deliver_pending(Safety::None);
    assert_eq!(seen.numbers(), (1..=2000).collect::<Vec<_>>());
    assert_eq!(registration.dropped(), 0);
}

#[test]
fn events_that_a_callback_raises_wait_for_the_next_flush() {
    let _alone = alone();
    let seen = Seen::default();
    let also = seen.clone();
    let registration = calling(NUMBERED, Safety::None, Options::default(), move |instance, _, _| {
        also.lock().push(*instance);
        raise_number(7);
    });
    (1..=3).for_each(raise_number);
    for rounds in 1..=3 {
        assert!(flush(Safety::None));
        assert_eq!((seen.numbers().len(), registration.waiting()), (3 * rounds, 3));
    }
}

#[test]
fn a_callback_that_replaces_itself_leaves_the_rest_to_the_new_one() {
    let _alone = alone();
    let (first, second) = (Seen::default(), Seen::default());
    let (also, next) = (first.clone(), second.clone());
    let _registration = calling(NUMBERED, Safety::None, Options::default(), move |instance, registration, _| {
        also.lock().push(*instance);
        set_callback(registration, Safety::None, Some(next.callback())).expect("it is not freed");
    });
    (1..=5).for_each(raise_number);
    assert!(flush(Safety::None));
    assert_eq!(first.numbers(), [1]);
    assert_eq!(second.numbers(), [2, 3, 4, 5]);
}

#[test]
fn a_flush_within_a_callback_delivers_nothing() {
    let _alone = alone();
    let inner = Seen::default();
    let _waiting = listen_to(NUMBERED, Safety::None, Options::default(), inner.callback());
    let flushed = Arc::new(AtomicBool::new(true));
    let noted = Arc::clone(&flushed);
    let _asking = calling(NUMBERED, Safety::ThreadSafe, Options::default(), move |_, _, _| {
        deliver_pending(Safety::None);
        noted.store(flush(Safety::None), Ordering::SeqCst);
    });
    raise_number(1);
    assert!(!flushed.load(Ordering::SeqCst));
    assert_eq!(inner.numbers().len(), 0);
    assert!(flush(Safety::None));
    assert_eq!(inner.numbers(), [1]);
}

#[test]
fn a_flush_waits_for_the_thread_that_empties_buffers_and_deliver_pending_does_not() {
    let _alone = alone();
    let (gate, stay) = Gate::new();
    let lingers = calling(NUMBERED, Safety::ThreadSafe, buffered(8), move |_, _, _| stay());
    raise_number(1);
    let other = std::thread::spawn(|| deliver(usize::MAX, Safety::MpiRestricted));
    gate.is_reached();
    free(&lingers, Safety::ThreadSafe, None).expect("it is not freed");
    let seen = Seen::default();
    let _waiting = listen_to(NUMBERED, Safety::None, Options::default(), seen.callback());
    raise_number(2);
    deliver_pending(Safety::None);
    assert_eq!(seen.numbers().len(), 0, "the other thread is at it");
    let flushing = held_up::begin(|| flush(Safety::None));
    assert!(!flushing.is_finished(), "it did not wait");
    gate.open();
    assert!(flushing.join().expect("no panic"));
    assert_eq!(seen.numbers(), [2]);
    other.join().expect("no panic");
}
