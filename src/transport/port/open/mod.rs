// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens a port of a device ([`Device`]): its queues and their memory, and the carriers of hellos. Called by the
//! plugin's initialisation. `stand_in.rs` makes a port without a device, for tests. Grade: setup. Threads: one. Tests:
//! below, and `hw-tests`.

mod device;
#[cfg(any(test, feature = "stand-in"))]
pub(super) mod stand_in;

use super::admission::Admission;
use super::closing::Closing;
use super::{ASYNC_INTERVAL, Attributes, Diversion, Port, Setup};
use crate::connect::carriers::NetworkCarriers;
use crate::connect::{Identity, host};
use crate::counters::{Counters, add};
use crate::limits;
use crate::select::PortChoice;
use crate::select::address::PortAddress;
use crate::select::key::Key;
use crate::transport::adapter::verbs::{SharedReceives, SlotMemory, Verbs};
use crate::transport::adapter::{Adapter, CompletionQueue as _, QueuePair as _};
use crate::transport::completion::{Batch, Undelivered};
use crate::transport::connections::Connections;
use crate::transport::connections::handshakes::{Handshakes, Ourselves};
use crate::transport::connections::probe::Probes;
use crate::transport::kept::Kept;
use crate::transport::rx::Rx;
use crate::transport::tx::{self, Tx, bounce};
use crate::transport::watch;
use crate::tunables::Tunables;
use ibex_ffi::verbs::{CompletionChannel, ProtectionDomain};
use std::io;
use std::sync::Arc;
use std::time::Duration;

pub use device::Device;

/// Fewest receives, and fewest sends, with which a port works.
const FEWEST: u32 = 16;

/// Fewest receive slots per port if a process opens several, unless the user sets a smaller total: a window of
/// messages.
const FEWEST_SHARED: u32 = 128;

/// Most completions of a poll: enough for bandwidth, few enough that a single message is reported soon.
const POLL_BATCH: usize = 16;
const _: () = assert!(POLL_BATCH <= Batch::CAPACITY, "the completions of a poll fit in a batch");

/// Number of receive slots that are posted again at a time, for one doorbell, if the queue is long enough.
const RECEIVE_BATCH: u32 = 32;

/// One of this many inline sends asks for a completion, if the queue is long enough. With fewer completions, entries of
/// the queue would become free too late.
const SIGNAL_INTERVAL: u32 = 32;

/// Polls between two checks of the datagram queue while no handshake is in progress: a check costs about a poll.
const LOOK_PAUSE: u32 = 16;

impl Port<Verbs> {
    /// Opens a port on a device of its own.
    ///
    /// # Errors
    /// [`PortError`]: the operation that failed, its values, and advice.
    pub fn open(choice: &PortChoice, tunables: &Tunables, setup: Setup) -> Result<Port, PortError> {
        Port::on(&Device::open(choice)?, tunables, setup)
    }

    /// Opens a port on a device: completion queue, shared receive queue with slots, and the carriers of hellos.
    ///
    /// # Errors
    /// [`PortError`]: the operation that failed, its values, and advice.
    pub fn on(device: &Device, tunables: &Tunables, setup: Setup) -> Result<Port, PortError> {
        let choice = &device.choice;
        let place = PortError::place(choice);
        let failed = |doing: &str, error| PortError::new(choice, doing, error);

        let asked = share(tunables.receive_queue_depth as u32, setup.ports);
        let depth = device.receives(asked);
        let depth = depth.map_err(|lack| failed(&lack, io::Error::from(io::ErrorKind::Unsupported)))?;
        if depth < asked && setup.directory.verbosity() > 0 {
            setup.directory.print(&format!(
                "{place}: {depth} receives are posted instead of {asked} (btl_ibex_receive_queue_depth), because the adapter's \
                 completion queues hold {} entries, half of them for sends, and its shared receive queues {}",
                device.limits.max_cqe, device.limits.max_srq_wr
            ));
        }
        let channel = setup.sleeps.then(|| CompletionChannel::new(&device.context).map(Arc::new)).transpose();
        let channel = channel.map_err(|error| failed("making a completion channel", error))?;
        let cq = device.completion_queue(depth, tunables, channel.as_ref()).map_err(|(entries, error)| {
            failed(&format!("making a completion queue of {entries} entries (btl_ibex_completion_queue_depth)"), error)
        })?;
        let batch = receive_batch(depth);
        let memory = SlotMemory::of(tunables, setup.processes);
        let rx = SharedReceives::new(&device.domain, memory, setup.receive_size, depth, batch)
            .and_then(|receives| Rx::new(receives, batch, setup.index))
            .map_err(|error| PortError {
                bytes: Some(u64::from(depth) * u64::from(setup.receive_size)),
                ..failed(
                    &format!("making a shared receive queue of {depth} slots of {} bytes", setup.receive_size),
                    error,
                )
            })?;
        let slots = rx.queue().arena();
        if setup.directory.verbosity() > 0 {
            let (kib, pages) = (slots.bytes() / 1024, slots.pages());
            setup.directory.print(&format!("{place}: {kib} KiB of receive slots are in {pages} (btl_ibex_huge_pages)"));
        }
        let counters = Counters::new(device.context.sysfs(), choice.port);
        add(&counters.receive_memory, slots.bytes() as u64);
        add(&counters.huge_memory, slots.explicit_bytes() as u64);
        if device.domain.refuses_relaxed_ordering() && setup.directory.verbosity() > 0 {
            setup.directory.print(&format!(
                "{place}: the adapter refuses memory with relaxed ordering (btl_ibex_relaxed_ordering); it gets all memory without"
            ));
        }

        let limits = device.queue_pair_limits(tunables);
        let adapter = Verbs::new(Arc::clone(&device.domain), Arc::clone(&device.events), limits, memory);
        let bounce = adapter
            .send_slots(setup.bounce_size, bounce::COUNT)
            .map_err(|error| failed(&format!("registering bounce buffers of {} bytes", setup.bounce_size), error))?;
        add(&counters.send_memory, bounce.bytes() as u64);
        let probe = adapter
            .queue_pair(&cq, rx.queue())
            .map_err(|error| {
                let (sends, inline) = (limits.sends, limits.inline);
                let doing = format!(
                    "making a queue pair of {sends} sends (btl_ibex_send_queue_depth) with {inline} bytes inline (btl_ibex_max_inline)"
                );
                failed(&doing, error)
            })?;
        let max_inline = probe.max_inline().min(limits.inline);
        drop(probe);
        let handshakes = handshakes(device, tunables, &setup)
            .map_err(|error| failed("making the handshake's queue pair and listener", error))?;
        // Opened last, when nothing can fail any more: tools number ports by their sources.
        let source = watch::open_source(&device.context, &cq, (&place, choice.gid));

        let credits = cq.capacity().saturating_sub(depth);
        let tx = Tx::new(
            &tx::Limits {
                credits,
                signal_interval: signal_interval(limits.sends),
                send_slots: tunables.send_slots_max,
                max_inline,
            },
            bounce,
        );
        let parts = Parts {
            handshakes,
            cq,
            rx,
            tx,
            adapter,
            attributes: device.attributes(max_inline),
            counters,
            depth: limits.sends,
            setup,
            choice: choice.clone(),
            source,
            look_pause: LOOK_PAUSE,
        };
        Ok(Port::of(parts, tunables))
    }

    /// Returns the channel on which threads may sleep ([`Setup::sleeps`]).
    pub fn channel(&self) -> Option<Arc<CompletionChannel>> {
        self.cq.channel().cloned()
    }

    /// Has the next completion make the channel readable, and the next poll check connections. For a thread that will
    /// sleep; it polls until a poll finds nothing first. Connections need such a poll from time to time.
    ///
    /// # Errors
    /// The error of the adapter.
    pub fn arm(&mut self) -> io::Result<()> {
        self.countdown = 1;
        self.cq.arm()
    }

    /// Returns the port's protection domain, with which any thread may register memory.
    pub fn domain(&self) -> Arc<ProtectionDomain> {
        Arc::clone(self.adapter.domain())
    }
}

/// Returns the number of a process's receive slots that each of its ports gets.
fn share(slots: u32, ports: u32) -> u32 {
    (slots / ports.max(1)).max(FEWEST_SHARED).min(slots)
}

/// Number of receive slots to post at a time: at most an eighth of a queue's `depth`, so that most slots are posted.
fn receive_batch(depth: u32) -> usize {
    (depth / 8).clamp(1, RECEIVE_BATCH) as usize
}

/// Signal interval of a queue pair that takes `depth` requests: at most half, so that a full queue has one due.
fn signal_interval(depth: u32) -> u32 {
    SIGNAL_INTERVAL.min(depth / 2).max(1)
}

/// Returns the number of receives to post if the user asks for `asked`: at most the shared receive queue's size and
/// half of the completion queue, whose other half is for sends. `None` if that is too few.
fn receives(asked: u32, max_srq_wr: u32, max_cqe: u32) -> Option<u32> {
    let receives = asked.min(max_srq_wr).min(max_cqe / 2);
    (receives >= FEWEST).then_some(receives)
}

fn handshakes(device: &Device, tunables: &Tunables, setup: &Setup) -> io::Result<Handshakes<NetworkCarriers>> {
    let instance = setup.instance.map_or_else(host::new_instance, Ok)?;
    let (host, key) = (host::host_number(), Key::random()?);
    let carriers = NetworkCarriers::open(&device.context, &device.domain, &device.choice, tunables, (key, host))?;
    let address = carriers.publish(PortAddress { instance, host, ..device.choice.address() });
    let identity = Identity { name: setup.me, port: setup.index, address, key };
    let rd_atomic = device.rd_atomic();
    Ok(Handshakes::new(carriers, Ourselves { identity, rd_atomic }))
}

struct Parts<A: Adapter> {
    handshakes: Handshakes<A::Carriers>,
    cq: A::CompletionQueue,
    rx: Rx<A::ReceiveQueue>,
    tx: Tx<A::SendSlots>,
    adapter: A,
    attributes: Attributes,
    counters: Counters,
    depth: u32,
    setup: Setup,
    choice: PortChoice,
    source: Option<crate::events::SourceId>,
    look_pause: u32,
}

impl<A: Adapter> Port<A> {
    fn of(parts: Parts<A>, tunables: &Tunables) -> Self {
        let Parts { handshakes, cq, rx, tx, adapter, .. } = parts;
        Port {
            connections: Connections::new(),
            closing: Closing::new(),
            handshakes,
            cq,
            rx,
            tx,
            send_slots: Vec::new(),
            adapter,
            countdown: 1,
            undelivered: Undelivered::new(),
            exceptional: Vec::new(),
            counters: Arc::new(parts.counters),
            look_pause: parts.look_pause,
            look_interval: 1,
            polls_at_look: [0; 2],
            until_async: ASYNC_INTERVAL,
            async_due: Duration::ZERO,
            next_shown: 0,
            place: parts.setup.index,
            probes: Probes::new(Duration::from_secs(tunables.probe_interval)),
            parted: Vec::new(),
            admission: Admission::default(),
            diversion: Diversion::default(),
            sent: Vec::new(),
            kept: Kept::default(),
            unprinted: Vec::new(),
            attributes: parts.attributes,
            bounce_size: parts.setup.bounce_size,
            directory: parts.setup.directory,
            tunables: tunables.clone(),
            choice: parts.choice,
            depth: parts.depth,
            is_closing: false,
            source: parts.source,
        }
    }
}

/// A port could not be opened, or got no memory.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {doing} failed: {error}{}", advice(error, *bytes))]
pub struct PortError {
    /// Device and port.
    pub place: String,
    /// The operation that failed, with its numbers.
    pub doing: String,
    /// Memory that the operation takes; `None` if only the adapter's driver knows.
    pub bytes: Option<u64>,
    /// The error of the adapter or the kernel.
    pub error: io::Error,
}

impl PortError {
    fn new(choice: &PortChoice, doing: &str, error: io::Error) -> Self {
        PortError { place: Self::place(choice), doing: doing.to_owned(), bytes: None, error }
    }

    fn place(choice: &PortChoice) -> String {
        format!("{}:{}", choice.device, choice.port)
    }
}

fn advice(error: &io::Error, bytes: Option<u64>) -> String {
    if let Some(advice) = limits::advice(error, bytes) {
        return format!(". {advice}");
    }
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            ". This user may not use the device: see the permissions of /dev/infiniband/uverbs*; the rdma-core package's \
             udev rules open them to all users"
        }
        io::ErrorKind::InvalidInput => {
            ". The adapter cannot do what was asked: see its limits with `ibv_devinfo -v` and lower the parameter"
        }
        io::ErrorKind::NotFound => ". The device has gone since it was listed",
        _ => "",
    };
    advice.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ports_of_a_process_share_its_receive_slots() {
        assert_eq!([1, 2, 3, 4].map(|ports| share(1024, ports)), [1024, 512, 341, 256]);
        assert_eq!(share(1024, 16), FEWEST_SHARED);
        assert_eq!(share(64, 2), 64);
    }

    #[test]
    fn a_port_posts_an_eighth_of_its_receives_at_a_time_and_at_most_thirty_two() {
        assert_eq!([1, 16, 64, 128, 256, 1024, 32_767].map(receive_batch), [1, 2, 8, 16, 32, 32, 32]);
    }

    #[test]
    fn a_send_queue_asks_for_a_completion_at_its_half_at_the_latest() {
        assert_eq!([1, 16, 32, 63, 64, 16384].map(signal_interval), [1, 8, 16, 31, 32, 32]);
    }

    #[test]
    fn half_of_a_completion_queue_is_for_sends() {
        assert_eq!(receives(1024, 32_768, 4_194_303), Some(1024));
        assert_eq!(receives(1024, 32_768, 2047), Some(1023));
        assert_eq!(receives(1024, 128, 255), Some(127));
        assert_eq!(receives(1024, 100, 255), Some(100));
        assert_eq!(receives(32_767, 1_048_576, 32_767), Some(16_383));
        // Queues for fewer than sixteen receives or sends are too short.
        assert_eq!(receives(1024, 32_768, 32), Some(16));
        assert_eq!(receives(1024, 32_768, 31), None);
        assert_eq!(receives(1024, 15, 4096), None);
    }
    #[test]
    fn a_port_that_cannot_be_opened_says_what_failed_and_what_to_do() {
        let said = |kind: io::ErrorKind| {
            let (place, doing) = ("mlx5_0:1".to_owned(), "opening the device".to_owned());
            PortError { place, doing, bytes: None, error: kind.into() }.to_string()
        };
        for (kind, advice) in [
            (io::ErrorKind::PermissionDenied, "permissions of /dev/infiniband/uverbs*"),
            (io::ErrorKind::InvalidInput, "`ibv_devinfo -v`"),
            (io::ErrorKind::NotFound, ". The device has gone since it was listed"),
        ] {
            let text = said(kind);
            assert!(text.starts_with("mlx5_0:1: opening the device failed: ") && text.contains(advice), "{text}");
        }
        let unexplained = io::ErrorKind::Other;
        assert_eq!(said(unexplained), format!("mlx5_0:1: opening the device failed: {unexplained}"));
        let error = io::Error::from_raw_os_error(libc::ENOMEM);
        assert!(advice(&error, Some(1)).starts_with(". "), "the advice of a limit");
    }
}
