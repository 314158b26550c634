// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs read from traces of simulated ranks equal the simulated ones.

mod simulated;

use ibex_messages::{ByAdapter, Job, Message, Protocol};
use ibex_trace::TAGGED;
use simulated::{Envelope, Numbers, Process, START, WHOLE, Written, envelope};

fn time(time: Option<ibex_messages::Time>) -> Option<i64> {
    time.map(|time| time.nanoseconds() - START)
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Truth {
    sender: u32,
    receiver: u32,
    bytes: u64,
    send: u64,
    message: u64,
    request: u64,
}

fn truth(message: &Message) -> Truth {
    let (send, receive) = (message.send.unwrap_or_default(), message.receive.unwrap_or_default());
    Truth {
        sender: message.sender,
        receiver: message.receiver,
        bytes: message.bytes,
        send: send.request,
        message: receive.message,
        request: receive.request,
    }
}

/// Makes a random history, and the messages that it contains.
fn history(ranks: usize, messages: usize, seed: u64) -> (Vec<Process>, Vec<Truth>) {
    let mut numbers = Numbers(seed);
    let mut processes = simulated::world(ranks);
    let mut now = 0;
    let mut truths = Vec::new();
    for _ in 0..messages {
        now += 40 + numbers.below(50);
        let (sender, receiver) = (numbers.below(ranks as i64) as usize, numbers.below(ranks as i64) as usize);
        let (tag, bytes) = (numbers.below(3), 8 << numbers.below(12));
        let of = |peer: usize| envelope(peer as i64, tag, bytes);
        let (to, from) = (of(receiver), of(sender));
        // The receive may name any source and any tag, and have room for more bytes.
        let any = Envelope {
            peer: if numbers.below(3) == 0 { -1 } else { from.peer },
            tag: if numbers.below(3) == 0 { -1 } else { tag },
            bytes: bytes + numbers.below(2) * 64,
            context: 0,
        };
        let way = numbers.below(4);
        let early = (way == 0).then(|| processes[receiver].post(now, &any));
        if numbers.below(8) == 0 {
            let other = envelope(-1, 9, 8);
            let id = processes[receiver].post(now + 2, &other);
            processes[receiver].cancel(now + 4, id, &other);
        }
        let request_of_send = processes[sender].send(now + 5, &to);
        let receive = &mut processes[receiver];
        let message = receive.arrive(now + 15, &from, early.map(|id| (id, &any)));
        let request = match (early, way) {
            (Some(id), _) => id,
            (None, 1) => {
                receive.probe(now + 22, (message, &from));
                receive.take_probed(now + 25, &any, (message, &from))
            }
            _ => receive.take(now + 25, &any, (message, &from)),
        };
        truths.push(Truth {
            sender: sender as u32,
            receiver: receiver as u32,
            bytes: bytes as u64,
            send: request_of_send as u64,
            message: message as u64,
            request: request as u64,
        });
    }
    (processes, truths)
}

#[test]
fn a_message_has_the_times_of_its_events() {
    let mut processes = simulated::world(2);
    processes[0].send(100, &envelope(1, 5, 64));
    let id = processes[1].post(50, &envelope(-1, -1, 4096));
    processes[1].arrive(140, &envelope(0, 5, 64), Some((id, &envelope(-1, -1, 4096))));
    let job = simulated::read("life", &processes);
    assert_eq!((job.messages.len(), job.faults.as_slice()), (1, &[][..]));
    let message = &job.messages[0];
    assert_eq!((message.sender, message.receiver, message.tag, message.bytes), (0, 1, 5, 64));
    assert_eq!((message.protocol, message.port, message.queue_pair), (Some(Protocol::Copied), Some(0), Some(99)));
    let send = message.send.expect("known");
    assert_eq!(
        [send.activated, send.begun, send.ended, send.completed, send.notified].map(time),
        [100, 102, 103, 104, 105].map(Some)
    );
    let receive = message.receive.expect("known");
    assert_eq!(
        [receive.activated, receive.posted, receive.arrived, receive.matched, receive.begun, receive.ended].map(time),
        [50, 51, 140, 142, 144, 145].map(Some)
    );
    assert_eq!((receive.unexpected, time(receive.removed), message.delay()), (None, Some(141), Some(38)));
    assert_eq!((job.ports[0].device.as_str(), job.ports[0].gid.as_str()), ("mlx5_0", "fe80::1"));
    assert_eq!((job.communicators.len(), job.communicators[0].name.as_str()), (1, "MPI_COMM_WORLD"));
}

#[test]
fn messages_of_libfabric_are_between_processes_with_any_numbers_and_have_tags_of_64_bits() {
    let tag = 1_i64 << 40 | 5;
    let of = |peer, tag| Envelope { context: TAGGED.into(), ..envelope(peer, tag, 64) };
    let mut processes = [Process::default(), Process::default()];
    let posted: Vec<i64> =
        [tag, tag | i64::MIN].iter().zip([10, 20]).map(|(tag, at)| processes[1].post(at, &of(-1, *tag))).collect();
    for (at, tag) in [(100, tag | i64::MIN), (200, tag)] {
        processes[0].send(at, &of(905, tag));
        let id = posted[usize::from(tag < 0)];
        processes[1].arrive(at + 40, &of(900, tag), Some((id, &of(-1, tag))));
    }
    // A process that has left no file.
    processes[0].send(300, &of(7, tag));
    let folder = simulated::folder("libfabric");
    for (number, process) in [900, 905].iter().zip(&processes) {
        simulated::write(&folder, (*number, 0), process, &WHOLE);
    }
    let job = simulated::read_folder(&folder);
    assert_eq!(job.ranks.iter().map(|rank| rank.rank).collect::<Vec<_>>(), [7, 900, 905]);
    let of = |message: &Message| (message.sender, message.receiver, message.tag, message.receive.is_some());
    let all: Vec<_> = job.messages.iter().map(of).collect();
    // By the times at which the receives were posted.
    assert_eq!(all, [(1, 2, tag, true), (1, 2, tag | i64::MIN, true), (1, 0, tag, false)], "{:?}", job.faults);
    let [communicator] = &job.communicators[..] else { panic!("{:?}", job.communicators) };
    assert_eq!((communicator.name.as_str(), communicator.members.as_slice()), ("tagged messages", &[0, 1, 2][..]));
    assert_eq!(communicator.tag_text(tag | i64::MIN), "0x8000010000000005");
}

#[test]
fn a_rendezvous_leaves_with_its_request_and_begins_with_the_answer_whose_time_is_the_adapter_s() {
    const READ: i64 = 2;
    const COPIES: i64 = 3;
    const SHARED: i64 = 4;
    // Messages announced to be read and then sent as copies; the adapter also stamps the last.
    let told: [(&[i64], bool); 5] =
        [(&[READ], false), (&[READ, COPIES], false), (&[COPIES], false), (&[SHARED], false), (&[READ], true)];
    for (protocols, is_stamped) in told {
        let mut processes = simulated::world(2);
        let (to, from) = (envelope(1, 5, 1 << 20), envelope(0, 5, 1 << 20));
        let id = processes[0].rendezvous((100, 900), &to, protocols);
        if is_stamped {
            processes[0].raise("xfer_end", 850, &[id, id, 0, 1 << 20, 1 << 20, 0, 0, 5, 0, 1]);
        }
        let message = processes[1].arrive(140, &from, None);
        processes[1].take(500, &from, (message, &from));
        let job = simulated::read("rendezvous", &processes);
        let message = &job.messages[0];
        let send = message.send.expect("known");
        let (begun, ended) = if is_stamped { (850, 850) } else { (902, 903) };
        assert_eq!(
            [send.activated, send.announced, send.begun, send.ended, send.completed].map(time),
            [100, 101, begun, ended, 904].map(Some),
            "{protocols:?}"
        );
        assert_eq!((message.delay(), job.faults.len()), (Some(39), 0));
        assert_eq!(message.receive.and_then(|side| time(side.taken)), Some(501));
    }
}

#[test]
fn a_message_announced_before_any_connection_goes_by_the_first_one() {
    let mut process = Process::default();
    process.world(0, 2);
    let id = process.rendezvous((100, 900), &envelope(1, 5, 1 << 20), &[]);
    process.raise("comm_req_protocol", 101, &[id, 0, 1 << 20, 0, 2, 0, 0, 0, 1]);
    process.raise("connection_begin", 110, &[1, 0]);
    process.raise("connection_established", 200, &[1, 0, 77, 78]);
    process.events.sort_by_key(|event| event.2);
    let job = simulated::read("connected-later", &[process, Process::default()]);
    assert_eq!((job.messages[0].port, job.messages[0].queue_pair), (Some(0), Some(77)));
}

#[test]
fn an_eager_message_is_not_announced_nor_is_a_read_in_an_older_trace() {
    for protocol in [0, 1, 2, 4, 5] {
        let mut processes = simulated::world(2);
        let id = processes[0].rendezvous((100, 110), &envelope(1, 5, 64), &[]);
        processes[0].raise("comm_req_protocol", 113, &[id, 0, 64, 0, protocol, 0, 0, 99, 1]);
        processes[0].events.sort_by_key(|event| event.2);
        processes[1].arrive(140, &envelope(0, 5, 64), None);
        let job = simulated::read("at-once", &processes);
        let send = job.messages[0].send.expect("known");
        assert_eq!((send.announced.map(|_| ()), time(send.begun)), (None, Some(112)));
        assert_eq!(job.messages[0].delay(), (protocol != 5).then_some(28));
    }
}

#[test]
fn an_operation_may_end_before_its_begin_by_its_clocks_and_the_read_of_a_message_is_none() {
    let mut process = Process::default();
    process.world(0, 1);
    for (operation, begun, ended, request) in [(3, 100, 150, 0), (5, 210, 200, 0), (8, 220, 230, 6)] {
        process.raise("get_started", begun, &[operation, 4096, 8192, 64, 0, request]);
        process.raise("get_complete", ended, &[operation, 4096, 8192, 64, 0, 0, request]);
    }
    // The begin of the operation is lost; later its number is used again.
    process.raise("get_complete", 300, &[9, 4096, 8192, 64, 0, 0, 0]);
    process.raise("get_started", 5_000_300, &[9, 4096, 8192, 64, 0, 0]);
    process.events.sort_by_key(|event| event.2);
    let job = simulated::read("operations", &[process]);
    let times: Vec<_> =
        job.operations.iter().map(|of| (of.begun, of.completed)).map(|(a, b)| (time(a), time(b))).collect();
    let wanted = [(Some(100), Some(150)), (Some(200), Some(200)), (None, Some(300)), (Some(5_000_300), None)];
    assert_eq!(times, wanted);
}

#[test]
fn the_reader_returns_random_histories_unchanged() {
    for seed in 0..40 {
        let ranks = 2 + seed as usize % 3;
        let (processes, truths) = history(ranks, 200, seed);
        let job = simulated::read(&format!("random-{seed}"), &processes);
        assert_eq!(job.faults, [""; 0], "seed {seed}");
        let found: Vec<Truth> = job.messages.iter().map(truth).collect();
        let mut wanted = truths;
        wanted.sort_by_key(|of| found.iter().position(|found| found == of));
        assert_eq!(found, wanted, "seed {seed}");
    }
}

/// Checks that at least `least` messages have both sides, and at most `wrong_at_most` of them the wrong one.
fn mostly_right(job: &Job, truths: &[Truth], least: usize, wrong_at_most: usize) {
    let both: Vec<Truth> = job
        .messages
        .iter()
        .filter(|message| message.send.is_some() && message.receive.is_some_and(|side| side.message != 0))
        .map(truth)
        .collect();
    let wrong = both.iter().filter(|found| {
        !truths
            .iter()
            .any(|truth| (truth.sender, truth.send, truth.message) == (found.sender, found.send, found.message))
    });
    let wrong = wrong.count();
    assert!(wrong <= wrong_at_most, "{wrong} of {} are wrong", both.len());
    assert!(both.len() * 100 >= truths.len() * least, "{} of {}", both.len(), truths.len());
    assert!(!job.faults.is_empty());
}

#[test]
fn lost_events_shift_no_messages_and_are_reported() {
    for seed in 0..20 {
        let (mut processes, truths) = history(3, 400, seed);
        let mut numbers = Numbers(seed + 1000);
        let before = processes[1].events.len();
        // A full ring buffer loses runs of events.
        for _ in 0..4 {
            let from = 100 + numbers.below(processes[1].events.len() as i64 - 200) as usize;
            processes[1].events.drain(from..from + 30);
        }
        let lost = (before - processes[1].events.len()) as u64;
        let mut how = [WHOLE; 3];
        how[1].lost = Some(("comm_req_activate", lost));
        let job = simulated::read_as(&format!("lost-{seed}"), &processes, &how);
        assert_eq!(job.losses.len(), 1);
        mostly_right(&job, &truths, 85, 4);
    }
}

#[test]
fn a_stopped_recording_shifts_no_messages_and_is_reported() {
    let mut processes = simulated::world(2);
    let (to, from) = (envelope(1, 5, 64), envelope(0, 5, 64));
    let [sender, receiver] = &mut processes[..] else { panic!("two") };
    // All messages are alike; the two pauses begin and end within different messages.
    let send = |process: &mut Process, number: i64| {
        process.send(number * 100, &to);
    };
    let receive = |process: &mut Process, number: i64| {
        let id = process.post(number * 100 - 40, &from);
        process.arrive(number * 100 + 30, &from, Some((id, &from)));
    };
    for number in 0..50 {
        match number {
            20 => sender.paused((2000, 3000), |process| (20..30).for_each(|number| send(process, number))),
            21..30 => {}
            _ => send(sender, number),
        }
        match number {
            22 => {
                // Posted before the pause.
                receiver.post(2160, &from);
                receiver.paused((2200, 3350), |process| (23..34).for_each(|number| receive(process, number)));
            }
            23..34 => {}
            _ => receive(receiver, number),
        }
    }
    let job = simulated::read("paused", &processes);
    let sides = job.messages.iter().map(|message| (message.send.is_some(), message.receive.is_some()));
    let count = |of: (bool, bool)| sides.clone().filter(|sides| *sides == of).count();
    assert_eq!([count((true, true)), count((true, false)), count((false, true))], [20 + 16, 4, 2], "{:?}", job.faults);
    for message in &job.messages {
        assert!(message.delay().is_none_or(|delay| delay == 28), "it is joined with another: {message:?}");
    }
    let pauses: Vec<_> = job.pauses.iter().map(|pause| (pause.rank, time(Some(pause.from)), time(pause.to))).collect();
    assert_eq!(pauses, [(0, Some(2000), Some(3000)), (1, Some(2200), Some(3350))]);
    assert!(job.ranks.iter().all(|rank| rank.has_calls && rank.is_whole));
    for words in ["stopped the recording of ranks 0, 1 for a time (MPI_Pcontrol)", "4 messages have only the sender's"]
    {
        assert!(job.faults.iter().any(|fault| fault.contains(words)), "{words}: {:?}", job.faults);
    }
    let faults = &job.faults;
    assert!(!faults.iter().any(|fault| fault.contains("lost") || fault.contains("started late")), "{faults:?}");
}

#[test]
fn a_truncated_trace_leaves_the_other_side_of_each_message() {
    for seed in 0..10 {
        let (mut processes, truths) = history(2, 200, seed);
        let half = processes[1].events.len() / 2;
        processes[1].events.truncate(half);
        let mut how = [WHOLE; 2];
        how[1].is_finished = false;
        let job = simulated::read_as(&format!("cut-{seed}"), &processes, &how);
        mostly_right(&job, &truths, 30, 0);
        assert!(!job.ranks[1].is_whole && job.ranks[0].is_whole);
        assert!(job.faults.iter().any(|fault| fault.contains("is truncated")), "{:?}", job.faults);
    }
}

#[test]
fn a_damaged_block_costs_its_own_messages() {
    let (processes, truths) = history(2, 400, 5);
    let folder = simulated::folder("damaged");
    simulated::write(&folder, (0, 2), &processes[0], &WHOLE);
    let file = simulated::write(&folder, (1, 2), &processes[1], &Written { block: 128, ..WHOLE });
    let mut bytes = std::fs::read(&file).expect("there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    std::fs::write(&file, bytes).expect("written");
    let job = simulated::read_folder(&folder);
    mostly_right(&job, &truths, 80, 4);
    assert!(job.faults.iter().any(|fault| fault.contains("damaged")), "{:?}", job.faults);
}

#[test]
fn a_job_has_a_rank_without_a_trace_if_others_know_it() {
    let (processes, truths) = history(3, 100, 3);
    let folder = simulated::folder("silent");
    for rank in [0, 2] {
        simulated::write(&folder, (rank, 3), &processes[rank as usize], &WHOLE);
    }
    let job = simulated::read_folder(&folder);
    assert_eq!((job.ranks.len(), job.ranks[1].host.as_str()), (3, ""));
    let own = truths.iter().filter(|of| (of.sender, of.receiver) != (1, 1)).count();
    assert_eq!(job.messages.len(), own);
    assert!(job.faults.iter().any(|fault| fault.contains("no trace of rank 1")), "{:?}", job.faults);
}

#[test]
fn communicators_reuse_contexts_and_disjoint_ones_share_them() {
    let mut processes = simulated::world(4);
    let in_pair = |bytes, peer| Envelope { peer, tag: 1, bytes, context: 3 };
    for round in 0..3 {
        let now = 1000 * round;
        for (rank, process) in (0_i64..).zip(&mut processes) {
            // Even and odd ranks; the second time the lower and the upper half.
            let (first, stride, own) = if round == 1 { (rank / 2 * 2, 1, rank % 2) } else { (rank % 2, 2, rank / 2) };
            process.raise("communicator_created", now, &[3, 0, own, 2, 0, 0, 2, first, stride, 77]);
            let (of, peer) = (in_pair(64 + round, 1 - own), 1 - own);
            if own == 0 {
                process.send(now + 10, &of);
            } else {
                let message = process.arrive(now + 30, &in_pair(64 + round, peer), None);
                process.take(now + 50, &of, (message, &of));
            }
            process.raise("communicator_freed", now + 100, &[3]);
        }
    }
    let job = simulated::read("contexts", &processes);
    assert_eq!((job.communicators.len(), job.messages.len()), (7, 6), "{:?}", job.communicators);
    assert_eq!(job.faults, [""; 0]);
    let who = |message: &Message| (message.sender, message.receiver, message.bytes);
    let mut found: Vec<_> = job.messages.iter().map(who).collect();
    found.sort_by_key(|(sender, _, bytes)| (*bytes, *sender));
    assert_eq!(found, [(0, 2, 64), (1, 3, 64), (0, 1, 65), (2, 3, 65), (0, 2, 66), (1, 3, 66)]);
}

#[test]
fn an_intercommunicator_joins_both_groups() {
    let mut processes = simulated::world(3);
    let of = |peer| Envelope { peer, tag: 1, bytes: 8, context: 5 };
    for (rank, process) in (0_i64..).zip(&mut processes) {
        let (own, local, remote) = if rank == 2 { (0, (1, 2), (2, 0)) } else { (rank, (2, 0), (1, 2)) };
        for (side, (size, first)) in [(0, local), (1, remote)] {
            process.raise("communicator_created", 0, &[5, 1, own, size, side, 0, size, first, 1, 77]);
        }
    }
    processes[2].send(10, &of(1));
    let message = processes[1].arrive(30, &of(0), None);
    processes[1].take(40, &of(0), (message, &of(0)));
    let job = simulated::read("inter", &processes);
    assert_eq!((job.messages.len(), job.messages[0].sender, job.messages[0].receiver), (1, 2, 1), "{:?}", job.faults);
    assert!(job.messages[0].send.is_some() && job.messages[0].receive.is_some());
    assert_eq!((&job.communicators[1].members[..], &job.communicators[1].remote[..]), (&[0, 1][..], &[2][..]));
}

#[test]
fn transfers_below_another_pml_are_no_messages() {
    let mut processes = vec![Process::default(); 2];
    let unknown = i64::from(u32::MAX);
    processes[0].raise("xfer_begin", 10, &[0, 2, 0, 64, 64, unknown, -1, -1, 0, 1]);
    processes[1].raise("msg_arrived", 20, &[2, 64, 64, unknown, -1, -1, 0]);
    let job = simulated::read("below", &processes);
    assert!(job.messages.is_empty() && job.message_waits().is_empty());
    assert!(matches!(&job.faults[..], [why] if why.contains("ibex has not done the matching")), "{:?}", job.faults);
}

#[test]
fn without_events_of_communicators_context_0_is_the_world() {
    let mut processes = vec![Process::default(); 2];
    processes[0].send(10, &envelope(1, 5, 64));
    let message = processes[1].arrive(30, &envelope(0, 5, 64), None);
    processes[1].take(40, &envelope(0, 5, 64), (message, &envelope(0, 5, 64)));
    let job = simulated::read("world", &processes);
    assert_eq!((job.messages.len(), job.communicators.len(), job.faults.as_slice()), (1, 1, &[][..]));
    assert!(job.messages[0].send.is_some() && job.messages[0].receive.is_some());
}

#[test]
fn threads_of_a_process_share_its_messages() {
    let mut processes = simulated::world(2);
    for number in 0..50 {
        let now = number * 100;
        processes[0].thread = (number % 3) as u32;
        processes[0].send(now, &envelope(1, 5, 64));
        processes[1].thread = (number % 2) as u32;
        let id = processes[1].post(now, &envelope(0, 5, 64));
        processes[1].thread = 7;
        processes[1].arrive(now + 30, &envelope(0, 5, 64), Some((id, &envelope(0, 5, 64))));
    }
    let job = simulated::read("threads", &processes);
    assert_eq!((job.messages.len(), job.faults.as_slice()), (50, &[][..]));
    assert!(job.messages.iter().all(|message| message.delay() == Some(28)));
    assert_eq!(job.ranks[1].threads.len(), 3);
}

/// Reads the job with its threads in reverse order, because a file has their blocks in any order.
fn read_reversed(name: &str, mut processes: Vec<Process>) -> Job {
    processes.iter_mut().flat_map(|process| &mut process.events).for_each(|event| event.1 = 9 - event.1);
    simulated::read(name, &processes)
}

#[test]
fn a_message_whose_events_several_threads_raise_is_whole_in_whatever_order_their_blocks_are() {
    let mut processes = simulated::world(2);
    for number in 0..50 {
        let now = number * 100;
        let (to, from) = (envelope(1, 5, 64), envelope(0, 5, 64));
        // A thread other than the sender's sees the end.
        let before = processes[0].events.len();
        processes[0].send(now, &to);
        processes[0].events[before + 3..].iter_mut().for_each(|event| event.1 = 1);
        // One thread finds the message, the next probes for it, the third receives it.
        let message = processes[1].arrive(now + 30, &from, None);
        processes[1].thread = 1;
        processes[1].probe(now + 40, (message, &from));
        processes[1].thread = 2;
        processes[1].take_probed(now + 50, &from, (message, &from));
        processes[1].thread = 0;
    }
    let job = read_reversed("threads-reversed", processes);
    assert_eq!((job.messages.len(), job.faults.as_slice()), (50, &[][..]));
    for message in &job.messages {
        let (send, receive) = (message.send.expect("known"), message.receive.expect("known"));
        assert_eq!(time(receive.begun), time(send.activated).map(|sent| sent + 54), "its own receive");
    }
}

#[test]
fn a_connection_that_one_thread_begins_and_another_ends_is_one() {
    let mut processes = vec![Process::default(); 2];
    for (rank, process) in (0_i64..).zip(&mut processes) {
        process.raise("connection_begin", 10, &[1 - rank, 0]);
        process.thread = 1;
        process.raise("connection_established", 20, &[1 - rank, 0, 99, 98]);
    }
    let job = read_reversed("connection-reversed", processes);
    let found: Vec<_> = job.connections.iter().map(|of| (of.rank, time(of.begun), time(of.established))).collect();
    assert_eq!(found, [(0, Some(10), Some(20)), (1, Some(10), Some(20))]);
}

#[test]
fn each_fragment_belongs_to_its_message() {
    let mut processes = simulated::world(2);
    let (to, from) = (envelope(1, 5, 64), envelope(0, 5, 64));
    for number in 0..3 {
        let now = 1000 * number;
        let send = processes[0].send(now, &to);
        let id = processes[1].post(now, &from);
        processes[1].arrive(now + 30, &from, Some((id, &from)));
        for fragment in 0..number {
            processes[0].raise("comm_req_xfer_continue", now + 500 + fragment, &[send, 64, 1, 5, 0, 0]);
            processes[1].thread = 3;
            processes[1].raise("comm_req_xfer_continue", now + 600 + fragment, &[id, 64, 0, 5, 1, 0]);
            processes[1].thread = 0;
        }
    }
    // A fragment of an unknown request.
    processes[1].raise("comm_req_xfer_continue", 5000, &[998, 64, 0, 5, 1, 0]);
    let job = simulated::read("fragments", &processes);
    let found: Vec<_> = job
        .fragments
        .iter()
        .map(|of| (of.rank, of.thread, of.message, of.is_received, time(Some(of.time)).expect("a time")))
        .collect();
    let wanted = [
        (0, 0, 1, false, 1500),
        (0, 0, 2, false, 2500),
        (0, 0, 2, false, 2501),
        (1, 3, 1, true, 1600),
        (1, 3, 2, true, 2600),
        (1, 3, 2, true, 2601),
    ];
    assert_eq!(found, wanted);
    assert_eq!(job.messages.len(), 3);
    assert!(job.fragments.iter().all(|of| !of.is_by_adapter && of.part.is_none()));
}

#[test]
fn transfers_give_a_message_and_its_fragments_the_adapters_times_and_their_error() {
    let mut processes = simulated::world(2);
    let (to, from) = (envelope(1, 5, 96), envelope(0, 5, 96));
    processes[0].send(0, &to);
    let id = processes[1].post(0, &from);
    let message = processes[1].arrive(30, &from, Some((id, &from)));
    processes[1].raise("msg_arrived", 28, &[message, 0, 96, 0, 0, 5, 0]);
    for (name, time, offset) in [("xfer_begin", 600, 0), ("xfer_end", 630, 96)] {
        processes[1].raise(name, time, &[id, message, offset, 0, 96, 0, 0, 5, 1, 0]);
    }
    for (fragment, offset) in [(610, 32), (620, 64)] {
        processes[1].raise("comm_req_xfer_continue", fragment + 5, &[id, 96, 0, 5, 1, 0]);
        processes[1].raise("xfer_continue", fragment, &[id, message, offset, 32, 96, 0, 0, 5, 1, 0]);
    }
    let job = simulated::read("places", &processes);
    let found: Vec<_> = job
        .fragments
        .iter()
        .map(|of| (of.rank, of.message, of.is_received, time(Some(of.time)), of.is_by_adapter, of.part))
        .collect();
    let wanted = [(1, 0, true, Some(610), true, Some((32, 32))), (1, 0, true, Some(620), true, Some((64, 32)))];
    assert_eq!(found, wanted);
    let side = job.messages[0].receive.expect("known");
    assert_eq!([side.arrived, side.begun, side.ended].map(time), [28, 600, 630].map(Some));
    assert_eq!(side.by_adapter, ByAdapter { arrived: true, begun: true, ended: true });
    assert_eq!(job.messages[0].send.map(|side| side.by_adapter), Some(ByAdapter::default()));
    let errors = [0, 1].map(|rank| job.ranks[rank].clock_error.expect("known"));
    assert_eq!(errors[1] - errors[0], 40, "reading the adapter's clock takes 80 ns");
}

#[test]
fn a_request_is_freed_or_cancelled_and_one_that_never_began_is_none() {
    let mut processes = simulated::world(2);
    let free = |process: &mut Process, time, id| process.raise("comm_req_free", time, &[id, 64, 0, 5, 0, 0]);
    let id = processes[0].send(0, &envelope(1, 5, 64));
    free(&mut processes[0], 110, id);
    free(&mut processes[0], 120, 998);
    let id = processes[1].post(200, &envelope(0, 5, 64));
    processes[1].cancel(210, id, &envelope(0, 5, 64));
    free(&mut processes[1], 220, id);
    let job = simulated::read("cancelled", &processes);
    assert_eq!((job.messages.len(), job.faults.len()), (1, 1), "{:?}", job.faults);
    assert_eq!(job.messages[0].send.and_then(|side| time(side.freed)), Some(110));
    let [(1, side)] = &job.cancelled[..] else { panic!("one of rank 1") };
    assert_eq!([side.posted, side.removed, side.cancelled, side.freed].map(time), [201, 210, 210, 220].map(Some));
}

#[test]
fn an_adapter_whose_clock_seems_to_go_before_the_host_makes_no_message_doubtful() {
    let mut processes = simulated::world(2);
    for number in 0..50 {
        let now = number * 100;
        let before = processes[0].events.len();
        processes[0].send(now, &envelope(1, 5, 64));
        // Another thread sees the end, whose adapter stamp seems to be before the call of the send.
        for event in &mut processes[0].events[before + 3..] {
            (event.1, event.2) = (1, event.2 - 20);
        }
        let message = processes[1].arrive(now + 30, &envelope(0, 5, 64), None);
        processes[1].take(now + 40, &envelope(0, 5, 64), (message, &envelope(0, 5, 64)));
    }
    let job = read_reversed("adapter-first", processes);
    assert_eq!((job.messages.len(), job.faults.as_slice()), (50, &[][..]));
}
