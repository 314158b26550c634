// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the sources of ports and of their parts: extended timestamps, their order, and the relation of the clocks.

mod clock_correlation;
mod ports;
mod reorder_buffer;
mod unwrap;
