// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of long messages: registers the data of a send, which its receiver may read, and of a receive, and posts
//! reads.
//!
//! Called by `rails`. Grade: pending. Threads: the one that has entered the messenger, and no port. Tests: those of the
//! hosts.

use ibex_ffi::verbs::{Access, RemoteSpan};

use super::routes::{self, SHORTEST};
use crate::messenger::events::reads;
use crate::messenger::header::PortKey;
use crate::messenger::host::{Data, Exposed, Memory, PortHost, Process, Record};
use crate::messenger::path_taken::Reason;
use crate::messenger::rendezvous::read::{ReadRail, ReadTarget};
use crate::messenger::rendezvous::stripes::Part;
use crate::messenger::request::Transfer;
use crate::messenger::route::Route;

/// Lets the receiver of a long message read its data by the port of the send's route, and by others if it is long
/// enough. A key travels with the number of its port, because `transmit` may send the announcement by another port.
pub(super) fn expose<H: PortHost>(
    process: &H::Process,
    host: &mut H,
    send: H::Handle,
) -> Result<Exposed<H::Registration>, Reason> {
    let core = host.core(send);
    let (route, length) = (core.route, core.data.length());
    let address = host.address(send).ok_or(Reason::Gaps)?;
    if process.rail(route.rail()).is_none() {
        // A process of this machine reads without a key.
        return Ok(Exposed { address, ..Exposed::default() });
    }
    let register = |host: &mut H, rail| Memory::register(host, process, send, rail, length, Access::REMOTE_READ);
    let registered = register(host, route.rail()).ok_or(Reason::NotRegistered)?;
    let rails = others(process, host, route, length);
    let others: Vec<_> = rails.into_iter().filter_map(|rail| Some((rail, register(host, rail)?))).collect();
    let key = |(rail, registered): (usize, H::Registration)| {
        Some(PortKey { port: u32::from(process.rail(rail)?.port), key: H::rkey(registered) })
    };
    let all = std::iter::once((route.rail(), registered)).chain(others.iter().copied());
    let keys = if process.is_multi_rail() { all.filter_map(key).collect() } else { Vec::new() };
    Ok(Exposed { address, key: H::rkey(registered), registered: Some(registered), others, keys })
}

/// Returns the other rails that reach the receiver of a message, if it is long enough to be read by several.
fn others<H: PortHost>(process: &H::Process, host: &mut H, home: Route, length: usize) -> Vec<usize> {
    if !process.is_multi_rail() || length < SHORTEST {
        return Vec::new();
    }
    let Some(peer) = routes::peer_of(process, host, home) else { return Vec::new() };
    let routes = host.messenger().rails.multi_rail.peers[peer].routes.iter().copied();
    let others = routes.filter(|route| route.rail() != home.rail() && routes::is_usable(process, *route));
    others.map(Route::rail).collect()
}

/// Registers the first `wanted` bytes of a receive's contiguous data with the port of a route.
pub(super) fn register<H: PortHost>(
    process: &H::Process,
    host: &mut H,
    receive: H::Handle,
    route: Route,
    wanted: u64,
) -> Option<ReadTarget<H::Registration>> {
    let rail = process.rail(route.rail())?;
    let access = Access::LOCAL_WRITE;
    let registered = Memory::register(host, process, receive, route.rail(), wanted as usize, access)?;
    Some(ReadTarget { registered, mbps: rail.mbps, longest: rail.read_limit })
}

/// Posts a read of a part of a receive's message. Returns false if the port cannot.
pub(super) fn post_read<H: PortHost>(
    process: &H::Process,
    host: &mut H,
    receive: H::Handle,
    by: &ReadRail<H::Registration>,
    part: Part,
) -> bool {
    let &ReadRail { route, key, registered } = by;
    let Transfer::Reading(reads) = &host.core(receive).transfer else { return false };
    let from = RemoteSpan { addr: reads.address.wrapping_add(part.offset), rkey: key };
    let to = host.target(receive, part, registered);
    reads::read_begins(process, host, receive, route.rail(), (part, to.addr()));
    let entered = process.enter_port(route.rail());
    let is_posted =
        entered.is_some_and(|mut port| port.get(route.to(), to, from, H::token(Record::Read(receive))).is_ok());
    if !is_posted {
        reads::read_refused(process, host, receive, route.rail(), part);
    }
    is_posted
}
