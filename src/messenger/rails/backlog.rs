// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends by shared memory. A control message or a fragment that finds no room waits, in order, in the [`Backlog`]. A
//! message that begins a send pends in flow control instead, and only its turn waits here. Contiguous data is not
//! copied, because a request lives until its fragment is sent.
//!
//! Called by `rails` and `fragment`, and by the host's poll ([`send_waiting`]). Grade: pending. Threads: the one that
//! has entered the messenger. Tests: `plugin-abi/src/pml/tests/shared_memory.rs`.

use std::collections::VecDeque;

use crate::messenger::header::Header;
use crate::messenger::host::{Data, Payload, PortHost, Transmitted, Types};
use crate::messenger::rendezvous::fragments;
use crate::messenger::route::Route;

/// Action once a message has been sent. `T` names a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then<T> {
    /// None.
    Nothing,
    /// Continue this send: it was a fragment.
    Fragment(T),
}

enum Waiting<H: Types> {
    Message(Header<H::Envelope>, Payload<H::Handle>, Then<H::Handle>),
    /// The turn of pending messages.
    Turn,
}

/// Queues of messages, by the place of the receiver on the machine.
pub struct Backlog<H: Types> {
    queues: Vec<VecDeque<Waiting<H>>>,
    count: usize,
}

impl<H: Types> Default for Backlog<H> {
    fn default() -> Self {
        Backlog { queues: Vec::new(), count: 0 }
    }
}

impl<H: Types> Backlog<H> {
    /// Whether no message or turn waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether a message or a turn waits for a process.
    pub fn waits_for(&self, to: u32) -> bool {
        self.queues.get(to as usize).is_some_and(|queue| !queue.is_empty())
    }
}

fn push<H: PortHost>(process: &H::Process, host: &mut H, to: u32, waiting: Waiting<H>) {
    host.hold_up(process, to, true);
    let (backlog, place) = (&mut host.messenger().rails.backlog, to as usize);
    if backlog.queues.len() <= place {
        backlog.queues.resize_with(place + 1, VecDeque::new);
    }
    backlog.queues[place].push_back(waiting);
    backlog.count += 1;
}

/// Sends a control message or a fragment, or queues it behind others. True: it is sent, and the caller does `then`.
pub(super) fn send<H: PortHost>(
    process: &H::Process,
    host: &mut H,
    to: u32,
    (header, payload): (Header<H::Envelope>, Payload<H::Handle>),
    then: Then<H::Handle>,
) -> bool {
    if !host.messenger().rails.backlog.waits_for(to) && host.send_locally(process, to, &header, &payload) {
        return true;
    }
    push(process, host, to, Waiting::Message(header, payload, then));
    false
}

/// Sends a message without data.
pub(super) fn control<H: PortHost>(process: &H::Process, host: &mut H, to: u32, header: &Header<H::Envelope>) {
    send(process, host, to, (*header, Payload::Nothing), Then::Nothing);
}

/// Sends header and data of a send, unless messages wait or there is no room.
#[inline(never)]
pub(super) fn send_whole<H: PortHost>(
    process: &H::Process,
    host: &mut H,
    to: u32,
    header: &Header<H::Envelope>,
    send: H::Handle,
) -> Transmitted {
    if host.messenger().rails.backlog.waits_for(to) {
        return Transmitted::NoRoom;
    }
    let data = &mut host.core(send).data;
    let length = data.length();
    let payload = if data.is_contiguous() {
        Payload::Part(send, 0, length)
    } else {
        let mut packed = vec![0; length];
        if !data.take_all(&mut packed) {
            host.cannot_pack(length);
            return Transmitted::Failed;
        }
        Payload::Packed(packed)
    };
    if host.send_locally(process, to, header, &payload) { Transmitted::Posted } else { Transmitted::NoRoom }
}

/// Queues the turn of pending messages.
pub(super) fn queue_turn<H: PortHost>(process: &H::Process, host: &mut H, to: u32) {
    push(process, host, to, Waiting::Turn);
}

/// Sends messages that wait, as far as there is room. Returns their number.
#[cold]
#[inline(never)]
pub fn send_waiting<H: PortHost>(process: &H::Process, host: &mut H) -> usize {
    let mut count = 0;
    for to in 0..host.messenger().rails.backlog.queues.len() as u32 {
        while let Some(waiting) = pop(host, to) {
            if let Waiting::Message(header, payload, _) = &waiting
                && !host.send_locally(process, to, header, payload)
            {
                put_back(host, to, waiting);
                break;
            }
            if !host.messenger().rails.backlog.waits_for(to) {
                host.hold_up(process, to, false);
            }
            match waiting {
                // A turn does not count: messages that find no room get one with each poll.
                Waiting::Turn => {
                    host.messenger().flow.turns.push(Route::local(to));
                    host.has_turn();
                }
                Waiting::Message(.., then) => {
                    count += 1;
                    if let Then::Fragment(request) = then {
                        fragments::done(process, host, request);
                    }
                }
            }
        }
    }
    count
}

fn pop<H: PortHost>(host: &mut H, to: u32) -> Option<Waiting<H>> {
    let backlog = &mut host.messenger().rails.backlog;
    let first = backlog.queues[to as usize].pop_front()?;
    backlog.count -= 1;
    Some(first)
}

fn put_back<H: PortHost>(host: &mut H, to: u32, waiting: Waiting<H>) {
    let backlog = &mut host.messenger().rails.backlog;
    backlog.queues[to as usize].push_front(waiting);
    backlog.count += 1;
}
