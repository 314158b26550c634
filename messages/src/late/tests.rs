// SPDX-License-Identifier: MIT OR Apache-2.0
//! Injected waits, each with computing before it, and programs without waits.

use super::*;
use crate::model::{Pause, Rank};

/// A message from rank 0 to rank 1: the sender's times, then the receiver's, and the MPI calls that wait.
struct Planted {
    protocol: Protocol,
    sent: i64,
    sender: (i64, i64),
    done: i64,
    called: i64,
    receiver: (i64, i64),
    matched: i64,
    transfer: (i64, i64),
}

#[allow(clippy::unnecessary_wraps, reason = "as sides have it")]
fn at(time: i64) -> Option<Time> {
    Some(Time::new(time))
}

fn call(rank: u32, (begun, ended): (i64, i64)) -> Call {
    Call::made(rank, 0, Time::new(begun), at(ended))
}

impl Planted {
    /// Adds another message to a job, by calls that exist.
    fn add(&self, job: &mut Job, (of_sender, of_receiver): (u32, u32)) {
        let mut message = Job::synthetic(2, 1, 1).messages.remove(0);
        (message.sender, message.receiver, message.protocol) = (0, 1, Some(self.protocol));
        message.send = Some(SendSide {
            activated: at(self.sent),
            ended: at(self.done - 1),
            completed: at(self.done),
            call: Some(of_sender),
            ..SendSide::default()
        });
        message.receive = Some(ReceiveSide {
            activated: at(self.called),
            matched: at(self.matched),
            begun: at(self.transfer.0),
            ended: at(self.transfer.1),
            completed: at(self.receiver.1 - 2),
            call: Some(of_receiver),
            ..ReceiveSide::default()
        });
        job.messages.push(message);
    }

    fn job(&self) -> Job {
        let rank = |rank| Rank { rank, has_calls: true, is_whole: true, clock_error: Some(2), ..Rank::default() };
        let mut job = Job { ranks: vec![rank(0), rank(1)], ..Job::default() };
        job.calls = vec![call(0, self.sender), call(1, self.receiver)];
        self.add(&mut job, (0, 1));
        job
    }
}

fn waits(job: &Job) -> Vec<(WaitKind, i64, i64)> {
    let of = |(_, wait): (usize, Wait)| (wait.kind, wait.from.nanoseconds(), wait.to.nanoseconds());
    job.message_waits().into_iter().map(of).collect()
}

use WaitKind::{LateReceiver, LateSender, LateWait, NoProgress};

/// Both ranks have called and compute until 300; the receiver reads the announced message then.
const COMPUTING: Planted = Planted {
    protocol: Protocol::Read,
    sent: 20,
    sender: (300, 330),
    done: 325,
    called: 10,
    receiver: (300, 320),
    matched: 302,
    transfer: (303, 315),
};

#[test]
fn the_wait_for_a_late_sender_lasts_from_the_entry_of_the_wait_to_the_call_of_the_send() {
    let eager = Planted { protocol: Protocol::Inline, sent: 350, sender: (350, 352), done: 351, ..COMPUTING };
    let planted = Planted { receiver: (300, 360), matched: 355, ..eager };
    assert_eq!(waits(&planted.job()), [(LateSender, 300, 350)]);
    let blocking = Planted { called: 302, ..planted };
    assert_eq!(waits(&blocking.job()), [(LateSender, 302, 350)]);
    // The receive of a probed message is called after the probe.
    let probed = Planted { called: 365, matched: 366, ..blocking };
    assert_eq!(waits(&probed.job()), [(LateSender, 300, 350)]);
}

#[test]
fn no_wait_is_longer_than_its_call_or_goes_on_beyond_the_match() {
    let planted = Planted { protocol: Protocol::Inline, sent: 900, sender: (900, 901), done: 901, ..COMPUTING };
    assert_eq!(waits(&Planted { matched: 990, ..planted }.job()), [(LateSender, 300, 320)]);
    assert_eq!(waits(&Planted { matched: 310, ..planted }.job()), [(LateSender, 300, 310)]);
}

#[test]
fn a_receiver_that_computes_between_receive_and_wait_has_no_late_sender() {
    for sent in [5, 20, 280] {
        let planted =
            Planted { protocol: Protocol::Copied, sent, sender: (sent, sent + 2), done: sent + 1, ..COMPUTING };
        assert_eq!(waits(&planted.job()), [], "sent at {sent}");
    }
}

#[test]
fn the_wait_for_a_late_receiver_lasts_from_the_entry_of_the_wait_to_the_call_of_the_receive() {
    let planted = Planted {
        sender: (100, 460),
        done: 455,
        called: 400,
        receiver: (400, 440),
        matched: 401,
        transfer: (402, 438),
        ..COMPUTING
    };
    assert_eq!(waits(&planted.job()), [(LateReceiver, 100, 400)]);
    // The sender of a short message waits for the adapter alone.
    let short = Planted { protocol: Protocol::Copied, ..planted };
    assert_eq!(waits(&short.job()), []);
    let mut synchronous = short.job();
    synchronous.messages[0].send.as_mut().unwrap().ended = at(25);
    assert_eq!(waits(&synchronous), [(LateReceiver, 100, 400)]);
    let buffered = Planted { sender: (100, 120), done: 115, ..planted };
    assert_eq!(waits(&buffered.job()), []);
}

#[test]
fn a_receiver_that_has_called_its_receive_and_computes_makes_no_progress() {
    let planted = Planted { sender: (20, 330), ..COMPUTING };
    assert_eq!(waits(&planted.job()), [(NoProgress, 20, 300)]);
    // The adapter has read the message; the receiver's answer is missing.
    let read = Planted { matched: 51, called: 50, transfer: (52, 110), ..planted };
    let mut job = read.job();
    job.calls.push(call(1, (150, 170)));
    assert_eq!(
        waits(&job),
        [
            (LateReceiver, 20, 50),
            (NoProgress, 50, 52),
            (NoProgress, 110, 150),
            (LateWait, 110, 300),
            (NoProgress, 170, 300)
        ]
    );
}

#[test]
fn a_message_waits_from_its_arrival_until_its_receiver_asks_for_it() {
    let eager = Planted { protocol: Protocol::Inline, sender: (20, 22), done: 21, ..COMPUTING };
    let arrived = |called: i64, arrived: i64| {
        let mut job = Planted { called, ..eager }.job();
        job.messages[0].receive.as_mut().unwrap().arrived = at(arrived);
        waits(&job)
    };
    assert_eq!(arrived(10, 24), [(LateWait, 24, 300)]);
    assert_eq!(arrived(200, 24), [(LateWait, 200, 300)], "unexpected before");
    assert_eq!(arrived(10, 302), [], "the receiver polls, and then knows of it");
    assert_eq!(arrived(301, 24), [], "a blocking receive asks at once");
    // The announced data has not arrived yet.
    let mut announced = COMPUTING.job();
    announced.messages[0].receive.as_mut().unwrap().arrived = at(24);
    assert_eq!(waits(&announced), []);
    // Without the call it is unknown when the program asked for the message.
    let mut tested = Planted { transfer: (100, 110), ..COMPUTING }.job();
    assert_eq!(waits(&tested), [(LateWait, 110, 300)]);
    tested.messages[0].receive.as_mut().unwrap().call = None;
    assert_eq!(waits(&tested), []);
}

#[test]
fn a_receiver_that_is_in_mpi_for_something_else_makes_progress() {
    let mut job = Planted { sender: (20, 330), ..COMPUTING }.job();
    job.calls.extend([call(1, (5, 200)), call(1, (150, 301))]);
    assert_eq!(waits(&job), []);
}

#[test]
fn no_rank_waits_if_both_compute_while_the_message_is_in_flight() {
    assert_eq!(waits(&COMPUTING.job()), []);
}

#[test]
fn if_a_call_waits_for_several_messages_the_longest_wait_counts() {
    let planted = Planted { receiver: (300, 500), ..COMPUTING };
    let mut job = planted.job();
    for sent in [350, 480, 420] {
        let late = Planted { protocol: Protocol::Inline, sent, done: sent, matched: sent + 5, ..planted };
        late.add(&mut job, (0, 1));
    }
    assert_eq!(waits(&job), [(LateSender, 300, 480)]);
    assert_eq!(job.message_waits()[0].0, 2, "the message that came last");
    job.messages[3].receive.as_mut().unwrap().activated = at(481);
    job.messages[3].send.as_mut().unwrap().activated = at(490);
    job.messages[3].receive.as_mut().unwrap().matched = at(492);
    assert_eq!(waits(&job), [(LateSender, 300, 480), (LateSender, 481, 490)]);
}

#[test]
fn a_job_has_no_waits_where_no_calls_are_recorded() {
    let mut job = Planted { sender: (20, 330), ..COMPUTING }.job();
    job.ranks[1].has_calls = false;
    assert_eq!(waits(&job), [], "nothing tells where the receiver was");
    (job.ranks[1].has_calls, job.ranks[1].is_whole) = (true, false);
    assert_eq!(waits(&job), [(NoProgress, 20, 300)]);
    job.calls.pop();
    assert_eq!(waits(&job), [], "its trace had ended");
    let mut late = Planted { sent: 310, matched: 318, ..COMPUTING }.job();
    assert_eq!(waits(&late), [(LateSender, 300, 310)]);
    late.messages[0].receive.as_mut().unwrap().call = None;
    assert_eq!(waits(&late), []);
}

#[test]
fn a_job_has_no_waits_while_a_program_has_stopped_the_recording() {
    let mut job = Planted { sender: (20, 330), ..COMPUTING }.job();
    job.pauses.push(Pause { rank: 1, from: Time::new(100), to: at(200) });
    assert_eq!(waits(&job), [(NoProgress, 20, 100), (NoProgress, 200, 300)]);
    job.pauses[0].to = None;
    assert_eq!(waits(&job), [(NoProgress, 20, 100)]);
}

#[test]
fn a_call_that_had_not_returned_when_the_trace_ended_goes_on() {
    let mut job = Planted { sender: (20, 330), ..COMPUTING }.job();
    job.calls[0].ended = None;
    assert_eq!(waits(&job), [(NoProgress, 20, 300)]);
}
