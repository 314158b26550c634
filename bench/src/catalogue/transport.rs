// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transports of a measurement: their names, their order in a table, and what each needs of this machine. Used by
//! all of the bench. Grade: setup. Tests: below.

use clap::ValueEnum;

/// Transport of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Transport {
    /// MPI through ibex: its PML, or its libfabric provider.
    Ibex,
    /// MPI through ibex's BTL, under ob1.
    IbexBtl,
    /// The adapter without MPI: perftest.
    Raw,
    /// MPI through Open MPI's own openib BTL.
    Openib,
    /// MPI through UCX: Open MPI's PML, or Debian's MPICH.
    Ucx,
    /// MPI through libfabric: the PML `cm` over the MTL `ofi`.
    Ofi,
    /// MPI through libfabric under ob1: Open MPI's BTL `ofi`.
    OfiBtl,
    /// MPI through TCP on the interface of the same device.
    Tcp,
    /// The bare memory of the host.
    #[value(skip)]
    Memory,
    /// MPI through ibex' PML, which reads each long message by one read and not in pieces.
    #[value(skip)]
    Uncut,
    /// MPI through an ibex that was built without events.
    #[value(skip)]
    WithoutEvents,
    /// MPI through ibex while no tool is registered for an event: the same as [`Self::IbexBtl`].
    #[value(skip)]
    Unregistered,
    /// MPI through ibex's BTL while a tool is registered for every event, with a callback that does nothing.
    #[value(skip)]
    Callbacks,
    /// Like [`Self::Callbacks`], with buffered registrations.
    #[value(skip)]
    Buffered,
    /// MPI through ibex's BTL while the logger writes every event to a file.
    #[value(skip)]
    Logger,
    /// MPI through ibex's BTL while the recorder writes every event to a trace (`IBEX_TRACE`).
    #[value(skip)]
    Recorded,
    /// MPI through ibex's PML, as are the next ones, while a tool listens by PERUSE to a communicator without messages.
    #[value(skip)]
    Elsewhere,
    /// While a tool listens to the messages' communicator for an event that does not come.
    #[value(skip)]
    Watched,
    /// While a tool listens to all events of the messages' communicator by PERUSE, with a callback that does nothing.
    #[value(skip)]
    Peruse,
    /// While a tool listens to the same events by `MPI_T`.
    #[value(skip)]
    MpiT,
    /// While a tool listens to the same events through buffers in which all of them stay.
    #[value(skip)]
    Kept,
    /// While a tool listens to the same events through buffers that are emptied from time to time.
    #[value(skip)]
    Delivered,
    /// While a tool listens to the arrivals of messages alone, by the adapter's clock.
    #[value(skip)]
    Stamped,
    /// While a tool listens to the same by the host's clock.
    #[value(skip)]
    Unstamped,
    /// While a tool has `MPI_T` initialised and registers nothing.
    #[value(skip)]
    Initialised,
    /// Like [`Self::Initialised`], through the BTL.
    #[value(skip)]
    InitialisedBtl,
}

/// The first way, and the ways that `--events` compares with it.
pub(crate) const EVENTS: [Transport; 6] = [
    Transport::WithoutEvents,
    Transport::Unregistered,
    Transport::Callbacks,
    Transport::Buffered,
    Transport::Logger,
    Transport::Recorded,
];

/// Ways whose instructions `--events` counts over the PML, which has the matching events, and compares with the first.
pub(crate) const EVENTS_OF_MATCHING: [Transport; 9] = [
    Transport::Ibex,
    Transport::Elsewhere,
    Transport::Watched,
    Transport::Peruse,
    Transport::MpiT,
    Transport::Kept,
    Transport::Delivered,
    Transport::Stamped,
    Transport::Unstamped,
];

pub(crate) fn all() -> impl Iterator<Item = Transport> {
    let named = Transport::value_variants().iter().copied();
    let events = EVENTS.into_iter().chain(EVENTS_OF_MATCHING.into_iter().skip(1));
    named.chain([Transport::Memory, Transport::Uncut]).chain(events)
}

impl Transport {
    /// Returns its name in `report.json`, in tables, and for `--transports`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ibex => "ibex",
            Self::IbexBtl => "ibex-btl",
            Self::Raw => "raw",
            Self::Openib => "openib",
            Self::Ucx => "ucx",
            Self::Ofi => "ofi",
            Self::OfiBtl => "ofi-btl",
            Self::Tcp => "tcp",
            Self::Memory => "memory",
            Self::Uncut => "uncut",
            Self::WithoutEvents => "without",
            Self::Unregistered => "unregistered",
            Self::Callbacks => "callbacks",
            Self::Buffered => "buffered",
            Self::Logger => "logger",
            Self::Recorded => "recorded",
            Self::Elsewhere => "elsewhere",
            Self::Watched => "watched",
            Self::Peruse => "peruse",
            Self::MpiT => "mpi_t",
            Self::Kept => "kept",
            Self::Delivered => "delivered",
            Self::Stamped => "stamped",
            Self::Unstamped => "unstamped",
            Self::Initialised => "initialised",
            Self::InitialisedBtl => "initialised-btl",
        }
    }

    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Ibex => "MPI through ibex",
            Self::WithoutEvents => "a build without events",
            Self::Unregistered => "nobody registered",
            Self::Callbacks => "every event, an empty callback",
            Self::Buffered => "every event, buffered",
            Self::Logger => "every event written as text",
            Self::Recorded => "every event recorded in a trace",
            Self::Elsewhere => "PML: PERUSE on another communicator",
            Self::Watched => "PML: PERUSE, for an event that does not come",
            Self::Peruse => "PML: every event by PERUSE, an empty callback",
            Self::MpiT => "PML: every event by MPI_T, an empty callback",
            Self::Kept => "PML: every event into a buffer",
            Self::Delivered => "PML: through a buffer to an empty callback",
            Self::Stamped => "PML: arrivals by the adapter's clock",
            Self::Unstamped => "PML: arrivals by the host's clock",
            _ => self.name(),
        }
    }

    pub(crate) fn is_mpi(self) -> bool {
        matches!(self, Self::Openib | Self::Ucx | Self::Ofi | Self::OfiBtl | Self::Tcp) || self.is_ibex()
    }

    /// Whether it is ibex, of any build, with or without a tool.
    pub fn is_ibex(self) -> bool {
        matches!(self, Self::IbexBtl | Self::InitialisedBtl) || EVENTS.contains(&self) || self.is_pml()
    }

    /// Whether it is ibex's PML, with or without a tool.
    pub(crate) fn is_pml(self) -> bool {
        matches!(self, Self::Initialised | Self::Uncut) || EVENTS_OF_MATCHING.contains(&self)
    }

    /// Whether the tool `every_event` is in the ranks.
    pub(crate) fn has_every_event(self) -> bool {
        matches!(self, Self::Callbacks | Self::Buffered) || self.way_of_every_event().is_some()
    }

    /// Returns the value of `EVERY_EVENT` that makes the tool listen to the matching events, or to none.
    pub(crate) fn way_of_every_event(self) -> Option<&'static str> {
        match self {
            Self::Elsewhere | Self::Watched | Self::Peruse | Self::MpiT | Self::Delivered => Some(self.name()),
            Self::Kept => Some("buffered"),
            Self::Stamped | Self::Unstamped => Some("ibex_msg_arrived"),
            Self::Initialised | Self::InitialisedBtl => Some("nothing"),
            _ => None,
        }
    }

    pub(crate) fn is_ofi(self) -> bool {
        matches!(self, Self::Ofi | Self::OfiBtl)
    }

    /// Returns the component of Open MPI that it needs beyond ob1, as its line of `ompi_info --parsable` begins.
    pub(crate) fn component(self) -> Option<&'static str> {
        match self {
            Self::Openib => Some("mca:btl:openib:"),
            Self::Ucx => Some("mca:pml:ucx:"),
            Self::Ofi => Some("mca:mtl:ofi:"),
            Self::OfiBtl => Some("mca:btl:ofi:"),
            Self::Tcp => Some("mca:btl:tcp:"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_on_the_command_line_are_those_of_the_report() {
        for transport in Transport::value_variants() {
            assert_eq!(transport.to_possible_value().unwrap().get_name(), transport.name());
        }
    }
}
