// SPDX-License-Identifier: MIT OR Apache-2.0
//! The attributes of queue pairs and addresses, as they cross between the engine and the C side.
//!
//! Called by: the C side, the queue pairs, the address handles. Grade: setup. Thread rule: plain values, in the byte
//! order of the host unless said otherwise.

/// Sizes of a queue pair; asked for, and then granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of ibv_qp_cap")]
pub struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// Where packets go: as in `ibv_ah_attr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "the names are those of ibv_ah_attr and ibv_global_route")]
pub struct AhAttr {
    pub is_global: bool,
    pub dgid: [u8; 16],
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub port_num: u8,
}

/// As `ibv_qp_attr`, less what only automatic path migration needs.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the names are those of ibv_qp_attr")]
pub struct QpAttr {
    pub qp_state: u32,
    pub cur_qp_state: u32,
    pub path_mtu: u32,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: u32,
    pub cap: QpCap,
    pub ah_attr: AhAttr,
    pub pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
}
