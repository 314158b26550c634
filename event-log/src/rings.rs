// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queues from callbacks to the writing thread of the logger or of the recorder: one ring per thread, so that no two
//! threads write to the same memory.
//!
//! A thread takes a ring with its first event ([`Rings::mine`]) and keeps it until it ends. The writing thread empties
//! all rings, and recycles those whose threads have ended. A callback allocates nothing: the first rings' memory is
//! reserved at start, further memory by the thread that finds no free ring. An event is contiguous: if it does not fit
//! before the end of the ring it begins at the start, and `lap_end` marks the end of the lap.
//!
//! Called by `target.rs` (callbacks), `recorder.rs` and `writer.rs`. Safety: **R1** only the thread that owns a ring
//! writes slots between `head` and `tail + room`, only the writing thread reads those between `tail` and `head`, and
//! each publishes its progress by a release store; **R2** rings and their slots are never freed. Grade: [`Ring::put`]
//! hot, the rest pending. Threads: each function says its own. Tests: below; tests/trace.rs.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use ibex_trace::{Record, Room};

/// Number of rings that are reserved at start.
pub(crate) const FIRST: usize = 64;

/// Number of rings that are reserved each time that no ring is free.
const FURTHER: usize = 16;

/// State of a ring without an owner, which the writing thread has emptied.
const FREE: u32 = 0;
const TAKEN: u32 = 1;

/// The use of the events in the rings. A thread has one ring for each use.
#[derive(Clone, Copy)]
pub(crate) enum Task {
    Text,
    Trace,
}

unsafe extern "C" {
    /// Returns the calling thread's variables (mpi.c): for each task its ring, or null. They are in C, because Rust
    /// cannot give them the thread-local storage model in which no access allocates.
    safe fn ibex_log_mine() -> *mut *const c_void;
}

#[inline]
fn mine(task: Task) -> &'static Cell<*const Ring> {
    // SAFETY: there is a variable for each task. They are the thread's own, and only this thread uses them.
    unsafe { &*ibex_log_mine().add(task as usize).cast::<Cell<*const Ring>>() }
}

/// A value on cache lines of its own, so that the other side's writes do not slow it down.
#[repr(align(128))]
struct Apart<T>(T);

pub(crate) struct Ring {
    slots: *mut Record,
    room: usize,
    state: AtomicU32,
    /// Number of the thread in the trace.
    thread: AtomicU32,
    /// Number of the thread in the system.
    system: AtomicI32,
    /// Position of the next event, in slots since the beginning. Written by the owner.
    head: Apart<AtomicUsize>,
    /// Position in the ring at which the last finished lap ended.
    lap_end: AtomicUsize,
    /// Value of `tail` when the owner last read it.
    known_tail: AtomicUsize,
    busy: AtomicBool,
    /// Position up to which the writing thread has read. Written by that thread.
    tail: Apart<AtomicUsize>,
}

// SAFETY: R1 for the slots; all other fields that change are atomics.
unsafe impl Sync for Ring {}
// SAFETY: R1, R2: the slots belong to no thread, and are never freed.
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

    /// Puts in an event: `pack` writes its records, and returns their number. False: no room, or `put` was interrupted.
    ///
    /// # Safety
    /// The calling thread owns the ring.
    #[inline]
    pub(crate) unsafe fn put(&self, pack: impl FnOnce(&mut Room) -> usize) -> bool {
        // Relaxed: written by the same thread, which a signal may have interrupted.
        if self.busy.load(Ordering::Relaxed) {
            return false;
        }
        self.busy.store(true, Ordering::Relaxed);
        let head = self.head.0.load(Ordering::Relaxed);
        let (place, most) = (head & (self.room - 1), size_of::<Room>() / size_of::<Record>());
        let is_free = |next: usize| next - self.known_tail.load(Ordering::Relaxed) <= self.room;
        let has_room = if place + most < self.room && is_free(head + most) {
            // SAFETY: R1: these slots are within the ring and free; every bit pattern is a record.
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

    /// [`Ring::put`] near the end of a lap, or if there may be no room. Returns false if there is none.
    #[cold]
    fn put_near_end(&self, head: usize, records: &[Record]) -> bool {
        let (place, count) = (head & (self.room - 1), records.len());
        let ends_here = place + count >= self.room;
        let (place, next) =
            if place + count <= self.room { (place, head + count) } else { (0, head - place + self.room + count) };
        // Acquire: pairs with the release in `release`, so slots are overwritten only after they have been read.
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

    /// Returns the waiting records up to the end of the lap, as whole events. Called by the writing thread.
    pub(crate) fn waiting(&self) -> &[Record] {
        let tail = self.tail.0.load(Ordering::Relaxed);
        // Acquire: pairs with the release in `put`.
        let head = self.head.0.load(Ordering::Acquire);
        let (first, mut last) = (tail & (self.room - 1), head & (self.room - 1));
        if head == tail {
            return &[];
        }
        if head / self.room != tail / self.room {
            // `lap_end` is of this lap: the owner finds room to end the next one only once `tail` has left this one.
            last = self.lap_end.load(Ordering::Relaxed);
            if first == last {
                // The owner ended the lap before the last slot, and all of it has been read.
                self.tail.0.store(tail - first + self.room, Ordering::Release);
                return self.waiting();
            }
        }
        // SAFETY: R1: the owner has written these slots, and overwrites them only after `release`.
        unsafe { std::slice::from_raw_parts(self.slots.add(first), last - first) }
    }

    /// Marks the first `count` waiting records as read, so that the owner may overwrite them.
    pub(crate) fn release(&self, count: usize) {
        let tail = self.tail.0.load(Ordering::Relaxed);
        self.tail.0.store(tail + count, Ordering::Release);
    }

    pub(crate) fn filled(&self) -> usize {
        self.head.0.load(Ordering::Acquire) - self.tail.0.load(Ordering::Relaxed)
    }

    pub(crate) fn thread(&self) -> u32 {
        self.thread.load(Ordering::Relaxed)
    }
}

/// Rings whose memory was reserved together (R2).
struct Batch {
    rings: &'static [Ring],
    next: AtomicPtr<Batch>,
    bytes: usize,
}

impl Batch {
    /// Reserves rings with room for `room` records for `count` threads; `None`: no memory. Only by system calls, as
    /// this may run in a callback, and Open MPI patches hooks into the C library's functions while other threads run.
    fn reserve(count: usize, room: usize) -> Option<&'static Batch> {
        let rings_at = size_of::<Batch>().next_multiple_of(align_of::<Ring>());
        // Aligned to a cache line, as `Ring` is.
        let slots_at = rings_at + count * size_of::<Ring>();
        let bytes = slots_at + count * room * size_of::<Record>();
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, which nobody else knows.
        let memory = unsafe { libc::syscall(libc::SYS_mmap, null::<c_void>(), bytes, rights, kind, -1, 0) };
        if memory == -1 {
            return None;
        }
        let memory: *mut c_void = std::ptr::with_exposed_provenance_mut(memory as usize);
        // SAFETY: batch, rings and slots have separate, aligned parts of the new mapping; slots of zeros are records.
        unsafe {
            let (rings, slots) = (memory.byte_add(rings_at).cast::<Ring>(), memory.byte_add(slots_at).cast::<Record>());
            for place in 0..count {
                rings.add(place).write(Ring::new(slots.add(place * room), room));
            }
            let (rings, next) = (std::slice::from_raw_parts(rings, count), AtomicPtr::new(null_mut()));
            memory.cast::<Batch>().write(Batch { rings, next, bytes });
            Some(&*memory.cast::<Batch>())
        }
    }

    /// Frees the memory of a batch that no other thread has seen.
    fn give_back(&'static self) {
        // SAFETY: nobody else knows the batch, and it is not used after this.
        unsafe { libc::syscall(libc::SYS_munmap, std::ptr::from_ref(self), self.bytes) };
    }

    fn next(&self) -> Option<&'static Batch> {
        // Acquire: pairs with the release in `Rings::grow`. SAFETY: null, or a batch, which is never freed (R2).
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }
}

pub(crate) struct Rings {
    task: Task,
    first: &'static Batch,
    room: usize,
    /// Number of threads that have got a ring.
    threads: AtomicU32,
    /// Whether no ring was free, and no memory for more. Until [`Rings::recycle`] no thread looks for one again.
    is_short: AtomicBool,
    /// Number of events of threads without a ring.
    refused: AtomicU64,
}

impl Rings {
    /// Reserves [`FIRST`] rings, each with room for `room` records, a power of two. `None`: the system has no memory.
    pub(crate) fn new(task: Task, room: usize) -> Option<Rings> {
        assert!(room.is_power_of_two(), "{room} records");
        let (threads, is_short, refused) = (AtomicU32::new(0), AtomicBool::new(false), AtomicU64::new(0));
        Some(Rings { task, first: Batch::reserve(FIRST, room)?, room, threads, is_short, refused })
    }

    fn batches(&self) -> impl Iterator<Item = &'static Batch> {
        std::iter::successors(Some(self.first), |batch| batch.next())
    }

    fn all(&self) -> impl Iterator<Item = &'static Ring> {
        self.batches().flat_map(|batch| batch.rings)
    }

    /// Returns the calling thread's ring, for an event. `None`: there is no memory for one, see [`Rings::refused`].
    #[inline]
    pub(crate) fn mine(&self) -> Option<&'static Ring> {
        // SAFETY: null, or a ring, which is never freed (R2).
        unsafe { mine(self.task).get().as_ref() }.or_else(|| self.take())
    }

    /// Takes a free ring for a thread, with its first event. Taking it costs one system call, for the thread's number.
    #[cold]
    fn take(&self) -> Option<&'static Ring> {
        let Some(ring) = self.find() else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        ring.thread.store(self.threads.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        // SAFETY: `gettid` has no arguments.
        ring.system.store(unsafe { libc::gettid() }, Ordering::Release);
        mine(self.task).set(ring);
        Some(ring)
    }

    fn find(&self) -> Option<&'static Ring> {
        while !self.is_short.load(Ordering::Relaxed) {
            let is_free = |ring: &&Ring| {
                // Acquire: pairs with the release in `recycle`.
                ring.state.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
            };
            let mut last = self.first;
            for batch in self.batches() {
                if let Some(free) = batch.rings.iter().find(is_free) {
                    return Some(free);
                }
                last = batch;
            }
            self.grow(last);
        }
        None
    }

    /// Adds rings after this batch, the last one, unless another thread has added some meanwhile.
    fn grow(&self, last: &Batch) {
        if last.next().is_some() {
            return;
        }
        let Some(batch) = Batch::reserve(FURTHER, self.room) else {
            self.is_short.store(true, Ordering::Relaxed);
            return;
        };
        let new = std::ptr::from_ref(batch).cast_mut();
        // Release: a thread that sees the batch sees its rings.
        if last.next.compare_exchange(null_mut(), new, Ordering::Release, Ordering::Relaxed).is_err() {
            batch.give_back();
        }
    }

    /// Returns the number of events that were lost because the system had no memory for their thread's ring.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns the rings that have events. Called by the writing thread.
    pub(crate) fn readable(&self) -> impl Iterator<Item = &'static Ring> {
        self.all().filter(|ring| ring.filled() > 0)
    }

    /// Returns whether so few rings are free that the next threads may find none.
    pub(crate) fn are_few(&self) -> bool {
        self.all().filter(|ring| ring.state.load(Ordering::Relaxed) == FREE).take(FURTHER).count() < FURTHER
    }

    /// Frees the empty rings of threads that have ended. Called by the writing thread.
    pub(crate) fn recycle(&self) {
        // SAFETY: `getpid` has no arguments.
        let process = unsafe { libc::getpid() };
        for ring in self.all() {
            let system = ring.system.load(Ordering::Acquire);
            if system == 0 || ring.state.load(Ordering::Relaxed) == FREE {
                continue;
            }
            // SAFETY: signal 0 is not sent; the call only tests whether the thread exists.
            let ended = unsafe { libc::syscall(libc::SYS_tgkill, process, system, 0) } != 0;
            // Read after the test, so it includes all events that the thread wrote before it ended.
            if ended && ring.filled() == 0 {
                ring.system.store(0, Ordering::Relaxed);
                ring.state.store(FREE, Ordering::Release);
            }
        }
        self.is_short.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(ring: &Ring, number: u64, records: usize) -> bool {
        let pack = |room: &mut Room| {
            for (place, record) in room[..records].iter_mut().enumerate() {
                record.words = [number, place as u64, records as u64, 0];
            }
            records
        };
        // SAFETY: the callers got the ring from `mine`, so this thread owns it.
        unsafe { ring.put(pack) }
    }

    #[test]
    fn events_of_several_records_come_out_whole_and_in_order_over_many_laps() {
        let rings = Rings::new(Task::Trace, 16).expect("memory");
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
    fn concurrent_writes_and_reads_deliver_each_event_once_and_in_order() {
        const EVENTS: u64 = if cfg!(miri) { 300 } else { 200_000 };
        let rings = Rings::new(Task::Trace, 64).expect("memory");
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
        let rings = Rings::new(Task::Trace, 16).expect("memory");
        let mut numbers = std::collections::BTreeSet::new();
        for round in 0..3 * FIRST {
            let number = std::thread::scope(|scope| {
                let one = scope.spawn(|| {
                    let ring = rings.mine().expect("there is one again");
                    assert!(put(ring, 1, 1));
                    ring.thread()
                });
                one.join().expect("no panic")
            });
            assert!(numbers.insert(number), "{number} in round {round}");
            // The system may report a thread as existing for a moment after its scope.
            while rings.readable().count() > 0 || rings.all().any(|ring| ring.state.load(Ordering::Relaxed) != FREE) {
                rings.recycle();
                rings.readable().for_each(|ring| ring.release(ring.waiting().len()));
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn each_thread_has_its_own_ring_even_if_many_begin_at_once_before_any_read() {
        let rings = Rings::new(Task::Trace, 16).expect("memory");
        let together = std::sync::Barrier::new(4 * FIRST);
        let taken: std::collections::BTreeSet<usize> = std::thread::scope(|scope| {
            let one = || {
                together.wait();
                let ring = rings.mine().expect("there is always one");
                assert!(put(ring, 1, 1));
                std::ptr::from_ref(ring).addr()
            };
            let threads: Vec<_> = (0..4 * FIRST).map(|_| scope.spawn(one)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert_eq!((taken.len(), rings.readable().count(), rings.refused()), (4 * FIRST, 4 * FIRST, 0));
        let batches = (rings.all().count() - FIRST) / FURTHER;
        assert_eq!(batches, 3 * FIRST / FURTHER, "no more are reserved than are needed");
    }

    #[test]
    fn a_signal_handler_in_the_middle_of_an_event_loses_only_its_own_event() {
        let rings = Rings::new(Task::Trace, 16).expect("memory");
        let ring = rings.mine().expect("one of few threads");
        ring.busy.store(true, Ordering::Relaxed);
        assert!(!put(ring, 1, 1));
        ring.busy.store(false, Ordering::Relaxed);
        assert!(put(ring, 2, 1) && ring.waiting()[0].words[0] == 2);
    }
}
