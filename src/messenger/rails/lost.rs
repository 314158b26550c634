// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lost peers: those that no port reaches any more, or to which messages are lost. The protocols note them ([`note`]).
//! For most hosts the job then ends. For a host that outlives its peers ([`OutlivesPeers`]), [`end`] ends the requests
//! that need the peer, each with an error, and no others: receives from any source stay posted.
//!
//! They end once the queue pair is destroyed, which takes a second at most: then no adapter uses their memory, every
//! token has come back, and no message of the peer can arrive. Until then a request may still end well. Requests that
//! begin later find no room, or no port that takes them, so the peer is noted again, and they end in the same way.
//!
//! Called by the protocols, and by the host once its thread has entered no port. Grade: setup. Threads: the one that
//! has entered the messenger. Tests: `simulation/` (programs whose processes outlive others), `hw-tests`.

use crate::messenger::flow_control;
use crate::messenger::header::WireEnvelope;
use crate::messenger::host::{Data, Host, PeerOf, PortHost, Process};
use crate::messenger::receive::arrived::{Arrived, Body};
use crate::messenger::rendezvous::{deregister, read};
use crate::messenger::request::{Role, Transfer};
use crate::messenger::route::{Account, Route};

/// A host that goes on when peers are lost. Its process has one rail.
pub trait OutlivesPeers: PortHost {
    /// Returns all requests in use.
    fn requests(&self) -> Vec<Self::Handle>;

    /// Returns the route to the source that a receive names; `None`: any, or one without a route.
    fn source(&mut self, process: &Self::Process, receive: Self::Handle) -> Option<Route>;
}

/// The lost peers whose requests are to end.
#[derive(Debug, Default)]
pub struct Lost(Vec<Account>);

impl Lost {
    /// Whether the host has to call [`end`].
    #[inline]
    pub fn is_due(&self) -> bool {
        !self.0.is_empty()
    }
}

/// Notes that the peer of a route is lost.
#[cold]
#[inline(never)]
pub fn note<H: Host>(process: &H::Process, host: &mut H, route: Route) {
    let account = host.account(process, route);
    let lost = &mut host.messenger().rails.lost.0;
    if !lost.contains(&account) {
        lost.push(account);
    }
    host.loses_peer();
}

/// Ends the requests of the lost peers whose queue pairs are destroyed. The host calls it again while
/// [`Lost::is_due`].
#[cold]
#[inline(never)]
pub fn end<H: OutlivesPeers>(process: &H::Process, host: &mut H) {
    let all = std::mem::take(&mut host.messenger().rails.lost.0);
    let (ended, closing): (Vec<Account>, _) = all.into_iter().partition(|lost| is_closed(process, host, *lost));
    host.messenger().rails.lost.0 = closing;
    for lost in ended {
        let flow = &mut host.messenger().flow;
        flow.kept.forget(lost);
        for send in flow.outgoing.forget(lost) {
            host.fail(process, send, lost.0);
        }
        drop_announced(process, host, lost);
        for request in host.requests() {
            if is_over(process, host, request, lost) {
                host.fail(process, request, lost.0);
            }
        }
    }
}

/// Closes the failed connections to a peer. Returns whether they are gone, and all that they have reported is handled.
fn is_closed<H: OutlivesPeers>(process: &H::Process, host: &mut H, lost: Account) -> bool {
    let routes = host.routes_of(process, lost).into_iter();
    let ended =
        routes.map(|route| process.enter_port(route.rail()).is_none_or(|mut port| port.close_failed(route.to())));
    // All are closed, also if one takes longer.
    ended.fold(true, |all, has_ended| all & has_ended)
}

/// Ends the transfer of a request, or its wait for a message of a lost peer. Returns whether it did.
fn is_over<H: OutlivesPeers>(process: &H::Process, host: &mut H, request: H::Handle, lost: Account) -> bool {
    let core = host.core(request);
    let (role, route) = (core.role, core.route);
    if matches!(core.transfer, Transfer::None) {
        return role == Role::Receive && is_withdrawn(process, host, request, lost);
    }
    if host.account(process, route) != lost {
        return false;
    }
    let core = host.core(request);
    match std::mem::replace(&mut core.transfer, Transfer::None) {
        Transfer::Unanswered { sender, registered, others, .. } => {
            host.messenger().transfers.end(sender);
            deregister(process, host, route, registered, others);
        }
        Transfer::Reading(reads) => read::deregister(process, host, &reads),
        Transfer::Reassembly(reassembly) => {
            core.data.end();
            host.messenger().transfers.end(reassembly.id);
        }
        Transfer::Sending(_) => {
            core.data.end();
            host.messenger().starved.retain(|starved| *starved != request);
        }
        Transfer::SingleCopy(..) | Transfer::None => {}
    }
    true
}

/// Takes a posted receive out of its queue if it names a lost peer as its source.
fn is_withdrawn<H: OutlivesPeers>(process: &H::Process, host: &mut H, receive: H::Handle, lost: Account) -> bool {
    let Some(route) = host.source(process, receive) else { return false };
    if host.account(process, route) != lost {
        return false;
    }
    let (of, name) = (host.communicator(receive), host.core(receive).posted);
    let (queues, lengths) = host.queues(of);
    queues.cancel(lengths, name, receive)
}

/// Drops the first announced message of a lost peer, whose data nothing can bring any more, in each communicator, and
/// all later ones there: a receive must not take one of these for it. A message that a matched probe has taken out
/// stays, and its receive fails.
fn drop_announced<H: OutlivesPeers>(process: &H::Process, host: &mut H, lost: Account) {
    let routes = host.routes_of(process, lost);
    let is_of_lost = |from: Route| routes.iter().any(|route| (route.rail(), route.to()) == (from.rail(), from.to()));
    let from_announced = || {
        let mut lost: Option<PeerOf<H>> = None;
        move |envelope: H::Envelope, message: &Arrived| {
            if matches!(message.body, Body::ReadyToSend(..) | Body::ReadyToSendKeyed(..)) && is_of_lost(message.from) {
                lost = Some(envelope.source());
            }
            lost == Some(envelope.source())
        }
    };
    let mut dropped: Vec<Arrived> = Vec::new();
    for kept in host.messenger().contexts.kept() {
        let mut is_gone = from_announced();
        let gone = kept.extract_if(.., |(envelope, message)| is_gone(*envelope, message));
        dropped.extend(gone.map(|(_, message)| message));
    }
    let communicators: Vec<H::Communicator> = host.messenger().contexts.all().copied().collect();
    for of in communicators {
        let (queues, lengths) = host.queues(of);
        dropped.extend(queues.drop_unexpected(lengths, from_announced()));
    }
    for message in dropped {
        flow_control::give_up(process, host, &message);
    }
}
