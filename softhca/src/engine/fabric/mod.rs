// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fabric as one process has joined it: its mapping of the shared memory, the description of the adapters, and the
//! state that this process keeps for itself. It knows no queue: queues and the service thread work on it. Called by:
//! everything in the engine. Grade: setup; `port` and the flags are hot (loads; a fabric in which no port has changed
//! pays one predicted branch). Thread rule: any thread. It lives as long as the process, because its service thread
//! holds it. How a process joins: `service`.

use std::collections::HashSet;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use idle::Idle;
use locked_memory::LockedMemory;
use pipes::{Mailbox, Pipes, Record};
use sysfs::Texts;
use timers::{DeferredWork, Timers};
use trace::Trace;

use crate::engine::codes::{link_layer, port_state};
use crate::engine::faults::rule::Timeline;
use crate::engine::memory::layout::{MAX_DEVICES, MAX_PORTS};
use crate::engine::spec::dgid;
use crate::engine::{AhAttr, DeviceSpec, FaultAction, FaultRule, PortSpec, Process, Result};

pub(crate) mod idle;
pub(crate) mod locked_memory;
pub(crate) mod pipes;
pub(crate) mod sysfs;
pub(crate) mod timers;
pub(crate) mod trace;

/// A fabric: the folder of its shared state, its adapters and its faults. All its processes must give the same.
#[derive(Clone, Debug)]
pub struct FabricSpec {
    /// A folder on a memory file system, which exists and belongs to the user alone.
    pub folder: PathBuf,
    /// 1 to 4 adapters.
    pub devices: Vec<DeviceSpec>,
    /// Rules, in the order in which they are tried.
    pub faults: Vec<FaultRule>,
    /// Whether completions are written to files (docs/softhca.md, "The trace").
    pub trace: bool,
}

/// A joined fabric.
pub struct Fabric {
    process: Process,
    spec: FabricSpec,
    pub(crate) pipes: Pipes,
    pub(crate) timers: Timers,
    pub(crate) deferred: DeferredWork,
    pub(crate) idle: Idle,
    pub(crate) locked: LockedMemory,
    pub(crate) texts: Texts,
    /// Numbers of the existing address handles of adapters that look a handle up when they send.
    pub(crate) handles: Mutex<HashSet<u32>>,
    pub(crate) ports: ChangedPorts,
    contexts: Mutex<Vec<(usize, u32)>>,
    /// Timed rules: the events that this process has reported to its programs.
    pub(crate) timeline: Mutex<Timeline>,
    /// Whether any completion carries a time before which polls do not see it.
    pub(crate) has_model: bool,
    pub(crate) has_faults: bool,
    pub(crate) trace: Option<Trace>,
}

/// Locks, the heap and the tables use only this part of a fabric: this process in its shared memory.
impl Deref for Fabric {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl Fabric {
    pub(crate) fn new(process: Process, spec: FabricSpec) -> Result<Fabric> {
        let is_slowed = |device: &DeviceSpec| device.latency_ns != 0 || device.bandwidth_gbps > 0.0;
        let is_delay = |rule: &FaultRule| matches!(rule.action, FaultAction::Delay(_));
        let doorbell = Mailbox::new(&spec.folder, process.next_id())?;
        Ok(Fabric {
            process,
            pipes: Pipes::new(&spec.folder),
            timers: Timers::new(doorbell),
            deferred: DeferredWork::default(),
            idle: Idle::default(),
            locked: LockedMemory::default(),
            texts: Texts::default(),
            handles: Mutex::default(),
            ports: ChangedPorts::default(),
            contexts: Mutex::default(),
            timeline: Mutex::new(Timeline::new(&spec.devices)),
            has_model: spec.devices.iter().any(is_slowed) || spec.faults.iter().any(is_delay),
            has_faults: !spec.faults.is_empty(),
            trace: spec.trace.then(|| Trace::open(&spec.folder)).transpose()?,
            spec,
        })
    }

    /// The adapters.
    pub fn devices(&self) -> &[DeviceSpec] {
        &self.spec.devices
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.spec.folder
    }

    pub(crate) fn rules(&self) -> &[FaultRule] {
        &self.spec.faults
    }

    pub(crate) fn is_active(&self, device: u32, port: u32) -> bool {
        self.header().port_state[device as usize][port as usize - 1].get() == port_state::ACTIVE
    }

    /// Notes an opened adapter: its events go to `pipe`. Maps counters now, so that counting need not.
    pub(crate) fn opened(&self, device: usize, pipe: u32) {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner).push((device, pipe));
        self.texts.map_all(self.folder(), self.devices());
    }

    /// Reports an event to all programs of this process that opened `device`, if the adapter raises such events.
    pub(crate) fn raise(&self, device: usize, record: Record) {
        if !self.spec.devices[device].behaviour.async_events.raises(record.event) {
            return;
        }
        for (index, pipe) in &*self.contexts.lock().unwrap_or_else(PoisonError::into_inner) {
            if *index == device {
                self.pipes.send(*pipe, record);
            }
        }
    }

    /// Returns port `port` (from 1) of `device`, as it is now.
    pub(crate) fn port(&self, device: usize, port: u32) -> &PortSpec {
        let index = port as usize - 1;
        self.ports.get(device, index).unwrap_or_else(|| &self.devices()[device].ports[index])
    }

    /// Whether packets between these ports (adapter, port) can arrive: both link layers and both networks are the same.
    pub(crate) fn is_one_network(&self, one: (u32, u32), other: (u32, u32)) -> bool {
        let of = |(device, port): (u32, u32)| {
            let device = &self.devices()[device as usize];
            (device.link_layer, &device.ports[port as usize - 1].network)
        };
        of(one) == of(other)
    }

    /// Returns the port (adapter, number) that a packet for `ah` reaches from `port` of `device`: by LID within the
    /// subnet on InfiniBand, by GID on Ethernet. `None`: no port that can be reached has that address.
    pub(crate) fn route(&self, device: usize, port: u8, ah: &AhAttr) -> Option<(u32, u32)> {
        let from = (device as u32, u32::from(port));
        let is_ethernet = self.devices()[device].link_layer == link_layer::ETHERNET;
        let prefix = |spec: &PortSpec| spec.gids.first().map(|gid| gid.raw[..8].to_owned());
        let subnet = prefix(self.port(device, from.1));
        let ports = self
            .devices()
            .iter()
            .enumerate()
            .flat_map(|(index, device)| (1..=device.ports.len() as u32).map(move |port| (index as u32, port)));
        ports.filter(|to| self.is_one_network(from, *to)).find(|&(device, port)| {
            let spec = self.port(device as usize, port);
            if !is_ethernet && ah.dlid != 0 {
                return spec.lid == ah.dlid && prefix(spec) == subnet;
            }
            (is_ethernet || ah.is_global != 0) && spec.gids.iter().any(|gid| !gid.is_empty() && gid.raw == dgid(ah))
        })
    }
}

/// The ports that have changed. A former description stays allocated, as a thread may be reading it: changes are few.
#[derive(Default)]
pub(crate) struct ChangedPorts {
    have_changed: AtomicBool,
    ports: RwLock<[[Option<&'static PortSpec>; MAX_PORTS]; MAX_DEVICES]>,
}

impl ChangedPorts {
    pub(crate) fn have_changed(&self) -> bool {
        self.have_changed.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn get(&self, device: usize, port: usize) -> Option<&'static PortSpec> {
        if !self.have_changed() {
            return None;
        }
        self.ports.read().unwrap_or_else(PoisonError::into_inner)[device][port]
    }

    pub(crate) fn put(&self, device: usize, port: usize, now: PortSpec) {
        let mut ports = self.ports.write().unwrap_or_else(PoisonError::into_inner);
        ports[device][port] = Some(Box::leak(Box::new(now)));
        self.have_changed.store(true, Ordering::Relaxed);
    }
}
