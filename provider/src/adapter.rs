// SPDX-License-Identifier: MIT OR Apache-2.0
//! The adapter's port that endpoints use: chosen once per process; its device is opened for each domain, and the port
//! for each endpoint.
//!
//! Called by `info` (the choice), `domain` (an open device) and `endpoint` (an open port). Grade: setup. Threads: any.
//! Tests: `hw-tests`.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use ibex::fork;
use ibex::peer::PeerName;
use ibex::select::address::PortEntry;
use ibex::select::address::compact::{self, CompactAddress};
use ibex::select::device::{PortChoice, survey};
use ibex::transport::adapter::verbs::Verbs;
use ibex::transport::{Device, Directory, Port, Setup};
use ibex::tunables::Tunables;
use parking_lot::Mutex;

use crate::av::AddressVector;
use crate::entry::Result;
use crate::flight::Place;
use crate::{flight, log, sys};

/// Size of a receive slot, bytes: the longest message that is sent whole, header included.
pub(crate) const RECEIVE_SIZE: u32 = 16 << 10;

/// Environment variables with the number of the job's processes on this host.
const LOCAL_SIZES: [&str; 3] = ["MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE"];

/// Environment variable with the seconds after which a peer that does not answer is lost.
const CONNECT_TIMEOUT: &str = "FI_IBEX_CONNECT_TIMEOUT";

/// Seconds between two probes of an idle peer: without them a receive from one that has died would wait for ever.
const PROBE_INTERVAL: u64 = 10;

static CHOICE: OnceLock<Option<PortChoice>> = OnceLock::new();

/// Returns the port that endpoints use; `None` if there is none. The first call examines the adapters.
pub(crate) fn choice() -> Option<&'static PortChoice> {
    let choose = || {
        let survey = survey(&Tunables::default());
        survey.report.iter().for_each(|line| log::line(sys::FI_LOG_INFO, sys::FI_LOG_CORE, line));
        survey.warnings.iter().for_each(|line| log::line(sys::FI_LOG_WARN, sys::FI_LOG_CORE, line));
        let first = survey.ports.into_iter().next();
        if first.is_none() {
            survey.complaint.lines().for_each(|line| log::line(sys::FI_LOG_INFO, sys::FI_LOG_CORE, line));
        }
        first
    };
    CHOICE.get_or_init(choose).as_ref()
}

/// Returns the first of these variables that is a number.
fn number(variables: &[&str]) -> Option<u32> {
    variables.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

/// Returns the rank of this process in its job; its number on the host if no launcher has given it one.
pub(crate) fn rank() -> u32 {
    ibex_trace::launched_rank().unwrap_or_else(std::process::id)
}

/// Returns the number of the job's processes on this host, as far as the environment tells.
pub(crate) fn processes() -> u32 {
    number(&LOCAL_SIZES).unwrap_or(1)
}

fn failed(why: &str) -> u32 {
    log::line(sys::FI_LOG_WARN, sys::FI_LOG_EP_CTRL, why);
    sys::FI_EIO
}

/// Opens the device of the chosen port.
pub(crate) fn device() -> Result<Device> {
    let choice = choice().ok_or(sys::FI_ENODEV)?;
    // libibverbs must be prepared for forks before the first registration.
    if let Err(unprotected) = fork::prepare(Tunables::default().forks()) {
        log::line(sys::FI_LOG_INFO, sys::FI_LOG_DOMAIN, &unprotected.to_string());
    }
    Device::open(choice).map_err(|error| failed(&error.to_string()))
}

/// Opens a port of a device, for an endpoint that speaks to the peers in `vector`. Returns it with its address, and its
/// place in the flight recorder.
pub(crate) fn open(device: &Device, vector: &Arc<AddressVector>) -> Result<(Port<Verbs>, CompactAddress, Place)> {
    let instance =
        ibex::connect::host::new_instance().map_err(|error| failed(&format!("no random number: {error}")))?;
    let rank = rank();
    let setup = Setup {
        index: 0,
        me: compact::name(instance, rank),
        instance: Some(instance),
        processes: processes(),
        ports: 1,
        receive_size: RECEIVE_SIZE,
        bounce_size: RECEIVE_SIZE,
        // An endpoint may get a counter on which threads sleep at any time.
        sleeps: true,
        directory: Box::new(Known { inserted: Arc::clone(vector), others: Mutex::default() }),
    };
    let mut tunables = Tunables { probe_interval: PROBE_INTERVAL, ..Tunables::default() };
    if let Some(seconds) = number(&[CONNECT_TIMEOUT]) {
        tunables.connect_timeout = u64::from(seconds.clamp(1, 86_400));
    }
    let mut port = Port::on(device, &tunables, setup).map_err(|error| failed(&error.to_string()))?;
    if let Some(warning) = port.warning() {
        log::line(sys::FI_LOG_WARN, sys::FI_LOG_EP_CTRL, warning);
    }
    let entry = port.entry();
    flight::begin();
    let place = Place::take();
    place.name(&port.attributes().place(), entry.address.gid);
    port.set_place(place.number());
    Ok((port, CompactAddress { entry, rank }, place))
}

/// What a port asks about peers.
struct Known {
    /// The addresses that the program has inserted.
    inserted: Arc<AddressVector>,
    /// Processes that the program has given this port's address, and whose own it may not have inserted.
    others: Mutex<HashMap<PeerName, PortEntry>>,
}

impl Directory for Known {
    fn entry(&self, peer: PeerName, port: u8) -> Option<PortEntry> {
        let entry = self.inserted.entry(peer).or_else(|| self.others.lock().get(&peer).copied());
        entry.filter(|_| port == 0)
    }

    fn admits(&self, peer: PeerName, port: u8, entry: PortEntry) -> bool {
        let is_its_own = port == 0 && compact::name(entry.address.instance, peer.rank) == peer;
        if is_its_own {
            self.others.lock().insert(peer, entry);
        }
        is_its_own
    }

    /// The address has a number of the host and no name.
    fn host(&self, peer: PeerName) -> String {
        self.entry(peer, 0)
            .map_or_else(|| "an unknown host".to_owned(), |entry| format!("the host of {}", entry.address))
    }
}
