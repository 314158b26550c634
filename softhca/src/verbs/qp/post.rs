// SPDX-License-Identifier: MIT OR Apache-2.0
//! Posting: `ibv_post_send`, `ibv_post_recv` and `ibv_post_srq_recv` walk the program's list and give each request to
//! the engine, with the pieces of memory as they lie in the list. Grade: hot: no allocation, no lock but the engine's.
//! Threads: any. Tests: below; under Miri they also find reads of fields that a program has not set.

use std::ffi::c_int;

use crate::engine::codes::{qp_type, wr_opcode};
use crate::engine::{Errno, RecvWr, SendWr, Sge};
use crate::sys::{ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_srq};
use crate::verbs::{SoftAh, SoftQp, SoftSrq, mr, set_errno};

/// # Safety
/// `list` has `count` pieces that stay unchanged during the call.
#[inline]
pub(super) unsafe fn pieces<'a>(list: *const Sge, count: c_int) -> &'a [Sge] {
    if count <= 0 || list.is_null() {
        return &[];
    }
    // SAFETY: the caller says that `list` has `count` pieces.
    unsafe { std::slice::from_raw_parts(list, count as usize) }
}

/// `ibv_post_send(3)`: stops at the first request that cannot be posted, names it in `bad` and returns why.
pub(crate) unsafe extern "C" fn post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: `qp` is not destroyed (rule V).
    let (queue, mut wr) = (unsafe { SoftQp::of(qp.cast()) }, wr);
    while !wr.is_null() {
        // SAFETY: a member of the program's list, which the program does not change during the call.
        let request = unsafe { request(queue.kind, wr) };
        if let Err(errno) = queue.engine.post_send(&request) {
            // SAFETY: writable (rule V).
            unsafe { bad.write(wr) };
            return refused(errno);
        }
        // SAFETY: a member of the program's list, which the program does not change during the call.
        wr = unsafe { (*wr).next };
    }
    0
}

/// Reads a request to a queue pair of this kind. A program sets the fields that the opcode has (`ibv_post_send(3)`) and
/// leaves the others: so this makes no reference to a request, and reads no other field.
/// # Safety
/// `wr` is a request for such a queue pair; it, its pieces, handle and window stay unchanged while the answer is used.
#[inline]
unsafe fn request<'a>(kind: u32, wr: *const ibv_send_wr) -> SendWr<'a> {
    // SAFETY: the caller gives a request; every request has these fields.
    let (wr_id, opcode, flags) = unsafe { ((*wr).wr_id, (*wr).opcode, (*wr).send_flags) };
    if opcode == wr_opcode::BIND_MW {
        // SAFETY: a request to bind has this member; the program keeps the window and the region that it names.
        let bound = unsafe {
            let bind = &raw const (*wr).__bindgen_anon_2.bind_mw;
            mr::binding((*bind).mw, (*bind).rkey, &(*bind).bind_info)
        };
        return SendWr { wr_id, flags, ..bound };
    }
    // SAFETY: every request but one to bind has pieces, which the caller says stay unchanged.
    let sge = unsafe { pieces((*wr).sg_list, (*wr).num_sge) };
    let mut request = SendWr { wr_id, opcode, flags, sge, ..SendWr::empty() };
    match opcode {
        wr_opcode::SEND_WITH_IMM | wr_opcode::RDMA_WRITE_WITH_IMM => {
            // SAFETY: a request with immediate data has this member.
            request.imm = unsafe { (*wr).__bindgen_anon_1.imm_data };
        }
        wr_opcode::SEND_WITH_INV | wr_opcode::LOCAL_INV => {
            // SAFETY: a request that invalidates has this member.
            request.imm = unsafe { (*wr).__bindgen_anon_1.invalidate_rkey };
        }
        _ => {}
    }
    match opcode {
        wr_opcode::SEND | wr_opcode::SEND_WITH_IMM if kind == qp_type::UD => {
            // SAFETY: a datagram has this member.
            let ud = unsafe { (*wr).wr.ud };
            // SAFETY: null or an address handle of the program.
            request.ah = unsafe { ud.ah.as_ref().map(|_| SoftAh::of(ud.ah)) };
            (request.remote_qpn, request.remote_qkey) = (ud.remote_qpn, ud.remote_qkey);
        }
        wr_opcode::ATOMIC_CMP_AND_SWP | wr_opcode::ATOMIC_FETCH_AND_ADD => {
            // SAFETY: an atomic has this member.
            let atomic = unsafe { &raw const (*wr).wr.atomic };
            // SAFETY: every atomic has these fields.
            (request.remote_addr, request.rkey) = unsafe { ((*atomic).remote_addr, (*atomic).rkey) };
            // SAFETY: every atomic has this field.
            request.compare_add = unsafe { (*atomic).compare_add };
            if opcode == wr_opcode::ATOMIC_CMP_AND_SWP {
                // SAFETY: a swap has this field; an addition has nothing to swap.
                request.swap = unsafe { (*atomic).swap };
            }
        }
        wr_opcode::RDMA_WRITE | wr_opcode::RDMA_WRITE_WITH_IMM | wr_opcode::RDMA_READ => {
            // SAFETY: a read or a write has this member.
            (request.remote_addr, request.rkey) = unsafe { ((*wr).wr.rdma.remote_addr, (*wr).wr.rdma.rkey) };
        }
        _ => {}
    }
    if kind == qp_type::XRC_SEND {
        // SAFETY: a request of an XRC connection has this member.
        request.remote_srqn = unsafe { (*wr).qp_type.xrc.remote_srqn };
    }
    request
}

pub(crate) unsafe extern "C" fn post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: `qp` is not destroyed (rule V).
    let (queue, mut wr) = (unsafe { &SoftQp::of(qp.cast()).engine }, wr);
    while !wr.is_null() {
        // SAFETY: a member of the program's list, and the pieces that belong to it.
        let request = unsafe { RecvWr { wr_id: (*wr).wr_id, sge: pieces((*wr).sg_list, (*wr).num_sge) } };
        if let Err(errno) = queue.post_recv(&request) {
            // SAFETY: writable (rule V).
            unsafe { bad.write(wr) };
            return refused(errno);
        }
        // SAFETY: a member of the program's list, which the program does not change during the call.
        wr = unsafe { (*wr).next };
    }
    0
}

pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    mut wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut last = wr;
    let requests = std::iter::from_fn(|| {
        last = wr;
        // SAFETY: null, or a member of the program's list, which the program does not change during the call.
        let member = unsafe { wr.as_ref() }?;
        wr = member.next;
        // SAFETY: the pieces of a member of the program's list.
        Some(RecvWr { wr_id: member.wr_id, sge: unsafe { pieces(member.sg_list, member.num_sge) } })
    });
    // SAFETY: `srq` is not destroyed (rule V).
    let Err(errno) = unsafe { SoftSrq::of(srq) }.engine.post_recv(requests) else { return 0 };
    // SAFETY: writable (rule V).
    unsafe { bad.write(last) };
    refused(errno)
}

#[cold]
fn refused(errno: Errno) -> c_int {
    set_errno(errno.0);
    errno.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{
        ibv_send_wr__bindgen_ty_2__bindgen_ty_1 as Rdma, ibv_send_wr__bindgen_ty_2__bindgen_ty_2 as Atomic,
    };
    use std::mem::MaybeUninit;

    /// Reads a request to an RC queue pair, in which only the mandatory fields and those that `set` writes are set.
    fn read(opcode: u32, list: &[Sge], set: impl FnOnce(*mut ibv_send_wr)) -> SendWr<'_> {
        let mut made = MaybeUninit::<ibv_send_wr>::uninit();
        let wr = made.as_mut_ptr();
        // SAFETY: fields of a local; then it is a request for such a queue pair.
        unsafe {
            (&raw mut (*wr).wr_id).write(7);
            (&raw mut (*wr).next).write(std::ptr::null_mut());
            (&raw mut (*wr).sg_list).write(list.as_ptr().cast_mut());
            (&raw mut (*wr).num_sge).write(list.len() as c_int);
            (&raw mut (*wr).opcode).write(opcode);
            (&raw mut (*wr).send_flags).write(2);
            set(wr);
            request(qp_type::RC, wr)
        }
    }

    #[test]
    fn request_reads_only_the_members_of_the_opcode() {
        let list = [Sge { addr: 64, length: 8, lkey: 5 }];
        let send = read(wr_opcode::SEND, &list, |_| ());
        assert_eq!((send.wr_id, send.opcode, send.flags, send.sge.len()), (7, wr_opcode::SEND, 2, 1));
        assert_eq!((send.sge[0].addr, send.sge[0].length, send.sge[0].lkey), (64, 8, 5));
        assert_eq!((send.imm, send.remote_addr, send.rkey, send.remote_srqn), (0, 0, 0, 0));
        // SAFETY: fields of a local, here and below.
        let set_imm = |wr: *mut ibv_send_wr| unsafe { (&raw mut (*wr).__bindgen_anon_1.imm_data).write(9) };
        assert_eq!(read(wr_opcode::SEND_WITH_IMM, &[], set_imm).imm, 9);
        let write = read(wr_opcode::RDMA_WRITE, &[], |wr| {
            // SAFETY: as above.
            unsafe { (&raw mut (*wr).wr.rdma).write(Rdma { remote_addr: 4096, rkey: 3 }) };
        });
        assert_eq!((write.remote_addr, write.rkey, write.imm, write.compare_add), (4096, 3, 0, 0));
        // A fetch-and-add has no value to swap.
        let add = read(wr_opcode::ATOMIC_FETCH_AND_ADD, &[], |wr| {
            // SAFETY: as above.
            unsafe {
                let atomic: *mut Atomic = &raw mut (*wr).wr.atomic;
                (&raw mut (*atomic).remote_addr).write(8);
                (&raw mut (*atomic).compare_add).write(1);
                (&raw mut (*atomic).rkey).write(3);
            }
        });
        assert_eq!((add.remote_addr, add.rkey, add.compare_add, add.swap), (8, 3, 1, 0));
    }

    #[test]
    fn a_list_of_no_pieces_may_have_any_address() {
        // SAFETY: no piece is looked at.
        assert!(unsafe { pieces(std::ptr::without_provenance(1), 0) }.is_empty());
    }
}
