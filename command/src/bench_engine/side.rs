// SPDX-License-Identifier: MIT OR Apache-2.0
//! One of the two processes: its port, its memory, and its connection, made by the engine's own handshake.
//!
//! A short message is inline, a longer one is sent from registered memory, and one beyond the eager limit of the PML is
//! a put into the other side's memory followed by a short message. Called by [`super::rows`]. Grade: hot in
//! [`Side::message`] and [`Side::poll`], setup otherwise. One thread. Tests: with a device,
//! hw-tests/tests/device/bench.rs.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use ibex::peer::PeerName;
use ibex::select::address::{self, PortEntry};
use ibex::select::device::survey;
use ibex::transport::{
    Arrived, Batch, Completion, Directory, EndpointId, Port, Refused, Sent, Setup, TakesMessages, TakesRequests, Token,
    WhenDiverted,
};
use ibex::tunables::Tunables;
use ibex_ffi::verbs::{Access, Arena, HugePages, InlineSpan, LocalSpan, RemoteSpan};

use super::protocol::{Published, Talk};
use crate::facts::host;

/// The longest message.
pub(super) const LARGEST: u32 = 4 << 20;

/// The longest message that is sent and not put: the eager limit of the PML.
const EAGER: u32 = 12 << 10;

/// Sizes of a receive slot and of a bounce buffer.
const RECEIVE_SIZE: u32 = 16 << 10;
const BOUNCE_SIZE: u32 = 4 << 10;

/// Tags of messages.
const HELLO: u8 = 1;
const DATA: u8 = 2;
const ACKNOWLEDGE: u8 = 3;

/// How long the connection may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Empty polls before the process yields the processor. On a software adapter, whose work the kernel does, it yields at
/// once.
const YIELD: u32 = 1000;

/// The job number of both.
const JOB: u32 = 1;

/// The directory, with the other side as its only entry.
#[derive(Clone, Default)]
struct Known(Arc<Mutex<(Option<PortEntry>, String)>>);

impl Directory for Known {
    fn entry(&self, _peer: PeerName, port: u8) -> Option<PortEntry> {
        if port == 0 { self.0.lock().unwrap_or_else(PoisonError::into_inner).0 } else { None }
    }

    fn host(&self, _peer: PeerName) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }
}

/// Messages received and operations completed since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) hellos: u64,
    pub(super) data: u64,
    pub(super) acknowledged: u64,
    /// Completed puts and gets.
    pub(super) done: u64,
}

impl Seen {
    fn note(&mut self, tag: u8) {
        match tag {
            HELLO => self.hellos += 1,
            DATA => self.data += 1,
            _ => self.acknowledged += 1,
        }
    }
}

impl TakesMessages for &mut Seen {
    type Requests = Seen;

    #[inline(always)]
    fn takes(&mut self, arrived: Arrived) -> bool {
        self.note(arrived.immediate.tag());
        true
    }

    #[inline(always)]
    fn requests(&mut self) -> &mut Seen {
        self
    }
}

impl TakesRequests for Seen {
    #[inline(always)]
    fn takes_request(&mut self, _: Token) -> bool {
        self.done += 1;
        true
    }
}

/// One of the two processes.
pub(super) struct Side {
    port: Port,
    known: Known,
    me: u32,
    /// The other.
    to: Option<EndpointId>,
    memory: Arena,
    there: RemoteSpan,
    /// The text of inline messages.
    text: Vec<u8>,
    batch: Batch,
    pub(super) seen: Seen,
    /// Consecutive empty polls, and the number after which to yield.
    empty: u32,
    patience: u32,
}

impl Side {
    /// Opens the adapter's first port that a job would use.
    ///
    /// # Errors
    /// There is none, or it cannot be opened.
    pub(super) fn open(device: &str, tunables: &Tunables, me: u32) -> Result<Side> {
        let tunables = Tunables { if_include: device.to_owned(), ..tunables.clone() };
        let survey = survey(&tunables);
        let choice =
            survey.ports.first().ok_or_else(|| anyhow!("{device} cannot be measured: {}", survey.complaint()))?;
        let known = Known::default();
        let setup = Setup {
            index: 0,
            me: PeerName { job: JOB, rank: me },
            processes: 2,
            ports: 1,
            receive_size: RECEIVE_SIZE,
            bounce_size: BOUNCE_SIZE,
            directory: Box::new(known.clone()),
        };
        let port = Port::open(choice, &tunables, setup)?;
        // The first half is for sends; the peer writes and reads the other.
        let memory = Arena::with(&port.domain(), LARGEST as usize, 2, Access::RIGHTS, HugePages::No)
            .context("no memory can be registered for the measurement; `ulimit -l` may be too small")?;
        let text = vec![7; port.attributes().max_inline as usize];
        let there = RemoteSpan { addr: 0, rkey: 0 };
        let (batch, seen) = (Batch::new(), Seen::default());
        let patience = if port.attributes().software { 1 } else { YIELD };
        Ok(Side { port, known, me, to: None, memory, there, text, batch, seen, empty: 0, patience })
    }

    /// Exchanges addresses with the other side, and connects.
    ///
    /// # Errors
    /// The other side has ended, or cannot be reached.
    pub(super) fn meet(&mut self, talk: &mut Talk) -> Result<()> {
        let ports = address::encode_ports(&[self.port.entry()]);
        let memory = self.memory.address(1).context("the memory has two halves")?;
        let host = host::look().name;
        talk.say(&Published { ports, host, memory, key: self.memory.rkey() })?;
        let other: Published = talk.hear()?;
        let entries = address::decode_ports(&other.ports)?;
        *self.known.0.lock().unwrap_or_else(PoisonError::into_inner) = (entries.first().copied(), other.host);
        self.there = RemoteSpan { addr: other.memory, rkey: other.key };
        let to = self.port.peer(PeerName { job: JOB, rank: 1 - self.me }, 0);
        self.to = Some(to);
        let refused = self.port.queue_bytes(to, HELLO, ([HELLO].into(), 1), Token(1), WhenDiverted::Wait).is_err();
        let begun = Instant::now();
        while refused || self.seen.hellos == 0 || self.seen.done == 0 {
            self.poll()?;
            if refused || begun.elapsed() > PATIENCE {
                bail!("the two sides could not connect: {}", self.port.describe(to));
            }
        }
        Ok(())
    }

    /// Resets the counts. Nothing is in flight.
    pub(super) fn begin(&mut self) {
        self.seen = Seen::default();
    }

    /// Sends a message of so many bytes.
    ///
    /// # Errors
    /// The connection has failed.
    #[inline]
    pub(super) fn message(&mut self, bytes: u32) -> Result<()> {
        if bytes as usize <= self.text.len() {
            self.inline(DATA, bytes)
        } else if bytes <= EAGER {
            let (to, span) = (self.to()?, self.span(bytes)?);
            loop {
                match self.port.send(to, DATA, &[span], Token(0), false) {
                    Ok(Sent::Posted) => return Ok(()),
                    Ok(Sent::Busy) => self.poll()?,
                    Err(refused) => return Err(self.lost(refused)),
                }
            }
        } else {
            self.put(bytes)?;
            self.inline(DATA, self.text.len().min(8) as u32)
        }
    }

    /// Acknowledges half a window.
    ///
    /// # Errors
    /// The connection has failed.
    #[inline]
    pub(super) fn acknowledge(&mut self) -> Result<()> {
        self.inline(ACKNOWLEDGE, 0)
    }

    /// Puts so many bytes into the other's memory.
    ///
    /// # Errors
    /// The connection has failed.
    #[inline]
    pub(super) fn put(&mut self, bytes: u32) -> Result<()> {
        let (to, span) = (self.to()?, self.span(bytes)?);
        self.port.put(to, span, self.there, Token(1)).map_err(|refused| self.lost(refused))
    }

    /// Gets so many bytes from the other's memory.
    ///
    /// # Errors
    /// The connection has failed.
    #[inline]
    pub(super) fn get(&mut self, bytes: u32) -> Result<()> {
        let (to, span) = (self.to()?, self.span(bytes)?);
        self.port.get(to, span, self.there, Token(1)).map_err(|refused| self.lost(refused))
    }

    /// The number of puts of a message.
    pub(super) fn puts(&self, bytes: u32) -> u64 {
        u64::from(bytes as usize > self.text.len() && bytes > EAGER)
    }

    /// Polls the port and counts.
    ///
    /// # Errors
    /// The connection has failed.
    #[inline]
    pub(super) fn poll(&mut self) -> Result<()> {
        let polled = self.port.poll_direct(&mut self.batch, &mut self.seen);
        if polled.reported > 0 {
            return self.reported();
        }
        self.empty = if polled.taken > 0 { 0 } else { self.empty + 1 };
        if self.empty >= self.patience {
            self.empty = 0;
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Completions that the poll did not handle in place; the next poll returns them to the port.
    #[cold]
    fn reported(&mut self) -> Result<()> {
        for completion in self.batch.completions() {
            match *completion {
                Completion::Message { immediate, .. } => self.seen.note(immediate.tag()),
                Completion::Request { outcome: Ok(()), .. } => self.seen.done += 1,
                Completion::Request { outcome: Err(_), .. } | Completion::PeerFailed { .. } => {
                    return Err(self.lost(Refused));
                }
                Completion::LinkChanged { .. } => {}
            }
        }
        Ok(())
    }

    #[inline]
    fn inline(&mut self, tag: u8, bytes: u32) -> Result<()> {
        let to = self.to()?;
        loop {
            let text = self.text.get(..bytes as usize).context("the adapter has no room for inline data")?;
            match self.port.send_inline(to, tag, text.into(), InlineSpan::EMPTY) {
                Ok(Sent::Posted) => return Ok(()),
                Ok(Sent::Busy) => self.poll()?,
                Err(refused) => return Err(self.lost(refused)),
            }
        }
    }

    #[inline]
    fn to(&self) -> Result<EndpointId> {
        self.to.context("there is no connection")
    }

    #[inline]
    fn span(&self, bytes: u32) -> Result<LocalSpan> {
        Ok(self.memory.span(0).context("the memory has two halves")?.first(bytes))
    }

    #[cold]
    fn lost(&self, _: Refused) -> anyhow::Error {
        let why = self.to.and_then(|to| self.port.failure(to)).map(ToString::to_string);
        anyhow!("the connection was lost: {}", why.unwrap_or_else(|| "the other side has ended".to_owned()))
    }
}
