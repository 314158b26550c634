// SPDX-License-Identifier: MIT OR Apache-2.0
//! Long messages that the receiver may read by several ports at once: announcement, and the receiver's choice.
//!
//! The receiver reads (`reading`) by those of its ports that are connected to one of the announced ports ([`ways`]).
//! The others begin to connect, for the next message. Called by `protocol`, `reading` and `pieces`. Grade: pending.
//! Threads: the one that has entered the PML. Tests: `pml/tests/histories.rs`.

use engine::messenger::header::{Header, Match, Memory, PortKey};
use engine::messenger::link::Link;
use engine::messenger::transfer_id::TransferId;
use ibex_ffi::openmpi::sys;

use super::datatype::Extent;
use super::instance::{Pml, State};
use super::request::Transfer;
use super::{rails, routing};
use crate::runtime::memory::Registered;

/// Shortest message that several ports read, bytes: two reads of the least length.
pub(crate) const SHORTEST: usize = 64 << 10;

/// Index of a rail, and a registration with its port.
pub(crate) type OfRail = (usize, Registered);

/// Returns the links by which a message can be read now, with the sender's keys; for a message shorter than
/// [`SHORTEST`] one, preferably that of the announcement.
pub(super) fn ways(pml: &Pml, state: &mut State, from: Link, keys: &[PortKey], wanted: u64) -> Vec<(Link, u32)> {
    let Some(peer) = rails::of(pml, state, from) else { return Vec::new() };
    let links = state.several.peers[peer].links.iter().copied();
    let mut ways: Vec<(Link, u32)> = links
        .filter_map(|link| {
            let mut port = pml.rails().get(link.rail())?.enter()?;
            let remote = u32::from(port.partner(link.to())?);
            let key = keys.iter().find(|key| key.port == remote)?.key;
            let is_usable = !port.is_down() && rails::has_not_failed(&port, link);
            // The port that announced the message is connected, or is about to be.
            (is_usable && (link.rail() == from.rail() || port.is_ready(link.to()))).then_some((link, key))
        })
        .collect();
    if wanted < SHORTEST as u64 {
        ways.sort_by_key(|(link, _)| link.rail() != from.rail());
        ways.truncate(1);
    }
    ways
}

/// Registers a message with the other ports that reach its receiver, if it is long enough to be read by several.
///
/// # Safety
/// P2, M3: the data of a send, whose registrations [`put_back`] ends before the send is finished.
pub(crate) unsafe fn register(pml: &Pml, state: &mut State, home: Link, extent: Extent) -> Vec<OfRail> {
    if !pml.has_several() || extent.length < SHORTEST {
        return Vec::new();
    }
    let Some(peer) = rails::of(pml, state, home) else { return Vec::new() };
    let links = state.several.peers[peer].links.iter().filter(|link| link.rail() != home.rail());
    let registered = links.filter(|link| rails::is_usable(pml, **link)).filter_map(|link| {
        let rail = pml.rails().get(link.rail())?;
        let access = sys::MCA_RCACHE_ACCESS_REMOTE_READ;
        // SAFETY: P2, M3: mapped until the send is finished, and [`put_back`] ends the registration before.
        let registered = unsafe { rail.port().memory().register(extent.start.cast(), extent.length, access) };
        Some((link.rail(), registered?))
    });
    registered.collect()
}

/// Announces a message that these ports can read. A key travels with the number of its port, because `routing` may send
/// the announcement by another port.
pub(crate) fn announce(
    pml: &Pml,
    state: &mut State,
    link: Link,
    (of, sender, memory): (Match, TransferId, Memory),
    registered: impl Iterator<Item = OfRail>,
) {
    let key = |(rail, registered): OfRail| {
        let rail = pml.rails().get(rail)?;
        Some(PortKey { port: u32::from(rail.port().index()), key: registered.rkey() })
    };
    let keys = PortKey::encode(&registered.filter_map(key).collect::<Vec<_>>());
    let header = Header::AnnounceKeyed(of, sender.0, memory).encode();
    routing::bytes(pml, state, link, &[header.as_slice(), &keys].concat());
}

/// Ends the registrations of an announced message.
///
/// # Safety
/// R3: the receiver has read the message, or will not read it.
pub(crate) unsafe fn put_back(pml: &Pml, home: Link, transfer: Transfer) {
    let Transfer::Announced { registered, others, .. } = transfer else { return };
    let home = registered.map(|registered| (home.rail(), registered));
    for (rail, registered) in home.into_iter().chain(others) {
        if let Some(rail) = pml.rails().get(rail) {
            // SAFETY: R3: the receiver has read the message, or will not read it.
            unsafe { rail.port().memory().put_back(registered) };
        }
    }
}
