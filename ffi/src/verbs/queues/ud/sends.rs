// SPDX-License-Identifier: MIT OR Apache-2.0
//! Slots in flight of a datagram queue pair, each with the address handle that it needs until its completion. Owned by
//! `ud`. Setup grade; one thread at a time (`&mut`). Needs no device. Tests: at the end of the file.

use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Sends<W> {
    /// By slot; `None` for a free one.
    under_way: Box<[Option<Arc<W>>]>,
    free: Vec<u32>,
}

impl<W> Sends<W> {
    pub(super) fn new(depth: u32) -> Self {
        Sends { under_way: (0..depth).map(|_| None).collect(), free: (0..depth).rev().collect() }
    }

    /// Takes a slot for a send that names `way`, which it keeps until [`Self::end`]. `None`: no slot is free.
    pub(super) fn begin(&mut self, way: &Arc<W>) -> Option<u32> {
        let slot = self.free.pop()?;
        self.under_way[slot as usize] = Some(Arc::clone(way));
        Some(slot)
    }

    /// Frees the slot of a send that has completed, or was not posted. Ignores a slot that is not in flight.
    pub(super) fn end(&mut self, slot: u32) {
        let ended = self.under_way.get_mut(slot as usize).and_then(Option::take);
        if ended.is_some() {
            self.free.push(slot);
        }
    }

    pub(super) fn end_all(&mut self) {
        (0..self.under_way.len() as u32).for_each(|slot| self.end(slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_handle_lives_until_the_last_send_that_names_it_has_completed() {
        let mut sends = Sends::new(4);
        let way = Arc::new("a way");
        let slots: Vec<u32> = (0..3).filter_map(|_| sends.begin(&way)).collect();
        let destroyed = Arc::downgrade(&way);
        drop(way);
        for slot in slots {
            assert!(destroyed.upgrade().is_some());
            sends.end(slot);
        }
        assert!(destroyed.upgrade().is_none());
    }

    #[test]
    fn begin_takes_no_slot_whose_send_has_not_completed() {
        let mut sends = Sends::new(2);
        let way = Arc::new(());
        let (first, second) = (sends.begin(&way).expect("free"), sends.begin(&way).expect("free"));
        assert_ne!(first, second);
        assert_eq!(sends.begin(&way), None);
        sends.end(second);
        assert_eq!(sends.begin(&way), Some(second));
    }

    #[test]
    fn a_completion_that_belongs_to_no_send_frees_no_slot() {
        let mut sends = Sends::new(1);
        let way = Arc::new(());
        sends.end(0);
        sends.end(7);
        assert_eq!((sends.begin(&way), sends.begin(&way)), (Some(0), None));
        sends.end(0);
        sends.end(0);
        assert_eq!((sends.begin(&way), sends.begin(&way)), (Some(0), None));
    }

    #[test]
    fn an_emptied_queue_has_all_its_slots_free_and_keeps_no_address_handle() {
        let mut sends = Sends::new(3);
        let way = Arc::new(());
        let _ = (sends.begin(&way), sends.begin(&way));
        sends.end_all();
        assert_eq!(Arc::strong_count(&way), 1);
        let mut slots: Vec<u32> = std::iter::from_fn(|| sends.begin(&way)).collect();
        slots.sort_unstable();
        assert_eq!(slots, [0, 1, 2]);
    }
}
