//! TCP.

use super::connect;
use super::socket;
use super::socket::names::*;
use crate::sys::tcp_inq;
use socket2::SockRef;
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::sync::atomic::AtomicU32;

/// A TCP connection: [`std::net::TcpStream`], for goroutines.
pub struct TcpStream {
    pub(in crate::block) polled: Polled<std::net::TcpStream>,
}

/// A TCP socket that takes connections: [`std::net::TcpListener`], for goroutines.
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
        // One that was closed is not asked.
        let _ = polled.with(|socket| {
            tcp_inq::enable(socket);
            Ok(())
        });
        TcpStream { polled }
    }

    /// Connects to the first of the addresses that can be connected to.
    ///
    /// # Errors
    /// There is none; the error is the last one's.
    pub fn connect<A: ToSocketAddrs>(addresses: A) -> io::Result<TcpStream> {
        connect::try_each_address(addresses, |address| {
            Ok(TcpStream::new(connect::connect(address, None)?))
        })
    }

    /// As [`TcpStream::connect`], within a time limit.
    ///
    /// # Errors
    /// As there; the time is over (`TimedOut`), or it is zero.
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

    /// As `read`, but what was read stays to be read again.
    ///
    /// # Errors
    /// As `read`.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.polled.read(|socket| socket.peek(buffer))
    }

    /// Ends one direction, or both. Who reads on the other side comes to an end.
    ///
    /// # Errors
    /// It is not connected.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.polled.with(|socket| socket.shutdown(how))
    }

    /// Who is on the other side.
    ///
    /// # Errors
    /// Nobody.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.polled.with(std::net::TcpStream::peer_addr)
    }

    /// The address of this side.
    ///
    /// # Errors
    /// It was closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.polled.with(std::net::TcpStream::local_addr)
    }

    /// Whether small writes go out at once (`TCP_NODELAY`).
    ///
    /// # Errors
    /// It was closed.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.polled.with(|socket| socket.set_nodelay(nodelay))
    }

    /// See [`TcpStream::set_nodelay`].
    ///
    /// # Errors
    /// It was closed.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.polled.with(std::net::TcpStream::nodelay)
    }

    /// How long a close waits for what was not sent yet (`SO_LINGER`); `Some(ZERO)`: it is thrown away, and
    /// the connection is reset.
    ///
    /// # Errors
    /// It was closed.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.polled.with(|socket| SockRef::from(socket).set_linger(linger))
    }

    /// See [`TcpStream::set_linger`].
    ///
    /// # Errors
    /// It was closed.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.polled.with(|socket| SockRef::from(socket).linger())
    }

    /// How many routers a packet may pass.
    ///
    /// # Errors
    /// It was closed.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.polled.with(|socket| socket.set_ttl(ttl))
    }

    /// See [`TcpStream::set_ttl`].
    ///
    /// # Errors
    /// It was closed.
    pub fn ttl(&self) -> io::Result<u32> {
        self.polled.with(std::net::TcpStream::ttl)
    }
}

impl TcpListener {
    fn new(polled: Polled<std::net::TcpListener>) -> TcpListener {
        TcpListener { polled, backoff_millis: AtomicU32::new(0) }
    }

    /// Takes connections at the first of the addresses that can be had. Port 0: any that is free.
    ///
    /// # Errors
    /// None can be had; the error is the last one's.
    pub fn bind<A: ToSocketAddrs>(addresses: A) -> io::Result<TcpListener> {
        connect::try_each_address(addresses, |address| {
            let listener = std::net::TcpListener::bind(address)?;
            socket::raise_backlog(&listener)?;
            TcpListener::from_std(listener)
        })
    }

    /// The next connection, and whose it is. Waits for one.
    ///
    /// Where the process has no descriptors left, the call rests a while, tries again, and says so.
    ///
    /// # Errors
    /// It was closed, its deadline is over, or the system refuses.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let accepted = socket::accept(&self.polled, &self.backoff_millis, socket::accept_polled);
        let (stream, address) = accepted?;
        let address = address.as_socket().ok_or_else(socket::bad_address)?;
        Ok((TcpStream::new(Polled::new(stream.into())?), address))
    }

    /// Connections, one after the other, without end.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// As [`TcpListener::incoming`], with the listener inside.
    pub fn into_incoming(self) -> IntoIncoming {
        IntoIncoming { listener: self }
    }

    /// The address it listens at.
    ///
    /// # Errors
    /// It was closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.polled.with(std::net::TcpListener::local_addr)
    }

    /// How many routers a packet may pass.
    ///
    /// # Errors
    /// It was closed.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.polled.with(|socket| socket.set_ttl(ttl))
    }

    /// See [`TcpListener::set_ttl`].
    ///
    /// # Errors
    /// It was closed.
    pub fn ttl(&self) -> io::Result<u32> {
        self.polled.with(std::net::TcpListener::ttl)
    }
}

/// See [`TcpListener::incoming`].
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

/// See [`TcpListener::into_incoming`].
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
