// SPDX-License-Identifier: MIT OR Apache-2.0
//! An open device: its context and its protection domain. The ports of one device may share them, so that memory which
//! is registered once may be used by each of them.
//!
//! Called by `port/open`, and by a host whose ports share a device. Grade: setup. Threads: any. Tests: `port/open`, and
//! `hw-tests`.

use super::{FEWEST, POLL_BATCH, PortError, receives};
use crate::select::PortChoice;
use crate::transport::adapter::verbs::Events;
use crate::transport::port::{Atomics, Attributes};
use crate::tunables::Tunables;
use ibex_ffi::verbs::{
    CompletionChannel, CompletionQueue, Context, DeviceAttributes, PortAttributes, ProtectionDomain, QueuePairLimits,
    atomic_cap,
};
use std::io;
use std::sync::Arc;

/// Reads and atomics that a queue pair may have in flight: as many as adapters take. Fewer for a software adapter,
/// whose read-ahead data would fall out of the processor's cache before it is copied.
const READS_IN_FLIGHT: u8 = 16;
const SOFTWARE_READS_IN_FLIGHT: u8 = 4;

/// An open device, for the port that was chosen.
#[derive(Debug)]
pub struct Device {
    pub(super) choice: PortChoice,
    pub(super) context: Arc<Context>,
    pub(super) limits: DeviceAttributes,
    port: PortAttributes,
    pub(super) domain: Arc<ProtectionDomain>,
    pub(super) events: Arc<Events>,
}

impl Device {
    /// Opens the device of a port, and makes a protection domain.
    ///
    /// # Errors
    /// [`PortError`]: the operation that failed, and advice.
    pub fn open(choice: &PortChoice) -> Result<Self, PortError> {
        let failed = |doing: &str, error| PortError::new(choice, doing, error);
        let context = Context::open(&choice.device).map_err(|error| failed("opening the device", error))?;
        let limits = context.attributes().map_err(|error| failed("asking for the device's attributes", error))?;
        let port = context.port(choice.port).map_err(|error| failed("asking for the port's attributes", error))?;
        let domain = ProtectionDomain::new(&context).map_err(|error| failed("making a protection domain", error))?;
        Ok(Device { choice: choice.clone(), context, limits, port, domain, events: Arc::default() })
    }

    /// Returns the protection domain, with which any thread may register memory.
    pub fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }

    /// Returns the device's atomics.
    pub fn atomics(&self) -> Atomics {
        match self.limits.atomic_cap {
            atomic_cap::NONE => Atomics::None,
            atomic_cap::ADAPTER => Atomics::Adapter,
            _ => Atomics::Host,
        }
    }

    pub(super) fn queue_pair_limits(&self, tunables: &Tunables) -> QueuePairLimits {
        QueuePairLimits {
            sends: (tunables.send_queue_depth as u32).min(self.limits.max_qp_wr),
            spans: self.limits.max_sge.min(2),
            // An inline message has two spans.
            inline: if self.gathers() { tunables.max_inline as u32 } else { 0 },
        }
    }

    fn gathers(&self) -> bool {
        self.limits.max_sge >= 2
    }

    /// Returns the number of receives to post if the user asks for `asked`; or the adapter's limit, as part of a
    /// message.
    pub(super) fn receives(&self, asked: u32) -> Result<u32, String> {
        let DeviceAttributes { max_srq_wr, max_cqe, .. } = self.limits;
        if max_srq_wr == 0 {
            return Err("making a shared receive queue, which this adapter does not have,".to_owned());
        }
        receives(asked, max_srq_wr, max_cqe).ok_or_else(|| {
            format!(
                "making queues for {FEWEST} receives and {FEWEST} sends on an adapter whose completion queues hold {max_cqe} \
                 entries, and its shared receive queues {max_srq_wr},"
            )
        })
    }

    /// Makes the completion queue, with the adapter's stamps if it can give them and tools may ask for them.
    pub(super) fn completion_queue(
        &self,
        receives: u32,
        tunables: &Tunables,
        channel: Option<&Arc<CompletionChannel>>,
    ) -> Result<CompletionQueue, (u32, io::Error)> {
        let entries = (tunables.completion_queue_depth as u32).max(receives + 256).min(self.limits.max_cqe);
        let is_stamping = cfg!(feature = "events") && tunables.event_adapter_clock;
        let stamping = is_stamping.then(|| CompletionQueue::stamping(&self.context, entries, POLL_BATCH, channel));
        stamping
            .and_then(Result::ok)
            .map_or_else(|| CompletionQueue::new(&self.context, entries, POLL_BATCH, channel), Ok)
            .map_err(|error| (entries, error))
    }

    pub(super) fn attributes(&self, max_inline: u32) -> Attributes {
        Attributes {
            device: self.choice.device.clone(),
            port: self.choice.port,
            mbps: self.port.rate_mbps,
            max_message: u64::from(self.port.max_message),
            max_inline,
            gathers: self.gathers(),
            software: self.context.is_software(),
            atomics: self.atomics(),
            link_layer: self.choice.link_layer,
        }
    }

    /// Most reads and atomics of a queue pair in flight, as initiator and as responder.
    pub(super) fn rd_atomic(&self) -> (u8, u8) {
        let initiator = if self.context.is_software() { SOFTWARE_READS_IN_FLIGHT } else { READS_IN_FLIGHT };
        (initiator.min(self.limits.max_rd_atomic.1), READS_IN_FLIGHT.min(self.limits.max_rd_atomic.0))
    }
}
