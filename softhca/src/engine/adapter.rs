// SPDX-License-Identifier: MIT OR Apache-2.0
//! An opened adapter, and the objects on it that need no queue: protection domains, address handles, completion
//! channels, async events. The other objects have their own constructors (`Hca::create_qp` is with the queue pairs).
//! Called by: `verbs`, every object; `send::post` (the target of an address handle). Grade: setup; programs sleep here
//! for events. Thread rule: any thread; the reader of an async event holds no shared lock: it may flush sends.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::behaviour::Behaviour;
use crate::engine::codes::link_layer;
use crate::engine::fabric::pipes::{ABOUT_PORT, ABOUT_QP, Mailbox};
use crate::engine::qp::table;
use crate::engine::service::run_deferred;
use crate::engine::spec::set_of;
use crate::engine::{AhAttr, DeviceSpec, Errno, Fabric, PortSpec, Result, clock};
use crate::limits::Limits;

impl Fabric {
    /// Opens adapter `device`.
    /// Errors: ENODEV, EMFILE.
    pub fn open(self: &Arc<Self>, device: usize) -> Result<Arc<Hca>> {
        self.devices().get(device).ok_or(Errno(libc::ENODEV))?;
        let events = Mailbox::new(self.folder(), self.next_id())?;
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
    /// Returns its limits.
    pub fn limits(&self) -> &Limits {
        &self.spec().limits
    }

    /// Returns its behaviour.
    pub fn behaviour(&self) -> &Behaviour {
        &self.spec().behaviour
    }

    /// Returns its description.
    pub fn spec(&self) -> &DeviceSpec {
        &self.fabric.devices()[self.device]
    }

    /// Returns a port as it is now.
    /// Errors: EINVAL for a port it does not have.
    pub fn port(&self, port: u32) -> Result<&PortSpec> {
        if port == 0 || port as usize > self.spec().ports.len() {
            return Err(Errno(libc::EINVAL));
        }
        Ok(self.fabric.port(self.device, port))
    }

    /// Returns the `codes::port_state` now.
    /// Errors: EINVAL for a port it does not have.
    pub fn port_state(&self, port: u8) -> Result<u32> {
        self.port(u32::from(port))?;
        Ok(self.fabric.header().port_state[self.device][usize::from(port) - 1].seen())
    }

    /// Returns the descriptor that is readable when an async event waits.
    pub fn async_fd(&self) -> RawFd {
        self.events.fd()
    }

    /// Returns raw ticks of the core clock now, masked.
    pub fn read_clock(&self) -> u64 {
        clock::ticks(&self.spec().clock, clock::now())
    }

    /// Returns the next async event, whose object may be gone; waits unless the descriptor is `O_NONBLOCK`.
    /// Errors: EAGAIN, EINTR.
    pub fn read_async_event(&self) -> Result<AsyncEvent> {
        let record = self.events.read()?;
        if record.about == ABOUT_QP && self.behaviour().flush_needs_async_read {
            table::event_was_read(&self.fabric, record.id);
            run_deferred(&self.fabric);
        }
        let port = if record.about == ABOUT_PORT { record.id as u8 } else { 0 };
        Ok(AsyncEvent { kind: record.event, cookie: record.cookie, port })
    }

    /// Allocates a protection domain.
    pub fn alloc_pd(self: &Arc<Self>) -> Pd {
        Pd { hca: Arc::clone(self), id: self.fabric.next_id(), users: Users::default() }
    }

    /// Creates an address handle.
    /// Errors: EINVAL: no such port or GID index; on Ethernet an address without GRH.
    pub fn create_ah(self: &Arc<Self>, pd: &Pd, attr: &AhAttr) -> Result<Ah> {
        check(self, attr)?;
        let attr = set_of(attr);
        let to = self.fabric.route(self.device, attr.port_num, &attr);
        let handle = if self.behaviour().ah_by_index { self.fabric.next_id() } else { 0 };
        if handle != 0 {
            self.fabric.handles.lock().unwrap_or_else(PoisonError::into_inner).insert(handle);
        }
        let in_pd = Mutex::new(Some(pd.users.enter()));
        Ok(Ah { attr, pd: pd.id, to, handle, hca: Arc::clone(self), in_pd })
    }

    /// Creates a completion channel.
    /// Errors: EMFILE.
    pub fn create_channel(self: &Arc<Self>) -> Result<Channel> {
        let mailbox = Mailbox::new(self.fabric.folder(), self.fabric.next_id())?;
        Ok(Channel { mailbox, users: Users::default() })
    }
}

/// An async event of an opened adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// `codes::event`.
    pub kind: u32,
    /// The cookie given to `create_cq`, `create_qp` or `create_srq`; 0 for an event of a port or of the adapter.
    pub cookie: u64,
    /// The port's number; 0 for all other events.
    pub port: u8,
}

/// Number of users of an object, which cannot be destroyed while it has any.
#[derive(Default)]
pub(crate) struct Users(Arc<AtomicU32>);

pub(crate) struct Use(Arc<AtomicU32>);

impl Users {
    pub(crate) fn enter(&self) -> Use {
        self.0.fetch_add(1, Ordering::AcqRel);
        Use(Arc::clone(&self.0))
    }

    pub(crate) fn are_gone(&self) -> Result<()> {
        if self.0.load(Ordering::Acquire) == 0 { Ok(()) } else { Err(Errno(libc::EBUSY)) }
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A protection domain: a number that memory regions, queue pairs and address handles must share.
pub struct Pd {
    pub(crate) hca: Arc<Hca>,
    pub(crate) id: u32,
    pub(crate) users: Users,
}

impl Pd {
    /// Errors: EBUSY while an object is in it.
    pub fn destroy(&self) -> Result<()> {
        self.users.are_gone()
    }
}

/// An address handle.
pub struct Ah {
    pub(crate) attr: AhAttr,
    pub(crate) pd: u32,
    /// Adapter and port that have this address; a multicast group has none.
    pub(crate) to: Option<(u32, u32)>,
    /// Its number if the adapter looks the handle up when it sends; else 0.
    pub(crate) handle: u32,
    hca: Arc<Hca>,
    in_pd: Mutex<Option<Use>>,
}

impl Ah {
    /// Ends it, which never fails.
    pub fn destroy(&self) -> Result<()> {
        self.in_pd.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.hca.fabric.handles.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.handle);
        Ok(())
    }
}

pub(crate) fn check(hca: &Hca, attr: &AhAttr) -> Result<()> {
    let gids = &hca.port(u32::from(attr.port_num))?.gids;
    let is_right = if attr.is_global == 0 {
        hca.spec().link_layer != link_layer::ETHERNET
    } else {
        gids.get(usize::from(attr.grh.sgid_index)).is_some_and(|gid| !gid.is_empty())
    };
    if is_right { Ok(()) } else { Err(Errno(libc::EINVAL)) }
}

/// A completion channel: a pipe that several completion queues notify.
pub struct Channel {
    pub(crate) mailbox: Mailbox,
    pub(crate) users: Users,
}

impl Channel {
    /// Returns the descriptor that is readable when an event waits; it may be made `O_NONBLOCK`.
    pub fn fd(&self) -> RawFd {
        self.mailbox.fd()
    }

    /// Returns the cookie of the next event's queue, which may be gone; waits unless the descriptor is `O_NONBLOCK`.
    /// Errors: EAGAIN, EINTR.
    pub fn read_event(&self) -> Result<u64> {
        self.mailbox.read().map(|record| record.cookie)
    }

    /// Errors: EBUSY while a queue uses it.
    pub fn destroy(&self) -> Result<()> {
        self.users.are_gone()
    }
}
