// SPDX-License-Identifier: MIT OR Apache-2.0
//! A port over what stands in for a device of libibverbs: for the unit tests of who uses the engine.
//!
//! Called by the unit tests of the plugin, which bring an adapter that carries bytes in memory; behind the feature
//! `stand-in`. Setup grade. One thread at a time.

use super::open::{Parts, receive_batch, signal_interval};
use super::{Attributes, Port, Setup};
use crate::connect::Identity;
use crate::counters::Counters;
use crate::select::PortChoice;
use crate::select::address::PortEntry;
use crate::transport::adapter::{Adapter, CompletionQueue as _, ReceiveQueue as _};
use crate::transport::connections::handshakes::{Handshakes, Ourselves};
use crate::transport::rx::Rx;
use crate::transport::tx::{self, Tx, bounce};
use crate::tunables::Tunables;
use std::io;

/// What stands in for a device.
#[derive(Debug)]
pub struct StandIn<A: Adapter> {
    /// Makes queue pairs and slots to send from.
    pub adapter: A,
    /// For receives and sends.
    pub completions: A::CompletionQueue,
    /// With its slots.
    pub receives: A::ReceiveQueue,
    /// By which hellos come and go.
    pub carriers: A::Carriers,
    /// What the port is and can.
    pub attributes: Attributes,
    /// Requests that a queue pair takes.
    pub depth: u32,
    /// What is published of the port.
    pub entry: PortEntry,
}

impl<A: Adapter> Port<A> {
    /// A port of what stands in for a device, which is looked after at each poll that finds nothing.
    ///
    /// # Errors
    /// What the adapter says.
    pub fn of_stand_in(device: StandIn<A>, tunables: &Tunables, setup: Setup) -> io::Result<Self> {
        let StandIn { adapter, completions: cq, receives, carriers, attributes, depth, entry } = device;
        let PortEntry { address, key } = entry;
        let slots = receives.slots();
        let rx = Rx::new(receives, receive_batch(slots), setup.index)?;
        let limits = tx::Limits {
            credits: cq.capacity() - slots,
            signal_interval: signal_interval(depth),
            send_slots: 0,
            max_inline: attributes.max_inline,
        };
        let tx = Tx::new(&limits, adapter.send_slots(setup.bounce_size, bounce::COUNT)?);
        let identity = Identity { name: setup.me, port: setup.index, address };
        let choice = PortChoice {
            device: attributes.device.clone(),
            port: attributes.port,
            link_layer: address.link_layer,
            lid: address.lid,
            gid_index: 0,
            gid: address.gid,
            subnet_length: address.subnet_length,
            gid_type: address.gid_type,
            mtu: address.mtu,
        };
        let parts = Parts {
            handshakes: Handshakes::new(carriers, Ourselves { identity, key, rd_atomic: (4, 4) }),
            cq,
            rx,
            tx,
            adapter,
            attributes,
            counters: Counters::default(),
            bounce_size: setup.bounce_size,
            depth,
            directory: setup.directory,
            choice,
            source: None,
            look_pause: 1,
        };
        Ok(Port::of(parts, tunables))
    }
}
