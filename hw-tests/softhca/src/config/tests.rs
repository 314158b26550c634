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
