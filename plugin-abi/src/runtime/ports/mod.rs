// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ports of the process: opened once, for the first component that asks, with the sizes that it requests, and
//! closed when the last one drops them. Each component holds an `Arc` of every port, this file only weak references:
//! the `Arc` counts the users. `port` is an open port, `device` names its adapter, `memory` registers memory with it,
//! `modex` publishes its address; `shared_memory` is Open MPI's BTL for the processes of this host. Grade: setup.
//! Threads: any. Tests: below.

pub(crate) mod device;
pub(crate) mod memory;
pub(crate) mod modex;
pub(crate) mod port;
pub(crate) mod shared_memory;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use engine::flight;
use engine::fork;
use engine::select::address::PortEntry;
use engine::select::device::survey;
use engine::transport::{PortError, Setup};
use engine::tunables::Tunables;
use ibex_ffi::openmpi::process::{self, Process};
use parking_lot::Mutex;

use super::messages;
use super::variables::{self, now};
use port::{NotOpened, OpenPort};

pub(crate) const MAX_PORTS: usize = 16;

pub(crate) struct Request<'a> {
    pub(crate) tunables: &'a Tunables,
    /// Size in bytes of the largest message.
    pub(crate) receive_size: u32,
    /// Size in bytes of the largest message that may wait in unregistered memory.
    pub(crate) bounce_size: u32,
    pub(crate) threads: bool,
    /// Returns whether the user named this component, and so needs a message if there is no port.
    pub(crate) is_asked_for: fn() -> bool,
}

/// Values that are open as long as a user holds them.
struct InUse<T>(Vec<Weak<T>>);

impl<T> InUse<T> {
    const fn new() -> Self {
        InUse(Vec::new())
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|each| each.strong_count() == 0)
    }

    /// Returns the results of `take` for each open value or, if there is none, for those that `open` opens.
    fn share<M, F: FnMut(&Arc<T>) -> Option<M>>(
        &mut self,
        take: F,
        open: impl FnOnce(F) -> Vec<(Arc<T>, M)>,
    ) -> Vec<M> {
        let open_already: Vec<Arc<T>> = self.0.iter().filter_map(Weak::upgrade).collect();
        if !open_already.is_empty() {
            return open_already.iter().filter_map(take).collect();
        }
        let (opened, made): (Vec<_>, _) = open(take).into_iter().unzip();
        self.0 = opened.iter().map(Arc::downgrade).collect();
        made
    }
}

static PORTS: Mutex<InUse<OpenPort>> = Mutex::new(InUse::new());

/// Whether a port has been opened since this MPI was initialised.
static HAS_OPENED: AtomicBool = AtomicBool::new(false);

/// Returns whether this process uses ibex in its job, or did until MPI was finalised.
pub(crate) fn has_opened() -> bool {
    HAS_OPENED.load(Ordering::Acquire)
}

/// Forgets the state of a previous MPI, unless another component uses ports already. Called when a component is opened.
pub(crate) fn start_anew() {
    if PORTS.lock().is_empty() {
        HAS_OPENED.store(false, Ordering::Release);
    }
    forget();
}

/// Forgets the ports, unless another component still uses them. Called when a component is closed.
pub(crate) fn forget() {
    let ports = PORTS.lock();
    if ports.is_empty() {
        modex::forget_published();
        variables::forget_ports();
        // By now the flight recorder has the entries of the closed ports.
        flight::end();
    }
}

/// Returns the result of `take` for each port that a component can use; if there is no port, prints why. If `take`
/// fails for a port that was opened for this component, closes the port again and does not publish it.
pub(crate) fn open<M>(request: &Request<'_>, mut take: impl FnMut(&Arc<OpenPort>) -> Result<M, PortError>) -> Vec<M> {
    let Some(me) = Process::me() else { return Vec::new() };
    let take = |port: &Arc<OpenPort>| take(port).map_err(|error| messages::port_not_opened(&me.host(), &error)).ok();
    let made = PORTS.lock().share(take, |take| open_all(request, me, take));
    if !made.is_empty() {
        HAS_OPENED.store(true, Ordering::Release);
    }
    made
}

fn open_all<M>(
    request: &Request<'_>,
    me: Process,
    mut take: impl FnMut(&Arc<OpenPort>) -> Option<M>,
) -> Vec<(Arc<OpenPort>, M)> {
    let tunables = request.tunables;
    let survey = survey(tunables);
    if now::verbosity() > 0 {
        survey.report.iter().for_each(|line| messages::verbose(line));
    }
    if survey.ports.is_empty() {
        // A user who did not name ibex gets no message on a machine without an adapter.
        if now::verbosity() > 0 || (request.is_asked_for)() {
            messages::no_port(&survey.complaint);
        }
        return Vec::new();
    }
    // libibverbs must be prepared for forks before the first registration.
    if let Err(unprotected) = fork::prepare(tunables.forks()) {
        if unprotected.is_asked_for {
            messages::not_fork_safe(&unprotected);
            return Vec::new();
        }
        if now::verbosity() > 0 {
            messages::verbose(&unprotected.to_string());
        }
    }
    begin_flight(tunables, me);
    survey.warnings.iter().for_each(|warning| messages::of_survey(&me.host(), warning));
    let mut made: Vec<(Arc<OpenPort>, M)> = Vec::new();
    let mut entries: Vec<PortEntry> = Vec::new();
    let ports = survey.ports.len().min(MAX_PORTS);
    for choice in &survey.ports[..ports] {
        let setup = Setup {
            index: made.len() as u8,
            me: modex::from_openmpi(me.name()),
            instance: None,
            processes: process::local_processes(),
            ports: ports as u32,
            receive_size: request.receive_size,
            bounce_size: request.bounce_size,
            sleeps: false,
            directory: Box::new(modex::Published),
        };
        match OpenPort::open(choice, tunables, setup, request.threads) {
            Ok(port) => {
                let port = Arc::new(port);
                flight::name_port(port.index(), port.place(), choice.gid);
                let entry = announce(&port, me);
                if let Some((entry, mine)) = entry.zip(take(&port)) {
                    entries.push(entry);
                    made.push((port, mine));
                }
            }
            Err(NotOpened::Port(error)) => messages::port_not_opened(&me.host(), &error),
            Err(NotOpened::NoCache) => {
                messages::no_cache();
                return Vec::new();
            }
        }
    }
    if made.is_empty() {
        return made;
    }
    if let Err(code) = modex::publish(&entries) {
        messages::not_published(code);
        return Vec::new();
    }
    for (port, _) in &made {
        variables::show_port(port.counters());
    }
    made
}

/// Starts the flight recorder. If its file cannot be made, the job goes on without it.
fn begin_flight(tunables: &Tunables, me: Process) {
    let Some(folder) = tunables.flight_folder() else { return };
    let (name, host) = (me.name(), me.host());
    let process = flight::Process { job: name.job, rank: name.rank, host: &host, names_instances: false };
    if let Err(error) = flight::begin(folder, &process)
        && now::verbosity() > 0
    {
        messages::verbose(&format!("there is no flight recorder: no file in {}: {error}", folder.display()));
    }
}

/// Returns the entry that is published for a port that was just opened. Prints the port's warning.
fn announce(port: &OpenPort, me: Process) -> Option<PortEntry> {
    let state = port.enter()?;
    if let Some(warning) = state.warning() {
        messages::port_warning(&me.host(), port.place(), warning);
    }
    Some(state.entry())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(in_use: &mut InUse<()>, opened: &mut u32) -> Vec<Arc<()>> {
        in_use.share(
            |port| Some(Arc::clone(port)),
            |mut take| {
                *opened += 1;
                (0..2).map(|_| Arc::new(())).filter_map(|port| take(&port).map(|mine| (port, mine))).collect()
            },
        )
    }

    fn open(in_use: &InUse<()>) -> usize {
        in_use.0.iter().filter(|port| port.strong_count() > 0).count()
    }

    #[test]
    fn two_components_share_ports_until_the_last_one_drops_them_and_the_next_opens_new_ones() {
        let (mut in_use, mut opened) = (InUse::new(), 0);
        let btl = take_all(&mut in_use, &mut opened);
        let pml = take_all(&mut in_use, &mut opened);
        assert_eq!((opened, open(&in_use)), (1, 2));
        assert!(btl.iter().zip(&pml).all(|(one, other)| Arc::ptr_eq(one, other)) && btl.len() == pml.len());
        drop(btl);
        assert_eq!((in_use.is_empty(), open(&in_use)), (false, 2), "the other component uses them");
        drop(pml);
        assert_eq!((in_use.is_empty(), open(&in_use)), (true, 0));
        let again = take_all(&mut in_use, &mut opened);
        assert_eq!((opened, open(&in_use), again.len()), (2, 2, 2));
    }

    #[test]
    fn the_last_component_that_drops_a_port_closes_it_while_others_stay_open() {
        let (mut in_use, mut opened) = (InUse::new(), 0);
        let mut btl = take_all(&mut in_use, &mut opened);
        let mut pml = take_all(&mut in_use, &mut opened);
        btl.pop();
        assert_eq!(open(&in_use), 2);
        pml.pop();
        assert_eq!((in_use.is_empty(), open(&in_use)), (false, 1));
    }
}
