// SPDX-License-Identifier: MIT OR Apache-2.0
//! A port that is open, for every face that uses it: the engine's port, one caller at a time, and its registrations.
//!
//! Made by `ports`, shared by the faces, closed by the last that lets go of it. Grade: hot ([`OpenPort::enter`] and the
//! accessors), else setup. Threads: any; the engine's port is reached inside `Exclusive`, the rest never changes.

use std::sync::Arc;

use engine::counters::Counters;
use engine::events::{self, SourceId};
use engine::select::device::PortChoice;
use engine::transport::{Attributes, Port, PortError, Setup};
use engine::tunables::Tunables;

use super::exclusive::{Entered, Exclusive};
use super::memory::Memory;
use super::watch;

/// A port that is open.
pub(crate) struct OpenPort {
    /// Dropped before the port, whose adapter touches no memory by then (R3).
    memory: Memory,
    port: Exclusive<Port>,
    attributes: Attributes,
    counters: Arc<Counters>,
    /// Device and port, as `rxe0:1`.
    place: String,
    /// The source of its adapter's events, where that stamps completions.
    source: Option<SourceId>,
    /// Bytes of the largest message that fits in a receive slot, here and at the peers.
    receive_size: u32,
    /// Bytes of the largest message that may wait in memory of no registration.
    bounce_size: u32,
    /// Place among the ports this process publishes.
    index: u8,
}

/// Why a port is not open.
pub(crate) enum NotOpened {
    /// The adapter, or the system, refused.
    Port(PortError),
    /// Open MPI has no registration cache (`grdma`).
    NoCache,
}

impl OpenPort {
    /// Opens a port. `threads`: several threads may use it at the same time.
    pub(super) fn open(
        choice: &PortChoice,
        tunables: &Tunables,
        setup: Setup,
        threads: bool,
    ) -> Result<Self, NotOpened> {
        let Setup { index, receive_size, bounce_size, .. } = setup;
        let port = Port::open(choice, tunables, setup).map_err(NotOpened::Port)?;
        let memory = Memory::new(&port, index, tunables.relaxed_ordering).ok_or(NotOpened::NoCache)?;
        let (attributes, counters, source) = (port.attributes().clone(), port.counters(), port.source());
        let place = attributes.place();
        // SAFETY: without threads Open MPI has promised that one at a time calls (the init functions'
        // `enable_mpi_threads`).
        let port = if threads { Exclusive::locked(port) } else { unsafe { Exclusive::unlocked(port) } };
        Ok(OpenPort { memory, port, attributes, counters, place, source, receive_size, bounce_size, index })
    }

    /// What is entered, for who keeps its address. It lives as long as this.
    pub(crate) fn exclusive(&self) -> &Exclusive<Port> {
        &self.port
    }

    /// Waits for other threads; `None`: this thread is inside already.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Entered<'_, Port>> {
        self.port.enter()
    }

    /// Its registrations.
    #[inline]
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// What it is and can.
    pub(crate) fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Its counts.
    pub(crate) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Device and port, as `rxe0:1`.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// The source of its adapter's events; `None` where it does not stamp completions.
    pub(crate) fn source(&self) -> Option<SourceId> {
        self.source
    }

    /// Bytes of the largest message: a receive slot's.
    pub(crate) fn receive_size(&self) -> usize {
        self.receive_size as usize
    }

    /// Bytes of the largest message that may wait in memory of no registration.
    pub(crate) fn bounce_size(&self) -> usize {
        self.bounce_size as usize
    }

    /// Place among the ports this process publishes.
    #[inline]
    pub(crate) fn index(&self) -> u8 {
        self.index
    }
}

impl Drop for OpenPort {
    /// Ends the port, then the registrations: once no adapter touches memory they may go (R3).
    fn drop(&mut self) {
        self.port.get_mut().close();
        if let Some(source) = self.source {
            events::close_port(source, watch::SAFETY);
        }
    }
}
