// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a process does for its fabric besides its programs' calls: it joins (`join`), does what others left to it
//! (`deferred`), runs timers and watches its peers (`thread`), and frees what a dead process had (`burial`).

pub(crate) mod burial;
pub(crate) mod deferred;
mod join;
pub(crate) mod thread;
