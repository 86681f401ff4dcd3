//! Unix's own sockets.

use super::socket;
use super::socket::names::*;
use crate::block::call;
use std::net::Shutdown;
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;
use std::sync::atomic::AtomicU32;

/// A connection within the machine: [`std::os::unix::net::UnixStream`], for goroutines.
pub struct UnixStream {
    pub(in crate::block) polled: Polled<net::UnixStream>,
}

/// A socket that takes such connections: [`std::os::unix::net::UnixListener`], for goroutines.
pub struct UnixListener {
    polled: Polled<net::UnixListener>,
    backoff_millis: AtomicU32,
}

/// A socket for datagrams: [`std::os::unix::net::UnixDatagram`], for goroutines.
pub struct UnixDatagram {
    polled: Polled<net::UnixDatagram>,
}

common!(UnixStream, net::UnixStream);
timeouts!(UnixStream);
stream!(UnixStream);
common!(UnixListener, net::UnixListener);
common!(UnixDatagram, net::UnixDatagram);
timeouts!(UnixDatagram);

/// What streams and datagram sockets have in common.
macro_rules! ends {
    ($name:ident, $std:ty) => {
        impl $name {
            fn new(polled: Polled<$std>) -> $name {
                $name { polled }
            }

            /// Two that are connected to each other.
            ///
            /// # Errors
            /// The system refuses.
            pub fn pair() -> io::Result<($name, $name)> {
                let (one, other) = <$std>::pair()?;
                Ok(($name::from_std(one)?, $name::from_std(other)?))
            }

            /// The address of this side.
            ///
            /// # Errors
            /// It was closed.
            pub fn local_addr(&self) -> io::Result<SocketAddr> {
                self.polled.with(<$std>::local_addr)
            }

            /// The address of the other side.
            ///
            /// # Errors
            /// It is not connected.
            pub fn peer_addr(&self) -> io::Result<SocketAddr> {
                self.polled.with(<$std>::peer_addr)
            }

            /// Ends one direction, or both.
            ///
            /// # Errors
            /// It is not connected.
            pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
                self.polled.with(|socket| socket.shutdown(how))
            }
        }
    };
}

ends!(UnixStream, net::UnixStream);
ends!(UnixDatagram, net::UnixDatagram);

impl UnixStream {
    /// Connects to the socket at `path`. Where its owner takes connections too slowly, this waits.
    ///
    /// # Errors
    /// There is none, or nobody takes connections.
    pub fn connect<P: AsRef<Path>>(path: P) -> io::Result<UnixStream> {
        // The system does not tell when there is room: this waits as a thread does.
        UnixStream::from_std(call::blocking(|| net::UnixStream::connect(path))?)
    }

    /// As [`UnixStream::connect`], to an address.
    ///
    /// # Errors
    /// As there.
    pub fn connect_addr(address: &SocketAddr) -> io::Result<UnixStream> {
        UnixStream::from_std(call::blocking(|| net::UnixStream::connect_addr(address))?)
    }

    // A short read does not mean that there is no more: descriptors that are sent along cut the stream.
    fn read_some(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.polled.read(|mut socket| socket.read(buffer))
    }
}

impl UnixListener {
    fn new(polled: Polled<net::UnixListener>) -> UnixListener {
        UnixListener { polled, backoff_millis: AtomicU32::new(0) }
    }

    /// Takes connections at `path`, which must not exist.
    ///
    /// # Errors
    /// It exists, or cannot be made.
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixListener> {
        let listener = call::blocking(|| net::UnixListener::bind(path))?;
        socket::raise_backlog(&listener)?;
        UnixListener::from_std(listener)
    }

    /// As [`UnixListener::bind`], at an address.
    ///
    /// # Errors
    /// As there.
    pub fn bind_addr(address: &SocketAddr) -> io::Result<UnixListener> {
        let listener = call::blocking(|| net::UnixListener::bind_addr(address))?;
        socket::raise_backlog(&listener)?;
        UnixListener::from_std(listener)
    }

    /// The next connection, and whose it is: see
    /// [`TcpListener::accept`](super::TcpListener::accept).
    ///
    /// # Errors
    /// It was closed, its deadline is over, or the system refuses.
    pub fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (stream, address) =
            socket::accept(&self.polled, &self.backoff_millis, net::UnixListener::accept)?;
        Ok((UnixStream::from_std(stream)?, address))
    }

    /// Connections, one after the other, without end.
    pub fn incoming(&self) -> UnixIncoming<'_> {
        UnixIncoming { listener: self }
    }

    /// The address it listens at.
    ///
    /// # Errors
    /// It was closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.polled.with(net::UnixListener::local_addr)
    }
}

/// See [`UnixListener::incoming`].
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
    /// At `path`, which must not exist.
    ///
    /// # Errors
    /// It exists, or cannot be made.
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixDatagram> {
        UnixDatagram::from_std(call::blocking(|| net::UnixDatagram::bind(path))?)
    }

    /// As [`UnixDatagram::bind`], at an address.
    ///
    /// # Errors
    /// As there.
    pub fn bind_addr(address: &SocketAddr) -> io::Result<UnixDatagram> {
        UnixDatagram::from_std(call::blocking(|| net::UnixDatagram::bind_addr(address))?)
    }

    /// Without an address.
    ///
    /// # Errors
    /// The system refuses.
    pub fn unbound() -> io::Result<UnixDatagram> {
        UnixDatagram::from_std(net::UnixDatagram::unbound()?)
    }

    /// From here on it sends to that one, and hears that one only.
    ///
    /// # Errors
    /// There is none.
    pub fn connect<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.polled.with(|socket| socket.connect(path))
    }

    /// As [`UnixDatagram::connect`], to an address.
    ///
    /// # Errors
    /// As there.
    pub fn connect_addr(&self, address: &SocketAddr) -> io::Result<()> {
        self.polled.with(|socket| socket.connect_addr(address))
    }

    /// The next datagram, and whose it is. What finds no room is lost.
    ///
    /// # Errors
    /// What std's says; it was closed; its time is over.
    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let unnamed = || Ok((0, SocketAddr::from_pathname("")?));
        self.polled.receive(|socket| socket.recv_from(buffer), unnamed)
    }

    /// The next datagram.
    ///
    /// # Errors
    /// As [`UnixDatagram::recv_from`].
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.polled.receive(|socket| socket.recv(buffer), || Ok(0))
    }

    /// Sends a datagram to the socket at `path`. Where its owner is too slow, this waits.
    ///
    /// # Errors
    /// What std's says; it was closed; its time is over.
    pub fn send_to<P: AsRef<Path>>(&self, bytes: &[u8], path: P) -> io::Result<usize> {
        self.send_to_addr(bytes, &SocketAddr::from_pathname(path)?)
    }

    /// As [`UnixDatagram::send_to`], to an address.
    ///
    /// # Errors
    /// As there.
    pub fn send_to_addr(&self, bytes: &[u8], address: &SocketAddr) -> io::Result<usize> {
        // The system tells nobody of room in the queue of one who is not connected.
        self.polled.write_with_retries(|socket| socket.send_to_addr(bytes, address))
    }

    /// Sends a datagram to the one it is connected to.
    ///
    /// # Errors
    /// As [`UnixDatagram::send_to`].
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.polled.write(|socket| socket.send(bytes))
    }
}
