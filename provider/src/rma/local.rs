// SPDX-License-Identifier: MIT OR Apache-2.0
//! The local memory of one-sided operations: short data are copied to or from registered slots of the port, long ones
//! are registered by the endpoint's cache of registrations.
//!
//! Called by `rma`. Grade: pending; a registration may be a system call. Threads: the one that has entered the endpoint.
//! Tests: `hw-tests/libfabric`.

use ibex::messenger::host::Data as _;
use ibex::transport::Port;
use ibex::transport::adapter::verbs::Verbs;
use ibex_ffi::verbs::{Access, LocalSpan};

use super::segments::Span;
use super::{Direction, Transfer};
use crate::atomic::adapter::Exchange;
use crate::entry::Result;
use crate::host::data::Data;
use crate::registration::{Registered, Registrations};
use crate::{log, mr, sys};

/// Size of a slot, bytes: up to this length a copy costs less than a registration.
const SLOT: u32 = 16 << 10;

/// Slots that are registered at a time, and most slots.
const STEP: u32 = 16;
const MOST: u32 = 256;

/// What an operation holds until it ends.
pub(crate) enum Local {
    /// Nothing: the port has the bytes.
    None,
    /// A slot, and for a read the memory that gets the data.
    Slot(LocalSpan, Option<Data>),
    /// Registrations of the pieces.
    Registered(Vec<Registered>),
    /// Of an atomic operation by the target's processor.
    Results(Results),
    /// Of one by the adapter that needs several requests: a slot, and the memory that gets the old value.
    Exchange(LocalSpan, Option<Data>, Box<Exchange>),
}

/// What an atomic operation waits for.
pub(crate) struct Results {
    /// Where its old values go, and how many bytes have come.
    pub(crate) data: Data,
    pub(crate) taken: usize,
    /// The number of its messages, and of those among them that the peer has not answered.
    pub(crate) messages: u32,
    pub(crate) unanswered: u32,
}

/// Registered slots.
#[derive(Default)]
pub(crate) struct Slots {
    free: Vec<LocalSpan>,
    count: u32,
}

impl Slots {
    /// Makes the local memory of an operation ready for the adapter, and says where it is. `FI_EAGAIN`: all slots are
    /// in use, by operations that have not ended. `FI_ENOMEM`: no slot can be registered.
    pub(super) fn prepare(
        &mut self,
        port: &mut Port<Verbs>,
        registrations: &mut Registrations,
        of: &Transfer<'_>,
    ) -> Result<(Local, Vec<Span>)> {
        let length = of.length();
        if length > SLOT as usize {
            return register(registrations, of);
        }
        let slot = self.take(port)?;
        let mut data = Data::of(of.local);
        let into = match of.direction {
            Direction::Read => Some(data),
            Direction::Write => {
                data.take_all(bytes(slot, length));
                None
            }
        };
        // SAFETY: R3: slots stay registered as long as the port; R2: this one is the adapter's until `end`.
        let span = unsafe { Span::registered(slot.addr(), length, slot.lkey()) };
        Ok((Local::Slot(slot, into), vec![span]))
    }

    pub(crate) fn take(&mut self, port: &mut Port<Verbs>) -> Result<LocalSpan> {
        if self.free.is_empty() && self.count < MOST {
            match port.grow(SLOT, STEP) {
                Ok(slots) => self.free = slots,
                Err(error) => log::line(sys::FI_LOG_WARN, sys::FI_LOG_EP_DATA, &error.to_string()),
            }
            self.count += self.free.len() as u32;
        }
        self.free.pop().ok_or(if self.count == 0 { sys::FI_ENOMEM } else { sys::FI_EAGAIN })
    }

    /// Takes back what an operation held. The adapter does not use it any more. `is_done`: a read's data are there.
    pub(crate) fn end(&mut self, registrations: &mut Registrations, local: Local, is_done: bool) {
        match local {
            Local::Slot(slot, into) | Local::Exchange(slot, into, _) => {
                if let Some(mut data) = into.filter(|_| is_done) {
                    let length = data.length();
                    data.put(bytes(slot, length));
                }
                self.free.push(slot);
            }
            Local::Registered(all) => {
                for registered in all {
                    registrations.give_back(registered);
                }
            }
            Local::None | Local::Results(_) => {}
        }
    }
}

/// Returns the first bytes of a slot that the adapter does not use.
pub(crate) fn bytes<'a>(slot: LocalSpan, length: usize) -> &'a mut [u8] {
    // SAFETY: R1, R2: a slot of the port, which only this endpoint uses, entered by one thread; no request of its
    // operation is posted. The reference is used at once.
    let bytes = unsafe { slot.bytes_mut() };
    &mut bytes[..length]
}

/// Registers each piece of a long operation.
fn register(registrations: &mut Registrations, of: &Transfer<'_>) -> Result<(Local, Vec<Span>)> {
    let access = if of.direction == Direction::Read { Access::LOCAL_WRITE } else { Access::empty() };
    let (mut all, mut spans) = (Vec::new(), Vec::new());
    for piece in of.local.iter().filter(|piece| piece.length() > 0) {
        let (start, length) = (piece.address(), piece.length());
        // SAFETY: A1: the operation gives the registration back before it ends.
        match unsafe { registrations.register(start, length, access) } {
            Ok(registered) => {
                // SAFETY: R3: the registration is given back when the operation has ended; A1: till then the memory is
                // its own.
                spans.push(unsafe { Span::registered(start as u64, length, registered.lkey) });
                all.push(registered);
            }
            Err(error) => {
                for registered in all {
                    registrations.give_back(registered);
                }
                return Err(mr::refused((start, length), &error));
            }
        }
    }
    Ok((Local::Registered(all), spans))
}
