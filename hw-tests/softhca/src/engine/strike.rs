// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scripted errors of objects: those of one kind, of one adapter, of this process, fail and say so.
//!
//! Called by: faults, when a rule's time has come, from the service thread or a poll. Grade: pending. No shared lock is
//! held. What exists then is struck; what is made later is not.

use std::collections::BTreeSet;

use super::{
    channel::{ABOUT_SRQ, Record},
    codes::event,
    cq::CqShared,
    fabric::Fabric,
    qp,
    recv::RecvQueue,
};

/// Whether `event` is about an object that can be struck.
pub(crate) fn is_about_objects(event: u32) -> bool {
    matches!(event, event::QP_FATAL | event::CQ_ERR | event::SRQ_ERR)
}

/// Raises `event` about every object of its kind that a queue pair of `device` uses, and stops those queue pairs.
#[cold]
pub(crate) fn strike(fabric: &Fabric, device: usize, event: u32) {
    let own = || qp::all(fabric).filter(|qp| qp.owner.get() == fabric.token() && qp.device.get() == device as u32);
    match event {
        event::QP_FATAL => {
            for qp in own() {
                qp.raise(fabric, event);
                qp::flush_sends(fabric, qp.index());
            }
        }
        event::CQ_ERR => {
            let queues: BTreeSet<u64> = own().flat_map(|qp| [qp.send_cq.get(), qp.recv_cq.get()]).collect();
            for queue in queues.into_iter().filter(|queue| *queue != 0) {
                fabric.region().at::<CqShared>(queue).fail(fabric);
            }
        }
        _ => {
            let queues: BTreeSet<u64> = own().map(|qp| qp.srq.get()).filter(|queue| *queue != 0).collect();
            for queue in queues {
                let shared: &RecvQueue = fabric.region().at(queue);
                let record = Record { about: ABOUT_SRQ, id: shared.id.get(), event, cookie: shared.cookie.get() };
                fabric.pipes.send(shared.context.get(), record);
            }
            for qp in own().filter(|qp| qp.srq.get() != 0) {
                qp::flush_sends(fabric, qp.index());
            }
        }
    }
}
