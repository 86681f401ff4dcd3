//! UDP.

use super::connect;
use super::socket::names::*;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

/// A UDP socket: [`std::net::UdpSocket`], for goroutines.
pub struct UdpSocket {
    polled: Polled<std::net::UdpSocket>,
}

common!(UdpSocket, std::net::UdpSocket);
timeouts!(UdpSocket);

/// Std's options, as they are.
macro_rules! options {
    ($($(#[$doc:meta])* $get:ident -> $value:ty, $set:ident;)*) => {
        impl UdpSocket {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// What std's says; or it was closed.
                pub fn $get(&self) -> io::Result<$value> {
                    self.polled.with(std::net::UdpSocket::$get)
                }

                $(#[$doc])*
                ///
                /// # Errors
                /// What std's says; or it was closed.
                pub fn $set(&self, value: $value) -> io::Result<()> {
                    self.polled.with(|socket| socket.$set(value))
                }
            )*
        }
    };
}

options! {
    /// Whether it may send to everybody.
    broadcast -> bool, set_broadcast;
    /// Whether it gets what it sends to a group (IPv4).
    multicast_loop_v4 -> bool, set_multicast_loop_v4;
    /// How many routers what it sends to a group may pass (IPv4).
    multicast_ttl_v4 -> u32, set_multicast_ttl_v4;
    /// Whether it gets what it sends to a group (IPv6).
    multicast_loop_v6 -> bool, set_multicast_loop_v6;
    /// How many routers a packet may pass.
    ttl -> u32, set_ttl;
}

impl UdpSocket {
    fn new(polled: Polled<std::net::UdpSocket>) -> UdpSocket {
        UdpSocket { polled }
    }

    /// At the first of the addresses that can be had. Port 0: any that is free.
    ///
    /// # Errors
    /// None can be had; the error is the last one's.
    pub fn bind<A: ToSocketAddrs>(addresses: A) -> io::Result<UdpSocket> {
        connect::try_each_address(addresses, |address| {
            UdpSocket::from_std(std::net::UdpSocket::bind(address)?)
        })
    }

    /// From here on it sends to one, and hears that one only.
    ///
    /// # Errors
    /// None of the addresses will do; the error is the last one's.
    pub fn connect<A: ToSocketAddrs>(&self, addresses: A) -> io::Result<()> {
        connect::try_each_address(addresses, |address| {
            self.polled.with(|socket| socket.connect(address))
        })
    }

    /// The next datagram, and whose it is. What finds no room is lost.
    ///
    /// # Errors
    /// What std's says; it was closed; its time is over.
    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.polled.read(|socket| socket.recv_from(buffer))
    }

    /// As [`UdpSocket::recv_from`], but it stays to be received again.
    ///
    /// # Errors
    /// As there.
    pub fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.polled.read(|socket| socket.peek_from(buffer))
    }

    /// Sends a datagram to the first of the addresses.
    ///
    /// # Errors
    /// There is none; what std's says; it was closed; its time is over.
    pub fn send_to<A: ToSocketAddrs>(&self, bytes: &[u8], addresses: A) -> io::Result<usize> {
        let none = || io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
        let address = connect::lookup_host(addresses)?.next().ok_or_else(none)?;
        self.polled.write(|socket| socket.send_to(bytes, address))
    }

    /// The next datagram of the one it is connected to.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.polled.read(|socket| socket.recv(buffer))
    }

    /// As [`UdpSocket::recv`], but it stays to be received again.
    ///
    /// # Errors
    /// As there.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.polled.read(|socket| socket.peek(buffer))
    }

    /// Sends a datagram to the one it is connected to.
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`].
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.polled.write(|socket| socket.send(bytes))
    }

    /// Whom it is connected to.
    ///
    /// # Errors
    /// Nobody.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.polled.with(std::net::UdpSocket::peer_addr)
    }

    /// Its own address.
    ///
    /// # Errors
    /// It was closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.polled.with(std::net::UdpSocket::local_addr)
    }

    /// Hears what is sent to a group, too (IPv4).
    ///
    /// # Errors
    /// What std's says; or it was closed.
    pub fn join_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.polled.with(|socket| socket.join_multicast_v4(group, interface))
    }

    /// As [`UdpSocket::join_multicast_v4`], of IPv6.
    ///
    /// # Errors
    /// As there.
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.polled.with(|socket| socket.join_multicast_v6(group, interface))
    }

    /// The other way round (IPv4).
    ///
    /// # Errors
    /// As [`UdpSocket::join_multicast_v4`].
    pub fn leave_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.polled.with(|socket| socket.leave_multicast_v4(group, interface))
    }

    /// The other way round (IPv6).
    ///
    /// # Errors
    /// As [`UdpSocket::join_multicast_v4`].
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.polled.with(|socket| socket.leave_multicast_v6(group, interface))
    }
}
