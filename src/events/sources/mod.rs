// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sources and their clocks. Owns the table of sources with their counts, the host's clock, and, for each port, the
//! extended timestamps, the events that are not due yet, and the relation of the adapter's clock to the host's. Called
//! by `raise.rs`, the delivery, and tools' queries. Grade: hot while a tool listens; opening, closing and queries
//! setup. Threads: any.

pub(super) mod clock;
pub(super) mod clock_correlation;
pub(super) mod port_source;
pub(super) mod reorder_buffer;
pub(super) mod source;
pub(super) mod unwrap;
