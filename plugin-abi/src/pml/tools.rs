// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tools see of the PML (`engine::messenger::host::Tools`): the events of requests, messages and searches
//! (`watch`), of transfers (`transfers`), and of the path of a message (`path_taken`); performance variables
//! (`variables`); the flight recorder (`flight`). `listening` opens and closes the fast paths when tools start or stop
//! listening.

pub(super) mod flight;
pub(super) mod listening;
pub(super) mod path_taken;
pub(super) mod transfers;
pub(super) mod variables;
pub(super) mod watch;
