// SPDX-License-Identifier: MIT OR Apache-2.0
//! The listening sockets of a port for handshakes over TCP: one per published address, all with one port number. Used
//! by [`super`] alone. Grade: setup; nothing blocks. Threads: the port's. Tests: `tests` beside this file.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that may wait in the kernel while we compute; `net.core.somaxconn` limits them as well.
const BACKLOG: i32 = 4096;
/// Number of port numbers to try if another socket has one of them at some address.
const TRIES: usize = 32;

#[derive(Debug)]
pub(super) struct Listeners {
    sockets: Vec<TcpListener>,
    pub(super) port: u16,
    /// The listening addresses: the requested ones that are available.
    pub(super) addresses: Vec<IpAddr>,
}

impl Listeners {
    /// Listens at the available ones of `addresses`, at a port that the kernel chooses; fails if there are none.
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
                // Another number may be free at all addresses.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
                // This address is being removed, or checked for a duplicate: the others suffice.
                Err(error) => last = error,
            }
        }
        if listeners.sockets.is_empty() { Err(last) } else { Ok(listeners) }
    }

    /// Accepts a waiting connection; `WouldBlock` if there is none.
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
