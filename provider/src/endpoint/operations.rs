// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables of an endpoint's data transfers. None is there yet.
//!
//! Grade: hot. Threads: any. Tests: `tests/`.

use crate::entry::table;
use crate::sys;

/// `fi_msg(3)`.
pub(super) static MESSAGES: sys::fi_ops_msg =
    table!(fi_ops_msg { absent: recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata });

/// `fi_tagged(3)`.
pub(super) static TAGGED: sys::fi_ops_tagged =
    table!(fi_ops_tagged { absent: recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata });

/// `fi_rma(3)`.
pub(super) static REMOTE_MEMORY: sys::fi_ops_rma =
    table!(fi_ops_rma { absent: read, readv, readmsg, write, writev, writemsg, inject, writedata, injectdata });

/// `fi_atomic(3)`.
pub(super) static ATOMICS: sys::fi_ops_atomic = table!(fi_ops_atomic {
    absent: write,
    writev,
    writemsg,
    inject,
    readwrite,
    readwritev,
    readwritemsg,
    compwrite,
    compwritev,
    compwritemsg,
    writevalid,
    readwritevalid,
    compwritevalid,
});

/// `fi_collective(3)`.
pub(super) static COLLECTIVES: sys::fi_ops_collective = table!(fi_ops_collective {
    absent: barrier,
    broadcast,
    alltoall,
    allreduce,
    allgather,
    reduce_scatter,
    reduce,
    scatter,
    gather,
    msg,
    barrier2,
});
