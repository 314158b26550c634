// SPDX-License-Identifier: MIT OR Apache-2.0
//! A host's ports, opened with the engine as in a job, and their connections to another host's ports. The engine's own
//! handshake connects every pair of ports that a job would connect; a short message and then long ones pass in both
//! directions. Called by `agent`, which also polls between meetings, to acknowledge the last messages. Grade: setup.
//! One thread, and one for each port tested over TCP. Tests: `hw-tests/tests/device/command.rs`.

use super::protocol::{Link, Published, Reached};
use ibex::connect::host;
use ibex::interfaces;
use ibex::peer::PeerName;
use ibex::select::address::{self, PortAddress, PortEntry, pair};
use ibex::select::device::survey;
use ibex::select::partners::partners;
use ibex::transport::{Batch, Completion, Directory, EndpointId, Port, Setup, Token, WhenDiverted};
use ibex::tunables::Tunables;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Sizes as in a job: a receive slot and a bounce buffer.
const RECEIVE_SIZE: u32 = 32 << 10;
const BOUNCE_SIZE: u32 = 16 << 10;

/// Tag and length of a message, and the number of long ones. With every MTU a long one takes several packets.
const SHORT: (u8, u32) = (1, 8);
const LONG: (u8, u32) = (2, BOUNCE_SIZE);
const COUNT: u32 = 64;

/// Acknowledgement time-out if jobs derive it from the handshake: 134 ms; a connection fails after 1 to 4 s.
const ACK_TIMEOUT: u64 = 15;

const JOB: u32 = 1;

const TCP_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Hosts {
    me: u32,
    names: Vec<String>,
    ports: Vec<Vec<PortEntry>>,
    verbosity: u64,
    told: Vec<String>,
}

impl Hosts {
    fn addresses(&self, host: u32) -> Vec<PortAddress> {
        self.ports.get(host as usize).into_iter().flatten().map(|entry| entry.address).collect()
    }
}

#[derive(Clone, Default)]
struct Known(Arc<Mutex<Hosts>>);

impl Known {
    fn hosts(&self) -> MutexGuard<'_, Hosts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Directory for Known {
    fn entry(&self, peer: PeerName, port: u8) -> Option<PortEntry> {
        self.hosts().ports.get(peer.rank as usize)?.get(usize::from(port)).copied()
    }

    fn partners(&self, peer: PeerName, port: u8) -> Vec<u8> {
        let hosts = self.hosts();
        partners(&hosts.addresses(hosts.me), &hosts.addresses(peer.rank), port.into(), hosts.me < peer.rank)
    }

    fn host(&self, peer: PeerName) -> String {
        self.hosts().names.get(peer.rank as usize).cloned().unwrap_or_else(|| "an unknown host".to_owned())
    }

    fn verbosity(&self) -> u64 {
        self.hosts().verbosity
    }

    fn print(&self, line: &str) {
        self.hosts().told.push(line.to_owned());
    }
}

#[derive(Debug, Default)]
struct Heard {
    short: bool,
    long: u32,
    /// Number of completed requests to it.
    done: u32,
    failure: Option<String>,
}

struct Open {
    port: Port,
    heard: HashMap<u32, Heard>,
}

struct Underway {
    place: usize,
    to: EndpointId,
    is_long: bool,
    link: Link,
}

pub(super) struct Ports {
    open: Vec<Open>,
    known: Known,
    host: u32,
    tunables: Tunables,
    met: Vec<(usize, EndpointId)>,
}

impl Ports {
    /// Opens the ports that a job would use; returns the data that they publish, and why others could not be opened.
    /// `patience` bounds the time for a connection.
    pub(super) fn open(host: u32, tunables: &Tunables, patience: Duration) -> (Self, Vec<u8>, Vec<String>) {
        let given = patience.as_secs().max(1);
        let tunables = Tunables {
            connect_timeout: tunables.connect_timeout.min(given),
            // No host computes meanwhile, so lost packets should show soon.
            ack_timeout: if tunables.ack_timeout == 0 { ACK_TIMEOUT } else { tunables.ack_timeout },
            ..tunables.clone()
        };
        let (known, choices) = (Known::default(), survey(&tunables).ports);
        // The engine's messages about unexpected connections become findings.
        known.hosts().verbosity = tunables.verbose.max(1);
        let (mut open, mut failures): (Vec<Open>, Vec<String>) = Default::default();
        for choice in &choices {
            let setup = Setup {
                index: open.len() as u8,
                me: PeerName { job: JOB, rank: host },
                instance: None,
                processes: 1,
                ports: choices.len() as u32,
                receive_size: RECEIVE_SIZE,
                bounce_size: BOUNCE_SIZE,
                sleeps: false,
                directory: Box::new(known.clone()),
            };
            match Port::open(choice, &tunables, setup) {
                Ok(port) => open.push(Open { port, heard: HashMap::new() }),
                Err(error) => failures.push(error.to_string()),
            }
        }
        let entries: Vec<_> = open.iter().map(|open| open.port.entry()).collect();
        known.hosts().me = host;
        let ports = Ports { open, known, host, tunables, met: Vec::new() };
        (ports, address::encode_ports(&entries), failures)
    }

    /// Stores the data that all hosts publish; returns why a host's data is not understood.
    pub(super) fn know(&self, published: &[Published]) -> Vec<String> {
        let mut failures = Vec::new();
        let ports = published.iter().map(|host| {
            entries(&host.ports).unwrap_or_else(|why| {
                failures.push(format!("{}: {why}", host.name));
                Vec::new()
            })
        });
        let ports = ports.collect();
        let mut hosts = self.known.hosts();
        (hosts.names, hosts.ports) = (published.iter().map(|host| host.name.clone()).collect(), ports);
        failures
    }

    pub(super) fn poll(&mut self) {
        for open in &mut self.open {
            let mut batch = Batch::new();
            open.port.poll(&mut batch);
            for event in batch.completions() {
                open.take(event);
            }
            open.port.release(&mut batch);
        }
    }

    /// Connects to a host by all pairs of ports, within a time limit. Drops the previous connections.
    pub(super) fn meet(&mut self, host: u32, within: Duration) -> Vec<Link> {
        self.part();
        let pairs = {
            let hosts = self.known.hosts();
            pair(&hosts.addresses(self.host), &hosts.addresses(host))
        };
        let begun = Instant::now();
        let pairs = pairs.into_iter().enumerate().filter_map(|(index, remote)| Some((index, remote?)));
        let mut all: Vec<Underway> = pairs.map(|(index, remote)| self.begin(host, index, remote as u8)).collect();
        let looks: Vec<_> = all.iter().map(|underway| self.look_over_tcp(host, underway.link.remote)).collect();
        while begun.elapsed() < within && all.iter().any(Underway::goes_on) {
            self.poll();
            for underway in all.iter_mut().filter(|underway| underway.goes_on()) {
                self.advance(host, underway, begun);
            }
            thread::yield_now();
        }
        for underway in all.iter_mut().filter(|underway| underway.goes_on()) {
            let state = self.open[underway.place].port.describe(underway.to);
            underway.link.silence =
                Some(format!("nothing more arrived within {:.0} s from {state}", within.as_secs_f64()));
        }
        let told = std::mem::take(&mut self.known.hosts().told);
        for (underway, look) in all.iter_mut().zip(looks) {
            underway.link.unanswered = look.join().unwrap_or_default();
            let place = self.open[underway.place].port.attributes().place();
            underway.link.told = told.iter().filter(|line| line.contains(&place)).cloned().collect();
        }
        all.into_iter().map(|underway| underway.link).collect()
    }

    /// Drops the last connections. Both sides have received everything.
    fn part(&mut self) {
        for (place, to) in self.met.drain(..) {
            self.open[place].port.forget(to);
        }
    }

    /// Sends the first message, which starts the connection.
    fn begin(&mut self, host: u32, place: usize, remote: u8) -> Underway {
        let open = &mut self.open[place];
        let to = open.port.peer(PeerName { job: JOB, rank: host }, remote);
        self.met.push((place, to));
        let port = format!("{} ({})", open.port.attributes().place(), open.port.address());
        let link = Link { index: place as u8, remote, port, ..Link::default() };
        open.send(host, to, SHORT);
        Underway { place, to, is_long: false, link }
    }

    fn advance(&mut self, host: u32, underway: &mut Underway, begun: Instant) {
        let open = &mut self.open[underway.place];
        let heard = open.heard.entry(host).or_default();
        underway.link.failure.clone_from(&heard.failure);
        if heard.short && heard.done > 0 && underway.link.reached == Reached::Nothing {
            underway.link.reached = Reached::Short;
            underway.link.milliseconds = Some(begun.elapsed().as_secs_f64() * 1e3);
        }
        if heard.long >= COUNT && heard.done > COUNT {
            underway.link.reached = Reached::Long;
        } else if underway.link.reached == Reached::Short && !underway.is_long {
            underway.is_long = true;
            (0..COUNT).for_each(|_| open.send(host, underway.to, LONG));
        }
    }

    /// Tests whether the other port can be reached over TCP, if handshakes may use it. Returns a thread that yields the
    /// addresses if none of them answers.
    fn look_over_tcp(&self, host: u32, remote: u8) -> thread::JoinHandle<Vec<String>> {
        let ours: Vec<IpAddr> =
            interfaces::all().unwrap_or_default().iter().map(|interface| interface.address).collect();
        let entry = self.known.entry(PeerName { job: JOB, rank: host }, remote).map(|entry| entry.address);
        let is_permitted = self.tunables.connect_via != "ud";
        thread::spawn(move || match entry {
            Some(entry) if is_permitted && entry.tcp_port != 0 => unanswered(&entry, &ours),
            _ => Vec::new(),
        })
    }
}

/// Returns the published entries of a host; empty if it could not open its ports.
fn entries(published: &[u8]) -> Result<Vec<PortEntry>, String> {
    if published.is_empty() {
        return Ok(Vec::new());
    }
    address::decode_ports(published).map_err(|error| error.to_string())
}

/// Returns the addresses of a port that do not answer, with the reasons; empty if one answers.
fn unanswered(port: &PortAddress, ours: &[IpAddr]) -> Vec<String> {
    let mut failures = Vec::new();
    for address in host::candidates(port.ip_addresses(), port.host == host::host_number(), ours) {
        let address = SocketAddr::new(address, port.tcp_port);
        match TcpStream::connect_timeout(&address, TCP_PATIENCE) {
            Ok(_) => return Vec::new(),
            Err(error) => failures.push(format!("{address}: {error}")),
        }
    }
    failures
}

impl Underway {
    fn goes_on(&self) -> bool {
        self.link.failure.is_none() && self.link.reached < Reached::Long
    }
}

impl Open {
    fn take(&mut self, event: &Completion) {
        match *event {
            Completion::Message { ref message, immediate, qp_num, .. } => {
                let len = message.length();
                let from = self.port.sender(immediate, qp_num);
                let Some(heard) = self.of(from) else { return };
                match (immediate.tag(), len) {
                    SHORT => heard.short = true,
                    LONG => heard.long += 1,
                    _ => heard.failure = Some(format!("an unexpected message of {len} bytes arrived")),
                }
            }
            Completion::Request { to, outcome: Ok(()), .. } => {
                if let Some(heard) = self.of(Some(to)) {
                    heard.done += 1;
                }
            }
            Completion::PeerFailed { peer } => {
                let why = self.port.failure(peer).map(ToString::to_string);
                if let Some(heard) = self.of(Some(peer)) {
                    heard.failure = why;
                }
            }
            Completion::Request { .. } | Completion::LinkChanged { .. } => {}
        }
    }

    fn of(&mut self, peer: Option<EndpointId>) -> Option<&mut Heard> {
        let name = self.port.peer_name(peer?)?;
        Some(self.heard.entry(name.rank).or_default())
    }

    fn send(&mut self, host: u32, to: EndpointId, (tag, length): (u8, u32)) {
        let bytes = vec![tag; length as usize].into();
        let taken = self.port.queue_bytes(to, tag, (bytes, length), Token(1), WhenDiverted::Wait);
        if taken.is_err() {
            let why = self.port.failure(to).map(ToString::to_string);
            let why = why.unwrap_or_else(|| "the port accepts no message".to_owned());
            self.heard.entry(host).or_default().failure.get_or_insert(why);
        }
    }
}
