// SPDX-License-Identifier: MIT OR Apache-2.0
//! One TCP connection of the handshake's carrier: being made, carrying hellos, being closed.
//!
//! Owns the socket, the bytes of a hello that came or went in part, and the addresses still to be tried. Used by
//! [`super`] alone. At most one hello waits to be written and one is read at a time, so a connection's memory is
//! bounded.
//!
//! Path: setup; nothing blocks. Threads: the port's. Tests: `tests.rs` beside this file, over real sockets.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};

use crate::connect::Reach;
use crate::connect::hello::{Hello, HelloError};
use crate::select::key::Key;

/// A hello as it is sent.
pub(super) type Frame = [u8; Hello::SIZE];

/// How long a connection may wait to say who made it.
pub(super) const STRANGER_PATIENCE: Duration = Duration::from_secs(10);
/// How long an address may leave the attempt to connect unanswered before the next one is tried.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// How long the last address may.
const LAST_PATIENCE: Duration = Duration::from_secs(20);
/// How long a closed connection waits for the peer to close as well.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);
/// How many hellos one look takes from one connection, so that no peer keeps us from the others.
const READS: usize = 16;

/// Why a connection is over.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// What came is no hello, or not for us.
    Garbage(HelloError),
    /// It began as one peer's and brought a hello of another.
    Turned,
    /// Nothing came in time.
    Silent,
    /// It was to be closed, and is.
    Closed,
    /// No address could be reached, or the connection broke.
    Failed(Reach),
}

#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum State {
    Connecting,
    Open,
    /// Close as soon as what waits is written.
    Closing,
    /// Our side is closed; waiting for the peer's.
    Closed,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Link {
    stream: TcpStream,
    state: State,
    /// When the state began.
    since: Instant,
    /// Who made it, where we did not.
    from: Option<SocketAddr>,
    /// The instance of the peer's port; `None` until an accepted connection has said it.
    peer: Option<u64>,
    /// The addresses still to be tried, the next one last.
    rest: Vec<SocketAddr>,
    /// We made this connection.
    ours: bool,
    /// The peer has proved on this connection to be the one we mean.
    heard: bool,
    /// How an earlier address failed: a refusal tells more than silence.
    refused: bool,
    input: Frame,
    filled: usize,
    /// The hello being written, and how much of it is.
    output: Option<(Frame, usize)>,
    /// The one after it.
    next: Option<Frame>,
    /// The newest hello given to this connection, for the next address.
    newest: Option<Frame>,
}

impl Link {
    /// Begins to connect to the last of `addresses`; the others follow when it fails.
    pub(super) fn connect(peer: u64, mut addresses: Vec<SocketAddr>, now: Instant) -> io::Result<Link> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        while let Some(address) = addresses.pop() {
            match begin(address) {
                Ok(stream) => {
                    let link = Link::new(stream, State::Connecting, now);
                    return Ok(Link { peer: Some(peer), rest: addresses, ours: true, ..link });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Takes a connection of someone who has not yet said who they are.
    pub(super) fn accepted(stream: TcpStream, from: SocketAddr, now: Instant) -> io::Result<Link> {
        stream.set_nonblocking(true)?;
        Ok(Link { from: Some(from), ..Link::new(prepared(stream.into())?, State::Open, now) })
    }

    fn new(stream: TcpStream, state: State, since: Instant) -> Link {
        Link {
            stream,
            state,
            since,
            from: None,
            peer: None,
            rest: Vec::new(),
            ours: false,
            heard: false,
            refused: false,
            input: [0; Hello::SIZE],
            filled: 0,
            output: None,
            next: None,
            newest: None,
        }
    }

    /// The instance of the peer's port, if known.
    pub(super) fn peer(&self) -> Option<u64> {
        self.peer
    }

    /// Who made it, where we did not.
    pub(super) fn from(&self) -> Option<SocketAddr> {
        self.from
    }

    /// When its state began.
    pub(super) fn since(&self) -> Instant {
        self.since
    }

    /// Whether it stands and nobody has asked for its end.
    pub(super) fn is_settled(&self) -> bool {
        self.state == State::Open
    }

    /// Of several to one peer, those of the highest rank are sent on: ours that stands, any that stands, ours being
    /// made.
    pub(super) fn rank(&self) -> u8 {
        u8::from(self.is_open()) + u8::from(self.is_open() && self.ours)
    }

    /// Whether the connection stands.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open | State::Closing)
    }

    /// Whether we made it.
    pub(super) fn is_ours(&self) -> bool {
        self.ours
    }

    /// Whether a hello can still be sent on it.
    pub(super) fn takes_hellos(&self) -> bool {
        self.state != State::Closed
    }

    /// Sends a hello, or keeps it until the connection takes it; it replaces one that still waits. A connection that is
    /// to be closed is closed after it: the last word of a handshake may come after the wish to close.
    pub(super) fn send(&mut self, frame: Frame) -> io::Result<()> {
        self.newest = Some(frame);
        match self.output {
            Some((_, written)) if written > 0 => self.next = Some(frame),
            _ => self.output = Some((frame, 0)),
        }
        if self.state == State::Connecting { Ok(()) } else { self.write() }
    }

    /// Closes once what waits is written; at once if the connection does not stand yet.
    pub(super) fn close(&mut self, now: Instant) {
        match self.state {
            State::Connecting => self.enter(State::Closed, now),
            State::Open => self.enter(State::Closing, now),
            State::Closing | State::Closed => {}
        }
    }

    /// Goes on as far as it goes without waiting.
    pub(super) fn advance(&mut self, key: &Key, now: Instant, deliver: &mut impl FnMut(Hello)) -> Result<(), End> {
        if self.state == State::Connecting && !self.connected(now)? {
            return Ok(());
        }
        let mut over = self.write().err();
        // What the peer wrote before it went is read in any case.
        over = self.read(key, deliver)?.or(over);
        if let Some(error) = over {
            return self.broken(&error, now);
        }
        self.proceed(now)
    }

    fn enter(&mut self, state: State, now: Instant) {
        self.state = state;
        self.since = now;
    }

    /// Whether the attempt to connect has come to an end; turns to the next address when it failed.
    fn connected(&mut self, now: Instant) -> Result<bool, End> {
        let failure = match self.stream.take_error() {
            Ok(Some(error)) | Err(error) => error,
            // Only a connection that stands has a peer; until then the kernel says ENOTCONN.
            Ok(None) if self.stream.peer_addr().is_ok() => {
                self.enter(State::Open, now);
                return Ok(true);
            }
            Ok(None) => {
                let patience = if self.rest.is_empty() { LAST_PATIENCE } else { CONNECT_PATIENCE };
                if now.duration_since(self.since) < patience {
                    return Ok(false);
                }
                io::ErrorKind::TimedOut.into()
            }
        };
        self.next_address(&failure, now)?;
        Ok(false)
    }

    /// Tries the next address after this one failed.
    fn next_address(&mut self, failure: &io::Error, now: Instant) -> Result<(), End> {
        self.refused |= outcome(failure) == Reach::Refused;
        while let Some(address) = self.rest.pop() {
            match begin(address) {
                Ok(stream) => {
                    self.stream = stream;
                    self.filled = 0;
                    // Whatever the other address took, this one has heard nothing.
                    self.output = self.newest.map(|frame| (frame, 0));
                    self.next = None;
                    self.enter(State::Connecting, now);
                    return Ok(());
                }
                Err(error) => self.refused |= outcome(&error) == Reach::Refused,
            }
        }
        Err(End::Failed(if self.refused { Reach::Refused } else { outcome(failure) }))
    }

    /// Writes what waits, as far as the kernel takes it.
    fn write(&mut self) -> io::Result<()> {
        while let Some((frame, written)) = &mut self.output {
            match self.stream.write(&frame[*written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    *written += count;
                    if *written == Hello::SIZE {
                        self.output = self.next.take().map(|frame| (frame, 0));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads and hands over what has come. The inner error is the connection's end.
    fn read(&mut self, key: &Key, deliver: &mut impl FnMut(Hello)) -> Result<Option<io::Error>, End> {
        let mut taken = 0;
        while taken < READS {
            match self.stream.read(&mut self.input[self.filled..]) {
                Ok(0) => return Ok(Some(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Ok(Some(error)),
            }
            if self.filled == Hello::SIZE {
                self.filled = 0;
                taken += 1;
                deliver(self.checked(key)?);
            }
        }
        Ok(None)
    }

    /// The hello that has come whole, if it is one, for us, and from who this connection is with.
    fn checked(&mut self, key: &Key) -> Result<Hello, End> {
        let hello = Hello::decode(&self.input, key).map_err(End::Garbage)?;
        let source = hello.source.address.instance;
        if self.peer.is_some_and(|peer| peer != source) {
            return Err(End::Turned);
        }
        self.peer = Some(source);
        self.heard = true;
        Ok(hello)
    }

    /// The connection broke or the peer closed it.
    fn broken(&mut self, error: &io::Error, now: Instant) -> Result<(), End> {
        if matches!(self.state, State::Closing | State::Closed) {
            return Err(End::Closed);
        }
        if self.ours && !self.heard {
            // Whoever took and dropped it need not have been the peer: another host may have the same address.
            return self.next_address(error, now);
        }
        Err(End::Failed(outcome(error)))
    }

    /// What time and the wish to close make of it.
    fn proceed(&mut self, now: Instant) -> Result<(), End> {
        let waited = now.duration_since(self.since);
        if self.state == State::Closing && self.output.is_none() {
            if self.stream.shutdown(std::net::Shutdown::Write).is_err() {
                return Err(End::Closed);
            }
            self.enter(State::Closed, now);
        }
        match self.state {
            State::Closing | State::Closed if waited > CLOSE_PATIENCE => Err(End::Closed),
            State::Open if self.peer.is_none() && waited > STRANGER_PATIENCE => Err(End::Silent),
            _ => Ok(()),
        }
    }
}

/// Begins to connect, without waiting for it.
fn begin(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::from(address)) {
        Ok(()) => {}
        Err(error) if is_in_progress(&error) => {}
        Err(error) => return Err(error),
    }
    prepared(socket)
}

/// What a non-blocking connect answers when it goes on by itself (connect(2)).
fn is_in_progress(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINPROGRESS)
}

/// Hellos leave at once, and a peer whose host died is noticed within half a minute.
fn prepared(socket: Socket) -> io::Result<TcpStream> {
    socket.set_tcp_nodelay(true)?;
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(10)).with_interval(Duration::from_secs(5)).with_retries(4);
    socket.set_tcp_keepalive(&keepalive)?;
    Ok(socket.into())
}

/// What a failed attempt says about the peer.
pub(super) fn outcome(error: &io::Error) -> Reach {
    match error.kind() {
        io::ErrorKind::ConnectionRefused
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => Reach::Refused,
        _ => Reach::Unreachable,
    }
}
