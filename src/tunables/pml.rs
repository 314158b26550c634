// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parameters of the PML alone, which Open MPI shows as `pml_ibex_<name>`.
//!
//! Owns their table and checked values, as `tunables.rs` does for all others. Path: setup. Threads: read-only after
//! start. Tests: `tests.rs`.

use super::{OutOfBounds, Value};

table! {
    /// Every parameter of the PML's own, in the order of [`Tunables::from_values`].
    TABLE;
    /// The checked value of every parameter: one field per row of [`TABLE`], in the row's unit.
    Tunables;
    "pml_ibex_";

    // Above that of ucx with a device it knows (51).
    priority: Count { default: 60, min: 0, max: 2147483647 }, "", level 5,
        "Above it other PMLs are preferred, below it ibex is.",
        "None on messages.";
    // The default: a measurement is still to be made. The least: a message that is a header alone.
    eager_limit: Count { default: 12288, min: 64, max: 1048576 }, "bytes", level 5,
        "The longest message, with its header, that is sent at once; at most what a receive slot holds.",
        "A longer one is announced, and read by its receiver.";
    // The default: the sender's copy is to be cheaper than the kernel's.
    local_eager_limit: Count { default: 4096, min: 0, max: 1048576 }, "bytes", level 5,
        "The longest message, without its header, that is sent at once to a process of the same host by shared memory; at most what \
         that takes at once.",
        "A longer one is announced, and read from the sender's memory by its receiver.";
    unexpected_memory: Count { default: 4194304, min: 0, max: 1099511627776 }, "bytes", level 5,
        "Memory that a process keeps messages in for which it has posted no receive.",
        "Beyond it the senders are held back: they announce also short messages, which stay in the user's buffers until they are \
         received. Beyond it also come what the receive slots hold, what was sent before a sender heard of it, and a header for each \
         message announced.";
    receiver_first: Count { default: 0, min: 0, max: 2 }, "", level 5,
        "Whether a blocking receive for a message longer than eager_limit, once it has waited for a while, tells its sender where to \
         write. 0: no; 1: where that has been of use of late; 2: always.",
        "The sender writes there, and nobody asks for the message. With several ports, with MPI_THREAD_MULTIPLE, and while a tool \
         listens, nothing is told.";
}

impl Tunables {
    /// Takes the value of every parameter, in the order of [`TABLE`], and checks each.
    ///
    /// # Errors
    /// [`OutOfBounds`] for the first value that is not permitted; it names parameter, value and range.
    pub fn from_values(values: &[Value]) -> Result<Tunables, OutOfBounds> {
        Self::from_rows(values)
    }
}
