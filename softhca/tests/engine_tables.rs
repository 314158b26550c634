// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports whose tables a script changes: which ports reach each other then.

mod engine_support;

use std::sync::Arc;

use engine_support::{Folder, Settings, Side, global, lid, none, spec, wait};
use softhca::behaviour::Events;
use softhca::engine::codes::{event, qp_type, wc_status};
use softhca::engine::faults::{FaultAction, FaultRule};
use softhca::engine::{Change, Fabric, FabricSpec, Gid, Hca};

fn quick() -> Settings {
    Settings { retry_cnt: 0, timeout: 4, ..Settings::default() }
}

fn second() -> Gid {
    Gid { raw: [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2], kind: 0 }
}

/// The usual adapter with a second GID, whose port undergoes `change` after some seconds.
fn changing(folder: &Folder, seconds: u64, kind: u32, change: Change) -> FabricSpec {
    let mut spec = spec(&folder.0);
    spec.devices[0].ports[0].gids.push(second());
    let action = FaultAction::Event(kind, Some(change));
    spec.faults.push(FaultRule { at_ns: seconds * 1_000_000_000, ..FaultRule::always(action) });
    spec
}

/// A connection to LID 1 from the second GID; `None` if the port has changed before it was made.
fn connect(hca: &Arc<Hca>, settings: &Settings) -> Option<(Side, Side)> {
    let (a, b) = (Side::new(hca, 4096, settings), Side::new(hca, 4096, settings));
    for (side, peer) in [(&a, &b), (&b, &a)] {
        side.init(settings);
        let dgid = hca.spec().ports[0].gids[0].raw;
        let mut address = global(dgid, 1);
        address.grh.sgid_index = 1;
        hca.create_ah(&side.pd, &address).ok()?.destroy().unwrap();
        side.ready_towards(peer.qp.number(), settings, address);
    }
    b.recv(1, 0, 64);
    a.send(1, 0, 8);
    (wait(&a.send_cq).status == 0).then_some((a, b))
}

/// How a message ends on a connection made before the change, after the change was reported.
fn after(kind: u32, change: Change, vanish_kills: bool) -> (Arc<Hca>, Side, u32) {
    for seconds in [1, 4, 16, 64] {
        let folder = Folder::new();
        let mut spec = changing(&folder, seconds, kind, change);
        spec.devices[0].behaviour.gid_vanish_kills_rc = vanish_kills;
        let hca = Fabric::join(spec).unwrap().open(0).unwrap();
        let Some((a, b)) = connect(&hca, &quick()) else { continue };
        assert_eq!(hca.read_async_event().unwrap().kind, kind);
        wait(&b.recv_cq);
        b.recv(2, 0, 64);
        a.send(2, 0, 8);
        let status = wait(&a.send_cq).status;
        return (hca, a, status);
    }
    panic!("the port always changed before a connection was made");
}

#[test]
fn a_port_that_changes_its_lid_is_not_reached_by_the_old_one() {
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
fn another_subnet_manager_is_shown_and_changes_no_connection() {
    for kind in [event::SM_CHANGE, event::CLIENT_REREGISTER] {
        let (hca, _, status) = after(kind, Change::SmLid(7), false);
        assert_eq!((status, hca.port(1).unwrap().sm_lid), (0, 7));
    }
}

#[test]
fn a_change_is_made_though_its_event_is_not_raised() {
    let folder = Folder::new();
    let mut spec = changing(&folder, 0, event::LID_CHANGE, Change::Lid(9));
    spec.devices[0].behaviour.async_events =
        toml::from_str::<std::collections::BTreeMap<String, Events>>("of = [\"port\"]").unwrap()["of"];
    // Told after the change, by the same thread.
    let last = FaultRule::always(FaultAction::Event(event::PORT_ACTIVE, None));
    spec.faults.push(FaultRule { at_ns: 1_000_000_000, ..last });
    let hca = Fabric::join(spec).unwrap().open(0).unwrap();
    assert_eq!(hca.read_async_event().unwrap().kind, event::PORT_ACTIVE);
    assert_eq!(hca.port(1).unwrap().lid, 9);
}
