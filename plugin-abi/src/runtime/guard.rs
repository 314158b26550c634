// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fence between Rust's panics and Open MPI's C.
//!
//! Every function that Open MPI calls runs inside [`fence`]: a panic becomes an error code and one message, and nothing
//! unwinds into C. A panic is a defect of ibex, so the process then stops taking part: [`broken`] makes progress report
//! every port as failed, and Open MPI ends the job.
//! Grade: hot (one predicted branch, no allocation). Threads: any.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use super::messages;

static BROKEN: AtomicBool = AtomicBool::new(false);

/// Runs `body`; where it panics, says so and returns `fallback`. Made a part of its caller, or what Open MPI gave would go
/// by memory once more.
#[inline(always)]
pub(crate) fn fence<T>(what: &'static str, fallback: T, body: impl FnOnce() -> T) -> T {
    // What `body` leaves half done after a panic is not used again: `broken` stops every port.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(panic) => {
            report(what, &*panic);
            fallback
        }
    }
}

/// Whether a panic has been caught since the component was opened.
pub(crate) fn broken() -> bool {
    // Relaxed: no other memory is read on the strength of the answer.
    BROKEN.load(Ordering::Relaxed)
}

/// Forgets earlier panics: the component is opened anew.
pub(crate) fn reset() {
    BROKEN.store(false, Ordering::Relaxed);
}

#[cold]
fn report(what: &'static str, panic: &(dyn std::any::Any + Send)) {
    BROKEN.store(true, Ordering::Relaxed);
    let cause = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no text");
    messages::defect(what, cause);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_the_fallback_and_is_remembered() {
        reset();
        assert_eq!(fence("test", 1, || 2), 2);
        assert!(!broken());
        assert_eq!(fence("test", 1, || panic!("as the test wants it")), 1);
        assert!(broken());
        reset();
    }
}
