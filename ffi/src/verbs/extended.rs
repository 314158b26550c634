// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions that libibverbs has only inline, over `struct verbs_context`: extended attributes, queues and values. That
//! structure lies before every context and grows at its front, so this file lays out its end; an older library has a
//! smaller `sz`, the oldest has none (`infiniband/verbs.h`, `verbs_get_ctx_op`). Called by `context.rs` and `cq.rs`.
//! Setup grade, but for [`raw_clock`]. Threads: any (R4). Tests: `hw-tests`.

use super::context::Context;
use super::sys;
use super::{errno, unsupported};
use std::io;
use std::mem::offset_of;

type QueryValues = unsafe extern "C" fn(*mut sys::ibv_context, *mut sys::ibv_values_ex) -> i32;
type CreateCq = unsafe extern "C" fn(*mut sys::ibv_context, *mut sys::ibv_cq_init_attr_ex) -> *mut sys::ibv_cq_ex;
type QueryDevice = unsafe extern "C" fn(
    *mut sys::ibv_context,
    *const sys::ibv_query_device_ex_input,
    *mut sys::ibv_device_attr_ex,
    usize,
) -> i32;

/// The end of `struct verbs_context`.
#[repr(C)]
struct VerbsContext {
    query_rt_values: Option<QueryValues>,
    create_cq_ex: Option<CreateCq>,
    private: usize,
    query_device_ex: Option<QueryDevice>,
    /// `ibv_destroy_flow`, `ABI_placeholder2`, `ibv_create_flow`, `ABI_placeholder1`, `open_qp`, `create_qp_ex`,
    /// `get_srq_num`, `create_srq_ex`, `open_xrcd`, `close_xrcd`, `_ABI_placeholder3`.
    others: [u64; 11],
    sz: usize,
    context: sys::ibv_context,
}

/// The operation at `offset` of the structure before `context`; `None` if this library or the provider lacks it.
///
/// # Safety
/// `T` is the type of the field there.
unsafe fn operation<T: Copy>(context: &Context, offset: usize) -> Option<T> {
    let context = context.raw();
    // SAFETY: R4; the field is set when the context is opened.
    let extended = unsafe { (*context).abi_compat };
    // `__VERBS_ABI_IS_EXTENDED`
    if extended.addr() != usize::MAX {
        return None;
    }
    // An older library has only the end of a `verbs_context`, so no pointer is made to its start.
    let field = |at: usize| context.wrapping_byte_sub(offset_of!(VerbsContext, context) - at);
    // SAFETY: the size lies right before every extended context, and is set when it is opened.
    let size = unsafe { field(offset_of!(VerbsContext, sz)).cast::<usize>().read() };
    if size < size_of::<VerbsContext>() - offset {
        return None;
    }
    // SAFETY: it is large enough to have the field.
    unsafe { field(offset).cast::<Option<T>>().read() }
}

/// The device's extended attributes (`ibv_query_device_ex(3)`); `None` if there are none.
pub(super) fn attributes(context: &Context) -> Option<sys::ibv_device_attr_ex> {
    // SAFETY: the type is that of the field.
    let query: QueryDevice = unsafe { operation(context, offset_of!(VerbsContext, query_device_ex)) }?;
    let mut attributes = sys::ibv_device_attr_ex::default();
    let size = size_of::<sys::ibv_device_attr_ex>();
    // SAFETY: R4; no input is given, and `size` bytes may be written: a library writes no more.
    let code = unsafe { query(context.raw(), std::ptr::null(), &raw mut attributes, size) };
    (code == 0).then_some(attributes)
}

/// Creates an extended completion queue (`ibv_create_cq_ex(3)`) that can be read with `flags` (`IBV_WC_EX_WITH_*`).
/// `EOPNOTSUPP`: not with this library or provider. Null and an errno: not with this device.
/// Its armed events go to `channel`, or nowhere if that is null.
///
/// # Safety
/// R4: `channel` is null or outlives the queue.
pub(super) unsafe fn completion_queue(
    context: &Context,
    entries: u32,
    flags: u64,
    channel: *mut sys::ibv_comp_channel,
) -> io::Result<*mut sys::ibv_cq_ex> {
    // SAFETY: the type is that of the field.
    let create: Option<CreateCq> = unsafe { operation(context, offset_of!(VerbsContext, create_cq_ex)) };
    let create = create.ok_or_else(unsupported)?;
    let mut wanted = sys::ibv_cq_init_attr_ex { cqe: entries, channel, wc_flags: flags, ..Default::default() };
    // SAFETY: R4; no cookie and no parent domain are given.
    Ok(unsafe { create(context.raw(), &raw mut wanted) })
}

/// Reads the adapter's core clock, raw ticks (`ibv_query_rt_values_ex(3)`; providers put them into `tv_nsec`).
pub(super) fn raw_clock(context: &Context) -> io::Result<u64> {
    // SAFETY: the type is that of the field.
    let query: Option<QueryValues> = unsafe { operation(context, offset_of!(VerbsContext, query_rt_values)) };
    let mut values = sys::ibv_values_ex { comp_mask: sys::IBV_VALUES_MASK_RAW_CLOCK, ..Default::default() };
    // SAFETY: R4, and `values` may be written.
    errno(unsafe { query.ok_or_else(unsupported)?(context.raw(), &raw mut values) })?;
    if values.comp_mask & sys::IBV_VALUES_MASK_RAW_CLOCK == 0 {
        return Err(unsupported());
    }
    Ok(values.raw_clock.tv_nsec.cast_unsigned())
}
