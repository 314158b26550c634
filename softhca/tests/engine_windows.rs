// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory windows: binding, the memory that they open, invalidation from both sides.

mod engine_support;

use engine_support::prelude::*;

/// A region, a window of this kind, and the key that its first binding gives it.
fn bindable(side: &Side, kind: u32) -> (Mr, Mw, u32) {
    let region = side.pd.reg_mr(side.addr(), 4096, side.addr(), RIGHTS | access::MW_BIND).unwrap();
    let window = side.pd.alloc_mw(kind).unwrap();
    let key = next(window.rkey(), 1);
    (region, window, key)
}

fn run(side: &Side, wr: SendWr) -> Wc {
    side.qp.post_send(&SendWr { flags: send_flags::SIGNALED, ..wr }).unwrap();
    wait(&side.send_cq)
}

/// The window's first binding gives it `key`, over `len` bytes at `at`.
fn bind(side: &Side, window: &Mw, region: &Mr, key: u32, at: u64, len: u64, rights: u32) -> u32 {
    let swap = u64::from(region.key()) | (u64::from(rights) << 32);
    let remote_addr = if rights & access::ZERO_BASED != 0 || len > 0 { side.addr() + at } else { 0 };
    let wr = SendWr {
        opcode: wr_opcode::BIND_MW,
        imm: window.rkey(),
        rkey: key,
        remote_addr,
        compare_add: len,
        swap,
        ..SendWr::empty()
    };
    let done = run(side, wr);
    assert_eq!(done.opcode, wc_opcode::BIND_MW);
    done.status
}

fn write(from: &Side, rkey: u32, at: u64) -> u32 {
    from.rdma(wr_opcode::RDMA_WRITE, 0, 8, at, rkey);
    wait(&from.send_cq).status
}

fn next(key: u32, by: u32) -> u32 {
    (key & !0xff) | (key.wrapping_add(by) & 0xff)
}

#[test]
fn a_bound_window_opens_its_part_of_the_region_and_no_more() {
    let hca = adapter();
    for kind in [1, 2] {
        let rights = access::REMOTE_WRITE;
        for (at, rkey_is_new, status) in [
            (100, true, wc_status::SUCCESS),
            (192, true, wc_status::SUCCESS),
            (193, true, wc_status::REM_ACCESS_ERR),
            (99, true, wc_status::REM_ACCESS_ERR),
            (100, false, wc_status::REM_ACCESS_ERR),
        ] {
            let (a, b) = pair(&hca, 4096, &Settings::default());
            let (region, window, key) = bindable(&b, kind);
            assert_eq!(bind(&b, &window, &region, key, 100, 100, rights), wc_status::SUCCESS);
            let rkey = if rkey_is_new { key } else { window.rkey() };
            assert_eq!(write(&a, rkey, b.addr() + at), status, "type {kind}, at {at}");
            assert_eq!(region.destroy(), Err(Errno(libc::EBUSY)), "a window is bound to it");
            window.destroy().unwrap();
            region.destroy().unwrap();
        }
        let (a, b) = pair(&hca, 4096, &Settings::default());
        let (region, window, key) = bindable(&b, kind);
        bind(&b, &window, &region, key, 0, 100, access::REMOTE_READ);
        assert_eq!(write(&a, key, b.addr()), wc_status::REM_ACCESS_ERR, "it is open for reading");
    }
}

#[test]
fn a_bind_replaces_the_binding_of_a_window_of_type_1_and_a_length_of_0_ends_it() {
    let (_hca, a, b) = connected(4096, &Settings::default());
    let (region, window, _) = bindable(&b, 1);
    let keys = [1, 2, 3].map(|by| next(window.rkey(), by));
    assert_eq!(bind(&b, &window, &region, keys[0], 0, 64, access::REMOTE_WRITE), 0);
    assert_eq!(bind(&b, &window, &region, keys[1], 64, 64, access::REMOTE_WRITE), 0);
    assert_eq!(write(&a, keys[1], b.addr() + 64), 0);
    assert_eq!(bind(&b, &window, &region, keys[2], 0, 0, 0), 0);
    region.destroy().unwrap();
    assert_eq!(write(&a, keys[1], b.addr() + 64), wc_status::REM_ACCESS_ERR);
}

#[test]
fn a_window_of_type_2_is_for_the_queue_pair_that_bound_it_until_it_is_invalidated() {
    let (_hca, a, b) = connected(4096, &Settings::default());
    let (region, window, first) = bindable(&b, 2);
    let second = next(first, 1);
    assert_eq!(bind(&b, &window, &region, first, 0, 64, access::REMOTE_WRITE | access::ZERO_BASED), 0);
    assert_eq!(write(&a, first, 8), 0, "addresses count from nothing");
    let invalidate = |opcode, key| SendWr { opcode, imm: key, ..SendWr::empty() };
    let done = run(&b, invalidate(wr_opcode::LOCAL_INV, first));
    assert_eq!((done.status, done.opcode), (0, wc_opcode::LOCAL_INV));
    assert_eq!(bind(&b, &window, &region, second, 0, 64, access::REMOTE_WRITE), 0, "it is free");

    b.recv(5, 1000, 64);
    assert_eq!(run(&a, SendWr { sge: &[a.sge(0, 8)], ..invalidate(wr_opcode::SEND_WITH_INV, second) }).status, 0);
    let got = wait(&b.recv_cq);
    assert_eq!((got.wr_id, got.flags, got.imm, got.opcode), (5, wc_flags::WITH_INV, second, wc_opcode::RECV));
    region.destroy().unwrap();
    assert_eq!(write(&a, second, b.addr()), wc_status::REM_ACCESS_ERR);
}

#[test]
fn another_queue_pair_of_the_domain_may_not_use_a_window_of_type_2() {
    let hca = adapter();
    let settings = Settings::default();
    let (_a, b) = pair(&hca, 4096, &settings);
    let (region, window, key) = bindable(&b, 2);
    assert_eq!(bind(&b, &window, &region, key, 0, 64, access::REMOTE_WRITE), 0);
    let (c, mut d) = (Side::new(&hca, 4096, &settings), Side::new(&hca, 4096, &settings));
    d.qp = queue_pair(&hca, &b.pd, settings.kind, (&b.send_cq, &b.recv_cq), None, b.qp.cap()).unwrap();
    c.meet(&d, &settings);
    assert_eq!(write(&c, key, b.addr()), wc_status::REM_ACCESS_ERR);
}

#[test]
fn a_forbidden_bind_or_invalidate_is_a_bind_error_and_stops_the_queue_pair() {
    let hca = adapter();
    let refused = |what: &str, work: &dyn Fn(&Side, &Mw, &Mr, u32) -> u32| {
        let (_a, b) = pair(&hca, 4096, &Settings::default());
        let (region, window, key) = bindable(&b, 2);
        assert_eq!(work(&b, &window, &region, key), wc_status::MW_BIND_ERR, "{what}");
        assert_eq!(b.qp.state(), qp_state::ERR);
        window.destroy().unwrap();
        region.destroy().unwrap();
    };
    let rights = access::REMOTE_WRITE;
    refused("beyond the region", &|b, window, region, key| bind(b, window, region, key, 4000, 97, rights));
    refused("a region that does not allow it", &|b, window, _, key| bind(b, window, &b.mr, key, 0, 64, rights));
    refused("writes to a region that may only be read", &|b, window, _, key| {
        let region = b.pd.reg_mr(b.addr(), 64, b.addr(), access::MW_BIND).unwrap();
        bind(b, window, &region, key, 0, 64, rights)
    });
    refused("a right that windows do not have", &|b, window, region, key| {
        bind(b, window, region, key, 0, 64, access::MW_BIND)
    });
    refused("a window of type 2 that is bound", &|b, window, region, key| {
        assert_eq!(bind(b, window, region, key, 0, 64, rights), 0);
        bind(b, window, region, next(key, 1), 0, 64, rights)
    });
    refused("a key that is none", &|b, _, _, key| {
        run(b, SendWr { opcode: wr_opcode::LOCAL_INV, imm: key, ..SendWr::empty() }).status
    });
    refused("the key of a region", &|b, _, region, _| {
        run(b, SendWr { opcode: wr_opcode::LOCAL_INV, imm: region.key(), ..SendWr::empty() }).status
    });
}

#[test]
fn a_local_access_may_not_use_a_windows_key() {
    let (_hca, a, b) = connected(4096, &Settings::default());
    let (region, window, key) = bindable(&a, 1);
    assert_eq!(bind(&a, &window, &region, key, 0, 64, access::REMOTE_READ), 0);
    b.recv(1, 0, 64);
    let sge = [Sge { lkey: key, ..a.sge(0, 8) }];
    assert_eq!(run(&a, SendWr { sge: &sge, ..SendWr::empty() }).status, wc_status::LOC_PROT_ERR);
    assert_eq!(a.pd.alloc_mw(3).err(), Some(Errno(libc::EINVAL)));
}
