// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a process joins a fabric: it maps the shared file, takes a slot, buries the dead and starts its service thread.
//!
//! Called by: the C side, once per process. Grade: setup. Thread rule: any thread; the kernel's lock of the region's
//! file lets one process at a time join.

use std::sync::Arc;

use crate::engine::{
    Errno, Result, clock,
    fabric::{Fabric, FabricSpec, counters},
    memory::{
        header,
        layout::{MAX_DEVICES, MAX_PORTS, MAX_RULES},
        process::{self, Process},
        region::Region,
    },
    service::{burial, thread},
    spec::device::DeviceSpec,
};

impl Fabric {
    /// Joins the fabric in `spec.folder`, making its shared state if this process is the first. Once per process: keep
    /// it.
    /// # Errors
    /// The folder cannot be used; EINVAL if the adapters are not 1 to 4; E2BIG for more than 64 rules; ENOSPC if all
    /// process slots are taken; EPROTO if the folder was made by another version of this adapter.
    pub fn join(spec: FabricSpec) -> Result<Arc<Fabric>> {
        let sound = |device: &DeviceSpec| (1..=MAX_PORTS).contains(&device.ports.len());
        if !(1..=MAX_DEVICES).contains(&spec.devices.len()) || !spec.devices.iter().all(sound) {
            return Err(Errno(libc::EINVAL));
        }
        if spec.faults.len() > MAX_RULES {
            return Err(Errno(libc::E2BIG));
        }
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
