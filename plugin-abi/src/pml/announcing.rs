// SPDX-License-Identifier: MIT OR Apache-2.0
//! A long message that its receiver may read by several ports: registered with each that reaches it, and announced with
//! all keys.
//!
//! The receiver's side is `striped`. Called by `protocol`, and by `pieces` and `reading` when the receiver has
//! answered. Grade: pending. Threads: who has entered the PML.

use engine::protocol::header::{Header, Match, Memory, PortKey};
use engine::protocol::transfers::TransferId;
use ibex_ffi::openmpi::sys;

use super::datatype::{Data, Extent};
use super::instance::{Pml, State};
use super::link::Link;
use super::reads::{OfRail, SHORTEST};
use super::request::Transfer;
use super::transmit::{self, Transmitted};
use super::{rails, routing};

/// Registers a message with the other ports that reach its receiver, if it is long enough to be read by several.
///
/// # Safety
/// P2, M3: the data of a send, whose registrations are put back before it is finished.
pub(crate) unsafe fn register(pml: &Pml, state: &mut State, home: Link, extent: Extent) -> Vec<OfRail> {
    if !pml.has_several() || extent.length < SHORTEST {
        return Vec::new();
    }
    let Some(peer) = rails::of(pml, state, home) else { return Vec::new() };
    let links = state.several.peers[peer].links.iter().filter(|link| link.rail() != home.rail());
    let registered = links.filter(|link| rails::is_usable(pml, **link)).filter_map(|link| {
        let rail = pml.rails().get(link.rail())?;
        let access = sys::MCA_RCACHE_ACCESS_REMOTE_READ;
        // SAFETY: P2, M3: mapped until the send is finished, and put back before.
        let registered = unsafe { rail.port().memory().register(extent.start.cast(), extent.length, access) };
        Some((link.rail(), registered?))
    });
    registered.collect()
}

/// Announces a message that can be read by these ports. Their keys are told apart by the ports' numbers, as the
/// announcement may have to go by another port than is expected now.
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
    let extent = Extent { start: keys.as_ptr().cast_mut(), length: keys.len() };
    // Data in one piece is not looked at.
    let data = Data { buffer: std::ptr::null_mut(), count: 0, datatype: std::ptr::null_mut() };
    let header = Header::AnnounceKeyed(of, sender.0, memory);
    // SAFETY: the keys live for the call; `link` is a rail's, as only rails register.
    if unsafe { routing::message(pml, state, link, &header, (&data, extent), None) } == Transmitted::Failed {
        transmit::failed(state);
    }
}

/// Gives back what was registered for an announcement.
///
/// # Safety
/// R3: the receiver has read, or will not.
pub(crate) unsafe fn put_back(pml: &Pml, home: Link, transfer: Transfer) {
    let Transfer::Announced { registered, others, .. } = transfer else { return };
    let home = registered.map(|registered| (home.rail(), registered));
    for (rail, registered) in home.into_iter().chain(others) {
        if let Some(rail) = pml.rails().get(rail) {
            // SAFETY: R3: the receiver has read, or will not.
            unsafe { rail.port().memory().put_back(registered) };
        }
    }
}
