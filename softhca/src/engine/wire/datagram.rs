// SPDX-License-Identifier: MIT OR Apache-2.0
//! Datagrams: delivery to one queue pair or to a multicast group, and the header that precedes them. Called by:
//! transmit. Grade: hot. Thread rule: as transmit. Senders learn only of their own mistakes, not of lost datagrams.

use std::sync::PoisonError;

use crate::behaviour::SrcQp;
use crate::engine::codes::qp_state::{RTR, SQE};
use crate::engine::codes::qp_type::UD;
use crate::engine::codes::{gid_kind, link_layer, wc_flags, wc_status};
use crate::engine::cq::ring::GRH_BYTES;
use crate::engine::faults::verdict::{Verdict, judge};
use crate::engine::qp::object;
use crate::engine::spec::dgid;
use crate::engine::wire::receive;
use crate::engine::wire::responder::{Peer, scripted};
use crate::engine::{Completion, Count, Fabric, Message, Outcome, QpShared, fail_later, place};

/// The queue pair number in requests to a multicast group.
const MULTICAST_QPN: u32 = 0xff_ffff;
/// With this bit in the key of a request, the queue pair's own key is sent.
const OWN_QKEY: u32 = 1 << 31;
/// Mask of the sender's number for an adapter that reports it wrongly: it keeps two of the upper 8 bits.
const WRONG_SENDER: u32 = 0x18_ffff;

pub(crate) fn transmit(fabric: &Fabric, qp: &QpShared, m: &Message) -> Outcome {
    let to = m.to;
    let (device, port) = (qp.device.get(), qp.port.get());
    let spec = &fabric.devices()[device as usize].ports[port as usize - 1];
    if to.handle != 0 && !fabric.handles.lock().unwrap_or_else(PoisonError::into_inner).contains(&to.handle) {
        // The adapter fails to look the handle up: the whole queue pair stops, not only its sends.
        fail_later(fabric, qp);
        return Outcome::done(wc_status::LOC_QP_OP_ERR);
    }
    if to.pd != qp.pd.get() {
        return Outcome::done(wc_status::LOC_QP_OP_ERR);
    }
    if m.len > 128 << spec.mtu {
        return Outcome::done(wc_status::LOC_LEN_ERR);
    }
    let (mut ready_ns, mut copies) = (0, 1);
    if fabric.has_faults || fabric.has_model {
        match judge(fabric, qp, (to.device, to.port), m.len, None) {
            Verdict::Pass(ready) => ready_ns = ready,
            Verdict::Twice(ready) => (ready_ns, copies) = (ready, 2),
            Verdict::Status(status) => return scripted(fabric, qp, status),
            _ => return Outcome::done(wc_status::SUCCESS),
        }
    }
    let done = Outcome::Done { status: wc_status::SUCCESS, ready_ns };
    if !fabric.is_active(device, port) {
        return done;
    }
    if to.qpn == MULTICAST_QPN && to.address.is_global != 0 && dgid(&to.address)[0] == 0xff {
        for index in object::members(fabric, &dgid(&to.address)) {
            let peer = place(fabric, index);
            if fabric.is_one_network((device, port), (peer.device.get(), peer.port.get())) {
                deliver(fabric, qp, peer, m, ready_ns);
            }
        }
        return done;
    }
    let peer = place(fabric, to.qpn);
    // Addresses may have changed since the handle was made.
    let (to_device, to_port) = if fabric.ports.have_changed() {
        fabric.route(device as usize, port as u8, &to.address).unwrap_or_default()
    } else {
        (to.device, to.port)
    };
    if peer.qpn.get() == to.qpn && peer.device.get() == to_device && peer.port.get() == to_port {
        for _ in 0..copies {
            deliver(fabric, qp, peer, m, ready_ns);
        }
    }
    done
}

#[inline]
fn deliver(fabric: &Fabric, qp: &QpShared, peer: &QpShared, m: &Message, ready_ns: u64) {
    let to = m.to;
    let qkey = if to.qkey & OWN_QKEY == 0 { to.qkey } else { qp.qkey.get() };
    let _held = peer.lock_answers(fabric);
    let takes = peer.qpn.get() != 0
        && peer.kind.get() == UD
        && peer.state.get().wrapping_sub(RTR) <= SQE - RTR
        && peer.qkey.get() == qkey
        && peer.shares_partition(qp)
        && fabric.is_active(peer.device.get(), peer.port.get());
    if !takes {
        return;
    }
    let peer = &Peer { qp: peer, xrc: None };
    let queue = peer.queue(fabric);
    let Some(wqe) = receive::take(fabric, peer, queue) else { return peer.count(fabric, Count::OutOfBuffer) };
    let (device, port) = (qp.device.get() as usize, qp.port.get() as usize);
    let from = fabric.port(device, port as u32);
    let is_told = peer.behaviour(fabric).src_qp_top_bits == SrcQp::Right;
    let header = (to.address.is_global != 0).then(|| grh(fabric, qp, m));
    let arrival = receive::arrival(qp, peer, m, wqe, ready_ns);
    let arrival = Completion {
        flags: arrival.flags | if header.is_some() { wc_flags::GRH } else { 0 },
        byte_len: m.len + GRH_BYTES,
        sl: to.address.sl,
        slid: from.lid,
        pkey_index: peer.pkey_index() as u8,
        src_qp: arrival.src_qp & if is_told { u32::MAX } else { WRONG_SENDER },
        ..arrival
    };
    // A request without room ends with a length error at the receiver; the sender does not learn it.
    receive::land(fabric, peer, queue, m, &arrival, GRH_BYTES, header.as_ref());
}

/// The global route header as on InfiniBand; for an IPv4 GID of `RoCE` v2, 20 zero bytes and an IPv4 header.
fn grh(fabric: &Fabric, qp: &QpShared, m: &Message) -> [u64; 5] {
    let (address, to) = (&m.to.address.grh, dgid(&m.to.address));
    let device = &fabric.devices()[qp.device.get() as usize];
    let gids = &fabric.port(qp.device.get() as usize, qp.port.get()).gids;
    let source = gids.get(usize::from(address.sgid_index)).copied().unwrap_or_default();
    let is_v4 = device.link_layer == link_layer::ETHERNET
        && source.kind == gid_kind::ROCE_V2
        && source.raw[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    let mut bytes = [0_u8; 40];
    if is_v4 {
        let header = &mut bytes[20..];
        let total = (20 + 8 + 12 + 8 + m.len + 4) as u16; // IPv4, UDP, BTH, DETH, payload, ICRC
        header[0] = 0x45;
        header[1] = address.traffic_class;
        header[2..4].copy_from_slice(&total.to_be_bytes());
        header[6] = 0x40; // do not fragment
        header[8] = if address.hop_limit == 0 { 64 } else { address.hop_limit };
        header[9] = 17;
        header[12..16].copy_from_slice(&source.raw[12..]);
        header[16..20].copy_from_slice(&to[12..]);
        let sum: u32 = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        header[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    } else {
        let class = u32::from(address.traffic_class) << 20;
        bytes[..4].copy_from_slice(&(6 << 28 | class | address.flow_label & 0xf_ffff).to_be_bytes());
        bytes[4..6].copy_from_slice(&((12 + 8 + m.len + 4) as u16).to_be_bytes());
        bytes[6] = 0x1b;
        bytes[7] = address.hop_limit;
        bytes[8..24].copy_from_slice(&source.raw);
        bytes[24..].copy_from_slice(&to);
    }
    std::array::from_fn(|i| u64::from_ne_bytes(std::array::from_fn(|j| bytes[i * 8 + j])))
}
