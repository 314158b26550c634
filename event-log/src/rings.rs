// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records on their way from callbacks to the recorder's writing thread: a ring for each thread, so that no two threads
//! write to the same memory.
//!
//! A thread takes a ring with its first event ([`Rings::mine`]) and keeps it until it ends; the writing thread empties
//! all ([`Rings::readable`]), and gives back those whose threads have ended ([`Rings::recycle`]). The memory of all is
//! reserved at once and given by the system page by page as it is used: a callback allocates nothing. An event lies in
//! one piece: where it would go beyond the end of a ring it begins at the start, and `lap_end` says where this lap ends.
//!
//! Called by `recording.rs` (callbacks) and `recorder.rs`. Safety, for every unsafe block: **R1** the thread that owns a
//! ring alone writes slots between `tail + room` and `head`, and the writing thread alone reads those between `tail` and
//! `head`; each says by a release that it has done so. Grade: [`Ring::put`] hot, the rest pending. Tests: below; with
//! `cargo bench -p ibex-event-log`.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};

use ibex_trace::{Record, Room};

/// How many threads can record at a time.
pub(crate) const THREADS: usize = 64;

/// Nobody's ring, and the writing thread has emptied it.
const FREE: u32 = 0;
/// A thread's.
const TAKEN: u32 = 1;

unsafe extern "C" {
    /// The calling thread's variable (mpi.c): the place of its ring, and one more; 0: it has none; `usize::MAX`: it gets
    /// none. In C, as Rust has no way to say that it lies where no access ever allocates.
    safe fn ibex_log_mine() -> *mut usize;
}

/// That.
#[inline]
fn mine() -> &'static Cell<usize> {
    // SAFETY: the thread's own, to which nobody else has a way; it is used by this thread, at once.
    unsafe { &*ibex_log_mine().cast::<Cell<usize>>() }
}

/// A part of a cache line that the other side does not write to.
#[repr(align(128))]
struct Apart<T>(T);

/// The ring of a thread.
pub(crate) struct Ring {
    slots: *mut Record,
    room: usize,
    state: AtomicU32,
    /// The thread's number in the trace.
    thread: AtomicU32,
    /// The thread's number in the system.
    system: AtomicI32,
    /// Where the next event goes, in slots since the beginning. The owner's.
    head: Apart<AtomicUsize>,
    /// Where the lap ended that was ended last.
    lap_end: AtomicUsize,
    /// What the owner knows of `tail`.
    known_tail: AtomicUsize,
    /// The owner is within [`Ring::put`].
    busy: AtomicBool,
    /// Up to where the writing thread has read. Its own.
    tail: Apart<AtomicUsize>,
}

// SAFETY: R1.
unsafe impl Sync for Ring {}
// SAFETY: as above; the memory is nobody's own.
unsafe impl Send for Ring {}

impl Ring {
    fn new(slots: *mut Record, room: usize) -> Ring {
        Ring {
            slots,
            room,
            state: AtomicU32::new(FREE),
            thread: AtomicU32::new(0),
            system: AtomicI32::new(0),
            head: Apart(AtomicUsize::new(0)),
            lap_end: AtomicUsize::new(0),
            known_tail: AtomicUsize::new(0),
            busy: AtomicBool::new(false),
            tail: Apart(AtomicUsize::new(0)),
        }
    }

    /// Puts an event in, of as many records as `pack` says that it has packed. False: there is no room, or a signal has
    /// come while its thread was here.
    ///
    /// # Safety
    /// The calling thread owns the ring.
    #[inline]
    pub(crate) unsafe fn put(&self, pack: impl FnOnce(&mut Room) -> usize) -> bool {
        // Relaxed: of the same thread, which a signal may have interrupted.
        if self.busy.load(Ordering::Relaxed) {
            return false;
        }
        self.busy.store(true, Ordering::Relaxed);
        let head = self.head.0.load(Ordering::Relaxed);
        let (place, most) = (head & (self.room - 1), size_of::<Room>() / size_of::<Record>());
        let is_free = |next: usize| next - self.known_tail.load(Ordering::Relaxed) <= self.room;
        let has_room = if place + most < self.room && is_free(head + most) {
            // SAFETY: R1: these slots are within the ring and free, and all bytes are a record.
            let count = pack(unsafe { &mut *self.slots.add(place).cast::<Room>() });
            self.head.0.store(head + count, Ordering::Release);
            true
        } else {
            let mut packed = Room::default();
            let count = pack(&mut packed);
            self.put_near_end(head, &packed[..count])
        };
        self.busy.store(false, Ordering::Relaxed);
        has_room
    }

    /// The same near the end of a lap, or where there may be no room. False: there is none.
    #[cold]
    fn put_near_end(&self, head: usize, records: &[Record]) -> bool {
        let (place, count) = (head & (self.room - 1), records.len());
        let ends_here = place + count >= self.room;
        let (place, next) =
            if place + count <= self.room { (place, head + count) } else { (0, head - place + self.room + count) };
        // Acquire: pairs with the release in `release`, so that what is read there is not overwritten before.
        self.known_tail.store(self.tail.0.load(Ordering::Acquire), Ordering::Relaxed);
        let has_room = next - self.known_tail.load(Ordering::Relaxed) <= self.room;
        if has_room {
            if ends_here {
                let end = if place == 0 && count < self.room { head & (self.room - 1) } else { self.room };
                self.lap_end.store(end, Ordering::Relaxed);
            }
            for (offset, record) in records.iter().enumerate() {
                // SAFETY: R1: these slots are within the ring and free.
                unsafe { self.slots.add(place + offset).write(*record) };
            }
            self.head.0.store(next, Ordering::Release);
        }
        has_room
    }

    /// What waits, as far as it lies in one piece; whole events. Empty: nothing does. By the writing thread.
    pub(crate) fn waiting(&self) -> &[Record] {
        let tail = self.tail.0.load(Ordering::Relaxed);
        // Acquire: pairs with the release in `put`.
        let head = self.head.0.load(Ordering::Acquire);
        let (first, mut last) = (tail & (self.room - 1), head & (self.room - 1));
        if head == tail {
            return &[];
        }
        if head / self.room != tail / self.room {
            // The owner cannot end a further lap before the tail is beyond this one.
            last = self.lap_end.load(Ordering::Relaxed);
            if first == last {
                // The lap was ended before its end, and all of it was read.
                self.tail.0.store(tail - first + self.room, Ordering::Release);
                return self.waiting();
            }
        }
        // SAFETY: R1.
        unsafe { std::slice::from_raw_parts(self.slots.add(first), last - first) }
    }

    /// The first so many records of what waits have been read.
    pub(crate) fn release(&self, count: usize) {
        let tail = self.tail.0.load(Ordering::Relaxed);
        self.tail.0.store(tail + count, Ordering::Release);
    }

    /// How many records wait.
    pub(crate) fn filled(&self) -> usize {
        self.head.0.load(Ordering::Acquire) - self.tail.0.load(Ordering::Relaxed)
    }

    /// The number of its thread in the trace.
    pub(crate) fn thread(&self) -> u32 {
        self.thread.load(Ordering::Relaxed)
    }
}

/// The rings of a process.
pub(crate) struct Rings {
    rings: Vec<Ring>,
    threads: AtomicU32,
}

impl Rings {
    /// For [`THREADS`] threads, each with room for so many records, a power of two. They are never freed. `None`: the
    /// system has no memory.
    pub(crate) fn new(room: usize) -> Option<Rings> {
        assert!(room.is_power_of_two(), "{room} records");
        let size = THREADS * room * size_of::<Record>();
        let (rights, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
        // SAFETY: new memory, which nobody has.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), size, rights, kind, -1, 0) };
        if memory == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: each ring's part lies within what was just got; all bytes 0 is a record.
        let ring = |place| Ring::new(unsafe { memory.cast::<Record>().add(place * room) }, room);
        Some(Rings { rings: (0..THREADS).map(ring).collect(), threads: AtomicU32::new(0) })
    }

    /// The calling thread's. `None`: more than [`THREADS`] threads record.
    #[inline]
    pub(crate) fn mine(&self) -> Option<&Ring> {
        let place = mine().get();
        if place == 0 { self.take() } else { self.rings.get(place - 1) }
    }

    /// With a thread's first event: takes a free ring for it. The one system call of a callback asks for the thread's
    /// number.
    #[cold]
    fn take(&self) -> Option<&Ring> {
        let free = |ring: &&Ring| {
            // Acquire: pairs with the release in `recycle`.
            let taken = ring.state.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed);
            taken.is_ok()
        };
        let Some(place) = self.rings.iter().position(|ring| free(&ring)) else {
            mine().set(usize::MAX);
            return None;
        };
        let ring = &self.rings[place];
        ring.thread.store(self.threads.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        // SAFETY: no arguments.
        ring.system.store(unsafe { libc::gettid() }, Ordering::Release);
        mine().set(place + 1);
        Some(ring)
    }

    /// Those that have events, by the writing thread.
    pub(crate) fn readable(&self) -> impl Iterator<Item = &Ring> {
        self.rings.iter().filter(|ring| ring.filled() > 0)
    }

    /// Gives back the rings of threads that have ended and left nothing in them, by the writing thread.
    pub(crate) fn recycle(&self) {
        // SAFETY: no arguments.
        let process = unsafe { libc::getpid() };
        for ring in &self.rings {
            let system = ring.system.load(Ordering::Acquire);
            if system == 0 || ring.state.load(Ordering::Relaxed) == FREE {
                continue;
            }
            // SAFETY: signal 0 is none: it only asks whether there is such a thread.
            let ended = unsafe { libc::syscall(libc::SYS_tgkill, process, system, 0) } != 0;
            // Asked after that: what it put in before it ended is seen.
            if ended && ring.filled() == 0 {
                ring.system.store(0, Ordering::Relaxed);
                ring.state.store(FREE, Ordering::Release);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts an event of so many records, by the thread that owns the ring.
    fn put(ring: &Ring, number: u64, records: usize) -> bool {
        let pack = |room: &mut Room| {
            for (place, record) in room[..records].iter_mut().enumerate() {
                record.words = [number, place as u64, records as u64, 0];
            }
            records
        };
        // SAFETY: the callers got it from `mine`.
        unsafe { ring.put(pack) }
    }

    #[test]
    fn events_of_several_records_come_out_whole_and_in_order_over_many_laps() {
        let rings = Rings::new(16).expect("memory");
        let ring = rings.mine().expect("one of few threads");
        let (mut put, mut got) = (0_u64, 0);
        for round in 0..1000 {
            loop {
                if !self::put(ring, put, 1 + (put as usize * 7 + round) % 5) {
                    break;
                }
                put += 1;
            }
            assert!(ring.filled() > 7, "{}: no room for an event of 5 at most", ring.filled());
            for _ in 0..=round % 7 {
                let Some(first) = ring.waiting().first().copied() else { break };
                let count = first.words[2] as usize;
                let waiting = &ring.waiting()[..count];
                assert!((0..count).all(|record| waiting[record].words[..2] == [got, record as u64]), "{waiting:?}");
                ring.release(count);
                got += 1;
            }
        }
        assert!(put > 2000, "{put}");
    }

    #[test]
    fn what_a_thread_puts_in_while_another_takes_out_comes_out_once_and_in_order() {
        const EVENTS: u64 = if cfg!(miri) { 300 } else { 200_000 };
        let rings = Rings::new(64).expect("memory");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let ring = rings.mine().expect("one of few threads");
                for number in 0..EVENTS {
                    while !put(ring, number, 1 + (number % 3) as usize) {
                        std::thread::yield_now();
                    }
                }
            });
            let mut next = 0;
            while next < EVENTS {
                for ring in rings.readable() {
                    let waiting = ring.waiting();
                    let mut at = 0;
                    while at < waiting.len() {
                        assert_eq!(waiting[at].words[0], next);
                        at += waiting[at].words[2] as usize;
                        next += 1;
                    }
                    assert_eq!(at, waiting.len(), "whole events");
                    let count = waiting.len();
                    ring.release(count);
                }
                std::thread::yield_now();
            }
        });
    }

    #[test]
    fn a_thread_that_has_ended_gives_its_ring_back_and_each_thread_has_a_number_of_its_own() {
        let rings = Rings::new(16).expect("memory");
        let mut numbers = std::collections::BTreeSet::new();
        for round in 0..3 * THREADS {
            let number = std::thread::scope(|scope| {
                let one = scope.spawn(|| {
                    let ring = rings.mine().expect("there is one again");
                    assert!(put(ring, 1, 1));
                    ring.thread()
                });
                one.join().expect("no panic")
            });
            assert!(numbers.insert(number), "{number} in round {round}");
            // The system may say that a thread is there for a little longer than its scope.
            while rings.readable().count() > 0
                || rings.rings.iter().any(|ring| ring.state.load(Ordering::Relaxed) != FREE)
            {
                rings.recycle();
                rings.readable().for_each(|ring| ring.release(ring.waiting().len()));
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn a_signal_in_the_middle_of_an_event_loses_its_own_and_harms_none() {
        let rings = Rings::new(16).expect("memory");
        let ring = rings.mine().expect("one of few threads");
        ring.busy.store(true, Ordering::Relaxed);
        assert!(!put(ring, 1, 1));
        ring.busy.store(false, Ordering::Relaxed);
        assert!(put(ring, 2, 1) && ring.waiting()[0].words[0] == 2);
    }
}
