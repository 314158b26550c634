// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the configuration file: defaults of keys, and lines in errors.

use std::path::Path;

use super::Config;
use super::faults::STATUSES;
use crate::behaviour::Behaviour;
use crate::engine::codes::{event, gid_kind, qp_type, wc_status};
use crate::engine::faults::FaultAction;
use crate::engine::{Change, Gid};
use crate::limits::Limits;

fn error_of(text: &str) -> String {
    let path = std::env::temp_dir().join(format!("softhca-config-{}-{:x}.toml", std::process::id(), text.len()));
    std::fs::write(&path, text).unwrap();
    let message = Config::read(&path, None).unwrap_err().to_string();
    std::fs::remove_file(&path).unwrap();
    message.split_once(".toml:").unwrap().1.to_owned()
}

#[test]
fn an_empty_file_describes_one_infiniband_adapter() {
    let config = Config::parse("").unwrap();
    let port = &config.devices[0].ports[0];
    assert_eq!((config.devices.len(), config.devices[0].name.as_str(), port.lid), (1, "softhca0", 1));
    assert_eq!(port.gids[0].raw[..2], [0xfe, 0x80]);
    assert!(config.faults.is_empty() && !config.trace && !Config::of_profile(None).trace);
}

#[test]
fn two_adapters_of_two_kinds_get_lids_and_gids_of_their_kind() {
    let config = Config::parse(
        "fabric = \"lab\"\ntrace = true\n[[device]]\n[[device.port]]\nmtu = 2048\n[[device.port]]\n[[device]]\n\
         name = \"eth\"\nlink_layer = \"ethernet\"\n[device.clock]\nmask_bits = 20\n",
    )
    .unwrap();
    assert_eq!((config.fabric.as_deref(), config.trace), (Some("lab"), true));
    let lids: Vec<u16> = config.devices.iter().flat_map(|device| &device.ports).map(|port| port.lid).collect();
    assert_eq!(lids, [1, 2, 0]);
    assert_eq!(config.devices[0].ports[0].mtu, 4);
    assert_eq!(config.devices[1].ports[0].gids.last().unwrap().kind, gid_kind::ROCE_V2);
    assert_eq!(config.devices[1].clock.mask_bits, 20);
}

#[test]
fn a_fault_becomes_a_rule() {
    let config = Config::parse(
        "[[fault]]\naction = \"status\"\nstatus = \"REM_ACCESS_ERR\"\nnth = 3\n\
         [[fault]]\naction = \"drop\"\nfraction = 0.5\nseed = 7\nqp_type = \"ud\"\n",
    )
    .unwrap();
    assert_eq!(config.faults[0].action, FaultAction::Status(wc_status::REM_ACCESS_ERR));
    assert_eq!((config.faults[0].nth, config.faults[0].count), (Some(3), 1));
    assert_eq!((config.faults[1].fraction, config.faults[1].seed), (Some(0.5), 7));
    assert_eq!((config.faults[0].qp_type, config.faults[1].qp_type), (None, Some(qp_type::UD)));
}

#[test]
fn an_error_names_its_line_and_a_missing_file() {
    for (text, error) in [
        ("fabric = \"lab\"\nspeed = 3\n", "2: unknown field `speed`"),
        ("[[device]]\n[[device.port]]\nmtu = 1500\n", "3: 1500 is no MTU: one of 256"),
        ("\n\n[[device]]\nname = \"a b\"\n", "3: name = \"a b\""),
    ] {
        assert!(error_of(text).starts_with(error), "{text}: {}", error_of(text));
    }
    let error = Config::read(Path::new("/no/such/softhca.toml"), None).unwrap_err().to_string();
    assert!(error.contains("/no/such/softhca.toml"), "{error}");
}

#[test]
fn an_error_names_the_bounds_of_a_number_or_the_use_of_a_key() {
    let device = |line: &str| format!("[[device]]\n{line}\n");
    let fault = |lines: &str| format!("[[fault]]\naction = {lines}\n");
    let change = |lines: &str| fault(&format!("\"event\"\nat_ns = 1\n{lines}"));
    for (text, expected) in [
        (device("bandwidth_gbps = 1e-30"), "bandwidth_gbps = 1e-30: 0 (as fast as the host can), or 0.001 to 1000000"),
        (device("bandwidth_gbps = nan"), "bandwidth_gbps = NaN: 0"),
        (device("bandwidth_gbps = -1.0"), "bandwidth_gbps = -1e0: 0"),
        (device("latency_ns = 60000000001"), "latency_ns = 60000000001: 0 to 60000000000"),
        (device("numa_node = -2"), "numa_node = -2: -1 to 1023"),
        (device("node_guid = \"0xffffffffffffffff\""), "node_guid = 0xffffffffffffffff: 0x1 to 0xfffffffffffffffd"),
        (device("node_guid = \"0x0\""), "node_guid = 0x0"),
        (device("node_guid = \"0x5e00000000000200\"\n[[device]]"), "too near another device's"),
        (device("fw_ver = \"1\\n2\""), "fw_ver = \"1\\n2\": up to 63 printable characters"),
        (device("[device.clock]\ndrift_ppm = nan"), "drift_ppm = NaN: -100000 to 100000"),
        (device("[device.clock]\nfrequency_hz = 0"), "frequency_hz = 0: 1000 to 10000000000"),
        (device("[device.clock]\nmask_bits = 65"), "mask_bits = 65: 8 to 64"),
        (device("[[device.port]]\nlid = 49152"), "lid = 49152: 1 to 49151"),
        (device("[[device.port]]\nlid = 49151\n[[device.port]]"), "no lid follows 49151"),
        (device("[[device.port]]\nsm_lid = 0"), "sm_lid = 0: 1 to 49151"),
        (device("[[device.port]]\ngids = [\"fe80::1\", \"fe80::1\"]"), "gids: one is there twice"),
        (fault("\"delay\"\ndelay_ns = 9223372036854775807"), "delay_ns = 9223372036854775807: 0 to 60000000000"),
        (fault("\"link-down\"\nat_ns = 9223372036854775807"), "at_ns = 9223372036854775807: 0 to 31536000000000000"),
        (fault("\"link-down\"\nat_ns = 1\nfor_ns = 9223372036854775807"), "for_ns = 9223372036854775807: 0 to"),
        (fault("\"event\"\nevent = \"SM_CHANGE\"\nat_ns = 9223372036854775807"), "at_ns = 9223372036854775807"),
        (fault("\"drop\"\nfraction = nan"), "fraction = NaN: 0 to 1"),
        (fault("\"drop\"\nnth = 0"), "nth = 0: 1 to 4294967295"),
        (fault("\"drop\"\nnth = 4294967296"), "nth = 4294967296: 1 to 4294967295"),
        (fault("\"drop\"\ncount = 4294967296"), "count = 4294967296: 0 to 4294967295"),
        (fault("\"drop\"\nport = 2"), "port = 2: 1 to 1"),
        (fault("\"drop\"\nport = 0"), "port = 0: 1 to 1"),
        (fault("\"drop\"\nto_lid = 9"), "to_lid = 9: no port has this lid"),
        (fault("\"drop\"\nqp_type = \"rd\""), "qp_type = \"rd\" is unknown; one of RC, UC, UD, XRC_SEND"),
        (fault("\"registration-error\"\nqp_type = \"ud\""), "qp_type has no meaning with this action"),
        (device("[device.limits]\nmax_sge = 33"), "max_sge = 33: 1 to 32"),
        (device("[device.limits]\nmax_inline = 1025"), "max_inline = 1025: 0 to 1024"),
        (device("[device.limits]\nmax_qps = 1"), "unknown field `max_qps`"),
        (device("[device.limits]\natomics = \"some\""), "unknown variant `some`"),
        (device("profile = \"mlx4\""), "unknown variant `mlx4`"),
        (device("link_layer = \"ethernet\"\n[[device.port]]\nsubnet_prefix = \"0xfe80\""), "no subnet_prefix"),
        (device("[[device.port]]\nsubnet_prefix = \"fe80\""), "\"fe80\" is no GUID or subnet prefix"),
        (device("[[device.port]]\nnetwork = \"a b\""), "network = \"a b\""),
        (device("[[device.port]]\ngids = [{ gid = \"fe80::1\", row = 3 }]"), "unknown field `row`"),
        (device("[[device.port]]\ngids = [{ gid = \"fe80::1\", type = \"RoCE v2\" }]"), "a type is for Ethernet"),
        (
            device("profile = \"minimal\"\n[[device.port]]\ngids = [{ gid = \"fe80::1\", index = 2 }]"),
            "gids: index = 2: 0 to 1",
        ),
        (device("[[device.port]]\ngids = [\"a::1\", { gid = \"a::2\", index = 0 }]"), "gids: index = 0 is there twice"),
        (change("event = \"LID_CHANGE\"\nlid = 0"), "lid = 0: 1 to 49151"),
        (change("event = \"GID_CHANGE\"\nlid = 4"), "lid has no meaning with this event"),
        (change("event = \"LID_CHANGE\"\npkey_index = 0"), "pkey_index has no meaning"),
        (change("event = \"PKEY_CHANGE\"\npkey = 1\npkey_index = 1"), "pkey_index = 1: 0 to 0"),
        (fault("\"drop\"\ngid = \"::\""), "gid has no meaning with this action"),
        (fault("\"drop\"\nstatus = \"LOC_LEN_ERR\""), "status has no meaning"),
        (device("[[device.port]]\nlid = 4\n[[device]]\n[[device.port]]\nlid = 4"), "lid = 4 is another port's too"),
        ("[[fault]]\naction = \"drop\"\n".repeat(65), "a fabric has up to 64 faults"),
    ] {
        let error = Config::parse(&text).expect_err(&text).1;
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn a_profile_gives_the_keys_that_the_device_leaves_out() {
    let config = Config::parse(
        "[[device]]\nprofile = \"irdma\"\n[device.limits]\nmax_sge = 4\n[device.behaviour]\nwr_api = true\n[[device]]\n",
    )
    .unwrap();
    let (irdma, usual) = (&config.devices[0], &config.devices[1]);
    assert_eq!((irdma.limits.max_sge, irdma.limits.max_inline), (4, 101));
    assert_eq!((irdma.behaviour.wr_api, irdma.behaviour.srq), (true, false));
    assert_eq!((irdma.link_layer, irdma.ports[0].gids.len()), (2, 4));
    assert_eq!((usual.limits, usual.behaviour), (Limits::USUAL, Behaviour::USUAL));
    let of =
        |profile: &str| Config::parse_as("[[device]]\nlink_layer = \"ethernet\"\n", Some(profile.parse().unwrap()));
    let minimal = &of("minimal").unwrap().devices[0];
    assert_eq!((minimal.link_layer, minimal.ports[0].gids.len(), minimal.limits.max_cqe), (2, 2, 255));
    assert!(minimal.ports[0].gids.iter().all(|gid| gid.kind == gid_kind::ROCE_V2));
    assert_eq!(of("mlx5").unwrap().devices[0].clock.mask_bits, 63);
    assert_eq!(Config::of_profile(Some("mlx5".parse().unwrap())).devices[0].limits.max_sge, 30);
    assert!("mlx4".parse::<crate::profiles::Name>().unwrap_err().contains("one of mlx5, rxe, irdma, bnxt_re, minimal"));
}

#[test]
fn the_file_sets_every_key_of_a_behaviour_and_an_error_names_an_unknown_key_or_value() {
    let device = |lines: &str| Config::parse(&format!("[[device]]\n[device.behaviour]\n{lines}\n"));
    // Each other than the default.
    let keys = r#"
        virtual_device = true; atomic_access_without_cap = "eopnotsupp"; optional_access = "eopnotsupp";
        purge_cq_on_destroy = "compact"; srq_wr_lost_on_destroy = "both"; qp_recycle_via_reset = false;
        srq = false; srq_errno = "EINVAL"; cq_ex = false; standard_wc_flags = false; timestamps = false;
        wallclock = false; refused_timestamp_bits = 17; rt_values = false; wr_api = false; thread_domain = false;
        ah_by_index = true; last_wqe_event = false; qp_fatal_on_retry_exc = true;
        async_events = ["port", "device"]; arm_tells_of_unread = true; flush_needs_async_read = true;
        success_byte_len_on_send = "untouched"; src_qp_top_bits = "wrong"; create_qp_errno_on_limit = "unset";
        errno_sge = "enomem"; errno_inline = "enomem"; send_before_rts = "einval-queued"; retry7_endless = true;
        rnr7_endless = false; gid_vanish_kills_rc = true; inline_grant = "shared-with-sge"; fork = "disabled"
    "#;
    for line in keys.split(';') {
        let line = line.trim();
        assert_ne!(device(line).unwrap().devices[0].behaviour, Behaviour::USUAL, "{line}");
    }
    for (line, expected) in [
        ("purge_on_destroy = true", "unknown field `purge_on_destroy`"),
        ("purge_cq_on_destroy = \"maybe\"", "unknown variant `maybe`, expected one of `compact`, `skip`, `no`"),
        ("cq_ex = \"no\"", "invalid type: string"),
        ("async_events = [\"ports\"]", "\"ports\" is no group of async events: one of port, gid"),
        ("refused_timestamp_bits = 65", "refused_timestamp_bits = 65: 0 to 64"),
    ] {
        let (span, error) = device(line).expect_err(line);
        assert!(error.contains(expected), "{line}: {error}");
        assert!(span.end > 0, "{line}");
    }
}

#[test]
fn ports_have_networks_prefixes_and_rows() {
    let config = Config::parse(
        "[[device]]\n[device.limits]\ngid_table_len = 400\natomics = \"glob\"\n[[device.port]]\nnetwork = \"a\"\n\
         subnet_prefix = \"fec0:0000:0000:0001\"\n[[device.port]]\ngids = [{ gid = \"fe80::1\", index = 300 }, \"fe80::2\"]\n",
    )
    .unwrap();
    let ports = &config.devices[0].ports;
    assert_eq!((ports[0].network.as_str(), ports[1].network.as_str()), ("a", ""));
    assert_eq!(ports[0].gids[0].raw[..8], [0xfe, 0xc0, 0, 0, 0, 0, 0, 1]);
    let used: Vec<usize> = (0..ports[1].gids.len()).filter(|row| !ports[1].gids[*row].is_empty()).collect();
    assert_eq!(used, [300, 301]);
    assert_eq!(config.devices[0].limits.atomics, crate::limits::Atomics::Glob);
}

#[test]
fn an_event_may_change_the_port() {
    let change = |lines: &str| {
        let text = format!("[[fault]]\naction = \"event\"\nat_ns = 5\n{lines}\n");
        let rule = Config::parse(&text).unwrap().faults[0];
        assert_eq!(rule.at_ns, 5);
        rule.action
    };
    let made = |kind, change| FaultAction::Event(kind, Some(change));
    assert_eq!(change("event = \"LID_CHANGE\"\nlid = 9"), made(event::LID_CHANGE, Change::Lid(9)));
    assert_eq!(change("event = \"SM_CHANGE\"\nsm_lid = 9"), made(event::SM_CHANGE, Change::SmLid(9)));
    assert_eq!(change("event = \"PKEY_CHANGE\"\npkey = 0x8001"), made(event::PKEY_CHANGE, Change::Pkey(0, 0x8001)));
    let emptied = made(event::GID_CHANGE, Change::Gid(0, Gid::default()));
    assert_eq!(change("event = \"GID_CHANGE\"\ngid = \"::\""), emptied);
    assert_eq!(change("event = \"GID_CHANGE\""), FaultAction::Event(event::GID_CHANGE, None));
}

#[test]
fn a_fault_can_give_every_status_of_verbs_but_success() {
    assert!((1..=wc_status::TM_RNDV_INCOMPLETE).eq(STATUSES.iter().map(|row| row.1)));
    let scripted = |name: &str| Config::parse(&format!("[[fault]]\naction = \"status\"\nstatus = \"{name}\"\n"));
    for &(name, code) in STATUSES {
        for written in [name, name.strip_prefix("IBV_WC_").unwrap(), &name.to_lowercase()] {
            assert_eq!(scripted(written).unwrap().faults[0].action, FaultAction::Status(code), "{written}");
        }
    }
    assert!(scripted("IBV_WC_SUCCESS").unwrap_err().1.contains("one of LOC_LEN_ERR, "));
}
