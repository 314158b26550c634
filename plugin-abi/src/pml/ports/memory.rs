// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that the PML's adapters access, registered by Open MPI's cache; and the tokens of the PML.
//!
//! Called by `engine::messenger::rails`. Grade: hot for tokens, else pending. Threads: the one that has entered the
//! PML. Tests: below, and `pml/tests.rs`.

use engine::messenger::host::{Memory, Record};
use engine::messenger::rails::send_buffers::BufferId;
use engine::messenger::rendezvous::stripes::Part;
use engine::transport::Token;
use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::{Access, InlineSpan, LocalSpan};

use crate::pml::datatype::UserData;
use crate::pml::instance::{Pml, State};
use crate::pml::request::Handle;
use crate::runtime::memory::Registered;
use crate::runtime::token::{self, Face, RecordKind};

impl Memory for State {
    fn address(&mut self, request: Handle) -> Option<u64> {
        let start = self.requests.core(request).data.extent().start;
        (!start.is_null()).then(|| start.expose_provenance() as u64)
    }

    fn register(
        &mut self,
        pml: &Pml,
        request: Handle,
        rail: usize,
        length: usize,
        access: Access,
    ) -> Option<Registered> {
        let start = self.requests.core(request).data.extent().start;
        let memory = pml.rails().get(rail)?.port().memory();
        let is_read = access.contains(Access::REMOTE_READ);
        let access = if is_read { sys::MCA_RCACHE_ACCESS_REMOTE_READ } else { sys::MCA_RCACHE_ACCESS_LOCAL_WRITE };
        // SAFETY: P2, M3: the memory is mapped until the request is finished, and the engine ends the registration
        // before.
        unsafe { memory.register(start.cast(), length, access) }
    }

    fn deregister(&mut self, pml: &Pml, rail: usize, registered: Registered) {
        if let Some(rail) = pml.rails().get(rail) {
            // SAFETY: R3: no read of ours is in flight; or the peer has answered the announcement, so it has read the
            // message, or will not read it.
            unsafe { rail.port().memory().put_back(registered) };
        }
    }

    fn rkey(registered: Registered) -> u32 {
        registered.rkey()
    }

    fn target(&mut self, receive: Handle, Part { offset, length }: Part, registered: Registered) -> LocalSpan {
        let start = self.requests.core(receive).data.extent().start.wrapping_add(offset as usize);
        // SAFETY: R3: the part stays registered under this key until the last read completes; R2, P2: until then it
        // belongs to the adapter.
        unsafe { LocalSpan::new(start.expose_provenance() as u64, length, registered.lkey()) }
    }

    #[inline]
    fn inline<R>(&mut self, send: Handle, post: impl FnOnce(InlineSpan<'_>) -> R) -> Option<R> {
        let extent = self.requests.core(send).data.extent();
        (!extent.start.is_null()).then(|| post(extent.span()))
    }

    #[inline]
    fn fill<R>(&mut self, send: Handle, buffer: LocalSpan, fill: impl FnOnce(&mut UserData, &mut [u8]) -> R) -> R {
        // SAFETY: R1, R2: the port's memory, which only the PML uses, once at a time (P3).
        let bytes = unsafe { std::slice::from_raw_parts_mut(start(buffer), buffer.len() as usize) };
        fill(&mut self.requests.core(send).data, bytes)
    }

    fn copy_of(&mut self, buffer: LocalSpan) -> Vec<u8> {
        // SAFETY: R1, R2: the port's memory, which only the PML uses, once at a time (P3).
        unsafe { std::slice::from_raw_parts(start(buffer), buffer.len() as usize) }.to_vec()
    }

    #[inline]
    fn token(record: Record<Handle>) -> Token {
        match record {
            Record::Buffer(BufferId(index)) => BUFFER.indexed(index),
            Record::Turn => BUFFER.indexed(BufferId::NONE.0),
            Record::Read(request) => REQUEST.token(request.pointer().as_ptr(), READ),
            Record::Sent(request) => REQUEST.token(request.pointer().as_ptr(), SENT),
        }
    }

    #[inline]
    fn record_of(token: Token) -> Option<Record<Handle>> {
        match RecordKind::of(token) {
            BUFFER => Some(match BufferId(token::index(token)) {
                BufferId::NONE => Record::Turn,
                buffer => Record::Buffer(buffer),
            }),
            REQUEST => {
                // SAFETY: P1: only handles become tokens of this kind, and the port has returned this one.
                let request = unsafe { Handle::new(token::record(token)?) };
                Some(if token::number(token) == SENT { Record::Sent(request) } else { Record::Read(request) })
            }
            _ => None,
        }
    }
}

/// Returns the first byte of a send buffer.
#[inline]
pub(in crate::pml) fn start(buffer: LocalSpan) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(buffer.addr() as usize)
}

const BUFFER: RecordKind = RecordKind::new(Face::Pml, 0);
const REQUEST: RecordKind = RecordKind::new(Face::Pml, 1);

/// Numbers in the tokens of a request: its message is read, or is sent without a buffer.
const READ: u16 = 0;
const SENT: u16 = 1;

/// Returns the send buffer that a token stands for; [`BufferId::NONE`] for a turn.
#[inline]
pub(crate) fn as_buffer(token: Token) -> Option<BufferId> {
    if RecordKind::of(token) == BUFFER { Some(BufferId(token::index(token))) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::NonNull;

    #[test]
    fn a_token_names_its_record_and_a_token_of_the_btl_names_none() {
        // SAFETY: P1: nobody follows this handle.
        let request = unsafe { Handle::new(NonNull::without_provenance(0x1000.try_into().expect("not 0"))) };
        let (least, most) = (BufferId(0), BufferId(u32::MAX - 1));
        for record in
            [Record::Read(request), Record::Sent(request), Record::Buffer(least), Record::Buffer(most), Record::Turn]
        {
            let token = State::token(record);
            assert_ne!(token, Token(0), "which the engine never returns");
            assert_eq!(State::record_of(token), Some(record));
        }
        assert_eq!(
            [least, most].map(|buffer| as_buffer(State::token(Record::Buffer(buffer)))),
            [Some(least), Some(most)]
        );
        let other = RecordKind::new(Face::Btl, 0).indexed(7);
        assert_eq!(
            (State::record_of(other), as_buffer(other), as_buffer(State::token(Record::Turn))),
            (None, None, Some(BufferId::NONE))
        );
    }
}
