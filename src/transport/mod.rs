// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transport: messages, RDMA and atomics between ports of adapters, over reliable-connected queue pairs.
//! - [`port`]: the object that the plugin holds; combines the parts, and reports results in a [`Batch`].
//! - `tx`: the send side. Credits, posted requests, backlog, bounce buffers; per connection the send queue.
//! - `rx`: the receive side. Receive slots and their return to the shared receive queue.
//! - `connections`: the peers, the state of each connection, the handshakes in progress, the reasons of failures.
//! - `kept`: data of failed connections for a caller with several ports.
//! - [`adapter`]: the traits through which all of them reach the adapter: libibverbs, or a scripted one in unit tests.
//! - [`completion`], [`work_request`]: shared types.
//!
//! Calls go down this list. Nothing here calls back, except the handler of a poll ([`TakesMessages`]).

pub mod adapter;
pub mod completion;
mod connections;
mod kept;
pub mod port;
mod rx;
mod tx;
mod watch;
pub mod work_request;

pub use completion::{Arrived, Batch, Completion, Failed, TakesMessages, TakesRequests, Token};
pub use connections::failure::{Cause, Failure};
pub use connections::retransmission::Retransmission;
pub use kept::Unposted;
#[cfg(feature = "stand-in")]
pub use port::StandIn;
pub use port::{Atomics, Attributes, Directory, Polled, Port, PortError, Refused, Sent, Setup, WhenDiverted};
pub use tx::posted;
pub use work_request::{EndpointId, Immediate, WrId};
