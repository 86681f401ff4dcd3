//! Looking up host names, and connecting by TCP. A lookup is never cached: each call resolves the
//! host again.

use crate::block::call;
use crate::block::io::polled::Polled;
use crate::sys::poller::Direction;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Resolves a host, such as `"localhost:80"` or `("localhost", 80)`, to its addresses. Other
/// goroutines run during the lookup.
///
/// ```
/// let mut found = gosched::net::lookup_host("localhost:80").unwrap();
/// assert!(found.all(|address| address.ip().is_loopback()));
/// ```
///
/// # Errors
/// The host cannot be resolved.
#[doc(alias = "LookupHost")]
pub fn lookup_host<A: ToSocketAddrs>(host: A) -> io::Result<impl Iterator<Item = SocketAddr>> {
    call::blocking(|| host.to_socket_addrs())
}

/// Runs `f` for each address until `f` succeeds.
///
/// # Errors
/// The lookup fails, there is no address (`InvalidInput`), or `f` fails for all of them; the error
/// is that of the last one.
pub(super) fn try_each_address<A: ToSocketAddrs, T>(
    addresses: A,
    mut f: impl FnMut(&SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for address in lookup_host(addresses)? {
        match f(&address) {
            Ok(done) => return Ok(done),
            Err(why) => last = Some(why),
        }
    }
    let none = || io::Error::new(ErrorKind::InvalidInput, "the host resolves to no address");
    Err(last.unwrap_or_else(none))
}

/// Opens a TCP connection, and waits until it is established.
///
/// # Errors
/// The connection is refused or fails, or it is not established within `timeout` (`TimedOut`).
pub(super) fn connect(
    address: &SocketAddr,
    timeout: Option<Duration>,
) -> io::Result<Polled<TcpStream>> {
    let kind = Type::STREAM.nonblocking();
    let socket = Socket::new(Domain::for_address(*address), kind, Some(Protocol::TCP))?;
    let begun = socket.connect(&SockAddr::from(*address));
    let polled = Polled::new(TcpStream::from(socket))?;
    match begun {
        Ok(()) => return Ok(polled),
        Err(why) if is_under_way(&why) => {}
        Err(why) => return Err(why),
    }
    polled.set_timeout(Direction::Write, timeout)?;
    let connected = polled.write(|socket| {
        let socket = socket2::SockRef::from(socket);
        match socket.take_error()? {
            Some(why) => Err(why),
            None if socket.peer_addr().is_err() => Err(ErrorKind::WouldBlock.into()),
            None => Ok(()),
        }
    });
    match connected {
        Err(why) if why.kind() == ErrorKind::WouldBlock => Err(ErrorKind::TimedOut.into()),
        Err(why) => Err(why),
        Ok(()) => {
            polled.set_timeout(Direction::Write, None)?;
            Ok(polled)
        }
    }
}

fn is_under_way(why: &io::Error) -> bool {
    let under_way = [libc::EINPROGRESS, libc::EINTR];
    why.raw_os_error().is_some_and(|code| under_way.contains(&code))
}
