// SPDX-License-Identifier: MIT OR Apache-2.0
//! The devices and ports of this machine, and which of them this process shall use.
//!
//! Asks verbs what there is and leaves the choice to `select.rs` and `gid.rs`. Called once, when the component is initialised.
//! Setup grade. Tests: the choice has its own; the survey is tested by the device tests in `hw-tests`.

use crate::address::{LINK_ETHERNET, PortAddress};

/// A port that was chosen, with what it takes to open it.
#[derive(Debug, Clone)]
pub struct PortChoice {
    /// The device's name.
    pub device: String,
    /// The port's number, from 1.
    pub port: u8,
    /// `IBV_LINK_LAYER_*`.
    pub link_layer: u8,
    /// The local identifier; 0 on Ethernet.
    pub lid: u16,
    /// The index of the chosen GID.
    pub gid_index: u8,
    /// The chosen GID.
    pub gid: [u8; 16],
    /// Its type, `IBV_GID_TYPE_*`.
    pub gid_type: u8,
    /// The MTU to use at most, as verbs.h's code.
    pub mtu: u8,
}

impl PortChoice {
    /// Whether peers are addressed by GID alone.
    #[must_use]
    pub fn is_ethernet(&self) -> bool {
        self.link_layer == LINK_ETHERNET
    }

    /// The subnet of an InfiniBand port; 0 on Ethernet.
    #[must_use]
    pub fn subnet_prefix(&self) -> u64 {
        if self.is_ethernet() {
            return 0;
        }
        let mut prefix = [0; 8];
        prefix.copy_from_slice(&self.gid[..8]);
        u64::from_be_bytes(prefix)
    }

    /// What the port publishes, without what it listens on.
    #[must_use]
    pub fn address(&self) -> PortAddress {
        PortAddress {
            link_layer: self.link_layer,
            gid_type: self.gid_type,
            mtu: self.mtu,
            lid: self.lid,
            gid: self.gid,
            subnet_prefix: self.subnet_prefix(),
            ud_qpn: 0,
            tcp_port: 0,
            tcp_addresses: [[0; 16]; 4],
            instance: 0,
            host: 0,
        }
    }
}
