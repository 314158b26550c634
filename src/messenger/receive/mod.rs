// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hands a message that has arrived to the protocol of its kind: the one place that knows what each header means.
//!
//! Called by the host, in the order of arrival. Grade: pending. Threads: the one that has entered the messenger. Tests:
//! `messenger/tests`.

use super::flow_control;
use super::header::{Header, Match, PortKey, WireEnvelope};
use super::host::Host;
use super::rendezvous::{self, fragments};
use super::request::transfer_id::TransferId;
use super::route::Route;
use arrived::{Arrived, Body};

pub mod arrived;
pub(in crate::messenger) mod delivery;
pub mod probe;
pub mod queues;
pub mod search;

/// Handles a message, header included; ignores one that is too short or of an unknown kind. `sender` looks up the route
/// to its sender; without one, only an eager message that names its sender is handled. Ignores the answer to a transfer
/// that has ended, or whose peer has not sent it: another process could end a send whose memory its receiver reads.
pub fn handle<H: Host>(process: &H::Process, host: &mut H, message: &[u8], sender: impl Fn() -> Option<Route>) {
    let Some((header, bytes)) = Header::decode(message) else { return };
    if header.answered().is_some_and(|of| !is_of_peer(process, host, TransferId(of), &sender)) {
        return;
    }
    let complete = |host: &mut H, of: Match<H::Envelope>| {
        let envelope = of.envelope.sent_by(|| sender().map(|from| host.account(process, from).0))?;
        Some(Match { envelope, ..of })
    };
    let begun = |host: &mut H, of, body| {
        let (Some(from), Some(of)) = (sender(), complete(host, of)) else { return };
        search::arrived(process, host, of.context, of.envelope, Arrived { from, id: 0, body });
    };
    match header {
        Header::Eager(of) => _ = complete(host, of).map(|of| search::whole(process, host, of, bytes, &sender)),
        Header::Delivered(of, request) => {
            if let (Some(from), Some(of)) = (sender(), complete(host, of)) {
                search::delivered(process, host, of, bytes, from);
                host.control(process, from, &Header::Acknowledge { request });
            }
        }
        Header::Synchronous(of, send) => begun(host, of, Body::Synchronous(bytes.into(), TransferId(send))),
        Header::ReadyToSend(of, send, memory) => begun(host, of, Body::ReadyToSend(TransferId(send), memory)),
        Header::ReadyToSendKeyed(of, send, memory) => {
            begun(host, of, Body::ReadyToSendKeyed(TransferId(send), memory, PortKey::decode(bytes)));
        }
        Header::ClearToSend { request, receive, why, length } => {
            fragments::wanted(process, host, (TransferId(request), TransferId(receive)), (length, why));
        }
        Header::Fragment { receive, offset } => fragments::received(host, TransferId(receive), offset, bytes),
        Header::Finished { request, length } => rendezvous::finished(process, host, TransferId(request), length),
        // The sender has sent the bytes with the message, and raised their events then.
        Header::Acknowledge { request } => rendezvous::finished(process, host, TransferId(request), 0),
        Header::Flow(word) => _ = sender().map(|from| flow_control::heard(process, host, from, word)),
        Header::Pending(context) => _ = sender().map(|from| flow_control::pending(process, host, from, context)),
        Header::More(context) => _ = sender().map(|from| flow_control::more(process, host, from, context)),
        // `rails/completions.rs` has handled it; a process with one port gets none.
        Header::Moved { .. } => {}
    }
}

/// Whether a transfer is in progress, and `sender` returns a route to its peer.
fn is_of_peer<H: Host>(process: &H::Process, host: &mut H, of: TransferId, sender: impl Fn() -> Option<Route>) -> bool {
    let (Some(request), Some(from)) = (host.messenger().transfers.get(of), sender()) else { return false };
    let route = host.core(request).route;
    // With several rails, a peer has several routes.
    from == route || host.account(process, from) == host.account(process, route)
}
