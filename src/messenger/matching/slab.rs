// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a queue's entries, and the list through them in order of arrival. `posted.rs` and `unexpected.rs` name
//! an entry by its place, 32 bits. Callers outside get a [`Handle`], which is refused once its entry has gone. A slab
//! allocates only when it holds more entries than ever before. [`NONE`] marks the end of a list and a missing
//! neighbour. No slab has that place, so the bounds check of an index is also the check for the end. Grade: hot.
//! Threads: one at a time. Tests: below.

pub(super) const NONE: u32 = u32::MAX;

/// The links of an entry in one index (`index.rs`): `next` and `prev` among the entries of its key; `chain` from its
/// key's oldest entry to the next key's in the bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Links {
    pub(super) next: u32,
    /// In the oldest entry of a key: the youngest one.
    pub(super) prev: u32,
    pub(super) chain: u32,
}

const UNLINKED: Links = Links { next: NONE, prev: NONE, chain: NONE };

#[derive(Debug)]
pub(super) struct Entry<E, P, const N: usize> {
    pub(super) key: E,
    /// The next entry in the list, or the next free place.
    pub(super) next: u32,
    pub(super) prev: u32,
    /// Counts every push and removal at this place: odd while an entry is in use.
    generation: u32,
    pub(super) links: [Links; N],
    pub(super) payload: P,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Handle {
    at: u32,
    generation: u32,
}

impl Handle {
    /// The place of the entry, valid while the entry is in use.
    #[inline]
    pub(super) const fn at(self) -> u32 {
        self.at
    }

    #[inline]
    pub(super) const fn bits(self) -> u64 {
        (self.generation as u64) << 32 | self.at as u64
    }

    #[inline]
    pub(super) const fn from_bits(bits: u64) -> Self {
        Handle { at: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// A list through entries of a slab, oldest first.
#[derive(Debug)]
pub(super) struct List {
    pub(super) head: u32,
    tail: u32,
}

impl List {
    pub(super) const EMPTY: List = List { head: NONE, tail: NONE };
}

#[derive(Debug)]
pub(super) struct Slab<E, P, const N: usize> {
    entries: Vec<Entry<E, P, N>>,
    free: u32,
}

impl<E, P, const N: usize> Slab<E, P, N> {
    pub(super) const fn new() -> Self {
        Slab { entries: Vec::new(), free: NONE }
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> Option<&Entry<E, P, N>> {
        self.entries.get(at as usize)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut Entry<E, P, N>> {
        self.entries.get_mut(at as usize)
    }

    #[inline]
    pub(super) fn at(&mut self, at: u32) -> &mut Entry<E, P, N> {
        &mut self.entries[at as usize]
    }

    /// Adds an entry at the end of the list.
    #[inline]
    pub(super) fn push(&mut self, list: &mut List, key: E, payload: P) -> Handle {
        let prev = list.tail;
        let (at, generation) = match self.entries.get_mut(self.free as usize) {
            Some(place) => {
                let at = self.free;
                self.free = place.next;
                place.key = key;
                (place.next, place.prev) = (NONE, prev);
                place.generation = place.generation.wrapping_add(1);
                place.payload = payload;
                (at, place.generation)
            }
            None => self.grow(Entry { key, next: NONE, prev, generation: 1, links: [UNLINKED; N], payload }),
        };
        match self.entries.get_mut(prev as usize) {
            Some(youngest) => youngest.next = at,
            None => list.head = at,
        }
        list.tail = at;
        Handle { at, generation }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, entry: Entry<E, P, N>) -> (u32, u32) {
        assert!(self.entries.len() < NONE as usize, "places have 32 bits");
        let generation = entry.generation;
        self.entries.push(entry);
        ((self.entries.len() - 1) as u32, generation)
    }

    /// Removes the entry from its list and frees its place. The caller may still read the payload.
    pub(super) fn remove(&mut self, list: &mut List, at: u32) -> &mut Entry<E, P, N> {
        self.unlink(list, at);
        let free = std::mem::replace(&mut self.free, at);
        let entry = self.at(at);
        entry.next = free;
        entry.generation = entry.generation.wrapping_add(1);
        entry
    }

    /// Removes the head of the list, which is at `at`. Hot.
    #[inline]
    pub(super) fn remove_head(&mut self, list: &mut List, at: u32) -> &mut Entry<E, P, N> {
        let next = self.at(at).next;
        list.head = next;
        match self.get_mut(next) {
            Some(younger) => younger.prev = NONE,
            None => list.tail = NONE,
        }
        let free = std::mem::replace(&mut self.free, at);
        let entry = self.at(at);
        entry.next = free;
        entry.generation = entry.generation.wrapping_add(1);
        entry
    }

    pub(super) fn move_to(&mut self, from: &mut List, to: &mut List, at: u32) {
        self.unlink(from, at);
        let prev = std::mem::replace(&mut to.tail, at);
        let entry = self.at(at);
        (entry.next, entry.prev) = (NONE, prev);
        match self.get_mut(prev) {
            Some(youngest) => youngest.next = at,
            None => to.head = at,
        }
    }

    /// Moves an entry of the list in front of another.
    pub(super) fn move_before(&mut self, list: &mut List, at: u32, next: u32) {
        self.unlink(list, at);
        let prev = std::mem::replace(&mut self.at(next).prev, at);
        let entry = self.at(at);
        (entry.next, entry.prev) = (next, prev);
        match self.get_mut(prev) {
            Some(older) => older.next = at,
            None => list.head = at,
        }
    }

    /// Returns the payload of the entry that was removed last, until the next push.
    pub(super) fn removed(&self) -> Option<&P> {
        self.get(self.free).map(|entry| &entry.payload)
    }

    fn unlink(&mut self, list: &mut List, at: u32) {
        let &mut Entry { next, prev, .. } = self.at(at);
        match self.get_mut(prev) {
            Some(older) => older.next = next,
            None => list.head = next,
        }
        match self.get_mut(next) {
            Some(younger) => younger.prev = prev,
            None => list.tail = prev,
        }
    }

    pub(super) fn handle(&mut self, at: u32) -> Handle {
        Handle { at, generation: self.at(at).generation }
    }

    /// Returns the place of the handle's entry, if the entry is still there.
    #[inline]
    pub(super) fn resolve(&self, handle: Handle) -> Option<u32> {
        let in_use = handle.generation & 1 != 0;
        let entry = self.get(handle.at)?;
        (in_use && entry.generation == handle.generation).then_some(handle.at)
    }

    /// Returns the entries of the list and their places, oldest first.
    pub(super) fn iter(&self, list: &List) -> impl Iterator<Item = (u32, &Entry<E, P, N>)> {
        let mut at = list.head;
        std::iter::from_fn(move || {
            let entry = self.get(at)?;
            Some((std::mem::replace(&mut at, entry.next), entry))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(slab: &Slab<u64, (), 0>, list: &List) -> Vec<u64> {
        slab.iter(list).map(|(_, entry)| entry.key).collect()
    }

    #[test]
    fn entries_leave_a_list_from_any_place_and_their_places_are_used_again() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let (mut slab, mut list) = (Slab::new(), List::EMPTY);
            for _ in 0..3 {
                for key in 0..3 {
                    slab.push(&mut list, key, ());
                }
                let mut left = vec![0, 1, 2];
                for key in order {
                    let at = slab.iter(&list).find(|(_, entry)| entry.key == key).unwrap().0;
                    slab.remove(&mut list, at);
                    left.retain(|other| *other != key);
                    assert_eq!(keys(&slab, &list), left);
                }
            }
            assert_eq!(slab.entries.len(), 3);
        }
    }

    #[test]
    fn resolve_refuses_a_handle_whose_place_has_another_entry() {
        let (mut slab, mut list) = (Slab::<u64, (), 0>::new(), List::EMPTY);
        let first = slab.push(&mut list, 1, ());
        assert_eq!(slab.resolve(Handle::from_bits(first.bits())), Some(0));
        slab.remove(&mut list, 0);
        assert_eq!(slab.resolve(first), None);
        // A handle that was never given out.
        assert_eq!(slab.resolve(Handle { at: 0, generation: first.generation + 1 }), None);
        let second = slab.push(&mut list, 2, ());
        assert_eq!((slab.resolve(first), slab.resolve(second)), (None, Some(0)));
        assert_eq!(slab.resolve(Handle { at: NONE, generation: 1 }), None);
    }

    #[test]
    fn an_entry_moves_to_the_end_of_another_list() {
        let (mut slab, mut from, mut to) = (Slab::new(), List::EMPTY, List::EMPTY);
        for key in 0..4 {
            slab.push(&mut from, key, ());
        }
        slab.move_to(&mut from, &mut to, 2);
        slab.move_to(&mut from, &mut to, 0);
        assert_eq!((keys(&slab, &from), keys(&slab, &to)), (vec![1, 3], vec![2, 0]));
    }

    #[test]
    fn an_entry_moves_in_front_of_another_of_its_list() {
        for (at, next, order) in
            [(3, 0, [3, 0, 1, 2]), (3, 2, [0, 1, 3, 2]), (0, 3, [1, 2, 0, 3]), (1, 2, [0, 1, 2, 3])]
        {
            let (mut slab, mut list) = (Slab::new(), List::EMPTY);
            for key in 0..4 {
                slab.push(&mut list, key, ());
            }
            slab.move_before(&mut list, at, next);
            slab.push(&mut list, 9, ());
            assert_eq!(keys(&slab, &list), [&order[..], &[9]].concat());
            slab.remove(&mut list, at);
            let left: Vec<u64> = order.into_iter().filter(|key| *key != u64::from(at)).chain([9]).collect();
            assert_eq!(keys(&slab, &list), left);
        }
    }
}
