// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wait objects: what threads sleep on until a queue has an entry, or a counter changes. A descriptor (epoll) is
//! readable when one of these is: the channels of the endpoints' ports, an event that other threads write, and a timer.
//!
//! A sleeping thread holds no lock. It first arms the object ([`Wait::arm`]), which makes the endpoints progress, and
//! looks once more. Then the next completion of a port, and the next thread that reports to the queue or counter, wake
//! it. The timer does so after [`TICK`], because what makes connections has no descriptor: hellos and time-outs. One
//! thread at a time sleeps on the descriptor, and others until that one is awake. Used by `cq/`, `cntr` and `eq`.
//! Grade: setup; [`Wait::wake`] hot. Threads: any. Tests: `hw-tests/libfabric/fi_waits.c`.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::{Errno, read, write};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

use crate::domain::Domain;
use crate::endpoint::members::Members;
use crate::entry::Result;
use crate::sys;

/// Longest time that connections wait for a sleeping thread.
const TICK: Duration = Duration::from_millis(10);

/// A timer that expires once, after [`TICK`].
const ONCE: Itimerspec = Itimerspec {
    it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
    it_value: Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as _ },
};

/// A time after which a thread that sleeps for ever looks again.
const LONG: Duration = Duration::from_hours(1);

/// A wait object.
#[derive(Debug)]
pub(crate) struct Wait {
    epoll: OwnedFd,
    event: OwnedFd,
    timer: OwnedFd,
    /// Whether somebody may sleep, or is about to: then a report wakes.
    is_armed: AtomicBool,
    sleepers: Mutex<Sleepers>,
    /// The thread that slept on the descriptor is awake, or there was a wake-up.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Sleepers {
    /// Number of wake-ups: a thread that has armed the object does not sleep if there was one since.
    wake_ups: u64,
    /// Whether a thread sleeps on the descriptor.
    is_watched: bool,
}

/// The moment at which a call with this time-out (milliseconds) returns; `None`: never.
fn deadline(timeout: i32) -> Option<Instant> {
    u64::try_from(timeout).ok().map(|timeout| Instant::now() + Duration::from_millis(timeout))
}

pub(crate) fn number(error: Errno) -> u32 {
    error.raw_os_error().cast_unsigned()
}

/// Adds a descriptor to a set, which is readable as long as one of its descriptors is.
pub(crate) fn add(set: &OwnedFd, descriptor: impl AsFd) -> Result<()> {
    match epoll::add(set, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN) {
        Err(Errno::EXIST) => Ok(()),
        result => result.map_err(number),
    }
}

/// Takes a descriptor out of a set again.
pub(crate) fn remove(set: &OwnedFd, descriptor: impl AsFd) {
    // It may not be there: the endpoint was not enabled, or bound twice.
    _ = epoll::delete(set, descriptor);
}

impl Wait {
    /// Makes the object that a program asks for (`wait_obj`); `None` if it does not want to sleep.
    pub(crate) fn of(kind: sys::fi_wait_obj) -> Result<Option<Self>> {
        match kind {
            sys::FI_WAIT_NONE => Ok(None),
            sys::FI_WAIT_UNSPEC | sys::FI_WAIT_FD | sys::FI_WAIT_YIELD => Wait::new().map(Some),
            _ => Err(sys::FI_ENOSYS),
        }
    }

    fn new() -> Result<Self> {
        let wait = Wait {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(number)?,
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(number)?,
            timer: timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
                .map_err(number)?,
            is_armed: AtomicBool::new(false),
            sleepers: Mutex::default(),
            changed: Condvar::new(),
        };
        for descriptor in [&wait.event, &wait.timer] {
            wait.add(descriptor)?;
        }
        Ok(wait)
    }

    /// Adds a descriptor that wakes those who sleep as long as it is readable.
    pub(crate) fn add(&self, descriptor: impl AsFd) -> Result<()> {
        add(&self.epoll, descriptor)
    }

    /// Takes a descriptor out again.
    pub(crate) fn remove(&self, descriptor: impl AsFd) {
        remove(&self.epoll, descriptor);
    }

    /// The descriptor on which programs may sleep by themselves.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// `fi_control` of an object that may have a wait object.
    ///
    /// # Safety
    /// F2: `argument` is null, or has room for what the command stores.
    pub(crate) unsafe fn control(wait: Option<&Self>, command: c_int, argument: *mut c_void) -> Result<()> {
        let wait = wait.ok_or(sys::FI_ENOSYS)?;
        if argument.is_null() {
            return Err(sys::FI_EINVAL);
        }
        // SAFETY: F2.
        unsafe {
            match command.cast_unsigned() {
                sys::FI_GETWAIT => argument.cast::<c_int>().write(wait.descriptor()),
                sys::FI_GETWAITOBJ => argument.cast::<sys::fi_wait_obj>().write(sys::FI_WAIT_FD),
                _ => return Err(sys::FI_ENOSYS),
            }
        }
        Ok(())
    }

    /// Wakes those who sleep: there is something to look at.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.is_armed.load(Ordering::SeqCst) {
            self.wake_sleepers();
        }
    }

    /// [`Self::wake`], also if nobody has armed the object.
    #[cold]
    pub(crate) fn wake_sleepers(&self) {
        let mut sleepers = self.sleepers.lock();
        sleepers.wake_ups += 1;
        self.is_armed.store(false, Ordering::SeqCst);
        // Fails only if 2^64 - 2 wake-ups are unread.
        _ = write(&self.event, &1_u64.to_ne_bytes());
        self.changed.notify_all();
    }

    /// Lets what happens from now on wake this thread. Before it sleeps, it must look whether what it waits for is
    /// there. Returns the number of wake-ups so far.
    pub(crate) fn arm(&self) -> u64 {
        let sleepers = self.sleepers.lock();
        // The thread that sleeps on the descriptor has to see the event.
        if !sleepers.is_watched {
            _ = read(&self.event, &mut [0_u8; 8]);
        }
        // Also makes the descriptor of the timer unreadable. It cannot fail: the arguments are valid.
        _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &ONCE);
        let wake_ups = sleepers.wake_ups;
        self.is_armed.store(true, Ordering::SeqCst);
        wake_ups
    }

    /// [`Self::arm`]; then makes endpoints progress, and lets them wake the thread. They are of this domain, and the
    /// thread is not inside.
    pub(crate) fn arm_with(&self, domain: &Domain, endpoints: &Members) -> u64 {
        let wake_ups = self.arm();
        endpoints.arm(&mut domain.enter());
        wake_ups
    }

    /// Sleeps until there is a result, or `timeout` milliseconds have passed; a negative time-out never passes. Each
    /// time `arm` lets what happens wake this thread ([`Self::arm`], [`Self::arm_with`]), and `result` looks for one.
    ///
    /// # Errors
    /// `late`: the time has passed, or a signal was delivered to the thread. Those of `result`.
    pub(crate) fn until<T>(
        &self,
        (timeout, late): (i32, u32),
        arm: impl Fn(&Wait) -> u64,
        mut result: impl FnMut() -> Option<Result<T>>,
    ) -> Result<T> {
        let deadline = deadline(timeout);
        loop {
            let armed = arm(self);
            if let Some(result) = result() {
                return result;
            }
            self.sleep(armed, deadline).map_err(|_| late)?;
        }
    }

    /// Sleeps until something happens after the object was armed, or until a deadline.
    ///
    /// # Errors
    /// `FI_EAGAIN`: the deadline has passed, or a signal was delivered to the thread.
    fn sleep(&self, armed: u64, deadline: Option<Instant>) -> Result<()> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Err(sys::FI_EAGAIN);
        }
        let mut sleepers = self.sleepers.lock();
        if sleepers.wake_ups != armed {
            return Ok(());
        }
        if sleepers.is_watched {
            let deadline = deadline.unwrap_or_else(|| Instant::now() + LONG);
            self.changed.wait_until(&mut sleepers, deadline);
            return Ok(());
        }
        sleepers.is_watched = true;
        drop(sleepers);
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let woken = epoll::wait(&self.epoll, &mut [const { MaybeUninit::uninit() }; 1], left.as_ref()).map(|_| ());
        self.sleepers.lock().is_watched = false;
        self.changed.notify_all();
        woken.map_err(|_| sys::FI_EAGAIN)
    }
}
