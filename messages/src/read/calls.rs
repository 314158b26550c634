// SPDX-License-Identifier: MIT OR Apache-2.0
//! The MPI calls of a process in which it could wait, from the recorder's events, and the messages they waited for. A
//! begin and an end with the same number belong to one call of a thread. Called by `pass.rs`. Path: pending, once per
//! call. Threads: one. Tests: tests/waits.rs.

use std::collections::HashMap;

use ibex_trace::Head;

use crate::model::Call;
use crate::read::vocabulary::{Element, Seen, Step};
use crate::time::Time;

#[derive(Default)]
pub(crate) struct Calls {
    pub(crate) all: Vec<Call>,
    threads: HashMap<u32, Thread>,
    /// Names of the functions; a call has an index of these until `mod.rs` translates it.
    pub(crate) functions: Vec<String>,
}

#[derive(Default, Clone, Copy)]
struct Thread {
    /// Number and index of the current call.
    open: Option<(u64, u32)>,
    /// The last probe, until the next receive takes it.
    probe: Option<u32>,
}

impl Calls {
    /// The description of the event type ends with the names of the calls.
    pub(crate) fn new(head: &Head) -> Calls {
        let of = head.types.iter().find(|of| of.name == "mpi_call_end");
        let names = of.map_or("", |of| of.description.rsplit_once(" in ").map_or("", |(_, names)| names));
        Calls { functions: names.split_whitespace().map(str::to_owned).collect(), ..Calls::default() }
    }

    pub(crate) fn begin(&mut self, seen: &Seen<'_>, time: Option<Time>, thread: u32) {
        let open = time.map(|begun| {
            let function = seen.unsigned(Element::Call);
            self.all.push(Call { rank: 0, thread, function, begun, ended: None });
            (seen.value(Element::Number), self.all.len() as u32 - 1)
        });
        let before = std::mem::replace(&mut self.threads.entry(thread).or_default().open, open);
        // The event of the previous call's end is lost, so its length is unknown.
        if let Some((_, place)) = before {
            self.close(place, None);
        }
    }

    pub(crate) fn end(&mut self, seen: &Seen<'_>, time: Option<Time>, thread: u32) {
        let state = self.threads.entry(thread).or_default();
        let Some((number, place)) = state.open.take() else { return };
        let is_known = number == seen.value(Element::Number);
        // A probe waits for a message and does not receive it.
        let function = self.functions.get(seen.value(Element::Call) as usize);
        if is_known && function.is_some_and(|name| matches!(name.as_str(), "MPI_Probe" | "MPI_Mprobe")) {
            state.probe = Some(place);
        }
        self.close(place, time.filter(|_| is_known));
    }

    /// Forgets the probes: while the recording is stopped, any receive may take their messages.
    pub(crate) fn interrupt(&mut self) {
        self.threads.values_mut().for_each(|thread| thread.probe = None);
    }

    fn close(&mut self, place: u32, ended: Option<Time>) {
        let call = &mut self.all[place as usize];
        call.ended = Some(ended.unwrap_or(call.begun));
    }

    /// Returns the call of a request's event: see [`super::matching::Matching::see`].
    pub(crate) fn of(&mut self, step: Step, seen: &Seen<'_>, thread: u32) -> Option<u32> {
        match step {
            Step::Notify => self.threads.get(&thread)?.open.map(|(_, place)| place),
            Step::Activate if seen.value(Element::Operation) != 0 => self.threads.get_mut(&thread)?.probe.take(),
            _ => None,
        }
    }

    pub(crate) fn contains(&self, place: u32, time: Time) -> bool {
        let call = &self.all[place as usize];
        call.begun <= time && call.ended.is_none_or(|ended| time <= ended)
    }
}
