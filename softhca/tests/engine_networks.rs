// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which ports reach each other: several adapters of one or both kinds, several fabrics, networks, and partition keys.

mod engine_support;

use std::sync::Arc;

use engine_support::{Adapter, Folder, Settings, Side, described, global, lid, none, spec, wait};
use softhca::engine::codes::{attr_mask as m, gid_kind, link_layer, qp_type, wc_status};
use softhca::engine::{AhAttr, Errno, Fabric, FabricSpec, Gid, Hca, QpAttr};

fn gid(last: u8) -> [u8; 16] {
    let mut raw = [0; 16];
    raw[..2].copy_from_slice(&[0xfe, 0x80]);
    raw[15] = last;
    raw
}

/// One adapter for each link layer given; number `n` has LID `n + 1` if it has LIDs, and GID `fe80::(n + 1)`.
fn adapters(folder: &Folder, layers: &[u8]) -> Vec<Arc<Hca>> {
    let FabricSpec { folder, devices, faults, trace } = spec(&folder.0);
    let devices: Vec<_> = (0..)
        .zip(layers)
        .map(|(n, layer)| {
            let is_ethernet = *layer == link_layer::ETHERNET;
            let mut device = devices[0].clone();
            device.name = format!("softhca{n}");
            device.link_layer = *layer;
            device.ports[0].lid = if is_ethernet { 0 } else { n + 1 };
            let kind = if is_ethernet { gid_kind::ROCE_V2 } else { gid_kind::IB };
            device.ports[0].gids = vec![Gid { raw: gid(n as u8 + 1), kind }];
            device
        })
        .collect();
    let count = devices.len();
    let fabric = Fabric::join(FabricSpec { folder, devices, faults, trace }).unwrap();
    (0..count).map(|n| fabric.open(n).unwrap()).collect()
}

fn address(n: usize, layer: u8) -> AhAttr {
    if layer == link_layer::ETHERNET { global(gid(n as u8 + 1), 0) } else { lid(n as u16 + 1) }
}

fn quick() -> Settings {
    Settings { retry_cnt: 0, timeout: 4, ..Settings::default() }
}

/// How a message from adapter `i` to adapter `j` ends; `layers` says how both are addressed.
fn send(all: &[Arc<Hca>], layers: [u8; 2], i: usize, j: usize) -> u32 {
    let settings = quick();
    let (mut a, b) = (Side::new(&all[i], 4096, &settings), Side::new(&all[j], 4096, &settings));
    a.init(&settings);
    b.init(&settings);
    a.fill(0, 8, 5);
    a.ready_towards(b.qp.number(), &settings, address(j, layers[0]));
    b.ready_towards(a.qp.number(), &settings, address(i, layers[1]));
    b.recv(1, 0, 64);
    a.send(2, 0, 8);
    let status = wait(&a.send_cq).status;
    assert_eq!(status == wc_status::SUCCESS, !none(&b.recv_cq));
    assert_eq!(b.byte(7) == 12, status == wc_status::SUCCESS);
    status
}

#[test]
fn two_ethernet_adapters_reach_each_other_by_gid_and_need_one() {
    let folder = Folder::new();
    let ethernet = link_layer::ETHERNET;
    let all = adapters(&folder, &[ethernet, ethernet]);
    for (i, j) in [(0, 1), (1, 0), (0, 0)] {
        assert_eq!(send(&all, [ethernet; 2], i, j), wc_status::SUCCESS, "{i} to {j}");
    }
    let pd = all[0].alloc_pd();
    let by_lid = AhAttr { is_global: 0, ..address(1, ethernet) };
    assert_eq!(all[0].create_ah(&pd, &by_lid).err(), Some(Errno(libc::EINVAL)));
}

#[test]
fn adapters_of_different_link_layers_share_a_fabric_and_do_not_meet() {
    let folder = Folder::new();
    let (infiniband, ethernet) = (link_layer::INFINIBAND, link_layer::ETHERNET);
    let layers = [infiniband, ethernet, infiniband, ethernet];
    let all = adapters(&folder, &layers);
    for (i, j) in [(0, 2), (2, 0), (1, 3), (3, 1)] {
        assert_eq!(send(&all, [layers[i]; 2], i, j), wc_status::SUCCESS, "{i} to {j}");
    }
    for (i, j) in [(0, 1), (1, 2), (3, 0)] {
        assert_eq!(send(&all, [layers[i], layers[j]], i, j), wc_status::RETRY_EXC_ERR, "{i} to {j}");
    }
}

#[test]
fn two_fabrics_do_not_meet_though_all_their_names_are_the_same() {
    let (one, other) = (Folder::new(), Folder::new());
    let infiniband = link_layer::INFINIBAND;
    let (here, there) = (adapters(&one, &[infiniband; 2]), adapters(&other, &[infiniband; 2]));
    let settings = quick();
    let side = |hca: &Arc<Hca>| Side::new(hca, 4096, &settings);
    let (a, b, c, d) = (side(&here[0]), side(&here[1]), side(&there[0]), side(&there[1]));
    assert_eq!((a.qp.number(), b.qp.number()), (c.qp.number(), d.qp.number()));
    for (from, to, n) in [(&a, &b, 1), (&b, &a, 0), (&c, &d, 1), (&d, &c, 0)] {
        from.init(&settings);
        from.ready_towards(to.qp.number(), &settings, address(n, infiniband));
    }
    d.recv(1, 0, 64);
    a.send(2, 0, 8);
    assert!(none(&a.send_cq), "its own peer has no receive request yet");
    b.recv(4, 0, 64);
    assert_eq!((wait(&a.send_cq).status, wait(&b.recv_cq).wr_id), (0, 4));
    assert!(none(&d.recv_cq), "what the one fabric sends does not arrive in the other");
    c.send(3, 0, 8);
    assert_eq!((wait(&c.send_cq).status, wait(&d.recv_cq).wr_id), (0, 1));
}

fn in_networks(folder: &Folder, networks: [&str; 3]) -> Vec<Arc<Hca>> {
    let mut spec = spec(&folder.0);
    let one = spec.devices[0].clone();
    spec.devices = (1..)
        .zip(networks)
        .map(|(lid, network)| {
            let mut device = one.clone();
            device.name = format!("softhca{lid}");
            device.ports[0].lid = lid;
            network.clone_into(&mut device.ports[0].network);
            device
        })
        .collect();
    let fabric = Fabric::join(spec).unwrap();
    (0..3).map(|device| fabric.open(device).unwrap()).collect()
}

#[test]
fn ports_of_different_networks_do_not_reach_each_other() {
    let folder = Folder::new();
    let all = in_networks(&folder, ["a", "b", "a"]);
    for (i, j) in [(0, 2), (2, 0), (1, 1), (0, 1), (1, 2)] {
        let settings = quick();
        let (from, to) = (Side::new(&all[i], 4096, &settings), Side::new(&all[j], 4096, &settings));
        for (side, peer, at) in [(&from, &to, j), (&to, &from, i)] {
            side.init(&settings);
            side.ready_towards(peer.qp.number(), &settings, lid(at as u16 + 1));
        }
        to.recv(1, 0, 64);
        from.send(1, 0, 8);
        let is_one = i % 2 == j % 2;
        assert_eq!(wait(&from.send_cq).status == 0, is_one, "{i} to {j}");
    }
}

#[test]
fn a_group_does_not_reach_over_to_another_network() {
    let folder = Folder::new();
    let all = in_networks(&folder, ["a", "b", "a"]);
    let settings = Settings { kind: qp_type::UD, ..Settings::default() };
    let sides: Vec<Side> = all.iter().map(|hca| Side::new(hca, 4096, &settings)).collect();
    let mut gid = [0; 16];
    gid[..2].copy_from_slice(&[0xff, 0x12]);
    for side in &sides {
        side.connect(0, &settings);
        side.qp.attach_mcast(&gid, 0xc001).unwrap();
        side.recv(1, 0, 64);
    }
    let address = global(gid, 0xc001);
    let ah = all[0].create_ah(&sides[0].pd, &address).unwrap();
    sides[0].datagram(&ah, 0xff_ffff);
    let got: Vec<bool> = sides.iter().map(|side| !none(&side.recv_cq)).collect();
    assert_eq!(got, [true, false, true]);
}

/// Full and limited members of two partitions, and the invalid key.
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
