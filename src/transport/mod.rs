// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transport: messages, RDMA and atomics between ports of adapters, over reliable-connected queue pairs. The plugin
//! holds a [`port`], which combines the parts and reports results in a [`Batch`]; ARCHITECTURE.md, "The transport in
//! parts", says what each part owns. Nothing here calls back, except the handler of a poll ([`TakesMessages`]).

pub mod adapter;
pub mod completion;
mod connections;
mod kept;
pub mod port;
mod rx;
mod tx;
mod watch;
pub mod work_request;

pub use completion::{Batch, Completion, Failed, ReceivedMessage, TakesMessages, TakesRequests, Token};
pub use connections::failure::{Cause, Failure};
pub use connections::retransmission::Retransmission;
pub use kept::Unposted;
pub use port::{
    Atomics, Attributes, Device, Directory, Polled, Port, PortError, Refused, Sent, SentMessages, Setup, WhenDiverted,
};
pub use work_request::{EndpointId, Immediate, WrId};
