// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several adapters in a fabric, of one kind or of both, and several fabrics.

mod engine_support;

use std::sync::Arc;

use engine_support::{Folder, Settings, Side, global, lid, none, spec, wait};
use softhca::engine::{
    AhAttr, Errno, Fabric, FabricSpec, Gid, Hca,
    codes::{gid_kind, link_layer, wc_status},
};

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

/// The address of adapter `n`, as one of this kind is addressed.
fn address(n: usize, layer: u8) -> AhAttr {
    if layer == link_layer::ETHERNET { global(gid(n as u8 + 1), 0) } else { lid(n as u16 + 1) }
}

fn quick() -> Settings {
    Settings { retry_cnt: 0, timeout: 4, ..Settings::default() }
}

/// How a message from adapter `i` to adapter `j`, both addressed as `layers` says, ends.
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
