// SPDX-License-Identifier: MIT OR Apache-2.0
//! The wire: a request is executed at the queue pair it is meant for. `message` is the request and its outcome,
//! `responder` the side that answers, `transmit` the way to it; what is done there is `receive` (sends), `rdma` (RDMA
//! and atomics) and `datagram`.

mod datagram;
pub(crate) mod message;
mod rdma;
mod receive;
mod responder;
pub(crate) mod transmit;
