// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who polls the process' ports, and what the other component is told of what was polled.
//!
//! Both components use the same ports, and a poll of one finds what is the other's as well. Where the PML is in use it
//! polls, as messages of MPI's keep their order only while one at a time polls and deals with them before it calls
//! anybody back: it deals with its own completions inside, and gives each [`Frame`] that has something for the BTL to
//! [`deliver`] when nothing is entered any more. Elsewhere the BTL polls for itself. A component says here what it does,
//! once; the functions stay, as the library is never unmapped, and find nothing to do where their component has no port.
//!
//! Grade: hot ([`by_pml`], [`note_poll`]); what is delivered costs an indirect call. Threads: any. Tests:
//! the device tests in `hw-tests` of both components.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::frame::Frame;
use super::operation_chain::OperationChain;

/// What the BTL does with what was polled.
#[derive(Clone, Copy)]
pub(crate) struct Btl {
    /// Deals with what is the BTL's of a frame that was polled from the process' port with this number, and with what
    /// concerns both components: a peer that failed, a link that changed. No port is entered. Once for each frame, before
    /// its batch is released.
    pub(crate) deliver: fn(port: u8, &Frame),
    /// Tells Open MPI of operations that a poll has taken, which are the caller's own, and gives their records back. No
    /// port is entered. Safe to call once for a chain.
    pub(crate) operations_done: unsafe fn(&OperationChain),
}

/// What the PML does for who waits for what is not the PML's.
#[derive(Clone, Copy)]
pub(crate) struct Pml {
    /// Polls every port, and delivers. Nothing is entered. Returns the number of events.
    pub(crate) poll: fn() -> c_int,
    /// Has the polls ask the adapters for timestamps: a tool listens.
    pub(crate) watch_polls: fn(),
}

static BTL: OnceLock<Btl> = OnceLock::new();
static PML: OnceLock<Pml> = OnceLock::new();

/// Whether the PML is in use.
static IS_PML_USED: AtomicBool = AtomicBool::new(false);

/// The BTL has a port, and deals with what is its.
pub(crate) fn set_btl(btl: Btl) {
    BTL.get_or_init(|| btl);
}

/// The PML is in use from now on, and polls.
pub(crate) fn set_pml(pml: Pml) {
    PML.get_or_init(|| pml);
    IS_PML_USED.store(true, Ordering::Release);
}

/// The PML is in use no more.
pub(crate) fn unset_pml() {
    IS_PML_USED.store(false, Ordering::Release);
}

/// Whether the BTL has ever had a port.
pub(crate) fn has_btl() -> bool {
    BTL.get().is_some()
}

/// The PML, while it is in use.
#[inline]
pub(crate) fn by_pml() -> Option<&'static Pml> {
    // Acquire: what the PML was made with.
    if IS_PML_USED.load(Ordering::Acquire) { PML.get() } else { None }
}

/// Has the BTL deal with its part of a frame. No port is entered.
#[cold]
#[inline(never)]
pub(crate) fn deliver(port: u8, frame: &Frame) {
    if let Some(btl) = BTL.get() {
        (btl.deliver)(port, frame);
    }
}

/// Has the BTL tell of its operations that the PML's poll has taken.
///
/// # Safety
/// They are the caller's own, and no port is entered.
pub(crate) unsafe fn operations_done(done: &OperationChain) {
    if let Some(btl) = BTL.get() {
        // SAFETY: they are the caller's own, and no port is entered.
        unsafe { (btl.operations_done)(done) };
    }
}

/// Has the PML's polls ask the adapters for timestamps: a tool listens.
pub(crate) fn watch_polls() {
    if let Some(pml) = by_pml() {
        (pml.watch_polls)();
    }
}

/// Whether the PML has polled every port since somebody asked.
static HAS_POLLED: AtomicBool = AtomicBool::new(false);

/// The PML has polled every port.
#[inline]
pub(crate) fn note_poll() {
    HAS_POLLED.store(true, Ordering::Relaxed);
}

/// Whether the PML has polled since this was asked last: Open MPI's progress engine calls both components, and once is
/// enough. With several threads it may be polled once too often.
pub(crate) fn take_poll() -> bool {
    let has_polled = HAS_POLLED.load(Ordering::Relaxed);
    if has_polled {
        HAS_POLLED.store(false, Ordering::Relaxed);
    }
    has_polled
}
