// SPDX-License-Identifier: MIT OR Apache-2.0
//! The entries of the ring: their kinds, and their text for people. The number of a kind never changes; a new kind is
//! added at the end. Grade: pending. Tests: `tests.rs`.

use super::layout::{pack, sum, unpack};
use ibex_ffi::verbs::{Status, event_name};
use std::fmt;
use std::io;

/// Value of `peer` in an entry about no peer.
pub const NOBODY: u32 = u32::MAX;

/// Value of `port` in an entry about no port.
pub const NO_PORT: u8 = u8::MAX;

macro_rules! kinds {
    ($($kind:ident = $number:literal $name:literal $help:literal;)*) => {
        /// The kind of an entry.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Kind {
            $(#[doc = $help] $kind = $number,)*
        }

        impl Kind {
            /// All kinds.
            pub const ALL: &[Kind] = &[$(Kind::$kind),*];

            /// Name of the kind, for programs.
            pub fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    PortOpened = 1 "port_opened" "A port is open.";
    ConnectionBegun = 2 "connection_begin" "This process begins to connect to a peer; detail 1: the peer asked. The peer's host.";
    HelloAgain = 3 "connection_retry" "The peer has not answered, and this process asks again. Number of requests so far.";
    ConnectionEstablished = 4 "connection_established" "A connection is ready. Both queue pairs; time since it was begun, us.";
    ConnectionFailed = 5 "connection_failed" "A connection has failed; detail: 0 a status, 1 an error number, 2 it was never made, 3 with its port, 4 the peer had given it up. The queue pair; the status or error number.";
    StallBegun = 6 "stall_begin" "The first request to a peer has to wait. The operation; number of requests that wait.";
    StallEnded = 7 "stall_end" "No request to the peer waits any more. The operation.";
    ReceiverNotReady = 8 "receiver_not_ready" "All receives of a port are used up. Number of its receives.";
    HeldBack = 9 "held_back" "A peer has acknowledged nothing for 5 ms. Number of requests that wait.";
    RegistrationFailed = 10 "registration_failed" "Memory could not be registered. Address; bytes; error number.";
    RendezvousBegun = 11 "rendezvous_begin" "The sender announces a message (detail 0), or the message has found its receive (1). Its number at the sender; bytes; communicator, in which the peer is a rank.";
    RendezvousEnded = 12 "rendezvous_end" "At the sender: the receiver has the data (detail 0), or wants copies (2). At the receiver: the data was read (1), or came as copies (3). Numbers as above.";
    DeviceEvent = 13 "device_event" "The adapter reports an asynchronous event. Its number.";
    PortEvent = 14 "port_event" "The adapter reports an asynchronous event of a port. Its number.";
    SenderHeldBack = 15 "sender_held_back" "Unexpected messages take too much memory: a peer is asked to send no more. The memory, bytes.";
    SendersLetGo = 16 "senders_let_go" "Unexpected messages take less memory again: peers may send. The memory, bytes.";
    RequestFailed = 17 "request_failed" "A request failed, its connection did not. The status.";
    Defect = 18 "defect" "A panic was caught.";
}

/// An entry of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Number of entries before it.
    pub number: u64,
    /// Time by the host's monotonic clock, ns.
    pub time: u64,
    /// Number of the kind; this program may not know it.
    pub kind: u16,
    /// Index of the port among the process's, or [`NO_PORT`].
    pub port: u8,
    /// See [`Kind`].
    pub detail: u8,
    /// The rank of the peer in the job, unless the kind says otherwise; [`NOBODY`].
    pub peer: u32,
    /// See [`Kind`].
    pub numbers: [u64; 4],
}

impl Entry {
    /// Packs a text into the numbers, as much of it as fits.
    pub fn text(text: &str) -> [u64; 4] {
        pack(text)
    }

    /// The words of the entry in the ring, without the first, which marks the entry as whole.
    pub(super) fn encode(&self) -> [u64; 7] {
        let what = u64::from(self.kind)
            | u64::from(self.port) << 16
            | u64::from(self.detail) << 24
            | u64::from(self.peer) << 32;
        let (time, [a, b, c, d]) = (self.time, self.numbers);
        [time, what, a, b, c, d, sum([self.number, time, what, a, b, c, d])]
    }

    pub(super) fn decode(number: u64, words: [u64; 7]) -> Option<Entry> {
        let [time, what, a, b, c, d, _] = words;
        let entry = Entry {
            number,
            time,
            kind: what as u16,
            port: (what >> 16) as u8,
            detail: (what >> 24) as u8,
            peer: (what >> 32) as u32,
            numbers: [a, b, c, d],
        };
        (entry.encode() == words).then_some(entry)
    }

    /// The kind; `None` if this program does not know it.
    pub fn known(&self) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|kind| *kind as u16 == self.kind)
    }

    /// The peer: a rank of the job, or of a communicator. Empty: none.
    pub fn who(&self) -> String {
        match (self.peer, self.known()) {
            (NOBODY, _) => String::new(),
            (peer, Some(Kind::RendezvousBegun | Kind::RendezvousEnded)) if self.numbers[2] != 0 => {
                format!("rank {peer} of communicator {}", self.numbers[2])
            }
            (peer, _) => format!("rank {peer}"),
        }
    }
}

/// The event in words, without the time, the port and the peer.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, _] = self.numbers;
        let Some(kind) = self.known() else {
            return write!(f, "an entry of kind {}, which this ibex does not know", self.kind);
        };
        match kind {
            Kind::PortOpened => write!(f, "port opened: {}", unpack(&self.numbers)),
            Kind::ConnectionBegun if self.detail == 1 => {
                write!(f, "connection begun by the peer on host {}", unpack(&self.numbers))
            }
            Kind::ConnectionBegun => write!(f, "connection begun to host {}", unpack(&self.numbers)),
            Kind::HelloAgain => write!(f, "no answer yet: asked for the connection again ({a} times now)"),
            Kind::ConnectionEstablished => {
                write!(f, "connected: queue pair 0x{a:06x} here, 0x{b:06x} there")
            }
            Kind::ConnectionFailed => {
                write!(f, "connection failed")?;
                if a != 0 {
                    write!(f, ", queue pair 0x{a:06x}")?;
                }
                match self.detail {
                    0 => write!(f, ": {}", Status(b as u32)),
                    1 => write!(f, ": the adapter refused a request: {}", io::Error::from_raw_os_error(b as i32)),
                    2 => write!(f, ": it could not be made"),
                    3 => write!(f, ": its port is lost"),
                    _ => write!(f, ": the peer had given it up"),
                }
            }
            Kind::StallBegun => write!(f, "a request has to wait"),
            Kind::StallEnded => write!(f, "no request waits any more"),
            Kind::ReceiverNotReady => write!(f, "all {a} receives are used up: senders are told to wait"),
            Kind::HeldBack => write!(f, "held back: nothing acknowledged for 5 ms while {a} requests wait"),
            Kind::RegistrationFailed => {
                write!(f, "{b} bytes at 0x{a:x} not registered: {}", io::Error::from_raw_os_error(c as i32))
            }
            Kind::RendezvousBegun if self.detail == 0 => write!(f, "message {a} of {b} bytes announced"),
            Kind::RendezvousBegun => write!(f, "message {a} of its sender found its receive: {b} bytes to come"),
            Kind::RendezvousEnded => match self.detail {
                0 => write!(f, "message {a} fetched by its receiver"),
                1 => write!(f, "message {a} of its sender fetched"),
                2 => write!(f, "copies of message {a} wanted by its receiver"),
                _ => write!(f, "a message of {b} bytes came as copies"),
            },
            Kind::DeviceEvent | Kind::PortEvent => {
                write!(f, "the adapter reports IBV_EVENT_{}", event_name(a as u32))
            }
            Kind::SenderHeldBack => write!(f, "asked to send no more: unexpected messages take {a} bytes"),
            Kind::SendersLetGo => write!(f, "all may send again: unexpected messages take {a} bytes"),
            Kind::RequestFailed => write!(f, "a request failed: {}", Status(a as u32)),
            Kind::Defect => write!(f, "a defect of ibex: {}", unpack(&self.numbers)),
        }
    }
}
