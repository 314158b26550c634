// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executes a request of a simulated queue pair at its peer, or refuses it as the InfiniBand specification prescribes
//! (9.9.3, responder side behavior; 11.6.2, completion return status). Called by the network. Grade: test. Threads: the
//! test's.

use super::queue_pair::{QpState, Work};
use super::{Access, Span, State, Status, WorkCompletion, WrId};

/// Why a request was not executed.
pub(super) enum Refused {
    /// The peer has no receive: the requester tries again.
    NotReady,
    /// The requester may not write to its own memory.
    Here,
    /// The peer does not accept the request, and is in error.
    There(Status),
}

const REMOTE: Refused = Refused::There(Status::REMOTE_ACCESS);
const INVALID: Refused = Refused::There(Status::REMOTE_INVALID_REQUEST);

impl State {
    /// Executes a request of queue pair `from`, with these bytes, at queue pair `at`.
    pub(super) fn execute(&mut self, from: usize, at: usize, work: &Work, bytes: &[u8]) -> Result<(), Refused> {
        let (sender, receiver) = (self.qps[from].port, self.qps[at].port);
        let allows = |right| if self.qps[at].access.contains(right) { Ok(()) } else { Err(INVALID) };
        match *work {
            Work::Send { immediate, .. } => self.deliver(at, bytes, Some(immediate)).map(|_slot| ()),
            Work::Write { remote: (address, rkey), .. } => {
                allows(Access::REMOTE_WRITE)?;
                self.put(receiver, (address, bytes.len() as u32, rkey), Access::REMOTE_WRITE, bytes).ok_or(REMOTE)
            }
            Work::Read { local, remote: (address, rkey) } => {
                allows(Access::REMOTE_READ)?;
                let remote = (address, local.1, rkey);
                let bytes = self.get(receiver, remote, Access::REMOTE_READ).ok_or(REMOTE)?;
                self.put(sender, local, Access::LOCAL_WRITE, &bytes).ok_or(Refused::Here)
            }
            Work::Atomic { local, remote: (address, rkey), compare, operand } => {
                allows(Access::REMOTE_ATOMIC)?;
                if address % 8 != 0 {
                    return Err(INVALID);
                }
                let remote = (address, 8, rkey);
                let before = self.get(receiver, remote, Access::REMOTE_ATOMIC).ok_or(REMOTE)?;
                let old = u64::from_ne_bytes(before[..].try_into().expect("8 bytes"));
                let new = match compare {
                    None => old.wrapping_add(operand),
                    Some(expected) if old == expected => operand,
                    Some(_) => old,
                };
                self.put(receiver, remote, Access::REMOTE_ATOMIC, &new.to_ne_bytes()).ok_or(REMOTE)?;
                self.put(sender, local, Access::LOCAL_WRITE, &before).ok_or(Refused::Here)
            }
        }
    }

    /// Delivers a message to a queue pair. Returns the slot that it fills.
    pub(super) fn deliver(&mut self, at: usize, bytes: &[u8], immediate: Option<u32>) -> Result<u32, Refused> {
        let qp = &self.qps[at];
        assert!(qp.state.receives(), "queue pair {at} cannot receive: {:?}", qp.state);
        let (number, port) = (qp.number, qp.port);
        let slot = self.ports[port].receives.pop_front().ok_or(Refused::NotReady)?;
        let (start, size, key) = self.ports[port].slots.at(slot).expect("a posted slot is there");
        let length = bytes.len() as u32;
        let fits = length <= size;
        if fits {
            self.put(port, (start, length, key), Access::LOCAL_WRITE, bytes).expect("a slot is registered");
        }
        let status = if fits { Status::SUCCESS } else { Status::LOCAL_LENGTH };
        let completion = WorkCompletion::scripted(WrId::receive(slot).0, status, length, immediate, number);
        self.ports[port].completions.push_back(completion);
        if fits { Ok(slot) } else { Err(INVALID) }
    }

    /// Refuses a request: completes those carried before it successfully, and puts its queue pair in error.
    pub(super) fn refuse(&mut self, index: usize, status: Status) {
        while self.qps[index].carried > 0 {
            self.complete(index, Status::SUCCESS);
        }
        self.qps[index].state = QpState::Error;
        self.complete(index, status);
    }

    /// Returns the bytes that a request carries: inline ones, then those in memory. `None`: a key does not permit it.
    pub(super) fn gather(&self, port: usize, work: &Work) -> Option<Vec<u8>> {
        let (Work::Send { inline, spans, .. } | Work::Write { inline, spans, .. }) = work else {
            return Some(Vec::new());
        };
        let mut bytes = inline.clone();
        for at in spans {
            bytes.extend_from_slice(&self.get(port, *at, Access::empty())?);
        }
        Some(bytes)
    }

    /// Reads. The key of a read of no bytes is not checked (InfiniBand specification, C9-88).
    fn get(&self, port: usize, at: Span, right: Access) -> Option<Vec<u8>> {
        if at.1 == 0 { Some(Vec::new()) } else { self.memory.read(port, at, right) }
    }

    /// Writes, like [`Self::get`].
    fn put(&mut self, port: usize, at: Span, right: Access, bytes: &[u8]) -> Option<()> {
        if at.1 == 0 { Some(()) } else { self.memory.write(port, at, right, bytes) }
    }
}
