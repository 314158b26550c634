// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state that all threads of a host's process share: its ports, called rails here.
//!
//! Called by `messenger/rails`. Grade: hot, by static dispatch. Threads: any. Tests: those of the hosts.

use std::fmt::Debug;
use std::ops::DerefMut;

use crate::messenger::header::WireEnvelope;
use crate::messenger::route::Route;
use crate::transport::adapter::Adapter;
use crate::transport::{Attributes, Port};

/// The types that a host and its ports have in common.
pub trait Types: Sized {
    /// Names a request.
    type Handle: Copy + PartialEq + Debug;
    /// The state that all threads of the process share.
    type Process: Process;
    /// Registration of user memory with a port.
    type Registration: Copy + Debug;
    /// By what messages are matched: MPI's envelope, or libfabric's.
    type Envelope: WireEnvelope;
}

/// Names a process in a communicator of a host, or any: MPI's rank.
pub type PeerOf<H> = <<H as Types>::Envelope as WireEnvelope>::Peer;

/// A tag as a host's requests name it.
pub type TagOf<H> = <<H as Types>::Envelope as WireEnvelope>::Tag;

/// The ports of a process.
pub trait Process {
    /// Tag of the messenger's messages at the ports.
    const TAG: u8;

    /// The adapter of the ports.
    type Adapter: Adapter;
    /// A port that this thread has entered; dropping it leaves the port.
    type Entered<'a>: DerefMut<Target = Port<Self::Adapter>>
    where
        Self: 'a;

    /// Returns the number of rails.
    fn rail_count(&self) -> usize;

    /// Returns the properties of a rail; `None`: there is no such rail.
    fn rail(&self, rail: usize) -> Option<&Rail>;

    /// Returns the length of the longest data that is sent eagerly by this route now, bytes.
    fn eager_limit(&self, route: Route) -> usize;

    /// Enters the port of a rail. `None`: there is no such rail, or this thread has entered its port already.
    fn enter_port(&self, rail: usize) -> Option<Self::Entered<'_>>;

    /// Whether there are several rails.
    #[inline]
    fn is_multi_rail(&self) -> bool {
        self.rail_count() > 1
    }
}

/// The properties of a rail. All rails of a process have the same sizes, because messages may move between them.
#[derive(Clone, Copy, Debug)]
pub struct Rail {
    /// Number of the port among those that the process publishes.
    pub port: u8,
    /// Data rate, Mbit/s.
    pub mbps: u32,
    /// Longest message inside a work request, header included, bytes.
    pub max_inline: usize,
    /// Size of a send buffer for eager messages, header included, bytes: the greatest eager limit.
    pub copy_size: usize,
    /// Longest message that a receive slot holds, header included, bytes.
    pub receive_size: usize,
    /// Longest read, bytes.
    pub read_limit: u32,
}

/// Longest read for a software adapter, bytes: the data of several such reads stays in the processor's cache.
const SOFTWARE_READ_LIMIT: u32 = 32 << 10;

impl Rail {
    /// Describes a port by its number and attributes. `sizes`: of its send buffers for eager messages, and of its
    /// receive slots. `read_size`: of the longest read.
    pub fn new(port: u8, of: &Attributes, sizes: (usize, usize), read_size: u32) -> Self {
        let longest = of.max_message.min(u64::from(read_size)) as u32;
        let read_limit = if of.software { longest.min(SOFTWARE_READ_LIMIT) } else { longest };
        let ((copy_size, receive_size), max_inline) = (sizes, of.max_inline as usize);
        Rail { port, mbps: of.mbps, max_inline, copy_size: copy_size.min(receive_size), receive_size, read_limit }
    }

    /// Gives all rails of a process the least sizes of any.
    pub fn make_alike(rails: &mut [&mut Rail]) {
        let least = |size: fn(&Rail) -> usize| rails.iter().map(|rail| size(rail)).min().unwrap_or_default();
        let (copy_size, receive_size) = (least(|rail| rail.copy_size), least(|rail| rail.receive_size));
        for rail in rails {
            (rail.copy_size, rail.receive_size) = (copy_size, receive_size);
        }
    }
}
