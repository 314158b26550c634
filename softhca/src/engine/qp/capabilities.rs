// SPDX-License-Identifier: MIT OR Apache-2.0
//! The values from which a queue pair is created, and its sizes: checks that the adapter has them, and grants sizes.
//! Called by: `verbs` (fills in a `QpInit`), lifetime. Grade: setup. Thread rule: any thread. The rule `Wqe` follows
//! rdma-core `providers/mlx5/verbs.c` (`sq_overhead`, `mlx5_calc_send_wqe`, `mlx5_calc_sq_size`), `SharedWithSge` the
//! kernel's `sw/rxe/rxe_qp.c` (`rxe_qp_init_req`).

use crate::behaviour::{CreateErrno, InlineGrant};
use crate::engine::codes::qp_type::{UD, XRC_SEND};
use crate::engine::{Cq, Errno, Hca, Pd, QpCap, Result, Srq};

/// The values that a queue pair is created from.
pub struct QpInit<'a> {
    /// `codes::qp_type`, except `XRC_RECV`, for which these values do not exist (`Hca::create_xrc_recv`).
    pub kind: u32,
    /// Its protection domain.
    pub pd: &'a Pd,
    /// Completion queue of its sends.
    pub send_cq: &'a Cq,
    /// Completion queue of its receives; not used for `XRC_SEND`.
    pub recv_cq: &'a Cq,
    /// Shared receive queue; without one it has a queue of its own.
    pub srq: Option<&'a Srq>,
    /// Sizes.
    pub cap: QpCap,
    /// Every send gives a completion.
    pub sq_sig_all: bool,
    /// The program's value, which comes back in async events.
    pub cookie: u64,
}

/// Bytes of a piece of memory in a work queue entry.
const PIECE: u32 = 16;
/// Unit of work queue entries and of the send queue, in bytes.
const BLOCK: u32 = 64;
/// Bytes before an entry's pieces or inline data: for a datagram, and for other requests (binding a window takes most).
const BEFORE_DATAGRAM: u32 = 64;
const BEFORE_OTHERS: u32 = 192;
/// Inline data begins with its length.
const INLINE_HEAD: u32 = 4;
const LEAST_PIECES: u32 = 2;

/// Grants sizes; rounds the lengths of queues up to powers of two. Error beyond the limits: EINVAL, or 0 (no number).
pub(super) fn granted(hca: &Hca, init: &QpInit) -> Result<QpCap> {
    let (limits, ways, asked) = (hca.limits(), hca.behaviour(), &init.cap);
    let beyond = match ways.create_qp_errno_on_limit {
        CreateErrno::Einval => Errno(libc::EINVAL),
        CreateErrno::Unset => Errno(0),
    };
    let (most_wr, most_sge) = (limits.max_qp_wr as u32, limits.max_sge as u32);
    let fits = asked.max_send_wr <= most_wr
        && asked.max_recv_wr <= most_wr
        && asked.max_send_sge <= most_sge
        && asked.max_recv_sge <= most_sge;
    if !fits {
        return Err(beyond);
    }
    let has_receives = init.srq.is_none() && init.kind != XRC_SEND;
    let cap = QpCap {
        max_send_wr: asked.max_send_wr.max(1).next_power_of_two(),
        max_recv_wr: if has_receives { asked.max_recv_wr.max(1).next_power_of_two() } else { 0 },
        max_send_sge: asked.max_send_sge.max(LEAST_PIECES).min(most_sge),
        max_recv_sge: if has_receives { asked.max_recv_sge.max(1) } else { 0 },
        max_inline_data: limits.max_inline,
    };
    let inline = asked.max_inline_data;
    let cap = match ways.inline_grant {
        InlineGrant::Largest if inline <= limits.max_inline => Some(cap),
        InlineGrant::Exact if inline <= limits.max_inline => Some(QpCap { max_inline_data: inline, ..cap }),
        InlineGrant::Wqe => in_entries(init.kind, asked, limits.max_inline, most_wr)
            .map(|max_inline_data| QpCap { max_inline_data, ..cap }),
        InlineGrant::SharedWithSge => {
            let bytes = (asked.max_send_sge * PIECE).max(inline);
            let pieces = (bytes / PIECE).max(asked.max_send_sge);
            (bytes <= limits.max_inline).then_some(QpCap { max_inline_data: bytes, max_send_sge: pieces.max(1), ..cap })
        }
        InlineGrant::Largest | InlineGrant::Exact => None,
    };
    cap.ok_or(beyond)
}

/// Returns the inline data that fits in an entry; `None` if the entry, or the queue, would be too long.
fn in_entries(kind: u32, asked: &QpCap, max_inline: u32, most_wr: u32) -> Option<u32> {
    let before = if kind == UD { BEFORE_DATAGRAM } else { BEFORE_OTHERS };
    let inline = (INLINE_HEAD + asked.max_inline_data).next_multiple_of(PIECE);
    let inline = if asked.max_inline_data == 0 { 0 } else { inline };
    let entry = (before + inline.max(asked.max_send_sge * PIECE)).next_multiple_of(BLOCK);
    let longest = (BEFORE_OTHERS + INLINE_HEAD + max_inline).next_multiple_of(BLOCK);
    let blocks = (u64::from(asked.max_send_wr.max(1)) * u64::from(entry)).next_power_of_two() / u64::from(BLOCK);
    (entry <= longest && blocks <= u64::from(most_wr)).then_some(entry - before - INLINE_HEAD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::codes::qp_type::RC;

    #[test]
    fn inline_data_fills_the_entry_up_to_a_multiple_of_64_bytes() {
        let grants = |kind, max_send_wr, max_send_sge, max_inline_data| {
            let asked = QpCap { max_send_wr, max_send_sge, max_inline_data, ..QpCap::default() };
            in_entries(kind, &asked, 828, 32768)
        };
        // As providers/mlx5 computes them; a queue of 32768 blocks has 8192 entries of 256 bytes, and not one more.
        for (kind, wr, inline, granted) in [
            (RC, 1, 828, Some(828)),
            (UD, 1, 0, Some(60)),
            (UD, 1, 956, Some(956)),
            (UD, 1, 957, None),
            (RC, 8192, 0, Some(60)),
            (RC, 8193, 0, None),
        ] {
            assert_eq!(grants(kind, wr, 1, inline), granted, "type {kind}, {wr} requests, {inline} bytes");
        }
    }
}
