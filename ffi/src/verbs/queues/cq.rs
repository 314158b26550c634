// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completion queues. Polled by the engine, hot: one indirect call into the provider. The queue owns the array of
//! completions, so that an empty poll writes nothing. One thread at a time (`&mut`). Tests: `hw-tests`.

use super::stamped;
use crate::verbs::handle::Handle;
use crate::verbs::{CompletesWork, CompletionChannel, Context, WorkCompletion, errno, extended, sys, unsupported};
use std::io;
use std::ptr;
use std::sync::Arc;

type PollCq = unsafe extern "C" fn(*mut sys::ibv_cq, i32, *mut sys::ibv_wc) -> i32;

/// A completion queue (`ibv_create_cq(3)`). It is polled; one with a completion channel can also be slept on.
///
/// Completions lie in the queue's own array, so that none of them can be looked at after the next poll:
///
/// ```compile_fail,E0499
/// # use ibex_ffi::verbs::CompletesWork as _;
/// # fn look(queue: &mut ibex_ffi::verbs::CompletionQueue) -> std::io::Result<()> {
/// let first = queue.poll()?;
/// let second = queue.poll()?;
/// println!("{first:?} {second:?}");
/// # Ok(())
/// # }
/// ```
///
/// ```
/// # use ibex_ffi::verbs::CompletesWork as _;
/// # fn look(queue: &mut ibex_ffi::verbs::CompletionQueue) -> std::io::Result<()> {
/// println!("{:?}", queue.poll()?);
/// println!("{:?}", queue.poll()?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct CompletionQueue {
    handle: Arc<CqHandle>,
    poll: PollCq,
    completions: Box<[WorkCompletion]>,
    /// Timestamps of the completions; `None` unless the queue can be read with them.
    stamps: Option<Box<[u64]>>,
    channel: Option<Arc<CompletionChannel>>,
}

/// The verbs object, shared with the queue pairs that complete into it.
pub(super) type CqHandle = Handle<sys::ibv_cq, (Arc<Context>, Option<Arc<CompletionChannel>>)>;

impl CompletionQueue {
    /// Creates a queue for at least `entries` completions, from which at most `batch` are taken at a time. A thread may
    /// sleep on the `channel` of the same device, if there is one ([`Self::arm`]).
    ///
    /// # Errors
    /// The errno of the verb: `EINVAL` beyond the device's `max_cqe`, `ENOMEM`.
    pub fn new(
        context: &Arc<Context>,
        entries: u32,
        batch: usize,
        channel: Option<&Arc<CompletionChannel>>,
    ) -> io::Result<Self> {
        let to = raw_channel(channel);
        // SAFETY: the context is open (R4), and so is the channel; no cookie is given.
        let raw = unsafe { sys::ibv_create_cq(context.raw(), entries as i32, ptr::null_mut(), to, 0) };
        // SAFETY: R4: the verb has just made it from these, which the handle keeps alive.
        Self::over(context, unsafe { Handle::new(raw, (Arc::clone(context), channel.cloned())) }?, batch, channel)
    }

    /// Like [`Self::new`]; its completions can also be read with the adapter's timestamps ([`Self::poll_stamped`]).
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the adapter does not stamp completions; else as [`Self::new`].
    pub fn stamping(
        context: &Arc<Context>,
        entries: u32,
        batch: usize,
        channel: Option<&Arc<CompletionChannel>>,
    ) -> io::Result<Self> {
        // SAFETY: R4: the handle below keeps the channel.
        let raw = unsafe { extended::completion_queue(context, entries, stamped::FLAGS, raw_channel(channel)) }?;
        // An extended queue begins as a plain one does (`ibv_cq_ex_to_cq`).
        // SAFETY: R4: the verb has just made it from these, which the handle keeps alive.
        let handle = unsafe { Handle::new(raw.cast(), (Arc::clone(context), channel.cloned())) }?;
        let mut queue = Self::over(context, handle, batch, channel)?;
        // SAFETY: just made.
        if !unsafe { stamped::can_read(raw) } {
            return Err(unsupported());
        }
        queue.stamps = Some(vec![0; batch].into_boxed_slice());
        Ok(queue)
    }

    fn over(
        context: &Arc<Context>,
        handle: CqHandle,
        batch: usize,
        channel: Option<&Arc<CompletionChannel>>,
    ) -> io::Result<Self> {
        let poll = context.operations().poll_cq.ok_or_else(unsupported)?;
        let completions = vec![WorkCompletion::blank(); batch].into_boxed_slice();
        Ok(Self { handle: Arc::new(handle), poll, completions, stamps: None, channel: channel.cloned() })
    }

    /// Returns the channel of a queue that was made with one.
    pub fn channel(&self) -> Option<&Arc<CompletionChannel>> {
        self.channel.as_ref()
    }

    /// Empties the channel, and has the next completion make it readable. Completions that are in the queue already do
    /// not, so a thread polls once more before it sleeps (`ibv_req_notify_cq(3)`).
    ///
    /// # Errors
    /// The errno of the verb; `EOPNOTSUPP` without a channel.
    pub fn arm(&mut self) -> io::Result<()> {
        self.channel.as_ref().ok_or_else(unsupported)?.clear();
        let queue = self.handle.raw();
        // SAFETY: R4, the queue is live, and so is its context; the operations are set when that is opened.
        let request = unsafe { (*(*queue).context).ops.req_notify_cq }.ok_or_else(unsupported)?;
        // SAFETY: R4.
        errno(unsafe { request(queue, 0) })
    }

    pub(super) fn handle(&self) -> &Arc<CqHandle> {
        &self.handle
    }

    /// Whether its completions can be read with timestamps.
    pub fn can_stamp(&self) -> bool {
        self.stamps.is_some()
    }
}

impl CompletesWork for CompletionQueue {
    fn capacity(&self) -> u32 {
        // SAFETY: R4, the queue is live; the field is set when it is created.
        unsafe { (*self.handle.raw()).cqe }.max(0) as u32
    }

    #[inline]
    fn batch(&self) -> usize {
        self.completions.len()
    }

    #[inline]
    fn poll(&mut self) -> io::Result<&[WorkCompletion]> {
        let room = self.completions.len() as i32;
        // SAFETY: R4; the array has `room` entries, and `WorkCompletion` is transparent over `ibv_wc`.
        let taken = unsafe { (self.poll)(self.handle.raw(), room, self.completions.as_mut_ptr().cast()) };
        // A number that is negative or exceeds the room is past the end.
        self.completions.get(..taken as usize).ok_or_else(broken)
    }

    #[inline(always)]
    fn poll_stamped(&mut self) -> io::Result<(&[WorkCompletion], &[u64])> {
        let stamps = self.stamps.as_mut().ok_or_else(unsupported)?;
        let queue = self.handle.raw().cast::<sys::ibv_cq_ex>();
        // SAFETY: the queue is live (R4), was made with the flags, can be read, and `&mut self` keeps others away.
        let taken = unsafe { stamped::read(queue, &mut self.completions, stamps) }?;
        Ok((&self.completions[..taken], &stamps[..taken]))
    }
}

fn raw_channel(channel: Option<&Arc<CompletionChannel>>) -> *mut sys::ibv_comp_channel {
    channel.map_or(ptr::null_mut(), |channel| channel.raw())
}

#[cold]
fn broken() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}
