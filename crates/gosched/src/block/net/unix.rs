//! Unix domain sockets. A listener or a datagram socket never removes the path to which it was
//! bound: the program does.

use super::socket;
use super::socket::names::*;
use crate::block::call;
use std::net::Shutdown;
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;
use std::sync::atomic::AtomicU32;

/// A Unix socket connection on one machine, like [`std::os::unix::net::UnixStream`].
pub struct UnixStream {
    pub(in crate::block) polled: Polled<net::UnixStream>,
}

/// A Unix socket that accepts connections, like [`std::os::unix::net::UnixListener`].
pub struct UnixListener {
    polled: Polled<net::UnixListener>,
    backoff_millis: AtomicU32,
}

/// A Unix socket for datagrams, like [`std::os::unix::net::UnixDatagram`].
pub struct UnixDatagram {
    polled: Polled<net::UnixDatagram>,
}

common!(UnixStream, net::UnixStream);
timeouts!(UnixStream);
stream!(UnixStream);
common!(UnixListener, net::UnixListener);
common!(UnixDatagram, net::UnixDatagram);
timeouts!(UnixDatagram);

/// Implements what streams and datagram sockets have in common.
macro_rules! ends {
    ($name:ident, $std:ty) => {
        impl $name {
            fn new(polled: Polled<$std>) -> $name {
                $name { polled }
            }

            /// Creates two sockets that are connected to each other.
            ///
            /// # Errors
            /// The system refuses to create the sockets.
            pub fn pair() -> io::Result<($name, $name)> {
                let (one, other) = <$std>::pair()?;
                Ok(($name::from_std(one)?, $name::from_std(other)?))
            }

            /// Returns the local address of the socket.
            ///
            /// # Errors
            /// The socket was closed.
            pub fn local_addr(&self) -> io::Result<SocketAddr> {
                self.polled.with(<$std>::local_addr)
            }

            /// Returns the address of the peer.
            ///
            /// # Errors
            /// The socket is not connected, or was closed.
            pub fn peer_addr(&self) -> io::Result<SocketAddr> {
                self.polled.with(<$std>::peer_addr)
            }

            /// Shuts down the read half, the write half, or both halves of the connection.
            ///
            /// # Errors
            /// The socket is not connected, or was closed.
            pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
                self.polled.with(|socket| socket.shutdown(how))
            }
        }
    };
}

ends!(UnixStream, net::UnixStream);
ends!(UnixDatagram, net::UnixDatagram);

impl UnixStream {
    /// Connects to the socket at `path`. Blocks while the queue of its listener is full.
    ///
    /// # Errors
    /// There is no socket at `path`, no listener accepts connections there, or the system call
    /// fails.
    pub fn connect<P: AsRef<Path>>(path: P) -> io::Result<UnixStream> {
        // A marked call: the system does not report to the poller when the queue of the listener
        // has room.
        UnixStream::from_std(call::blocking(|| net::UnixStream::connect(path))?)
    }

    /// Connects to a socket like [`UnixStream::connect`], by its address.
    ///
    /// # Errors
    /// The same as those of [`UnixStream::connect`].
    pub fn connect_addr(address: &SocketAddr) -> io::Result<UnixStream> {
        UnixStream::from_std(call::blocking(|| net::UnixStream::connect_addr(address))?)
    }

    // Does not use `read_bytes`: a short read does not mean that the socket is empty, because the
    // system ends a read at a message that carries descriptors.
    fn read_some(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.polled.read(|mut socket| socket.read(buffer))
    }
}

impl UnixListener {
    fn new(polled: Polled<net::UnixListener>) -> UnixListener {
        UnixListener { polled, backoff_millis: AtomicU32::new(0) }
    }

    /// Creates a listener that accepts connections at `path`, which must not exist.
    ///
    /// # Errors
    /// The path exists, or the system refuses to create the socket there.
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixListener> {
        let listener = call::blocking(|| net::UnixListener::bind(path))?;
        socket::raise_backlog(&listener)?;
        UnixListener::from_std(listener)
    }

    /// Creates a listener like [`UnixListener::bind`], at an address.
    ///
    /// # Errors
    /// The same as those of [`UnixListener::bind`].
    pub fn bind_addr(address: &SocketAddr) -> io::Result<UnixListener> {
        let listener = call::blocking(|| net::UnixListener::bind_addr(address))?;
        socket::raise_backlog(&listener)?;
        UnixListener::from_std(listener)
    }

    /// Waits for a connection. Returns it together with the address of the peer. See
    /// [`TcpListener::accept`](super::TcpListener::accept).
    ///
    /// # Errors
    /// The listener was closed, its deadline has passed, or the system call fails.
    pub fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (stream, address) =
            socket::accept(&self.polled, &self.backoff_millis, net::UnixListener::accept)?;
        Ok((UnixStream::from_std(stream)?, address))
    }

    /// Returns an iterator over incoming connections. It never ends; each item is the result of an
    /// [`accept`](UnixListener::accept).
    pub fn incoming(&self) -> UnixIncoming<'_> {
        UnixIncoming { listener: self }
    }

    /// Returns the address at which the listener accepts connections.
    ///
    /// # Errors
    /// The listener was closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.polled.with(net::UnixListener::local_addr)
    }
}

/// Iterator over incoming connections, returned by [`UnixListener::incoming`].
#[derive(Debug)]
pub struct UnixIncoming<'a> {
    listener: &'a UnixListener,
}

impl Iterator for UnixIncoming<'_> {
    type Item = io::Result<UnixStream>;
    fn next(&mut self) -> Option<io::Result<UnixStream>> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}

impl<'a> IntoIterator for &'a UnixListener {
    type Item = io::Result<UnixStream>;
    type IntoIter = UnixIncoming<'a>;
    fn into_iter(self) -> UnixIncoming<'a> {
        self.incoming()
    }
}

impl UnixDatagram {
    /// Creates a socket that is bound to `path`, which must not exist.
    ///
    /// # Errors
    /// The path exists, or the system refuses to create the socket there.
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixDatagram> {
        UnixDatagram::from_std(call::blocking(|| net::UnixDatagram::bind(path))?)
    }

    /// Creates a socket like [`UnixDatagram::bind`], at an address.
    ///
    /// # Errors
    /// The same as those of [`UnixDatagram::bind`].
    pub fn bind_addr(address: &SocketAddr) -> io::Result<UnixDatagram> {
        UnixDatagram::from_std(call::blocking(|| net::UnixDatagram::bind_addr(address))?)
    }

    /// Creates a socket without an address.
    ///
    /// # Errors
    /// The system refuses to create the socket.
    pub fn unbound() -> io::Result<UnixDatagram> {
        UnixDatagram::from_std(net::UnixDatagram::unbound()?)
    }

    /// Connects the socket to the socket at `path`: it then sends to that socket, and receives only
    /// from it.
    ///
    /// # Errors
    /// There is no datagram socket at `path`, or this socket was closed.
    pub fn connect<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.polled.with(|socket| socket.connect(path))
    }

    /// Connects the socket like [`UnixDatagram::connect`], to an address.
    ///
    /// # Errors
    /// The same as those of [`UnixDatagram::connect`].
    pub fn connect_addr(&self, address: &SocketAddr) -> io::Result<()> {
        self.polled.with(|socket| socket.connect_addr(address))
    }

    /// Receives a datagram. Returns its length and the address of its sender. If the datagram is
    /// longer than the buffer, the rest is discarded.
    ///
    /// # Errors
    /// The socket was closed, its deadline has passed, the time limit of the call has expired, or
    /// the system call fails.
    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let unnamed = || Ok((0, SocketAddr::from_pathname("")?));
        self.polled.receive(|socket| socket.recv_from(buffer), unnamed)
    }

    /// Receives a datagram. Returns its length. If the datagram is longer than the buffer, the rest
    /// is discarded.
    ///
    /// # Errors
    /// The same as those of [`UnixDatagram::recv_from`].
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.polled.receive(|socket| socket.recv(buffer), || Ok(0))
    }

    /// Sends a datagram to the socket at `path`. Returns the number of bytes sent. Blocks while the
    /// queue of the receiver is full.
    ///
    /// # Errors
    /// There is no datagram socket at `path`, this socket was closed, its deadline has passed, the
    /// time limit of the call has expired, or the system call fails.
    pub fn send_to<P: AsRef<Path>>(&self, bytes: &[u8], path: P) -> io::Result<usize> {
        self.send_to_addr(bytes, &SocketAddr::from_pathname(path)?)
    }

    /// Sends a datagram like [`UnixDatagram::send_to`], to an address.
    ///
    /// # Errors
    /// The same as those of [`UnixDatagram::send_to`].
    pub fn send_to_addr(&self, bytes: &[u8], address: &SocketAddr) -> io::Result<usize> {
        // Without a connection, the events of this socket do not show when the queue of the
        // receiver has room.
        self.polled.write_with_retries(|socket| socket.send_to_addr(bytes, address))
    }

    /// Sends a datagram to the socket to which this socket is connected. Returns the number of
    /// bytes sent.
    ///
    /// # Errors
    /// The socket is not connected; otherwise the same as those of [`UnixDatagram::send_to`].
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.polled.write(|socket| socket.send(bytes))
    }
}
