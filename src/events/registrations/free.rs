// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frees a registration: delivers the rest of its buffer, and calls its free callback once no thread can be in another
//! callback of the registration: immediately, or else in a later delivery ([`finish_freed_in`]). Grade: setup. Threads:
//! any; no thread waits. Tests: `tests/free.rs`.

use super::registration::{FreeCallback, Registration};
use super::registry::{self, AlreadyFreed, PendingFree};
use crate::events::Safety;
use crate::events::delivery::direct;
use crate::events::delivery::drain::Emptying;
use crate::events::delivery::thread::{self, Delivery, Thread};
use crate::events::interest_mask::{self, FREES};

/// Frees a registration. It gets no more events. This delivers the events in its buffer; then, when no thread can be
/// within one of its callbacks, it calls `on_free` once. If that is not possible yet, a later delivery does so, at a
/// place that permits the callbacks of the waiting events. May be called within one of its own callbacks. `safety` is
/// the level that callbacks must have here. Events without a callback of that level are lost, and counted.
///
/// # Errors
/// [`AlreadyFreed`].
pub fn free(registration: &Registration, safety: Safety, on_free: Option<FreeCallback>) -> Result<(), AlreadyFreed> {
    registry::remove(registration, safety, on_free)?;
    finish_freed(safety);
    Ok(())
}

/// Like [`free`], but events for callbacks that may do anything are not lost: if those may not be called here, the
/// events and `on_free` wait for a place where they may.
///
/// # Errors
/// [`AlreadyFreed`].
pub fn free_by_tool(
    registration: &Registration,
    safety: Safety,
    on_free: Option<FreeCallback>,
) -> Result<(), AlreadyFreed> {
    registry::remove(registration, Safety::None, on_free)?;
    finish_freed(safety);
    Ok(())
}

fn finish_freed(safety: Safety) {
    thread::with(&mut (), |thread, ()| {
        if !thread.is_delivering() {
            finish_freed_in(thread, safety);
        }
    });
}

/// Finishes the freed registrations whose callbacks no thread can still be running. Never called within a callback.
pub(in crate::events) fn finish_freed_in(thread: &Thread, safety: Safety) {
    while interest_mask::is_pending(FREES) && !direct::is_any_within() {
        let Some(mut emptying) = Emptying::try_new() else { return };
        let Some(pending) = registry::take_pending_free() else { return };
        let unfinished = finish(thread, &mut emptying, pending, safety);
        drop(emptying);
        if let Some(pending) = unfinished {
            registry::put_pending_free_back(pending);
            return;
        }
    }
}

/// Finishes a freed registration: delivers the rest of its buffer, with the earlier events of other buffers, and calls
/// its free callback. Returns it if its events wait for a callback that may run elsewhere, or later.
fn finish(thread: &Thread, emptying: &mut Emptying, mut pending: PendingFree, safety: Safety) -> Option<PendingFree> {
    let registration = std::sync::Arc::clone(&pending.entry.registration);
    {
        let mut delivery = Delivery::new(thread);
        if !registration.ring.is_empty() {
            emptying.empty(&mut delivery, usize::MAX, safety, Some(&pending.entry));
        }
        let calls = &pending.entry.calls;
        let is_for_later = calls.fit(safety).or(calls.fit(pending.safety)).is_some();
        if is_for_later && !registration.ring.is_empty() {
            return Some(pending);
        }
        // Neither here nor where it was freed may a callback run: the rest is lost.
        while let Some(instance) = registration.ring.pop(registration.used) {
            instance.source.source().count_dropped_later(1);
            registration.count_dropped(instance.source, 1);
        }
        pending.entry.calls.report_drops_finally(&registration, safety);
        delivery.deliver_staged();
    }
    if let Some(on_free) = pending.on_free.take() {
        on_free(&registration, safety);
    }
    None
}
