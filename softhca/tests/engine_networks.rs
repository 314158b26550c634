// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks which ports reach each other, with several adapters of one or both kinds, networks, and partition keys, and
//! if a script changes the tables of ports.

mod engine_support;

use engine_support::prelude::*;
use softhca::engine::codes::link_layer::{ETHERNET, INFINIBAND};

fn gid(last: u8) -> [u8; 16] {
    let mut raw = [0; 16];
    raw[..2].copy_from_slice(&[0xfe, 0x80]);
    raw[15] = last;
    raw
}

/// One adapter for each link layer and network; number `n` has LID `n + 1` if it has LIDs, and GID `fe80::(n + 1)`.
fn adapters(folder: &Folder, each: &[(u8, &str)]) -> Vec<Arc<Hca>> {
    let mut spec = spec(folder.path());
    let usual = spec.devices.remove(0);
    let described = |(n, &(layer, network)): (u16, &(u8, &str))| {
        let mut device = DeviceSpec { name: format!("softhca{n}"), link_layer: layer, ..usual.clone() };
        let (lid, kind) = if layer == ETHERNET { (0, gid_kind::ROCE_V2) } else { (n + 1, gid_kind::IB) };
        let gids = vec![Gid { raw: gid(n as u8 + 1), kind }];
        device.ports[0] = PortSpec { lid, gids, network: network.to_owned(), ..device.ports[0].clone() };
        device
    };
    spec.devices = (0..).zip(each).map(described).collect();
    let fabric = Fabric::join(spec).unwrap();
    (0..each.len()).map(|n| fabric.open(n).unwrap()).collect()
}

fn pairs(count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count).flat_map(move |i| (0..count).map(move |j| (i, j)))
}

fn address(n: usize, layer: u8) -> AhAttr {
    if layer == ETHERNET { global(gid(n as u8 + 1), 0) } else { lid(n as u16 + 1) }
}

fn quick() -> Settings {
    Settings { retry_cnt: 0, timeout: 4, ..Settings::default() }
}

/// Returns the status of a message from adapter `i` to adapter `j`; `layers`: how the sender addresses both.
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
fn ports_of_one_link_layer_and_one_network_reach_each_other() {
    for each in [
        &[(ETHERNET, ""), (ETHERNET, "")][..],
        &[(INFINIBAND, ""), (ETHERNET, ""), (INFINIBAND, ""), (ETHERNET, "")],
        &[(INFINIBAND, "a"), (INFINIBAND, "b"), (INFINIBAND, "a")],
    ] {
        let folder = new_folder();
        let all = adapters(&folder, each);
        for (i, j) in pairs(each.len()) {
            let status = if each[i] == each[j] { wc_status::SUCCESS } else { wc_status::RETRY_EXC_ERR };
            assert_eq!(send(&all, [each[i].0, each[j].0], i, j), status, "{i} to {j} of {each:?}");
        }
    }
}

#[test]
fn an_address_on_ethernet_needs_a_gid() {
    let folder = new_folder();
    let hca = adapters(&folder, &[(ETHERNET, "")]).remove(0);
    assert_eq!(hca.create_ah(&hca.alloc_pd(), &lid(1)).err(), Some(Errno(libc::EINVAL)));
}

#[test]
fn a_multicast_group_does_not_reach_another_network() {
    let folder = new_folder();
    let all = adapters(&folder, &["a", "b", "a"].map(|network| (INFINIBAND, network)));
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
fn packets_stay_within_a_partition_and_have_a_full_member() {
    let hca = described(|spec| spec.devices[0].ports[0].pkeys = KEYS.to_vec());
    for ((i, j), kind) in pairs(KEYS.len()).flat_map(|pair| [(pair, qp_type::RC), (pair, qp_type::UD)]) {
        let settings = Settings { kind, ..quick() };
        let (a, b) = (side(&hca, &settings, i), side(&hca, &settings, j));
        a.ready(b.qp.number(), &settings);
        b.ready(a.qp.number(), &settings);
        b.recv(1, 0, 64);
        let is_told = kind == qp_type::RC; // the sender of a datagram never knows
        if is_told {
            a.send(2, 0, 8);
        } else {
            a.datagram(&hca.create_ah(&a.pd, &lid(1)).unwrap(), b.qp.number());
        }
        let status = if may_talk(i, j) || !is_told { wc_status::SUCCESS } else { wc_status::RETRY_EXC_ERR };
        assert_eq!(wait(&a.send_cq).status, status, "{:#x} to {:#x}", KEYS[i], KEYS[j]);
        assert_eq!(none(&b.recv_cq), !may_talk(i, j), "{:#x} to {:#x}", KEYS[i], KEYS[j]);
    }
}

/// The usual adapter with a second GID.
fn with_two_gids(folder: &Folder) -> FabricSpec {
    let mut spec = spec(folder.path());
    spec.devices[0].ports[0].gids.push(Gid { raw: gid(2), kind: gid_kind::IB });
    spec
}

/// Changes the first port, and raises the event of this kind.
fn change(fabric: &Fabric, kind: u32, change: Option<Change>) {
    let rule = FaultRule::always(FaultAction::Event(kind, change));
    fabric.command(&rule, Duration::from_mins(1)).unwrap();
}

/// A connection to LID 1 from the second GID.
fn connect(hca: &Arc<Hca>) -> (Side, Side) {
    let settings = &quick();
    let (a, b) = (Side::new(hca, 4096, settings), Side::new(hca, 4096, settings));
    for (side, peer) in [(&a, &b), (&b, &a)] {
        side.init(settings);
        let dgid = hca.spec().ports[0].gids[0].raw;
        let mut address = global(dgid, 1);
        address.grh.sgid_index = 1;
        hca.create_ah(&side.pd, &address).unwrap().destroy().unwrap();
        side.ready_towards(peer.qp.number(), settings, address);
    }
    b.recv(1, 0, 64);
    a.send(1, 0, 8);
    assert_eq!(wait(&a.send_cq).status, 0);
    (a, b)
}

/// How a message ends on a connection made before the change, after the change was reported.
fn after(kind: u32, what: Change, vanish_kills: bool) -> (Arc<Hca>, Side, u32) {
    let folder = new_folder();
    let mut spec = with_two_gids(&folder);
    spec.devices[0].behaviour.gid_vanish_kills_rc = vanish_kills;
    let fabric = Fabric::join(spec).unwrap();
    let hca = fabric.open(0).unwrap();
    let (a, b) = connect(&hca);
    change(&fabric, kind, Some(what));
    assert_eq!(hca.read_async_event().unwrap().kind, kind);
    wait(&b.recv_cq);
    b.recv(2, 0, 64);
    a.send(2, 0, 8);
    let status = wait(&a.send_cq).status;
    (hca, a, status)
}

#[test]
fn the_old_lid_of_a_port_that_has_changed_it_reaches_nothing() {
    let (hca, a, status) = after(event::LID_CHANGE, Change::Lid(9), false);
    assert_eq!(status, wc_status::RETRY_EXC_ERR);
    assert_eq!(hca.port(1).unwrap().lid, 9);
    let settings = Settings { kind: qp_type::UD, ..quick() };
    let (from, to) = (Side::new(&hca, 4096, &settings), Side::new(&hca, 4096, &settings));
    from.connect(0, &settings);
    to.connect(0, &settings);
    for (dlid, arrives) in [(1, false), (9, true)] {
        to.recv(1, 0, 64);
        let ah = hca.create_ah(&from.pd, &lid(dlid)).unwrap();
        from.datagram(&ah, to.qp.number());
        assert_eq!(wait(&from.send_cq).status, 0);
        assert_eq!(!none(&to.recv_cq), arrives, "to LID {dlid}");
    }
    drop(a);
}

#[test]
fn a_gid_that_vanishes_stops_the_connections_of_adapters_that_look_it_up_for_each_packet() {
    for kills in [true, false] {
        let (hca, a, status) = after(event::GID_CHANGE, Change::Gid(1, Gid::default()), kills);
        assert_eq!(status, if kills { wc_status::RETRY_EXC_ERR } else { 0 });
        assert!(hca.port(1).unwrap().gids[1].is_empty());
        let mut gone = global([0; 16], 1);
        gone.grh.sgid_index = 1;
        assert!(hca.create_ah(&a.pd, &gone).is_err(), "nothing can be sent from an empty row");
    }
}

#[test]
fn a_partition_key_that_changes_takes_its_connections_into_another_partition() {
    // Both ends use the row: of two limited members of a partition neither talks to the other.
    let (hca, _, status) = after(event::PKEY_CHANGE, Change::Pkey(0, 0x7fff), false);
    assert_eq!(status, wc_status::RETRY_EXC_ERR);
    assert_eq!(hca.port(1).unwrap().pkeys, [0x7fff]);
}

#[test]
fn a_port_shows_another_subnet_manager_and_keeps_its_connections() {
    for kind in [event::SM_CHANGE, event::CLIENT_REREGISTER] {
        let (hca, _, status) = after(kind, Change::SmLid(7), false);
        assert_eq!((status, hca.port(1).unwrap().sm_lid), (0, 7));
    }
}

#[test]
fn a_port_changes_although_the_adapter_does_not_raise_the_event() {
    let folder = new_folder();
    let mut spec = with_two_gids(&folder);
    spec.devices[0].behaviour.async_events = event_groups(r#"["port"]"#);
    let fabric = Fabric::join(spec).unwrap();
    let hca = fabric.open(0).unwrap();
    change(&fabric, event::LID_CHANGE, Some(Change::Lid(9)));
    change(&fabric, event::PORT_ACTIVE, None);
    assert_eq!(hca.read_async_event().unwrap().kind, event::PORT_ACTIVE);
    assert_eq!(hca.port(1).unwrap().lid, 9);
}
