// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is done when a process of the fabric has died: all it had in shared memory is freed.
//!
//! Called by: the service thread (a watched process ended), deferred (one was found dead), join (those that a killed
//! program left). Grade: setup. Thread rule: any thread that holds no lock; under the kernel's lock of the region's
//! file, so that one process at a time buries.

use crate::engine::{
    fabric::{Fabric, pipes},
    mr, qp,
    recv::xrc,
};

/// Frees everything of a dead process. Harmless if it lives, or if another has done it.
pub(crate) fn bury(fabric: &Fabric, token: u32) {
    if token == fabric.token() || fabric.pid_of(token).is_none() || !fabric.is_dead(token) {
        return;
    }
    let _burial = fabric.region().exclusively(|| {
        if fabric.pid_of(token).is_some() {
            qp::table::release_all_of(fabric, token);
            mr::table::release_all_of(fabric, token);
            xrc::release_all_of(fabric, token);
            fabric.release_memory_of(token);
            pipes::remove(fabric.folder(), fabric.slot_of(token).doorbell.get());
            fabric.slot_of(token).free();
        }
        Ok(())
    });
}

/// Buries whoever is dead, so that what killed programs left does not pile up.
pub(super) fn bury_all(fabric: &Fabric) {
    for token in fabric.all_tokens() {
        bury(fabric, token);
    }
}
