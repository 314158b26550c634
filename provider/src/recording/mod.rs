// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trace of a process (`IBEX_TRACE`), as docs/trace-format.md has it: what `ibex trace` asks for where no Open MPI
//! is there for the recorder that is a tool of `MPI_T` (event-log). This one listens to the engine itself.
//!
//! It begins with the first endpoint ([`recording`]) and ends with the process ([`end`]). Events of requests and
//! messages come from the endpoint ([`Recording::put`]), all others from the engine's registrations. Both go to
//! memory under a lock, from which a thread of its own writes them to the file (`writing.rs`). `types` has the types of
//! the file, `calls` the calls of MPI. Grade: hot for [`Recording::put`] while a trace is recorded, else setup.
//! Threads: any. Tests: `hw-tests`.

mod calls;
mod types;
mod writing;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ibex::events::{self, EventInstance, HostClock, MATCHING_TYPES, Options, Registration, Safety};
use ibex::messenger::events::Event;
use ibex_trace::{Chosen, Head, Layout, Room};
use parking_lot::Mutex;

use crate::log;
use crate::sys;
use calls::Calls;
use types::Recorded;
pub(crate) use types::{CONTEXT, MATCHING};
use writing::{Waiting, Writing};

/// Events of a type that wait for the engine to deliver them.
const ROOM: usize = 4096;

/// How the events of a type are packed, and its number in the trace.
type Packed = (u8, Layout);

/// The trace of this process.
pub(crate) struct Recording {
    process: u32,
    /// Layouts of the events of requests and messages, by their numbers; `None`: they are not recorded.
    matching: [Option<Packed>; MATCHING_TYPES],
    calls: Calls,
    /// Whether transfers of messages are recorded, or reads, which name their requests.
    wants_transfers: bool,
    /// The next number of a request, a message or a search.
    next: AtomicU64,
    /// Whether the program has stopped the recording.
    is_stopped: AtomicBool,
    waiting: Mutex<Waiting>,
    writing: Writing,
}

static RECORDING: OnceLock<Option<Recording>> = OnceLock::new();

/// Returns the trace of this process; the first call begins it if `IBEX_TRACE` names a folder.
pub(crate) fn recording() -> Option<&'static Recording> {
    RECORDING.get_or_init(|| {
        let folder = std::env::var_os("IBEX_TRACE").filter(|folder| !folder.is_empty())?;
        Recording::begin(Path::new(&folder))
    });
    let recording = own()?;
    recording.writing.start(recording);
    Some(recording)
}

/// Returns the trace that has been begun. A forked process has its parent's memory, but neither its file nor its
/// thread.
fn own() -> Option<&'static Recording> {
    RECORDING.get()?.as_ref().filter(|recording| recording.process == std::process::id())
}

/// Writes what waits to the file.
pub(crate) fn flush() {
    if let Some(recording) = own() {
        events::catch_up(Safety::ThreadSafe);
        recording.writing.flush(recording);
    }
}

/// Ends the file, and the thread that writes.
pub(crate) fn end() {
    if let Some(recording) = own() {
        events::catch_up(Safety::ThreadSafe);
        recording.writing.end(recording);
    }
}

impl Recording {
    fn begin(folder: &Path) -> Option<Recording> {
        let wanted = std::env::var("IBEX_TRACE_EVENTS").ok();
        let wanted = Chosen::from(wanted.as_deref(), "default");
        let (recorded, of_calls) = (types::chosen(&wanted), calls::chosen(&wanted));
        let mut head = Head::of_this_process(env!("CARGO_PKG_VERSION"));
        head.rank = Some(crate::adapter::rank());
        head.calendar = ibex_trace::calendar_offset(writing::monotonic);
        head.types = recorded.iter().map(|of| of.described.clone()).chain(of_calls.iter().cloned()).collect();
        let writing = match Writing::create(folder, &head) {
            Ok(writing) => {
                if let Some(note) = calls::note() {
                    writing.note(note);
                }
                writing
            }
            Err(error) => {
                eprintln!("ibex: IBEX_TRACE={}: {error}: nothing is recorded", folder.display());
                return None;
            }
        };
        let mut matching = [None; MATCHING_TYPES];
        let mut packed = (0..).zip(head.layouts());
        for (recorded, (number, layout)) in recorded.into_iter().zip(&mut packed) {
            match recorded.of.place_in_matching() {
                Some(place) => matching[place] = Some((number, layout)),
                None => listen((number, layout), recorded),
            }
        }
        let mut calls = Calls::default();
        for (of, packed) in of_calls.iter().zip(packed) {
            calls.add(of, packed);
        }
        calls::record();
        log::line(sys::FI_LOG_INFO, sys::FI_LOG_CORE, &format!("recording a trace in {}", folder.display()));
        Some(Recording {
            process: std::process::id(),
            matching,
            calls,
            wants_transfers: events::interest().has_transfers(),
            next: AtomicU64::new(2),
            is_stopped: AtomicBool::new(false),
            waiting: Mutex::default(),
            writing,
        })
    }

    /// Whether this event of requests and messages is recorded.
    #[inline]
    pub(crate) fn wants(&self, event: Event) -> bool {
        match event {
            Event::Transfer => self.wants_transfers,
            event => self.matching[event as usize].is_some(),
        }
    }

    /// Reserves numbers: the returned one, and every second one after it.
    #[inline]
    pub(crate) fn numbers(&self, count: u64) -> u64 {
        self.next.fetch_add(2 * count, Ordering::Relaxed)
    }

    /// Records an event of a request, a message or a search, with these elements.
    pub(crate) fn put<const N: usize>(&self, event: Event, elements: &[u64; N]) {
        if let Some(packed) = self.matching[event as usize].filter(|_| !self.is_stopped()) {
            self.put_own(packed, elements);
        }
    }

    /// Records an event that this library raises, by the clock of the host.
    fn put_own<const N: usize>(&self, (number, layout): Packed, elements: &[u64; N]) {
        let (thread, now) = (events::this_thread(), HostClock::get().now());
        let pack = |room: &mut Room| layout.pack_into(thread as u8, now, |element| elements[element], room);
        self.waiting.lock().put(thread, number, pack);
    }

    // Relaxed, both: a program that stops the recording while other threads make calls cannot expect an order.
    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    fn set_stopped(&self, is_stopped: bool) {
        self.is_stopped.store(is_stopped, Ordering::Relaxed);
    }

    /// Records an event that the engine delivers.
    fn keep(&self, (number, layout): Packed, recorded: &Recorded, instance: &EventInstance) {
        if self.is_stopped() {
            return;
        }
        let value = |element: usize| recorded.value(element, instance);
        let (source, ticks) = (instance.source.index() as u8, instance.timestamp);
        let pack = |room: &mut Room| layout.pack_into(source, ticks, value, room);
        self.waiting.lock().put(events::this_thread(), number, pack);
    }
}

/// Records the events of a type that the engine delivers, until the process ends.
fn listen(packed: Packed, recorded: Recorded) {
    let registration = events::register(recorded.of, Options { room: ROOM, ..Options::default() });
    let lose = move |count, _, _: &Registration, _| {
        if let Some(Some(recording)) = RECORDING.get() {
            recording.waiting.lock().lose(packed.0, count);
        }
    };
    let keep = move |instance: &EventInstance, _: &Registration, _| {
        if let Some(Some(recording)) = RECORDING.get() {
            recording.keep(packed, &recorded, instance);
        }
    };
    // A new registration is not freed.
    let _ = events::set_dropped(&registration, Some(Arc::new(lose)));
    let _ = events::set_callback(&registration, Safety::ThreadSafe, Some(Arc::new(keep)));
}
