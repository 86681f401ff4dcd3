//! TCP streams and listeners. A connection never gets `TCP_NODELAY` by default, unlike in Go: only
//! `TcpStream::set_nodelay` sets it.

use super::connect;
use super::socket;
use super::socket::names::*;
use crate::sys::tcp_inq;
use socket2::SockRef;
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::sync::atomic::AtomicU32;

/// A TCP connection, like [`std::net::TcpStream`].
pub struct TcpStream {
    pub(in crate::block) polled: Polled<std::net::TcpStream>,
}

/// A TCP socket that accepts connections, like [`std::net::TcpListener`].
pub struct TcpListener {
    polled: Polled<std::net::TcpListener>,
    backoff_millis: AtomicU32,
}

common!(TcpStream, std::net::TcpStream);
timeouts!(TcpStream);
stream!(TcpStream);
common!(TcpListener, std::net::TcpListener);

impl TcpStream {
    fn new(polled: Polled<std::net::TcpStream>) -> TcpStream {
        // `with` fails only if the socket was closed; the option is then not needed.
        let _ = polled.with(|socket| {
            tcp_inq::enable(socket);
            Ok(())
        });
        TcpStream { polled }
    }

    /// Connects to a host. Tries its addresses in order until a connection is established.
    ///
    /// # Errors
    /// The host cannot be resolved, or no connection could be established. The error is that of the
    /// last address.
    pub fn connect<A: ToSocketAddrs>(addresses: A) -> io::Result<TcpStream> {
        connect::try_each_address(addresses, |address| {
            Ok(TcpStream::new(connect::connect(address, None)?))
        })
    }

    /// Connects to `address`. Waits at most `timeout`.
    ///
    /// # Errors
    /// The connection is refused or fails, it is not established in time
    /// ([`TimedOut`](io::ErrorKind::TimedOut)), or `timeout` is zero.
    pub fn connect_timeout(address: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        Ok(TcpStream::new(connect::connect(address, Some(timeout))?))
    }

    #[cfg_attr(not(feature = "hyper"), expect(dead_code, reason = "only async code uses it"))]
    pub(crate) fn polled(&self) -> &Polled<std::net::TcpStream> {
        &self.polled
    }

    #[cfg_attr(not(feature = "hyper"), expect(dead_code, reason = "only async code uses it"))]
    pub(crate) fn polled_mut(&mut self) -> &mut Polled<std::net::TcpStream> {
        &mut self.polled
    }

    #[inline]
    fn read_some(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = buffer.len();
        self.polled.read_bytes(room, |socket| tcp_inq::read(socket, tcp_inq::as_uninit(buffer)))
    }

    /// Reads bytes like `read`, but leaves them in the socket: the next read returns them again.
    ///
    /// # Errors
    /// The same as those of `read`.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.polled.read(|socket| socket.peek(buffer))
    }

    /// Shuts down the read half, the write half, or both halves of the connection. After the write
    /// half is shut down, the peer reads the end of the stream.
    ///
    /// # Errors
    /// The socket is not connected, or was closed.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.polled.with(|socket| socket.shutdown(how))
    }

    /// Returns the address of the peer.
    ///
    /// # Errors
    /// The socket is not connected, or was closed.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.polled.with(std::net::TcpStream::peer_addr)
    }

    /// Returns the local address of the connection.
    ///
    /// # Errors
    /// The socket was closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.polled.with(std::net::TcpStream::local_addr)
    }

    /// Sets whether small writes are sent at once (`TCP_NODELAY`).
    ///
    /// # Errors
    /// The socket was closed.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.polled.with(|socket| socket.set_nodelay(nodelay))
    }

    /// Returns whether small writes are sent at once: see [`TcpStream::set_nodelay`].
    ///
    /// # Errors
    /// The socket was closed.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.polled.with(std::net::TcpStream::nodelay)
    }

    /// Sets how long a close waits until unsent data is sent (`SO_LINGER`). With
    /// `Some(Duration::ZERO)`, a close discards unsent data and resets the connection. With `None`,
    /// it does not wait, and the system sends the data later.
    ///
    /// # Errors
    /// The socket was closed.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.polled.with(|socket| SockRef::from(socket).set_linger(linger))
    }

    /// Returns how long a close waits: see [`TcpStream::set_linger`].
    ///
    /// # Errors
    /// The socket was closed.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.polled.with(|socket| SockRef::from(socket).linger())
    }

    /// Sets the maximum number of routers that a packet may pass (`IP_TTL`).
    ///
    /// # Errors
    /// The socket was closed.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.polled.with(|socket| socket.set_ttl(ttl))
    }

    /// Returns the maximum number of routers that a packet may pass: see [`TcpStream::set_ttl`].
    ///
    /// # Errors
    /// The socket was closed.
    pub fn ttl(&self) -> io::Result<u32> {
        self.polled.with(std::net::TcpStream::ttl)
    }
}

impl TcpListener {
    fn new(polled: Polled<std::net::TcpListener>) -> TcpListener {
        TcpListener { polled, backoff_millis: AtomicU32::new(0) }
    }

    /// Creates a listener, bound to the first of the addresses that can be bound. Port 0 selects a
    /// free port.
    ///
    /// # Errors
    /// The host cannot be resolved, or no address could be bound. The error is that of the last
    /// address.
    pub fn bind<A: ToSocketAddrs>(addresses: A) -> io::Result<TcpListener> {
        connect::try_each_address(addresses, |address| {
            let listener = std::net::TcpListener::bind(address)?;
            socket::raise_backlog(&listener)?;
            TcpListener::from_std(listener)
        })
    }

    /// Waits for a connection. Returns it together with the address of the peer.
    ///
    /// If no descriptors or memory are left in the process or the system, `accept` pauses for 5 ms
    /// to 1 s, twice as long after each failure, and tries again. If that fails too, it returns the
    /// error. So a loop around `accept` does not spin.
    ///
    /// # Errors
    /// The listener was closed: the error is [`NotConnected`](io::ErrorKind::NotConnected), and a
    /// loop around `accept` must end. Or the deadline has passed, or the system call fails.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let accepted = socket::accept(&self.polled, &self.backoff_millis, socket::accept_polled);
        let (stream, address) = accepted?;
        let address = address.as_socket().ok_or_else(socket::bad_address)?;
        Ok((TcpStream::new(Polled::new(stream.into())?), address))
    }

    /// Returns an iterator over incoming connections. It never ends; each item is the result of an
    /// [`accept`](TcpListener::accept).
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// Returns an iterator like [`TcpListener::incoming`] that owns the listener.
    pub fn into_incoming(self) -> IntoIncoming {
        IntoIncoming { listener: self }
    }

    /// Returns the address at which the listener accepts connections.
    ///
    /// # Errors
    /// The listener was closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.polled.with(std::net::TcpListener::local_addr)
    }

    /// Sets the maximum number of routers that a packet may pass (`IP_TTL`).
    ///
    /// # Errors
    /// The listener was closed.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.polled.with(|socket| socket.set_ttl(ttl))
    }

    /// Returns the maximum number of routers that a packet may pass: see [`TcpListener::set_ttl`].
    ///
    /// # Errors
    /// The listener was closed.
    pub fn ttl(&self) -> io::Result<u32> {
        self.polled.with(std::net::TcpListener::ttl)
    }
}

/// Iterator over incoming connections, returned by [`TcpListener::incoming`].
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;
    fn next(&mut self) -> Option<io::Result<TcpStream>> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}

/// Iterator over incoming connections that owns its listener, returned by
/// [`TcpListener::into_incoming`].
#[derive(Debug)]
pub struct IntoIncoming {
    listener: TcpListener,
}

impl Iterator for IntoIncoming {
    type Item = io::Result<TcpStream>;
    fn next(&mut self) -> Option<io::Result<TcpStream>> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}
