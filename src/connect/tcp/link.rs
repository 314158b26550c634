// SPDX-License-Identifier: MIT OR Apache-2.0
//! One TCP connection of the handshake's carrier. Owns the socket, the bytes of partly read or written hellos, and the
//! addresses still to be tried. It keeps a fixed number of hellos, so its memory is bounded. Used by [`super`] alone.
//! Grade: setup; nothing blocks. Threads: the port's. Tests: `tests` beside this file, over real sockets.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};

use crate::connect::Reach;
use crate::connect::hello::{Hello, HelloError};
use crate::select::key::Key;

pub(super) type Frame = [u8; Hello::SIZE];

/// Longest time until an accepted connection must have brought a hello.
pub(super) const STRANGER_PATIENCE: Duration = Duration::from_secs(10);
/// Longest time for connecting to an address before the next one is tried.
pub(super) const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// Longest time for connecting to the last address.
pub(super) const LAST_PATIENCE: Duration = Duration::from_secs(20);
/// Longest time that a closed connection waits for the peer to close it as well.
pub(super) const CLOSE_PATIENCE: Duration = Duration::from_secs(2);
/// Most hellos that one poll reads from one connection, so that no peer delays the others.
const READS: usize = 16;

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// It brought no hello, or one that was not for us.
    Garbage(HelloError),
    /// It brought a hello of another peer than before.
    Turned,
    Silent,
    Closed,
    Failed(Reach),
}

#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum State {
    Connecting,
    Open,
    /// Close once the pending hellos are written.
    Closing,
    /// This side is closed; waiting for the peer's.
    Closed,
}

#[derive(Debug)]
pub(super) struct Link {
    stream: TcpStream,
    state: State,
    /// Time at which it entered its state.
    pub(super) since: Instant,
    /// Address of the peer that made it; `None` if we made it.
    pub(super) from: Option<SocketAddr>,
    /// Instance of the peer's port; `None` until the first hello of an accepted connection.
    pub(super) peer: Option<u64>,
    /// Addresses still to be tried, the next one last.
    rest: Vec<SocketAddr>,
    /// Whether the peer has proved its identity on this connection.
    heard: bool,
    /// Whether an earlier address refused the connection, which says more about the peer than silence.
    refused: bool,
    input: Frame,
    filled: usize,
    /// The hello being written, and the number of its bytes that are written.
    output: Option<(Frame, usize)>,
    next: Option<Frame>,
    /// The newest hello, to be sent again to the next address.
    newest: Option<Frame>,
}

impl Link {
    /// Begins to connect to the last of `addresses`; the others follow if that fails.
    pub(super) fn connect(peer: u64, mut addresses: Vec<SocketAddr>, now: Instant) -> io::Result<Link> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        while let Some(address) = addresses.pop() {
            match begin(address) {
                Ok(stream) => {
                    let link = Link::new(stream, State::Connecting, now);
                    return Ok(Link { peer: Some(peer), rest: addresses, ..link });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

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
            heard: false,
            refused: false,
            input: [0; Hello::SIZE],
            filled: 0,
            output: None,
            next: None,
            newest: None,
        }
    }

    /// Whether it is open and not to be closed.
    pub(super) fn is_settled(&self) -> bool {
        self.state == State::Open
    }

    /// Rank among the connections to one peer: ours that is open, another open one, one that is not open yet.
    pub(super) fn rank(&self) -> u8 {
        u8::from(self.is_open()) + u8::from(self.is_open() && self.is_ours())
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open | State::Closing)
    }

    pub(super) fn is_ours(&self) -> bool {
        self.from.is_none()
    }

    pub(super) fn takes_hellos(&self) -> bool {
        self.state != State::Closed
    }

    /// Sends a hello, or keeps it until the connection can take it; it replaces one that still waits. A closing
    /// connection ends after this hello: the last one of a handshake may come after the call of `close`.
    pub(super) fn send(&mut self, frame: Frame) -> io::Result<()> {
        self.newest = Some(frame);
        match self.output {
            Some((_, written)) if written > 0 => self.next = Some(frame),
            _ => self.output = Some((frame, 0)),
        }
        if self.state == State::Connecting { Ok(()) } else { self.write() }
    }

    /// Closes once the pending hellos are written; at once if it is not open yet.
    pub(super) fn close(&mut self, now: Instant) {
        match self.state {
            State::Connecting => self.enter(State::Closed, now),
            State::Open => self.enter(State::Closing, now),
            State::Closing | State::Closed => {}
        }
    }

    pub(super) fn advance(&mut self, key: &Key, now: Instant, deliver: &mut impl FnMut(Hello)) -> Result<(), End> {
        if self.state == State::Connecting && !self.connected(now)? {
            return Ok(());
        }
        let mut over = self.write().err();
        // In any case reads the hellos that the peer sent before it closed.
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

    /// Whether connecting has ended successfully; tries the next address if it failed.
    fn connected(&mut self, now: Instant) -> Result<bool, End> {
        let failure = match self.stream.take_error() {
            Ok(Some(error)) | Err(error) => error,
            // Only an open connection has a peer address; until then the kernel says ENOTCONN.
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

    fn next_address(&mut self, failure: &io::Error, now: Instant) -> Result<(), End> {
        self.refused |= outcome(failure) == Reach::Refused;
        while let Some(address) = self.rest.pop() {
            match begin(address) {
                Ok(stream) => {
                    self.stream = stream;
                    self.filled = 0;
                    // The new address has received nothing yet.
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

    /// Reads hellos and passes them on. The inner error ends the connection.
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

    /// Decodes the complete hello, and checks that it is for us and from this connection's peer.
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

    fn broken(&mut self, error: &io::Error, now: Instant) -> Result<(), End> {
        if matches!(self.state, State::Closing | State::Closed) {
            return Err(End::Closed);
        }
        if self.is_ours() && !self.heard {
            // The host that accepted and closed it need not be the peer's: another host may have the same address.
            return self.next_address(error, now);
        }
        Err(End::Failed(outcome(error)))
    }

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

fn begin(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::from(address)) {
        Ok(()) => {}
        // A non-blocking connect is in progress (connect(2)).
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    prepared(socket)
}

/// Sets the options of a socket: hellos leave at once, and the kernel notices a dead peer host within half a minute.
fn prepared(socket: Socket) -> io::Result<TcpStream> {
    socket.set_tcp_nodelay(true)?;
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(10)).with_interval(Duration::from_secs(5)).with_retries(4);
    socket.set_tcp_keepalive(&keepalive)?;
    Ok(socket.into())
}

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
