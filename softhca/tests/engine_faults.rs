// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scripted faults and the model of latency and bandwidth, between two queue pairs of one process.

mod engine_support;

use engine_support::prelude::*;

const RULE: FaultRule = FaultRule::always(FaultAction::Drop);

fn adapter(faults: &[FaultRule]) -> Adapter {
    described(|spec| spec.faults = faults.to_vec())
}

fn next_event(hca: &Hca, ns: u64) -> Option<AsyncEvent> {
    let mut event = libc::pollfd { fd: hca.async_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry of ours.
    let comes = unsafe { libc::poll(&raw mut event, 1, (ns / 1_000_000) as i32) } == 1;
    comes.then(|| hca.read_async_event().unwrap())
}

fn quick() -> Settings {
    Settings { timeout: 4, retry_cnt: 3, ..Settings::default() }
}

#[test]
fn a_sender_repeats_dropped_packets_until_its_retries_end() {
    let hca = adapter(&[FaultRule { nth: Some(2), count: 3, from_lid: Some(1), ..RULE }]);
    let (a, b) = pair(&hca, 4096, &quick());
    for i in 0..2 {
        b.recv(i, 0, 64);
        a.send(i, 0, 64);
        assert_eq!((wait(&a.send_cq).status, wait(&b.recv_cq).wr_id), (0, i));
    }
    // A rule for another address does nothing.
    for (to_lid, status) in [(1, wc_status::RETRY_EXC_ERR), (9, wc_status::SUCCESS)] {
        let hca = adapter(&[FaultRule { to_lid: Some(to_lid), ..RULE }]);
        let (a, b) = pair(&hca, 4096, &quick());
        b.recv(1, 0, 64);
        a.send(1, 0, 64);
        assert_eq!(wait(&a.send_cq).status, status, "to LID {to_lid}");
    }
}

#[test]
fn posting_and_registering_fail_as_a_rule_says() {
    let post = FaultRule { action: FaultAction::PostSend(libc::ENOMEM), nth: Some(1), count: 1, ..RULE };
    let register = FaultRule { action: FaultAction::RegMr(libc::EAGAIN), nth: Some(3), count: 1, ..RULE };
    let hca = adapter(&[post, register]);
    let (a, b) = pair(&hca, 4096, &quick());
    assert_eq!(a.pd.reg_mr(a.addr(), 10, a.addr(), 0).err(), Some(Errno(libc::EAGAIN)));
    b.recv(1, 0, 64);
    let wr = SendWr { flags: send_flags::SIGNALED, sge: &[a.sge(0, 8)], ..SendWr::empty() };
    assert_eq!(a.qp.post_send(&wr), Err(Errno(libc::ENOMEM)));
    assert_eq!(a.qp.post_send(&wr), Ok(()));
    assert_eq!(wait(&a.send_cq).status, 0);
}

/// Commands are timed rules that are due; rules with a time are carried out in the same place.
fn now(fabric: &Fabric, action: FaultAction) {
    let rule = FaultRule { action, device: Some(0), port: Some(1), ..RULE };
    fabric.command(&rule, Duration::from_mins(1)).unwrap();
}

#[test]
fn a_port_goes_down_and_comes_up_again_with_an_event_each_time() {
    let folder = new_folder();
    let mut spec = spec(folder.path());
    // The send outlives the link's absence, however long that is.
    spec.devices[0].behaviour.retry7_endless = true;
    let fabric = Fabric::join(spec).unwrap();
    let hca = fabric.open(0).unwrap();
    let (a, b) = pair(&hca, 4096, &Settings::default());
    b.recv(1, 0, 64);
    now(&fabric, FaultAction::LinkDown(0));
    assert_eq!(hca.port_state(1), Ok(port_state::DOWN));
    let down = hca.read_async_event().unwrap();
    assert_eq!((down.kind, down.cookie, down.port), (event::PORT_ERR, 0, 1));
    a.send(1, 0, 64);
    assert!(none(&a.send_cq), "a port that is down delivers");
    now(&fabric, FaultAction::LinkUp);
    assert_eq!(hca.port_state(1), Ok(port_state::ACTIVE));
    assert_eq!(hca.read_async_event().unwrap().kind, event::PORT_ACTIVE);
    assert_eq!(wait(&a.send_cq).status, 0);
}

#[test]
fn a_port_goes_down_and_comes_up_at_the_times_of_a_rule() {
    // A rule whose time has passed when the adapter is opened shows nothing: the test tries again with a later time.
    let told = (0..8).find_map(|turn| {
        let (action, at_ns) = (FaultAction::LinkDown(1_000_000), 20_000_000 << turn);
        let hca = adapter(&[FaultRule { action, at_ns, device: Some(0), port: Some(1), ..RULE }]);
        let first = next_event(&hca, 40_000_000 << turn)?;
        (first.kind == event::PORT_ERR).then(|| hca.read_async_event().unwrap().kind)
    });
    assert_eq!(told, Some(event::PORT_ACTIVE));
}

#[test]
fn a_rule_whose_time_overflows_never_applies_and_harms_nothing() {
    let told = (0..8).find_map(|turn| {
        let soon_ns = 20_000_000 << turn;
        let rules = [
            (FaultAction::LinkDown(u64::MAX), u64::MAX),
            (FaultAction::LinkDown(u64::MAX), u64::MAX / 2),
            (FaultAction::Event(event::SM_CHANGE, None), u64::MAX),
            (FaultAction::Delay(u64::MAX), 0),
            (FaultAction::Event(event::CLIENT_REREGISTER, None), soon_ns),
        ];
        let hca = described(|spec| {
            spec.devices[0].latency_ns = u64::MAX;
            spec.devices[0].bandwidth_gbps = 1e-300;
            spec.faults = rules.map(|(action, at_ns)| FaultRule { action, at_ns, ..RULE }).to_vec();
        });
        next_event(&hca, 4 * soon_ns).map(|told| (told, hca))
    });
    // The thread that keeps the time is still there.
    let (told, hca) = told.expect("an event");
    assert_eq!(told.kind, event::CLIENT_REREGISTER);
    let (a, b) = pair(&hca, 4096, &quick());
    b.recv(1, 0, 64);
    a.send(1, 0, 64);
    assert!(none(&a.send_cq) && none(&b.recv_cq));
}

#[test]
fn a_rule_can_give_any_status_which_then_has_a_vendor_error() {
    for status in 1..=wc_status::TM_RNDV_INCOMPLETE {
        let hca = adapter(&[FaultRule::always(FaultAction::Status(status))]);
        let (a, b) = pair(&hca, 4096, &quick());
        b.recv(1, 0, 64);
        a.send(1, 0, 64);
        let wc = wait(&a.send_cq);
        assert_eq!((wc.status, wc.vendor_err), (status, 0x5e00 | status));
        assert_eq!(a.qp.state(), qp_state::ERR, "{status}");
    }
}

#[test]
fn a_rule_can_make_a_queue_overrun() {
    let hca = adapter(&[FaultRule { action: FaultAction::CqOverrun, nth: Some(1), count: 1, ..RULE }]);
    let (a, b) = pair(&hca, 4096, &quick());
    b.recv(1, 0, 64);
    a.send(1, 0, 64);
    assert_eq!(hca.read_async_event().unwrap().kind, event::CQ_ERR);
    b.stops();
}

#[test]
fn a_rule_makes_objects_fail_with_an_event() {
    for kind in [event::QP_FATAL, event::CQ_ERR, event::SRQ_ERR] {
        let folder = new_folder();
        let fabric = Fabric::join(spec(folder.path())).unwrap();
        let hca = fabric.open(0).unwrap();
        let (a, b) = pair(&hca, 4096, &Settings { srq: true, ..quick() });
        now(&fabric, FaultAction::Event(kind, None));
        let told = hca.read_async_event().unwrap();
        let cookies = match kind {
            event::QP_FATAL => [4, 4],
            event::SRQ_ERR => [3, 3],
            _ => [1, 2], // of the sends or of the receives
        };
        assert!(told.kind == kind && cookies.contains(&told.cookie), "{told:?}");
        a.stops();
        b.stops();
    }
}

#[test]
fn the_model_holds_completions_back() {
    let hca = described(|spec| {
        spec.devices[0].latency_ns = 2_000_000;
        spec.devices[0].bandwidth_gbps = 1.0;
    });
    let (a, b) = pair(&hca, 1 << 20, &quick());
    b.recvs(2, 1 << 20);
    let began = Instant::now();
    a.send(1, 0, 1_000_000); // 8 ms at 1 Gb/s
    a.send(2, 0, 1_000_000);
    // A message cannot be polled before its time of arrival.
    wait(&b.recv_cq);
    assert!(began.elapsed() >= Duration::from_millis(10), "{:?}", began.elapsed());
    wait(&b.recv_cq);
    assert!(began.elapsed() >= Duration::from_millis(18), "{:?}", began.elapsed());
    assert_eq!(wait(&a.send_cq).status, 0);
}
