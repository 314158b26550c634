// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transport: messages, RDMA and atomics between ports of adapters, over reliable-connected queue pairs.
//!
//! - [`port`]: what the plugin holds; ties the parts together, and reports what happened in a [`Batch`].
//! - `tx`: the way out. Credits, what is posted, what waits, bounce buffers; per connection the send queue.
//! - `rx`: the way in. Receive slots and their way back to the shared receive queue.
//! - `connections`: the peers, how far each connection is, the handshakes under way, why one failed.
//! - `kept`: what is kept of failed connections for a caller that has several ports.
//! - [`adapter`]: the traits through which all of them meet the adapter: libibverbs, or in unit tests a scripted one.
//! - [`completion`], [`work_request`]: the words they share.
//!
//! Calls go down this list. Nothing here calls back.

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
pub use port::{Atomics, Attributes, Directory, Polled, Port, PortError, Refused, Sent, Setup, WhenDiverted};
pub use tx::posted;
pub use work_request::{EndpointId, Immediate, WrId};
