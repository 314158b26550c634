// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps Rust's panics out of Open MPI's C code. Every function that Open MPI calls runs inside [`fence`]: a panic
//! becomes an error code and one message. A panic is a defect of ibex. So [`broken`] then makes progress report every
//! port as failed, and Open MPI ends the job. Grade: hot (a predicted branch). Threads: any. Tests: below.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use super::messages;

static BROKEN: AtomicBool = AtomicBool::new(false);

/// Runs `body`; if it panics, prints a message and returns `fallback`. Inlined, because the arguments of the caller
/// would otherwise be stored in memory for the closure.
#[inline(always)]
pub(crate) fn fence<T>(what: &'static str, fallback: T, body: impl FnOnce() -> T) -> T {
    // State that `body` left inconsistent is not used again: `broken` stops every port.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(panic) => {
            report(what, &*panic);
            fallback
        }
    }
}

/// Returns whether a panic has been caught since the component was opened.
pub(crate) fn broken() -> bool {
    // Relaxed: no other memory depends on the value.
    BROKEN.load(Ordering::Relaxed)
}

pub(crate) fn reset() {
    BROKEN.store(false, Ordering::Relaxed);
}

#[cfg(test)]
thread_local!(
    /// Whether [`fence`] has caught a panic of this thread: tests assert that it has not.
    pub(crate) static CAUGHT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) }
);

#[cold]
fn report(what: &'static str, panic: &(dyn std::any::Any + Send)) {
    BROKEN.store(true, Ordering::Relaxed);
    #[cfg(test)]
    CAUGHT.set(true);
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
    fn fence_turns_a_panic_into_the_fallback_and_remembers_it() {
        reset();
        assert_eq!(fence("test", 1, || 2), 2);
        assert!(!broken());
        assert_eq!(fence("test", 1, || panic!("as the test wants it")), 1);
        assert!(broken());
        reset();
    }
}
