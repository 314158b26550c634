// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processes of one machine: their messages go by invented shared memory, and a receiver has the kernel copy long
//! data. The kernel sometimes refuses, sometimes fails, and sometimes takes until the next poll. Grade: test. Threads:
//! one.

use ibex::messenger::header::{Header, MAX_SIZE};
use ibex::messenger::host::{Host as _, Payload, Peers as _, SharedMemory};
use ibex::messenger::matching::Envelope;
use ibex::messenger::rails::backlog;
use ibex::messenger::receive::search;
use ibex::messenger::rendezvous::single_copy;
use ibex::messenger::route::Route;

use super::{Handle, Process, Shared};

/// Longest data that is sent eagerly to a process of this machine, bytes.
pub(super) const EAGER: usize = 96;

/// Longest data of a message, bytes.
const ROOM: usize = 1000;

/// A copy that the kernel makes at the next poll: the receive, and address and number of the bytes.
pub(super) struct Copy {
    receive: Handle,
    of: (u64, u64),
    fails: bool,
}

impl Process {
    /// Sends a short message unless others wait before it. Returns false if there is no room.
    pub(super) fn sends_locally_at_once(&mut self, to: u32, header: &[u8], data: &[u8]) -> bool {
        data.len() <= EAGER && !self.held_up.contains(&to) && self.memory.send((self.rank, to), [header, data].concat())
    }

    /// Takes a message of each process of this machine, and sends those that wait. Returns the number of both.
    pub(super) fn poll_locally(&mut self, shared: &Shared) -> usize {
        let mut count = 0;
        for Copy { receive, of, fails } in std::mem::take(&mut self.copies) {
            count += 1;
            self.copies_now(shared, receive, of, fails);
        }
        let first = self.rank / self.settings.per_host * self.settings.per_host;
        for from in first..first + self.settings.per_host {
            let Some(bytes) = self.memory.take_message((from, self.rank)) else { continue };
            count += 1;
            let (header, _) = Header::<Envelope>::decode(&bytes).expect("processes send headers");
            if !matches!(header, Header::Eager(_)) {
                self.handle(shared, &bytes, || Some(Route::local(from)));
            } else if !self.taking(|process| search::is_taken(process, &bytes, |_| None, None)) {
                // An eager message does not name its sender.
                self.handle(shared, &bytes, || Some(Route::UNKNOWN));
            }
        }
        if self.messenger.rails.backlog.is_empty() { count } else { count + backlog::send_waiting(shared, self) }
    }

    /// Has the kernel copy bytes to a receive, unless it refuses. Returns whether it does not.
    pub(super) fn kernel_copies(&mut self, shared: &Shared, receive: Handle, of: (u64, u64)) -> bool {
        self.copied += 1;
        match self.copied % 4 {
            0 => return false,
            1 => self.copies_now(shared, receive, of, false),
            rest => self.copies.push(Copy { receive, of, fails: rest == 2 }),
        }
        true
    }

    fn copies_now(&mut self, shared: &Shared, receive: Handle, (address, wanted): (u64, u64), fails: bool) {
        if !fails {
            let bytes = self.memory.with(address, wanted as usize, |bytes| bytes.to_vec());
            let to = self.core(receive).data.extent().expect("the kernel copies to data without gaps").0;
            self.memory.with(to, bytes.len(), |to| to.copy_from_slice(&bytes));
        }
        single_copy::done(shared, self, receive, !fails);
    }
}

impl SharedMemory for Process {
    fn room(&self, _: &Shared) -> Option<usize> {
        (self.settings.per_host > 1).then_some(ROOM)
    }

    fn send_locally(&mut self, _: &Shared, to: u32, header: &Header, payload: &Payload<Handle>) -> bool {
        let data = match payload {
            Payload::Nothing => Vec::new(),
            Payload::Packed(bytes) => bytes.clone(),
            Payload::Part(send, offset, length) => {
                self.core(*send).data.packed()[*offset as usize..][..*length].to_vec()
            }
        };
        let header = header.encode();
        assert!(header.as_slice().len() <= MAX_SIZE && data.len() <= ROOM, "a message has room");
        self.memory.send((self.rank, to), [header.as_slice(), &data].concat())
    }

    fn hold_up(&mut self, _: &Shared, to: u32, waits: bool) {
        _ = if waits { self.held_up.insert(to) } else { self.held_up.remove(&to) };
    }
}
