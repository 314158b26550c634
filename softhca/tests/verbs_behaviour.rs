// SPDX-License-Identifier: MIT OR Apache-2.0
//! Behaviours that show only at the interface of libibverbs: functions, `errno`, completions, tables of GIDs, fork.

mod verbs_support;

use std::ffi::c_int;

use softhca::sys::*;
use verbs_support::{Context, Library, errno, folder, in_a_process};

fn described(context: &Context) -> (ibv_device_attr, u64, u64) {
    let query = context.verbs().query_device_ex.unwrap();
    // SAFETY: an extended attribute is integers and characters; the context is open.
    let extended = unsafe {
        let mut extended = ibv_device_attr_ex::default();
        assert_eq!(query(context.raw, std::ptr::null(), &raw mut extended, size_of::<ibv_device_attr_ex>()), 0);
        extended
    };
    (context.attributes(), extended.completion_timestamp_mask, extended.hca_core_clock)
}

#[test]
fn queries_return_the_profiles_values() {
    for profile in ["mlx5", "rxe", "irdma", "bnxt_re", "minimal"] {
        in_a_process("is_of_a_profile", "[[device]]\n", &[("SOFTHCA_PROFILE", profile)]);
    }
}

#[test]
#[ignore = "started by the test above, for each profile"]
fn is_of_a_profile() {
    let context = Library::load().open(0);
    let (attr, mask, khz) = described(&context);
    let sizes = (attr.max_qp_wr, attr.max_cqe, attr.max_sge, attr.max_srq_wr, attr.max_qp_rd_atom);
    let profile = std::env::var("SOFTHCA_PROFILE").unwrap();
    let (expected, atomics, clock) = match profile.as_str() {
        "mlx5" => ((32768, 4194303, 30, 32767, 16), IBV_ATOMIC_HCA, (u64::MAX >> 1, 156_250)),
        "rxe" => ((1048576, 32767, 32, 1048576, 128), IBV_ATOMIC_HCA, (0, 0)),
        "irdma" => ((4063, 1048575, 13, 0, 127), IBV_ATOMIC_NONE, (0x1ffff, 0)),
        "bnxt_re" => ((65407, 1048575, 6, 65534, 126), IBV_ATOMIC_NONE, (0, 0)),
        _ => ((256, 255, 1, 128, 1), IBV_ATOMIC_NONE, (0, 0)),
    };
    assert_eq!((sizes, attr.atomic_cap, (mask, khz)), (expected, atomics, clock), "{profile}");
    assert_eq!(attr.max_srq == 0, profile == "irdma");
    assert_eq!(attr.device_cap_flags & IBV_DEVICE_XRC == 0, profile == "irdma");
    let has = |profiles: &[&str]| profiles.contains(&profile.as_str());
    let verbs = context.verbs();
    assert_eq!(verbs.create_cq_ex.is_some(), has(&["mlx5", "rxe", "irdma"]));
    assert_eq!(verbs.create_qp_ex.is_some(), has(&["mlx5", "rxe", "bnxt_re"]));
    assert_eq!(verbs.query_rt_values.is_some(), has(&["mlx5"]));
    assert_eq!(verbs.alloc_td.is_some() && verbs.alloc_parent_domain.is_some(), has(&["mlx5"]));
}

#[test]
fn an_extended_queue_cannot_have_features_that_the_adapter_lacks() {
    let of = |behaviour: &str| format!("[[device]]\n[device.behaviour]\n{behaviour}\n");
    in_a_process("refuses_what_completions_say", &of("standard_wc_flags = false"), &[("REFUSED", "64")]);
    in_a_process("refuses_what_completions_say", &of("timestamps = false"), &[("REFUSED", "2176")]);
    in_a_process("refuses_what_completions_say", &of("wallclock = false"), &[("REFUSED", "2048")]);
    in_a_process("refuses_what_completions_say", "", &[("REFUSED", "0")]);
}

#[test]
#[ignore = "started by the test above"]
fn refuses_what_completions_say() {
    let refused: u32 = std::env::var("REFUSED").unwrap().parse().unwrap();
    let context = Library::load().open(0);
    for flag in (0..12).map(|bit| 1_u32 << bit) {
        // Cut-through queues, flow tags and tag matching are not emulated.
        let is_known = flag & (IBV_WC_STANDARD_FLAGS | TIMES) != 0;
        // SAFETY: the attributes are integers and pointers; the context is open.
        let queue = unsafe {
            let mut attr = ibv_cq_init_attr_ex::default();
            (attr.cqe, attr.wc_flags) = (4, u64::from(flag));
            context.verbs().create_cq_ex.unwrap()(context.raw, &raw mut attr)
        };
        let expects = is_known && flag & refused == 0;
        assert_eq!(!queue.is_null(), expects, "flag {flag:#x}: {}", std::io::Error::last_os_error());
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
        in_a_process("is_beyond_the_limits", &text, &[("ERRNO", &number.to_string())]);
    }
}

#[test]
#[ignore = "started by the test above"]
fn is_beyond_the_limits() {
    let expected: c_int = std::env::var("ERRNO").unwrap().parse().unwrap();
    let context = Library::load().open(0);
    let (pd, cq) = (context.domain(), context.completion_queue(4));
    *errno() = 77;
    assert!(context.queue_pair(pd, &mut sizes(cq, 1 << 20)).is_null());
    assert_eq!(*errno(), expected);
}

#[test]
fn the_extended_interface_has_atomics_where_the_adapter_has_them() {
    for (atomics, is_made) in [("none", "0"), ("hca", "1")] {
        let text = format!(
            "[[device]]\n[device.limits]\natomics = \"{atomics}\"\n[device.behaviour]\natomic_access_without_cap = \"eopnotsupp\"\n"
        );
        in_a_process("asks_for_atomics", &text, &[("MADE", is_made)]);
    }
}

#[test]
#[ignore = "started by the test above"]
fn asks_for_atomics() {
    let context = Library::load().open(0);
    let (pd, cq) = (context.domain(), context.completion_queue(4));
    // SAFETY: the attributes are integers and pointers; the context is open.
    let qp = unsafe {
        let mut init = ibv_qp_init_attr_ex::default();
        (init.pd, init.send_cq, init.recv_cq, init.qp_type) = (pd, cq, cq, IBV_QPT_RC);
        init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        init.send_ops_flags = u64::from(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD);
        context.verbs().create_qp_ex.unwrap()(context.raw, &raw mut init)
    };
    assert_eq!(!qp.is_null(), std::env::var("MADE").unwrap() == "1");
    assert!(!qp.is_null() || *errno() == libc::EOPNOTSUPP);
}

#[test]
fn a_send_that_succeeds_leaves_its_length_as_it_was_where_the_adapter_does() {
    for (behaviour, is_set) in [("untouched", "0"), ("set", "1")] {
        let text = format!(
            "[[device]]\n[device.behaviour]\nsuccess_byte_len_on_send = \"{behaviour}\"\nsend_before_rts = \"accepted\"\n"
        );
        in_a_process("completes_a_send", &text, &[("SET", is_set)]);
    }
}

fn connect(library: Library, qp: *mut ibv_qp) {
    // SAFETY: the attributes are integers; the queue pair is there.
    unsafe {
        let modify: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int =
            library.function(c"ibv_modify_qp");
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
            assert_eq!(modify(qp, &raw mut attr, (IBV_QP_STATE | mask) as c_int), 0, "to {state}");
        }
    }
}

#[test]
#[ignore = "started by the test above"]
fn completes_a_send() {
    let is_set = std::env::var("SET").unwrap() == "1";
    let context = Library::load().open(0);
    let (pd, cq) = (context.domain(), context.completion_queue(4));
    let mut memory = vec![0_u8; 4096];
    let region = context.register(pd, &mut memory);
    let qp = context.queue_pair(pd, &mut sizes(cq, 4));
    connect(context.library, qp);
    // SAFETY: the requests and what they name outlive the calls; a completion is integers.
    unsafe {
        let ops = &(*context.raw).ops;
        let mut sge = ibv_sge { addr: memory.as_ptr() as u64, length: 8, lkey: (*region).lkey };
        let mut receive = ibv_recv_wr::default();
        (receive.wr_id, receive.sg_list, receive.num_sge) = (1, &raw mut sge, 1);
        let mut refused = std::ptr::null_mut();
        assert_eq!(ops.post_recv.unwrap()(qp, &raw mut receive, &raw mut refused), 0);
        let mut send = ibv_send_wr::default();
        (send.wr_id, send.sg_list, send.num_sge, send.opcode) = (2, &raw mut sge, 1, IBV_WR_SEND);
        let mut bad = std::ptr::null_mut();
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
    let with = |fork: &str| format!("[[device]]\n[[device]]\n[device.behaviour]\nfork = \"{fork}\"\n");
    for (fork, status) in
        [("unneeded", IBV_FORK_UNNEEDED), ("enabled", IBV_FORK_ENABLED), ("disabled", IBV_FORK_DISABLED)]
    {
        in_a_process("asks_about_fork", &with(fork), &[("STATUS", &status.to_string())]);
    }
    let safe = [("STATUS", IBV_FORK_ENABLED.to_string())];
    in_a_process("asks_about_fork", &with("disabled"), &[("STATUS", &safe[0].1), ("RDMAV_FORK_SAFE", "1")]);
}

#[test]
#[ignore = "started by the test above"]
fn asks_about_fork() {
    let at_first: u32 = std::env::var("STATUS").unwrap().parse().unwrap();
    let library = Library::load();
    // SAFETY: the types are those of verbs.h.
    let (status, init): (extern "C" fn() -> u32, extern "C" fn() -> c_int) =
        unsafe { (library.function(c"ibv_is_fork_initialized"), library.function(c"ibv_fork_init")) };
    assert_eq!(status(), at_first);
    let context = library.open(0);
    let pd = context.domain();
    let mut memory = vec![0_u8; 4096];
    assert!(!context.register(pd, &mut memory).is_null());
    let is_late = at_first == IBV_FORK_DISABLED;
    assert_eq!(init(), if is_late { libc::EINVAL } else { 0 });
    assert_eq!(init(), if is_late { libc::EINVAL } else { 0 });
    assert_eq!(status(), at_first);
    let calls = std::fs::read_to_string(folder().join("fork-init")).unwrap();
    assert_eq!(calls.lines().count(), 2, "{calls}");
    assert!(calls.lines().all(|line| line.ends_with(if is_late { " EINVAL" } else { " 0" })), "{calls}");
}

#[test]
fn asking_for_fork_before_memory_is_registered_is_in_time() {
    in_a_process("asks_in_time", "[[device]]\n[device.behaviour]\nfork = \"disabled\"\n", &[]);
}

#[test]
#[ignore = "started by the test above"]
fn asks_in_time() {
    let library = Library::load();
    // SAFETY: the types are those of verbs.h.
    let (status, init): (extern "C" fn() -> u32, extern "C" fn() -> c_int) =
        unsafe { (library.function(c"ibv_is_fork_initialized"), library.function(c"ibv_fork_init")) };
    assert_eq!((status(), init(), status()), (IBV_FORK_DISABLED, 0, IBV_FORK_ENABLED));
    let context = library.open(0);
    let mut memory = vec![0_u8; 4096];
    assert!(!context.register(context.domain(), &mut memory).is_null());
    assert_eq!((init(), status()), (0, IBV_FORK_ENABLED));
}

#[test]
fn a_long_and_sparse_table_of_gids_is_read_in_every_way() {
    let text = "[[device]]\nlink_layer = \"ethernet\"\n[device.limits]\ngid_table_len = 400\n[[device.port]]\n\
                gids = [{ gid = \"fe80::5\", index = 2, type = \"RoCE v1\" }, { gid = \"10.0.0.9\", index = 300 }]\n\
                [[fault]]\naction = \"event\"\nevent = \"GID_CHANGE\"\nat_ns = 1_000_000_000\ngid = \"::\"\ngid_index = 2\n";
    in_a_process("reads_its_gids", text, &[]);
}

fn used(context: &Context) -> Vec<(u32, u32)> {
    type Table = unsafe extern "C" fn(*mut ibv_context, *mut ibv_gid_entry, usize, u32, usize) -> isize;
    // SAFETY: the types are those of verbs.h; rows are integers.
    unsafe {
        let mut rows: [ibv_gid_entry; 8] = Default::default();
        let table: Table = context.library.function(c"_ibv_query_gid_table");
        let count = table(context.raw, rows.as_mut_ptr(), 8, 0, size_of::<ibv_gid_entry>());
        rows[..count as usize].iter().map(|row| (row.gid_index, row.gid_type)).collect()
    }
}

#[test]
#[ignore = "started by the test above"]
fn reads_its_gids() {
    let context = Library::load().open(0);
    let library = context.library;
    // SAFETY: the types are those of verbs.h; attributes, rows and GIDs are integers.
    unsafe {
        type Row = unsafe extern "C" fn(*mut ibv_context, u32, u32, *mut ibv_gid_entry, u32, usize) -> c_int;
        let gid: unsafe extern "C" fn(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int =
            library.function(c"ibv_query_gid");
        let kind: unsafe extern "C" fn(*mut ibv_context, u8, u32, *mut u32) -> c_int =
            library.function(c"ibv_query_gid_type");
        let row: Row = library.function(c"_ibv_query_gid_ex");
        let event: unsafe extern "C" fn(*mut ibv_context, *mut ibv_async_event) -> c_int =
            library.function(c"ibv_get_async_event");
        let mut port = ibv_port_attr::default();
        let query = context.verbs().query_port.unwrap();
        assert_eq!(query(context.raw, 1, &raw mut port, size_of::<ibv_port_attr>()), 0);
        assert_eq!(port.gid_tbl_len, 400);
        let mut happened = ibv_async_event::default();
        assert_eq!(event(context.raw, &raw mut happened), 0);
        assert_eq!(happened.event_type, IBV_EVENT_GID_CHANGE);
        let usable = (300, u32::from(softhca::engine::codes::gid_kind::ROCE_V2));
        assert_eq!(used(&context), [usable]);
        for (index, last, is_used) in [(2, 0, false), (299, 0, false), (300, 9, true), (399, 0, false)] {
            let mut found = ibv_gid { raw: [0xff; 16] };
            assert_eq!(gid(context.raw, 1, index, &raw mut found), 0);
            assert_eq!(found.raw[15], last, "row {index}");
            let mut found_kind = 7;
            assert_eq!(kind(context.raw, 1, index as u32, &raw mut found_kind), 0);
            assert_eq!(found_kind, u32::from(is_used), "an empty row is said to be IB or RoCE v1");
            let mut found_row = ibv_gid_entry::default();
            let got = row(context.raw, 1, index as u32, &raw mut found_row, 0, size_of::<ibv_gid_entry>());
            assert_eq!(got, if is_used { 0 } else { libc::ENODATA }, "row {index}");
            let file = folder().join(format!("sysfs/class/infiniband/softhca0/ports/1/gids/{index}"));
            let text = std::fs::read_to_string(file).unwrap();
            assert_eq!(text == "0000:0000:0000:0000:0000:0000:0000:0000\n", !is_used, "{text}");
        }
        let mut beyond = ibv_gid { raw: [0; 16] };
        assert_eq!(gid(context.raw, 1, 400, &raw mut beyond), -1);
    }
}
