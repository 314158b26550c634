// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process's membership of a fabric: the mapping, who we are in it, and what is put off until no lock is held.
//!
//! Called by: the C side (join, open); every object holds it. Grade: setup; `token`, `region` and `settle` are hot
//! (loads). Thread rule: all of it may be called from any thread. It lives as long as the process: its service thread
//! holds it.

use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{
    DeviceSpec, Errno, FabricSpec, Result,
    ah::Handles,
    channel::{Pipes, Record},
    clock,
    counters::{self, Texts},
    cq,
    faults::{FaultAction, FaultRule, Timeline},
    hca::Hca,
    idle::Idle,
    locked::LockedMemory,
    process, qp,
    region::{MAX_DEVICES, MAX_PORTS, MAX_RULES, Region},
    service::Service,
    tables::{self, Tables},
    trace::Trace,
};

/// What must wait until no lock is held, because it takes other locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PutOff {
    /// Flush the sends of this queue pair (its index), which is in the error state.
    Flush(u32),
    /// This completion queue (its offset) has overrun: tell its owner, stop its queue pairs.
    Overrun(u64),
    /// This process (its token) was found dead.
    Bury(u32),
    /// Try again the sends of this queue pair (its index).
    Kick(u32),
}

/// A joined fabric.
pub struct Fabric {
    region: Region,
    token: u32,
    pid: u32,
    spec: FabricSpec,
    pub(crate) pipes: Pipes,
    pub(crate) service: Service,
    pub(crate) idle: Idle,
    /// What this process has registered, as far as its limit is concerned.
    pub(crate) locked: LockedMemory,
    pub(crate) texts: Texts,
    /// The address handles of this process, of adapters that look them up.
    pub(crate) handles: Handles,
    /// Ports that a rule has changed, and whether any rule changes one.
    pub(crate) tables: Tables,
    pub(crate) has_changes: bool,
    /// Opened adapters: index and pipe for events.
    contexts: Mutex<Vec<(usize, u32)>>,
    /// Timed rules: what this process has told its programs.
    pub(crate) timeline: Mutex<Timeline>,
    put_off: Mutex<Vec<PutOff>>,
    any_put_off: AtomicBool,
    /// Whether any completion carries a time before which it may not be seen.
    pub(crate) has_model: bool,
    /// Whether any rule for faults exists.
    pub(crate) has_faults: bool,
    /// Where completions are written down, if they are.
    pub(crate) trace: Option<Trace>,
}

impl Fabric {
    /// Joins the fabric in `spec.folder`, making its shared state if this process is the first. Once per process: keep
    /// it.
    /// # Errors
    /// The folder cannot be used; EINVAL if the adapters are not 1 to 4; E2BIG for more than 64 rules; ENOSPC if
    /// all process slots are taken; EPROTO if
    /// the folder was made by another version of this adapter.
    pub fn join(spec: FabricSpec) -> Result<Arc<Fabric>> {
        let sound = |device: &DeviceSpec| (1..=MAX_PORTS).contains(&device.ports.len());
        if !(1..=MAX_DEVICES).contains(&spec.devices.len()) || !spec.devices.iter().all(sound) {
            return Err(Errno(libc::EINVAL));
        }
        if spec.faults.len() > MAX_RULES {
            return Err(Errno(libc::E2BIG));
        }
        counters::make(&spec.folder, &spec.devices)
            .map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO)))?;
        let region = Region::open(&spec.folder)?;
        let token = region.exclusively(|| {
            region.begin(clock::now(), |header| {
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
        let fabric = Arc::new(Fabric {
            region,
            token,
            pid: std::process::id(),
            pipes: Pipes::new(&spec.folder),
            service: Service::new()?,
            idle: Idle::default(),
            locked: LockedMemory::default(),
            texts: Texts::default(),
            handles: Handles::default(),
            tables: Tables::default(),
            has_changes: tables::any_changes(&spec.faults),
            contexts: Mutex::default(),
            timeline: Mutex::default(),
            put_off: Mutex::new(Vec::new()),
            any_put_off: AtomicBool::new(false),
            has_model: spec.devices.iter().any(|d| d.latency_ns != 0 || d.bandwidth_gbps > 0.0)
                || spec.faults.iter().any(|rule| matches!(rule.action, FaultAction::Delay(_))),
            has_faults: !spec.faults.is_empty(),
            trace: spec.trace.then(|| Trace::open(&spec.folder)).transpose()?,
            spec,
        });
        process::bury_all(&fabric);
        Service::start(&fabric)?;
        Ok(fabric)
    }

    /// The adapters.
    #[must_use]
    pub fn devices(&self) -> &[DeviceSpec] {
        &self.spec.devices
    }

    /// The process that joined; after a fork the child must join anew.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid as i32
    }

    /// Opens adapter `device`.
    /// # Errors
    /// ENODEV, EMFILE.
    pub fn open(self: &Arc<Self>, device: usize) -> Result<Arc<Hca>> {
        Hca::open(self, device)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.spec.folder
    }

    /// The rules for faults; no more than there are counters for.
    pub(crate) fn rules(&self) -> &[FaultRule] {
        &self.spec.faults
    }

    #[inline]
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    #[inline]
    pub(crate) fn token(&self) -> u32 {
        self.token
    }

    pub(crate) fn is_dead(&self, token: u32) -> bool {
        process::is_dead(&self.region, token)
    }

    /// The pid to copy to or from for memory of process `token`; `Ok(None)` if it is this one.
    #[inline]
    pub(crate) fn other_pid(&self, token: u32) -> Result<Option<u32>> {
        if token == self.token {
            return Ok(None);
        }
        let pid = process::pid_of(&self.region, token).ok_or(Errno(libc::ESRCH))?;
        Ok((pid != self.pid).then_some(pid))
    }

    /// A number for a new object.
    pub(crate) fn next_id(&self) -> u32 {
        self.region.header().next_id.add(1) + 1
    }

    /// Whether port `port` (from 1) of `device` is active.
    #[inline]
    pub(crate) fn is_active(&self, device: u32, port: u32) -> bool {
        self.region.header().port_state[device as usize][port as usize - 1].get() == super::codes::port_state::ACTIVE
    }

    /// An adapter was opened: its events go to `pipe`.
    pub(crate) fn opened(&self, device: usize, pipe: u32) {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner).push((device, pipe));
    }

    /// Tells all programs of this process that opened `device`, if it raises such events.
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

    /// Remembers what must be done once the caller holds no lock.
    pub(crate) fn put_off(&self, action: PutOff) {
        let mut list = self.put_off.lock().unwrap_or_else(PoisonError::into_inner);
        if !list.contains(&action) {
            list.push(action);
        }
        self.any_put_off.store(true, Ordering::Release);
    }

    /// Does what was put off. Call with no lock held.
    #[inline]
    pub(crate) fn settle(&self) {
        if self.any_put_off.load(Ordering::Relaxed) {
            self.settle_now();
        }
    }

    #[cold]
    fn settle_now(&self) {
        loop {
            let list = {
                let mut list = self.put_off.lock().unwrap_or_else(PoisonError::into_inner);
                self.any_put_off.store(false, Ordering::Relaxed);
                std::mem::take(&mut *list)
            };
            if list.is_empty() {
                return;
            }
            for action in list {
                match action {
                    PutOff::Flush(index) => qp::flush_sends(self, index),
                    PutOff::Overrun(offset) => cq::overrun(self, offset),
                    PutOff::Bury(token) => process::bury(self, token),
                    PutOff::Kick(index) => super::sendq::kick(self, index),
                }
            }
        }
    }
}
