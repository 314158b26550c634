// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events in a process of which one thread alone raises: callbacks of every level are called where they happen. One
//! test, as a second one would bring a second thread.

use std::sync::{Arc, Mutex};

use ibex::events::{
    DeviceAsync, EventInstance, Options, Payload, Registration, Safety, free, raise, register, set_callback,
};

#[test]
fn the_place_alone_determines_the_level_that_a_callback_must_have() {
    let registration = register(DeviceAsync::TYPE, Options::default());
    let levels = Arc::new(Mutex::new(Vec::new()));
    for level in Safety::ALL {
        let noted = Arc::clone(&levels);
        let callback =
            Arc::new(move |_: &EventInstance, _: &Registration, level| noted.lock().expect("no panic").push(level));
        set_callback(&registration, level, Some(callback)).expect("it is not freed");
    }
    for context in Safety::ALL {
        raise(context, DeviceAsync::default);
    }
    assert_eq!(*levels.lock().expect("no panic"), Safety::ALL);

    // From a second thread's first event on, callbacks may run at the same time.
    levels.lock().expect("no panic").clear();
    std::thread::spawn(|| raise(Safety::None, DeviceAsync::default)).join().expect("no panic");
    raise(Safety::None, DeviceAsync::default);
    assert_eq!(*levels.lock().expect("no panic"), [Safety::ThreadSafe; 2]);
    free(&registration, Safety::None, None).expect("it is not freed");
}
