// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that the adapter of an endpoint accesses: that of operations, which is registered for long messages, and
//! the slots of the port.
//!
//! Grade: hot for received messages and send buffers, else pending. Threads: the one that has entered the endpoint.
//! Tests: `hw-tests`.

use ibex::libfabric::{Data as _, Memory};
use ibex::messenger::rendezvous::stripes::Part;
use ibex::transport::ReceivedMessage;
use ibex_ffi::verbs::{Access, LocalSpan};

use super::data::Data;
use crate::registration::{Registered, Registrations};

impl Memory for Registrations {
    type Data = Data;
    type Registered = Registered;
    type Received<'m> = &'m [u8];

    fn register(&mut self, data: &Data, length: usize, access: Access) -> Option<Registered> {
        let start = data.address()? as usize;
        // SAFETY: A1: the messenger gives the registration back before the operation ends.
        unsafe { self.of_message(start, length, access) }
    }

    fn give_back(&mut self, registered: Registered) {
        Registrations::give_back(self, registered);
    }

    fn rkey(registered: Registered) -> u32 {
        registered.rkey
    }

    fn target(&self, data: &Data, Part { offset, length }: Part, registered: Registered) -> LocalSpan {
        // SAFETY: R3: the part stays registered under this key until the last read completes; R2, A1: until then it
        // belongs to the adapter.
        unsafe { LocalSpan::new(data.address().unwrap_or(0) + offset, length, registered.lkey) }
    }

    #[inline]
    fn fill<R>(&self, buffer: LocalSpan, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        // SAFETY: R1, R2: a free send buffer of the port, which only this endpoint uses, entered by one thread.
        fill(unsafe { buffer.bytes_mut() })
    }

    #[inline(always)]
    fn received<'m>(&self, message: &'m ReceivedMessage) -> &'m [u8] {
        let start = std::ptr::with_exposed_provenance(message.address() as usize);
        // SAFETY: R1, R2: only a port makes a `ReceivedMessage`, for a slot that the adapter has filled, and lends it
        // until it posts the slot again.
        unsafe { std::slice::from_raw_parts(start, message.length() as usize) }
    }
}
