// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides which component polls the ports of the process, and passes the other one its completions.
//!
//! The BTL and the PML use the same ports, so a poll of one finds completions of the other. While the PML is in use it
//! polls alone, because messages of MPI keep their order only if one thread at a time polls and processes them before
//! it calls back. After it has left every port, the PML calls [`deliver`] for each [`Frame`] with completions for
//! the BTL. If the PML is not in use, the BTL polls. Each component registers its functions here once; they stay
//! registered, and do nothing while their component has no port. Grade: hot ([`by_pml`], [`note_poll`]); a delivery
//! costs an indirect call. Threads: any. Tests: the device tests in `hw-tests` of both components.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::frame::Frame;
use super::operation_chain::OperationChain;

/// Functions of the BTL for completions that the PML has polled.
#[derive(Clone, Copy)]
pub(crate) struct Btl {
    /// Processes the BTL's completions of a frame, polled from the port with this index, and those that concern both
    /// components: a failed peer, a changed link. No port is entered. Called once, before the batch is released.
    pub(crate) deliver: fn(port: u8, &Frame),
    /// Notifies Open MPI of the completed operations in a chain, and gives their records back. No port is entered.
    pub(crate) operations_done: fn(OperationChain),
}

#[derive(Clone, Copy)]
pub(crate) struct Pml {
    /// Polls every port, and delivers to the BTL. No port is entered before. Returns the number of events.
    pub(crate) poll: fn() -> c_int,
    /// Makes the polls read the adapters' timestamps, because a tool listens.
    pub(crate) watch_polls: fn(),
}

static BTL: OnceLock<Btl> = OnceLock::new();
static PML: OnceLock<Pml> = OnceLock::new();

static IS_PML_USED: AtomicBool = AtomicBool::new(false);

pub(crate) fn set_btl(btl: Btl) {
    BTL.get_or_init(|| btl);
}

pub(crate) fn set_pml(pml: Pml) {
    PML.get_or_init(|| pml);
    IS_PML_USED.store(true, Ordering::Release);
}

pub(crate) fn unset_pml() {
    IS_PML_USED.store(false, Ordering::Release);
}

pub(crate) fn has_btl() -> bool {
    BTL.get().is_some()
}

/// Returns the PML's functions while the PML is in use.
#[inline]
pub(crate) fn by_pml() -> Option<&'static Pml> {
    // Acquire: pairs with the release in `set_pml`, which follows the PML's initialisation.
    if IS_PML_USED.load(Ordering::Acquire) { PML.get() } else { None }
}

#[cold]
#[inline(never)]
pub(crate) fn deliver(port: u8, frame: &Frame) {
    if let Some(btl) = BTL.get() {
        (btl.deliver)(port, frame);
    }
}

/// Passes completed operations to the BTL. No port is entered.
pub(crate) fn operations_done(done: OperationChain) {
    if let Some(btl) = BTL.get() {
        (btl.operations_done)(done);
    }
}

pub(crate) fn watch_polls() {
    if let Some(pml) = by_pml() {
        (pml.watch_polls)();
    }
}

/// Whether the PML has polled every port since the last [`take_poll`].
static HAS_POLLED: AtomicBool = AtomicBool::new(false);

#[inline]
pub(crate) fn note_poll() {
    HAS_POLLED.store(true, Ordering::Relaxed);
}

/// Returns whether the PML has polled since the last call. If so, the caller skips its own poll: Open MPI's progress
/// engine calls both components. With several threads there may be one poll too many.
pub(crate) fn take_poll() -> bool {
    let has_polled = HAS_POLLED.load(Ordering::Relaxed);
    if has_polled {
        HAS_POLLED.store(false, Ordering::Relaxed);
    }
    has_polled
}
