// SPDX-License-Identifier: MIT OR Apache-2.0
//! A configuration file is either refused with a message or can be run: random keys and values, with the extremes of
//! every type. The test joins a fabric of each accepted file and sends a message. No thread may panic or wait for ever.

mod engine_support;

use std::fmt::Write;
use std::panic;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine_support::prelude::*;
use softhca::engine::Result;

const FILES: u64 = 6000;
/// Number of accepted files that are run: each stays with its thread until the process ends.
const RUN: usize = 40;

/// Pseudo-random numbers, the same in every run (splitmix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) % limit as u64) as usize
    }

    fn of<'a>(&mut self, list: &'a str) -> &'a str {
        let nth = self.below(list.split('|').count());
        list.split('|').nth(nth).unwrap()
    }
}

/// The extremes of every type, and words that no key or few have.
const VALUES: &str = concat!(
    "0|1|2|3|64|255|256|1000|1500|20000000|49151|65535|65536|4294967295|4294967296|60000000000|31536000000000000|-1|",
    "9223372036854775807|-9223372036854775808|18446744073709551615|0.0|0.5|0.001|1e6|-0.0|1e-300|1e300|-1.0|inf|-inf|",
    r#"nan|true|false|""|"a b"|"../x"|"\u0000"|"ü"|"0x"|"0x0"|"0xffffffffffffffff"|"0xfffffffffffffffd"|"fe80"|"#,
    r#""+e00:0000:0000:0001"|"no"|"EIO"|"unset"|"eopnotsupp"|"ethernet"|"minimal"|"fe80::7"|"10.0.0.1"|"::"|[]|"#,
    r#"[{ gid = "fe80::1", index = 4294967295 }]|[{ index = 3 }]|["10.0.0.1", "10.0.0.1"]|["::"]|["ff02::1"]|"#,
    r#"[4]|[0]|[65536]|["everything"]|{ gid = "fe80::1", type = "RoCE v1" }"#,
);

// Keys, each with a value that is right.
const DEVICE: &str = r#"name = "rail"; fw_ver = "1.0"; link_layer = "ethernet"; node_guid = "0x5e00000000000300";
    vendor_id = 7; vendor_part_id = 8; numa_node = 0; latency_ns = 1000; bandwidth_gbps = 100.0; profile = "mlx5""#;
const CLOCK: &str = "frequency_hz = 1000000; offset = 5; mask_bits = 20; drift_ppm = 10.0";
const LIMITS: &str = r#"max_qp = 64; max_qp_wr = 64; max_cqe = 64; max_sge = 2; max_inline = 16; max_msg_sz = 4096;
    gid_table_len = 300; atomics = "none""#;
const BEHAVIOUR: &str = r#"atomic_access_without_cap = "accepted"; optional_access = "eopnotsupp"; srq = false;
    errno_sge = "ENOMEM"; create_qp_errno_on_limit = "unset"; purge_cq_on_destroy = "compact"; cq_ex = false;
    srq_wr_lost_on_destroy = "both"; inline_grant = "wqe"; send_before_rts = "accepted"; fork = "disabled";
    ah_by_index = true; retry7_endless = false; async_events = ["port", "qp"]; refused_timestamp_bits = 3"#;
const PORT: &str = r#"subnet_prefix = "fe80:0000:0000:0001"; network = "a"; lid = 9; sm_lid = 3; mtu = 256;
    state = "down"; gids = ["fe80::1"]; pkeys = [0xffff]"#;
const SELECTION: &str = r#"device = "softhca0"; port = 1; from_lid = 1; nth = 2; count = 3; seed = 4; fraction = 0.5"#;
/// Actions, with the keys that they need.
const ACTIONS: &str = concat!(
    r#""drop"|"delay"; delay_ns = 1000|"duplicate"|"rnr"|"status"; status = "tm_err"|"cq-overrun"|"#,
    r#""post-send-error"; errno = "EIO"|"registration-error"; errno = "ENOMEM"|"link-up"; at_ns = 0|"#,
    r#""link-down"; at_ns = 0; for_ns = 1000|"event"; event = "QP_FATAL"; at_ns = 1000|"#,
    r#""event"; event = "LID_CHANGE"; at_ns = 0; lid = 9|"#,
    r#""event"; event = "GID_CHANGE"; at_ns = 0; gid_index = 1; gid = "::"|"#,
    r#""event"; event = "PKEY_CHANGE"; at_ns = 0; pkey = 0xffff; pkey_index = 0"#,
);

/// Writes some keys at random, some of them with another value.
fn some(text: &mut String, chance: &mut Chance, keys: &str, one_in: usize) {
    for (key, right) in keys.split(';').filter_map(|key| key.trim().split_once(" = ")) {
        if chance.below(one_in) == 0 {
            let value = if chance.below(4) == 0 { chance.of(VALUES) } else { right };
            writeln!(text, "{key} = {value}").unwrap();
        }
    }
}

fn file(chance: &mut Chance) -> String {
    let mut text = String::new();
    for _ in 0..chance.below(3) {
        text.push_str("[[device]]\n");
        some(&mut text, chance, DEVICE, 6);
        for (table, keys) in [("clock", CLOCK), ("limits", LIMITS), ("behaviour", BEHAVIOUR)] {
            if chance.below(4) == 0 {
                writeln!(text, "[device.{table}]").unwrap();
                some(&mut text, chance, keys, 5);
            }
        }
        for _ in 0..chance.below(3) {
            text.push_str("[[device.port]]\n");
            some(&mut text, chance, PORT, 6);
        }
    }
    for _ in 0..chance.below(3) {
        let action = chance.of(ACTIONS);
        let (action, needs) = action.split_once(';').unwrap_or((action, ""));
        writeln!(text, "[[fault]]\naction = {action}").unwrap();
        some(&mut text, chance, needs, 1);
        some(&mut text, chance, SELECTION, 8);
    }
    if chance.below(5) == 0 && !text.is_empty() {
        let at = chance.below(text.len());
        if text.is_char_boundary(at) {
            text.truncate(at);
            text.push_str(chance.of("=|[[|\"|\u{0}|{"));
        }
    }
    text
}

/// Joins such a fabric, connects two queue pairs of its first adapter, and sends; a fault may refuse any of it.
fn run(folder: &Path, config: Config) -> Result<()> {
    let Config { trace, devices, faults, .. } = config;
    let lid = devices[0].ports[0].lid;
    let gid = devices[0].ports[0].gids[0].raw;
    let hca = Fabric::join(FabricSpec { folder: folder.to_owned(), devices, faults, trace })?.open(0)?;
    let pd = hca.alloc_pd();
    let cq = hca.create_cq(16, None, 0, 0)?;
    let cap = QpCap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
    let init =
        QpInit { kind: qp_type::RC, pd: &pd, send_cq: &cq, recv_cq: &cq, srq: None, cap, sq_sig_all: true, cookie: 0 };
    let memory = vec![0_u8; 65536];
    let address = memory.as_ptr() as u64;
    let region = pd.reg_mr(address, memory.len() as u64, address, access::LOCAL_WRITE)?;
    let (a, b) = (hca.create_qp(&init)?, hca.create_qp(&init)?);
    for (qp, peer) in [(&a, &b), (&b, &a)] {
        let ah_attr = global(gid, lid);
        let attr = QpAttr { port_num: 1, path_mtu: 1, dest_qp_num: peer.number(), ah_attr, ..QpAttr::default() };
        let attr = QpAttr { timeout: 1, retry_cnt: 1, rnr_retry: 1, ..attr };
        let to = |qp_state| QpAttr { qp_state, ..attr };
        qp.modify(&to(qp_state::INIT), m::STATE | m::PKEY_INDEX | m::PORT | m::ACCESS_FLAGS)?;
        let path = m::AV | m::PATH_MTU | m::DEST_QPN | m::RQ_PSN | m::MAX_DEST_RD_ATOMIC | m::MIN_RNR_TIMER;
        qp.modify(&to(qp_state::RTR), m::STATE | path)?;
        let retries = m::TIMEOUT | m::RETRY_CNT | m::RNR_RETRY | m::SQ_PSN | m::MAX_QP_RD_ATOMIC;
        qp.modify(&to(qp_state::RTS), m::STATE | retries)?;
    }
    let sge = [Sge { addr: address, length: memory.len() as u32, lkey: region.key() }];
    b.post_recv(&RecvWr { wr_id: 1, sge: &sge })?;
    for _ in 0..3 {
        a.post_send(&SendWr { flags: send_flags::SIGNALED, sge: &sge, ..SendWr::empty() })?;
        cq.poll(&mut [Wc::default(); 4]);
    }
    Ok(())
}

#[test]
fn every_configuration_is_refused_or_runs() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |what| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        usual(what);
    }));
    let folder = new_folder();
    let path = folder.file("file.toml");
    let (mut accepted, mut ran, mut refused) = (0, 0, 0);
    for seed in 0..FILES {
        let text = file(&mut Chance(seed));
        std::fs::write(&path, &text).unwrap();
        match Config::read(&path, None) {
            Ok(config) => {
                accepted += 1;
                // Skips files that say next to nothing.
                if ran < RUN && text.lines().count() > 4 {
                    ran += 1;
                    let folder = new_folder();
                    let _refused_by_a_fault = run(folder.path(), config);
                }
            }
            Err(error) => {
                refused += 1;
                let said = error.to_string();
                let place = said.strip_prefix(&format!("{}:", path.display())).and_then(|rest| rest.split_once(": "));
                let (line, message) = place.unwrap_or_else(|| panic!("{said}"));
                let is_there = line.parse::<usize>().is_ok_and(|line| line <= 1 + text.lines().count());
                assert!(!message.is_empty() && is_there, "{text}: {said}");
            }
        }
        assert_eq!(PANICS.load(Ordering::Relaxed), 0, "seed {seed}:\n{text}");
    }
    println!("{accepted} accepted, {ran} of them run, {refused} refused");
    assert!(ran == RUN && refused > 100, "{accepted} accepted, {ran} of them run, {refused} refused");
}
