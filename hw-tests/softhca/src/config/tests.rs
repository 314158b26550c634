// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the configuration file: what left-out keys mean, and that errors name the line they are on.

use std::path::Path;

use super::Config;
use crate::engine::codes::{gid_kind, wc_status};
use crate::engine::faults::FaultAction;

fn error_of(text: &str) -> String {
    let folder = std::env::temp_dir().join(format!("softhca-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{:x}.toml", text.len()));
    std::fs::write(&path, text).unwrap();
    let message = Config::read(&path).unwrap_err().to_string();
    std::fs::remove_file(&path).unwrap();
    message.rsplit('/').next().unwrap().split_once(".toml:").unwrap().1.to_owned()
}

#[test]
fn an_empty_file_describes_one_infiniband_adapter() {
    let config = Config::parse("").unwrap();
    assert_eq!(config.devices.len(), 1);
    assert_eq!(config.devices[0].name, "softhca0");
    assert_eq!(config.devices[0].ports[0].lid, 1);
    assert_eq!(config.devices[0].ports[0].gids[0].raw[..2], [0xfe, 0x80]);
    assert!(config.faults.is_empty());
}

#[test]
fn two_adapters_of_two_kinds_get_lids_and_gids_of_their_kind() {
    let config = Config::parse(
        "fabric = \"lab\"\n[[device]]\n[[device.port]]\nmtu = 2048\n[[device.port]]\n[[device]]\nname = \"eth\"\nlink_layer = \"ethernet\"\n[device.clock]\nmask_bits = 20\n",
    )
    .unwrap();
    assert_eq!(config.fabric.as_deref(), Some("lab"));
    let lids: Vec<u16> = config.devices.iter().flat_map(|device| &device.ports).map(|port| port.lid).collect();
    assert_eq!(lids, [1, 2, 0]);
    assert_eq!(config.devices[0].ports[0].mtu, 4);
    assert_eq!(config.devices[1].ports[0].gids.last().unwrap().kind, gid_kind::ROCE_V2);
    assert_eq!(config.devices[1].clock.mask_bits, 20);
}

#[test]
fn a_fault_becomes_a_rule() {
    let config = Config::parse(
        "[[fault]]\naction = \"status\"\nstatus = \"REM_ACCESS_ERR\"\nnth = 3\n[[fault]]\naction = \"drop\"\nfraction = 0.5\nseed = 7\n",
    )
    .unwrap();
    assert_eq!(config.faults[0].action, FaultAction::Status(wc_status::REM_ACCESS_ERR));
    assert_eq!((config.faults[0].nth, config.faults[0].count), (Some(3), 1));
    assert_eq!((config.faults[1].fraction, config.faults[1].seed), (Some(0.5), 7));
}

#[test]
fn an_error_names_its_line() {
    assert!(error_of("fabric = \"lab\"\nspeed = 3\n").starts_with("2: unknown field `speed`"));
    assert!(error_of("[[device]]\n[[device.port]]\nmtu = 1500\n").starts_with("3: 1500 is no MTU: one of 256"));
    assert!(error_of("\n\n[[device]]\nname = \"a b\"\n").starts_with("3: name = \"a b\""));
    assert!(error_of("[[fault]]\naction = \"drop\"\nstatus = \"LOC_LEN_ERR\"\n").contains("status has no meaning"));
    assert!(
        error_of("[[device]]\n[[device.port]]\nlid = 4\n\n[[device]]\n[[device.port]]\nlid = 4\n")
            .contains("another port's")
    );
}

#[test]
fn a_missing_file_is_named() {
    let error = Config::read(Path::new("/no/such/softhca.toml")).unwrap_err().to_string();
    assert!(error.contains("/no/such/softhca.toml"), "{error}");
}

#[test]
fn a_trace_is_written_only_when_asked_for() {
    assert!(!Config::parse("").unwrap().trace && !Config::default().trace);
    assert!(Config::parse("trace = true\n[[device]]\n").unwrap().trace);
}

#[test]
fn every_number_has_bounds_that_its_error_names() {
    let device = |line: &str| format!("[[device]]\n{line}\n");
    let fault = |lines: &str| format!("[[fault]]\naction = {lines}\n");
    for (text, expected) in [
        (
            device("bandwidth_gbps = 1e-300"),
            "bandwidth_gbps = 1e-300: 0 (as fast as the host can), or 0.001 to 1000000",
        ),
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
        ("[[fault]]\naction = \"drop\"\n".repeat(65), "a fabric has up to 64 faults"),
    ] {
        let error = Config::parse(&text).expect_err(&text).1;
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn every_status_of_verbs_but_success_can_be_scripted() {
    use crate::sys;
    // As <infiniband/verbs.h> numbers them.
    let names = [
        ("LOC_LEN_ERR", sys::IBV_WC_LOC_LEN_ERR),
        ("LOC_QP_OP_ERR", sys::IBV_WC_LOC_QP_OP_ERR),
        ("LOC_EEC_OP_ERR", sys::IBV_WC_LOC_EEC_OP_ERR),
        ("LOC_PROT_ERR", sys::IBV_WC_LOC_PROT_ERR),
        ("WR_FLUSH_ERR", sys::IBV_WC_WR_FLUSH_ERR),
        ("MW_BIND_ERR", sys::IBV_WC_MW_BIND_ERR),
        ("BAD_RESP_ERR", sys::IBV_WC_BAD_RESP_ERR),
        ("LOC_ACCESS_ERR", sys::IBV_WC_LOC_ACCESS_ERR),
        ("REM_INV_REQ_ERR", sys::IBV_WC_REM_INV_REQ_ERR),
        ("REM_ACCESS_ERR", sys::IBV_WC_REM_ACCESS_ERR),
        ("REM_OP_ERR", sys::IBV_WC_REM_OP_ERR),
        ("RETRY_EXC_ERR", sys::IBV_WC_RETRY_EXC_ERR),
        ("RNR_RETRY_EXC_ERR", sys::IBV_WC_RNR_RETRY_EXC_ERR),
        ("LOC_RDD_VIOL_ERR", sys::IBV_WC_LOC_RDD_VIOL_ERR),
        ("REM_INV_RD_REQ_ERR", sys::IBV_WC_REM_INV_RD_REQ_ERR),
        ("REM_ABORT_ERR", sys::IBV_WC_REM_ABORT_ERR),
        ("INV_EECN_ERR", sys::IBV_WC_INV_EECN_ERR),
        ("INV_EEC_STATE_ERR", sys::IBV_WC_INV_EEC_STATE_ERR),
        ("FATAL_ERR", sys::IBV_WC_FATAL_ERR),
        ("RESP_TIMEOUT_ERR", sys::IBV_WC_RESP_TIMEOUT_ERR),
        ("GENERAL_ERR", sys::IBV_WC_GENERAL_ERR),
        ("TM_ERR", sys::IBV_WC_TM_ERR),
        ("TM_RNDV_INCOMPLETE", sys::IBV_WC_TM_RNDV_INCOMPLETE),
    ];
    let scripted = |name: &str| Config::parse(&format!("[[fault]]\naction = \"status\"\nstatus = \"{name}\"\n"));
    for (at, (name, code)) in (1..).zip(names) {
        for written in [name.to_owned(), format!("IBV_WC_{name}"), format!("ibv_wc_{name}").to_lowercase()] {
            assert_eq!(scripted(&written).unwrap().faults[0].action, FaultAction::Status(code), "{written}");
        }
        assert_eq!(code, at);
    }
    assert!(scripted("IBV_WC_SUCCESS").unwrap_err().1.contains("one of LOC_LEN_ERR, "));
}
