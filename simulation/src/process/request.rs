// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests of a process. A handle is refused once its request has been given back, so a late use ends the
//! simulation. Grade: test. Threads: one.

use ibex::messenger::request::{Core, Outcome};

use super::Process;

/// Names a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle {
    index: u32,
    generation: u32,
}

impl Handle {
    /// Bits of a generation in a token.
    const GENERATION: u32 = 24;

    /// Returns the handle as a number below `1 << 56`.
    pub(super) const fn bits(self) -> u64 {
        (self.generation as u64 & ((1 << Self::GENERATION) - 1)) << 32 | self.index as u64
    }

    pub(super) const fn from_bits(bits: u64) -> Self {
        Handle { index: bits as u32, generation: (bits >> 32) as u32 & ((1 << Self::GENERATION) - 1) }
    }
}

/// A request, from its start until the program has taken its result.
pub(super) struct Request {
    pub(super) core: Core<Process>,
    /// Number that the program gave.
    pub(super) number: usize,
    pub(super) context: u32,
    pub(super) outcome: Option<Outcome>,
    /// It has ended, or was not started yet.
    pub(super) is_finished: bool,
    /// It stays when it ends, to be started again.
    pub(super) is_persistent: bool,
    /// Bytes of the attached buffer that its data takes; `None`: it is no buffered send.
    pub(super) attached: Option<usize>,
}

/// A request that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Number that the program gave.
    pub(crate) number: usize,
    /// What a receive got; `None`: a send, or a cancelled receive.
    pub(crate) outcome: Option<Outcome>,
    /// The memory of the data.
    pub(crate) bytes: Box<[u8]>,
    /// Whether it has ended because its peer is lost.
    pub(crate) has_failed: bool,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    request: Option<Request>,
}

#[derive(Default)]
pub(super) struct Requests {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Requests {
    pub(super) fn add(&mut self, request: Request) -> Handle {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.request = Some(request);
        Handle { index, generation: slot.generation }
    }

    fn slot(&mut self, handle: Handle) -> &mut Slot {
        let slot = &mut self.slots[handle.index as usize];
        assert!(slot.generation == handle.generation, "a request is used after it was given back");
        slot
    }

    pub(super) fn get(&mut self, handle: Handle) -> &mut Request {
        self.slot(handle).request.as_mut().expect("a request is used while it is there")
    }

    pub(super) fn cores(&mut self, handles: [Handle; 2]) -> [&mut Core<Process>; 2] {
        let places = handles.map(|handle| handle.index as usize);
        let slots = self.slots.get_disjoint_mut(places).expect("two requests");
        slots.map(|slot| &mut slot.request.as_mut().expect("a request is used while it is there").core)
    }

    pub(super) fn remove(&mut self, handle: Handle) -> Request {
        let slot = self.slot(handle);
        slot.generation = (slot.generation + 1) & ((1 << Handle::GENERATION) - 1);
        let request = slot.request.take().expect("a request is given back once");
        self.free.push(handle.index);
        request
    }

    /// Number of requests in use.
    pub(super) fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the requests in use.
    pub(super) fn all(&self) -> Vec<Handle> {
        let all = self.slots.iter().zip(0..).filter(|(slot, _)| slot.request.is_some());
        all.map(|(slot, index)| Handle { index, generation: slot.generation }).collect()
    }

    /// Whether a request, active or not, refers to this communicator.
    pub(super) fn refer_to(&self, context: u32) -> bool {
        self.slots.iter().any(|slot| slot.request.as_ref().is_some_and(|request| request.context == context))
    }
}
