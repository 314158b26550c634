// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sizes, rights and requests that an adapter does not have: the granted value, or the error number, of each.

mod engine_support;

use engine_support::prelude::*;

const EINVAL: Errno = Errno(libc::EINVAL);
const ENOMEM: Errno = Errno(libc::ENOMEM);
const EOPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);

#[test]
fn an_adapter_without_atomics_refuses_or_ignores_the_right_to_them() {
    for (ways, at_init, at_rtr, post, shown) in [
        (AtomicAccess::Einval, Err(EINVAL), Ok(()), EINVAL, false),
        (AtomicAccess::Accepted, Ok(()), Ok(()), EINVAL, false),
        // Without a depth for incoming requests the right is off, without an error.
        (AtomicAccess::Eopnotsupp, Ok(()), Err(EOPNOTSUPP), EOPNOTSUPP, true),
    ] {
        let hca = described(|spec| {
            let DeviceSpec { limits, behaviour, .. } = &mut spec.devices[0];
            limits.atomics = Atomics::None;
            behaviour.atomic_access_without_cap = ways;
        });
        let settings = Settings::default();
        let side = Side::new(&hca, 4096, &settings); // registers its memory with all rights
        assert_eq!(init_with(&side.qp, qp_type::RC, RIGHTS), at_init, "{ways:?}");
        if at_init.is_ok() {
            assert_eq!(side.qp.query().qp_access_flags & access::REMOTE_ATOMIC != 0, shown, "{ways:?}");
            assert_eq!(to_rtr(&side.qp, 0, &settings, lid(1)), at_rtr, "{ways:?}");
        }
        let (a, b) = (Side::new(&hca, 4096, &settings), Side::new(&hca, 4096, &settings));
        for (side, peer) in [(&a, &b), (&b, &a)] {
            init_with(&side.qp, qp_type::RC, RIGHTS & !access::REMOTE_ATOMIC).unwrap();
            side.ready(peer.qp.number(), &settings);
        }
        let atomic = SendWr {
            opcode: wr_opcode::ATOMIC_FETCH_AND_ADD,
            sge: &[a.sge(0, 8)],
            remote_addr: b.addr(),
            rkey: b.mr.key(),
            ..SendWr::empty()
        };
        assert_eq!(a.qp.post_send(&atomic), Err(post), "{ways:?}");
    }
}

#[test]
fn an_adapter_ignores_or_refuses_flags_of_the_optional_range() {
    const RELAXED_ORDERING: u32 = 1 << 20;
    for (ways, expected) in [(OptionalAccess::Accepted, None), (OptionalAccess::Eopnotsupp, Some(EOPNOTSUPP))] {
        let hca = behaves(|behaviour| behaviour.optional_access = ways);
        let side = Side::new(&hca, 4096, &Settings::default());
        let register = |flags| side.pd.reg_mr(side.addr(), 4096, side.addr(), flags).err();
        assert_eq!(register(RIGHTS), None, "{ways:?}");
        assert_eq!(register(RIGHTS | RELAXED_ORDERING), expected, "{ways:?}");
        let change = side.mr.change(&side.pd, side.addr(), 4096, side.addr(), RIGHTS | RELAXED_ORDERING);
        assert_eq!(change.err(), expected, "{ways:?}");
    }
}

#[test]
fn without_shared_receive_queues_making_one_fails_as_the_adapter_says() {
    for (errno, expected) in [(Refusal::Einval, EINVAL), (Refusal::Eopnotsupp, EOPNOTSUPP)] {
        let hca = behaves(|ways| {
            ways.srq = false;
            ways.srq_errno = errno;
        });
        let pd = hca.alloc_pd();
        assert_eq!(hca.create_srq(&pd, 4, 1, 0, None).err(), Some(expected));
    }
}

#[test]
fn a_post_that_is_too_large_gets_the_adapters_error_number() {
    for (errno, expected) in [(Refusal::Einval, EINVAL), (Refusal::Enomem, ENOMEM)] {
        let hca = behaves(|ways| {
            ways.errno_sge = errno;
            ways.errno_inline = errno;
        });
        let (a, _b) = pair(&hca, 4096, &Settings::default());
        let pieces = [a.sge(0, 8); 3];
        assert_eq!(a.qp.post_send(&SendWr { sge: &pieces, ..SendWr::empty() }), Err(expected), "3 pieces of 2");
        let inline = SendWr { flags: send_flags::INLINE, sge: &[a.sge(0, 257)], ..SendWr::empty() };
        assert_eq!(a.qp.post_send(&inline), Err(expected), "257 bytes inline of 256");
    }
}

#[test]
fn an_adapter_refuses_a_send_before_rts_or_sends_it_at_rts() {
    for (ways, expected, is_sent) in [
        (SendBeforeRts::Einval, Err(EINVAL), false),
        (SendBeforeRts::Enomem, Err(ENOMEM), false),
        (SendBeforeRts::EinvalQueued, Err(EINVAL), true),
        (SendBeforeRts::Accepted, Ok(()), true),
    ] {
        let hca = behaves(|behaviour| behaviour.send_before_rts = ways);
        let settings = Settings::default();
        let (a, b) = (Side::new(&hca, 4096, &settings), Side::new(&hca, 4096, &settings));
        b.connect(a.qp.number(), &settings);
        b.recv(5, 0, 64);
        a.init(&settings);
        let wr = SendWr { wr_id: 3, flags: send_flags::SIGNALED, sge: &[a.sge(0, 8)], ..SendWr::empty() };
        assert_eq!(a.qp.post_send(&wr), expected, "{ways:?}");
        assert!(none(&a.send_cq));
        a.ready(b.qp.number(), &settings);
        if is_sent {
            assert_eq!((wait(&a.send_cq).wr_id, wait(&b.recv_cq).wr_id), (3, 5), "{ways:?}");
        }
        assert!(none(&a.send_cq) && none(&b.recv_cq));
    }
}

#[test]
fn an_adapter_keeps_its_limits_and_fails_a_queue_pair_beyond_them_with_its_own_error() {
    for (errno, expected) in [(CreateErrno::Einval, EINVAL), (CreateErrno::Unset, Errno(0))] {
        let hca = described(|spec| {
            let DeviceSpec { limits, behaviour: ways, .. } = &mut spec.devices[0];
            (limits.max_qp, limits.max_qp_wr, limits.max_sge, limits.max_inline) = (3, 8, 1, 16);
            (limits.max_cqe, limits.max_srq_wr, limits.max_srq_sge) = (7, 4, 1);
            (limits.max_qp_rd_atom, limits.max_qp_init_rd_atom, limits.max_msg_sz) = (1, 1, 64);
            ways.create_qp_errno_on_limit = errno;
            ways.inline_grant = InlineGrant::Exact;
        });
        let pd = hca.alloc_pd();
        let cq = hca.create_cq(7, None, 0, 0).unwrap();
        assert_eq!(cq.cqe(), 7);
        assert_eq!(hca.create_cq(8, None, 0, 0).err(), Some(EINVAL));
        assert_eq!(cq.resize(8), Err(EINVAL));
        assert!(hca.create_srq(&pd, 4, 1, 0, None).is_ok());
        assert_eq!(hca.create_srq(&pd, 5, 1, 0, None).err(), Some(EINVAL));
        assert_eq!(hca.create_srq(&pd, 4, 2, 0, None).err(), Some(EINVAL));
        let most = QpCap { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 16 };
        let make = |cap| queue_pair(&hca, &pd, qp_type::RC, (&cq, &cq), None, cap);
        for beyond in [
            QpCap { max_send_wr: 9, ..most },
            QpCap { max_recv_wr: 9, ..most },
            QpCap { max_send_sge: 2, ..most },
            QpCap { max_recv_sge: 2, ..most },
            QpCap { max_inline_data: 17, ..most },
        ] {
            assert_eq!(make(beyond).err(), Some(expected), "{beyond:?}");
        }
        let three = [make(most).unwrap(), make(most).unwrap(), make(most).unwrap()];
        let sizes =
            |cap: QpCap| (cap.max_send_wr, cap.max_recv_wr, cap.max_send_sge, cap.max_recv_sge, cap.max_inline_data);
        assert_eq!(sizes(three[0].cap()), sizes(most));
        assert_eq!(make(most).err(), Some(ENOMEM), "a fourth of three");
        three[0].destroy().unwrap();
        assert!(make(most).is_ok(), "a place is free again");
    }
}

#[test]
fn a_message_beyond_the_largest_ends_with_a_length_error() {
    let hca = described(|spec| spec.devices[0].limits.max_msg_sz = 1024);
    for is_queued in [false, true] {
        let settings = Settings { min_rnr_timer: 1, ..Settings::default() };
        let (a, b) = pair(&hca, 4096, &settings);
        if is_queued {
            a.send(1, 0, 1024); // waits for the receive
        }
        a.send(2, 0, 1025);
        b.recv(1, 0, 4096);
        b.recv(2, 0, 4096);
        if is_queued {
            assert_eq!(wait(&a.send_cq).status, 0);
        }
        assert_eq!(wait(&a.send_cq).status, wc_status::LOC_LEN_ERR);
    }
}

#[test]
fn an_adapter_grants_inline_data_by_its_rule_and_sends_all_of_it() {
    for (rule, most, asked, granted) in [
        (InlineGrant::Largest, 256, (1, 0), Some((2, 256))),
        (InlineGrant::Exact, 101, (1, 64), Some((2, 64))),
        (InlineGrant::Exact, 101, (1, 102), None),
        (InlineGrant::Wqe, 828, (1, 0), Some((2, 60))),
        (InlineGrant::Wqe, 828, (1, 64), Some((2, 124))),
        (InlineGrant::Wqe, 828, (1, 800), Some((2, 828))),
        (InlineGrant::Wqe, 828, (1, 829), None),
        (InlineGrant::SharedWithSge, 512, (2, 400), Some((25, 400))),
        (InlineGrant::SharedWithSge, 512, (20, 0), Some((20, 320))),
        (InlineGrant::SharedWithSge, 512, (2, 513), None),
    ] {
        let hca = described(|spec| {
            let DeviceSpec { limits, behaviour: ways, .. } = &mut spec.devices[0];
            (limits.max_inline, limits.max_sge) = (most, 32);
            ways.inline_grant = rule;
        });
        let settings = Settings::default();
        let (mut a, b) = (Side::new(&hca, 4096, &settings), Side::new(&hca, 4096, &settings));
        let cap =
            QpCap { max_send_sge: asked.0, max_inline_data: asked.1, max_recv_sge: 1, max_send_wr: 4, max_recv_wr: 4 };
        let made = queue_pair(&hca, &a.pd, qp_type::RC, (&a.send_cq, &a.recv_cq), None, cap);
        let got = made.as_ref().ok().map(|qp| (qp.cap().max_send_sge, qp.cap().max_inline_data));
        assert_eq!(got, granted, "{rule:?} {asked:?}");
        let (Ok(qp), Some((_, inline))) = (made, granted) else { continue };
        a.qp = qp;
        a.meet(&b, &settings);
        // All of it, executed at once and from the queue, where the program's memory is used again meanwhile.
        for round in 0..2 {
            a.fill(0, inline as usize, 40 + round);
            let flags = send_flags::INLINE | send_flags::SIGNALED;
            if round == 0 {
                b.recv(1, 0, 4096);
            }
            a.qp.post_send(&SendWr { flags, sge: &[a.sge(0, inline as usize)], ..SendWr::empty() }).unwrap();
            if round == 1 {
                a.fill(0, inline as usize, 0);
                b.recv(1, 0, 4096);
            }
            assert_eq!((wait(&a.send_cq).status, wait(&b.recv_cq).byte_len), (0, inline));
            let is_right = |i: usize| b.byte(i) == (40 + round).wrapping_add(i as u8);
            assert!((0..inline as usize).all(is_right), "{rule:?} {asked:?} round {round}");
        }
    }
}
