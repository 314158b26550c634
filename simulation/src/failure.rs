// SPDX-License-Identifier: MIT OR Apache-2.0
//! A failed check: a panic of the engine or of the simulation, caught, with the last steps of the history. Grade: test.
//! Threads: a message is kept per thread. Tests: those of the crate.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};

/// Why a program failed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The failed check, and where it is.
    pub what: String,
    /// The last steps.
    pub steps: Vec<String>,
    /// The state of the connections of each process.
    pub connections: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\nThe last steps:", self.what)?;
        self.steps.iter().try_for_each(|step| writeln!(f, "  {step}"))?;
        writeln!(f, "The connections:")?;
        self.connections.iter().try_for_each(|process| writeln!(f, "{process}"))
    }
}

thread_local! {
    /// Message and place of the last panic, if [`silence_panics`] was called.
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps failed checks from being printed, in all threads, because [`crate::run`] returns them.
pub fn silence_panics() {
    set_hook(Box::new(|panic| {
        let place = panic.location().map_or_else(String::new, |at| format!("{}:{}: ", at.file(), at.line()));
        LAST.set(Some(format!("{place}{}", message(panic.payload()))));
    }));
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}

/// Calls `call`. Returns the message of its panic.
pub(crate) fn caught<R>(call: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| LAST.take().unwrap_or_else(|| message(&*payload)))
}
