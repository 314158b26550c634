// SPDX-License-Identifier: MIT OR Apache-2.0
//! Invented memory: blocks of bytes at addresses that no process has, and their registrations with ports.
//!
//! Addresses and keys are never used again, so an adapter that touches memory after it was freed, beyond its end, or
//! without its registration ends the simulation. Shared by the simulated adapters and by the processes, which name it
//! by address as well. Grade: test. Threads: one; the lock is free. Tests: below.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ibex::transport::adapter::simulated::{self, Span};
use ibex_ffi::verbs::{Access, InlineSpan, LocalSpan};

/// Address of the first block. Blocks are `1 << BLOCK` bytes apart, so an address says which block it is in.
const FIRST: u64 = 1 << 63;
const BLOCK: u32 = 32;

#[derive(Debug)]
struct Registration {
    port: usize,
    start: u64,
    length: usize,
    access: Access,
    is_of_slots: bool,
}

#[derive(Debug, Default)]
struct Table {
    blocks: Vec<Option<Box<[u8]>>>,
    /// Registrations, by key.
    registrations: Vec<Option<Registration>>,
    /// Number of registrations in use, except for those of slots.
    registered: usize,
    /// Ports that refuse to register memory.
    refusing: BTreeSet<usize>,
    /// Messages between processes of one machine, by the ranks of sender and receiver.
    messages: BTreeMap<(u32, u32), VecDeque<Vec<u8>>>,
}

/// Most messages from one process of a machine to another that the receiver has not taken.
const MOST_MESSAGES: usize = 4;

impl Table {
    fn place(start: u64) -> (usize, usize) {
        assert!(start >= FIRST, "0x{start:x} is no address");
        (((start - FIRST) >> BLOCK) as usize, (start as u32) as usize)
    }

    fn add(&mut self, bytes: Box<[u8]>) -> u64 {
        self.blocks.push(Some(bytes));
        FIRST + ((self.blocks.len() as u64 - 1) << BLOCK)
    }

    fn take(&mut self, start: u64) -> Box<[u8]> {
        let (block, offset) = Self::place(start);
        assert_eq!(offset, 0, "a block is freed by its first address");
        self.blocks[block].take().expect("a block is freed once")
    }

    fn bytes(&mut self, start: u64, length: usize) -> &mut [u8] {
        let (block, offset) = Self::place(start);
        let bytes = self.blocks.get_mut(block).and_then(Option::as_mut).expect("memory is used while it is there");
        bytes.get_mut(offset..offset + length).expect("memory is used within its bounds")
    }

    fn register(&mut self, registration: Registration) -> u32 {
        self.registered += usize::from(!registration.is_of_slots);
        self.registrations.push(Some(registration));
        self.registrations.len() as u32
    }

    fn deregister(&mut self, key: u32) -> Registration {
        let known = key.checked_sub(1).and_then(|at| self.registrations.get_mut(at as usize));
        let registration = known.and_then(Option::take).expect("a registration ends once");
        self.registered -= usize::from(!registration.is_of_slots);
        registration
    }

    /// Panics unless a registration of this port with this key covers these bytes and permits `right`.
    fn check(&self, port: usize, (start, length, key): Span, right: Access) {
        let known = key.checked_sub(1).and_then(|at| self.registrations.get(at as usize));
        let known = known.and_then(Option::as_ref).expect("a request names a registration that is there");
        let end = known.start + known.length as u64;
        assert!(known.port == port, "a request names a registration of its port");
        assert!(start >= known.start && start + u64::from(length) <= end, "a request keeps to its registration");
        assert!(known.access.contains(right), "a registration permits its use");
    }
}

/// The memory of all processes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory(Arc<Mutex<Table>>);

impl Memory {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a block with these bytes. Returns its address.
    pub(crate) fn add(&self, bytes: Vec<u8>) -> u64 {
        self.table().add(bytes.into_boxed_slice())
    }

    /// Removes a block. Returns its bytes.
    pub(crate) fn take(&self, start: u64) -> Box<[u8]> {
        self.table().take(start)
    }

    /// Looks at bytes, or changes them.
    pub(crate) fn with<R>(&self, start: u64, length: usize, use_them: impl FnOnce(&mut [u8]) -> R) -> R {
        use_them(self.table().bytes(start, length))
    }

    /// Registers bytes with a port. Returns the key; `None` if the port refuses.
    pub(crate) fn register(&self, port: usize, (start, length): (u64, usize), access: Access) -> Option<u32> {
        let mut table = self.table();
        if table.refusing.contains(&port) {
            return None;
        }
        Some(table.register(Registration { port, start, length, access, is_of_slots: false }))
    }

    /// Ends a registration with a port.
    pub(crate) fn deregister(&self, port: usize, key: u32) {
        assert_eq!(self.table().deregister(key).port, port, "a registration ends at its port");
    }

    /// Sets whether a port refuses to register memory.
    pub(crate) fn refuse(&self, port: usize, refuses: bool) {
        let refusing = &mut self.table().refusing;
        _ = if refuses { refusing.insert(port) } else { refusing.remove(&port) };
    }

    /// Gives a message of one process to another of its machine. Returns false if there is no room.
    pub(crate) fn send(&self, of: (u32, u32), message: Vec<u8>) -> bool {
        let mut table = self.table();
        let queue = table.messages.entry(of).or_default();
        let has_room = queue.len() < MOST_MESSAGES;
        if has_room {
            queue.push_back(message);
        }
        has_room
    }

    /// Takes the oldest message of one process to another.
    pub(crate) fn take_message(&self, of: (u32, u32)) -> Option<Vec<u8>> {
        self.table().messages.get_mut(&of)?.pop_front()
    }

    /// Number of registrations in use, except for those of slots.
    pub(crate) fn registered(&self) -> usize {
        self.table().registered
    }
}

impl simulated::Memory for Memory {
    fn allocate(&mut self, port: usize, length: usize) -> (u64, u32) {
        let mut table = self.table();
        let start = table.add(vec![0; length].into_boxed_slice());
        let access = Access::LOCAL_WRITE;
        (start, table.register(Registration { port, start, length, access, is_of_slots: true }))
    }

    fn free(&mut self, key: u32) {
        let mut table = self.table();
        let Registration { start, is_of_slots, .. } = table.deregister(key);
        assert!(is_of_slots, "the memory of a request is not the adapter's");
        table.take(start);
    }

    fn span(&self, (start, length, key): Span) -> LocalSpan {
        LocalSpan::simulated(start, length, key)
    }

    fn inline(&self, span: InlineSpan<'_>) -> Vec<u8> {
        span.initialised().expect("processes send initialised bytes").into()
    }

    fn read(&self, port: usize, at: Span, right: Access) -> Option<Vec<u8>> {
        let mut table = self.table();
        table.check(port, at, right);
        Some(table.bytes(at.0, at.1 as usize).to_vec())
    }

    fn write(&mut self, port: usize, at: Span, right: Access, bytes: &[u8]) -> Option<()> {
        let mut table = self.table();
        table.check(port, at, right);
        table.bytes(at.0, at.1 as usize).copy_from_slice(bytes);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibex::transport::adapter::simulated::Memory as _;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn is_refused<R>(call: impl FnOnce() -> R) -> bool {
        catch_unwind(AssertUnwindSafe(call)).is_err()
    }

    #[test]
    fn an_adapter_keeps_to_a_registration_and_its_right_and_to_memory_that_is_there() {
        let mut memory = Memory::default();
        let start = memory.add(vec![1, 2, 3, 4]);
        let key = memory.register(5, (start + 1, 2), Access::LOCAL_WRITE).expect("the port registers");
        memory.write(5, (start + 1, 2, key), Access::LOCAL_WRITE, &[7, 8]).expect("permitted");
        assert_eq!(memory.with(start, 4, |bytes| bytes.to_vec()), [1, 7, 8, 4]);
        let right = Access::LOCAL_WRITE;
        for (port, at, right) in [
            (4, (start + 1, 2, key), right),
            (5, (start, 2, key), right),
            (5, (start + 1, 3, key), right),
            (5, (start + 1, 2, key + 1), right),
            (5, (start + 1, 2, key), Access::REMOTE_READ),
        ] {
            assert!(is_refused(|| memory.read(port, at, right)), "{at:?}");
        }
        assert_eq!((&*memory.take(start), memory.registered()), (&[1, 7, 8, 4][..], 1));
        assert!(is_refused(|| memory.read(5, (start + 1, 2, key), right)), "it was freed");
        memory.deregister(5, key);
        assert!(is_refused(|| memory.deregister(5, key)) && memory.registered() == 0);
        memory.refuse(5, true);
        assert!(memory.register(5, (start, 4), right).is_none());
    }
}
