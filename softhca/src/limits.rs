// SPDX-License-Identifier: MIT OR Apache-2.0
//! An adapter's limits in numbers: `ibv_query_device` reports them, making objects and posting enforce them. The keys
//! of `[device.limits]`. Called by: the configuration, `profiles` (has those of real adapters), the engine. Grade:
//! setup. An adapter reports a limit beyond the fabric's memory, but making such an object fails with ENOMEM.

use serde::Deserialize;

use crate::engine::MAX_QPS;

pub(crate) const MOST_INLINE: u32 = 1024;
pub(crate) const MOST_SGE: usize = 32;
/// 2^30: a copy between processes may move a little less than 2^31 bytes.
pub(crate) const MOST_MESSAGE: u32 = 1 << 30;
pub(crate) const MOST_GIDS: u32 = 4096;

/// Value of `ibv_device_attr.atomic_cap`: whether there are atomics.
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

/// Defines [`Limits`], and the table of the file in which every key may be left out.
macro_rules! keys {
    ($($key:ident: $kind:ty = $usual:expr, $least:literal..=$most:expr;)*) => {
        /// The limits of an adapter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the names are those of ibv_device_attr, ibv_port_attr and ibv_qp_cap")]
        pub struct Limits {
            $(pub $key: $kind,)*
            pub atomics: Atomics,
        }

        impl Limits {
            /// The limits of an adapter without a profile.
            pub const USUAL: Limits = Limits { $($key: $usual,)* atomics: Atomics::Hca };
        }

        /// `[device.limits]`
        #[derive(Clone, Copy, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct Given {
            $($key: Option<$kind>,)*
            atomics: Option<Atomics>,
        }

        impl Given {
            /// Returns `base` with the given keys in place of its own, or which number is out of its bounds.
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

// `gid_table_len` is 0 if a port has as many rows as the configuration gives.
keys! {
    max_qp: i32 = MAX_QPS as i32 - 64, 1..=i32::MAX;
    max_qp_wr: i32 = 1 << 15, 1..=i32::MAX;
    max_cqe: i32 = 1 << 18, 1..=i32::MAX;
    max_srq_wr: i32 = 1 << 15, 1..=i32::MAX;
    max_srq_sge: i32 = 16, 1..=MOST_SGE as i32;
    max_sge: i32 = 16, 1..=MOST_SGE as i32;
    max_sge_rd: i32 = 16, 1..=MOST_SGE as i32;
    max_inline: u32 = 256, 0..=MOST_INLINE;
    max_qp_rd_atom: i32 = 16, 0..=255;
    max_qp_init_rd_atom: i32 = 16, 0..=255;
    max_msg_sz: u32 = MOST_MESSAGE, 1..=MOST_MESSAGE;
    max_pkeys: u16 = 128, 1..=128;
    gid_table_len: u32 = 0, 1..=MOST_GIDS;
}
