// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue pairs and the objects that their requests name: the queue pairs (`object`), posting to them the plain way
//! (`post`) and piece by piece (`qp_ex`), shared receive queues and XRC domains (`srq`), address handles (`ah`).

pub(crate) mod ah;
pub(crate) mod object;
pub(crate) mod post;
pub(crate) mod qp_ex;
pub(crate) mod srq;
