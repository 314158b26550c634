// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an adapter can do, in numbers that differ between adapters: as `ibv_query_device` tells them, and as making
//! objects and posting hold to them. The keys of `[device.limits]`.
//!
//! Called by: the configuration (reads them), `profiles` (has those of real adapters), the engine (enforces them).
//! Grade: setup. A limit above what the fabric's memory holds is told, and an object that large fails with ENOMEM.

use serde::Deserialize;

use crate::engine::MAX_QPS;

/// The largest inline data that any adapter can be given.
pub(crate) const MOST_INLINE: u32 = 1024;
/// The most pieces of memory that a request of any adapter may have.
pub(crate) const MOST_SGE: usize = 32;
/// 2^30: a copy between processes may move a little less than 2^31 bytes.
pub(crate) const MOST_MESSAGE: u32 = 1 << 30;
/// The longest table of GIDs.
pub(crate) const MOST_GIDS: u32 = 4096;

/// What `ibv_device_attr.atomic_cap` says, and whether there are atomics.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Atomics {
    /// `IBV_ATOMIC_NONE`
    None,
    /// `IBV_ATOMIC_HCA`
    Hca,
    /// `IBV_ATOMIC_GLOB`
    Glob,
}

/// What an adapter can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of ibv_device_attr, ibv_port_attr and ibv_qp_cap")]
pub struct Limits {
    pub max_qp: i32,
    pub max_qp_wr: i32,
    pub max_sge: i32,
    pub max_sge_rd: i32,
    pub max_cqe: i32,
    pub max_qp_rd_atom: i32,
    pub max_qp_init_rd_atom: i32,
    pub max_srq_wr: i32,
    pub max_srq_sge: i32,
    pub max_pkeys: u16,
    pub max_inline: u32,
    pub max_msg_sz: u32,
    /// The rows of a port's table of GIDs; 0: as many as the port is given.
    pub gid_table_len: u32,
    pub atomics: Atomics,
}

impl Limits {
    /// Those of an adapter without a profile.
    pub const USUAL: Limits = Limits {
        max_qp: MAX_QPS as i32 - 64,
        max_qp_wr: 1 << 15,
        max_sge: 16,
        max_sge_rd: 16,
        max_cqe: 1 << 18,
        max_qp_rd_atom: 16,
        max_qp_init_rd_atom: 16,
        max_srq_wr: 1 << 15,
        max_srq_sge: 16,
        max_pkeys: 128,
        max_inline: 256,
        max_msg_sz: MOST_MESSAGE,
        gid_table_len: 0,
        atomics: Atomics::Hca,
    };
}

macro_rules! keys {
    ($($key:ident: $kind:ty = $least:literal..=$most:expr;)*) => {
        /// `[device.limits]`
        #[derive(Clone, Copy, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct Given {
            $($key: Option<$kind>,)*
            atomics: Option<Atomics>,
        }

        impl Given {
            /// `base`, but for what is given; or which number is out of its bounds.
            pub(crate) fn over(&self, base: &Limits) -> Result<Limits, String> {
                let mut limits = Limits { atomics: self.atomics.unwrap_or(base.atomics), ..*base };
                $(if let Some(given) = self.$key {
                    let (least, most): ($kind, $kind) = ($least, $most);
                    if !(least..=most).contains(&given) {
                        return Err(format!("{} = {given}: {least} to {most}", stringify!($key)));
                    }
                    limits.$key = given;
                })*
                Ok(limits)
            }
        }
    };
}

keys! {
    max_qp: i32 = 1..=i32::MAX;
    max_qp_wr: i32 = 1..=i32::MAX;
    max_cqe: i32 = 1..=i32::MAX;
    max_srq_wr: i32 = 1..=i32::MAX;
    max_srq_sge: i32 = 1..=MOST_SGE as i32;
    max_sge: i32 = 1..=MOST_SGE as i32;
    max_sge_rd: i32 = 1..=MOST_SGE as i32;
    max_inline: u32 = 0..=MOST_INLINE;
    max_qp_rd_atom: i32 = 0..=255;
    max_qp_init_rd_atom: i32 = 0..=255;
    max_msg_sz: u32 = 1..=MOST_MESSAGE;
    gid_table_len: u32 = 1..=MOST_GIDS;
}
