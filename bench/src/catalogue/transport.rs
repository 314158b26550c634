// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can carry a measurement: its names, its place in a table, and what of this machine it needs.
//!
//! Grade: setup. Used by all of the bench. Tests: at the end of this file.

use clap::ValueEnum;

/// What carried a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Transport {
    /// MPI through ibex: its PML.
    Ibex,
    /// MPI through ibex's BTL, under ob1.
    IbexBtl,
    /// The adapter without MPI: perftest.
    Raw,
    /// MPI through Open MPI's own openib BTL.
    Openib,
    /// MPI through Open MPI's UCX PML.
    Ucx,
    /// MPI through libfabric: the PML `cm` over the MTL `ofi`.
    Ofi,
    /// MPI through libfabric under ob1: Open MPI's BTL `ofi`.
    OfiBtl,
    /// UCX without MPI: `ucx_perftest`.
    #[value(name = "ucx_perftest")]
    UcxPerftest,
    /// MPI through Open MPI's tcp BTL on the interface of the same device.
    Tcp,
    /// The bare memory of the host.
    #[value(skip)]
    Memory,
    /// MPI through an ibex that was built without events.
    #[value(skip)]
    WithoutEvents,
    /// MPI through ibex while nobody is registered for an event: what [`Self::IbexBtl`] is, named beside the others.
    #[value(skip)]
    Unregistered,
    /// While a tool is registered for every event, with a callback that does nothing.
    #[value(skip)]
    Callbacks,
    /// The same, with buffered registrations.
    #[value(skip)]
    Buffered,
    /// While the logger writes every event to a file.
    #[value(skip)]
    Logger,
    /// While the recorder writes every event to a trace (`IBEX_TRACE`).
    #[value(skip)]
    Recorded,
    /// MPI through ibex's PML while a tool listens by PERUSE to another communicator than the messages are on.
    #[value(skip)]
    Elsewhere,
    /// To their own, but for an event that does not come.
    #[value(skip)]
    Watched,
    /// To all events of theirs, by PERUSE, with a callback that does nothing.
    #[value(skip)]
    Peruse,
    /// The same by `MPI_T`.
    #[value(skip)]
    MpiT,
    /// The same through buffers in which all of them wait.
    #[value(skip)]
    Kept,
    /// The same through buffers that are emptied every so often.
    #[value(skip)]
    Delivered,
    /// While a tool has `MPI_T` initialised and registers nothing.
    #[value(skip)]
    Initialised,
    /// The same through the BTL.
    #[value(skip)]
    InitialisedBtl,
}

/// What `--events` compares; the first is what the others are compared with.
pub(crate) const EVENTS: [Transport; 6] = [
    Transport::WithoutEvents,
    Transport::Unregistered,
    Transport::Callbacks,
    Transport::Buffered,
    Transport::Logger,
    Transport::Recorded,
];

/// What `--events` counts the instructions of over the PML, whose events are those of the matching; the first is what
/// the others are compared with.
pub(crate) const EVENTS_OF_MATCHING: [Transport; 7] = [
    Transport::Ibex,
    Transport::Elsewhere,
    Transport::Watched,
    Transport::Peruse,
    Transport::MpiT,
    Transport::Kept,
    Transport::Delivered,
];

/// All of them, in the order of tables.
pub(crate) fn all() -> impl Iterator<Item = Transport> {
    let named = Transport::value_variants().iter().copied();
    let events = EVENTS.into_iter().chain(EVENTS_OF_MATCHING.into_iter().skip(1));
    named.chain([Transport::Memory]).chain(events)
}

impl Transport {
    /// Its name in `report.json`, in tables, and for `--transports`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ibex => "ibex",
            Self::IbexBtl => "ibex-btl",
            Self::Raw => "raw",
            Self::Openib => "openib",
            Self::Ucx => "ucx",
            Self::Ofi => "ofi",
            Self::OfiBtl => "ofi-btl",
            Self::UcxPerftest => "ucx_perftest",
            Self::Tcp => "tcp",
            Self::Memory => "memory",
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
            Self::Initialised => "initialised",
            Self::InitialisedBtl => "initialised-btl",
        }
    }

    /// What it is, for the legend of `--events`.
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
            _ => self.name(),
        }
    }

    pub(crate) fn is_mpi(self) -> bool {
        matches!(self, Self::Openib | Self::Ucx | Self::Ofi | Self::OfiBtl | Self::Tcp) || self.is_ibex()
    }

    /// Whether that is ibex, of one build or another, watched or not.
    #[must_use]
    pub fn is_ibex(self) -> bool {
        matches!(self, Self::IbexBtl | Self::InitialisedBtl) || EVENTS.contains(&self) || self.is_pml()
    }

    /// Whether that is ibex's PML, watched or not.
    pub(crate) fn is_pml(self) -> bool {
        self == Self::Initialised || EVENTS_OF_MATCHING.contains(&self)
    }

    /// Whether the tool `every_event` is in the ranks.
    pub(crate) fn has_every_event(self) -> bool {
        matches!(self, Self::Callbacks | Self::Buffered) || self.way_of_every_event().is_some()
    }

    /// What the tool is told: to listen to the events of the matching and how, or to none (`EVERY_EVENT`).
    pub(crate) fn way_of_every_event(self) -> Option<&'static str> {
        match self {
            Self::Elsewhere | Self::Watched | Self::Peruse | Self::MpiT | Self::Delivered => Some(self.name()),
            Self::Kept => Some("buffered"),
            Self::Initialised | Self::InitialisedBtl => Some("nothing"),
            _ => None,
        }
    }

    pub(crate) fn is_ofi(self) -> bool {
        matches!(self, Self::Ofi | Self::OfiBtl)
    }

    /// The component of Open MPI it needs beyond ob1, as `ompi_info --parsable` begins its line.
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
