// SPDX-License-Identifier: MIT OR Apache-2.0
//! Behaviours that show only at the interface of libibverbs: functions, `errno`, completions, tables of GIDs, fork. A
//! process belongs to one fabric for its life, so each case is a test in a process of its own, which the test before it
//! starts.

use std::ffi::c_int;
use std::fmt::{Debug, Display};
use std::path::PathBuf;
use std::process::Command;
use std::ptr;
use std::str::FromStr;

use crate::engine::codes::gid_kind;
use crate::sys::*;
use crate::verbs::context::ibv_open_device;
use crate::verbs::device::query::{_ibv_query_gid_ex as query_gid_ex, _ibv_query_gid_table as query_gid_table};
use crate::verbs::device::{list, query};
use crate::verbs::fork::{ibv_fork_init, ibv_is_fork_initialized};
use crate::verbs::qp::object;
use crate::verbs::{cq, events, mr, pd};

const EXPECTED: &str = "SOFTHCA_TEST_EXPECTED";

/// Runs an ignored test of this file in a process of its own, on adapters as configured; fails if it fails. The test
/// reads the values to expect by [`expected`].
fn in_a_process(test: &str, configuration: &str, expected: impl Display, variables: &[(&str, &str)]) {
    let name = format!("softhca-{test}-{}-{}-{expected}", std::process::id(), configuration.len() + variables.len());
    let fabric = std::env::temp_dir().join(name);
    crate::fabric_folder::make_private(&fabric).unwrap();
    let file = fabric.join("adapters.toml");
    std::fs::write(&file, configuration).unwrap();
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--ignored", "--exact", "--nocapture", &format!("verbs::tests::{test}")]);
    process.env("SOFTHCA_FABRIC", &fabric).env("SOFTHCA_CONFIG", &file).env(EXPECTED, expected.to_string());
    let output = process.envs(variables.iter().copied()).output().unwrap();
    std::fs::remove_dir_all(&fabric).unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{test}: {said}");
}

fn expected<T: FromStr<Err: Debug>>() -> T {
    std::env::var(EXPECTED).expect("started by another test").parse().unwrap()
}

fn folder() -> PathBuf {
    PathBuf::from(std::env::var_os("SOFTHCA_FABRIC").expect("started by another test"))
}

fn open() -> *mut ibv_context {
    // SAFETY: the list has an adapter, and is freed once.
    let context = unsafe {
        let devices = list::ibv_get_device_list(ptr::null_mut());
        let context = ibv_open_device(*devices);
        list::ibv_free_device_list(devices);
        context
    };
    assert!(!context.is_null(), "{}", std::io::Error::last_os_error());
    context
}

fn verbs<'a>(context: *mut ibv_context) -> &'a verbs_context {
    let before = std::mem::offset_of!(verbs_context, context);
    // SAFETY: a context of this library is the field of such a structure.
    unsafe { &*context.byte_sub(before).cast::<verbs_context>() }
}

fn domain(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: the context is open.
    unsafe { pd::ibv_alloc_pd(context) }
}

fn queue(context: *mut ibv_context) -> *mut ibv_cq {
    // SAFETY: the context is open.
    unsafe { cq::ibv_create_cq(context, 4, ptr::null_mut(), ptr::null_mut(), 0) }
}

fn register(pd: *mut ibv_pd, memory: &mut [u8]) -> *mut ibv_mr {
    // SAFETY: the domain is there, and so is the memory.
    unsafe { mr::ibv_reg_mr(pd, memory.as_mut_ptr().cast(), memory.len(), 1) }
}

fn errno() -> &'static mut c_int {
    // SAFETY: libc gives the calling thread's own, valid while it runs; nobody keeps it over a call.
    unsafe { &mut *libc::__errno_location() }
}

#[test]
fn queries_return_the_profiles_values() {
    for profile in ["mlx5", "rxe", "irdma", "bnxt_re", "minimal"] {
        in_a_process("is_of_a_profile", "[[device]]\n", profile, &[("SOFTHCA_PROFILE", profile)]);
    }
}

#[test]
#[ignore = "started by the test above, for each profile"]
fn is_of_a_profile() {
    let context = open();
    let (mut attr, mut extended) = (ibv_device_attr::default(), ibv_device_attr_ex::default());
    // SAFETY: the context is open; attributes are integers and characters.
    unsafe {
        let size = size_of::<ibv_device_attr_ex>();
        assert_eq!(query::query_device_ex(context, ptr::null(), &raw mut extended, size), 0);
        assert_eq!(query::ibv_query_device(context, &raw mut attr), 0);
    }
    let clock = (extended.completion_timestamp_mask, extended.hca_core_clock);
    let sizes = (attr.max_qp_wr, attr.max_cqe, attr.max_sge, attr.max_srq_wr, attr.max_qp_rd_atom);
    let profile: String = expected();
    let expected = match profile.as_str() {
        "mlx5" => ((32768, 4194303, 30, 32767, 16), IBV_ATOMIC_HCA, (u64::MAX >> 1, 156_250)),
        "rxe" => ((1048576, 32767, 32, 1048576, 128), IBV_ATOMIC_HCA, (0, 0)),
        "irdma" => ((4063, 1048575, 13, 0, 127), IBV_ATOMIC_NONE, (0x1ffff, 0)),
        "bnxt_re" => ((65407, 1048575, 6, 65534, 126), IBV_ATOMIC_NONE, (0, 0)),
        _ => ((256, 255, 1, 128, 1), IBV_ATOMIC_NONE, (0, 0)),
    };
    assert_eq!((sizes, attr.atomic_cap, clock), expected, "{profile}");
    assert_eq!(attr.max_srq == 0, profile == "irdma");
    assert_eq!(attr.device_cap_flags & IBV_DEVICE_XRC == 0, profile == "irdma");
    let has = |profiles: &[&str]| profiles.contains(&profile.as_str());
    let verbs = verbs(context);
    assert_eq!(verbs.create_cq_ex.is_some(), has(&["mlx5", "rxe", "irdma"]));
    assert_eq!(verbs.create_qp_ex.is_some(), has(&["mlx5", "rxe", "bnxt_re"]));
    assert_eq!(verbs.query_rt_values.is_some(), has(&["mlx5"]));
    assert_eq!(verbs.alloc_td.is_some() && verbs.alloc_parent_domain.is_some(), has(&["mlx5"]));
}

#[test]
fn an_extended_queue_cannot_have_features_that_the_adapter_lacks() {
    let of = |behaviour: &str| format!("[[device]]\n[device.behaviour]\n{behaviour}\n");
    for (behaviour, refused) in [
        (of("standard_wc_flags = false"), IBV_WC_EX_WITH_DLID_PATH_BITS),
        (of("timestamps = false"), TIMES),
        (of("wallclock = false"), IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK),
        (String::new(), 0),
    ] {
        in_a_process("refuses_fields_of_completions", &behaviour, refused, &[]);
    }
}

#[test]
#[ignore = "started by the test above"]
fn refuses_fields_of_completions() {
    let refused: u32 = expected();
    let context = open();
    for flag in (0..12).map(|bit| 1_u32 << bit) {
        // Cut-through queues, flow tags and tag matching are not emulated.
        let is_known = flag & (IBV_WC_STANDARD_FLAGS | TIMES) != 0;
        // SAFETY: the attributes are integers and pointers; the context is open.
        let queue = unsafe {
            let mut attr = ibv_cq_init_attr_ex::default();
            (attr.cqe, attr.wc_flags) = (4, u64::from(flag));
            verbs(context).create_cq_ex.unwrap()(context, &raw mut attr)
        };
        let error = std::io::Error::last_os_error();
        assert_eq!(!queue.is_null(), is_known && flag & refused == 0, "flag {flag:#x}: {error}");
        if queue.is_null() {
            assert_eq!(*errno(), libc::EOPNOTSUPP);
        }
    }
}

const TIMES: u32 = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

fn sizes(cq: *mut ibv_cq, max_send_wr: u32) -> ibv_qp_init_attr {
    let mut init = ibv_qp_init_attr::default();
    (init.send_cq, init.recv_cq, init.qp_type, init.sq_sig_all) = (cq, cq, IBV_QPT_RC, 1);
    (init.cap.max_send_wr, init.cap.max_recv_wr) = (max_send_wr, 4);
    (init.cap.max_send_sge, init.cap.max_recv_sge) = (1, 1);
    init
}

#[test]
fn a_queue_pair_beyond_the_limits_leaves_errno_alone_where_the_adapter_does() {
    for (behaviour, number) in [("unset", 77), ("einval", libc::EINVAL)] {
        let text = format!("[[device]]\n[device.behaviour]\ncreate_qp_errno_on_limit = \"{behaviour}\"\n");
        in_a_process("is_beyond_the_limits", &text, number, &[]);
    }
}

#[test]
#[ignore = "started by the test above"]
fn is_beyond_the_limits() {
    let context = open();
    let (pd, cq) = (domain(context), queue(context));
    *errno() = 77;
    // SAFETY: the domain and the queue are there.
    assert!(unsafe { object::ibv_create_qp(pd, &mut sizes(cq, 1 << 20)) }.is_null());
    assert_eq!(*errno(), expected::<c_int>());
}

#[test]
fn the_extended_interface_has_atomics_where_the_adapter_has_them() {
    for (atomics, is_made) in [("none", false), ("hca", true)] {
        let text = format!(
            "[[device]]\n[device.limits]\natomics = \"{atomics}\"\n\
             [device.behaviour]\natomic_access_without_cap = \"eopnotsupp\"\n"
        );
        in_a_process("asks_for_atomics", &text, is_made, &[]);
    }
}

#[test]
#[ignore = "started by the test above"]
fn asks_for_atomics() {
    let context = open();
    let (pd, cq) = (domain(context), queue(context));
    // SAFETY: the attributes are integers and pointers; the context is open.
    let qp = unsafe {
        let mut init = ibv_qp_init_attr_ex::default();
        (init.pd, init.send_cq, init.recv_cq, init.qp_type) = (pd, cq, cq, IBV_QPT_RC);
        init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        init.send_ops_flags = u64::from(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD);
        verbs(context).create_qp_ex.unwrap()(context, &raw mut init)
    };
    assert_eq!(!qp.is_null(), expected::<bool>());
    assert!(!qp.is_null() || *errno() == libc::EOPNOTSUPP);
}

#[test]
fn a_send_that_succeeds_leaves_its_length_as_it_was_where_the_adapter_does() {
    for (behaviour, is_set) in [("untouched", false), ("set", true)] {
        let text = format!(
            "[[device]]\n[device.behaviour]\nsend_before_rts = \"accepted\"\n\
             success_byte_len_on_send = \"{behaviour}\"\n"
        );
        in_a_process("completes_a_send", &text, is_set, &[]);
    }
}

fn connect(qp: *mut ibv_qp) {
    // SAFETY: the attributes are integers; the queue pair is there.
    unsafe {
        let mut attr = ibv_qp_attr::default();
        (attr.qp_state, attr.port_num, attr.path_mtu) = (IBV_QPS_INIT, 1, IBV_MTU_1024);
        (attr.dest_qp_num, attr.ah_attr.dlid, attr.ah_attr.port_num) = ((*qp).qp_num, 1, 1);
        (attr.timeout, attr.retry_cnt, attr.rnr_retry) = (14, 7, 7);
        let path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
        let depths = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        let retries = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
        for (state, mask) in [
            (IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            (IBV_QPS_RTR, path | depths),
            (IBV_QPS_RTS, retries),
        ] {
            attr.qp_state = state;
            let mask = (IBV_QP_STATE | mask) as c_int;
            assert_eq!(object::ibv_modify_qp(qp, &raw mut attr, mask), 0, "to {state}");
        }
    }
}

#[test]
#[ignore = "started by the test above"]
fn completes_a_send() {
    let is_set: bool = expected();
    let context = open();
    let (pd, cq) = (domain(context), queue(context));
    let mut memory = vec![0_u8; 4096];
    let region = register(pd, &mut memory);
    // SAFETY: the requests and what they name outlive the calls; a completion is integers.
    unsafe {
        let qp = object::ibv_create_qp(pd, &mut sizes(cq, 4));
        connect(qp);
        let ops = &(*context).ops;
        let mut sge = ibv_sge { addr: memory.as_ptr() as u64, length: 8, lkey: (*region).lkey };
        let mut receive = ibv_recv_wr::default();
        (receive.wr_id, receive.sg_list, receive.num_sge) = (1, &raw mut sge, 1);
        let mut refused = ptr::null_mut();
        assert_eq!(ops.post_recv.unwrap()(qp, &raw mut receive, &raw mut refused), 0);
        let mut send = ibv_send_wr::default();
        (send.wr_id, send.sg_list, send.num_sge, send.opcode) = (2, &raw mut sge, 1, IBV_WR_SEND);
        let mut bad = ptr::null_mut();
        assert_eq!(ops.post_send.unwrap()(qp, &raw mut send, &raw mut bad), 0);
        for _ in 0..2 {
            let mut wc = ibv_wc::default();
            (wc.byte_len, wc.vendor_err) = (0xdead, 0xbeef);
            while ops.poll_cq.unwrap()(cq, 1, &raw mut wc) == 0 {}
            let is_untouched = (wc.byte_len, wc.vendor_err) == (0xdead, 0xbeef);
            assert_eq!(is_untouched, wc.wr_id == 2 && !is_set, "request {}", wc.wr_id);
            assert!(is_untouched || wc.byte_len == 8);
        }
    }
}

#[test]
fn fork_is_as_the_kernel_has_it() {
    for (fork, status, variables) in [
        ("unneeded", IBV_FORK_UNNEEDED, &[][..]),
        ("enabled", IBV_FORK_ENABLED, &[]),
        ("disabled", IBV_FORK_DISABLED, &[]),
        ("disabled", IBV_FORK_ENABLED, &[("RDMAV_FORK_SAFE", "1")]),
    ] {
        let text = format!("[[device]]\n[[device]]\n[device.behaviour]\nfork = \"{fork}\"\n");
        in_a_process("asks_about_fork", &text, status, variables);
    }
}

#[test]
#[ignore = "started by the test above"]
fn asks_about_fork() {
    let at_first: u32 = expected();
    assert_eq!(ibv_is_fork_initialized(), at_first);
    assert!(!register(domain(open()), &mut [0; 4096]).is_null());
    let (number, noted) = if at_first == IBV_FORK_DISABLED { (libc::EINVAL, " EINVAL") } else { (0, " 0") };
    assert_eq!((ibv_fork_init(), ibv_fork_init()), (number, number));
    assert_eq!(ibv_is_fork_initialized(), at_first);
    let calls = std::fs::read_to_string(folder().join("fork-init")).unwrap();
    assert!(calls.lines().count() == 2 && calls.lines().all(|line| line.ends_with(noted)), "{calls}");
}

#[test]
fn asking_for_fork_before_memory_is_registered_is_in_time() {
    in_a_process("asks_in_time", "[[device]]\n[device.behaviour]\nfork = \"disabled\"\n", "", &[]);
}

#[test]
#[ignore = "started by the test above"]
fn asks_in_time() {
    let status = ibv_is_fork_initialized;
    assert_eq!((status(), ibv_fork_init(), status()), (IBV_FORK_DISABLED, 0, IBV_FORK_ENABLED));
    assert!(!register(domain(open()), &mut [0; 4096]).is_null());
    assert_eq!((ibv_fork_init(), status()), (0, IBV_FORK_ENABLED));
}

#[test]
fn every_query_reads_a_long_and_sparse_table_of_gids() {
    let text = "[[device]]\nlink_layer = \"ethernet\"\n[device.limits]\ngid_table_len = 400\n[[device.port]]\n\
                gids = [{ gid = \"fe80::5\", index = 2, type = \"RoCE v1\" }, { gid = \"10.0.0.9\", index = 300 }]\n\
                [[fault]]\naction = \"event\"\nevent = \"GID_CHANGE\"\nat_ns = 1_000_000_000\n\
                gid = \"::\"\ngid_index = 2\n";
    in_a_process("reads_its_gids", text, "", &[]);
}

#[test]
#[ignore = "started by the test above"]
fn reads_its_gids() {
    const ROW: usize = size_of::<ibv_gid_entry>();
    let context = open();
    // SAFETY: the context is open; attributes, rows and GIDs are integers.
    unsafe {
        let mut port = ibv_port_attr::default();
        assert_eq!(query::query_port(context, 1, &raw mut port, size_of::<ibv_port_attr>()), 0);
        assert_eq!(port.gid_tbl_len, 400);
        let mut used: [ibv_gid_entry; 8] = Default::default();
        // A rule whose time has passed when the adapter is opened tells nothing.
        if query_gid_table(context, used.as_mut_ptr(), 8, 0, ROW) == 2 {
            let mut happened = ibv_async_event::default();
            assert_eq!(events::ibv_get_async_event(context, &raw mut happened), 0);
            assert_eq!(happened.event_type, IBV_EVENT_GID_CHANGE);
        }
        assert_eq!(query_gid_table(context, used.as_mut_ptr(), 8, 0, ROW), 1);
        assert_eq!((used[0].gid_index, used[0].gid_type), (300, u32::from(gid_kind::ROCE_V2)));
        for (index, last, is_used) in [(2, 0, false), (299, 0, false), (300, 9, true), (399, 0, false)] {
            let mut found = ibv_gid { raw: [0xff; 16] };
            assert_eq!(query::ibv_query_gid(context, 1, index, &raw mut found), 0);
            assert_eq!(found.raw[15], last, "row {index}");
            let mut found_kind = 7;
            assert_eq!(query::ibv_query_gid_type(context, 1, index as u32, &raw mut found_kind), 0);
            assert_eq!(found_kind, u32::from(is_used), "an empty row is said to be IB or RoCE v1");
            let got = query_gid_ex(context, 1, index as u32, &raw mut used[1], 0, ROW);
            assert_eq!(got, if is_used { 0 } else { libc::ENODATA }, "row {index}");
            let file = folder().join(format!("sysfs/class/infiniband/softhca0/ports/1/gids/{index}"));
            let text = std::fs::read_to_string(file).unwrap();
            assert_eq!(text == "0000:0000:0000:0000:0000:0000:0000:0000\n", !is_used, "{text}");
        }
        let mut beyond = ibv_gid { raw: [0; 16] };
        assert_eq!(query::ibv_query_gid(context, 1, 400, &raw mut beyond), -1);
    }
}
