// SPDX-License-Identifier: MIT OR Apache-2.0
//! The carriers of hellos: datagrams of the fabric and TCP, as the port's parameters and its adapter allow.
//! `transport/port/connect.rs` uses them through [`Carriers`]; [`NetworkCarriers`] are the real ones. Grade: setup.
//! Threads: the port's. Tests: below, over TCP alone; device tests in `hw-tests` test both carriers together.

use super::hello::Hello;
use super::tcp::TcpCarrier;
use super::ud::UdCarrier;
use super::{Carrier, Reach, Refusal, Via};
use crate::counters::Counters;
use crate::interfaces;
use crate::select::PortChoice;
use crate::select::address::PortAddress;
use crate::select::key::Key;
use crate::tunables::{ConnectVia, Tunables};
use ibex_ffi::verbs::{Context, Path, ProtectionDomain};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Polls between two checks of TCP while a handshake or a connection is in progress. Each check is a system call.
const BUSY_TCP_PAUSE: u32 = 16;
/// Polls otherwise: a first connection by TCP is rare, and [`TCP_PAUSE`] takes longer than this many polls.
const IDLE_TCP_PAUSE: u32 = 1024;

/// Least time between two checks for a first connection by TCP.
const TCP_PAUSE: Duration = Duration::from_millis(1);

/// Arrivals from the carriers.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// Hellos sealed with the port's key, and their carriers.
    pub hellos: Vec<(Hello, Carrier)>,
    /// Other bytes that arrived.
    pub refusals: Vec<Refusal>,
}

/// The circumstances of a call of [`Carriers::receive`].
#[derive(Clone, Copy)]
pub struct Look<'a> {
    /// Reads the clock.
    pub now: &'a dyn Fn() -> Duration,
    /// Polls since the last call.
    pub polls: u32,
    /// Whether a handshake is in progress.
    pub is_busy: bool,
}

/// The carriers of hellos. The default methods suit carriers that have no TCP and keep no state.
pub trait Carriers: Send {
    /// Notes that a handshake with the port at `peer` begins.
    fn expect(&mut self, _peer: &PortAddress) {}

    /// Sends a sealed hello to the port at `peer`, along `path`; like a datagram it may be lost.
    fn send(&mut self, peer: &PortAddress, path: &Path, via: Via, frame: &[u8; Hello::SIZE]);

    /// Returns the arrivals.
    fn receive(&mut self, look: Look<'_>, counters: &Counters) -> Arrivals;

    /// How far TCP reaches the port at `peer`.
    fn reach(&self, _peer: &PortAddress) -> Reach {
        Reach::Unused
    }

    /// Drops the path to the port with this `instance`: its handshake, or the last hello to it, is over.
    fn forget(&mut self, _instance: u64) {}

    /// Notes that the handshake with the port at `peer` is over.
    fn settle(&mut self, _peer: &PortAddress) {}

    /// Number of the datagram queue pair now; 0: none.
    fn ud_qpn(&self) -> u32;

    /// Whether peers can connect to this process by TCP.
    fn has_tcp(&self) -> bool;

    /// The error of the last datagram, or the reason why the port can send none any more.
    fn error(&self) -> Option<&io::Error> {
        None
    }

    /// Warning for the user about the opening of the carriers.
    fn warning(&self) -> Option<&str> {
        None
    }
}

/// The carriers of a port.
#[derive(Debug)]
pub struct NetworkCarriers {
    ud: Option<UdCarrier>,
    tcp: Option<TcpCarrier>,
    key: Key,
    until_tcp: u32,
    /// Time before which TCP is not checked, unless a handshake is in progress.
    tcp_due: Duration,
    /// Whether datagrams have failed and none has arrived since: TCP then carries the same hellos.
    is_ud_in_doubt: bool,
    error: Option<io::Error>,
    warning: Option<String>,
}

impl NetworkCarriers {
    /// Opens the carriers that the parameters ask for and the adapter has. `key` and `host` are the port's own.
    pub(crate) fn open(
        context: &Arc<Context>,
        domain: &Arc<ProtectionDomain>,
        choice: &PortChoice,
        tunables: &Tunables,
        (key, host): (Key, u64),
    ) -> io::Result<Self> {
        let via = tunables.via();
        let ud = match via {
            ConnectVia::Tcp => None,
            ConnectVia::Ud => Some(UdCarrier::open(context, domain, choice, tunables)?),
            // If the adapter has no UD, TCP alone carries hellos.
            ConnectVia::Auto => UdCarrier::open(context, domain, choice, tunables).ok(),
        };
        let mut warning = None;
        let tcp = match via {
            ConnectVia::Ud => None,
            ConnectVia::Auto if ud.is_some() => open_tcp(tunables, key, host, &mut warning).ok(),
            _ => Some(open_tcp(tunables, key, host, &mut warning)?),
        };
        Ok(NetworkCarriers {
            ud,
            tcp,
            key,
            until_tcp: 1,
            tcp_due: Duration::ZERO,
            is_ud_in_doubt: false,
            error: None,
            warning,
        })
    }

    pub(crate) fn publish(&self, address: PortAddress) -> PortAddress {
        PortAddress {
            ud_qpn: self.ud_qpn(),
            tcp_port: self.tcp.as_ref().map_or(0, TcpCarrier::port),
            tcp_addresses: self.tcp.as_ref().map_or_else(Default::default, TcpCarrier::addresses),
            ..address
        }
    }

    fn receive_datagrams(&mut self, arrivals: &mut Arrivals) {
        let Some(ud) = &mut self.ud else { return };
        let key = &self.key;
        let taken = ud.poll(|bytes| match Hello::decode(bytes, key) {
            Ok(hello) => arrivals.hellos.push((hello, Carrier::Ud)),
            Err(why) => arrivals.refusals.push(Refusal { from: None, why }),
        });
        match taken {
            Ok(0) => {}
            Ok(_) => self.is_ud_in_doubt = false,
            Err(error) => {
                let restarted = ud.restart();
                self.is_ud_in_doubt = true;
                self.error = Some(error);
                if let Err(error) = restarted {
                    // The other carrier may suffice.
                    (self.error, self.ud) = (Some(error), None);
                }
            }
        }
    }

    fn receive_tcp(&mut self, look: Look<'_>, counters: &Counters, arrivals: &mut Arrivals) {
        self.until_tcp = self.until_tcp.saturating_sub(look.polls);
        let Some(tcp) = self.tcp.as_mut().filter(|_| self.until_tcp == 0) else { return };
        self.until_tcp = if look.is_busy || !tcp.is_idle() { BUSY_TCP_PAUSE } else { IDLE_TCP_PAUSE };
        // Fast polls count down too soon, so the clock limits the checks as well: each check delays messages.
        let now = (look.now)();
        if !look.is_busy && now < self.tcp_due {
            return;
        }
        self.tcp_due = now + TCP_PAUSE;
        tcp.poll(&mut |arrival| match arrival {
            Ok(hello) => arrivals.hellos.push((hello, Carrier::Tcp)),
            Err(refusal) => arrivals.refusals.push(refusal),
        });
        let seen = tcp.counters;
        counters.tcp_refused.store(seen.garbage + seen.silent + seen.needless, Ordering::Relaxed);
    }
}

impl Carriers for NetworkCarriers {
    fn expect(&mut self, peer: &PortAddress) {
        if let Some(tcp) = &mut self.tcp {
            tcp.expect(peer);
        }
    }

    fn send(&mut self, peer: &PortAddress, path: &Path, via: Via, frame: &[u8; Hello::SIZE]) {
        if let Some(ud) = self.ud.as_mut().filter(|_| via.ud()) {
            // If this fails, the hello is lost like any datagram; the handshake repeats it.
            let sent = ud.send(peer, path, frame);
            self.is_ud_in_doubt |= sent.is_err();
            // Keeps the error that caused the doubt until a datagram arrives.
            self.error = sent.err().or(self.error.take().filter(|_| self.is_ud_in_doubt));
        }
        let is_tcp_due = via.tcp() || self.is_ud_in_doubt && peer.tcp_port != 0;
        if let Some(tcp) = self.tcp.as_mut().filter(|_| is_tcp_due) {
            tcp.send(peer, frame);
        }
    }

    fn receive(&mut self, look: Look<'_>, counters: &Counters) -> Arrivals {
        let mut arrivals = Arrivals::default();
        self.receive_datagrams(&mut arrivals);
        self.receive_tcp(look, counters, &mut arrivals);
        arrivals
    }

    fn reach(&self, peer: &PortAddress) -> Reach {
        self.tcp.as_ref().map_or(Reach::Unused, |tcp| tcp.reach(peer))
    }

    fn forget(&mut self, instance: u64) {
        if let Some(ud) = &mut self.ud {
            ud.forget(instance);
        }
    }

    fn settle(&mut self, peer: &PortAddress) {
        self.forget(peer.instance);
        if let Some(tcp) = &mut self.tcp {
            tcp.close(peer);
        }
    }

    fn ud_qpn(&self) -> u32 {
        self.ud.as_ref().map_or(0, UdCarrier::number)
    }

    fn has_tcp(&self) -> bool {
        self.tcp.is_some()
    }

    fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::hello::tests::{KEY, hello};
    use std::net::{IpAddr, Ipv4Addr, TcpStream};
    use std::time::Instant;

    /// The carriers of a port without datagrams, and its address.
    fn by_tcp(instance: u64) -> (NetworkCarriers, PortAddress) {
        let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST)];
        let tcp = TcpCarrier::open(KEY, 1, &loopback, loopback.to_vec()).expect("a listener on this host");
        let (until_tcp, tcp_due, is_ud_in_doubt) = (1, Duration::ZERO, false);
        let carriers = NetworkCarriers {
            ud: None,
            tcp: Some(tcp),
            key: KEY,
            until_tcp,
            tcp_due,
            is_ud_in_doubt,
            error: None,
            warning: None,
        };
        let address = carriers.publish(PortAddress { instance, host: 1, ..hello().source.address });
        (carriers, address)
    }

    fn accepted(carriers: &NetworkCarriers) -> u64 {
        carriers.tcp.as_ref().expect("it has TCP").counters.accepted
    }

    #[test]
    fn a_port_without_datagrams_says_so_and_exchanges_hellos_by_tcp() {
        let ((mut here, our_address), (mut there, address)) = (by_tcp(1), by_tcp(2));
        assert!(address.ud_qpn == 0 && address.tcp_port != 0 && here.has_tcp(), "{address:?}");
        let mut sent = hello();
        (sent.source.address, sent.destination_instance) = (our_address, address.instance);
        let path = Path {
            qp_num: 0,
            psn: 0,
            mtu: 1,
            lid: 0,
            gid: None,
            gid_index: 0,
            port: 1,
            service_level: 0,
            traffic_class: 0,
        };
        here.expect(&address);
        here.send(&address, &path, Via::Ud, &sent.encode(&KEY));
        assert_eq!(here.reach(&address), Reach::Unused, "it was not asked to use TCP");
        here.send(&address, &path, Via::Tcp, &sent.encode(&KEY));
        let counters = Counters::default();
        let (mut arrived, begin) = (Vec::new(), Instant::now());
        // The other port begins no handshake, so it closes the connection and counts it.
        while arrived.is_empty() || counters.tcp_refused.load(Ordering::Relaxed) == 0 {
            assert!(begin.elapsed() < Duration::from_mins(2), "waited in vain: {arrived:?}");
            for carriers in [&mut here, &mut there] {
                let look = Look { now: &|| Duration::ZERO, polls: 16, is_busy: true };
                arrived.extend(carriers.receive(look, &counters).hellos);
            }
            std::thread::yield_now();
        }
        assert_eq!((arrived, counters.tcp_refused.load(Ordering::Relaxed)), (vec![(sent, Carrier::Tcp)], 1));
    }

    #[test]
    fn tcp_is_checked_after_so_many_polls_and_so_much_time_but_soon_during_a_handshake() {
        let (mut carriers, address) = by_tcp(1);
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, address.tcp_port)).expect("it listens");
        let mut accepted_after = |polls, micros, is_busy| {
            let now = || Duration::from_micros(micros);
            carriers.receive(Look { now: &now, polls, is_busy }, &Counters::default());
            accepted(&carriers)
        };
        assert_eq!(accepted_after(1, 0, false), 0);
        let _first = connect();
        assert_eq!([accepted_after(IDLE_TCP_PAUSE - 1, 5000, false), accepted_after(1, 5000, false)], [0, 1]);
        let _second = connect();
        assert_eq!(accepted_after(IDLE_TCP_PAUSE, 5999, false), 1, "too little time has passed");
        // While there is a connection, it looks more often.
        assert_eq!([accepted_after(BUSY_TCP_PAUSE - 1, 6000, false), accepted_after(1, 6000, false)], [1, 2]);
        let _third = connect();
        assert_eq!(accepted_after(BUSY_TCP_PAUSE, 6001, true), 3);
    }
}
