// SPDX-License-Identifier: MIT OR Apache-2.0
//! The logger, from `MPI_Init` to the end of the process. Called by `entry.rs`. `MPI_T` is not finalised, because
//! events occur until the process ends, and Open MPI 4.1 cannot safely finalise it after `MPI_Finalize`. Grade: setup.
//! Threads: each function says its own. Tests: tests/log.rs; hw-tests/tests/device/tools.rs.

use std::sync::{Mutex, OnceLock};

use ibex_trace::Chosen;

use crate::catalogue;
use crate::listening::Listening;
use crate::mpi;
use crate::output::Output;
use crate::recording;
use crate::rings::{Rings, Task};
use crate::settings;
use crate::thread::lock;
use crate::writer::Writer;

/// Number of records in the ring of a thread: 4 MiB, of which the system provides the used part.
const ROOM: usize = 1 << 17;

static SESSION: OnceLock<Option<Session>> = OnceLock::new();

struct Session {
    process: u32,
    /// Whether the user has chosen no events: all are listed at the end.
    is_list: bool,
    writer: Mutex<Writer>,
    listening: Listening,
}

fn session() -> Option<&'static Session> {
    // A forked process has its parent's memory, but must not write to its log.
    SESSION.get()?.as_ref().filter(|session| session.process == std::process::id())
}

/// Registers for the chosen types, before MPI is initialised. The second call does nothing.
pub(crate) fn begin() {
    SESSION.get_or_init(|| {
        let chosen = Chosen::from(settings::variable("IBEX_LOG_EVENTS").as_deref(), "");
        if chosen.is_empty() && recording::folder().is_some() {
            return None;
        }
        mpi::initialize("logged")?;
        Session::new(&chosen)
    });
}

/// Opens the output after MPI has been initialised, because the rank is known then.
pub(crate) fn initialized() {
    if let Some(session) = session() {
        session.open(mpi::rank());
        lock(&session.writer).clocks.sample();
    }
    if let Some(session) = listening() {
        session.listening.start("ibex-log", || session.pass());
    }
}

/// Reads the adapters' clocks a last time, before MPI is finalised.
pub(crate) fn finalizing() {
    if let Some(session) = session() {
        lock(&session.writer).clocks.sample();
    }
}

fn listening() -> Option<&'static Session> {
    session().filter(|session| !session.listening.types.is_empty())
}

pub(crate) fn stop() {
    if let Some(session) = listening()
        && session.listening.stop(|_| false)
    {
        session.flush();
        lock(&session.writer).stop();
    }
}

pub(crate) fn resume() {
    if let Some(session) = listening() {
        session.listening.resume(|| lock(&session.writer).resume());
    }
}

pub(crate) fn flush() {
    if let Some(session) = session() {
        session.flush();
    }
}

/// Writes the rest, and then the statistics or the list, when the process ends or aborts the job.
pub(crate) fn end() {
    if let Some(session) = session()
        && session.listening.end()
    {
        session.finish();
    }
}

impl Session {
    fn new(chosen: &Chosen) -> Option<Session> {
        let types = catalogue::choose("IBEX_LOG_EVENTS", chosen, &catalogue::types());
        let Some(rings) = Rings::new(Task::Text, if types.is_empty() { 1 } else { ROOM }) else {
            mpi::complain("IBEX_LOG_EVENTS: no memory for the events of threads: nothing is logged");
            return None;
        };
        Some(Session {
            process: std::process::id(),
            is_list: chosen.is_empty(),
            writer: Mutex::new(Writer::new(&types)),
            listening: Listening::begin(types, rings),
        })
    }

    /// Opens the output of MPI's rank, or else the launcher's. Only rank 0 writes a list to standard error.
    fn open(&self, rank: Option<u32>) {
        if lock(&self.writer).is_open() {
            return;
        }
        let rank = settings::rank(rank.or_else(ibex_trace::launched_rank), self.process);
        let file = settings::variable("IBEX_LOG_FILE");
        if self.is_list && file.is_none() && rank != "0" {
            return;
        }
        let host = ibex_trace::host();
        let name = settings::file(file.as_deref(), &rank, &host, self.process);
        let program = std::env::args_os().next().unwrap_or_default();
        let whose = format!("rank {rank}, host {host}, process {}, {}", self.process, program.display());
        lock(&self.writer).open(Output::open(name.as_deref(), &rank), &whose);
    }

    fn pass(&self) -> usize {
        lock(&self.writer).pass(self.listening.rings)
    }

    fn flush(&self) {
        // The events of a ring may be in two laps.
        self.pass();
        let mut writer = lock(&self.writer);
        writer.pass(self.listening.rings);
        self.listening.rings.recycle();
    }

    fn finish(&self) {
        // Opens the output if MPI could not be initialised.
        self.open(None);
        self.flush();
        let mut writer = lock(&self.writer);
        if self.is_list {
            writer.remark(&listed());
        } else {
            writer.summary(&self.listening.lost().collect::<Vec<_>>());
        }
    }
}

/// Returns all event types with their elements, and all sources.
fn listed() -> Vec<String> {
    let mut lines = vec!["event types (IBEX_LOG_EVENTS takes their names):".to_owned()];
    for kind in catalogue::types() {
        lines.push(kind.name.clone());
        lines.push(format!("    {}", kind.description));
        for element in &kind.elements {
            lines.push(format!("    {:>4} {:<14} {}", element.at, element.type_name(), element.name));
        }
    }
    lines.push("sources:".to_owned());
    for index in 0..mpi::source_count() {
        let Ok(source) = mpi::source(index) else { continue };
        let order = if source.ordered { "ordered" } else { "unordered" };
        lines.push(format!("{}: {order}, {} ticks per second", source.name, source.ticks_per_second));
        lines.push(format!("    {}", source.description));
    }
    lines
}
