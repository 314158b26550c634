// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers of `<infiniband/verbs.h>` under their names there, less the common prefix of an enumeration:
//! `qp_type::RC` is `IBV_QPT_RC` (build.rs). Integers, never enums, because they come from programs. Grade: constants.

#![expect(missing_docs, reason = "the names are those of <infiniband/verbs.h>, where each is documented")]

use qp_type::{UC, UD, XRC_RECV, XRC_SEND};

include!(concat!(env!("OUT_DIR"), "/codes.rs"));

/// Whether the peer answers the packets of a queue pair of this type.
pub const fn is_reliable(kind: u32) -> bool {
    kind != UC && kind != UD
}

/// The type that a queue pair of this type must be connected to.
pub const fn answering(kind: u32) -> u32 {
    if kind == XRC_SEND { XRC_RECV } else { kind }
}

/// The optional range of `access` (relaxed ordering and others): without effect.
pub const OPTIONAL_ACCESS: u32 = 0x3ff0_0000;

pub mod link_layer {
    pub const INFINIBAND: u8 = 1;
    pub const ETHERNET: u8 = 2;
}

pub mod gid_kind {
    pub const IB: u8 = 0;
    pub const ROCE_V1: u8 = 1;
    pub const ROCE_V2: u8 = 2;
}
