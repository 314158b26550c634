// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open MPI's shared-memory BTL, as a face uses it for messages of its own: sends, reads from other processes' memory,
//! polls; and the processes that it reaches.
//!
//! Sends only by `btl_sendi`, because that copies the message before it returns, or fails, so no later message
//! overtakes it. Called by the PML, and by the BTL for messages ([`Receives`]). Grade: hot; [`SharedMemory::open`] and
//! [`remove`]: setup. Threads: any; the BTL supports that. Tests: `pml/tests/shared_memory.rs`, and
//! `hw-tests/tests/device/local.rs`.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

use engine::messenger::header::{EAGER_SIZE, MAX_SIZE};
use ibex_ffi::openmpi::process::{Name, Process};
use ibex_ffi::openmpi::release::{Receiver, received_by};
use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::InlineSpan;

use crate::runtime::guard::fence;
use crate::runtime::libmpi;
use crate::runtime::user_memory::copy;

/// BTL tag of eager messages: only their header stands before the data.
pub(crate) const EAGER: u8 = FIRST_FREE;

/// BTL tag of all other messages: the sender's place among the processes of the host stands before the header.
pub(crate) const OTHER: u8 = FIRST_FREE + 1;

/// First tag of the PMLs that ob1 does not use: a process that runs ob1 by mistake ignores these messages.
const FIRST_FREE: u8 = sys::MCA_BTL_TAG_PML as u8 + 0x10;

/// Longest data that is copied next to its header before the BTL gets both, bytes: that saves a call.
const SHORT: usize = 64;

/// Longest data that is sent eagerly, bytes: up to here the sender's copy is cheaper than the kernel's read.
const EAGER_LIMIT: usize = 4096;

/// Maximum number of bytes before the data: the sender's place, and the longest header.
const MOST_BEFORE_DATA: usize = size_of::<u32>() + MAX_SIZE;

/// Value of `order`: any channel; shared memory has one.
const NO_ORDER: u8 = sys::MCA_BTL_NO_ORDER as u8;

type Sendi = unsafe extern "C" fn(
    *mut sys::mca_btl_base_module_t,
    *mut sys::mca_btl_base_endpoint_t,
    *mut sys::opal_convertor_t,
    *mut c_void,
    usize,
    usize,
    u8,
    u32,
    u8,
    *mut *mut sys::mca_btl_base_descriptor_t,
) -> c_int;

struct Peer {
    /// Null: the BTL does not reach the process.
    endpoint: *mut sys::mca_btl_base_endpoint_t,
    /// Whether messages to the process wait in the backlog.
    is_held_up: AtomicBool,
}

/// The shared-memory BTL, and the processes of this host.
pub(crate) struct SharedMemory {
    btl: NonNull<sys::mca_btl_base_module_t>,
    sendi: Sendi,
    progress: Option<unsafe extern "C" fn() -> c_int>,
    peers: Box<[Peer]>,
    /// Place of this process among `peers`.
    pub(crate) me: u32,
    /// Longest eager data, bytes.
    pub(crate) eager_limit: usize,
    /// Longest message, header included, bytes.
    longest: usize,
    /// Whether the BTL reads a peer's memory without registration (CMA); false once the kernel has refused.
    reads: AtomicBool,
}

// SAFETY: the pointers lead to an Open MPI BTL that stays open longer than any PML, and that any thread may use.
unsafe impl Sync for SharedMemory {}
// SAFETY: the pointers lead to objects of Open MPI's that are bound to no thread.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// Adds the processes of this host to the BTL, and listens to it. Returns it, with the places and names of the
    /// other processes that it reaches. Called once, with all processes of the host, in order of rank.
    ///
    /// # Safety
    /// Live processes. The BTLs are open.
    pub(crate) unsafe fn open<R: Receives>(procs: &[*mut sys::ompi_proc_t]) -> Option<(Self, Vec<(u32, Name)>)> {
        // SAFETY: as this function requires.
        let btl = NonNull::new(unsafe { sys::ibex_shared_memory() })?;
        // SAFETY: live processes.
        let mut local = unsafe { on_this_host(procs) };
        // SAFETY: live processes.
        let name = |proc: &*mut sys::ompi_proc_t| unsafe { Process::from_raw(proc.cast()) }.map(Process::name);
        let me = Process::me().map(Process::name);
        let place = local.iter().position(|proc| name(proc) == me)?;
        if local.len() < 2 {
            return None;
        }
        let mut endpoints = vec![null_mut(); local.len()];
        // SAFETY: `local` has live processes, and `endpoints` as many elements.
        let code = unsafe { sys::ibex_bml_add(local.len(), local.as_mut_ptr(), btl.as_ptr(), endpoints.as_mut_ptr()) };
        if code != sys::OPAL_SUCCESS && endpoints.iter().all(|endpoint| endpoint.is_null()) {
            return None;
        }
        // SAFETY: the BTL is open, and has just returned these endpoints.
        let shared = unsafe { SharedMemory::new(btl, &endpoints, place as u32) }?;
        for tag in [EAGER, OTHER] {
            // SAFETY: no other component uses these tags, and the library that has the callback is never unmapped.
            unsafe { sys::ibex_bml_listen(tag, received_by::<ForFace<R>>()) };
        }
        let others = local.iter().zip(0..).filter(|(_, at)| *at != shared.me && shared.reaches(*at));
        let reached = others.filter_map(|(proc, at)| Some((at, name(proc)?))).collect();
        Some((shared, reached))
    }

    /// Uses `btl` with its `endpoints` of the processes. `None`: it lacks a function or has no room for a header.
    ///
    /// # Safety
    /// `btl` is open, and the endpoints are its own (or null).
    pub(crate) unsafe fn new(
        btl: NonNull<sys::mca_btl_base_module_t>,
        endpoints: &[*mut sys::mca_btl_base_endpoint_t],
        me: u32,
    ) -> Option<Self> {
        // SAFETY: the BTL is open, and its module is not written any more.
        let module = unsafe { btl.as_ref() };
        let longest = module.btl_max_send_size;
        let peer = |endpoint: &*mut _| Peer { endpoint: *endpoint, is_held_up: AtomicBool::new(false) };
        let reads = module.btl_get.is_some()
            && module.btl_register_mem.is_none()
            && module.btl_get_alignment <= 1
            && module.btl_flags & sys::MCA_BTL_FLAGS_GET != 0;
        Some(SharedMemory {
            btl,
            sendi: module.btl_sendi?,
            // SAFETY: the component of an open BTL lives as long as the BTL.
            progress: unsafe { (*module.btl_component).btl_progress },
            peers: endpoints.iter().map(peer).collect(),
            me,
            eager_limit: EAGER_LIMIT.min(longest.checked_sub(MOST_BEFORE_DATA)?),
            longest,
            reads: AtomicBool::new(reads),
        })
    }

    pub(crate) fn is(&self, btl: *mut sys::mca_btl_base_module_t) -> bool {
        self.btl.as_ptr() == btl
    }

    /// Whether the BTL reaches a process with this place. A faulty sender may name any place.
    pub(crate) fn reaches(&self, place: u32) -> bool {
        self.peers.get(place as usize).is_some_and(|peer| !peer.endpoint.is_null())
    }

    /// Longest data of a message with the longest header, bytes.
    pub(crate) fn room(&self) -> usize {
        self.longest - MOST_BEFORE_DATA
    }

    /// Sends an eager message, unless others wait before it or there is no room.
    #[inline]
    pub(crate) fn send_at_once(&self, to: u32, header: &[u8; EAGER_SIZE], data: InlineSpan<'_>) -> bool {
        let Some(peer) = self.peers.get(to as usize) else { return false };
        // Acquire pairs with the Release in `hold_up`: if false, all messages that waited have been sent.
        if data.len() > self.eager_limit || peer.is_held_up.load(Ordering::Acquire) {
            return false;
        }
        if data.len() > SHORT {
            return self.send(to, EAGER, header, data);
        }
        let mut bytes = MaybeUninit::<[u8; EAGER_SIZE + SHORT]>::uninit();
        let start = bytes.as_mut_ptr().cast::<u8>();
        // SAFETY: `bytes` has room for a header and `SHORT` bytes; `data` may be read (`InlineSpan`).
        unsafe {
            start.cast::<[u8; EAGER_SIZE]>().write(*header);
            copy(start.add(EAGER_SIZE), data.as_ptr(), data.len());
        }
        // SAFETY: `btl.h`: the bytes were just written; without data there is nothing to convert.
        unsafe { self.sendi(peer, null_mut(), start.cast(), EAGER_SIZE + data.len(), EAGER) }
    }

    /// # Safety
    /// `btl.h`: `header` has `size` bytes, and `convertor` may be passed to `btl_sendi` (or is null).
    #[inline]
    unsafe fn sendi(
        &self,
        peer: &Peer,
        convertor: *mut sys::opal_convertor_t,
        header: *mut c_void,
        size: usize,
        tag: u8,
    ) -> bool {
        const FLAGS: u32 = sys::MCA_BTL_DES_FLAGS_PRIORITY | sys::MCA_BTL_DES_FLAGS_BTL_OWNERSHIP;
        let btl = self.btl.as_ptr();
        // SAFETY: `btl.h`: the BTL's own function and endpoint; this function requires header and convertor.
        let code =
            unsafe { (self.sendi)(btl, peer.endpoint, convertor, header, size, 0, NO_ORDER, FLAGS, tag, null_mut()) };
        code == sys::OPAL_SUCCESS
    }

    /// Sends header and data, whether others wait or not. Returns false if there is no room now.
    pub(crate) fn send(&self, to: u32, tag: u8, header: &[u8], data: InlineSpan<'_>) -> bool {
        let Some(peer) = self.peers.get(to as usize) else { return false };
        let header_start = header.as_ptr().cast_mut().cast();
        if data.is_empty() {
            // SAFETY: `btl.h`: the header is only read; without data there is nothing to convert.
            return unsafe { self.sendi(peer, null_mut(), header_start, header.len(), tag) };
        }
        let btl = self.btl.as_ptr();
        // SAFETY: `btl.h`: the BTL's own endpoint; the header is only read; `data` may be read (`InlineSpan`).
        let code = unsafe {
            libmpi::ibex_sendi(btl, peer.endpoint, tag, header_start, header.len(), data.as_ptr().cast(), data.len())
        };
        code == sys::OPAL_SUCCESS
    }

    pub(crate) fn hold_up(&self, to: u32, waits: bool) {
        if let Some(peer) = self.peers.get(to as usize) {
            peer.is_held_up.store(waits, Ordering::Release);
        }
    }

    pub(crate) fn reads(&self) -> bool {
        self.reads.load(Ordering::Relaxed)
    }

    /// Reads from another process' memory. The BTL calls `done` with `data`, perhaps within this call. Returns false if
    /// nothing is read and `done` is not called. After an error other than lack of resources, no later read is tried.
    ///
    /// # Safety
    /// The memory may be written until `done` is called.
    pub(crate) unsafe fn get(
        &self,
        from: u32,
        (to, length): (*mut u8, usize),
        address: u64,
        done: sys::mca_btl_base_rdma_completion_fn_t,
        data: *mut c_void,
    ) -> bool {
        // SAFETY: the BTL is open, and its module is not written any more.
        let (get, limit) = unsafe { (self.btl.as_ref().btl_get, self.btl.as_ref().btl_get_limit) };
        let (Some(get), Some(peer)) = (get, self.peers.get(from as usize)) else { return false };
        if length > limit || !self.reads() {
            return false;
        }
        let (btl, endpoint, order) = (self.btl.as_ptr(), peer.endpoint, c_int::from(NO_ORDER));
        // SAFETY: the memory may be written, as this function requires; the BTL needs no handles (checked in `new`).
        let code = unsafe {
            get(btl, endpoint, to.cast(), address, null_mut(), null_mut(), length, 0, order, done, null_mut(), data)
        };
        match code {
            sys::OPAL_SUCCESS => return true,
            sys::OPAL_ERR_OUT_OF_RESOURCE | sys::OPAL_ERR_TEMP_OUT_OF_RESOURCE | sys::OPAL_ERR_RESOURCE_BUSY => {}
            _ => self.reads.store(false, Ordering::Relaxed),
        }
        false
    }

    /// Polls the BTL. Returns the number of messages.
    #[inline]
    pub(crate) fn progress(&self) -> usize {
        // SAFETY: any thread may call the BTL's progress function.
        self.progress.map_or(0, |progress| unsafe { progress() }.max(0) as usize)
    }
}

/// # Safety
/// Live processes.
unsafe fn on_this_host(procs: &[*mut sys::ompi_proc_t]) -> Vec<*mut sys::ompi_proc_t> {
    // SAFETY: as this function requires.
    procs.iter().copied().filter(|proc| unsafe { sys::ibex_is_on_this_host(*proc) }).collect()
}

/// Removes processes from the BTLs to which they were added.
///
/// # Safety
/// Live processes, which [`SharedMemory::open`] has added.
pub(crate) unsafe fn remove(procs: &[*mut sys::ompi_proc_t]) {
    // SAFETY: as this function requires.
    unsafe {
        let mut local = on_this_host(procs);
        sys::ibex_bml_remove(local.len(), local.as_mut_ptr());
    }
}

/// A face that receives messages by shared memory.
pub(crate) trait Receives {
    /// Handles a message; its memory is the BTL's again when this returns.
    fn received(btl: *mut sys::mca_btl_base_module_t, tag: u8, bytes: &[u8]);
}

/// Open MPI's callback for the messages to a face.
pub(crate) struct ForFace<R>(PhantomData<R>);

impl<R: Receives> Receiver for ForFace<R> {
    #[inline(always)]
    unsafe fn received(
        btl: *mut sys::mca_btl_base_module_t,
        tag: u8,
        segments: *const sys::mca_btl_base_segment_t,
        count: usize,
    ) {
        fence("a message by shared memory", (), || {
            // SAFETY: the message has `count` segments, whose bytes the BTL has received.
            let bytes = |index| unsafe {
                let segment: &sys::mca_btl_base_segment_t = &*segments.add(index);
                // The address of an empty segment may be null.
                let length = segment.seg_len as usize;
                if length == 0 { &[] } else { std::slice::from_raw_parts(segment.seg_addr.pval.cast::<u8>(), length) }
            };
            if count == 1 {
                R::received(btl, tag, bytes(0));
            } else {
                R::received(btl, tag, &(0..count).map(bytes).collect::<Vec<_>>().concat());
            }
        });
    }
}
