// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a process joins a fabric: it maps the shared file, takes a slot, buries the dead and starts its service thread.
//!
//! Called by: the C side, once per process. Grade: setup. Thread rule: any thread; the kernel's lock of the region's
//! file lets one process at a time join.

use std::sync::Arc;

use crate::engine::{
    Result, clock,
    fabric::{Fabric, FabricSpec, counters},
    memory::{
        header,
        process::{self, Process},
        region::Region,
    },
    service::{burial, thread},
};

impl Fabric {
    /// Joins the fabric in `spec.folder`, making its shared state if this process is the first. Once per process: keep
    /// it.
    /// # Errors
    /// The folder cannot be used; ENOSPC if all process slots are taken; EPROTO if the folder was made by another version of this adapter.
    pub fn join(spec: FabricSpec) -> Result<Arc<Fabric>> {
        counters::make(&spec.folder, &spec.devices)?;
        let region = Region::open(&spec.folder)?;
        let token = region.exclusively(|| {
            header::begin(&region, clock::now(), |header| {
                for (device, states) in spec.devices.iter().zip(&header.port_state) {
                    for (port, state) in device.ports.iter().zip(states) {
                        state.set(port.state);
                    }
                }
            })?;
            process::enter(&region)
        })?;
        // Yama, where it is active, lets siblings copy to and from us only if we say so. Elsewhere this fails,
        // harmlessly. SAFETY: no memory is passed.
        unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
        let fabric = Arc::new(Fabric::new(Process::new(region, token), spec)?);
        burial::bury_all(&fabric);
        thread::start(&fabric)?;
        Ok(fabric)
    }
}
