// SPDX-License-Identifier: MIT OR Apache-2.0
//! An open port, shared by both components: the engine's port, used by one caller at a time, and its registrations.
//! Made by `ports`, closed when the last component drops it. Grade: hot ([`OpenPort::enter`] and the accessors), else
//! setup. Threads: any; the engine's port is inside `Exclusive`, the other fields are constant. Tests: `hw-tests`.

use std::sync::Arc;

use engine::counters::Counters;
use engine::events::{self, SourceId};
use engine::select::device::PortChoice;
use engine::transport::{self, Attributes, PortError, Setup};
use engine::tunables::Tunables;

use super::device::{self, Memory, Port};
use super::memory;
use crate::runtime::exclusive::{Entered, Exclusive};
use crate::runtime::watch;

pub(crate) struct OpenPort {
    /// Registration cache. `drop` closes the port before this is dropped (R3).
    memory: Memory,
    port: Exclusive<Port>,
    attributes: Attributes,
    counters: Arc<Counters>,
    /// Device and port, such as `rxe0:1`.
    place: String,
    /// Source of the adapter's events; `None` if the adapter does not stamp completions.
    source: Option<SourceId>,
    /// Size in bytes of a receive slot, here and at the peers: the largest message that fits.
    receive_size: u32,
    /// Size in bytes of the largest message that may wait in unregistered memory.
    bounce_size: u32,
    /// Index among the ports that this process publishes.
    index: u8,
}

pub(crate) enum NotOpened {
    Port(PortError),
    NoCache,
}

impl OpenPort {
    /// Opens a port. `threads`: whether several threads may use it at the same time.
    pub(super) fn open(
        choice: &PortChoice,
        tunables: &Tunables,
        setup: Setup,
        threads: bool,
    ) -> Result<Self, NotOpened> {
        let Setup { index, receive_size, bounce_size, .. } = setup;
        let port = transport::Port::open(choice, tunables, setup).map_err(NotOpened::Port)?;
        let memory = memory::Memory::new(&port, index, tunables.relaxed_ordering).ok_or(NotOpened::NoCache)?;
        Ok(OpenPort::of(device::opened(port, memory), (receive_size, bounce_size), index, threads))
    }

    pub(super) fn of(
        (port, memory): (Port, Memory),
        (receive_size, bounce_size): (u32, u32),
        index: u8,
        threads: bool,
    ) -> Self {
        let (attributes, counters, source) = (port.attributes().clone(), port.counters(), port.source());
        let place = attributes.place();
        // SAFETY: without `enable_mpi_threads` at init Open MPI promises to call from one thread at a time.
        let port = if threads { Exclusive::locked(port) } else { unsafe { Exclusive::unlocked(port) } };
        OpenPort { memory, port, attributes, counters, place, source, receive_size, bounce_size, index }
    }

    /// Returns the part that is entered, for callers that keep its address. It lives as long as `self`.
    pub(crate) fn exclusive(&self) -> &Exclusive<Port> {
        &self.port
    }

    #[inline]
    pub(crate) fn enter(&self) -> Option<Entered<'_, Port>> {
        self.port.enter()
    }

    #[inline]
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    pub(crate) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    pub(crate) fn source(&self) -> Option<SourceId> {
        self.source
    }

    pub(crate) fn receive_size(&self) -> usize {
        self.receive_size as usize
    }

    pub(crate) fn bounce_size(&self) -> usize {
        self.bounce_size as usize
    }

    #[inline]
    pub(crate) fn index(&self) -> u8 {
        self.index
    }
}

impl Drop for OpenPort {
    /// Closes the port. The fields are dropped afterwards: registrations may end once no adapter touches memory (R3).
    fn drop(&mut self) {
        self.port.get_mut().close();
        if let Some(source) = self.source {
            events::close_port(source, watch::SAFETY);
        }
    }
}
