// SPDX-License-Identifier: MIT OR Apache-2.0
//! Does the work that was left until no shared lock is held.
//!
//! Called by: every call of a program that posts, polls or changes a queue, at its end; the service thread. Grade: hot:
//! a load where there is nothing to do. Thread rule: any thread that holds no lock.

use crate::engine::{
    codes::event,
    cq::ring::CqShared,
    fabric::{Fabric, deferred::Deferred},
    qp::error,
    send::retry::retry_early,
    service::burial::bury,
};

/// Does what was deferred. Call with no lock held.
#[inline]
pub(crate) fn run_deferred(fabric: &Fabric) {
    if fabric.deferred.any() {
        run_all(fabric);
    }
}

#[cold]
fn run_all(fabric: &Fabric) {
    loop {
        let list = fabric.deferred.take();
        if list.is_empty() {
            return;
        }
        for work in list {
            match work {
                Deferred::Flush(index) => error::flush_sends(fabric, index),
                Deferred::Overrun(offset) => {
                    fabric.region().at::<CqShared>(offset).raise(fabric, event::CQ_ERR);
                    error::fail_all_with(fabric, offset);
                }
                Deferred::Bury(token) => bury(fabric, token),
                Deferred::Retry(index) => retry_early(fabric, index),
            }
        }
    }
}
