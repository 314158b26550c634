// SPDX-License-Identifier: MIT OR Apache-2.0
//! A synthetic job, for tests of commands and exports, with more messages than a test can send.

use crate::model::{
    ByAdapter, Call, Communicator, Fragment, Job, Message, Port, Protocol, Queue, Rank, Reason, ReceiveSide,
};
use crate::model::{Search, SendSide};
use crate::time::Time;

/// Pseudo-random numbers (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }
}

impl Call {
    /// Makes a call in the first thread of a rank.
    pub fn made(rank: u32, function: u32, begun: Time, ended: Option<Time>) -> Call {
        Call { rank, thread: 0, function, begun, ended }
    }
}

impl Search {
    /// Makes a search of the posted queue for messages of rank 0 with tag 0; whether it finds one is unknown.
    pub fn made(rank: u32, begun: Time, ended: Time) -> Search {
        let (thread, queue, peer, tag) = (0, Queue::Posted, 0, 0);
        Search { rank, thread, queue, peer, tag, length: None, message: None, is_found: None, begun, ended }
    }
}

impl Fragment {
    /// Makes a received fragment of the message with this index, in the first thread of a rank, by the host's clock.
    pub fn made(rank: u32, message: u32, time: Time) -> Fragment {
        Fragment { rank, thread: 0, message, is_received: true, time, is_by_adapter: false, part: None }
    }
}

impl Job {
    /// Makes a job with two ranks per host, each sending to any other; the same for the same seed.
    pub fn synthetic(ranks: u32, messages: usize, seed: u64) -> Job {
        let mut numbers = Numbers(seed);
        let rank = |rank| Rank {
            rank,
            host: format!("node{}", rank / 2),
            pid: 1000 + rank,
            program: "./app".to_owned(),
            threads: vec![0],
            clock_error: Some(150),
            is_whole: true,
            has_calls: true,
            ..Rank::default()
        };
        let port = |rank: u32| Port {
            rank,
            device: "mlx5_0".to_owned(),
            number: 1,
            gid: format!("fe80::{:x}", rank / 2 + 1),
            ..Port::default()
        };
        let mut job = Job { name: "made".to_owned(), ..Job::default() };
        job.ranks = (0..ranks).map(rank).collect();
        job.ports = (0..ranks).map(port).collect();
        let members: Vec<u32> = (0..ranks).collect();
        let world = Communicator { members, name: "MPI_COMM_WORLD".to_owned(), ..Communicator::default() };
        job.communicators = vec![world];
        let mut now = 1_700_000_000_000_000_000_i64;
        for number in 0..messages as u64 {
            now += numbers.below(2_000) as i64;
            job.messages.push(message(number, u64::from(ranks), now, &mut numbers));
        }
        job.messages.sort_by_key(|message| message.moments().min());
        job.wait_for_each();
        let moments = || job.messages.iter().flat_map(Message::moments);
        job.span = moments().min().zip(moments().max());
        job
    }

    /// Makes each send and receive an MPI call that returns when the request is complete.
    fn wait_for_each(&mut self) {
        self.functions = ["MPI_Send", "MPI_Recv"].map(str::to_owned).to_vec();
        for message in &mut self.messages {
            let mut add = |rank, function, begun: Option<Time>, ended| {
                let call = begun.map(|begun| Call::made(rank, function, begun, ended));
                self.calls.extend(call);
                call.map(|_| self.calls.len() as u32 - 1)
            };
            if let Some(side) = &mut message.send {
                side.call = add(message.sender, 0, side.activated, side.notified);
            }
            if let Some(side) = &mut message.receive {
                side.call = add(message.receiver, 1, side.activated, side.notified);
            }
        }
    }
}

fn message(number: u64, ranks: u64, now: i64, numbers: &mut Numbers) -> Message {
    let sender = numbers.below(ranks);
    let receiver = (sender + 1 + numbers.below(ranks.max(2) - 1)) % ranks;
    let bytes = 1_u64 << numbers.below(22);
    let (protocol, took) = match bytes {
        0..=128 => (Protocol::Inline, 500),
        129..=16384 => (Protocol::Copied, 1_000 + bytes as i64 / 8),
        _ => (Protocol::Read, 3_000 + bytes as i64 / 10),
    };
    // The receive is posted up to 8 us before or after the arrival.
    let arrived = now + 700 + numbers.below(400) as i64;
    let posted = arrived - 8_000 + numbers.below(16_000) as i64;
    let is_expected = posted < arrived;
    let matched = posted.max(arrived) + 40;
    let time = |nanoseconds| Some(Time::new(nanoseconds));
    // The receiver's answer tells the sender of a read.
    let answered = (protocol == Protocol::Read).then_some(matched + took + 600);
    let send = SendSide {
        request: 2 * number + 2,
        thread: 0,
        activated: time(now - 80),
        announced: answered.and(time(now)),
        begun: time(answered.unwrap_or(now)),
        ended: time(answered.unwrap_or(now + 60)),
        completed: time(answered.map_or(now + 90, |answered| answered + 50)),
        notified: time(answered.map_or(now + 120, |answered| answered + 300)),
        ..SendSide::default()
    };
    let receive = ReceiveSide {
        message: 2 * number + 2,
        request: 2 * number + 4,
        thread: 0,
        arrived: time(arrived),
        unexpected: time(arrived + 30).filter(|_| !is_expected),
        activated: time(posted - 60),
        posted: time(posted).filter(|_| is_expected),
        matched: time(matched),
        begun: time(matched + 10),
        ended: time(matched + took),
        completed: time(matched + took + 20),
        notified: time(matched + took + 20 + numbers.below(500) as i64),
        by_adapter: ByAdapter { arrived: true, ..ByAdapter::default() },
        ..ReceiveSide::default()
    };
    Message {
        sender: sender as u32,
        receiver: receiver as u32,
        communicator: 0,
        tag: if number.is_multiple_of(11) { -17 } else { (number % 7) as i64 },
        bytes,
        protocol: Some(protocol),
        reason: Some(Reason::Size),
        port: Some(sender as u32),
        queue_pair: Some(0x100 + receiver as u32),
        rails: 1,
        send: Some(send),
        receive: Some(receive),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::WaitKind;

    #[test]
    fn the_same_seed_makes_the_same_job_in_which_at_most_one_side_of_a_message_is_late() {
        let job = Job::synthetic(4, 1000, 7);
        assert_eq!(job, Job::synthetic(4, 1000, 7));
        for message in &job.messages {
            assert_ne!(message.sender, message.receiver);
            assert!(message.delay().is_some_and(|delay| delay >= 700));
        }
        let waits = job.message_waits();
        for kind in [WaitKind::LateSender, WaitKind::LateReceiver] {
            assert!(waits.iter().filter(|(_, wait)| wait.kind == kind).count() > 50, "{kind:?}");
        }
        let is_late = |kind| matches!(kind, WaitKind::LateSender | WaitKind::LateReceiver);
        let mut late: Vec<usize> =
            waits.iter().filter(|(_, wait)| is_late(wait.kind)).map(|(place, _)| *place).collect();
        let all = late.len();
        late.dedup();
        assert_eq!(late.len(), all);
    }
}
