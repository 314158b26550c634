// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions that both components call while a tool listens, and that the tool interface calls for both. Callbacks of
//! tools run in [`catch_up`] and [`serve`], so their callers have entered no port. The others deliver nothing. Grade:
//! pending, behind the branch of a site. Threads: any. Tests: those of the sites, and of `tool/`.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use engine::events::{self, RegistrationEvict, RegistrationMiss, Safety};
use parking_lot::Mutex;

use super::listeners::{self, Event, NOBODY};

/// Safety level of callbacks inside a call of Open MPI: MPI is on the stack.
pub(crate) const SAFETY: Safety = Safety::MpiRestricted;

/// Returns an even number that no request or message has had. (Operations of the transport have odd numbers.)
#[inline(always)]
pub(crate) fn number() -> u64 {
    numbers(1)
}

/// Reserves `count` such numbers: the returned one, and every second one after it.
#[inline(always)]
pub(crate) fn numbers(count: u64) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(2);
    NEXT.fetch_add(2 * count, Ordering::Relaxed)
}

/// Delivers all events that have happened. Called before a registration is freed. Not from within a callback.
pub(crate) fn catch_up() {
    events::catch_up(SAFETY);
}

/// Reasons to deliver events before a call of the program returns: [`TRANSFERS`], [`ANYTHING`].
static DUE: AtomicU8 = AtomicU8::new(0);

/// A tool listens to transfers. Their events may wait in their thread, as no callback runs in an entered component.
const TRANSFERS: u8 = 1;

/// An event waits for a callback that may do anything; or a buffer is half full, and the program may not make progress.
const ANYTHING: u8 = 2;

/// Starts or stops the transfer events of all communicators, when a registration has got a callback or was freed. The
/// PML raises them while a tool is registered for any of them, or for RDMA reads, whose events name their requests. The
/// engine finds the registrations of each communicator. The caller holds no lock that a callback takes.
pub(crate) fn follow_transfers() {
    static ARE_WANTED: Mutex<bool> = Mutex::new(false);
    let are_wanted = events::interest().has_transfers();
    let mut were_wanted = ARE_WANTED.lock();
    if are_wanted == *were_wanted {
        return;
    }
    *were_wanted = are_wanted;
    if are_wanted {
        DUE.fetch_or(TRANSFERS, Ordering::Relaxed);
        listeners::add_everywhere(Event::Transfer, NOBODY, || true);
    } else {
        DUE.fetch_and(!TRANSFERS, Ordering::Relaxed);
        listeners::remove_everywhere(Event::Transfer, NOBODY.handle);
    }
}

/// Requests that [`serve`] delivers waiting events before this or the next call of the program returns.
pub(crate) fn serve_soon() {
    DUE.fetch_or(ANYTHING, Ordering::Relaxed);
}

#[inline(always)]
pub(crate) fn is_due() -> bool {
    DUE.load(Ordering::Relaxed) != 0
}

/// Delivers events that wait in this thread, and those that wait for callbacks that may do anything. Called with
/// nothing entered, before a call of the program returns. Does nothing within a callback.
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

/// Raises the event of a registration with the adapter. Nothing is delivered here: Open MPI's cache may hold its lock.
#[cold]
#[inline(never)]
pub(crate) fn registered(address: u64, bytes: u64, port: u8) {
    events::stage(SAFETY, || RegistrationMiss { address, bytes, port: u32::from(port) });
}

/// Raises the event of a deregistration. See [`registered`].
#[cold]
#[inline(never)]
pub(crate) fn evicted(address: u64, bytes: u64, port: u8) {
    events::stage(SAFETY, || RegistrationEvict { address, bytes, port: u32::from(port) });
}
