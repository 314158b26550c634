// SPDX-License-Identifier: MIT OR Apache-2.0
//! What becomes of completions that were not polled, and of requests of a shared receive queue, when their queue pair
//! is destroyed or reset: as the adapter's behaviour says.
//!
//! Called by: lifetime, modify. Grade: setup. Thread rule: the thread that destroys or resets the queue pair. `before`
//! and `after` are the two halves: while it can still be found, and when nobody finds it any more.

use crate::{
    behaviour::Purge,
    engine::{
        codes::qp_state::{ERR, INIT, RESET},
        qp::object::Qp,
    },
};

impl Qp {
    /// It is about to go: completions that stay are made independent of it, and a request that it has taken is lost.
    /// The caller holds `resp.lock`, so that nothing arrives any more.
    pub(super) fn before_leaving(&self, state: u32) {
        let (fabric, qp, ways) = (&*self.hca.fabric, self.shared, self.hca.behaviour());
        if ways.purge_cq_on_destroy == Purge::No {
            for cq in self.completion_queues() {
                cq.keep(fabric, qp);
            }
        }
        let is_connected = !matches!(state, RESET | INIT | ERR);
        if let Some((queue, _)) = self.shares
            && ways.srq_wr_lost_on_destroy.taken()
            && is_connected
        {
            let _held = queue.lock_taking(fabric);
            queue.take(fabric);
        }
    }

    /// It is gone, or was reset: what is left of its completions is purged. Requests of a shared queue whose
    /// completions nobody will see are free again, or lost.
    pub(super) fn after_leaving(&self) {
        let (fabric, ways) = (&*self.hca.fabric, self.hca.behaviour());
        if let Some((queue, cq)) = self.shares {
            let is_lost = ways.srq_wr_lost_on_destroy.purged();
            cq.withdraw(fabric, self.number(), 0, |wqe| {
                if !is_lost {
                    queue.free(fabric, wqe);
                }
            });
        }
        if ways.purge_cq_on_destroy == Purge::Compact {
            for cq in self.completion_queues() {
                cq.compact(fabric);
            }
        }
    }
}
