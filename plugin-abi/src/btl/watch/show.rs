// SPDX-License-Identifier: MIT OR Apache-2.0
//! A step of a message as the events of a transfer.
//!
//! Path: behind the branch of a site. Threads: any. Plain functions.

use engine::events::{
    EagerChosen, EventGroup, MsgArrived, Payload, RendezvousChosen, XferBegin, XferContinue, XferEnd,
};

use super::step::Step;

/// How a message goes.
pub(super) trait Chosen: Payload {
    fn of(step: &Step) -> Self;
}

/// The structures with the elements of [`Step`], made from it.
macro_rules! chosen {
    ($($type:ident)*) => {$(
        impl Chosen for $type {
            fn of(step: &Step) -> Self {
                let envelope = step.envelope;
                $type {
                    bytes: step.total,
                    context: u32::from(envelope.context),
                    tag: envelope.tag,
                    sequence: u32::from(envelope.sequence),
                    peer: step.peer.rank,
                }
            }
        }
    )*};
}
chosen!(EagerChosen RendezvousChosen);

pub(super) fn choose<P: Chosen>(together: &mut EventGroup, step: &Step) {
    together.add(|| P::of(step));
}

/// The same elements in three types: `$type` of a step with this offset and so many bytes.
macro_rules! piece {
    ($type:ident, $step:expr, $offset:expr, $bytes:expr) => {
        $type {
            request: $step.request,
            message: $step.message,
            offset: $offset,
            bytes: $bytes,
            total: $step.total,
            context: u32::from($step.envelope.context),
            source: $step.envelope.source,
            tag: $step.envelope.tag,
            sequence: u32::from($step.envelope.sequence),
            direction: u32::from($step.received),
            peer: $step.peer.rank,
        }
    };
}

/// The arrival of a message.
pub(super) fn show_message(together: &mut EventGroup, step: &Step) {
    let envelope = step.envelope;
    together.add(|| MsgArrived {
        message: step.message,
        bytes: step.bytes,
        total: step.total,
        context: u32::from(envelope.context),
        source: envelope.source,
        tag: envelope.tag,
        sequence: u32::from(envelope.sequence),
        peer: step.peer.rank,
    });
}

/// The events of a step but for the arrival of the message. The bytes of a message of one piece are in its begin.
pub(super) fn show(together: &mut EventGroup, step: &Step) {
    match (step.first, step.last) {
        (true, true) => {
            together.add(|| piece!(XferBegin, step, step.offset, step.bytes));
            together.add(|| piece!(XferEnd, step, step.total, 0));
        }
        (true, false) => together.add(|| piece!(XferBegin, step, step.offset, step.bytes)),
        // What announces a message without bytes of it.
        (false, false) if step.arrives => {}
        (false, false) => together.add(|| piece!(XferContinue, step, step.offset, step.bytes)),
        (false, true) => together.add(|| piece!(XferEnd, step, step.offset, step.bytes)),
    }
}
