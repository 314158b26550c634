// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a port has for connecting: what hellos come and go by, which handshakes are under way, and when to look at what.
//!
//! Made with the port (`port.rs`), used by `connecting.rs`. Setup grade; its port's thread. Tests: the device tests in
//! `hw-tests`.

use crate::connect::hello::Hello;
use crate::connect::key::Key;
use crate::connect::tcp::TcpCarrier;
use crate::connect::ud::UdCarrier;
use crate::connect::{Carrier, Faults, Identity, Random, Reach, Refusal, host, interfaces};
use crate::counters::Counters;
use crate::endpoint::Connection;
use crate::event::EndpointId;
use crate::peer::PeerName;
use crate::port::{Port, Setup, queue_pair_limits};
use crate::probe::Probes;
use crate::select::address::{PortAddress, PortEntry};
use crate::select::device::PortChoice;
use crate::tunables::{ConnectVia, Tunables};
use ibex_ffi::verbs::{Context, DeviceAttributes, ProtectionDomain, QueuePairLimits};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// After how many looks the device is asked for asynchronous events: a system call each time. Counted, not timed, because a
/// look must not cost a reading of the clock.
pub(crate) const ASYNC_INTERVAL: u32 = 4096;

/// The least time between two looks for a first connection by TCP.
const TCP_PAUSE: Duration = Duration::from_millis(1);

bitflags::bitflags! {
    /// What was said once already.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Refusals: u8 {
        /// Bytes came that are no hello for this port.
        const UNREADABLE = 1;
        /// A hello named a port that nobody has published.
        const NOT_IN_JOB = 2;
        /// A hello named another life of a port.
        const OTHER_INSTANCE = 4;
        /// A connection that a peer began came to nothing.
        const NOT_MADE = 8;
    }
}

/// What the carriers have brought.
#[derive(Default)]
pub(crate) struct Arrivals {
    pub(crate) hellos: Vec<(Hello, Carrier)>,
    pub(crate) refusals: Vec<Refusal>,
}

/// What a port has for connecting.
pub(crate) struct Connector {
    pub(crate) ud: Option<UdCarrier>,
    pub(crate) tcp: Option<TcpCarrier>,
    pub(crate) me: Identity,
    /// With what hellos to this port are sealed.
    pub(crate) key: Key,
    /// Connections that take the place of one in use when they are confirmed.
    pub(crate) successors: Vec<(EndpointId, Box<Connection>)>,
    /// Before this moment the modex is not asked for a name that a hello brings.
    pub(crate) next_lookup: Duration,
    /// What was said once already.
    pub(crate) told: Refusals,
    /// What the user should know of this port's TCP addresses.
    pub(crate) warning: Option<String>,
    pub(crate) names: HashMap<(PeerName, u8), EndpointId>,
    /// Peers whose handshake is not confirmed yet, with their addresses.
    pub(crate) active: Vec<(EndpointId, PortAddress)>,
    pub(crate) limits: QueuePairLimits,
    /// Reads and atomics a queue pair may have in flight, as initiator and as responder.
    pub(crate) rd_atomic: (u8, u8),
    pub(crate) epoch: u32,
    pub(crate) random: Random,
    pub(crate) faults: Faults,
    pub(crate) start: Instant,
    /// Polls until TCP is looked at.
    pub(crate) until_tcp: u32,
    /// Before this moment it is not, unless something is going on.
    tcp_due: Duration,
    /// Polls between this look and the last one.
    pub(crate) interval: u32,
    /// Before this moment no handshake has anything to do.
    pub(crate) next_due: Duration,
    pub(crate) until_async: u32,
    pub(crate) probes: Probes,
    /// Why the last datagram could not be sent, for the message when no connection comes about.
    pub(crate) ud_error: Option<io::Error>,
}

impl Connector {
    /// Makes what the port listens on and composes its address.
    pub(crate) fn open(
        context: &Arc<Context>,
        domain: &Arc<ProtectionDomain>,
        choice: &PortChoice,
        tunables: &Tunables,
        setup: &Setup,
        device: &DeviceAttributes,
    ) -> io::Result<Self> {
        let via = tunables.via();
        let ud = match via {
            ConnectVia::Tcp => None,
            ConnectVia::Ud => Some(UdCarrier::open(context, domain, choice, tunables)?),
            // An adapter without UD is used with TCP alone.
            ConnectVia::Auto => UdCarrier::open(context, domain, choice, tunables).ok(),
        };
        let (instance, number, key) = (host::new_instance()?, host::host_number(), Key::random()?);
        let mut warning = None;
        let tcp = match via {
            ConnectVia::Ud => None,
            ConnectVia::Auto if ud.is_some() => open_tcp(tunables, key, number, &mut warning).ok(),
            _ => Some(open_tcp(tunables, key, number, &mut warning)?),
        };
        let address = PortAddress {
            instance,
            host: number,
            ud_qpn: ud.as_ref().map_or(0, UdCarrier::number),
            tcp_port: tcp.as_ref().map_or(0, TcpCarrier::port),
            tcp_addresses: tcp.as_ref().map_or_else(Default::default, TcpCarrier::addresses),
            ..choice.address()
        };
        Ok(Connector {
            ud,
            tcp,
            me: Identity { name: setup.me, port: setup.index, address },
            key,
            successors: Vec::new(),
            next_lookup: Duration::ZERO,
            told: Refusals::empty(),
            warning,
            names: HashMap::new(),
            active: Vec::new(),
            limits: queue_pair_limits(tunables, device),
            rd_atomic: rd_atomic(tunables.max_rd_atomic as u8, context.is_software(), device),
            epoch: 0,
            faults: Faults::new(tunables, setup.me.rank),
            random: Random::new(instance),
            start: Instant::now(),
            until_tcp: 1,
            tcp_due: Duration::ZERO,
            interval: 1,
            next_due: Duration::ZERO,
            until_async: ASYNC_INTERVAL,
            probes: Probes::new(Duration::from_secs(tunables.probe_interval)),
            ud_error: None,
        })
    }

    /// The endpoint that stands for this port of this peer.
    pub(crate) fn known(&self, name: PeerName, port: u8) -> Option<EndpointId> {
        self.names.get(&(name, port)).copied()
    }

    pub(crate) fn learn(&mut self, name: PeerName, port: u8, id: EndpointId) {
        self.names.insert((name, port), id);
    }

    pub(crate) fn forget(&mut self, name: PeerName, port: u8) {
        self.names.remove(&(name, port));
    }

    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    pub(crate) fn address_of(&self, peer: EndpointId) -> Option<PortAddress> {
        self.active.iter().find(|(active, _)| *active == peer).map(|(_, address)| *address)
    }

    /// A handshake with this peer begins.
    pub(crate) fn activate(&mut self, peer: EndpointId, address: PortAddress) {
        if let Some(tcp) = &mut self.tcp {
            tcp.expect(&address);
        }
        self.active.push((peer, address));
        self.next_due = Duration::ZERO;
    }

    /// The connection being made beside one in use.
    pub(crate) fn successor_mut(&mut self, peer: EndpointId) -> Option<&mut Connection> {
        self.successors.iter_mut().find(|(of, _)| *of == peer).map(|(_, connection)| &mut **connection)
    }

    /// Takes it.
    pub(crate) fn take_successor(&mut self, peer: EndpointId) -> Option<Box<Connection>> {
        let place = self.successors.iter().position(|(of, _)| *of == peer)?;
        Some(self.successors.swap_remove(place).1)
    }

    /// The handshake with this peer is over.
    pub(crate) fn settle(&mut self, peer: EndpointId) {
        let Some(place) = self.active.iter().position(|(active, _)| *active == peer) else { return };
        let (_, address) = self.active.swap_remove(place);
        if let Some(ud) = &mut self.ud {
            ud.forget(address.instance);
        }
        if let Some(tcp) = &mut self.tcp {
            tcp.close(&address);
        }
    }

    pub(crate) fn reach(&self, remote: &PortAddress) -> Reach {
        self.tcp.as_ref().map_or(Reach::Unused, |tcp| tcp.reach(remote))
    }

    /// What has come in.
    pub(crate) fn receive(&mut self, tunables: &Tunables, counters: &Counters) -> Arrivals {
        let mut arrivals = Arrivals::default();
        let key = self.key;
        if let Some(ud) = &mut self.ud {
            let taken = ud.poll(|bytes| match Hello::decode(bytes, &key) {
                Ok(hello) => arrivals.hellos.push((hello, Carrier::Ud)),
                Err(why) => arrivals.refusals.push(Refusal { from: None, why }),
            });
            if let Err(error) = taken {
                // The other carrier may still do.
                self.ud_error = Some(error);
                self.ud = None;
            }
        }
        self.until_tcp = self.until_tcp.saturating_sub(self.interval);
        if let Some(tcp) = self.tcp.as_mut().filter(|_| self.until_tcp == 0) {
            // A system call each time, so not every poll even while something is going on.
            let busy = !self.active.is_empty() || !tcp.is_idle();
            let pause = if busy { tunables.connect_poll_interval } else { tunables.connect_tcp_interval };
            self.until_tcp = pause as u32;
            // Where polls are fast, so many of them are soon over, and a message would have to wait for the look. Strangers who
            // keep connections open do not hasten it.
            let now = self.start.elapsed();
            if !self.active.is_empty() || now >= self.tcp_due {
                self.tcp_due = now + TCP_PAUSE;
                tcp.poll(&mut |arrival| match arrival {
                    Ok(hello) => arrivals.hellos.push((hello, Carrier::Tcp)),
                    Err(refusal) => arrivals.refusals.push(refusal),
                });
                let seen = tcp.counters();
                counters.tcp_refused.store(seen.garbage + seen.silent + seen.needless, Ordering::Relaxed);
            }
        }
        arrivals
    }
}

impl Port {
    /// Where this port is reached.
    #[must_use]
    pub fn address(&self) -> &PortAddress {
        &self.connector.me.address
    }

    /// What this port publishes about itself.
    #[must_use]
    pub fn entry(&self) -> PortEntry {
        PortEntry { address: self.connector.me.address, key: self.connector.key }
    }

    /// What the user should be told of how this port was opened.
    #[must_use]
    pub fn warning(&self) -> Option<&str> {
        self.connector.warning.as_deref()
    }
}

/// The TCP carrier, and what the user should know of the addresses it was asked for.
fn open_tcp(tunables: &Tunables, key: Key, host: u64, warning: &mut Option<String>) -> io::Result<TcpCarrier> {
    let all = interfaces::all()?;
    let (include, exclude) = (&tunables.tcp_if_include, &tunables.tcp_if_exclude);
    let chosen = interfaces::choose(&all, include, exclude);
    let asked = format!("btl_ibex_tcp_if_include is \"{include}\", btl_ibex_tcp_if_exclude \"{exclude}\"");
    if chosen.addresses.is_empty() {
        let mut names: Vec<_> = all.iter().map(|found| format!("{} {}", found.name, found.address)).collect();
        names.sort();
        let text =
            format!("no address is left to take handshakes over TCP at ({asked}; this host has {})", names.join(", "));
        *warning = Some(format!("{text}; processes are connected by datagrams of the fabric alone"));
        return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, text));
    }
    if !chosen.absent.is_empty() {
        let absent = chosen.absent.join(", ");
        let taken: Vec<_> = chosen.addresses.iter().map(ToString::to_string).collect();
        let taken = taken.join(", ");
        *warning = Some(format!(
            "no interface of this host that is up is {absent} ({asked}); handshakes over TCP are taken at {taken}"
        ));
    }
    TcpCarrier::open(key, host, &chosen.addresses, all.into_iter().map(|found| found.address).collect())
}

/// The most reads and atomics in flight that a parameter of `wanted` gives a queue pair, as initiator and as responder.
fn rd_atomic(wanted: u8, software: bool, device: &DeviceAttributes) -> (u8, u8) {
    let (initiator, responder) = match wanted {
        0 if software => (4, 16),
        0 => (16, 16),
        wanted => (wanted, wanted),
    };
    (initiator.min(device.max_rd_atomic.1), responder.min(device.max_rd_atomic.0))
}
