// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events in a process of which a second thread raises for the first time while the first is within a callback that is
//! not fit for that. One test, as a second one would bring the second thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ibex::events::{
    DeviceAsync, EventInstance, Options, Payload, Registration, Safety, deliver, free, raise, register, set_callback,
};

#[test]
fn a_callback_that_is_not_thread_safe_runs_once_at_a_time_also_when_the_second_thread_comes_within_it() {
    let registration = register(DeviceAsync::TYPE, Options::default());
    let (is_inside, seen) = (AtomicBool::new(false), Arc::new(Mutex::new(Vec::new())));
    let noted = Arc::clone(&seen);
    let callback = move |instance: &EventInstance, _: &Registration, _: Safety| {
        let again = is_inside.swap(true, Ordering::SeqCst);
        noted.lock().expect("no panic").push((instance.value(0), again));
        if !again && noted.lock().expect("no panic").len() == 1 {
            let other = || {
                raise(Safety::MpiRestricted, || DeviceAsync { event: 2, port: 0 });
                deliver(usize::MAX, Safety::MpiRestricted);
            };
            std::thread::spawn(other).join().expect("no panic");
        }
        is_inside.store(again, Ordering::SeqCst);
    };
    set_callback(&registration, Safety::MpiRestricted, Some(Arc::new(callback))).expect("it is not freed");
    raise(Safety::MpiRestricted, || DeviceAsync { event: 1, port: 0 });
    assert_eq!(seen.lock().expect("no panic").len(), 1, "the other thread's waits");
    deliver(usize::MAX, Safety::MpiRestricted);
    let seen: Vec<_> = seen.lock().expect("no panic").clone();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|(_, again)| !again), "{seen:?}");
    free(&registration, Safety::None, None).expect("it is not freed");
}
