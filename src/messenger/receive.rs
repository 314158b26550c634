// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hands a message that has arrived to the protocol of its kind: the one place that knows what each header means.
//!
//! Called by the host, in the order of arrival. Grade: pending. Threads: the one that has entered the messenger. Tests:
//! `messenger/tests`.

use super::flow_control;
use super::header::{Header, Match, PortKey};
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
/// to its sender; without one, only an eager message is handled. Each protocol looks up the number of a transfer, and
/// ignores one that has ended; it does not compare the sender with the peer of the transfer.
pub fn handle<H: Host>(process: &H::Process, host: &mut H, message: &[u8], sender: impl Fn() -> Option<Route>) {
    let Some((header, bytes)) = Header::decode(message) else { return };
    let begun = |host: &mut H, of: Match, body| {
        let Some(from) = sender() else { return };
        search::arrived(process, host, of.context, of.envelope(), Arrived { from, id: 0, body });
    };
    match header {
        Header::Eager(of) => search::whole(process, host, of, bytes, &sender),
        Header::Synchronous(of, send) => begun(host, of, Body::Synchronous(bytes.into(), TransferId(send))),
        Header::ReadyToSend(of, send, memory) => begun(host, of, Body::ReadyToSend(TransferId(send), memory)),
        Header::ReadyToSendKeyed(of, send, memory) => {
            begun(host, of, Body::ReadyToSendKeyed(TransferId(send), memory, PortKey::decode(bytes)));
        }
        Header::ClearToSend { request, receive, why, length } => {
            fragments::wanted(process, host, (TransferId(request), TransferId(receive)), (length, why));
        }
        Header::Fragment { receive, .. } => fragments::received(host, TransferId(receive), bytes),
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
