// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares clocks periodically during long runs: a thread of one rank of each host asks a thread of rank 0
//! (`datagrams.rs`). Neither calls MPI; both mostly sleep, and a sample takes milliseconds. Called by `meeting.rs`.
//! Grade: pending. Threads: the two it starts (`thread.rs`). Tests: below; tests/trace.rs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ibex_trace::ClockSample;

use crate::datagrams::{Answering, Asking};
use crate::mpi;
use crate::thread::{self, Ready, Stop};

pub(crate) enum Found {
    Sample(ClockSample),
    /// No answer comes from these addresses.
    Unanswered(Vec<SocketAddr>),
}

pub(crate) enum Part {
    Answers(Arc<Answering>),
    Asks {
        asking: Asking,
        every: Duration,
        /// Time until the first question.
        first: Duration,
    },
}

pub(crate) struct Intervals {
    thread: JoinHandle<()>,
    stop: Arc<Stop>,
    /// The answering side, which may have to be woken.
    answering: Option<Arc<Answering>>,
}

impl Intervals {
    /// Starts the thread for this task. `None`: the system cannot start one.
    pub(crate) fn start(part: Part, found: fn(Found)) -> Option<Intervals> {
        let stop = Arc::new(Stop::default());
        let answering = if let Part::Answers(answering) = &part { Some(Arc::clone(answering)) } else { None };
        let of_thread = Arc::clone(&stop);
        let run = move |ready: Ready| {
            // The thread's first allocation, before `ready` (`thread.rs`).
            drop(std::hint::black_box(vec![0_u8; 64]));
            ready.tell();
            match part {
                Part::Answers(answering) => answering.answer(mpi::monotonic, || of_thread.is_set()),
                Part::Asks { asking, every, first } => ask(asking, (every, first), &of_thread, found),
            }
        };
        let thread = thread::start("ibex-clocks", run)?;
        Some(Intervals { thread, stop, answering })
    }

    pub(crate) fn stop(self) {
        self.stop.set();
        if let Some(answering) = &self.answering {
            answering.wake();
        }
        let _ = self.thread.join();
    }
}

fn ask(mut asking: Asking, (every, first): (Duration, Duration), stop: &Stop, found: fn(Found)) {
    let (mut wait, mut answered, mut is_told) = (first, false, false);
    while !stop.sleep(wait) {
        wait = every;
        match asking.ask(mpi::monotonic, || stop.is_set()) {
            Some(sample) => {
                answered = true;
                found(Found::Sample(sample));
            }
            None if stop.is_set() => {}
            // Once a host has answered, missing samples only widen the error bounds of later times.
            None if answered || is_told => {}
            None => {
                is_told = true;
                found(Found::Unanswered(asking.addresses().to_vec()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagrams::TRIES;
    use std::net::{IpAddr, Ipv4Addr, UdpSocket};
    use std::sync::{Mutex, mpsc};

    static FOUND: Mutex<Option<mpsc::Sender<Found>>> = Mutex::new(None);

    fn found(found: Found) {
        let to = FOUND.lock().expect("no panic");
        let _ = to.as_ref().expect("set").send(found);
    }

    #[test]
    fn a_host_compares_clocks_repeatedly_and_reports_missing_answers_once() {
        let (to, from) = mpsc::channel();
        *FOUND.lock().expect("no panic") = Some(to);
        let answering = Arc::new(Answering::open().expect("a socket"));
        let told = answering.told(&[IpAddr::V4(Ipv4Addr::LOCALHOST)]);
        let asks = |told| Part::Asks {
            asking: Asking::new(told).expect("an address"),
            every: Duration::from_millis(1),
            first: Duration::ZERO,
        };
        let answers = Intervals::start(Part::Answers(Arc::clone(&answering)), found).expect("a thread");
        let asker = Intervals::start(asks(&told), found).expect("a thread");
        // On a busy machine answers may come too late.
        let answered = from.iter().filter_map(|found| match found {
            Found::Sample(sample) => Some(sample),
            Found::Unanswered(_) => None,
        });
        let samples: Vec<ClockSample> = answered.take(3).collect();
        asker.stop();
        answers.stop();
        assert!(samples.windows(2).all(|two| two[0].after <= two[1].before), "{samples:?}");
        // It is the same clock, so the reading lies between the two others.
        let shown = |sample: &ClockSample| (sample.before..=sample.after).contains(&sample.shown.cast_signed());
        assert!(samples.iter().all(shown), "{samples:?}");
        while from.try_recv().is_ok() {}

        let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let mut told = told;
        told[1] = i64::from(silent.local_addr().expect("bound").port());
        let asker = Intervals::start(asks(&told), found).expect("a thread");
        // The asking side gives the address up three times before it sends the last of these.
        for _ in 0..=3 * TRIES {
            silent.recv(&mut [0; 64]).expect("asked");
        }
        asker.stop();
        let told_of: Vec<Found> = from.try_iter().collect();
        let [Found::Unanswered(addresses)] = &told_of[..] else { panic!("it says so once") };
        assert_eq!(addresses.len(), 1);
    }
}
