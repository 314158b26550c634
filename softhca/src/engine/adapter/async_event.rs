// SPDX-License-Identifier: MIT OR Apache-2.0
//! Async events of an opened adapter: about the adapter, its ports and this process's objects.
//!
//! Called by: the C side; a program's event thread sleeps here. Grade: setup. Thread rule: any thread that holds no
//! shared lock: reading an event may flush a queue pair.

use crate::engine::{
    Result,
    adapter::hca::Hca,
    fabric::pipes::{ABOUT_CQ, ABOUT_PORT, ABOUT_QP, ABOUT_SRQ},
    qp::error,
    service::deferred::run_deferred,
};

/// Whom an async event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectRef {
    /// The cookie given to `create_cq`.
    Cq(u64),
    /// The cookie given to `create_qp`.
    Qp(u64),
    /// The cookie given to `create_srq`.
    Srq(u64),
    /// A port number.
    Port(u8),
    /// The adapter.
    Device,
}

/// An async event of an opened adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// `codes::event`.
    pub kind: u32,
    /// Whom it is about.
    pub object: ObjectRef,
}

impl Hca {
    /// The next async event; waits unless the descriptor is `O_NONBLOCK`.
    /// # Errors
    /// EAGAIN, EINTR.
    pub fn read_async_event(&self) -> Result<AsyncEvent> {
        let record = self.events.read()?;
        if record.about == ABOUT_QP && self.behaviour().flush_needs_async_read {
            error::event_was_read(&self.fabric, record.id);
            run_deferred(&self.fabric);
        }
        let object = match record.about {
            ABOUT_CQ => ObjectRef::Cq(record.cookie),
            ABOUT_QP => ObjectRef::Qp(record.cookie),
            ABOUT_SRQ => ObjectRef::Srq(record.cookie),
            ABOUT_PORT => ObjectRef::Port(record.id as u8),
            _ => ObjectRef::Device,
        };
        Ok(AsyncEvent { kind: record.event, object })
    }
}
