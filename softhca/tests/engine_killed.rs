// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process that is killed at any instruction leaves a fabric that others can use. The victim is another process of
//! this test program. In a number of steps it sends to queue pairs of this one, makes objects and destroys them. In one
//! step the processor's trap flag calls a signal handler after each instruction, which kills the process after a number
//! of them; the numbers are spread evenly. (With ptrace(2) each instruction would wait twice for a processor.)
//! `SOFTHCA_TEST_KILLS` is the number of kills for each step. If that exceeds the number of instructions, which the
//! test prints, the search is complete.

mod engine_support;

use std::arch::asm;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use engine_support::prelude::*;
use rustix::process::{Signal, getpid, kill_process};

const STEPS: u64 = 12;
const KILLS: u64 = 4;
const RECEIVES: u32 = 8;
const BYTES: usize = 32 << 10;

fn settings(srq: bool) -> Settings {
    // Without a receive for 7 times 0.7 s a send fails.
    Settings { wr: RECEIVES, srq, rnr_retry: 6, min_rnr_timer: 0, ..Settings::default() }
}

/// In the other process: reads a line of numbers.
fn told() -> Vec<u64> {
    numbers(&std::io::stdin().lines().next().unwrap().unwrap())
}

fn numbers(line: &str) -> Vec<u64> {
    line.split(' ').map(|number| number.parse().unwrap()).collect()
}

fn taken(cq: &Cq) -> u32 {
    cq.poll(&mut [Wc::default(); 64]) as u32
}

/// Number of instructions that the victim has executed in its step, and after which it dies.
static DONE: AtomicU64 = AtomicU64::new(0);
static LAST: AtomicU64 = AtomicU64::new(u64::MAX);

fn die() {
    kill_process(getpid(), Signal::KILL).unwrap();
}

extern "C" fn count(_: libc::c_int) {
    if DONE.fetch_add(1, Ordering::Relaxed) + 1 == LAST.load(Ordering::Relaxed) {
        die();
    }
}

/// Runs a step, and dies after `last` of its instructions, if it has so many.
fn run(step: &dyn Fn(), last: u64) {
    if last == 0 {
        die();
    }
    LAST.store(last, Ordering::Relaxed);
    let handler: extern "C" fn(libc::c_int) = count;
    // SAFETY: a handler that only counts, and kills; zero is a value of the other fields.
    unsafe {
        let action = libc::sigaction { sa_sigaction: handler as usize, ..std::mem::zeroed() };
        assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, null_mut()), 0);
        asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq");
    }
    step();
    // SAFETY: the trap flag is off again.
    unsafe { asm!("pushfq", "and qword ptr [rsp], ~0x100", "popfq") };
}

#[test]
#[ignore = "started by the test below, as the process that is killed"]
fn is_killed() {
    let works = || {
        let hca = joined();
        let sides = [(); 2].map(|()| Side::new(&hca, BYTES, &settings(false)));
        println!("say: {} {}", sides[0].qp.number(), sides[1].qp.number());
        let peers = told();
        sides.iter().zip(&peers).for_each(|(side, peer)| side.connect(*peer as u32, &settings(false)));
        let [plain, shares] = &sides;
        let make = |srq: bool| drop(Side::new(&hca, 64, &settings(srq)));
        let steps: [&dyn Fn(); STEPS as usize] = [
            // In the entry, by the inbox, and by the kernel.
            &|| plain.send(0, 0, 8),
            &|| plain.send(0, 0, 700),
            &|| plain.send(0, 0, BYTES),
            &|| shares.send(0, 0, 8),
            &|| shares.send(0, 0, 700),
            &|| shares.send(0, 0, BYTES),
            &|| plain.rdma(wr_opcode::RDMA_WRITE_WITH_IMM, 0, BYTES, peers[2], peers[3] as u32),
            &|| assert_eq!(taken(&plain.send_cq), 4),
            &|| make(false),
            &|| make(true),
            &|| plain.qp.destroy().unwrap(),
            &|| plain.send_cq.destroy().unwrap(),
        ];
        let (before, rest) = steps.split_at(peers[4] as usize);
        for step in before {
            step();
        }
        run(rest[0], peers[5]);
        println!("say: {}", DONE.load(Ordering::Relaxed));
        die();
    };
    std::thread::spawn(works).join().unwrap();
}

/// Kills a victim after so many instructions of a step, and checks its leftovers; returns the number of instructions.
fn kill(folder: &Folder, hca: &Arc<Hca>, audit: &dyn Fn(), step: u64, count: u64) -> u64 {
    let (plain, shares) = (Side::new(hca, BYTES, &settings(false)), Side::new(hca, BYTES, &settings(true)));
    let (gives, srq) = (Side::new(hca, BYTES, &settings(false)), shares.srq.as_ref().unwrap());
    let cqs = (&shares.send_cq, &shares.recv_cq);
    let takes = queue_pair(hca, &shares.pd, qp_type::RC, cqs, Some(srq), shares.qp.cap()).unwrap();
    init(&takes, &settings(true));
    gives.connect(takes.number(), &settings(false));
    ready(&takes, gives.qp.number(), &settings(true), lid(1));
    let mut victim = Process::start_in("is_killed", folder);
    let said = numbers(&victim.hear());
    plain.connect(said[0] as u32, &settings(false));
    shares.connect(said[1] as u32, &settings(true));
    (0..RECEIVES).for_each(|_| [&plain, &shares].into_iter().for_each(|side| side.recv(0, 0, BYTES)));
    let (addr, key) = (plain.addr(), plain.mr.key());
    victim.tell(format!("{} {} {addr} {key} {step} {count}", plain.qp.number(), shares.qp.number()));
    let done = if count == u64::MAX { numbers(&victim.hear())[0] } else { count };
    victim.child.wait().unwrap();

    gives.send(0, 0, 8); // others go on where it was, even before it is buried
    audit();
    let after = format!("after {done} instructions of step {step}");
    assert_eq!(taken(&gives.send_cq), 1, "{after}");
    let (of_plain, of_shared) = (taken(&plain.recv_cq), taken(&shares.recv_cq));
    (of_shared..RECEIVES).for_each(|_| gives.send(0, 0, 8));
    assert_eq!(of_shared + taken(&shares.recv_cq), RECEIVES, "requests of the shared queue that complete, {after}");
    plain.to(qp_state::ERR);
    assert_eq!(of_plain + taken(&plain.recv_cq), RECEIVES, "requests of the queue pair that complete, {after}");
    (0..RECEIVES).for_each(|_| shares.recv(0, 0, BYTES)); // all are free
    takes.destroy().unwrap();
    for side in [&plain, &shares, &gives] {
        let ended = side.qp.destroy().and_then(|()| side.mr.destroy()).and_then(|()| side.recv_cq.destroy());
        ended.and_then(|()| side.send_cq.destroy()).unwrap();
    }
    done
}

#[test]
fn a_process_that_is_killed_at_any_instruction_leaves_nothing_that_stops_others() {
    let folder = new_folder();
    let fabric = Fabric::join(spec(folder.path())).unwrap();
    let (hca, audit) = (fabric.open(0).unwrap(), || fabric.audit());
    let kills = std::env::var("SOFTHCA_TEST_KILLS").map_or(KILLS, |kills| kills.parse().expect("a number"));
    for step in 0..STEPS {
        let all = kill(&folder, &hca, &audit, step, u64::MAX);
        let kills = kills.min(all);
        println!("step {step}: killed within {all} instructions {kills} times");
        for nth in 0..kills {
            kill(&folder, &hca, &audit, step, all * nth / kills);
        }
    }
}

#[test]
#[ignore = "started by the test below, as the process that sends and dies"]
fn sends_a_waiting_request() {
    let side = Side::new(&joined(), BYTES, &settings(false));
    println!("say: {}", side.qp.number());
    let [peer, opcode, addr, key] = told()[..] else { panic!("four numbers") };
    side.connect(peer as u32, &settings(false));
    side.rdma(opcode as u32, 0, 1000, addr, key as u32);
    println!("say: sent");
    told();
}

#[test]
fn a_receive_stays_posted_if_its_senders_process_has_died_before_the_copy() {
    for (opcode, srq) in [(wr_opcode::SEND, false), (wr_opcode::SEND, true), (wr_opcode::RDMA_WRITE_WITH_IMM, false)] {
        let folder = new_folder();
        let hca = join(folder.path());
        let side = Side::new(&hca, BYTES, &settings(srq));
        // The next queue pair's number. Its process does not exist, so no process watches for its end to bury it.
        side.connect(side.qp.number() + 1, &settings(srq));
        let mut other = Process::start_in("sends_a_waiting_request", &folder);
        assert_eq!(other.hear(), (side.qp.number() + 1).to_string());
        other.tell(format!("{} {opcode} {} {}", side.qp.number(), side.addr(), side.mr.key()));
        assert_eq!(other.hear(), "sent");
        other.child.kill().unwrap();
        other.child.wait().unwrap();
        side.recv(1, 0, BYTES); // this process executes the send that waits for it
        assert!(none(&side.recv_cq));
        if srq {
            let (a, mut b) = (Side::new(&hca, BYTES, &settings(false)), Side::new(&hca, BYTES, &settings(false)));
            b.replace((&side.send_cq, &side.recv_cq), side.srq.as_ref());
            a.connect(b.qp.number(), &settings(false));
            b.connect(a.qp.number(), &settings(true));
            a.send(0, 0, 8);
        } else {
            side.to(qp_state::ERR);
        }
        assert_eq!(wait(&side.recv_cq).wr_id, 1, "opcode {opcode}: the next message takes it, or it is flushed");
    }
}
