// SPDX-License-Identifier: MIT OR Apache-2.0
//! A configuration file is either refused with a message or can be run: random keys and values, with the extremes of
//! every type. The test joins a fabric of each accepted file and sends a message. No thread may panic or wait for ever.

mod engine_support;

use std::fmt::Write;
use std::panic;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine_support::{Folder, global};
use softhca::config::{Config, ConfigError};
use softhca::engine::codes::{access, attr_mask as m, qp_state, qp_type, send_flags};
use softhca::engine::{Fabric, FabricSpec, QpAttr, QpCap, QpInit, RecvWr, Result, SendWr, Sge, Wc};

const FILES: u64 = 6000;
/// Number of accepted files that are run: each stays with its thread until the process ends.
const RUN: usize = 40;

/// Numbers by chance, the same in every run (splitmix64).
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

const INTEGERS: &str = "0|1|2|3|64|1000|20000000|60000000000|4294967295|31536000000000000|-1|255|256|49151|65535|65536|\
    4294967296|9223372036854775807|-9223372036854775808|18446744073709551615";
const FLOATS: &str = "0.0|0.5|1.0|100.0|0.001|1e6|-0.0|1e-300|1e300|-1.0|inf|-inf|nan|3";
const GUIDS: &str =
    r#""0x5e00000000000100"|"0xfffffffffffffffd"|"0xffffffffffffffff"|"0x0"|"0x"|"+e00:0000:0000:0001"|7"#;
const NAMES: &str = r#""a"|"softhca1"|""|"a b"|"../x"|"\u0000"|"ü"|4"#;
const LAYERS: &str = r#""infiniband"|"ethernet"|"token ring""#;
const GIDS: &str = concat!(
    r#"[{ gid = "fe80::1", index = 300 }, "fe80::2"]|[{ gid = "10.0.0.1", type = "RoCE v1" }]|"#,
    r#"[{ gid = "fe80::1", index = 4294967295 }]|[{ index = 3 }]|["fe80::1"]|["10.0.0.1", "10.0.0.1"]|[]|["::"]|"#,
    r#"["ff02::1"]|[4]"#,
);
const MTUS: &str = "256|4096|1500";
const STATES: &str = r#""active"|"down"|"up""#;
const STATUSES: &str = r#""REM_ACCESS_ERR"|"IBV_WC_WR_FLUSH_ERR"|"tm_err"|"SUCCESS"|"""#;
const EVENTS: &str = r#""PORT_ERR"|"QP_FATAL"|"IBV_EVENT_CLIENT_REREGISTER"|"COMM_EST""#;
const ERRNOS: &str = r#""ENOMEM"|"EIO"|"0""#;
const PKEYS: &str = "[0xffff]|[0]|[]|[65536]";

const PROFILES: &str = r#""mlx5"|"rxe"|"irdma"|"bnxt_re"|"minimal"|"mlx4""#;
const PREFIXES: &str = r#""fe80:0000:0000:0001"|"0xfe80000000000001"|"fe80""#;
const FLAGS: &str = "true|false|1";
const NUMBERS: &str = r#""einval"|"ENOMEM"|"unset"|"eopnotsupp"|"EIO""#;
const WORDS: &str = r#""no"|"skip"|"compact"|"both"|"accepted"|"wqe"|"exact"|"disabled""#;
const GROUPS: &str = r#"[]|["port", "qp"]|["everything"]"#;
const ATOMICS: &str = r#""none"|"hca"|"some""#;
const GID: &str = r#""fe80::7"|"::"|"gid""#;

/// Keys, and their values.
type Keys = (&'static str, &'static str);

const DEVICE: &[Keys] = &[
    ("name fw_ver", NAMES),
    ("link_layer", LAYERS),
    ("node_guid", GUIDS),
    ("vendor_id vendor_part_id numa_node latency_ns speed", INTEGERS),
    ("bandwidth_gbps", FLOATS),
    ("profile", PROFILES),
];
const LIMITS: &[Keys] =
    &[("max_qp max_qp_wr max_cqe max_sge max_inline max_msg_sz gid_table_len", INTEGERS), ("atomics", ATOMICS)];
const BEHAVIOUR: &[Keys] = &[
    ("atomic_access_without_cap optional_access create_qp_errno_on_limit errno_sge", NUMBERS),
    ("purge_cq_on_destroy srq_wr_lost_on_destroy inline_grant send_before_rts fork", WORDS),
    ("srq cq_ex ah_by_index retry7_endless", FLAGS),
    ("async_events", GROUPS),
    ("refused_timestamp_bits", INTEGERS),
];
const CLOCK: &[Keys] = &[("frequency_hz offset mask_bits", INTEGERS), ("drift_ppm", FLOATS)];
const PORT: &[Keys] = &[
    ("subnet_prefix", PREFIXES),
    ("network", NAMES),
    ("lid sm_lid", INTEGERS),
    ("mtu", MTUS),
    ("state", STATES),
    ("gids", GIDS),
    ("pkeys", PKEYS),
];
const ACTIONS: &[(&str, &[Keys])] = &[
    ("drop", &[]),
    ("delay", &[("delay_ns", INTEGERS)]),
    ("duplicate", &[]),
    ("rnr", &[]),
    ("status", &[("status", STATUSES)]),
    ("post-send-error", &[("errno", ERRNOS)]),
    ("registration-error", &[("errno", ERRNOS)]),
    ("cq-overrun", &[]),
    ("link-down", &[("at_ns for_ns", INTEGERS)]),
    ("link-up", &[("at_ns", INTEGERS)]),
    ("event", &[("event", EVENTS), ("at_ns", INTEGERS)]),
    ("event", &[("event", "\"LID_CHANGE\""), ("at_ns lid", INTEGERS)]),
    ("event", &[("event", "\"GID_CHANGE\""), ("at_ns gid_index", INTEGERS), ("gid", GID)]),
    ("event", &[("event", "\"PKEY_CHANGE\""), ("at_ns pkey pkey_index", INTEGERS)]),
];
const SELECTION: &[Keys] = &[("device", NAMES), ("port from_lid nth count seed", INTEGERS), ("fraction", FLOATS)];

fn some(text: &mut String, chance: &mut Chance, keys: &[Keys], one_in: usize) {
    for (key, values) in keys.iter().flat_map(|(keys, values)| keys.split(' ').map(move |key| (key, values))) {
        if chance.below(one_in) == 0 {
            writeln!(text, "{key} = {}", chance.of(values)).unwrap();
        }
    }
}

fn file(chance: &mut Chance) -> String {
    let mut text = String::new();
    for _ in 0..chance.below(3) {
        text.push_str("[[device]]\n");
        some(&mut text, chance, DEVICE, 6);
        if chance.below(3) == 0 {
            text.push_str("[device.clock]\n");
            some(&mut text, chance, CLOCK, 3);
        }
        for (table, keys) in [("limits", LIMITS), ("behaviour", BEHAVIOUR)] {
            if chance.below(4) == 0 {
                writeln!(text, "[device.{table}]").unwrap();
                some(&mut text, chance, keys, 6);
            }
        }
        for _ in 0..chance.below(3) {
            text.push_str("[[device.port]]\n");
            some(&mut text, chance, PORT, 6);
        }
    }
    for _ in 0..chance.below(3) {
        let (action, needs) = ACTIONS[chance.below(ACTIONS.len())];
        writeln!(text, "[[fault]]\naction = \"{action}\"").unwrap();
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
fn whatever_stands_in_a_configuration_is_refused_or_runs() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |what| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        usual(what);
    }));
    let folder = Folder::new();
    let path = folder.0.join("file.toml");
    let (mut accepted, mut ran, mut refused) = (0, 0, 0);
    for seed in 0..FILES {
        let text = file(&mut Chance(seed));
        std::fs::write(&path, &text).unwrap();
        match Config::read(&path, None) {
            Ok(config) => {
                accepted += 1;
                // Not files that say next to nothing.
                if ran < RUN && text.lines().count() > 4 {
                    ran += 1;
                    let folder = Folder::new();
                    let _refused_by_a_fault = run(&folder.0, config);
                }
            }
            Err(ConfigError::Wrong { message, line, .. }) => {
                refused += 1;
                assert!(!message.is_empty() && line <= 1 + text.lines().count(), "{text}: {line}: {message}");
            }
            Err(error) => panic!("{error}"),
        }
        assert_eq!(PANICS.load(Ordering::Relaxed), 0, "seed {seed}:\n{text}");
    }
    println!("{accepted} accepted, {ran} of them run, {refused} refused");
    assert!(ran == RUN && refused > 100, "{accepted} accepted, {ran} of them run, {refused} refused");
}
