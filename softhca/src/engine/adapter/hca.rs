// SPDX-License-Identifier: MIT OR Apache-2.0
//! An opened adapter: its limits, its behaviour, its ports, its clock, and the pipe of its async events.
//!
//! It knows none of the objects made on it: each says how it is made (`Hca::create_qp` is with the queue pairs). Called
//! by: the C side, every object. Grade: setup. Thread rule: any thread.

use std::{os::fd::RawFd, sync::Arc};

use crate::{
    behaviour::Behaviour,
    engine::{
        Errno, Result, clock,
        fabric::{
            Fabric,
            pipes::{ABOUT_DEVICE, ABOUT_PORT, Mailbox},
        },
        spec::device::{DeviceSpec, PortSpec},
    },
    limits::Limits,
};

impl Fabric {
    /// Opens adapter `device`.
    /// # Errors
    /// ENODEV, EMFILE.
    pub fn open(self: &Arc<Self>, device: usize) -> Result<Arc<Hca>> {
        let spec = self.devices().get(device).ok_or(Errno(libc::ENODEV))?;
        let events = Mailbox::new(self.folder(), self.next_id())?;
        events.expect(ABOUT_DEVICE, 0);
        for port in 1..=spec.ports.len() {
            events.expect(ABOUT_PORT, port as u32);
        }
        self.opened(device, events.id);
        Ok(Arc::new(Hca { fabric: Arc::clone(self), device, events }))
    }
}

/// An opened adapter.
pub struct Hca {
    pub(crate) fabric: Arc<Fabric>,
    pub(crate) device: usize,
    pub(crate) events: Mailbox,
}

impl Hca {
    /// What it can do.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.spec().limits
    }

    /// How it does it.
    #[must_use]
    pub fn behaviour(&self) -> &Behaviour {
        &self.spec().behaviour
    }

    /// Its description.
    #[must_use]
    pub fn spec(&self) -> &DeviceSpec {
        &self.fabric.devices()[self.device]
    }

    /// A port as it is now.
    /// # Errors
    /// EINVAL for a port it does not have.
    pub fn port(&self, port: u32) -> Result<&PortSpec> {
        if port == 0 || port as usize > self.spec().ports.len() {
            return Err(Errno(libc::EINVAL));
        }
        Ok(self.fabric.port(self.device, port))
    }

    /// `codes::port_state` now.
    /// # Errors
    /// EINVAL for a port it does not have.
    pub fn port_state(&self, port: u8) -> Result<u32> {
        self.port(u32::from(port))?;
        Ok(self.fabric.header().port_state[self.device][usize::from(port) - 1].seen())
    }

    /// Readable when an async event waits.
    #[must_use]
    pub fn async_fd(&self) -> RawFd {
        self.events.fd()
    }

    /// Raw ticks of the core clock now, masked.
    #[must_use]
    pub fn read_clock(&self) -> u64 {
        clock::ticks(&self.spec().clock, clock::now())
    }
}
