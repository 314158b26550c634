// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a port from a stand-in for a device of libibverbs: a simulated adapter (`transport/adapter/simulated`).
//! Compiled for tests, and with the feature `stand-in`. Grade: setup. Threads: one at a time.

use super::{Parts, receive_batch, signal_interval};
use crate::connect::Identity;
use crate::counters::Counters;
use crate::select::PortChoice;
use crate::select::address::PortEntry;
use crate::transport::adapter::{Adapter, CompletionQueue as _, ReceiveQueue as _};
use crate::transport::connections::handshakes::{Handshakes, Ourselves};
use crate::transport::port::{Attributes, Port, Setup};
use crate::transport::rx::Rx;
use crate::transport::tx::{self, Tx};
use crate::tunables::Tunables;
use std::io;

pub(crate) struct StandIn<A: Adapter> {
    /// Makes queue pairs and slots to send from.
    pub(crate) adapter: A,
    /// Completion queue of all receives and sends.
    pub(crate) completions: A::CompletionQueue,
    pub(crate) receives: A::ReceiveQueue,
    pub(crate) carriers: A::Carriers,
    pub(crate) attributes: Attributes,
    /// Number of bounce buffers.
    pub(crate) bounces: u32,
    /// Number of requests that a queue pair takes.
    pub(crate) depth: u32,
    /// Entry that the process publishes for the port.
    pub(crate) entry: PortEntry,
}

impl<A: Adapter> Port<A> {
    /// Makes a port from a stand-in. The port checks its carriers and connections at each empty poll.
    pub(crate) fn of_stand_in(device: StandIn<A>, tunables: &Tunables, setup: Setup) -> io::Result<Self> {
        let StandIn { adapter, completions: cq, receives, carriers, attributes, bounces, depth, entry } = device;
        let PortEntry { address, key } = entry;
        let slots = receives.slots();
        let rx = Rx::new(receives, receive_batch(slots), setup.index)?;
        let limits = tx::Limits {
            credits: cq.capacity() - slots,
            signal_interval: signal_interval(depth),
            send_slots: 0,
            max_inline: attributes.max_inline,
        };
        let tx = Tx::new(&limits, adapter.send_slots(setup.bounce_size, bounces)?);
        let identity = Identity { name: setup.me, port: setup.index, address, key };
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
            handshakes: Handshakes::new(carriers, Ourselves { identity, rd_atomic: (4, 4) }),
            cq,
            rx,
            tx,
            adapter,
            attributes,
            counters: Counters::default(),
            depth,
            setup,
            choice,
            source: None,
            look_pause: 1,
        };
        Ok(Port::of(parts, tunables))
    }

    /// Counts this many requests as posted and retired on each new connection in progress, so that its numbers wrap
    /// sooner.
    pub fn skip_requests(&mut self, requests: u32) {
        for to in self.connections.all() {
            if let Some(connection) = self.connections.get_mut(to)
                && !connection.is_made()
                && (connection.queue.posted(), connection.queue.in_flight()) == (0, 0)
            {
                connection.queue.skip(requests);
                // The last message was posted after the skipped numbers, as in a new queue.
                connection.queue.note_message();
            }
        }
    }
}
