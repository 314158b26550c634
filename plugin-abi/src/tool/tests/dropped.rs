// SPDX-License-Identifier: MIT OR Apache-2.0
//! Losses of a registration: which are reported, to which handler, and with which argument.

use super::*;

/// Returns a registration with a buffer and a callback of this level, and the engine's registration.
fn waiting(level: c_int, seen: &Mutex<Seen>) -> (RegistrationHandle, std::sync::Arc<engine::events::Registration>) {
    let registration = registered(c"ibex_xfer_end", level, seen, on_xfer_end);
    let handle = events::all().pop().expect("just made");
    handle.set_buffered(true);
    (registration, handle)
}

fn losses(seen: &Mutex<Seen>) -> Vec<(i64, c_int)> {
    std::mem::take(&mut seen.lock().expect("no panic").dropped)
}

#[test]
fn the_dropped_handler_hears_only_of_losses_since_it_was_set() {
    let _alone = alone();
    let seen = Mutex::new(Seen::default());
    let (registration, handle) = waiting(2, &seen);
    raise(handle.room() + 3);
    // This delivers waiting events, as every call of the tool does.
    count_dropped(registration, true);
    raise(handle.room() + 2);
    events::deliver(usize::MAX, Safety::MpiRestricted);
    assert_eq!(losses(&seen).iter().map(|(count, _)| count).sum::<i64>(), 2);
    // While there is no handler, losses are not recorded.
    count_dropped(registration, false);
    raise(handle.room() + 4);
    events::deliver(0, Safety::MpiRestricted);
    raise(5);
    count_dropped(registration, true);
    raise(handle.room() + 1);
    events::deliver(usize::MAX, Safety::MpiRestricted);
    free(registration);
    assert_eq!(losses(&seen).iter().map(|(count, _)| count).sum::<i64>(), 1);
}

#[test]
fn the_dropped_handler_gets_the_level_and_user_data_of_the_least_demanding_fit_callback() {
    let _alone = alone();
    let [none, fit, other] = [(); 3].map(|()| Mutex::new(Seen::default()));
    let (registration, handle) = waiting(2, &fit);
    for (level, seen) in [(0, &none), (3, &other)] {
        set_callback(registration, level, seen, on_xfer_end);
    }
    count_dropped(registration, true);
    raise(handle.room() + 5);
    events::deliver(usize::MAX, Safety::MpiRestricted);
    free(registration);
    assert_eq!([&none, &fit, &other].map(losses), [vec![], vec![(5, 1)], vec![]]);
    assert_eq!(fit.lock().expect("no panic").events.len(), handle.room());
}

#[test]
fn freeing_a_registration_calls_its_callback_that_may_call_mpi() {
    let _alone = alone();
    let seen = Mutex::new(Seen::default());
    let (registration, handle) = waiting(0, &seen);
    count_dropped(registration, true);
    raise(handle.room() + 5);
    events::deliver(usize::MAX, Safety::MpiRestricted);
    assert_eq!(losses(&seen), []);
    assert_eq!(seen.lock().expect("no panic").events.len(), 0);
    assert_eq!(handle.dropped(), 5, "counted");
    free(registration);
    let seen = seen.into_inner().expect("no panic");
    assert_eq!((seen.events.len(), &seen.dropped[..]), (handle.room(), &[(5, 0)][..]));
    assert!(seen.events.iter().all(|(_, _, _, level)| *level == 0));
}
