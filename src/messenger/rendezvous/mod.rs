// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rendezvous: how the bytes of an announced message travel once a receive has matched it. The receiver reads them from
//! the sender's memory: by the adapter (`read.rs`, which divides them by `stripes.rs`), or by the kernel within a host
//! (`single_copy.rs`). Otherwise the sender sends copies (`fragments.rs`, which counts them by `copies.rs`). The flight
//! recorder gets each step (`steps.rs`). Called by `receive`. Grade: pending. Threads: the one that has entered the
//! messenger. Tests: `messenger/tests`.

pub(in crate::messenger) mod copies;
pub(in crate::messenger) mod fragments;
pub(in crate::messenger) mod read;
pub mod single_copy;
mod steps;
pub mod stripes;

use super::events::transfers::Bytes;
use super::host::{Data, Host};
use super::request::Transfer;
use super::request::transfer_id::TransferId;
use super::route::Route;
use super::{events, flow_control};
pub(super) use steps::{Step, enter};

/// Finishes a send whose receiver has answered: it has read `length` bytes, as many as its receive has room for, or has
/// matched a synchronous message. `sender` may be any number.
pub fn finished<H: Host>(process: &H::Process, host: &mut H, sender: TransferId, length: u64) {
    let Some(request) = host.messenger().transfers.end(sender) else { return };
    let length = length.min(host.core(request).data.length() as u64);
    // The adapter does not report a peer's reads, so both events are raised now. Those of a whole message were raised
    // when it was posted.
    events::begins(host, request, Bytes::None.completed());
    events::ends(host, request, Bytes::Of { offset: 0, length }.completed());
    enter(host, request, &Step::Answered { number: sender, wants_copies: false });
    close(process, host, request, Transfer::None, |host| host.finish(request));
}

/// Ends the registrations of an announced send: with the port of its route, and with other rails.
pub(super) fn deregister<H: Host>(
    process: &H::Process,
    host: &mut H,
    route: Route,
    registered: Option<H::Registration>,
    others: Vec<(usize, H::Registration)>,
) {
    for (rail, registered) in registered.map(|registered| (route.rail(), registered)).into_iter().chain(others) {
        host.deregister(process, rail, registered);
    }
}

/// Replaces the announcement of a send by `next`, and ends its registrations. Calls `go_on`, then continues the sends
/// that pend until this one is answered.
fn close<H: Host>(
    process: &H::Process,
    host: &mut H,
    request: H::Handle,
    next: Transfer<H>,
    go_on: impl FnOnce(&mut H),
) {
    let core = host.core(request);
    let (route, announced) = (core.route, std::mem::replace(&mut core.transfer, next));
    let Transfer::Unanswered { registered, others, counted, .. } = announced else { return go_on(host) };
    let context = counted.then(|| host.context(request));
    deregister(process, host, route, registered, others);
    go_on(host);
    if let Some(context) = context {
        flow_control::answered(process, host, route, context);
    }
}
