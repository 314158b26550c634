// SPDX-License-Identifier: MIT OR Apache-2.0
//! `libibex-fi.so`: a libfabric provider named `ibex`, which every libfabric loads from `FI_PROVIDER_PATH`.
//!
//! [`fi_prov_ini`] gives libfabric the provider; `info` answers what it offers (`fi_getinfo`). Then come libfabric's
//! objects, a file each: `fabric`, `domain`, `av` (address vectors), `cq`, `cntr`, `eq`, `mr` and `endpoint`. `fid` is
//! how C holds them, `entry` how C calls them, `sys` libfabric's types; `wait` is what threads sleep on, `adapter`
//! chooses and opens ports, `log` prints by libfabric. `host` is what an endpoint stands on, whose messages are the
//! engine's (`ibex::libfabric`); `recording` writes a trace for tools, and `flight` keeps the
//! flight recorder's file; `registration` has the memory of long messages that the adapter reads, `rma` the one-sided
//! operations, and `atomic` those among them that are atomic.
//!
//! Unsafe code is for pointers that C passes, for what one thread at a time uses (`domain/lock.rs`), and, in
//! `host/data.rs`, `host/memory.rs`, `registration`, `mr.rs`, `rma` and `atomic`, for the memory of operations. Its
//! rules, besides those of `ffi/src/verbs/mod.rs` (R1 to R3):
//!
//! - F1: a program passes only fids, C's handles of objects, of objects that it has opened and not closed.
//! - F2: the other pointers of a call lead to what its manual page says, during the call.
//! - A1: the memory of an operation may be read, or written, until its end is reported; of an injected one, during the
//!   call.
//! - D1: a thread uses a [`Guarded`](domain::lock::Guarded) value only inside its domain, or calls of the program are
//!   not concurrent (`FI_THREAD_DOMAIN`), and it has no second reference to the value.
//!
//! Threads: any (`FI_THREAD_SAFE`); closing an object is not concurrent with its use. Order of locks: an endpoint's
//! bindings, a domain (`domain/lock.rs`), the addresses of a vector. So what progresses does not ask for bindings:
//! `fi_enable` copies what it needs.
//!
//! Tests: in each file, `tests/`, and `hw-tests`.

mod adapter;
mod atomic;
mod av;
mod cntr;
mod cq;
mod domain;
mod endpoint;
mod entry;
mod eq;
mod fabric;
mod fid;
mod flight;
mod host;
mod info;
mod log;
mod mr;
mod recording;
mod registration;
mod rma;
mod sys;
#[cfg(test)]
mod tests;
mod wait;

use std::cell::UnsafeCell;
use std::ffi::CStr;

/// The provider's name, which `FI_PROVIDER` selects.
const NAME: &CStr = c"ibex";

/// The version of libfabric's interface: a libfabric passes over a provider with an older one than the program's.
const INTERFACE: u32 = sys::version(2, 6);

/// The provider's own version.
const VERSION: u32 = sys::version(0, 1);

/// What libfabric keeps about the provider: it writes to the context.
struct Provider(UnsafeCell<sys::fi_provider>);

// SAFETY: ibex only reads the constant fields; libfabric writes to the context under its own lock.
unsafe impl Sync for Provider {}

static PROVIDER: Provider = Provider(UnsafeCell::new(sys::fi_provider {
    version: VERSION,
    fi_version: INTERFACE,
    context: sys::fi_context { internal: [std::ptr::null_mut(); 4] },
    name: NAME.as_ptr(),
    getinfo: Some(info::getinfo),
    fabric: Some(fabric::open),
    cleanup: Some(cleanup),
}));

/// Gives libfabric the provider. libfabric calls it once it has loaded the library.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut sys::fi_provider {
    PROVIDER.0.get()
}

/// Ends the trace and the flight recorder. All else that is open ends with its objects.
extern "C" fn cleanup() {
    entry::done("cleanup", || {
        recording::end();
        ibex::flight::end();
        Ok(())
    });
}
