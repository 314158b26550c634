// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host of the messenger: who owns its requests, their data, and what is registered for them. Open MPI's face is one
//! (`pml/request.rs`). Grade: hot, by static dispatch. Threads: the one that has entered the messenger.

use std::fmt::Debug;

/// Types of a host that the messenger's records contain.
pub trait Host {
    /// Data of a request, in user memory.
    type Data;
    /// Registration of user memory with a port.
    type Registration: Copy + Debug;
    /// What tools are told of the reads of a message.
    type WatchedReads;
}
