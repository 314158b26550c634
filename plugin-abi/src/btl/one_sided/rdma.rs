// SPDX-License-Identifier: MIT OR Apache-2.0
//! `btl_put` and `btl_get`, and their common part with the atomics. An operation has a record (`operation`) until it
//! completes. Both functions return 0 or an error, never 1: a request that cannot be posted waits in the engine. Called
//! by Open MPI; [`RdmaRequest`] also by `atomic`. Grade: hot. Threads: any; [`RdmaRequest::start`] enters the port.
//! Sizes in bytes. Tests: `hw-tests/mpi/rma_*.c`.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
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
use crate::runtime::failures::print_reasons;
use crate::runtime::guard::fence;
use crate::runtime::memory::RegistrationHandle;

/// Number of the next watched operation, so that a completed one is not soon followed by another with the same token.
static NUMBER: AtomicU16 = AtomicU16::new(1);

pub(crate) struct RdmaRequest<'call> {
    pub(super) call: CallbackArguments,
    local_handle: Option<&'call RegistrationHandle>,
    pub(super) remote_address: u64,
    pub(super) remote_handle: Option<&'call RegistrationHandle>,
    size: usize,
}

pub(crate) struct Ends {
    pub(crate) to: EndpointId,
    /// Empty if there is no local handle.
    pub(crate) local: LocalSpan,
    pub(crate) remote: RemoteSpan,
}

impl<'call> RdmaRequest<'call> {
    /// Makes the request of a call of Open MPI: module and peer, the ends, and the arguments for the callback, which
    /// runs once.
    ///
    /// # Safety
    /// M3: each handle that is there covers the `size` bytes at its address; the remote one is the peer's. An atomic
    /// without a remote handle is on `size` bytes of this process.
    #[inline]
    pub(super) unsafe fn new(
        (module, peer): (&Module, *mut sys::mca_btl_base_endpoint_t),
        (local_address, local_handle): (*mut c_void, Option<&'call RegistrationHandle>),
        (remote_address, remote_handle): (u64, Option<&'call RegistrationHandle>),
        size: usize,
        (callback, context, data): (sys::mca_btl_base_rdma_completion_fn_t, *mut c_void, *mut c_void),
    ) -> Self {
        let handle = local_handle.map_or(null_mut(), |handle| std::ptr::from_ref(handle).cast_mut().cast());
        let btl = module.as_raw();
        let call = CallbackArguments { btl, peer, callback, context, data, local_address, local_handle: handle };
        RdmaRequest { call, local_handle, remote_address, remote_handle, size }
    }

    /// Fills in a record and passes the request to the engine with `post`; `name` is the function that Open MPI called.
    /// Returns 0; `unfit` if there is no remote handle or `fits` returns false; or the code of a lost peer.
    #[inline]
    pub(crate) fn start(
        self,
        name: &'static str,
        kind: Kind,
        unfit: c_int,
        fits: impl FnOnce(&Module) -> bool,
        post: impl FnOnce(&mut Port, Ends, Token) -> Result<(), Refused>,
    ) -> c_int {
        fence(name, sys::OPAL_ERROR, move || {
            let module = self.call.module();
            let Some(remote) = self.remote_handle.filter(|_| fits(module)) else { return unfit };
            let ends = self.ends(*remote);
            let Some(mut state) = module.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
            if events::has_interest() {
                return self.start_watched((kind, module.index), state, ends, post);
            }
            let State { port, operations, .. } = &mut state;
            let mut operation = operations.take();
            (operation.call, operation.watched) = (self.call, None);
            let token = token::operation(&operation, 0);
            if let Ok(()) = post(port, ends, token) {
                sys::OPAL_SUCCESS
            } else {
                // SAFETY: it was taken from this list, above.
                unsafe { operations.give_back(operation) };
                drop(state);
                failures::refused(module)
            }
        })
    }

    /// [`Self::start`] while a tool listens: records the kind of operation, and raises its event outside the port.
    #[cold]
    #[inline(never)]
    fn start_watched(
        self,
        (kind, index): (Kind, u8),
        mut state: State<'_>,
        ends: Ends,
        post: impl FnOnce(&mut Port, Ends, Token) -> Result<(), Refused>,
    ) -> c_int {
        let State { port, operations, .. } = &mut state;
        let mut operation = operations.take();
        // An operation that nobody watches has the number 0.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed).max(1);
        let token = token::operation(&operation, number);
        let watched = Watched {
            kind,
            operation: token.0,
            local: self.call.local_address.addr() as u64,
            remote: ends.remote.addr,
            bytes: self.size as u64,
            peer: watch::rank(port.peer_name(ends.to)),
            port: index.into(),
        };
        (operation.call, operation.watched) = (self.call, Some(watched));
        let moment = events::host_timestamp();
        if post(port, ends, token).is_err() {
            // SAFETY: it was taken from this list, above.
            unsafe { operations.give_back(operation) };
            print_reasons(port);
            return sys::OPAL_ERR_UNREACH;
        }
        drop(state);
        watch::started(&watched, moment);
        sys::OPAL_SUCCESS
    }

    #[inline]
    fn ends(&self, remote: RegistrationHandle) -> Ends {
        let local = self.local_handle.map_or(LocalSpan::EMPTY, |handle| {
            let address = self.call.local_address.expose_provenance() as u64;
            // SAFETY: M3, R3: registered under that key until the callback (btl.h).
            unsafe { LocalSpan::new(address, self.size as u32, handle.lkey) }
        });
        let remote = RemoteSpan { addr: self.remote_address, rkey: remote.rkey };
        Ends { to: endpoint(self.call.peer), local, remote }
    }
}

/// `btl_put`. Without a local handle the data goes inside the work request; Open MPI does so up to
/// `btl_put_local_registration_threshold`.
///
/// # Safety
/// As for [`RdmaRequest::new`].
#[allow(clippy::too_many_arguments, reason = "the signature is btl.h's")]
pub(crate) unsafe extern "C" fn btl_put(
    module: &Module,
    peer: *mut sys::mca_btl_base_endpoint_t,
    local_address: *mut c_void,
    remote_address: u64,
    local_handle: Option<&RegistrationHandle>,
    remote_handle: Option<&RegistrationHandle>,
    size: usize,
    _flags: c_int,
    _order: c_int,
    callback: sys::mca_btl_base_rdma_completion_fn_t,
    context: *mut c_void,
    data: *mut c_void,
) -> c_int {
    let (local, remote) = ((local_address, local_handle), (remote_address, remote_handle));
    // SAFETY: M3: the handles cover these bytes (btl.h).
    let put = unsafe { RdmaRequest::new((module, peer), local, remote, size, (callback, context, data)) };
    let inside = local_handle.is_none();
    let fits = move |module: &Module| size <= if inside { module.max_inline } else { module.max_message };
    put.start("btl_put", Kind::Put, sys::OPAL_ERR_NOT_AVAILABLE, fits, move |port, ends, token| {
        if !inside {
            return port.put(ends.to, ends.local, ends.remote, token);
        }
        // SAFETY: M3: the post copies the bytes before this call returns, and the program may not write them until the
        // put is complete.
        let bytes = unsafe { InlineSpan::new(local_address.cast(), size) };
        port.put_inline(ends.to, bytes, ends.remote, token)
    })
}

/// `btl_get`.
///
/// # Safety
/// As for [`RdmaRequest::new`].
#[allow(clippy::too_many_arguments, reason = "the signature is btl.h's")]
pub(crate) unsafe extern "C" fn btl_get(
    module: &Module,
    peer: *mut sys::mca_btl_base_endpoint_t,
    local_address: *mut c_void,
    remote_address: u64,
    local_handle: Option<&RegistrationHandle>,
    remote_handle: Option<&RegistrationHandle>,
    size: usize,
    _flags: c_int,
    _order: c_int,
    callback: sys::mca_btl_base_rdma_completion_fn_t,
    context: *mut c_void,
    data: *mut c_void,
) -> c_int {
    let (local, remote) = ((local_address, local_handle), (remote_address, remote_handle));
    // SAFETY: M3: the handles cover these bytes (btl.h).
    let get = unsafe { RdmaRequest::new((module, peer), local, remote, size, (callback, context, data)) };
    let fits = move |module: &Module| local_handle.is_some() && size <= module.max_message;
    get.start("btl_get", Kind::Get, sys::OPAL_ERR_NOT_AVAILABLE, fits, move |port, ends, token| {
        port.get(ends.to, ends.local, ends.remote, token)
    })
}
