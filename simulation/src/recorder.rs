// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trace of a run, as recorders of real jobs write it: each process records its events in memory
//! (`process/tools.rs`), and [`Trace::write`] makes the folder that `ibex view` opens, with a file for each process.
//!
//! Times are the fabric's. Many events come between two readings of that clock, so each is at least 1 us later than the
//! last one of any process. The file of a process that has not reached the end of the program has no end, as if it had
//! been killed. Called by `lib.rs` and `world`. Grade: test. Threads: one. Tests: `tests/trace.rs`.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use ibex::events::{ElementType, EventInstance, SourceId, TABLE, TypeId, Value};
use ibex::transport::adapter::simulated::Fabric;
use ibex_trace::{BLOCK, Clock, ClockSample, Element, ElementKind, EventType, Head, Layout, Record, Source, Writer};

use crate::failure::Failure;
use crate::program::Program;

/// Time from an event to the next one while the fabric's clock stands still, nanoseconds.
const STEP: u64 = 1_000;

/// Time between two samples of the clock, nanoseconds: readers doubt times between them by less than [`STEP`].
const SAMPLE: usize = 100_000_000;

/// Beginnings of the names of recorded events.
const RECORDED: [&str; 3] = ["comm_req_", "comm_msg_", "communicator_"];

/// Types by which readers see that the trace has all calls of MPI in which a process waits: there are none.
const CALLS: [&str; 2] = ["mpi_call_begin", "mpi_call_end"];

/// The records of a process.
#[derive(Default)]
struct Log {
    records: RefCell<Vec<Record>>,
    /// Whether the process has reached the end of the program.
    has_ended: Cell<bool>,
}

/// The records of all processes of a program.
pub(crate) struct Trace {
    heads: Vec<Head>,
    logs: Vec<Rc<Log>>,
    /// Time of the last event, nanoseconds.
    last: Rc<Cell<u64>>,
}

/// Records the events of a process.
pub(crate) struct Recorder {
    fabric: Fabric,
    last: Rc<Cell<u64>>,
    log: Rc<Log>,
    layouts: HashMap<&'static str, (TypeId, Layout)>,
    /// Number of processes of the program.
    pub(crate) processes: u32,
    /// The next number of a request or message.
    number: u64,
}

impl Recorder {
    /// Reserves numbers, as `Tools::numbers` says.
    pub(crate) fn numbers(&mut self, count: u64) -> u64 {
        let first = self.number;
        self.number += 2 * count;
        first
    }

    /// Records an event, which `make` makes of its type, its source and its time, if the trace has this type.
    pub(crate) fn put(&mut self, event: &str, make: impl FnOnce(TypeId, SourceId, u64) -> EventInstance) {
        let Some((of, layout)) = self.layouts.get(event) else { return };
        let time = (self.fabric.now().as_nanos() as u64).max(self.last.get() + STEP);
        self.last.set(time);
        let event = make(*of, SourceId::from_index(0).expect("there is always one"), time);
        let value = |element| match event.value(element) {
            Some(Value::I32(value)) => i64::from(value).cast_unsigned(),
            Some(Value::U32(value)) => value.into(),
            Some(Value::U64(value)) => value,
            None => 0,
        };
        self.log.records.borrow_mut().extend(layout.pack(0, time, &std::array::from_fn(value)));
    }

    /// Notes that the process has reached the end of the program.
    pub(crate) fn end(&self) {
        self.log.has_ended.set(true);
    }
}

/// Returns the recorded types of the engine, each with its name.
fn recorded() -> impl Iterator<Item = (&'static str, TypeId)> {
    let types = (0..TABLE.len()).filter_map(TypeId::from_index).map(|of| (of.row().name, of));
    types.filter(|(name, _)| RECORDED.iter().any(|beginning| name.starts_with(beginning)))
}

fn types() -> Vec<EventType> {
    let element = |of: &ibex::events::Element| {
        let kind = match of.element_type {
            ElementType::I32 => ElementKind::I32,
            ElementType::U32 => ElementKind::U32,
            ElementType::U64 => ElementKind::U64,
        };
        Element::new(of.name, kind, "")
    };
    let engines = recorded().map(|(name, of)| EventType {
        name: format!("ibex_{name}"),
        description: of.row().description.to_owned(),
        elements: of.row().elements.iter().map(element).collect(),
    });
    let calls = CALLS.map(|name| EventType {
        name: name.to_owned(),
        description: "Never: no call of a simulated process waits".to_owned(),
        elements: Vec::new(),
    });
    engines.chain(calls).collect()
}

fn source(name: String, description: &str) -> Source {
    let description = description.to_owned();
    Source { name, description, ticks_per_second: 1_000_000_000, max_ticks: u64::MAX >> 1, ordered: true }
}

impl Trace {
    pub(crate) fn new(program: &Program) -> Self {
        let ports = (0..program.rails).map(|rail| source(format!("fabric{rail}:1"), "A port; no event is its"));
        let host = source("host:0".to_owned(), "Events of the process; stamped with the simulated time");
        let (types, sources): (_, Vec<Source>) = (types(), std::iter::once(host).chain(ports).collect());
        let head = |rank| Head {
            ibex: env!("CARGO_PKG_VERSION").to_owned(),
            job: "simulation".to_owned(),
            rank: Some(rank),
            ranks: Some(program.processes),
            host: "simulation".to_owned(),
            pid: rank,
            program: format!("schedule 0x{:x}", program.schedule),
            types: Vec::clone(&types),
            sources: sources.clone(),
            ..Head::default()
        };
        let heads: Vec<Head> = (0..program.processes).map(head).collect();
        Trace { logs: heads.iter().map(|_| Rc::default()).collect(), heads, last: Rc::default() }
    }

    /// Returns the recorder of a process.
    pub(crate) fn recorder(&self, rank: usize, fabric: &Fabric) -> Recorder {
        let layouts = recorded().zip(self.heads[rank].layouts()).map(|((name, of), layout)| (name, (of, layout)));
        Recorder {
            fabric: fabric.clone(),
            last: Rc::clone(&self.last),
            log: Rc::clone(&self.logs[rank]),
            layouts: layouts.collect(),
            processes: self.heads.len() as u32,
            number: 1,
        }
    }

    /// Writes the trace to a folder, which has none yet, with the check that ended the run.
    pub(crate) fn write(&self, folder: &Path, failure: Option<&Failure>) -> Result<(), Box<dyn Error>> {
        fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        for (head, log) in self.heads.iter().zip(&self.logs) {
            let mut writer = Writer::create(folder, head, BLOCK)?;
            let end = self.last.get() + STEP;
            for time in (0..end).step_by(SAMPLE).chain([end]) {
                let (clock, own) = (Clock::Source(0), time.cast_signed());
                writer.clock(ClockSample { clock, shown: time, before: own, after: own });
            }
            if let Some(Failure { what, .. }) = failure {
                writer.note(format!("A check ended the run: {what}"));
            }
            writer.write(0, &log.records.borrow())?;
            if log.has_ended.get() { writer.finish()? } else { writer.flush()? }
        }
        Ok(())
    }
}
