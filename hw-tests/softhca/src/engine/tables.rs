// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ports' tables as they are now: LIDs, GIDs and partition keys, which a script may change while the fabric lives.
//!
//! Every process keeps its own, and changes it when a rule's time has come (`faults`), as it is told of it; one that
//! joins later changes it at once. Owns the changed ports. Called by: faults (changes), everything that asks for a
//! port. Grade: pending; a fabric whose rules change nothing pays one predicted branch. Thread rule: any thread.

use std::sync::{PoisonError, RwLock};

use super::{
    AhAttr, Gid, PortSpec,
    codes::{link_layer, qp_state::RTR},
    fabric::Fabric,
    faults::FaultAction,
    qp,
    region::{MAX_DEVICES, MAX_PORTS},
};

/// What changes in a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Its LID.
    Lid(u16),
    /// The LID of its subnet manager.
    SmLid(u16),
    /// A row of its table of GIDs; one of zeros empties it.
    Gid(u8, Gid),
    /// A row of its table of partition keys.
    Pkey(u16, u16),
}

/// Ports that have changed, as they are now. A former one stays where it is, as somebody may be looking at it: rules
/// are few.
#[derive(Default)]
pub(crate) struct Tables(RwLock<[[Option<&'static PortSpec>; MAX_PORTS]; MAX_DEVICES]>);

/// Whether any rule changes a port.
pub(crate) fn any_changes(rules: &[super::faults::FaultRule]) -> bool {
    rules.iter().any(|rule| matches!(rule.action, FaultAction::Change { .. }))
}

impl Fabric {
    /// Port `port` (from 1) of `device`, as it is now.
    #[inline]
    pub(crate) fn port(&self, device: usize, port: u32) -> &PortSpec {
        let index = port as usize - 1;
        if self.has_changes
            && let Some(changed) = self.tables.0.read().unwrap_or_else(PoisonError::into_inner)[device][index]
        {
            return changed;
        }
        &self.devices()[device].ports[index]
    }

    /// Whether packets between these ports (adapter, port) can arrive: both link layers and both networks are the same.
    pub(crate) fn is_one_network(&self, one: (u32, u32), other: (u32, u32)) -> bool {
        let of = |(device, port): (u32, u32)| {
            let device = &self.devices()[device as usize];
            (device.link_layer, &device.ports[port as usize - 1].network)
        };
        of(one) == of(other)
    }

    /// To which port packets for `ah` go that leave `device` by `port`: by LID within the subnet on InfiniBand, by GID
    /// on Ethernet. `None`: nobody that can be reached has that address.
    pub(crate) fn route(&self, device: usize, port: u8, ah: &AhAttr) -> Option<(u32, u32)> {
        let from = (device as u32, u32::from(port));
        let is_ethernet = self.devices()[device].link_layer == link_layer::ETHERNET;
        let prefix = |spec: &PortSpec| spec.gids.first().map(|gid| gid.raw[..8].to_owned());
        let subnet = prefix(self.port(device, from.1));
        let ports = self
            .devices()
            .iter()
            .enumerate()
            .flat_map(|(index, device)| (1..=device.ports.len() as u32).map(move |port| (index as u32, port)));
        ports.filter(|to| self.is_one_network(from, *to)).find(|&(device, port)| {
            let spec = self.port(device as usize, port);
            if !is_ethernet && ah.dlid != 0 {
                return spec.lid == ah.dlid && prefix(spec) == subnet;
            }
            (is_ethernet || ah.is_global) && spec.gids.iter().any(|gid| !gid.is_empty() && gid.raw == ah.dgid)
        })
    }
}

/// Changes a port, and what follows from it for the queue pairs of this process.
pub(crate) fn change(fabric: &Fabric, device: usize, port: u8, change: Change) {
    let mut spec = fabric.port(device, u32::from(port)).clone();
    match change {
        Change::Lid(lid) => spec.lid = lid,
        Change::SmLid(lid) => spec.sm_lid = lid,
        Change::Gid(index, gid) => {
            let index = usize::from(index);
            if spec.gids.len() <= index {
                spec.gids.resize(index + 1, Gid::default());
            }
            spec.gids[index] = gid;
        }
        Change::Pkey(index, key) => {
            if let Some(row) = spec.pkeys.get_mut(usize::from(index)) {
                *row = key;
            }
        }
    }
    if let Err(error) = crate::abi::sysfs::change_port(fabric.folder(), &fabric.devices()[device], port, &spec) {
        eprintln!("softhca: cannot write the changed tables of port {port} below the fabric's folder: {error}");
    }
    {
        let mut tables = fabric.tables.0.write().unwrap_or_else(PoisonError::into_inner);
        tables[device][usize::from(port) - 1] = Some(Box::leak(Box::new(spec)));
    }
    follow(fabric, device as u32, u32::from(port), change);
}

/// Queue pairs of this process go on as their adapter has them: one sends to a LID, in a partition, from a GID's row.
fn follow(fabric: &Fabric, device: u32, port: u32, change: Change) {
    let own = qp::all(fabric).filter(|qp| qp.owner.get() == fabric.token() && qp.state.get() >= RTR);
    for qp in own {
        let _sends = qp.sq.lock.lock(fabric);
        let is_here = (qp.device.get(), qp.port.get()) == (device, port);
        let spec = fabric.port(qp.device.get() as usize, qp.port.get());
        match change {
            Change::Lid(_) if qp.dlid.get() != 0 => {
                let dlid = AhAttr { dlid: qp.dlid.get() as u16, ..AhAttr::default() };
                let to = fabric.route(qp.device.get() as usize, qp.port.get() as u8, &dlid);
                qp.to_device.set(to.map_or(0, |to| to.0));
                qp.to_port.set(to.map_or(0, |to| to.1));
                qp.routed_port.set(qp.to_port.get());
            }
            Change::Gid(..) if is_here && qp.sgid.get() != 0 && qp.behaviour(fabric).gid_vanish_kills_rc => {
                let row = spec.gids.get(qp.sgid.get() as usize - 1);
                let is_gone = row.is_none_or(Gid::is_empty);
                qp.to_port.set(if is_gone { 0 } else { qp.routed_port.get() });
            }
            Change::Pkey(..) if is_here => qp.set_partition(qp.pkey_index(), &spec.pkeys),
            _ => {}
        }
    }
}
