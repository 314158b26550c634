// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reason first: why a connection failed is said before Open MPI gets anything that failed for it.
//!
//! ob1 and osc/rdma may end the job at the first error they are handed, in a completion or as the code of a call, with
//! words that name no peer and no port. So whoever hands one on goes through here. The engine keeps each reason until
//! it is taken. Grade: errors. Threads: any; a reason is said while the port is entered, so that no other thread
//! overtakes it. Tests: the device tests in `hw-tests`.

use engine::transport::Port;
use engine::transport::{EndpointId, Failed};

use super::messages;

/// Says why connections failed since the last time. Returns how many did.
#[cold]
pub(crate) fn tell(port: &mut Port) -> usize {
    let reasons = port.take_untold();
    for reason in &reasons {
        messages::peer_failed(reason);
    }
    reasons.len()
}

/// [`tell`], without this reason, which is told another way.
#[cold]
pub(crate) fn tell_but(port: &mut Port, known: &str) {
    for reason in port.take_untold().iter().filter(|reason| *reason != known) {
        messages::peer_failed(reason);
    }
}

/// Says why a request to a peer did not complete.
pub(crate) fn tell_request(port: &mut Port, to: EndpointId, failed: Failed) {
    if tell(port) == 0 && port.failure(to).is_none() && !port.is_forgotten(to) {
        // Its connection was closed, or begun anew by the peer.
        messages::request_failed(&port.describe(to), failed.status);
    }
}
