// SPDX-License-Identifier: MIT OR Apache-2.0
//! The model of a link: how long a message takes, where the configuration gives a latency or a bandwidth.
//!
//! Called by: verdict, for every packet of a fabric that has rules or a model. Grade: hot there; elsewhere never
//! called. Thread rule: any thread of any process; a port's link is taken by exchanging the time when it is free again.

use crate::engine::{clock, fabric::Fabric};

/// When what leaves now arrives, by the model of the sender's adapter: its link carries one message at a time.
#[cold]
pub(crate) fn model(fabric: &Fabric, device: u32, port: u32, len: u32) -> u64 {
    let spec = &fabric.devices()[device as usize];
    if spec.latency_ns == 0 && spec.bandwidth_gbps <= 0.0 {
        return 0;
    }
    let busy = &fabric.header().port_busy[device as usize][port as usize - 1];
    let takes = if spec.bandwidth_gbps > 0.0 { (f64::from(len) * 8.0 / spec.bandwidth_gbps) as u64 } else { 0 };
    loop {
        let before = busy.get();
        let end = before.max(clock::now()).saturating_add(takes);
        if busy.replace(before, end) {
            return end.saturating_add(spec.latency_ns);
        }
    }
}
