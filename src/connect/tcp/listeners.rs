// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sockets at which a port takes handshakes over TCP: one for each address that is published, all with one port
//! number.
//!
//! Owns the listening sockets. Used by [`super`] alone. Path: setup; nothing blocks. Threads: the port's.
//! Tests: `tests.rs` beside this file.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use socket2::{Domain, Protocol, Socket, Type};

/// How many connections may wait in the kernel while we compute; it takes the smaller of this and `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
/// How often a port number is chosen anew because it is taken at one of the other addresses.
const TRIES: usize = 32;

/// Listens at some of this host's addresses.
#[derive(Debug)]
pub(super) struct Listeners {
    sockets: Vec<TcpListener>,
    pub(super) port: u16,
    /// Where it listens: the addresses asked for, less those that cannot be had.
    pub(super) addresses: Vec<IpAddr>,
}

impl Listeners {
    /// Listens at `addresses`, at a port that the kernel chooses.
    ///
    /// # Errors
    /// What the kernel says, where none of them can be had.
    pub(super) fn open(addresses: &[IpAddr]) -> io::Result<Listeners> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for _ in 0..TRIES {
            match Self::try_open(addresses) {
                Ok(listeners) => return Ok(listeners),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    fn try_open(addresses: &[IpAddr]) -> io::Result<Listeners> {
        let mut listeners = Listeners { sockets: Vec::new(), port: 0, addresses: Vec::new() };
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            match listen(SocketAddr::new(*address, listeners.port)) {
                Ok(socket) => {
                    listeners.port = socket.local_addr()?.port();
                    listeners.sockets.push(socket);
                    listeners.addresses.push(*address);
                }
                // Another number may be free everywhere.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
                // An address that is being taken away, or checked for a double: the others will do.
                Err(error) => last = error,
            }
        }
        if listeners.sockets.is_empty() { Err(last) } else { Ok(listeners) }
    }

    /// A connection that waits, and who made it; `WouldBlock` where there is none.
    pub(super) fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let mut none = io::Error::from(io::ErrorKind::WouldBlock);
        for socket in &self.sockets {
            match socket.accept() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => none = error,
                accepted => return accepted,
            }
        }
        Err(none)
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}
