// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_qp_ex`: posting sends piece by piece (`ibv_wr_post(3)`): `wr_start`, for each request an operation and its
//! setters, `wr_complete`, which gives the requests to the engine. A setter copies inline data at once, as the
//! interface promises. If a program builds a request wrongly, `wr_complete` posts none of those since `wr_start`.
//! Grade: hot, but for making it: the buffers grow to a program's largest batch and stay. Threads: from `wr_start` to
//! `wr_complete` or `wr_abort` the queue pair belongs to one thread; others wait.
use std::ffi::{c_int, c_uint, c_void};

use crate::behaviour::AtomicAccess;
use crate::engine::codes::{qp_type, send_flags, wr_opcode};
use crate::engine::send::execution::is_possible;
use crate::engine::send::post::is_atomic;
use crate::engine::{Errno, SendWr, Sge};
use crate::limits::Atomics;
use crate::sys::{
    IBV_QP_EX_WITH_RDMA_WRITE, IBV_QP_EX_WITH_SEND_WITH_INV, IBV_QP_INIT_ATTR_CREATE_FLAGS, IBV_QP_INIT_ATTR_PD,
    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QP_INIT_ATTR_XRCD, ibv_ah, ibv_context, ibv_data_buf, ibv_mw,
    ibv_mw_bind_info, ibv_qp, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex,
};
use crate::verbs::mr::binding;
use crate::verbs::qp::object::{create, create_xrc_recv};
use crate::verbs::qp::post::pieces;
use crate::verbs::{SoftAh, SoftQp, adapter, pointer};

// A bit of `ibv_qp_create_send_ops_flags` is the number of the opcode.
const _: () = assert!(IBV_QP_EX_WITH_RDMA_WRITE == 1 << wr_opcode::RDMA_WRITE);
const _: () = assert!(IBV_QP_EX_WITH_SEND_WITH_INV == 1 << wr_opcode::SEND_WITH_INV);

/// `ibv_create_qp_ex(3)` for arguments that verbs.h's inline function does not pass to `ibv_create_qp`.
pub(crate) unsafe extern "C" fn create_qp_ex(context: *mut ibv_context, init: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp {
    // SAFETY: `init` is readable and writable (rule V).
    let init = unsafe { &mut *init };
    let mask = init.comp_mask;
    let known =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    let is_xrc_recv = init.qp_type == qp_type::XRC_RECV;
    let operations = if mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0 { init.send_ops_flags } else { 0 };
    // SAFETY: the context is open (rule V).
    let hca = unsafe { adapter(context) };
    let ways = hca.behaviour().atomic_access_without_cap;
    let lacks_atomics = hca.limits().atomics == Atomics::None && ways == AtomicAccess::Eopnotsupp;
    let is_possible = |opcode| is_possible(init.qp_type, opcode) && !(lacks_atomics && is_atomic(opcode));
    let are_possible = (0..u64::BITS).all(|opcode| operations & (1 << opcode) == 0 || is_possible(opcode));
    if mask & if is_xrc_recv { IBV_QP_INIT_ATTR_XRCD } else { IBV_QP_INIT_ATTR_PD } == 0 {
        return pointer(Err(Errno(libc::EINVAL)));
    }
    if mask & !known != 0 || (mask & IBV_QP_INIT_ATTR_CREATE_FLAGS != 0 && init.create_flags != 0) || !are_possible {
        return pointer(Err(Errno(libc::EOPNOTSUPP)));
    }
    let mut plain = ibv_qp_init_attr {
        qp_context: init.qp_context,
        send_cq: init.send_cq,
        recv_cq: init.recv_cq,
        srq: init.srq,
        cap: init.cap,
        qp_type: init.qp_type,
        sq_sig_all: init.sq_sig_all,
    };
    // SAFETY: the mask says which domain there is; what `init` names is not destroyed (rule V).
    let made =
        unsafe { if is_xrc_recv { create_xrc_recv(init.xrcd, &mut plain) } else { create(init.pd, &mut plain) } };
    init.cap = plain.cap;
    pointer(made.map(|qp| {
        if mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0 {
            // SAFETY: just made, and not yet known to the program.
            set_operations(unsafe { &mut *qp });
        }
        qp.cast()
    }))
}

/// `ibv_qp_to_qp_ex`: null unless the queue pair was made with send operations.
pub(crate) unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: `qp` is not destroyed; the function pointers are set before the program knows it (rule V).
    unsafe {
        let extended = qp.cast::<ibv_qp_ex>();
        if (*extended).wr_start.is_some() { extended } else { std::ptr::null_mut() }
    }
}

struct Request {
    wr: SendWr<'static>,
    ah: *mut ibv_ah,
    /// Start and number of its pieces in `Building::pieces`.
    pieces: (usize, usize),
}

#[derive(Default)]
pub(crate) struct Building {
    requests: Vec<Request>,
    /// For inline data, `addr` is a place in `inline` until the requests are completed.
    pieces: Vec<Sge>,
    inline: Vec<u8>,
    error: c_int,
}

/// Forgets the requests and lets other threads build.
/// # Safety
/// The caller is between `wr_start` and `wr_complete`, and has no reference to the requests that are being built.
unsafe extern "C" fn end(qp: *mut ibv_qp_ex) {
    // SAFETY: it is the caller's turn, which ends here.
    let (queue, building) = unsafe { (SoftQp::of(qp), building(qp)) };
    building.requests.clear();
    building.pieces.clear();
    building.inline.clear();
    building.error = 0;
    queue.building.give();
}

/// # Safety
/// The caller is between `wr_start` and `wr_complete`, so that it is its turn.
unsafe fn building<'a>(qp: *mut ibv_qp_ex) -> &'a mut Building {
    // SAFETY: a queue pair of this library; the caller says that it is its turn.
    unsafe { SoftQp::of(qp).building.get() }
}

unsafe extern "C" fn start(qp: *mut ibv_qp_ex) {
    // SAFETY: the program gives a queue pair that is not destroyed, as in each function here.
    unsafe { SoftQp::of(qp) }.building.take();
}

unsafe extern "C" fn complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: the program calls this after wr_start.
    let (queue, building) = unsafe { (SoftQp::of(qp), building(qp)) };
    let mut error = building.error;
    if error == 0 {
        let inline = building.inline.as_ptr() as u64;
        for request in &building.requests {
            let pieces = &mut building.pieces[request.pieces.0..request.pieces.0 + request.pieces.1];
            if request.wr.flags & send_flags::INLINE != 0 {
                for piece in &mut *pieces {
                    piece.addr += inline;
                }
            }
            // SAFETY: null, or an address handle that the program keeps until its requests are posted.
            let ah = unsafe { request.ah.as_ref().map(|_| SoftAh::of(request.ah)) };
            if let Err(errno) = queue.engine.post_send(&SendWr { sge: pieces, ah, ..request.wr }) {
                error = errno.0;
                break;
            }
        }
    }
    // SAFETY: the program called wr_start; the references to what was built are used no more.
    unsafe { end(qp) };
    error
}

unsafe fn begin(qp: *mut ibv_qp_ex, wr: SendWr<'static>) {
    // SAFETY: the program wrote these fields before calling, in this thread.
    let (wr_id, wr_flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
    // SAFETY: the program calls this after wr_start.
    let building = unsafe { building(qp) };
    let flags = wr_flags & !send_flags::INLINE;
    let wr = SendWr { wr_id, flags, ..wr };
    building.requests.push(Request { wr, ah: std::ptr::null_mut(), pieces: (building.pieces.len(), 0) });
}

/// Defines the operations, each of which begins a request of its opcode with these arguments, and sets all functions.
macro_rules! operations {
    ($($name:ident($($argument:ident: $type:ty),*) = $opcode:ident { $($field:ident $(: $value:ident)?),* };)*) => {
        fn set_operations(qp: &mut ibv_qp_ex) {
            qp.wr_start = Some(start);
            qp.wr_complete = Some(complete);
            qp.wr_abort = Some(end);
            qp.wr_bind_mw = Some(bind_mw);
            qp.wr_set_ud_addr = Some(set_ud_addr);
            qp.wr_set_xrc_srqn = Some(set_xrc_srqn);
            qp.wr_set_sge = Some(set_sge);
            qp.wr_set_sge_list = Some(set_sge_list);
            qp.wr_set_inline_data = Some(set_inline_data);
            qp.wr_set_inline_data_list = Some(set_inline_data_list);
            $(qp.$name = Some($name);)*
        }

        $(unsafe extern "C" fn $name(qp: *mut ibv_qp_ex $(, $argument: $type)*) {
            let wr = SendWr { opcode: wr_opcode::$opcode, $($field $(: $value)?,)* ..SendWr::empty() };
            // SAFETY: the program calls this after wr_start.
            unsafe { begin(qp, wr) };
        })*
    };
}

operations! {
    wr_send() = SEND {};
    wr_send_imm(imm: u32) = SEND_WITH_IMM { imm };
    wr_send_inv(key: u32) = SEND_WITH_INV { imm: key };
    wr_local_inv(key: u32) = LOCAL_INV { imm: key };
    wr_rdma_write(rkey: u32, remote_addr: u64) = RDMA_WRITE { rkey, remote_addr };
    wr_rdma_write_imm(rkey: u32, remote_addr: u64, imm: u32) = RDMA_WRITE_WITH_IMM { rkey, remote_addr, imm };
    wr_rdma_read(rkey: u32, remote_addr: u64) = RDMA_READ { rkey, remote_addr };
    wr_atomic_cmp_swp(rkey: u32, remote_addr: u64, compare_add: u64, swap: u64) =
        ATOMIC_CMP_AND_SWP { rkey, remote_addr, compare_add, swap };
    wr_atomic_fetch_add(rkey: u32, remote_addr: u64, compare_add: u64) =
        ATOMIC_FETCH_AND_ADD { rkey, remote_addr, compare_add };
}

unsafe extern "C" fn bind_mw(qp: *mut ibv_qp_ex, mw: *mut ibv_mw, rkey: u32, info: *const ibv_mw_bind_info) {
    // SAFETY: after wr_start; the window and what it is to be bound to are the program's, not deallocated.
    unsafe { begin(qp, binding(mw, rkey, &*info)) };
}

/// Returns the request of a setter; a setter before any operation is an error.
fn last(building: &mut Building) -> Option<&mut Request> {
    if building.requests.is_empty() {
        building.error = libc::EINVAL;
    }
    building.requests.last_mut()
}

unsafe extern "C" fn set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32) {
    // SAFETY: after wr_start, as each setter.
    if let Some(request) = last(unsafe { building(qp) }) {
        request.ah = ah;
        request.wr.remote_qpn = remote_qpn;
        request.wr.remote_qkey = remote_qkey;
    }
}

unsafe extern "C" fn set_xrc_srqn(qp: *mut ibv_qp_ex, remote_srqn: u32) {
    // SAFETY: after wr_start.
    if let Some(request) = last(unsafe { building(qp) }) {
        request.wr.remote_srqn = remote_srqn;
    }
}

unsafe extern "C" fn set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let piece = Sge { addr, length, lkey };
    // SAFETY: after wr_start; one piece.
    unsafe { set_sge_list(qp, 1, &raw const piece) };
}

unsafe extern "C" fn set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const Sge) {
    // SAFETY: after wr_start; the program's list has `count` pieces.
    let (building, list) = unsafe { (building(qp), pieces(list, count as c_int)) };
    let place = building.pieces.len();
    if let Some(request) = last(building) {
        request.pieces = (place, count);
        building.pieces.extend_from_slice(list);
    }
}

unsafe extern "C" fn set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    let buffer = ibv_data_buf { addr, length };
    // SAFETY: after wr_start; one buffer of the program.
    unsafe { set_inline_data_list(qp, 1, &raw const buffer) };
}

unsafe extern "C" fn set_inline_data_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_data_buf) {
    // SAFETY: after wr_start.
    let building = unsafe { building(qp) };
    let (place, start) = (building.pieces.len(), building.inline.len());
    let Some(request) = last(building) else { return };
    request.pieces = (place, 1);
    request.wr.flags |= send_flags::INLINE as c_uint;
    for index in 0..count {
        // SAFETY: the program's list has `count` buffers, each readable for its length.
        unsafe {
            let buffer = &*list.add(index);
            if buffer.length > 0 {
                building.inline.extend_from_slice(std::slice::from_raw_parts(buffer.addr.cast::<u8>(), buffer.length));
            }
        }
    }
    let length = (building.inline.len() - start) as u32;
    building.pieces.push(Sge { addr: start as u64, length, lkey: 0 });
}
