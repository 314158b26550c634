// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides whether a single port is usable: its state, its addresses, its MTU, its partition. `choose` calls it; a
//! refusal completes a sentence that begins "refused: ". Grade: setup. Threads: plain data. Tests: `tests.rs`.

use crate::select::address::{LINK_ETHERNET, LINK_INFINIBAND, mtu_bytes};
use crate::select::gid::GidInfo;
use crate::tunables::Tunables;

/// `IBV_PORT_NOP`: no state.
pub const PORT_NOP: u32 = 0;
/// `IBV_PORT_DOWN`: no link.
pub const PORT_DOWN: u32 = 1;
/// `IBV_PORT_INIT`: a link, but the subnet manager has not configured it.
pub const PORT_INIT: u32 = 2;
/// `IBV_PORT_ARMED`: configured, not yet activated.
pub const PORT_ARMED: u32 = 3;
/// `IBV_PORT_ACTIVE`: in use.
pub const PORT_ACTIVE: u32 = 4;
/// `IBV_PORT_ACTIVE_DEFER`: was in use, and has a link error from which it may recover.
pub const PORT_ACTIVE_DEFER: u32 = 5;

/// One port as verbs describes it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PortInfo {
    /// Number of the port, from 1.
    pub number: u8,
    /// State: `PORT_ACTIVE` and the others.
    pub state: u32,
    /// Link layer: [`LINK_INFINIBAND`] or [`LINK_ETHERNET`].
    pub link_layer: u8,
    /// Local identifier; 0: none.
    pub lid: u16,
    /// Active MTU, as verbs.h's code.
    pub active_mtu: u8,
    /// Data rate, in Mb/s.
    pub rate_mbps: u32,
    /// GID table; empty entries may be left out.
    pub gids: Vec<GidInfo>,
    /// Entry of the partition key table at the configured index.
    pub partition_key: PartitionKey,
}

/// The entry of a port's partition key table at the configured index.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub enum PartitionKey {
    /// The table could not be read.
    #[default]
    Unknown,
    /// The table is too short; it has this number of entries.
    Missing(usize),
    /// The key: bit 15 marks a full member, the other bits name the partition; 0 is an empty entry.
    Key(u16),
}

impl PartitionKey {
    const PARTITION: u16 = 0x7fff;

    /// Why other ports may not accept packets with the key at `index`, as the end of a sentence that begins with the
    /// port's name. Only full members accept packets of a limited member (InfiniBand specification, 10.9.3).
    pub(super) fn warning(self, index: u64) -> Option<String> {
        let PartitionKey::Key(key) = self else { return None };
        let is_limited = (1..=Self::PARTITION).contains(&key);
        is_limited.then(|| {
            format!(
                "is a limited member of partition {key:#06x} (entry {index} of its partition key table), and two limited members do \
                 not reach each other: set btl_ibex_pkey_index to an entry of a full member (0x8000 and more, see \
                 /sys/class/infiniband/*/ports/*/pkeys), or have the subnet manager make this host one"
            )
        })
    }
}

pub(super) fn usable(port: &PortInfo, tunables: &Tunables) -> Result<(), String> {
    works(port)?;
    carries(port, tunables)?;
    is_member(port, tunables.pkey_index)
}

fn is_member(port: &PortInfo, index: u64) -> Result<(), String> {
    match port.partition_key {
        PartitionKey::Missing(entries) => Err(format!(
            "btl_ibex_pkey_index is {index}, but its partition key table has {entries} entries; choose a smaller index"
        )),
        // Ethernet has no partitions, whatever the adapter reports.
        PartitionKey::Key(key) if key & PartitionKey::PARTITION == 0 && port.link_layer == LINK_INFINIBAND => {
            Err(format!(
                "btl_ibex_pkey_index asks for entry {index} of its partition key table, which is empty; look which entries the subnet \
             manager has filled (/sys/class/infiniband/*/ports/*/pkeys)"
            ))
        }
        _ => Ok(()),
    }
}

fn works(port: &PortInfo) -> Result<(), String> {
    let infiniband = port.link_layer == LINK_INFINIBAND;
    if !infiniband && port.link_layer != LINK_ETHERNET {
        return Err(format!(
            "its link layer is {}, but ibex supports only InfiniBand (1) and Ethernet (2)",
            port.link_layer
        ));
    }
    let subnet_manager = "start a subnet manager (opensm) or enable it in a switch";
    Err(match port.state {
        PORT_ACTIVE if infiniband && port.lid == 0 => {
            format!("it is active but has no LID, because no subnet manager has assigned one; {subnet_manager}")
        }
        PORT_ACTIVE if infiniband && port.lid > 0xbfff => format!(
            "its LID {:#x} is not a unicast LID (1 to 0xbfff); check the subnet manager's configuration",
            port.lid
        ),
        PORT_ACTIVE => return Ok(()),
        PORT_DOWN if infiniband => "its link is down; check its cable and the other end".to_owned(),
        PORT_DOWN => {
            "its link is down; bring its network interface up (ip link set ... up) and check its cable".to_owned()
        }
        PORT_INIT | PORT_ARMED => format!(
            "it is {}, not active: no subnet manager has configured it completely; {subnet_manager}",
            state(port.state)
        ),
        other => format!("it is {}, not active; wait until its link has recovered", state(other)),
    })
}

fn state(number: u32) -> String {
    let name = match number {
        PORT_NOP => "in no state",
        PORT_INIT => "initialised",
        PORT_ARMED => "armed",
        PORT_ACTIVE_DEFER => "active but deferred by a link error",
        _ => return format!("in the unknown state {number}"),
    };
    name.to_owned()
}

fn carries(port: &PortInfo, tunables: &Tunables) -> Result<(), String> {
    let Some(active) = mtu_bytes(port.active_mtu) else {
        return Err(format!("its active MTU has the code {}, which verbs does not define (1 to 5)", port.active_mtu));
    };
    match tunables.forced_mtu() {
        Some(asked) if asked > active => Err(format!(
            "btl_ibex_mtu asks for {asked} bytes, but its active MTU is {active}; ask for at most {active} or raise the MTU of \
             the network"
        )),
        _ => Ok(()),
    }
}
