// SPDX-License-Identifier: MIT OR Apache-2.0
//! Partition keys: who may talk to whom.

mod engine_support;

use std::sync::Arc;

use engine_support::{Adapter, Settings, Side, described, lid, none, wait};
use softhca::engine::{
    Hca, QpAttr,
    codes::{attr_mask as m, qp_type, wc_status},
};

/// Full and limited members of two partitions, and the key that is none.
const KEYS: [u16; 5] = [0xffff, 0x7fff, 0x8001, 0x0001, 0x8000];

fn adapter() -> Adapter {
    described(|spec| spec.devices[0].ports[0].pkeys = KEYS.to_vec())
}

fn side(hca: &Arc<Hca>, settings: &Settings, key: usize) -> Side {
    let side = Side::new(hca, 4096, settings);
    side.init(settings);
    side.qp
        .modify(&QpAttr { qp_state: 1, pkey_index: key as u16, ..QpAttr::default() }, m::STATE | m::PKEY_INDEX)
        .unwrap();
    side
}

fn may_talk(a: usize, b: usize) -> bool {
    let (a, b) = (KEYS[a], KEYS[b]);
    a & 0x7fff != 0 && a & 0x7fff == b & 0x7fff && (a | b) & 0x8000 != 0
}

#[test]
fn connections_are_within_a_partition_and_have_a_full_member() {
    let hca = adapter();
    let settings = Settings { retry_cnt: 0, timeout: 4, ..Settings::default() };
    for (i, j) in (0..KEYS.len()).flat_map(|i| (0..KEYS.len()).map(move |j| (i, j))) {
        let (a, b) = (side(&hca, &settings, i), side(&hca, &settings, j));
        a.ready(b.qp.number(), &settings);
        b.ready(a.qp.number(), &settings);
        b.recv(1, 0, 64);
        a.send(2, 0, 8);
        let status = if may_talk(i, j) { wc_status::SUCCESS } else { wc_status::RETRY_EXC_ERR };
        assert_eq!(wait(&a.send_cq).status, status, "{:#x} to {:#x}", KEYS[i], KEYS[j]);
        assert_eq!(none(&b.recv_cq), !may_talk(i, j));
    }
}

#[test]
fn datagrams_of_another_partition_are_not_taken() {
    let hca = adapter();
    let settings = Settings { kind: qp_type::UD, ..Settings::default() };
    for (i, j) in (0..KEYS.len()).flat_map(|i| (0..KEYS.len()).map(move |j| (i, j))) {
        let (a, b) = (side(&hca, &settings, i), side(&hca, &settings, j));
        a.ready(0, &settings);
        b.ready(0, &settings);
        b.recv(1, 0, 64);
        let ah = hca.create_ah(&a.pd, &lid(1)).unwrap();
        a.datagram(&ah, b.qp.number());
        assert_eq!(wait(&a.send_cq).status, 0, "the sender never knows");
        assert_eq!(none(&b.recv_cq), !may_talk(i, j), "{:#x} to {:#x}", KEYS[i], KEYS[j]);
    }
}
