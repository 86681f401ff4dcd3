//! UDP sockets. A call never splits or joins datagrams: it sends or receives one.

use super::connect;
use super::socket::names::*;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

/// A UDP socket, like [`std::net::UdpSocket`].
pub struct UdpSocket {
    polled: Polled<std::net::UdpSocket>,
}

common!(UdpSocket, std::net::UdpSocket);
timeouts!(UdpSocket);

/// Implements the getter and the setter of a socket option. Both get the same documentation.
macro_rules! options {
    ($($(#[$doc:meta])* $get:ident -> $value:ty, $set:ident;)*) => {
        impl UdpSocket {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// The socket was closed, or the system call fails.
                pub fn $get(&self) -> io::Result<$value> {
                    self.polled.with(std::net::UdpSocket::$get)
                }

                $(#[$doc])*
                ///
                /// # Errors
                /// The socket was closed, or the system call fails.
                pub fn $set(&self, value: $value) -> io::Result<()> {
                    self.polled.with(|socket| socket.$set(value))
                }
            )*
        }
    };
}

options! {
    /// Reads or sets the option `SO_BROADCAST`: whether the socket may send to broadcast addresses.
    broadcast -> bool, set_broadcast;
    /// Reads or sets the option `IP_MULTICAST_LOOP`: whether multicast packets that the socket
    /// sends are also delivered to the sending host (IPv4).
    multicast_loop_v4 -> bool, set_multicast_loop_v4;
    /// Reads or sets the option `IP_MULTICAST_TTL`: how many routers a multicast packet may pass
    /// (IPv4).
    multicast_ttl_v4 -> u32, set_multicast_ttl_v4;
    /// Reads or sets the option `IPV6_MULTICAST_LOOP`: whether multicast packets that the socket
    /// sends are also delivered to the sending host (IPv6).
    multicast_loop_v6 -> bool, set_multicast_loop_v6;
    /// Reads or sets the option `IP_TTL`: how many routers a packet may pass.
    ttl -> u32, set_ttl;
}

impl UdpSocket {
    fn new(polled: Polled<std::net::UdpSocket>) -> UdpSocket {
        UdpSocket { polled }
    }

    /// Creates a socket, bound to the first of the addresses that can be bound. Port 0 selects a
    /// free port.
    ///
    /// # Errors
    /// The host cannot be resolved, or no address could be bound. The error is that of the last
    /// address.
    pub fn bind<A: ToSocketAddrs>(addresses: A) -> io::Result<UdpSocket> {
        connect::try_each_address(addresses, |address| {
            UdpSocket::from_std(std::net::UdpSocket::bind(address)?)
        })
    }

    /// Connects the socket to a remote address: the socket then sends to that address, and receives
    /// only from it.
    ///
    /// If `addresses` yields several addresses, they are tried in order until one succeeds.
    ///
    /// # Errors
    /// The host cannot be resolved, the socket was closed, or it could not be connected to any of
    /// the addresses. The error is that of the last address.
    pub fn connect<A: ToSocketAddrs>(&self, addresses: A) -> io::Result<()> {
        connect::try_each_address(addresses, |address| {
            self.polled.with(|socket| socket.connect(address))
        })
    }

    /// Receives a datagram. Returns its length and the address of its sender. If the datagram is
    /// longer than the buffer, the rest is discarded.
    ///
    /// # Errors
    /// The socket was closed, its deadline has passed, the time limit of the call has expired, or
    /// the system refuses.
    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.polled.read(|socket| socket.recv_from(buffer))
    }

    /// Receives a datagram like [`UdpSocket::recv_from`], but leaves it in the queue: the next call
    /// receives it again.
    ///
    /// # Errors
    /// The same as those of [`UdpSocket::recv_from`].
    pub fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.polled.read(|socket| socket.peek_from(buffer))
    }

    /// Sends a datagram to the first of the addresses. Returns the number of bytes sent.
    ///
    /// # Errors
    /// The host cannot be resolved, the socket was closed, its deadline has passed, the time limit
    /// of the call has expired, or the system call fails.
    pub fn send_to<A: ToSocketAddrs>(&self, bytes: &[u8], addresses: A) -> io::Result<usize> {
        let none =
            || io::Error::new(io::ErrorKind::InvalidInput, "the host resolves to no address");
        let address = connect::lookup_host(addresses)?.next().ok_or_else(none)?;
        self.polled.write(|socket| socket.send_to(bytes, address))
    }

    /// Receives a datagram from the address to which the socket is connected. Returns its length.
    /// If the datagram is longer than the buffer, the rest is discarded.
    ///
    /// # Errors
    /// The same as those of [`UdpSocket::recv_from`].
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.polled.read(|socket| socket.recv(buffer))
    }

    /// Receives a datagram like [`UdpSocket::recv`], but leaves it in the queue: the next call
    /// receives it again.
    ///
    /// # Errors
    /// The same as those of [`UdpSocket::recv_from`].
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.polled.read(|socket| socket.peek(buffer))
    }

    /// Sends a datagram to the address to which the socket is connected. Returns the number of
    /// bytes sent.
    ///
    /// # Errors
    /// The socket is not connected; otherwise the same as those of [`UdpSocket::send_to`].
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.polled.write(|socket| socket.send(bytes))
    }

    /// Returns the address to which the socket is connected.
    ///
    /// # Errors
    /// The socket is not connected, or was closed.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.polled.with(std::net::UdpSocket::peer_addr)
    }

    /// Returns the address to which the socket is bound.
    ///
    /// # Errors
    /// The socket was closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.polled.with(std::net::UdpSocket::local_addr)
    }

    /// Joins a multicast group: the socket then also receives datagrams that are sent to the group
    /// (IPv4). `interface` is the address of the local interface; if it is unspecified, the system
    /// chooses one.
    ///
    /// # Errors
    /// The socket was closed, or the system call fails.
    pub fn join_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.polled.with(|socket| socket.join_multicast_v4(group, interface))
    }

    /// Joins a multicast group like [`UdpSocket::join_multicast_v4`] (IPv6). `interface` is the
    /// index of the local interface; 0 stands for any.
    ///
    /// # Errors
    /// The socket was closed, or the system call fails.
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.polled.with(|socket| socket.join_multicast_v6(group, interface))
    }

    /// Leaves a multicast group that was joined by [`UdpSocket::join_multicast_v4`].
    ///
    /// # Errors
    /// The socket was closed, or the system call fails.
    pub fn leave_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.polled.with(|socket| socket.leave_multicast_v4(group, interface))
    }

    /// Leaves a multicast group that was joined by [`UdpSocket::join_multicast_v6`].
    ///
    /// # Errors
    /// The socket was closed, or the system call fails.
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.polled.with(|socket| socket.leave_multicast_v6(group, interface))
    }
}
