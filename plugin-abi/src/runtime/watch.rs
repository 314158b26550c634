// SPDX-License-Identifier: MIT OR Apache-2.0
//! What any face does while a tool listens, and what tools ask of all faces.
//!
//! What only one face can tell is in that face. Tools' callbacks run in here, so nothing is called while a port is
//! entered, but for [`registered`] and [`evicted`], which deliver nothing. Path: behind the branch of a site. Threads:
//! any.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use engine::events::{self, RegistrationEvict, RegistrationMiss, Safety};

/// What callbacks must be fit for in a call of Open MPI's: MPI is on the stack.
pub(crate) const SAFETY: Safety = Safety::MpiRestricted;

/// A number that no other request or message has, ever. Even: an operation of the transport has an odd one.
#[inline(always)]
pub(crate) fn number() -> u64 {
    numbers(1)
}

/// So many of them: this, and every second after it.
#[inline(always)]
pub(crate) fn numbers(count: u64) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(2);
    NEXT.fetch_add(2 * count, Ordering::Relaxed)
}

/// Shows all that has happened: for who is about to stop listening. Not from within a callback.
pub(crate) fn catch_up() {
    events::catch_up(SAFETY);
}

/// Whether the end of the program's next call is a place for which something waits; and whether that is more than what
/// waits in a thread.
static IS_DUE: AtomicBool = AtomicBool::new(false);
static HAS_MORE: AtomicBool = AtomicBool::new(false);

/// An event waits for the end of a call of the program's: for a callback that may do anything, or in a buffer that is
/// half full, as a program that never finds nothing to do makes no other progress.
pub(crate) fn serve_soon() {
    HAS_MORE.store(true, Ordering::Relaxed);
    IS_DUE.store(true, Ordering::Relaxed);
}

/// An event waits in this thread, as a face is entered: it is delivered at the end of the call, if nothing else makes
/// progress before.
pub(crate) fn deliver_soon() {
    IS_DUE.store(true, Ordering::Relaxed);
}

/// Whether something waits for it.
#[inline(always)]
pub(crate) fn is_due() -> bool {
    IS_DUE.load(Ordering::Relaxed)
}

/// A call that the program has made is about to return, in which nothing is held: what waits in this thread is
/// delivered, and callbacks that may do anything have their events. Within a callback nothing is done.
#[cold]
#[inline(never)]
pub(crate) fn serve() {
    if is_due() && !events::is_delivering() {
        IS_DUE.store(false, Ordering::Relaxed);
        if HAS_MORE.swap(false, Ordering::Relaxed) {
            events::deliver_pending(Safety::None);
        } else {
            events::deliver_due(SAFETY);
        }
        // In other threads, which deliver at the end of their calls.
        if events::wait_in_threads() {
            deliver_soon();
        }
    }
}

/// Memory is registered with the adapter. Open MPI's cache may hold its lock, so that nothing is delivered here.
#[cold]
#[inline(never)]
pub(crate) fn registered(address: u64, bytes: u64, port: u8) {
    events::stage(SAFETY, || RegistrationMiss { address, bytes, port: u32::from(port) });
}

/// A registration is taken back. As [`registered`].
#[cold]
#[inline(never)]
pub(crate) fn evicted(address: u64, bytes: u64, port: u8) {
    events::stage(SAFETY, || RegistrationEvict { address, bytes, port: u32::from(port) });
}
