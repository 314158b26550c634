// SPDX-License-Identifier: MIT OR Apache-2.0
//! Posts messages, RDMA operations and atomics to a reliable-connected queue pair (`ibv_post_send(3)`). Hot: a work
//! request on the stack and one indirect call into the provider. One thread at a time (`&mut`). Immediate data is given
//! in host order and travels in network order. Tests: device tests in `hw-tests`; below, also under Miri.

use super::QueuePair;
use crate::verbs::{InlineSpan, LocalSpan, RemoteSpan, sys};
use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::ptr;
use sys::ibv_send_flags as Flags;

/// The errno with which the provider refused a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostError(pub i32);

impl PostError {
    /// Whether the send queue was full, so that the same post may work after a completion.
    pub fn is_full(self) -> bool {
        self.0 == libc::ENOMEM || self.0 == libc::EAGAIN
    }
}

/// Identifier and signalling of a work request.
#[derive(Debug, Clone, Copy)]
pub struct Wr {
    /// The identifier in its completion.
    pub id: u64,
    /// Whether its success has a completion. A failure always has one.
    pub signalled: bool,
}

impl Wr {
    fn flags(self) -> u32 {
        if self.signalled { Flags::IBV_SEND_SIGNALED.0 } else { 0 }
    }
}

/// The operation of a work request. Sizes in bytes.
#[derive(Debug, Clone, Copy)]
pub enum Work<'a> {
    /// A message gathered from one or two spans.
    Send {
        /// Its bytes, which belong to the adapter from the post to the completion.
        spans: &'a [LocalSpan],
        /// Its immediate data, in host order.
        immediate: u32,
    },
    /// A message that is copied into the work request.
    SendInline {
        /// Its first bytes.
        header: InlineSpan<'a>,
        /// Its other bytes.
        payload: InlineSpan<'a>,
        /// Its immediate data, in host order.
        immediate: u32,
    },
    /// An RDMA write.
    Write {
        /// Source.
        local: LocalSpan,
        /// Destination.
        remote: RemoteSpan,
    },
    /// An RDMA write of bytes that are copied into the work request.
    WriteInline {
        /// The bytes.
        bytes: InlineSpan<'a>,
        /// Destination.
        remote: RemoteSpan,
    },
    /// An RDMA read.
    Read {
        /// Destination.
        local: LocalSpan,
        /// Source.
        remote: RemoteSpan,
    },
    /// An atomic addition to 64 bits.
    FetchAdd {
        /// Destination of the former value, 8 bytes.
        local: LocalSpan,
        /// The 64 bits.
        remote: RemoteSpan,
        /// Summand.
        operand: u64,
    },
    /// An atomic compare-and-swap of 64 bits.
    CompareSwap {
        /// Destination of the former value, 8 bytes.
        local: LocalSpan,
        /// The 64 bits.
        remote: RemoteSpan,
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
}

impl QueuePair {
    #[inline(always)]
    pub(super) fn post_work(&mut self, wr: Wr, work: Work<'_>) -> Result<(), PostError> {
        use sys::ibv_wr_opcode as Opcode;
        match work {
            Work::Send { spans, immediate } => self.send(wr, spans, immediate),
            Work::SendInline { header, payload, immediate } => {
                let spans = [LocalSpan(header.sge()), LocalSpan(payload.sge())];
                let used = if payload.is_empty() { &spans[..1] } else { &spans[..] };
                let mut request = Request::uninit();
                fill_message(&mut request, wr, Flags::IBV_SEND_INLINE.0, used, immediate);
                self.post_filled(&mut request)
            }
            Work::Write { local, remote } => self.rdma(wr, Opcode::IBV_WR_RDMA_WRITE, &[local], remote, 0),
            Work::WriteInline { bytes, remote } => {
                let span = [LocalSpan(bytes.sge())];
                self.rdma(wr, Opcode::IBV_WR_RDMA_WRITE, &span, remote, Flags::IBV_SEND_INLINE.0)
            }
            Work::Read { local, remote } => self.rdma(wr, Opcode::IBV_WR_RDMA_READ, &[local], remote, 0),
            Work::FetchAdd { local, remote, operand } => {
                self.atomic(wr, Opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, local, remote, (operand, 0))
            }
            Work::CompareSwap { local, remote, compare, swap } => {
                self.atomic(wr, Opcode::IBV_WR_ATOMIC_CMP_AND_SWP, local, remote, (compare, swap))
            }
        }
    }

    #[inline]
    fn send(&mut self, wr: Wr, spans: &[LocalSpan], immediate: u32) -> Result<(), PostError> {
        let mut request = Request::uninit();
        fill_message(&mut request, wr, 0, spans, immediate);
        self.post_filled(&mut request)
    }

    #[inline]
    fn rdma(&mut self, wr: Wr, opcode: u32, local: &[LocalSpan], to: RemoteSpan, flags: u32) -> Result<(), PostError> {
        let mut request = Request::uninit();
        fill_without_immediate(&mut request, wr, opcode, flags, local);
        let remote = sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: to.addr, rkey: to.rkey };
        // SAFETY: a field of a local.
        unsafe { (&raw mut (*request.as_mut_ptr()).wr.rdma).write(remote) };
        self.post_filled(&mut request)
    }

    #[inline]
    fn atomic(
        &mut self,
        wr: Wr,
        opcode: u32,
        local: LocalSpan,
        to: RemoteSpan,
        (compare_add, swap): (u64, u64),
    ) -> Result<(), PostError> {
        let local = [local];
        let mut request = Request::uninit();
        fill_without_immediate(&mut request, wr, opcode, 0, &local);
        let remote =
            sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr: to.addr, compare_add, swap, rkey: to.rkey };
        // SAFETY: a field of a local.
        unsafe { (&raw mut (*request.as_mut_ptr()).wr.atomic).write(remote) };
        self.post_filled(&mut request)
    }

    #[inline]
    fn post_filled(&mut self, request: &mut Request) -> Result<(), PostError> {
        let mut bad = MaybeUninit::uninit();
        // SAFETY: R4; the call copies request and gather list; the fields of the opcode are set (`Request`); `bad` is
        // only written. The memory is the device's from now on (R2, R3: `LocalSpan::new`), or inline.
        match unsafe { (self.post)(self.handle.raw(), request.as_mut_ptr(), bad.as_mut_ptr()) } {
            0 => Ok(()),
            code => Err(refused(code)),
        }
    }
}

#[cold]
fn refused(code: i32) -> PostError {
    // Some providers return -1 and set errno.
    PostError(if code == -1 { io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) } else { code.abs() })
}

/// A work request in which only the fields of its opcode and the immediate data are set. Clearing the others, most of
/// 128 bytes, would be a good part of the cost of a post.
///
/// Providers read only the fields of the opcode (`ibv_post_send(3)`), with two exceptions. Soft-RoCE and providers that
/// post by a system call (`ibv_cmd_post_send`: hfi1, ipath) always read `imm_data`: it is set. Soft-RoCE also copies
/// `wr.rdma.remote_addr` of a message (`init_send_wqe`) to `iova`, which the kernel uses for RDMA and atomics only: it
/// stays unset. No code of Rust reads unset bytes.
type Request = MaybeUninit<sys::ibv_send_wr>;

/// Fills in all fields but the flags and those of the opcode.
#[inline]
fn fill(request: &mut Request, wr: Wr, opcode: u32, spans: &[LocalSpan]) {
    let raw = request.as_mut_ptr();
    // SAFETY: fields of a local.
    unsafe {
        (&raw mut (*raw).wr_id).write(wr.id);
        (&raw mut (*raw).next).write(ptr::null_mut());
        (&raw mut (*raw).sg_list).write(spans.as_ptr().cast_mut().cast());
        (&raw mut (*raw).num_sge).write(spans.len() as i32);
        (&raw mut (*raw).opcode).write(opcode);
    }
}

#[inline]
fn fill_message(request: &mut Request, wr: Wr, flags: u32, spans: &[LocalSpan], immediate: u32) {
    fill(request, wr, sys::ibv_wr_opcode::IBV_WR_SEND_WITH_IMM, spans);
    let raw = request.as_mut_ptr();
    // SAFETY: fields of a local.
    unsafe {
        (&raw mut (*raw).send_flags).write(wr.flags() | flags);
        (&raw mut (*raw).__bindgen_anon_1.imm_data).write(immediate.to_be());
    }
}

/// Like [`fill`], with the flags and 0 as immediate data.
#[inline]
fn fill_without_immediate(request: &mut Request, wr: Wr, opcode: u32, flags: u32, spans: &[LocalSpan]) {
    const {
        let (flags, data) = (offset_of!(sys::ibv_send_wr, send_flags), offset_of!(sys::ibv_send_wr, __bindgen_anon_1));
        assert!(data == flags + 4 && flags.is_multiple_of(align_of::<u64>()), "one store fills both");
    }
    fill(request, wr, opcode, spans);
    let [a, b, c, d] = (wr.flags() | flags).to_ne_bytes();
    // SAFETY: two fields of a local, next to each other and aligned as one of 64 bits.
    unsafe {
        let both = request.as_mut_ptr().byte_add(offset_of!(sys::ibv_send_wr, send_flags)).cast::<u64>();
        both.write(u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(request: &Request) -> (u64, i32, u32, u32, u32) {
        let raw = request.as_ptr();
        // SAFETY: fields that every request has.
        unsafe {
            assert!((*raw).next.is_null());
            ((*raw).wr_id, (*raw).num_sge, (*raw).opcode, (*raw).send_flags, (*raw).__bindgen_anon_1.imm_data)
        }
    }

    #[test]
    fn a_post_sets_all_fields_of_a_message_that_providers_read() {
        let spans = [LocalSpan::EMPTY; 2];
        let mut request = Request::uninit();
        fill_message(&mut request, Wr { id: 7, signalled: true }, Flags::IBV_SEND_INLINE.0, &spans, 0x1234);
        let flags = Flags::IBV_SEND_SIGNALED.0 | Flags::IBV_SEND_INLINE.0;
        assert_eq!(read(&request), (7, 2, sys::ibv_wr_opcode::IBV_WR_SEND_WITH_IMM, flags, 0x1234_u32.to_be()));
    }

    #[test]
    fn a_post_sets_all_fields_of_a_write_that_providers_read() {
        let opcode = sys::ibv_wr_opcode::IBV_WR_RDMA_WRITE;
        let mut request = Request::uninit();
        fill_without_immediate(&mut request, Wr { id: 9, signalled: false }, opcode, 8, &[LocalSpan::EMPTY]);
        assert_eq!(read(&request), (9, 1, opcode, 8, 0));
        let mut request = Request::uninit();
        fill_without_immediate(&mut request, Wr { id: 9, signalled: true }, opcode, 0, &[LocalSpan::EMPTY]);
        assert_eq!(read(&request), (9, 1, opcode, Flags::IBV_SEND_SIGNALED.0, 0));
    }
}
