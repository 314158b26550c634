// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads another host's clock over UDP, because a thread of the recorder must not call MPI while the application
//! computes: rank 0's host answers, the others ask. A request has 24 bytes: a random word of this job from rank 0, a
//! number, and zero; the answer has the word, the number and the clock. Both sides ignore datagrams with another word,
//! and no answer is longer than its request. The asking side gives an address up after [`TRIES`] questions. Called
//! by `intervals.rs`. Grade: pending. Threads: one asks, one answers. Tests: below; tests/trace.rs.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use ibex_trace::{Clock, ClockSample};

/// Number of questions for one sample; the fastest exchange counts.
const ROUNDS: u32 = 30;

/// Time to wait for the first answer. The wait doubles after each question without one, as a busy host answers late.
const WAIT: Duration = Duration::from_millis(50);

/// Number of questions without an answer after which an address is given up.
pub(crate) const TRIES: u32 = 3;

/// Longest sleep of the answering thread, in case the datagram that wakes it is lost.
const SLEEP: Duration = Duration::from_secs(1);

const ADDRESSES: usize = 12;

/// Length of the description of rank 0's answering host, in numbers of 64 bits.
pub(crate) const NUMBERS: usize = 3 + 2 * ADDRESSES;

/// Word, number, time of the clock.
type Datagram = [u8; 24];

fn datagram(words: [u64; 3]) -> Datagram {
    let mut bytes = [0; 24];
    bytes.as_chunks_mut().0.iter_mut().zip(words).for_each(|(bytes, word)| *bytes = word.to_le_bytes());
    bytes
}

fn words(bytes: &[u8]) -> Option<[u64; 3]> {
    let (words, []) = bytes.as_chunks() else { return None };
    words.iter().map(|word| u64::from_le_bytes(*word)).collect::<Vec<_>>().try_into().ok()
}

/// Returns this host's addresses that others may reach; if there are none, those of the loopback interface.
pub(crate) fn addresses() -> Vec<IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default().into_iter();
    let up = interfaces.filter(|interface| interface.is_oper_up() || interface.is_loopback());
    let is_of_link = |address: &IpAddr| matches!(address, IpAddr::V6(six) if six.is_unicast_link_local());
    let reachable = up.map(|interface| interface.ip()).filter(|address| !is_of_link(address));
    let (own, others): (Vec<_>, Vec<_>) = reachable.partition(IpAddr::is_loopback);
    if others.is_empty() { own } else { others }
}

pub(crate) struct Answering {
    socket: UdpSocket,
    word: u64,
    port: u16,
}

impl Answering {
    pub(crate) fn open() -> std::io::Result<Answering> {
        // With IPv6, one socket takes both protocols.
        let both = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0));
        let socket = both.or_else(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
        socket.set_read_timeout(Some(SLEEP))?;
        let port = socket.local_addr()?.port();
        Ok(Answering { socket, word: RandomState::new().build_hasher().finish(), port })
    }

    /// Returns the description for [`Asking::new`] of a host with these addresses.
    pub(crate) fn told(&self, addresses: &[IpAddr]) -> [i64; NUMBERS] {
        let addresses = &addresses[..addresses.len().min(ADDRESSES)];
        let mut numbers = [0; NUMBERS];
        let head = [self.word, u64::from(self.port), addresses.len() as u64];
        let each = addresses.iter().flat_map(|address| {
            let bits = match address {
                IpAddr::V4(four) => four.to_ipv6_mapped().to_bits(),
                IpAddr::V6(six) => six.to_bits(),
            };
            [(bits >> 64) as u64, bits as u64]
        });
        numbers.iter_mut().zip(head.into_iter().chain(each)).for_each(|(to, from)| *to = from.cast_signed());
        numbers
    }

    /// Answers with the time of the clock, until `is_stopped` returns true and [`Answering::wake`] is called.
    pub(crate) fn answer(&self, now: impl Fn() -> i64, is_stopped: impl Fn() -> bool) {
        let mut bytes = [0; 64];
        while !is_stopped() {
            match self.socket.recv_from(&mut bytes) {
                Ok((count, from)) => {
                    if let Some([word, number, _]) = words(&bytes[..count])
                        && word == self.word
                    {
                        // If this answer is lost, the other side asks again.
                        let _ = self.socket.send_to(&datagram([word, number, now().cast_unsigned()]), from);
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                // Pause, so that a lasting error does not occupy a processor.
                Err(_) => std::thread::sleep(WAIT),
            }
        }
    }

    /// Ends a sleep of [`Answering::answer`].
    pub(crate) fn wake(&self) {
        let is_ipv6 = self.socket.local_addr().is_ok_and(|address| address.is_ipv6());
        let own = if is_ipv6 { IpAddr::V6(Ipv6Addr::LOCALHOST) } else { IpAddr::V4(Ipv4Addr::LOCALHOST) };
        // If this is lost, the thread sleeps up to a second more.
        let _ = self.socket.send_to(&[], (own, self.port));
    }
}

pub(crate) struct Asking {
    word: u64,
    addresses: Vec<SocketAddr>,
    /// Socket to the address that has answered.
    chosen: Option<UdpSocket>,
    number: u64,
}

impl Asking {
    /// Takes the description of rank 0's host; `None`: it does not answer.
    pub(crate) fn new(told: &[i64; NUMBERS]) -> Option<Asking> {
        let [word, port, count, ..] = told.map(i64::cast_unsigned);
        let port = u16::try_from(port).ok()?;
        let pairs = told[3..].as_chunks::<2>().0.iter().map(|pair| pair.map(i64::cast_unsigned));
        let address = |[high, low]: [u64; 2]| {
            let six = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
            SocketAddr::new(six.to_ipv4_mapped().map_or(IpAddr::V6(six), IpAddr::V4), port)
        };
        let addresses: Vec<SocketAddr> = pairs.take(usize::try_from(count).ok()?).map(address).collect();
        (!addresses.is_empty()).then_some(Asking { word, addresses, chosen: None, number: 0 })
    }

    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns a sample of rank 0's clock by this host's clock, `now`. `None`: there is no answer, or it is to stop.
    pub(crate) fn ask(&mut self, now: impl Fn() -> i64, is_stopped: impl Fn() -> bool) -> Option<ClockSample> {
        let socket = self.chosen.take().or_else(|| self.find(&now, &is_stopped))?;
        let (mut best, mut unanswered) = (None, 0);
        for _ in 0..ROUNDS {
            match self.ask_once(&socket, unanswered, &now) {
                Some(sample) => best = Some(best.map_or(sample, |best| narrower(best, sample))),
                None => unanswered += 1,
            }
            if unanswered == TRIES || is_stopped() {
                break;
            }
        }
        self.chosen = best.is_some().then_some(socket);
        best
    }

    fn find(&mut self, now: &impl Fn() -> i64, is_stopped: &impl Fn() -> bool) -> Option<UdpSocket> {
        for address in self.addresses.clone() {
            let own = if address.is_ipv6() { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { Ipv4Addr::UNSPECIFIED.into() };
            let socket = UdpSocket::bind((own, 0)).and_then(|socket| {
                socket.connect(address)?;
                Ok(socket)
            });
            let Ok(socket) = socket else { continue };
            for unanswered in 0..TRIES {
                if is_stopped() {
                    return None;
                }
                if self.ask_once(&socket, unanswered, now).is_some() {
                    return Some(socket);
                }
            }
        }
        None
    }

    /// Asks once more, after so many questions without an answer.
    fn ask_once(&mut self, socket: &UdpSocket, unanswered: u32, now: &impl Fn() -> i64) -> Option<ClockSample> {
        socket.set_read_timeout(Some(WAIT * 2_u32.pow(unanswered))).ok()?;
        self.number += 1;
        let request = datagram([self.word, self.number, 0]);
        let mut bytes = [0; 64];
        let before = now();
        socket.send(&request).ok()?;
        // Answers to earlier questions may arrive first.
        for _ in 0..=TRIES {
            let count = socket.recv(&mut bytes).ok()?;
            let after = now();
            if let Some([word, number, shown]) = words(&bytes[..count])
                && (word, number) == (self.word, self.number)
            {
                return Some(ClockSample { clock: Clock::Rank(0), shown, before, after });
            }
        }
        None
    }
}

fn narrower(one: ClockSample, other: ClockSample) -> ClockSample {
    let took = |sample: &ClockSample| sample.after.abs_diff(sample.before);
    if took(&other) < took(&one) { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    fn asked(of: &Answering, addresses: &[IpAddr]) -> Asking {
        Asking::new(&of.told(addresses)).expect("there are addresses")
    }

    /// Asks until an answer comes, because on a busy machine one may be too late.
    fn answered(asking: &mut Asking, now: impl Fn() -> i64) -> ClockSample {
        (0..1000).find_map(|_| asking.ask(&now, || false)).expect("it answers")
    }

    /// Runs `does` while a thread answers with a clock that is 5 s ahead.
    fn answering(of: &Answering, begun: Instant, does: impl FnOnce()) {
        let is_stopped = AtomicBool::new(false);
        let ahead = || begun.elapsed().as_nanos() as i64 + 5_000_000_000;
        std::thread::scope(|scope| {
            scope.spawn(|| of.answer(ahead, || is_stopped.load(Ordering::Relaxed)));
            does();
            is_stopped.store(true, Ordering::Relaxed);
            of.wake();
        });
    }

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn the_time_in_an_answer_lies_between_question_and_answer() {
        let (of, begun) = (Answering::open().expect("a socket"), Instant::now());
        let mut asking = asked(&of, &[LOCAL]);
        let now = || begun.elapsed().as_nanos() as i64;
        answering(&of, begun, || {
            for _ in 0..3 {
                let sample = answered(&mut asking, now);
                let at = sample.shown.cast_signed() - 5_000_000_000;
                assert!(sample.clock == Clock::Rank(0) && (sample.before..=sample.after).contains(&at), "{sample:?}");
            }
        });
        assert!(asking.ask(now, || false).is_none(), "it answers no more");
    }

    #[test]
    fn the_asking_side_passes_over_an_address_that_does_not_answer() {
        let (of, begun) = (Answering::open().expect("a socket"), Instant::now());
        // This address is reserved for documentation, so no host has it.
        let nobody = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1));
        let mut asking = asked(&of, &[nobody, LOCAL]);
        assert_eq!(asking.addresses()[1], SocketAddr::new(LOCAL, of.port));
        let six: IpAddr = "fd00::7".parse().expect("an address");
        assert_eq!(asked(&of, &[six]).addresses(), [SocketAddr::new(six, of.port)]);
        answering(&of, begun, || assert_eq!(answered(&mut asking, || 0).before, 0));
    }

    #[test]
    fn both_sides_ignore_datagrams_of_another_job() {
        let (of, begun) = (Answering::open().expect("a socket"), Instant::now());
        let mut asking = asked(&of, &[LOCAL]);
        asking.word ^= 1;
        answering(&of, begun, || assert!(asking.ask(|| 0, || false).is_none()));
        let stranger = UdpSocket::bind((LOCAL, 0)).expect("a socket");
        let mut told = of.told(&[LOCAL]);
        told[1] = i64::from(stranger.local_addr().expect("bound").port());
        let mut asking = Asking::new(&told).expect("there are addresses");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut bytes = [0; 64];
                let (count, from) = stranger.recv_from(&mut bytes).expect("asked");
                // Too short, too long, to another question, of another job.
                for answer in [&bytes[..8], &bytes[..40], &datagram([of.word, 99, 1])[..], &datagram([1, 1, 1])[..]] {
                    stranger.send_to(answer, from).expect("sent");
                }
                assert_eq!(count, 24);
            });
            assert!(asking.ask(|| 0, || false).is_none());
        });
    }

    #[test]
    fn no_rank_asks_a_host_without_an_address() {
        let of = Answering::open().expect("a socket");
        assert!(Asking::new(&of.told(&[])).is_none() && Asking::new(&[0; NUMBERS]).is_none());
        assert_eq!(asked(&of, &[LOCAL; 40]).addresses().len(), ADDRESSES);
    }
}
