// SPDX-License-Identifier: MIT OR Apache-2.0
//! The attributes of queue pairs and addresses: those of verbs, as programs give them and get them.
//!
//! Called by: the C side, the queue pairs, the address handles. Grade: setup. Thread rule: plain values, in the byte
//! order of the host unless verbs say otherwise. A program sets what its mask, or its opcode, names: nothing else of
//! attributes is read.

pub use crate::sys::{ibv_ah_attr as AhAttr, ibv_qp_attr as QpAttr, ibv_qp_cap as QpCap};

/// What is set of an address: its route only if it is global.
pub(crate) fn set_of(address: &AhAttr) -> AhAttr {
    if address.is_global != 0 { *address } else { AhAttr { grh: AhAttr::default().grh, ..*address } }
}

/// The GID that an address leads to.
pub(crate) fn dgid(address: &AhAttr) -> [u8; 16] {
    // SAFETY: both members of the union are the same 16 bytes.
    unsafe { address.grh.dgid.raw }
}
