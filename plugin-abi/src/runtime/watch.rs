// SPDX-License-Identifier: MIT OR Apache-2.0
//! What any face does while a tool listens, and what tools ask of all faces.
//!
//! What only one face can tell is in that face. Tools' callbacks run in here, so nothing is called while a port is
//! entered, but for [`registered`] and [`evicted`], which deliver nothing. Path: behind the branch of a site. Threads:
//! any.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use engine::events::{self, EventGroup, RegistrationEvict, RegistrationMiss, Safety};

use super::listeners::Completed;

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

/// Why events are to be delivered before a call of the program's returns: [`TRANSFERS`], [`ANYTHING`].
static DUE: AtomicU8 = AtomicU8::new(0);

/// A tool listens to transfers. These happen while a component is entered, where no callback may run, so that some wait in
/// their thread.
const TRANSFERS: u8 = 1;

/// An event waits for a callback that may do anything; or a buffer is half full, and the program is so busy that progress
/// would not empty it.
const ANYTHING: u8 = 2;

/// A tool listens to transfers from now on, or none does.
pub(crate) fn set_transfers(has_listener: bool) {
    if has_listener {
        DUE.fetch_or(TRANSFERS, Ordering::Relaxed);
    } else {
        DUE.fetch_and(!TRANSFERS, Ordering::Relaxed);
    }
}

/// What waits is to be delivered before the program's call returns, or its next one.
pub(crate) fn serve_soon() {
    DUE.fetch_or(ANYTHING, Ordering::Relaxed);
}

/// Whether [`serve`] has something to do.
#[inline(always)]
pub(crate) fn is_due() -> bool {
    DUE.load(Ordering::Relaxed) != 0
}

/// Delivers what waits in this thread, and events to callbacks that may do anything, if any wait. Called before a call of
/// the program's returns, with nothing entered. Does nothing within a callback.
#[cold]
#[inline(never)]
pub(crate) fn serve() {
    if events::is_delivering() {
        return;
    }
    if DUE.fetch_and(!ANYTHING, Ordering::Relaxed) & ANYTHING != 0 {
        events::deliver_pending(Safety::None);
    } else {
        events::deliver_due(SAFETY);
    }
}

/// Events of a face that is entered, so that callbacks run when it has been left: with the adapter's stamp where a
/// completion has brought them, else as of this moment of the host's clock.
pub(crate) fn stage(group: EventGroup, by: Option<Completed>) {
    match by.and_then(|by| by.stamp) {
        Some((source, stamp)) => group.stage_seen(source, stamp, SAFETY),
        None => group.stage(SAFETY),
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
