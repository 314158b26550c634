// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls of MPI in which a process can wait for others: functions that override the MPI's own, tell a recorder of
//! their begin and end, and call the next definition of their name, which is the MPI's or another tool's. They override
//! the `PMPI_` names, too, which Fortran's calls and other tools use. Only the outermost of nested calls counts,
//! because a tool's wrapper and MPI itself call MPI's functions.
//!
//! `table` has the calls, `next` finds what a call goes on to. Libraries that are preloaded export the functions
//! ([`override_calls`]): event-log (for Open MPI's components), the libfabric provider (for all other MPIs), and beside
//! it mpi4-calls. Every MPI can be below them, because arguments are passed on as words: the C calling conventions of
//! x86-64, aarch64, ppc64le and riscv64 pass an integer of any size and a pointer each in one register or one slot of
//! the stack, and none of these calls has an argument of another kind.
//!
//! Grade: hot. Threads: the application's. Safety, for every unsafe block: **C1** the function of this name has so many
//! arguments by the standard. Tests: below; event-log/tests; hw-tests/tests/device/waits.rs.

pub mod next;
mod table;

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

#[doc(hidden)]
pub use pastey;
pub use table::{Call, NAMES};

/// The names of the events of a trace: a call's begin, its end, and a stop or resumption of the recording.
pub const BEGIN: &str = "mpi_call_begin";
/// See [`BEGIN`].
pub const END: &str = "mpi_call_end";
/// See [`BEGIN`].
pub const CONTROL: &str = "mpi_pcontrol";

/// The elements of the events of calls. Readers know the names of the calls from [`describe`].
pub const ELEMENTS: [&str; 2] = ["call", "number"];

/// What [`CONTROL`] means. Its element is `level`.
pub const CONTROL_DESCRIPTION: &str =
    "The program stops the recording by MPI_Pcontrol, or resumes it. level: 0 stops, 1 resumes";

/// Describes the event of a call that "begins" or "ends". The text ends with the names of the calls, because readers
/// of traces look them up there.
pub fn describe(what: &str) -> String {
    format!(
        "A call of MPI in which the process can wait for others {what}; of nested calls, the outermost. number: the \
         number of the call in its thread; call: its index, from 0, in {}",
        NAMES.join(" ")
    )
}

/// What is told of the calls, in the thread that makes them.
pub trait Recorder: Sync {
    /// A call begins: its index in [`NAMES`], and its number in the thread.
    fn begins(&self, event: [u64; 2]);

    /// The call ends for which [`Recorder::begins`] was called with the same words.
    fn ends(&self, event: [u64; 2]);
}

static RECORDER: OnceLock<&'static dyn Recorder> = OnceLock::new();

static IS_STOPPED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Number of nested calls that the thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Number of calls that the thread has recorded.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// Tells this recorder of all calls from now on. The first recorder stays.
pub fn record(recorder: &'static dyn Recorder) {
    let _ = RECORDER.set(recorder);
}

/// Tells of no call that begins from now on, or of all again.
pub fn set_stopped(is_stopped: bool) {
    // Relaxed: a program that stops the recording while other threads make calls cannot expect an order.
    IS_STOPPED.store(is_stopped, Ordering::Relaxed);
}

/// Marks the thread as inside a call until it is dropped, even by a C++ exception that passes through the call.
pub struct Within {
    recorded: Option<(&'static dyn Recorder, [u64; 2])>,
}

/// Begins a call that is not recorded; neither are nested ones.
pub fn enter_unrecorded(_: u64) -> Within {
    enter()
}

fn enter() -> Within {
    DEPTH.set(DEPTH.get() + 1);
    Within { recorded: None }
}

/// Begins a call, by its index in [`NAMES`], which is recorded if it is the outermost.
#[inline]
pub fn enter_recorded(call: u64) -> Within {
    let (is_outermost, mut within) = (DEPTH.get() == 0, enter());
    if is_outermost
        && !IS_STOPPED.load(Ordering::Relaxed)
        && let Some(recorder) = RECORDER.get()
    {
        let event = [call, NUMBER.replace(NUMBER.get() + 1)];
        recorder.begins(event);
        within.recorded = Some((*recorder, event));
    }
    within
}

impl Within {
    /// Gives up the mark, for a caller that cannot hold it. The number brings it back, by [`Within::from_raw`].
    pub fn into_raw(self) -> u64 {
        let number = self.recorded.map_or(UNRECORDED, |(_, [_, number])| number);
        std::mem::forget(self);
        number
    }

    /// Takes up the mark of a call again, in the same thread, once for each [`Within::into_raw`].
    pub fn from_raw(call: u64, number: u64) -> Within {
        let recorder = RECORDER.get().filter(|_| number != UNRECORDED);
        Within { recorded: recorder.map(|recorder| (*recorder, [call, number])) }
    }
}

/// The number of a call that is not recorded.
const UNRECORDED: u64 = u64::MAX;

impl Drop for Within {
    #[inline]
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if let Some((recorder, event)) = self.recorded {
            recorder.ends(event);
        }
    }
}

/// Exports the functions of a part of the table (`table.rs`): `mpi_3`, `mpi_4`, or `outside`. Each calls the named
/// function with its index, and keeps the result until it returns.
#[macro_export]
macro_rules! override_calls {
    ($part:ident by $enter:path) => {
        $crate::table! { [$crate::overrides] $part ($enter) }
    };
}

/// Exports the functions of the groups that are of the wanted part.
#[doc(hidden)]
#[macro_export]
macro_rules! overrides {
    ($wanted:ident $enter:tt $($part:ident $arguments:tt $names:tt)*) => {
        $( $crate::overrides! { @group $wanted $part $enter $arguments $names } )*
    };
    (@group mpi_3 mpi_3 $enter:tt $arguments:tt $names:tt) => { $crate::overrides! { @all $enter $arguments $names } };
    (@group mpi_4 mpi_4 $enter:tt $arguments:tt $names:tt) => { $crate::overrides! { @all $enter $arguments $names } };
    (@group outside outside $enter:tt $arguments:tt $names:tt) => {
        $crate::overrides! { @all $enter $arguments $names }
    };
    (@group $wanted:ident $part:ident $enter:tt $arguments:tt $names:tt) => {};
    (@all $enter:tt $arguments:tt [$($name:ident)*]) => {
        $crate::pastey::paste! { $(
            $crate::overrides! { @function $name [<MPI_ $name>] $enter $arguments }
            $crate::overrides! { @function $name [<PMPI_ $name>] $enter $arguments }
        )* }
    };
    (@function $call:ident $name:ident ($enter:path) ($($argument:ident)*)) => {
        const _: () = {
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, clippy::too_many_arguments, reason = "the MPI's name and arguments")]
            unsafe extern "C-unwind" fn $name($($argument: usize),*) -> ::std::ffi::c_int {
                static NEXT: $crate::next::Next = $crate::next::Next::new(stringify!($name));
                let Some(next) = NEXT.find() else { return $crate::next::MISSING };
                // SAFETY: C1.
                let next: unsafe extern "C-unwind" fn($($crate::overrides!(@word $argument)),*) -> ::std::ffi::c_int =
                    unsafe { ::std::mem::transmute(next) };
                let _within = $enter($crate::Call::$call as u64);
                // SAFETY: C1; the arguments are passed on, with the same conditions.
                unsafe { next($($argument),*) }
            }
        };
    };
    (@word $argument:ident) => { usize };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    struct Told(Mutex<Vec<(&'static str, [u64; 2])>>);

    impl Recorder for Told {
        fn begins(&self, event: [u64; 2]) {
            self.0.lock().expect("no panic").push(("begins", event));
        }

        fn ends(&self, event: [u64; 2]) {
            self.0.lock().expect("no panic").push(("ends", event));
        }
    }

    #[test]
    fn of_nested_calls_the_outermost_is_told_of_unless_the_recording_is_stopped() {
        static TOLD: Told = Told(Mutex::new(Vec::new()));
        record(&TOLD);
        {
            let _outermost = enter_recorded(Call::Barrier as u64);
            let _inside = enter_recorded(Call::Send as u64);
        }
        {
            let _initialisation = enter_unrecorded(Call::Init as u64);
            let _inside = enter_recorded(Call::Send as u64);
        }
        set_stopped(true);
        drop(enter_recorded(Call::Send as u64));
        set_stopped(false);
        let recv = Call::Recv as u64;
        drop(Within::from_raw(recv, enter_recorded(recv).into_raw()));
        let [barrier, recv] = [Call::Barrier, Call::Recv].map(|call| call as u64);
        let told = [("begins", [barrier, 0]), ("ends", [barrier, 0]), ("begins", [recv, 1]), ("ends", [recv, 1])];
        assert_eq!(TOLD.0.lock().expect("no panic")[..], told);
        assert_eq!((NAMES[barrier as usize], NAMES[recv as usize]), ("MPI_Barrier", "MPI_Recv"));
    }
}
