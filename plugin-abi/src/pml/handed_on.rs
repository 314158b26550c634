// SPDX-License-Identifier: MIT OR Apache-2.0
//! Batches in which another face has something: polled while the PML was entered, and handed on when it has been left.
//!
//! A rail gets another batch meanwhile, as what is handed on may poll again. Batches are used again, so that a put of
//! the BTL's costs no allocation. Called by `progress`. Grade: hot where the other face is in use. Threads: who has
//! entered the PML.

use engine::events::{PolledBatch, SourceId};
use engine::transport::Batch;

/// What was polled from a rail, linked with what was polled after it. The batch is first, so that a poll has its
/// address.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Taken {
    pub(crate) batch: Batch,
    pub(crate) rail: usize,
    /// While a tool listens: that events of it are yet to be raised, on the source of its port.
    pub(crate) polled: Option<(SourceId, PolledBatch)>,
    pub(crate) next: Option<Box<Taken>>,
}

/// Batches to be handed on, and those that were.
#[derive(Default)]
pub(crate) struct HandedOn {
    first: Option<Box<Taken>>,
    spare: Option<Box<Taken>>,
}

impl HandedOn {
    /// Keeps what was taken from a rail, and gives it an empty batch.
    pub(crate) fn keep(&mut self, rail: usize, taken: &mut Box<Taken>) {
        let mut empty = self.spare.take().unwrap_or_default();
        self.spare = empty.next.take();
        std::mem::swap(taken, &mut empty);
        empty.rail = rail;
        // Hardly ever is there one already.
        let mut place = &mut self.first;
        while let Some(earlier) = place {
            place = &mut earlier.next;
        }
        *place = Some(empty);
    }

    /// Takes the first of those that are kept; the others follow it.
    pub(crate) fn take(&mut self) -> Option<Box<Taken>> {
        self.first.take()
    }

    /// Takes one back that was handed on, and emptied.
    pub(crate) fn give_back(&mut self, mut taken: Box<Taken>) {
        taken.next = self.spare.take();
        self.spare = Some(taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_handed_on_in_order_and_used_again() {
        let (mut handed_on, mut of_rail) = (HandedOn::default(), Box::<Taken>::default());
        let address = std::ptr::from_ref::<Taken>(&of_rail);
        handed_on.keep(0, &mut of_rail);
        handed_on.keep(1, &mut of_rail);
        let mut first = handed_on.take().expect("two are kept");
        let second = first.next.take().expect("the other follows");
        assert_eq!((first.rail, second.rail, second.next.is_none()), (0, 1, true));
        assert!(handed_on.take().is_none());
        handed_on.give_back(second);
        handed_on.give_back(first);
        handed_on.keep(0, &mut of_rail);
        assert!(std::ptr::eq(address, &raw const *of_rail), "used again");
    }
}
