// SPDX-License-Identifier: MIT OR Apache-2.0
//! A stand-in for Open MPI's shared-memory BTL: queues of messages in memory, and reads of another process' memory.
//!
//! A queue has room for few messages, and long messages cannot be read, so that histories reach the backlog and
//! fragments. A read is done when its process polls. Called by the PML, as the BTL is, and by `world.rs`; the tests are
//! those of `runtime/ports/shared_memory.rs`. Threads: the test's.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::ptr::{NonNull, null_mut, with_exposed_provenance, without_provenance_mut};

use ibex_ffi::openmpi::release::Receiver;
use ibex_ffi::openmpi::sys;
use ibex_ffi::openmpi::sys::{
    mca_btl_base_component_t, mca_btl_base_descriptor_t, mca_btl_base_endpoint_t, mca_btl_base_module_t,
    mca_btl_base_registration_handle_t, opal_convertor_t,
};

use super::super::instance::{OF_TEST, Pml};
use crate::runtime::shared_memory::{ForFace, SharedMemory};

/// Longest message with its header, and longest read, bytes.
const LONGEST: usize = 300;
const LONGEST_READ: usize = 2000;
/// Maximum number of messages and reads in a process' queue.
const ROOM: usize = 6;
/// Number of them that a poll handles.
const POLLED: usize = 3;

struct Shared<T>(T);

// SAFETY: the statics below are only read.
unsafe impl<T> Sync for Shared<T> {}

static COMPONENT: Shared<mca_btl_base_component_t> = {
    // SAFETY: a C structure of integers and (nullable) pointers, for which zero is a value.
    let mut component: mca_btl_base_component_t = unsafe { zeroed() };
    component.btl_progress = Some(progress);
    Shared(component)
};

static BTL: Shared<mca_btl_base_module_t> = {
    // SAFETY: a C structure of integers and (nullable) pointers, for which zero is a value.
    let mut btl: mca_btl_base_module_t = unsafe { zeroed() };
    btl.btl_component = (&raw const COMPONENT.0).cast_mut();
    btl.btl_sendi = Some(sendi);
    btl.btl_get = Some(get);
    (btl.btl_max_send_size, btl.btl_get_limit, btl.btl_flags) = (LONGEST, LONGEST_READ, sys::MCA_BTL_FLAGS_GET);
    Shared(btl)
};

pub(super) enum Event {
    Message { tag: u8, bytes: Vec<u8> },
    Read { to: *mut u8, address: u64, length: usize, done: sys::mca_btl_base_rdma_completion_fn_t, data: *mut c_void },
}

thread_local! {
    static QUEUES: RefCell<[VecDeque<Event>; 8]> = RefCell::default();
    /// Answers of a read when it begins, and when it is done.
    pub(super) static READ: Cell<[c_int; 2]> = const { Cell::new([sys::OPAL_SUCCESS; 2]) };
}

/// Returns the shared memory of a process that has the `reached` processes on its host; empties its queue.
pub(super) fn of(me: usize, processes: usize, reached: impl Fn(usize) -> bool) -> SharedMemory {
    QUEUES.with_borrow_mut(|queues| queues[me].clear());
    READ.set([sys::OPAL_SUCCESS; 2]);
    let endpoint = |rank| if reached(rank) { without_provenance_mut(rank + 1) } else { null_mut() };
    let endpoints: Vec<*mut mca_btl_base_endpoint_t> = (0..processes).map(endpoint).collect();
    // SAFETY: the structure is a BTL's, and lives for ever.
    unsafe { SharedMemory::new(NonNull::from(&BTL.0), &endpoints, me as u32) }.expect("it has the functions")
}

pub(super) fn push(endpoint: usize, event: Event) -> c_int {
    QUEUES.with_borrow_mut(|queues| {
        let queue = &mut queues[endpoint];
        if queue.len() >= ROOM {
            return sys::OPAL_ERR_OUT_OF_RESOURCE;
        }
        queue.push_back(event);
        sys::OPAL_SUCCESS
    })
}

fn me() -> Option<usize> {
    OF_TEST.get().and_then(Pml::shared_memory).map(|shared| shared.me as usize)
}

unsafe extern "C" fn sendi(
    btl: *mut mca_btl_base_module_t,
    endpoint: *mut mca_btl_base_endpoint_t,
    _: *mut opal_convertor_t,
    header: *mut c_void,
    size: usize,
    _: usize,
    _: u8,
    _: u32,
    tag: u8,
    _: *mut *mut mca_btl_base_descriptor_t,
) -> c_int {
    // SAFETY: the PML's header of `size` bytes, without data.
    unsafe { ibex_sendi(btl, endpoint, tag, header, size, header, 0) }
}

/// Sends a header and data in one piece: copied when this returns `OPAL_SUCCESS`, else not sent.
pub(crate) unsafe fn ibex_sendi(
    _: *mut mca_btl_base_module_t,
    endpoint: *mut mca_btl_base_endpoint_t,
    tag: u8,
    header: *const c_void,
    header_size: usize,
    data: *const c_void,
    size: usize,
) -> c_int {
    // SAFETY: the PML's header and data, of these lengths.
    let bytes = unsafe {
        let header = std::slice::from_raw_parts(header.cast::<u8>(), header_size);
        [header, std::slice::from_raw_parts(data.cast::<u8>(), size)].concat()
    };
    assert!(bytes.len() <= LONGEST, "btl.h");
    push(endpoint.addr() - 1, Event::Message { tag, bytes })
}

unsafe extern "C" fn get(
    _: *mut mca_btl_base_module_t,
    _: *mut mca_btl_base_endpoint_t,
    to: *mut c_void,
    address: u64,
    _: *mut mca_btl_base_registration_handle_t,
    _: *mut mca_btl_base_registration_handle_t,
    length: usize,
    _: c_int,
    _: c_int,
    done: sys::mca_btl_base_rdma_completion_fn_t,
    _: *mut c_void,
    data: *mut c_void,
) -> c_int {
    assert!(length <= LONGEST_READ, "btl.h");
    match (READ.get(), me()) {
        ([sys::OPAL_SUCCESS, _], Some(me)) => push(me, Event::Read { to: to.cast(), address, length, done, data }),
        // Without a world nothing is read.
        ([code, _], _) => code,
    }
}

unsafe extern "C" fn progress() -> c_int {
    let btl = (&raw const BTL.0).cast_mut();
    let next = || QUEUES.with_borrow_mut(|queues| queues[me()?].pop_front());
    let mut count = 0;
    while let Some(event) = next() {
        match event {
            Event::Message { tag, mut bytes } => {
                let seg_addr = sys::opal_ptr_t { pval: bytes.as_mut_ptr().cast() };
                let segment = sys::mca_btl_base_segment_t { seg_addr, seg_len: bytes.len() as u64 };
                // SAFETY: M4: the BTL is open, and the message's bytes live until this returns.
                unsafe { ForFace::<Pml>::received(btl, tag, &raw const segment, 1) };
            }
            Event::Read { to, address, length, done, data } => {
                // SAFETY: P2: the receive is not finished, and neither is the send that announced this memory.
                unsafe {
                    let [_, code] = READ.get();
                    if code == sys::OPAL_SUCCESS {
                        to.copy_from_nonoverlapping(with_exposed_provenance(address as usize), length);
                    }
                    let done = done.expect("the PML waits for the read");
                    done(btl, null_mut(), to.cast(), null_mut(), null_mut(), data, code);
                }
            }
        }
        count += 1;
        if count == POLLED as c_int {
            break;
        }
    }
    count
}

/// Returns the shared memory of process 0 of three, which reaches processes 0 and 2.
fn shared() -> SharedMemory {
    of(0, 3, |process| process != 1)
}

fn reads(shared: &SharedMemory, length: usize, answer: c_int) -> bool {
    READ.set([answer, sys::OPAL_SUCCESS]);
    // SAFETY: the stand-in reads nothing where there is no world.
    unsafe { shared.get(2, (NonNull::dangling().as_ptr(), length), 8, None, null_mut()) }
}

#[test]
fn a_read_that_is_too_long_or_finds_no_resources_leaves_later_reads_possible() {
    let shared = shared();
    assert!(!reads(&shared, LONGEST_READ + 1, sys::OPAL_SUCCESS), "it is longer than the BTL reads");
    assert!(reads(&shared, LONGEST_READ, sys::OPAL_SUCCESS));
    assert!(!reads(&shared, LONGEST_READ, sys::OPAL_ERR_OUT_OF_RESOURCE));
    assert!(reads(&shared, LONGEST_READ, sys::OPAL_SUCCESS));
}

#[test]
fn an_error_other_than_lack_of_resources_ends_all_reads() {
    let shared = shared();
    assert!(!reads(&shared, LONGEST_READ, sys::OPAL_ERROR));
    assert!(!reads(&shared, LONGEST_READ, sys::OPAL_SUCCESS) && !shared.reads());
}

#[test]
fn shared_memory_reaches_only_processes_for_which_the_btl_has_an_endpoint() {
    let shared = shared();
    let reached: Vec<u32> = [0, 1, 2, 3, u32::MAX].into_iter().filter(|place| shared.reaches(*place)).collect();
    assert_eq!(reached, [0, 2]);
}
