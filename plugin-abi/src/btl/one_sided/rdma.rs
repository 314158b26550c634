// SPDX-License-Identifier: MIT OR Apache-2.0
//! `btl_put` and `btl_get`, and their common part with the atomics. An operation has a record (`operation`) until it
//! completes. Both functions return 0 or an error, never 1: a request that cannot be posted waits in the engine. Called
//! by Open MPI; [`RdmaRequest`] also by `atomic`. Grade: hot. Threads: any; [`RdmaRequest::start`] enters the port.
//! Sizes in bytes. Tests: `hw-tests/mpi/rma_*.c`.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU16, Ordering};

use engine::events;
use engine::transport::{EndpointId, Refused, Token};
use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::{InlineSpan, LocalSpan, RemoteSpan};

use super::operation::CallbackArguments;
use crate::btl::endpoint::endpoint;
use crate::btl::module::{Module, State};
use crate::btl::watch::{self, Kind, Watched};
use crate::btl::{failures, token};
use crate::runtime::device::Port;
use crate::runtime::failures::tell;
use crate::runtime::guard::fence;
use crate::runtime::memory::RegistrationHandle;

/// Number of the next watched operation, so that a completed one is not soon followed by another with the same token.
static NUMBER: AtomicU16 = AtomicU16::new(1);

pub(crate) struct RdmaRequest {
    pub(crate) call: CallbackArguments,
    pub(crate) remote_address: u64,
    pub(crate) remote_handle: *mut sys::mca_btl_base_registration_handle_t,
    pub(crate) size: usize,
}

pub(crate) struct Ends {
    pub(crate) to: EndpointId,
    /// Empty if there is no local handle.
    pub(crate) local: LocalSpan,
    pub(crate) remote: RemoteSpan,
}

impl RdmaRequest {
    /// Fills in a record and passes the request to the engine with `post`; `name` is the function that Open MPI called.
    /// Returns 0; `unfit` if there is no remote handle or `fits` returns false; or the code of a lost peer.
    ///
    /// # Safety
    /// M1, M3. Each handle that is not null covers the `size` bytes at its address, and the remote one is the peer's.
    #[inline]
    pub(crate) unsafe fn start(
        self,
        name: &'static str,
        kind: Kind,
        unfit: c_int,
        fits: impl FnOnce(&Module) -> bool,
        post: impl FnOnce(&mut Port, Ends, Token) -> Result<(), Refused>,
    ) -> c_int {
        fence(name, sys::OPAL_ERROR, || {
            // SAFETY: M1.
            let module = unsafe { Module::from_raw(self.call.btl) };
            if self.remote_handle.is_null() || !fits(module) {
                return unfit;
            }
            // SAFETY: M3, and the caller says which bytes the handles cover; the remote one is not null.
            let ends = unsafe { self.ends() };
            let Some(mut state) = module.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
            if events::has_interest() {
                // SAFETY: M1, M3: the ends are those of this request.
                return unsafe { self.start_watched((kind, module.index), state, ends, post) };
            }
            let State { port, operations, .. } = &mut state;
            let operation = operations.take();
            // SAFETY: the record has just been taken, so nobody else uses it.
            unsafe { (&raw mut (*operation.as_ptr()).call).write(self.call) };
            let token = token::operation(operation.as_ptr(), 0);
            if let Ok(()) = post(port, ends, token) {
                sys::OPAL_SUCCESS
            } else {
                // SAFETY: the engine has refused the request, so nothing names the record.
                unsafe { operations.give_back(operation.as_ptr()) };
                drop(state);
                failures::refused(module)
            }
        })
    }

    /// [`Self::start`] while a tool listens: records the kind of operation, and raises its event outside the port.
    ///
    /// # Safety
    /// M1, M3. `ends` are those of this request.
    #[cold]
    #[inline(never)]
    unsafe fn start_watched(
        self,
        (kind, index): (Kind, u8),
        mut state: State<'_>,
        ends: Ends,
        post: impl FnOnce(&mut Port, Ends, Token) -> Result<(), Refused>,
    ) -> c_int {
        let State { port, operations, .. } = &mut state;
        let operation = operations.take();
        // An operation that nobody watches has the number 0.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed).max(1);
        let token = token::operation(operation.as_ptr(), number);
        let watched = Watched {
            kind,
            operation: token.0,
            local: self.call.local_address.addr() as u64,
            remote: ends.remote.addr,
            bytes: self.size as u64,
            peer: watch::rank(port.peer_name(ends.to)),
            port: index.into(),
        };
        // SAFETY: the record has just been taken, so nobody else uses it.
        unsafe {
            (&raw mut (*operation.as_ptr()).call).write(CallbackArguments { is_watched: true, ..self.call });
            (&raw mut (*operation.as_ptr()).watched).write(MaybeUninit::new(watched));
        }
        let moment = events::host_timestamp();
        if post(port, ends, token).is_err() {
            // SAFETY: the engine has refused the request, so nothing names the record.
            unsafe { operations.give_back(operation.as_ptr()) };
            tell(port);
            return sys::OPAL_ERR_UNREACH;
        }
        drop(state);
        watch::started(&watched, moment);
        sys::OPAL_SUCCESS
    }

    /// # Safety
    /// M3. Each handle covers the `size` bytes at its address; the remote one is the peer's, the local one may be null.
    #[inline]
    unsafe fn ends(&self) -> Ends {
        let local = if self.call.local_handle.is_null() {
            LocalSpan::EMPTY
        } else {
            // SAFETY: not null, so the caller says that it is a handle of this process for these bytes.
            let handle = unsafe { RegistrationHandle::read(self.call.local_handle.cast()) };
            // SAFETY: M3, R3: registered under that key until the callback (btl.h).
            unsafe { LocalSpan::new(self.call.local_address.expose_provenance() as u64, self.size as u32, handle.lkey) }
        };
        // SAFETY: the peer's handle, which Open MPI has copied to this address.
        let handle = unsafe { RegistrationHandle::read(self.remote_handle.cast()) };
        let remote = RemoteSpan { addr: self.remote_address, rkey: handle.rkey };
        Ends { to: endpoint(self.call.peer), local, remote }
    }
}

/// `btl_put`. Without a local handle the data goes inside the work request; Open MPI does so up to
/// `btl_put_local_registration_threshold`.
#[allow(clippy::too_many_arguments, reason = "the signature is btl.h's")]
pub(crate) unsafe extern "C" fn btl_put(
    btl: *mut sys::mca_btl_base_module_t,
    peer: *mut sys::mca_btl_base_endpoint_t,
    local_address: *mut c_void,
    remote_address: u64,
    local_handle: *mut sys::mca_btl_base_registration_handle_t,
    remote_handle: *mut sys::mca_btl_base_registration_handle_t,
    size: usize,
    _flags: c_int,
    _order: c_int,
    callback: sys::mca_btl_base_rdma_completion_fn_t,
    context: *mut c_void,
    data: *mut c_void,
) -> c_int {
    let call = CallbackArguments { btl, peer, callback, context, data, local_address, local_handle, is_watched: false };
    let put = RdmaRequest { call, remote_address, remote_handle, size };
    let inside = local_handle.is_null();
    let fits = |module: &Module| size <= if inside { module.max_inline } else { module.max_message };
    let post = |port: &mut Port, ends: Ends, token| {
        if !inside {
            return port.put(ends.to, ends.local, ends.remote, token);
        }
        // SAFETY: M3: the post copies the bytes before this call returns, and the program may not write them until the
        // put is complete.
        let bytes = unsafe { InlineSpan::new(local_address.cast(), size) };
        port.put_inline(ends.to, bytes, ends.remote, token)
    };
    // SAFETY: M1, M3: the handles cover these bytes (btl.h).
    unsafe { put.start("btl_put", Kind::Put, sys::OPAL_ERR_NOT_AVAILABLE, fits, post) }
}

#[allow(clippy::too_many_arguments, reason = "the signature is btl.h's")]
pub(crate) unsafe extern "C" fn btl_get(
    btl: *mut sys::mca_btl_base_module_t,
    peer: *mut sys::mca_btl_base_endpoint_t,
    local_address: *mut c_void,
    remote_address: u64,
    local_handle: *mut sys::mca_btl_base_registration_handle_t,
    remote_handle: *mut sys::mca_btl_base_registration_handle_t,
    size: usize,
    _flags: c_int,
    _order: c_int,
    callback: sys::mca_btl_base_rdma_completion_fn_t,
    context: *mut c_void,
    data: *mut c_void,
) -> c_int {
    let call = CallbackArguments { btl, peer, callback, context, data, local_address, local_handle, is_watched: false };
    let get = RdmaRequest { call, remote_address, remote_handle, size };
    let fits = |module: &Module| !local_handle.is_null() && size <= module.max_message;
    // SAFETY: M1, M3: the handles cover these bytes (btl.h).
    unsafe {
        get.start("btl_get", Kind::Get, sys::OPAL_ERR_NOT_AVAILABLE, fits, |port, ends, token| {
            port.get(ends.to, ends.local, ends.remote, token)
        })
    }
}
