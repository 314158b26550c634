// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records MPI calls in which the application can wait for other processes, with an event at their begin and one at
//! their end; also where the program stops and resumes the recording. Each function of wrappers.rs overrides MPI's own,
//! also under its `PMPI_` name, which Fortran's calls and other tools use. Only the outermost of nested calls counts,
//! because a tool's wrapper and MPI itself call MPI's functions. Called by the application, `recording.rs` and
//! `entry.rs`. Grade: hot; two clock readings and two records per call. Threads: the application's. Tests:
//! tests/trace.rs; hw-tests/tests/device/waits.rs.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::catalogue::EventType;
use crate::mpi;
use crate::target::Target;

const BEGIN: &str = "mpi_call_begin";
const END: &str = "mpi_call_end";
const CONTROL: &str = "mpi_pcontrol";

/// Source with the clock of the host, which always exists.
const SOURCE: c_int = 0;

static TARGETS: OnceLock<Targets> = OnceLock::new();

/// The targets of the events; unset if they are not recorded.
struct Targets {
    begin: Option<&'static Target>,
    end: Option<&'static Target>,
    control: Option<&'static Target>,
}

static IS_STOPPED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Number of nested calls that the thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Number of calls that the thread has recorded. A begin and an end with the same number belong to the same call.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

fn has_clock() -> bool {
    mpi::source(SOURCE).is_ok_and(|source| source.name.starts_with("host:"))
}

/// Returns the type of stops and resumptions. A trace always has it, because readers must know of gaps.
pub(crate) fn control() -> Option<EventType> {
    let description = "The program stops the recording by MPI_Pcontrol, or resumes it. level: 0 stops, 1 resumes";
    has_clock().then(|| EventType::own(CONTROL, description.to_owned(), &["level"]))
}

/// Returns the two types of calls; none if no clock can stamp them. Their description lists the calls.
pub(crate) fn types() -> Vec<EventType> {
    if !has_clock() {
        return Vec::new();
    }
    let of = |name, what: &str| {
        let description = format!(
            "A call of MPI in which the process can wait for others {what}; of nested calls, the outermost. number: \
             the number of the call in its thread; call: its index, from 0, in {}",
            NAMES.join(" ")
        );
        EventType::own(name, description, &["call", "number"])
    };
    vec![of(BEGIN, "begins"), of(END, "ends")]
}

/// Records calls from now on, if their types are among these.
pub(crate) fn record(types: &[EventType], targets: &[&'static Target]) {
    let of = |name| types.iter().zip(targets).find(|(of, _)| of.name == name).map(|(_, target)| *target);
    let _ = TARGETS.set(Targets { begin: of(BEGIN), end: of(END), control: of(CONTROL) });
}

pub(crate) fn stop() {
    IS_STOPPED.store(true, Ordering::Relaxed);
    tell(0);
}

pub(crate) fn resume() {
    tell(1);
    IS_STOPPED.store(false, Ordering::Relaxed);
}

fn tell(level: u64) {
    if let Some(control) = TARGETS.get().and_then(|targets| targets.control) {
        put(control, [level, 0]);
    }
}

/// Marks the thread as inside a call until it is dropped, even by a C++ exception that passes through the call.
pub(crate) struct Within {
    end: Option<(&'static Target, [u64; 2])>,
}

/// Begins a call that is not recorded; neither are nested ones.
pub(crate) fn enter() -> Within {
    DEPTH.set(DEPTH.get() + 1);
    Within { end: None }
}

/// Begins a call, which is recorded if it is the outermost.
#[inline]
fn enter_recorded(call: u64) -> Within {
    let (is_outermost, mut within) = (DEPTH.get() == 0, enter());
    // Relaxed: a program that stops the recording while other threads make calls cannot expect an order.
    if is_outermost
        && !IS_STOPPED.load(Ordering::Relaxed)
        && let Some(targets) = TARGETS.get()
    {
        let event = [call, NUMBER.replace(NUMBER.get() + 1)];
        targets.begin.inspect(|target| put(target, event));
        within.end = targets.end.map(|target| (target, event));
    }
    within
}

impl Drop for Within {
    #[inline]
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if let Some((target, event)) = self.end {
            put(target, event);
        }
    }
}

#[inline]
fn put(target: &Target, event: [u64; 2]) {
    match mpi::source_now(SOURCE) {
        Some(now) => target.put(SOURCE, now, |element| event[element]),
        None => target.lose(1),
    }
}

/// Address of the next definition of a function after this library's.
struct Next(AtomicPtr<c_void>);

impl Next {
    /// Returns the address; null, with a message, if there is none.
    #[inline]
    fn get(&self, name: &CStr) -> *mut c_void {
        // Relaxed: the function has been there since the library was loaded.
        let known = self.0.load(Ordering::Relaxed);
        if known.is_null() { self.find(name) } else { known }
    }

    #[cold]
    fn find(&self, name: &CStr) -> *mut c_void {
        let found = mpi::next(name);
        if found.is_null() {
            mpi::complain(&format!("no MPI has {}: is it linked statically?", name.to_string_lossy()));
        }
        self.0.store(found, Ordering::Relaxed);
        found
    }
}

/// Exports functions that record themselves and call the next definition.
macro_rules! wrappers {
    ($( $call:literal: fn $name:ident = $text:literal ($($argument:ident: $type:ty),* $(,)?); )*) => { $(
        /// Calls MPI's function of this name, and records the call.
        ///
        /// # Safety
        /// The conditions of MPI's function.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the MPI's name and arguments")]
        pub(crate) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
            static NEXT: Next = Next(AtomicPtr::new(null_mut()));
            let next = NEXT.get($text);
            if next.is_null() {
                return 1;
            }
            // SAFETY: the function of this name has this signature by mpi.h.
            let next: unsafe extern "C-unwind" fn($($type),*) -> c_int = unsafe { std::mem::transmute(next) };
            let _within = enter_recorded($call);
            // SAFETY: the arguments are passed on, with the same conditions.
            unsafe { next($($argument),*) }
        }
    )* };
}

#[allow(clippy::wildcard_imports, reason = "the types of their arguments")]
use crate::mpi::sys::*;
include!(concat!(env!("OUT_DIR"), "/calls.rs"));
