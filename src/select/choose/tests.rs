// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the choice of ports: every reason for which a port is refused, each by itself, and the report.

use super::*;
use crate::select::address::{GID_IB, GID_ROCE_V2};
use crate::select::gid::tests::entry;

fn roce(number: u8) -> PortInfo {
    PortInfo {
        number,
        state: PORT_ACTIVE,
        link_layer: LINK_ETHERNET,
        lid: 0,
        active_mtu: 3,
        rate_mbps: 25_000,
        gids: vec![entry(0, "fe80::1", GID_ROCE_V2), entry(1, "::ffff:10.0.0.1", GID_ROCE_V2)],
        partition_key: PartitionKey::Key(0xffff),
    }
}

fn infiniband(number: u8) -> PortInfo {
    PortInfo {
        link_layer: LINK_INFINIBAND,
        lid: 7,
        active_mtu: 5,
        gids: vec![entry(0, "fe80::7", GID_IB)],
        ..roce(number)
    }
}

fn device(name: &str, ports: Vec<PortInfo>) -> DeviceInfo {
    DeviceInfo { name: name.to_owned(), ports, ..DeviceInfo::default() }
}

fn near(name: &str, distance: u32) -> DeviceInfo {
    DeviceInfo { distance: Some(distance), ..device(name, vec![roce(1)]) }
}

fn chosen(devices: &[DeviceInfo], tunables: &Tunables) -> Vec<String> {
    ports(devices, tunables).chosen().map(|chosen| format!("{}:{}", chosen.device_name, chosen.port)).collect()
}

/// The reason for which a port that is alone on its host is refused.
fn refusal(port: PortInfo, tunables: &Tunables) -> String {
    let selection = ports(&[device("dev0", vec![port])], tunables);
    assert!(selection.chosen().next().is_none());
    selection.considered[0].reason.clone()
}

fn with(change: impl FnOnce(&mut Tunables)) -> Tunables {
    let mut tunables = Tunables::default();
    change(&mut tunables);
    tunables
}

#[test]
fn ports_takes_every_active_port_with_its_gid_and_mtu() {
    let devices = [device("rxe0", vec![roce(1)]), device("mlx5_0", vec![infiniband(1), infiniband(2)])];
    let selection = ports(&devices, &Tunables::default());
    let taken: Vec<_> = selection.chosen().cloned().collect();
    assert_eq!(taken.len(), 3);
    let rxe = Chosen {
        device: 0,
        device_name: "rxe0".to_owned(),
        port: 1,
        gid: entry(1, "::ffff:10.0.0.1", GID_ROCE_V2),
        mtu: 3,
    };
    assert_eq!(taken[0], rxe);
    assert_eq!((taken[2].device, taken[2].port, taken[2].gid.index, taken[2].mtu), (1, 2, 0, 5));
    assert!(selection.notes.is_empty());
}

#[test]
fn include_and_exclude_patterns_name_devices_and_ports() {
    let both = || vec![infiniband(1), infiniband(2)];
    let devices = [device("mlx5_0", both()), device("mlx5_1", both()), device("rxe0", vec![roce(1)])];
    let take = |include: &str, exclude: &str| {
        let tunables = with(|tunables| {
            tunables.if_include = include.to_owned();
            tunables.if_exclude = exclude.to_owned();
        });
        chosen(&devices, &tunables).join(" ")
    };
    assert_eq!(take("rxe0", ""), "rxe0:1");
    assert_eq!(take("mlx5_*:1", ""), "mlx5_0:1 mlx5_1:1");
    assert_eq!(take(" mlx5_?:2 , rxe0:1", ""), "mlx5_0:2 mlx5_1:2 rxe0:1");
    assert_eq!(take("", "mlx5_*"), "rxe0:1");
    assert_eq!(take("mlx5_*", "*_1,mlx5_0:2"), "mlx5_0:1");
    assert_eq!(take("mlx5", ""), "", "a pattern fits the whole name");
    assert_eq!(take(",", ""), take("", ""), "a list of nothing is empty");
}

#[test]
fn the_refusal_of_a_port_names_the_pattern_that_leaves_it_out() {
    let include = with(|tunables| tunables.if_include = "mlx5_*".to_owned());
    assert_eq!(refusal(roce(1), &include), "btl_ibex_if_include does not name it (it is \"mlx5_*\")");
    let exclude = with(|tunables| tunables.if_exclude = "x,dev?:1".to_owned());
    assert_eq!(refusal(roce(1), &exclude), "btl_ibex_if_exclude names it with \"dev?:1\"");
}

#[test]
fn the_selection_notes_a_pattern_that_fits_nothing() {
    let tunables = with(|tunables| tunables.if_include = "dev0,mlx5_9:3".to_owned());
    let selection = ports(&[device("dev0", vec![roce(1)])], &tunables);
    assert_eq!(selection.notes, ["btl_ibex_if_include: no port of this host fits \"mlx5_9:3\" (its devices: dev0)"]);
}

#[test]
fn the_refusal_of_an_inactive_port_names_its_state_and_a_remedy() {
    let cases = [
        (PORT_DOWN, LINK_ETHERNET, "its link is down; bring its network interface up"),
        (PORT_DOWN, LINK_INFINIBAND, "its link is down; check its cable"),
        (PORT_INIT, LINK_INFINIBAND, "it is initialised, not active: no subnet manager has configured it completely"),
        (PORT_ARMED, LINK_INFINIBAND, "it is armed, not active"),
        (PORT_NOP, LINK_ETHERNET, "it is in no state, not active"),
        (PORT_ACTIVE_DEFER, LINK_ETHERNET, "it is active but deferred by a link error, not active"),
        (17, LINK_ETHERNET, "it is in the unknown state 17, not active"),
    ];
    for (state, link_layer, wanted) in cases {
        let reason = refusal(PortInfo { state, link_layer, ..infiniband(1) }, &Tunables::default());
        assert!(reason.starts_with(wanted), "{reason}");
    }
}

#[test]
fn ports_refuses_an_infiniband_port_without_a_lid_and_unknown_link_layers_and_mtus() {
    let no_lid =
        "it is active but has no LID, because no subnet manager has assigned one; start a subnet manager (opensm)";
    for (port, wanted) in [
        (PortInfo { lid: 0, ..infiniband(1) }, no_lid),
        (PortInfo { lid: 0xc001, ..infiniband(1) }, "its LID 0xc001 is not a unicast LID"),
        (PortInfo { link_layer: 0, ..roce(1) }, "its link layer is 0"),
        (PortInfo { active_mtu: 9, ..roce(1) }, "its active MTU has the code 9"),
    ] {
        let reason = refusal(port, &Tunables::default());
        assert!(reason.starts_with(wanted), "{reason}");
    }
}

#[test]
fn a_port_that_carries_the_forced_mtu_uses_it() {
    let forced = |bytes: &str| with(|tunables| tunables.mtu = bytes.to_owned());
    let smaller = ports(&[device("dev0", vec![roce(1)])], &forced("512"));
    assert_eq!(smaller.chosen().next().expect("taken").mtu, 2);
    let reason = refusal(roce(1), &forced("4096"));
    assert!(reason.starts_with("btl_ibex_mtu asks for 4096 bytes, but its active MTU is 1024"), "{reason}");
}

#[test]
fn the_refusal_of_a_port_without_a_usable_gid_has_every_gids_reason() {
    let forced = with(|tunables| tunables.gid_index = "7".to_owned());
    let selection = ports(&[device("dev0", vec![roce(1)])], &forced);
    assert!(selection.considered[0].reason.starts_with("btl_ibex_gid_index asks for entry 7"));
    assert_eq!(selection.considered[0].gids.len(), 2);
    let reason = refusal(PortInfo { gids: vec![], ..roce(1) }, &Tunables::default());
    assert!(reason.contains("no RoCE entry"), "{reason}");
}

#[test]
fn ports_refuses_far_ports_with_their_distance_unless_that_is_permitted() {
    let devices = [near("far0", 21), near("near0", 10), near("near1", 10), device("somewhere", vec![roce(1)])];
    let selection = ports(&devices, &Tunables::default());
    let taken: Vec<_> = selection.chosen().map(|chosen| chosen.device).collect();
    assert_eq!(taken, [1, 2, 3], "an unknown distance counts as near");
    let reason = &selection.considered[0].reason;
    assert!(
        reason.contains("distance 21, the nearest port has 10") && reason.contains("btl_ibex_ignore_locality"),
        "{reason}"
    );
    assert_eq!(chosen(&devices, &with(|tunables| tunables.ignore_locality = true)).len(), 4);
}

fn of_rate(name: &str, rate_mbps: u32) -> DeviceInfo {
    device(name, vec![PortInfo { rate_mbps, ..roce(1) }])
}

#[test]
fn ports_refuses_a_port_far_slower_than_the_fastest_unless_the_user_asks_for_it() {
    let devices = [of_rate("slow", 24_999), of_rate("fast", 100_000), of_rate("quarter", 25_000)];
    let selection = ports(&devices, &Tunables::default());
    assert_eq!(chosen(&devices, &Tunables::default()), ["fast:1", "quarter:1"]);
    assert_eq!(
        selection.considered[0].reason,
        "it is slow: 24999 Mb/s, and the fastest port has 100000 (btl_ibex_min_rate is 25 percent); name it in \
         btl_ibex_if_include to use it"
    );
    assert_eq!(chosen(&devices, &with(|tunables| tunables.if_include = "*".to_owned())).len(), 3);
    assert_eq!(chosen(&devices, &with(|tunables| tunables.min_rate = 0)).len(), 3);
    assert_eq!(chosen(&devices, &with(|tunables| tunables.min_rate = 100)), ["fast:1"]);
}

#[test]
fn an_unusable_port_excludes_neither_farther_nor_slower_ones() {
    for (mut down, left) in [(near("near0", 10), near("left", 21)), (of_rate("fast", 100_000), of_rate("left", 1_000))]
    {
        down.ports[0].state = PORT_DOWN;
        assert_eq!(chosen(&[down, left], &Tunables::default()), ["left:1"]);
    }
}

#[test]
fn ports_refuses_a_partition_key_index_without_a_key() {
    let asked = with(|tunables| tunables.pkey_index = 5);
    let of = |partition_key| PortInfo { partition_key, ..infiniband(1) };
    let reason = refusal(of(PartitionKey::Missing(2)), &asked);
    assert_eq!(reason, "btl_ibex_pkey_index is 5, but its partition key table has 2 entries; choose a smaller index");
    for empty in [0, 0x8000] {
        let reason = refusal(of(PartitionKey::Key(empty)), &asked);
        assert!(reason.contains("asks for entry 5") && reason.contains("is empty"), "{reason}");
    }
    assert!(ports(&[device("dev0", vec![of(PartitionKey::Unknown)])], &asked).chosen().next().is_some());
}

#[test]
fn ports_takes_a_limited_member_of_a_partition_with_a_warning() {
    let warnings = |key| {
        let port = PortInfo { partition_key: PartitionKey::Key(key), ..infiniband(1) };
        let selection = ports(&[device("dev0", vec![port])], &Tunables::default());
        assert_eq!(selection.chosen().count(), 1);
        selection.warnings
    };
    let warning = warnings(0x7fff).join("");
    assert!(warning.starts_with("port dev0:1 is a limited member of partition 0x7fff (entry 0"), "{warning}");
    assert!(warning.contains("btl_ibex_pkey_index"), "{warning}");
    assert!(warnings(0xffff).is_empty());
    let shows_none = PortInfo { partition_key: PartitionKey::Key(0), ..roce(1) };
    assert!(ports(&[device("dev0", vec![shows_none])], &Tunables::default()).warnings.is_empty());
    let refused = PortInfo { partition_key: PartitionKey::Key(1), state: PORT_DOWN, ..infiniband(1) };
    assert!(ports(&[device("dev0", vec![refused])], &Tunables::default()).warnings.is_empty());
}

#[test]
fn the_report_says_why_a_device_cannot_be_opened() {
    let locked = DeviceInfo {
        unusable: Some("it cannot be opened: Permission denied; see the rights of /dev/infiniband/uverbs0".to_owned()),
        ..device("mlx5_0", vec![])
    };
    let selection = ports(&[locked, device("mlx5_1", vec![])], &Tunables::default());
    assert_eq!(
        selection.no_port_message(),
        "ibex found no RDMA port it could use on this host:\n  \
         port mlx5_0 refused: it cannot be opened: Permission denied; see the rights of /dev/infiniband/uverbs0\n  \
         port mlx5_1 refused: it has no ports; look whether its driver is loaded"
    );
}

#[test]
fn ports_takes_no_more_ports_than_a_process_can_publish() {
    let devices: Vec<_> = (0..MAX_PORTS + 3).map(|index| device(&format!("dev{index}"), vec![roce(1)])).collect();
    let selection = ports(&devices, &Tunables::default());
    assert_eq!(selection.chosen().count(), MAX_PORTS);
    assert!(selection.considered[MAX_PORTS].reason.contains("no more"), "{}", selection.considered[MAX_PORTS].reason);
}

#[test]
fn a_host_without_devices_gets_advice() {
    let selection = ports(&[], &with(|tunables| tunables.if_include = "mlx5_0".to_owned()));
    let text = selection.no_port_message();
    assert!(text.contains("no RDMA device") && text.contains("ibv_devices") && text.contains("rxe"), "{text}");
    assert!(text.ends_with("no port of this host fits \"mlx5_0\" (it has no RDMA device)"), "{text}");
}

#[test]
fn the_report_has_a_line_for_every_port_and_every_gid() {
    let down = PortInfo { state: PORT_DOWN, ..roce(2) };
    let devices = [DeviceInfo { distance: Some(10), ..device("rxe0", vec![roce(1), down]) }];
    assert_eq!(
        ports(&devices, &Tunables::default()).to_string(),
        "port rxe0:1 (Ethernet, 25000 Mb/s, MTU 1024, NUMA distance 10) taken: it is active and permitted; \
         GID 1: ::ffff:10.0.0.1 (RoCE v2, IPv4, eth0)\n  \
         GID 0: fe80::1 (RoCE v2, link-local, eth0) refused: entry 1 is better (RoCE v2, IPv4)\n  \
         GID 1: ::ffff:10.0.0.1 (RoCE v2, IPv4, eth0) taken: RoCE v2, IPv4 is the best kind in the table\n\
         port rxe0:2 (Ethernet, 25000 Mb/s, MTU 1024, NUMA distance 10) refused: its link is down; bring its network interface \
         up (ip link set ... up) and check its cable\n"
    );
}

#[test]
fn patterns_match_as_a_shell_would() {
    for (pattern, text, wanted) in [
        ("*", "", true),
        ("*", "anything", true),
        ("a*c", "abc", true),
        ("a*c", "ac", true),
        ("a*c", "abd", false),
        ("?", "", false),
        ("??", "ab", true),
        ("a**b", "ab", true),
        ("*_0", "mlx5_0", true),
        ("", "a", false),
        ("[a]", "a", false),
    ] {
        assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), wanted, "{pattern} {text}");
    }
}
