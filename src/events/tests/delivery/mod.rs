// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the delivery: by buffers, in the order of the sources, in a tool's own call, and by the raiser itself.

mod buffers;
mod direct;
mod flush;
mod order;
