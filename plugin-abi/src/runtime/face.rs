// SPDX-License-Identifier: MIT OR Apache-2.0
//! The faces of ibex: the components of Open MPI that are made of this library, by name.
//!
//! Plain data.

/// A face.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Face {
    /// The byte transfer layer, for ob1 and osc/rdma.
    Btl,
    /// The point-to-point management layer: MPI's messages themselves.
    Pml,
}
