// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messenger's ports (`engine::messenger::host::Ports`): the ports of the adapters, called rails here, and the
//! memory that the processes of a host share.
//!
//! - Which route leads to a peer: `rails`; `failover` when a port goes down. Marked routes: `flow`.
//! - Messages: `routing` sends by shared memory or by the peer's home, `transmit` by one port, from a `buffer`;
//!   `fragment` packs and posts fragments, `read` reads. `token` names what a completion reports.
//! - Processes of this host: `local`, over the BTL of `shared_memory`.

pub(super) mod buffer;
pub(super) mod failover;
pub(super) mod flow;
pub(super) mod fragment;
pub(super) mod local;
pub(super) mod rails;
pub(super) mod read;
pub(super) mod routing;
pub(super) mod shared_memory;
pub(super) mod token;
pub(super) mod transmit;
