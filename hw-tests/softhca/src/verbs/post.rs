// SPDX-License-Identifier: MIT OR Apache-2.0
//! Posting: `ibv_post_send`, `ibv_post_recv` and `ibv_post_srq_recv`, which walk the program's list and give each request
//! to the engine. The pieces of memory are passed as they lie in the program's list.
//! Grade: hot: no allocation, no lock but the engine's. Threads: any.

use std::ffi::c_int;

use super::ah::SoftAh;
use super::qp::SoftQp;
use super::srq::SoftSrq;
use crate::engine::codes::wr_opcode;
use crate::engine::{Errno, RecvWr, SendWr, Sge};
use crate::sys::{ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq};

// The engine reads the program's list of pieces in place.
const _: () = assert!(size_of::<ibv_sge>() == size_of::<Sge>() && align_of::<ibv_sge>() == align_of::<Sge>());
const _: () = assert!(std::mem::offset_of!(ibv_sge, length) == std::mem::offset_of!(Sge, len));
const _: () = assert!(std::mem::offset_of!(ibv_sge, lkey) == std::mem::offset_of!(Sge, lkey));

/// The pieces of a request.
///
/// # Safety
/// `list` has `count` pieces that stay unchanged during the call.
#[inline]
unsafe fn pieces<'a>(list: *const ibv_sge, count: c_int) -> &'a [Sge] {
    if count <= 0 || list.is_null() {
        return &[];
    }
    // SAFETY: by the caller's word; an ibv_sge is a Sge (asserted above).
    unsafe { std::slice::from_raw_parts(list.cast::<Sge>(), count as usize) }
}

/// `ibv_post_send(3)`: stops at the first request that cannot be posted, names it in `bad` and returns why.
///
/// # Safety
/// `qp` is not destroyed; `wr` is a list of requests; `bad` is writable.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    mut wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: by the caller's word.
    let queue = unsafe { SoftQp::of(qp) };
    while !wr.is_null() {
        // SAFETY: a member of the program's list.
        let request = unsafe { &*wr };
        // SAFETY: as above.
        if let Err(errno) = unsafe { send_one(queue, request) } {
            // SAFETY: writable by the caller's word.
            unsafe { bad.write(wr) };
            return refused(errno);
        }
        wr = request.next;
    }
    0
}

#[inline]
unsafe fn send_one(queue: &SoftQp, wr: &ibv_send_wr) -> Result<(), Errno> {
    // SAFETY: the list belongs to the request, which the program does not change during the call. The union of immediate
    // data and key to invalidate is one integer either way.
    let (sge, imm) = unsafe { (pieces(wr.sg_list, wr.num_sge), wr.__bindgen_anon_1.imm_data) };
    let mut request = SendWr { wr_id: wr.wr_id, opcode: wr.opcode, flags: wr.send_flags, imm, sge, ..SendWr::empty() };
    if queue.is_datagram() {
        // SAFETY: the requests of a UD queue pair have this member.
        let ud = unsafe { wr.wr.ud };
        // SAFETY: null or an address handle of the program.
        request.ah = unsafe { ud.ah.as_ref().map(|_| SoftAh::of(ud.ah).engine()) };
        request.remote_qpn = ud.remote_qpn;
        request.remote_qkey = ud.remote_qkey;
    } else if matches!(request.opcode, wr_opcode::ATOMIC_CMP_AND_SWP | wr_opcode::ATOMIC_FETCH_AND_ADD) {
        // SAFETY: atomic requests have this member.
        let atomic = unsafe { wr.wr.atomic };
        request.remote_addr = atomic.remote_addr;
        request.rkey = atomic.rkey;
        request.compare_add = atomic.compare_add;
        request.swap = atomic.swap;
    } else if request.opcode == wr_opcode::BIND_MW {
        // SAFETY: requests to bind have this member, whose window and region are not deallocated.
        let bound = unsafe {
            super::mw::binding(
                wr.__bindgen_anon_2.bind_mw.mw,
                wr.__bindgen_anon_2.bind_mw.rkey,
                &wr.__bindgen_anon_2.bind_mw.bind_info,
            )
        };
        request = SendWr { wr_id: wr.wr_id, flags: wr.send_flags, ..bound };
    } else {
        // SAFETY: plain integers; the engine looks at them if the opcode is one of RDMA.
        let rdma = unsafe { wr.wr.rdma };
        request.remote_addr = rdma.remote_addr;
        request.rkey = rdma.rkey;
    }
    // SAFETY: a plain integer; the engine looks at it if the queue pair is of XRC.
    request.remote_srqn = unsafe { wr.qp_type.xrc.remote_srqn };
    queue.engine().post_send(&request)
}

/// `ibv_post_recv(3)`: as [`post_send`].
///
/// # Safety
/// `qp` is not destroyed; `wr` is a list of requests; `bad` is writable.
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    mut wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: by the caller's word.
    let queue = unsafe { SoftQp::of(qp) }.engine();
    while !wr.is_null() {
        // SAFETY: a member of the program's list, and the pieces that belong to it.
        let (request, sge) = unsafe { (&*wr, pieces((*wr).sg_list, (*wr).num_sge)) };
        if let Err(errno) = queue.post_recv(&RecvWr { wr_id: request.wr_id, sge }) {
            // SAFETY: writable by the caller's word.
            unsafe { bad.write(wr) };
            return refused(errno);
        }
        wr = request.next;
    }
    0
}

/// Requests given to the engine at once.
const BATCH: usize = 16;

/// `ibv_post_srq_recv(3)`: as [`post_send`].
///
/// # Safety
/// `srq` is not destroyed; `wr` is a list of requests; `bad` is writable.
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    mut wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: by the caller's word.
    let queue = unsafe { SoftSrq::of(srq) }.engine();
    while !wr.is_null() {
        let first = wr;
        let mut batch = [RecvWr { wr_id: 0, sge: &[] }; BATCH];
        let mut count = 0;
        while count < BATCH && !wr.is_null() {
            // SAFETY: a member of the program's list, and the pieces that belong to it.
            let (request, sge) = unsafe { (&*wr, pieces((*wr).sg_list, (*wr).num_sge)) };
            batch[count] = RecvWr { wr_id: request.wr_id, sge };
            count += 1;
            wr = request.next;
        }
        if let Err((place, errno)) = queue.post_recv(&batch[..count]) {
            let mut refused_wr = first;
            for _ in 0..place {
                // SAFETY: the engine refused one of the `count` members walked above.
                refused_wr = unsafe { (*refused_wr).next };
            }
            // SAFETY: writable by the caller's word.
            unsafe { bad.write(refused_wr) };
            return refused(errno);
        }
    }
    0
}

#[cold]
fn refused(errno: Errno) -> c_int {
    super::error::set_errno(errno.0);
    errno.0
}
