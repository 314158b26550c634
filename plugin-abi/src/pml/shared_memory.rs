// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processes of this host as Open MPI's shared-memory BTL reaches them: sends, copies from their memory, polls.
//!
//! What is sent here is copied before the call returns, or not sent at all: nothing is ever left to the BTL that a
//! later message could overtake. So its entry `btl_sendi` is all that is used of its sends, for whatever it has room
//! for. A BTL that reads from a peer's memory without being told of that memory first (CMA) gets long messages so. What
//! waits for room is `backlog`'s. Grade: hot. Threads: any; the BTL is made for them. Tests:
//! `hw-tests/tests/device/local.rs`.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

use engine::protocol::header::EAGER_SIZE;
use ibex_ffi::openmpi::sys;

use super::datatype::{self, Extent};

/// The tag of eager messages among those of Open MPI's BTLs: their header is all that stands before the data.
pub(crate) const EAGER: u8 = FIRST_FREE;

/// The tag of all others. Before the header stands the sender's place among the processes of the host.
pub(crate) const OTHER: u8 = FIRST_FREE + 1;

/// The PML's tags that ob1 does not use: a process that has chosen it by mistake ignores these messages.
const FIRST_FREE: u8 = sys::MCA_BTL_TAG_PML as u8 + 0x10;

/// The longest message whose header and data are put together before they are given to the BTL: a call less for it.
const SHORT: usize = 64;

/// The longest message that is sent at once, bytes of data: the sender's copy is to be cheaper than the kernel's.
const EAGER_LIMIT: usize = 4096;

/// Where a BTL may put its messages in any order with others. There is no other path to keep an order with.
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

/// A process of this host.
struct Peer {
    /// As the BTL names it; null: it is not reached.
    endpoint: *mut sys::mca_btl_base_endpoint_t,
    /// Messages to it wait, and none may go before them.
    is_held_up: AtomicBool,
}

/// The way to the processes of this host.
pub(crate) struct SharedMemory {
    btl: NonNull<sys::mca_btl_base_module_t>,
    sendi: Sendi,
    progress: Option<unsafe extern "C" fn() -> c_int>,
    peers: Box<[Peer]>,
    /// This process' place among them.
    pub(crate) me: u32,
    /// The longest message that is sent at once, bytes of data.
    pub(crate) eager_limit: usize,
    /// The longest message of all, header and all, bytes.
    longest: usize,
    /// The BTL reads from a peer's memory, as far as is known.
    reads: AtomicBool,
}

// SAFETY: the pointers are Open MPI's, of a BTL that is open longer than any PML, and which any thread may use.
unsafe impl Sync for SharedMemory {}
// SAFETY: the pointers are Open MPI's, and what they lead to is bound to no thread.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// Over this BTL, to these peers as it names them. `None`: it cannot do what is needed.
    ///
    /// # Safety
    /// A BTL that is open, and its endpoints.
    pub(crate) unsafe fn new(
        btl: NonNull<sys::mca_btl_base_module_t>,
        endpoints: &[*mut sys::mca_btl_base_endpoint_t],
        me: u32,
    ) -> Option<Self> {
        // SAFETY: the BTL is open; fields that are not written any more.
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
            // SAFETY: the BTL's component, which lives as long.
            progress: unsafe { (*module.btl_component).btl_progress },
            peers: endpoints.iter().map(peer).collect(),
            me,
            eager_limit: EAGER_LIMIT.min(longest.checked_sub(MOST_BEFORE_DATA)?),
            longest,
            reads: AtomicBool::new(reads),
        })
    }

    /// Whether this is the BTL.
    pub(crate) fn is(&self, btl: *mut sys::mca_btl_base_module_t) -> bool {
        self.btl.as_ptr() == btl
    }

    /// The places of the processes it reaches.
    pub(crate) fn reached(&self) -> impl Iterator<Item = u32> {
        self.peers.iter().enumerate().filter(|(_, peer)| !peer.endpoint.is_null()).map(|(place, _)| place as u32)
    }

    /// Whether it reaches a process with this place. What comes may name any, if its sender is not sound.
    pub(crate) fn reaches(&self, place: u32) -> bool {
        self.peers.get(place as usize).is_some_and(|peer| !peer.endpoint.is_null())
    }

    /// Bytes of data that go with the longest header.
    pub(crate) fn room(&self) -> usize {
        self.longest - MOST_BEFORE_DATA
    }

    /// Sends an eager message at once, unless others wait before it or there is no room.
    ///
    /// # Safety
    /// The data may be read for the call.
    #[inline]
    pub(crate) unsafe fn send_at_once(&self, to: u32, header: &[u8; EAGER_SIZE], data: Extent) -> bool {
        let Some(peer) = self.peers.get(to as usize) else { return false };
        // Acquire: what waited before has been sent when it is false.
        if data.length > self.eager_limit || peer.is_held_up.load(Ordering::Acquire) {
            return false;
        }
        if data.length > SHORT {
            // SAFETY: the data may be read for the call.
            return unsafe { self.send(to, EAGER, header, data) };
        }
        let mut bytes = MaybeUninit::<[u8; EAGER_SIZE + SHORT]>::uninit();
        let start = bytes.as_mut_ptr().cast::<u8>();
        // SAFETY: there is room for a header and that much data, which may be read for the call.
        unsafe {
            start.cast::<[u8; EAGER_SIZE]>().write(*header);
            datatype::copy(start.add(EAGER_SIZE), data.start, data.length);
        }
        // SAFETY: `btl.h`: bytes that were just written, and no more; without data there is nothing to convert.
        unsafe { self.sendi(peer, null_mut(), start.cast(), EAGER_SIZE + data.length, EAGER) }
    }

    /// # Safety
    /// `btl.h`: a header of `size` bytes, and a convertor or null, that a BTL's `btl_sendi` takes.
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
        // SAFETY: `btl.h`: the BTL's own function and endpoint; a `btl_sendi` takes this header and convertor.
        let code =
            unsafe { (self.sendi)(btl, peer.endpoint, convertor, header, size, 0, NO_ORDER, FLAGS, tag, null_mut()) };
        code == sys::OPAL_SUCCESS
    }

    /// Sends header and data, whatever waits. False: there is no room now.
    ///
    /// # Safety
    /// The data may be read for the call.
    pub(crate) unsafe fn send(&self, to: u32, tag: u8, header: &[u8], data: Extent) -> bool {
        let Some(peer) = self.peers.get(to as usize) else { return false };
        let header_start = header.as_ptr().cast_mut().cast();
        if data.length == 0 {
            // SAFETY: `btl.h`: bytes that are only read; without data there is nothing to convert.
            return unsafe { self.sendi(peer, null_mut(), header_start, header.len(), tag) };
        }
        let btl = self.btl.as_ptr();
        // SAFETY: `btl.h`: the BTL's own endpoint; the header is only read, and the data may be read for the call.
        let code = unsafe {
            sys::ibex_sendi(btl, peer.endpoint, tag, header_start, header.len(), data.start.cast(), data.length)
        };
        code == sys::OPAL_SUCCESS
    }

    /// Says whether messages to a peer wait.
    pub(crate) fn hold_up(&self, to: u32, waits: bool) {
        if let Some(peer) = self.peers.get(to as usize) {
            peer.is_held_up.store(waits, Ordering::Release);
        }
    }

    /// Whether long messages are read from their sender's memory.
    pub(crate) fn reads(&self) -> bool {
        self.reads.load(Ordering::Relaxed)
    }

    /// Reads from a peer's memory. `done` is called with `data`, perhaps within this call. False: it is not, and
    /// nothing is read. Where the host's kernel does not let it, nothing is read from then on: who may not read once may
    /// never. A message that is too long, or for which there is no room now, says nothing of the next.
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
        // SAFETY: the BTL is open; fields that are not written any more.
        let (get, limit) = unsafe { (self.btl.as_ref().btl_get, self.btl.as_ref().btl_get_limit) };
        let (Some(get), Some(peer)) = (get, self.peers.get(from as usize)) else { return false };
        if length > limit || !self.reads() {
            return false;
        }
        let (btl, order) = (self.btl.as_ptr(), c_int::from(NO_ORDER));
        // SAFETY: the memory may be written until `done` is called; a BTL that needs no handles of the memory (`new`).
        let code = unsafe {
            get(
                btl,
                peer.endpoint,
                to.cast(),
                address,
                null_mut(),
                null_mut(),
                length,
                0,
                order,
                done,
                null_mut(),
                data,
            )
        };
        match code {
            sys::OPAL_SUCCESS => return true,
            sys::OPAL_ERR_OUT_OF_RESOURCE | sys::OPAL_ERR_TEMP_OUT_OF_RESOURCE | sys::OPAL_ERR_RESOURCE_BUSY => {}
            _ => self.reads.store(false, Ordering::Relaxed),
        }
        false
    }

    /// Has the BTL take what has come. Returns how much.
    #[inline]
    pub(crate) fn progress(&self) -> usize {
        // SAFETY: the BTL's progress function, which any thread may call.
        self.progress.map_or(0, |progress| unsafe { progress() }.max(0) as usize)
    }
}

/// Bytes before the data at most: the sender's place, and a header.
const MOST_BEFORE_DATA: usize = size_of::<u32>() + engine::protocol::header::MAX_SIZE;

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    // The BTL's answer to a read.
    thread_local!(static ANSWER: Cell<c_int> = const { Cell::new(sys::OPAL_SUCCESS) });

    const LIMIT: usize = 100;

    #[allow(clippy::too_many_arguments, reason = "the signature is btl.h's")]
    unsafe extern "C" fn get(
        _: *mut sys::mca_btl_base_module_t,
        _: *mut sys::mca_btl_base_endpoint_t,
        _: *mut c_void,
        _: u64,
        _: *mut sys::mca_btl_base_registration_handle_t,
        _: *mut sys::mca_btl_base_registration_handle_t,
        length: usize,
        _: c_int,
        _: c_int,
        _: sys::mca_btl_base_rdma_completion_fn_t,
        _: *mut c_void,
        _: *mut c_void,
    ) -> c_int {
        assert!(length <= LIMIT, "btl.h");
        ANSWER.get()
    }

    unsafe extern "C" fn sendi(
        _: *mut sys::mca_btl_base_module_t,
        _: *mut sys::mca_btl_base_endpoint_t,
        _: *mut sys::opal_convertor_t,
        _: *mut c_void,
        _: usize,
        _: usize,
        _: u8,
        _: u32,
        _: u8,
        _: *mut *mut sys::mca_btl_base_descriptor_t,
    ) -> c_int {
        sys::OPAL_ERR_OUT_OF_RESOURCE
    }

    /// Over a BTL that reads, and reaches the first and the third of three processes.
    fn over(test: impl FnOnce(&SharedMemory)) {
        // SAFETY: C structures of integers and (nullable) pointers, for which zero is a value.
        let (mut component, mut btl): (sys::mca_btl_base_component_t, sys::mca_btl_base_module_t) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        btl.btl_component = &raw mut component;
        btl.btl_get = Some(get);
        btl.btl_sendi = Some(sendi);
        (btl.btl_max_send_size, btl.btl_get_limit, btl.btl_flags) = (4096, LIMIT, sys::MCA_BTL_FLAGS_GET);
        let endpoint = std::ptr::dangling_mut::<u8>().cast();
        let endpoints = [endpoint, null_mut(), endpoint];
        // SAFETY: as a BTL's, as long as the test.
        let shared = unsafe { SharedMemory::new(NonNull::from(&mut btl), &endpoints, 0) };
        test(&shared.expect("it can do what is needed"));
    }

    fn reads(shared: &SharedMemory, length: usize, answer: c_int) -> bool {
        let mut bytes = [0; 2 * LIMIT];
        ANSWER.set(answer);
        // SAFETY: there is room.
        unsafe { shared.get(2, (bytes.as_mut_ptr(), length), 8, None, null_mut()) }
    }

    #[test]
    fn a_message_that_cannot_be_read_now_says_nothing_of_the_next() {
        over(|shared| {
            assert!(!reads(shared, LIMIT + 1, sys::OPAL_SUCCESS), "it is longer than the BTL reads");
            assert!(reads(shared, LIMIT, sys::OPAL_SUCCESS));
            assert!(!reads(shared, LIMIT, sys::OPAL_ERR_OUT_OF_RESOURCE));
            assert!(reads(shared, LIMIT, sys::OPAL_SUCCESS));
        });
    }

    #[test]
    fn where_the_kernel_forbids_reads_none_is_tried_again() {
        over(|shared| {
            assert!(!reads(shared, LIMIT, sys::OPAL_ERROR));
            assert!(!reads(shared, LIMIT, sys::OPAL_SUCCESS) && !shared.reads());
        });
    }

    #[test]
    fn it_reaches_whom_the_btl_has_an_endpoint_for_and_nobody_beyond() {
        over(|shared| {
            let reached: Vec<u32> = [0, 1, 2, 3, u32::MAX].into_iter().filter(|place| shared.reaches(*place)).collect();
            assert_eq!(reached, [0, 2]);
        });
    }
}
