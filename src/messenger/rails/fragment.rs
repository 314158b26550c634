// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packs and posts the copied fragments of a long message: in a send buffer, in ordinary memory, or by shared memory.
//! The protocol is `rendezvous/fragments.rs`.
//!
//! Called by `rails`. Grade: pending. Threads: the one that has entered the messenger, and no port. Tests: those of the
//! hosts.

use std::sync::Arc;

use super::backlog::{self, Then};
use super::send_buffers::BufferId;
use super::{failover, routes, transmit};
use crate::messenger::header::Header;
use crate::messenger::host::{Data, NotPacked, Payload, PortHost, Posted, Process, Record, Transmitted, Types};
use crate::messenger::request::Transfer;
use crate::messenger::request::transfer_id::TransferId;
use crate::messenger::route::Route;

/// A packed fragment with its header.
pub enum Fragment<T> {
    /// In a send buffer of this route's port, with its length.
    Buffered(Route, BufferId, usize),
    /// In ordinary memory, for this route.
    Unregistered(Route, Vec<u8>),
    /// For a process of this machine.
    Local(u32, Place, Payload<T>),
}

/// The number of the receive of a fragment, and the fragment's offset in the message.
type Place = (TransferId, u64);

fn header<H: Types>((receiver, offset): Place) -> Header<H::Envelope> {
    Header::Fragment { receive: receiver.0, offset }
}

type Packed<T> = Result<(Fragment<T>, u64), NotPacked>;

/// Packs the fragment of a send's data that begins at `offset`, where the last one ended.
pub(super) fn pack<H: PortHost>(
    process: &H::Process,
    host: &mut H,
    send: H::Handle,
    (receiver, offset): Place,
) -> Packed<H::Handle> {
    let route = host.core(send).route;
    if let Some(to) = route.as_local() {
        return pack_locally(process, host, send, to, (receiver, offset));
    }
    let header = header::<H>((receiver, offset)).encode();
    let header = header.as_slice();
    let route = routes::home(process, host, route);
    let mut port = process.enter_port(route.rail()).ok_or(NotPacked::Failed)?;
    let buffers = &mut host.messenger().rails.buffers[route.rail()];
    let Some((buffer, span)) = buffers.take_large(&mut port) else {
        if buffers.has_large() {
            return Err(NotPacked::NoBuffer);
        }
        return pack_unregistered(process, host, send, route, (header, offset));
    };
    let length = host.fill(send, span, |data, bytes| {
        let (before, rest) = bytes.split_at_mut(header.len());
        before.copy_from_slice(header);
        data.take_at(offset, rest)
    });
    if length == 0 {
        host.messenger().rails.buffers[route.rail()].give_back(buffer);
        return cannot_pack(host, send);
    }
    Ok((Fragment::Buffered(route, buffer, header.len() + length), length as u64))
}

fn cannot_pack<H: PortHost>(host: &mut H, send: H::Handle) -> Packed<H::Handle> {
    let length = host.core(send).data.length();
    host.cannot_pack(length);
    Err(NotPacked::Failed)
}

/// [`pack`], if the port can register no buffer.
#[cold]
fn pack_unregistered<H: PortHost>(
    process: &H::Process,
    host: &mut H,
    send: H::Handle,
    route: Route,
    (header, offset): (&[u8], u64),
) -> Packed<H::Handle> {
    let rail = process.rail(route.rail()).ok_or(NotPacked::Failed)?;
    let core = host.core(send);
    if matches!(&core.transfer, Transfer::Sending(sending) if sending.is_under_way()) {
        return Err(NotPacked::OneInFlight);
    }
    let mut bytes = vec![0; rail.copy_size];
    bytes[..header.len()].copy_from_slice(header);
    let length = core.data.take_at(offset, &mut bytes[header.len()..]);
    if length == 0 {
        return cannot_pack(host, send);
    }
    bytes.truncate(header.len() + length);
    Ok((Fragment::Unregistered(route, bytes), length as u64))
}

/// [`pack`] for shared memory. Contiguous data is not copied here.
fn pack_locally<H: PortHost>(
    process: &H::Process,
    host: &mut H,
    send: H::Handle,
    to: u32,
    (receiver, offset): Place,
) -> Packed<H::Handle> {
    let room = host.room(process).ok_or(NotPacked::Failed)?;
    let data = &mut host.core(send).data;
    let mut length = (data.length() - offset as usize).min(room);
    let payload = if data.is_contiguous() {
        Payload::Part(send, offset, length)
    } else {
        let mut bytes = vec![0; length];
        length = data.take_at(offset, &mut bytes);
        bytes.truncate(length);
        Payload::Packed(bytes)
    };
    if length == 0 {
        return cannot_pack(host, send);
    }
    Ok((Fragment::Local(to, (receiver, offset), payload), length as u64))
}

/// Gives a fragment to its port. By shared memory, it is in flight only while it waits for room.
pub(super) fn post<H: PortHost>(
    process: &H::Process,
    host: &mut H,
    send: H::Handle,
    fragment: Fragment<H::Handle>,
) -> Posted {
    let is_in_flight = match fragment {
        Fragment::Buffered(route, buffer, length) => post_buffer(process, host, send, route, (buffer, length)),
        Fragment::Unregistered(route, bytes) => {
            let length = bytes.len() as u32;
            let message = (Arc::from(bytes), length, H::token(Record::Sent(send)));
            failover::send_by_home(process, host, route, vec![message])
        }
        Fragment::Local(to, place, payload) => {
            if backlog::send(process, host, to, (header::<H>(place), payload), Then::Fragment(send)) {
                return Posted::Sent;
            }
            true
        }
    };
    if is_in_flight { Posted::InFlight } else { Posted::Failed }
}

/// Posts the first `length` bytes of a buffer of this route's port; if that has failed, sends them by another one.
/// Returns false if no port takes them.
fn post_buffer<H: PortHost>(
    process: &H::Process,
    host: &mut H,
    send: H::Handle,
    route: Route,
    (buffer, length): (BufferId, usize),
) -> bool {
    let Some(mut port) = process.enter_port(route.rail()) else { return false };
    let bytes = host.messenger().rails.buffers[route.rail()].set_fragment(buffer, send, length);
    let transmitted = transmit::fragment::<H>(&mut port, route, (buffer, bytes));
    transmit::note(process, &mut port, route, transmitted);
    drop(port);
    if transmitted != Transmitted::Failed {
        return true;
    }
    let parts = failover::out_of_buffer(process, host, route, (buffer, bytes));
    failover::send_by_home(process, host, route, parts)
}
