// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints why a connection failed, before Open MPI gets an error code of a request that failed with it. ob1 and
//! osc/rdma may end the job at the first error, with a text that names no peer and no port; so each caller that returns
//! or delivers an error calls this first. The engine keeps each reason until it is taken. Grade: setup (errors only).
//! Threads: any; callers stay in the port while they print, so that no other thread delivers an error earlier. Tests:
//! `hw-tests`.

use engine::transport::{EndpointId, Failed};

use super::device::Port;
use super::messages;

/// Prints the reasons of all connections that have failed since the last call. Returns their number.
#[cold]
pub(crate) fn print_reasons(port: &mut Port) -> usize {
    let reasons = port.take_unprinted();
    for reason in &reasons {
        messages::peer_failed(reason);
    }
    reasons.len()
}

/// Like [`print_reasons`], except for the reason `known`, which the caller prints.
#[cold]
pub(crate) fn print_reasons_except(port: &mut Port, known: &str) {
    for reason in port.take_unprinted().iter().filter(|reason| *reason != known) {
        messages::peer_failed(reason);
    }
}

pub(crate) fn print_reason_of_request(port: &mut Port, to: EndpointId, failed: Failed) {
    if print_reasons(port) == 0 && port.failure(to).is_none() && !port.is_forgotten(to) {
        // The connection did not fail: this process closed it, or the peer began a new one.
        messages::request_failed(&port.describe(to), failed.status);
    }
}
