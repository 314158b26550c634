// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traces of simulated programs, as the commands read them.

use ibex_messages::{Fragment, Job, Message, Protocol, Time};
use ibex_trace::Folder;

use super::*;

/// Returns what came of a program while it was recorded, and the job of its trace.
fn recorded(name: &str, program: &Program) -> (Result<Report, Failure>, Job) {
    let folder = std::env::temp_dir().join(format!("ibex-simulation-{name}-{}", std::process::id()));
    let (outcome, written) = record(program, &folder);
    written.expect("written");
    let job = Job::read(&Folder::open(&folder).expect("opened"));
    std::fs::remove_dir_all(folder).expect("removed");
    (outcome, job)
}

/// Checks that all these times are known and never go back.
fn are_ordered(times: &[Option<Time>], message: &Message) {
    assert!(times.iter().all(Option::is_some) && times.is_sorted(), "{times:?} of {message:?}");
}

/// Checks the times of a message that was sent and received. Returns whether its receive was posted before it came.
fn check_life(message: &Message) -> bool {
    let (Some(send), Some(receive)) = (message.send, message.receive) else { panic!("one side of {message:?}") };
    are_ordered(&[send.activated, send.begun, send.ended, send.completed, send.notified], message);
    are_ordered(&[receive.matched, receive.begun, receive.ended, receive.completed, receive.notified], message);
    let left = if message.protocol == Some(Protocol::Loopback) { send.activated } else { send.left() };
    are_ordered(&[send.activated, left, receive.arrived, receive.matched], message);
    if receive.unexpected.is_some() {
        are_ordered(&[receive.arrived, receive.unexpected, receive.taken, receive.matched], message);
        are_ordered(&[receive.activated, receive.matched], message);
    } else {
        are_ordered(&[receive.activated, receive.posted, receive.arrived, receive.removed, receive.matched], message);
    }
    assert!(send.request != 0 && receive.request != 0 && receive.message != 0, "{message:?}");
    receive.unexpected.is_none()
}

/// Returns sender, receiver, context, tag and length of each send of a program, sorted.
fn sends(program: &Program) -> Vec<(u32, u32, u32, i32, u64)> {
    let send = |one: &Operation| match *one {
        Operation::Send { from, to, context, tag, length, .. } => Some((from, to, context, tag, length as u64)),
        _ => None,
    };
    let mut sends: Vec<_> = program.operations.iter().filter_map(send).collect();
    sends.sort_unstable();
    sends
}

/// Like [`sends`], of the messages of a job.
fn messages(job: &Job) -> Vec<(u32, u32, u32, i32, u64)> {
    let of = |message: &Message| {
        let context = job.communicators[message.communicator as usize].context;
        (message.sender, message.receiver, context, message.tag, message.bytes)
    };
    let mut messages: Vec<_> = job.messages.iter().map(of).collect();
    messages.sort_unstable();
    messages
}

#[test]
fn the_trace_of_a_program_has_the_life_of_each_message() {
    let (context, from, gaps) = (2, 0, false);
    let send = |tag, length, synchronous| Operation::Send { from, to: 1, context, tag, length, synchronous, gaps };
    let receive = |tag, room| Operation::Receive { at: 1, from: None, context, tag: Some(tag), room, gaps };
    let mut operations = vec![send(0, 8, false), send(1, 200, false), send(2, 600, false)];
    operations.push(Operation::Send { from, to: 1, context, tag: 3, length: 1000, synchronous: false, gaps: true });
    operations.extend([send(4, 8, true), send(5, 1100, false)]);
    operations.push(Operation::Send { from: 1, to: 1, context, tag: 6, length: 300, synchronous: false, gaps });
    let received = [2, 0, 5, 1, 4, 3, 6];
    operations.extend(received.map(|tag| receive(tag, if tag == 5 { 100 } else { 1000 })));
    operations.push(receive(9, 8));
    let mut seen = [0; 2];
    for schedule in 0..20 {
        let program = Program { schedule, operations: operations.clone(), ..Program::default() };
        let (outcome, job) = recorded("life", &program);
        outcome.expect("no check fails");
        assert_eq!((&job.faults[..], job.ranks.len(), job.cancelled.len()), (&[][..], 2, 1));
        assert_eq!(messages(&job), sends(&program));
        job.messages.iter().for_each(|message| seen[usize::from(check_life(message))] += 1);
        let protocol = |tag| job.messages.iter().find(|message| message.tag == tag).and_then(|one| one.protocol);
        let (inline, read) = (Some(Protocol::Inline), Some(Protocol::Read));
        assert_eq!([0, 1, 2].map(protocol), [inline, Some(Protocol::Copied), read]);
        assert_eq!([3, 4, 5].map(protocol), [Some(Protocol::Fragments), inline, read]);
        assert_eq!(protocol(6), Some(Protocol::Loopback));
        // Of four fragments, each side tells the second and the third.
        let is_copied = |of: &&Fragment| job.messages[of.message as usize].tag == 3;
        assert_eq!(job.fragments.iter().filter(is_copied).count(), 4, "{:?}", job.fragments);
        // The receives have their numbers in the order of the program, so each has the message with its tag.
        let mut matched: Vec<_> =
            job.messages.iter().map(|one| (one.receive.map(|side| side.request), one.tag)).collect();
        matched.sort_unstable();
        assert!(matched.iter().map(|(_, tag)| *tag).eq(received), "{matched:?}");
    }
    assert!(seen[0] > 10 && seen[1] > 10, "{seen:?}");
}

#[test]
fn recording_changes_no_history_and_misses_no_message() {
    let mut all = 0;
    for seed in 0..25 {
        let program = Program::of_seed(seed, None);
        let (outcome, job) = recorded("random", &program);
        assert_eq!(outcome.expect("no check fails"), check(&program), "seed {seed}");
        // These may end processes.
        if !program.operations.iter().any(|one| matches!(one, Operation::Die { .. } | Operation::Fail { .. })) {
            assert!(job.faults.is_empty(), "seed {seed}: {:?}", job.faults);
            assert_eq!(messages(&job), sends(&program), "seed {seed}");
            job.messages.iter().for_each(|message| _ = check_life(message));
            all += job.messages.len();
        }
    }
    assert!(all > 500, "{all}");
}

#[test]
fn the_trace_of_a_run_that_failed_says_so_and_ends_with_it() {
    let mut world = World::new(&Program::default());
    let (trace, folder) = (world.record(), std::env::temp_dir().join(format!("ibex-failed-{}", std::process::id())));
    let failure = Failure { what: "message 3 is lost".to_owned(), steps: Vec::new(), connections: Vec::new() };
    trace.write(&folder, Some(&failure)).expect("written");
    assert!(trace.write(&folder, None).is_err(), "the folder has a trace");
    let job = Job::read(&Folder::open(&folder).expect("opened"));
    std::fs::remove_dir_all(folder).expect("removed");
    assert_eq!(job.faults[0], "A check ended the run: message 3 is lost (ranks 0, 1)");
    assert!(job.faults[1].contains("was not finished") && job.ranks.iter().all(|rank| !rank.is_whole));
}
