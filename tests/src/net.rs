//! Stands in for `gosched::net` until that is there.
#![allow(missing_docs, reason = "it will go")]

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net as unix;
use std::path::Path;
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
struct Ends {
    deadline: [Option<Instant>; 2],
    timeout: [Option<Duration>; 2],
}

macro_rules! wrap {
    ($name:ident, $std:ty, { $($(#[$m:meta])* fn $f:ident($($a:ident: $t:ty),*) -> $r:ty;)* }) => {
        #[derive(Debug)]
        pub struct $name(RwLock<Option<$std>>, Mutex<Ends>, RawFd);
        impl $name {
            pub fn from_std(s: $std) -> io::Result<Self> {
                s.set_nonblocking(true)?;
                let fd = s.as_raw_fd();
                Ok($name(RwLock::new(Some(s)), Mutex::default(), fd))
            }
            pub fn into_std(self) -> io::Result<$std> {
                let s = self.0.into_inner().unwrap().ok_or(ErrorKind::NotConnected)?;
                s.set_nonblocking(false)?;
                Ok(s)
            }
            fn with<R>(&self, f: impl FnOnce(&$std) -> io::Result<R>) -> io::Result<R> {
                f(self.0.read().unwrap().as_ref().ok_or(ErrorKind::NotConnected)?)
            }
            #[allow(dead_code, reason = "some")]
            fn wait<R>(&self, d: usize, mut f: impl FnMut(&$std) -> io::Result<R>) -> io::Result<R> {
                let start = Instant::now();
                loop {
                    let (deadline, timeout) = {
                        let ends = self.1.lock().unwrap();
                        (ends.deadline[d], ends.timeout[d])
                    };
                    self.with(|_| Ok(()))?;
                    if deadline.is_some_and(|at| at <= Instant::now()) {
                        return Err(ErrorKind::TimedOut.into());
                    }
                    let result = self.with(&mut f);
                    if result.as_ref().err().map(|e| e.kind()) != Some(ErrorKind::WouldBlock) {
                        return result;
                    }
                    if timeout.is_some_and(|timeout| start.elapsed() >= timeout) {
                        return result;
                    }
                    gosched::time::sleep(Duration::from_micros(500));
                }
            }
            pub fn close(&self) -> io::Result<()> {
                self.0.write().unwrap().take().map(drop).ok_or(ErrorKind::NotConnected.into())
            }
            pub fn set_read_deadline(&self, at: Option<Instant>) -> io::Result<()> {
                self.with(|_| { self.1.lock().unwrap().deadline[0] = at; Ok(()) })
            }
            pub fn set_write_deadline(&self, at: Option<Instant>) -> io::Result<()> {
                self.with(|_| { self.1.lock().unwrap().deadline[1] = at; Ok(()) })
            }
            pub fn set_deadline(&self, at: Option<Instant>) -> io::Result<()> {
                self.with(|_| { self.1.lock().unwrap().deadline = [at; 2]; Ok(()) })
            }
            pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
                self.with(|_| Ok(self.1.lock().unwrap().timeout[0]))
            }
            pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
                self.with(|_| Ok(self.1.lock().unwrap().timeout[1]))
            }
            pub fn set_read_timeout(&self, t: Option<Duration>) -> io::Result<()> {
                if t == Some(Duration::ZERO) { return Err(ErrorKind::InvalidInput.into()); }
                self.with(|_| { self.1.lock().unwrap().timeout[0] = t; Ok(()) })
            }
            pub fn set_write_timeout(&self, t: Option<Duration>) -> io::Result<()> {
                if t == Some(Duration::ZERO) { return Err(ErrorKind::InvalidInput.into()); }
                self.with(|_| { self.1.lock().unwrap().timeout[1] = t; Ok(()) })
            }
            pub fn try_clone(&self) -> io::Result<Self> {
                Self::from_std(self.with(|s| s.try_clone())?)
            }
            pub fn take_error(&self) -> io::Result<Option<io::Error>> {
                self.with(|s| s.take_error())
            }
            $(pub fn $f(&self $(, $a: $t)*) -> io::Result<$r> { self.with(|s| s.$f($($a),*)) })*
        }
        impl AsRawFd for $name {
            fn as_raw_fd(&self) -> RawFd { self.2 }
        }
        impl AsFd for $name {
            fn as_fd(&self) -> BorrowedFd<'_> {
                // SAFETY: a stand-in.
                unsafe { BorrowedFd::borrow_raw(self.2) }
            }
        }
    };
}
macro_rules! stream {
    ($name:ident) => {
        impl Read for &$name {
            fn read(&mut self, b: &mut [u8]) -> io::Result<usize> {
                self.wait(0, |mut s| s.read(b))
            }
            fn read_vectored(&mut self, b: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.wait(0, |mut s| s.read_vectored(b))
            }
        }
        impl Write for &$name {
            fn write(&mut self, b: &[u8]) -> io::Result<usize> {
                self.wait(1, |mut s| s.write(b))
            }
            fn write_vectored(&mut self, b: &[IoSlice<'_>]) -> io::Result<usize> {
                self.wait(1, |mut s| s.write_vectored(b))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        impl Read for $name {
            fn read(&mut self, b: &mut [u8]) -> io::Result<usize> {
                (&*self).read(b)
            }
            fn read_vectored(&mut self, b: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                (&*self).read_vectored(b)
            }
        }
        impl Write for $name {
            fn write(&mut self, b: &[u8]) -> io::Result<usize> {
                (&*self).write(b)
            }
            fn write_vectored(&mut self, b: &[IoSlice<'_>]) -> io::Result<usize> {
                (&*self).write_vectored(b)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
    };
}
wrap!(TcpStream, std::net::TcpStream, {
    fn local_addr() -> SocketAddr;
    fn peer_addr() -> SocketAddr;
    fn shutdown(how: Shutdown) -> ();
    fn nodelay() -> bool;
    fn set_nodelay(on: bool) -> ();
    fn ttl() -> u32;
    fn set_ttl(ttl: u32) -> ();
});
stream!(TcpStream);
impl TcpStream {
    pub fn connect<A: ToSocketAddrs>(a: A) -> io::Result<Self> {
        Self::from_std(std::net::TcpStream::connect(a)?)
    }
    pub fn connect_timeout(a: &SocketAddr, d: Duration) -> io::Result<Self> {
        Self::from_std(std::net::TcpStream::connect_timeout(a, d)?)
    }
    pub fn peek(&self, b: &mut [u8]) -> io::Result<usize> {
        self.wait(0, |s| s.peek(b))
    }
    pub fn set_linger(&self, d: Option<Duration>) -> io::Result<()> {
        self.with(|_| Ok(()))?;
        if d == Some(Duration::ZERO) {
            crate::sockets::end_by_reset(self);
        }
        self.1.lock().unwrap().timeout[0] = d;
        Ok(())
    }
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(self.1.lock().unwrap().timeout[0])
    }
}
wrap!(TcpListener, std::net::TcpListener, {
    fn local_addr() -> SocketAddr;
    fn ttl() -> u32;
    fn set_ttl(ttl: u32) -> ();
});
impl TcpListener {
    pub fn bind<A: ToSocketAddrs>(a: A) -> io::Result<Self> {
        Self::from_std(std::net::TcpListener::bind(a)?)
    }
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (s, a) = self
            .wait(0, |s| s.accept())
            .inspect_err(|_| std::thread::sleep(Duration::from_millis(1)))?;
        Ok((TcpStream::from_std(s)?, a))
    }
    pub fn incoming(&self) -> impl Iterator<Item = io::Result<TcpStream>> {
        std::iter::repeat_with(|| self.accept().map(|(s, _)| s))
    }
}
wrap!(UnixListener, unix::UnixListener, {
    fn local_addr() -> unix::SocketAddr;
});
impl UnixListener {
    pub fn bind(p: impl AsRef<Path>) -> io::Result<Self> {
        Self::from_std(unix::UnixListener::bind(p)?)
    }
    pub fn bind_addr(p: &unix::SocketAddr) -> io::Result<Self> {
        Self::from_std(unix::UnixListener::bind_addr(p)?)
    }
    pub fn accept(&self) -> io::Result<(UnixStream, unix::SocketAddr)> {
        let (s, a) = self.wait(0, |s| s.accept())?;
        Ok((UnixStream::from_std(s)?, a))
    }
    pub fn incoming(&self) -> impl Iterator<Item = io::Result<UnixStream>> {
        std::iter::repeat_with(|| self.accept().map(|(s, _)| s))
    }
}
wrap!(UnixStream, unix::UnixStream, {
    fn local_addr() -> unix::SocketAddr;
    fn peer_addr() -> unix::SocketAddr;
    fn shutdown(how: Shutdown) -> ();
});
stream!(UnixStream);
impl UnixStream {
    pub fn connect(p: impl AsRef<Path>) -> io::Result<Self> {
        Self::from_std(unix::UnixStream::connect(p)?)
    }
    pub fn connect_addr(p: &unix::SocketAddr) -> io::Result<Self> {
        Self::from_std(unix::UnixStream::connect_addr(p)?)
    }
    pub fn pair() -> io::Result<(Self, Self)> {
        let (a, b) = unix::UnixStream::pair()?;
        Ok((Self::from_std(a)?, Self::from_std(b)?))
    }
}
macro_rules! datagram {
    ($name:ident, $addr:ty) => {
        impl $name {
            pub fn recv(&self, b: &mut [u8]) -> io::Result<usize> {
                self.wait(0, |s| s.recv(b))
            }
            pub fn recv_from(&self, b: &mut [u8]) -> io::Result<(usize, $addr)> {
                self.wait(0, |s| s.recv_from(b))
            }
            pub fn send(&self, b: &[u8]) -> io::Result<usize> {
                self.wait(1, |s| s.send(b))
            }
        }
    };
}
wrap!(UdpSocket, std::net::UdpSocket, {
    fn local_addr() -> SocketAddr;
    fn peer_addr() -> SocketAddr;
    fn ttl() -> u32;
    fn set_ttl(ttl: u32) -> ();
    fn broadcast() -> bool;
    fn set_broadcast(on: bool) -> ();
    fn multicast_loop_v4() -> bool;
    fn set_multicast_loop_v4(on: bool) -> ();
    fn multicast_ttl_v4() -> u32;
    fn set_multicast_ttl_v4(ttl: u32) -> ();
    fn join_multicast_v4(a: &std::net::Ipv4Addr, b: &std::net::Ipv4Addr) -> ();
    fn leave_multicast_v4(a: &std::net::Ipv4Addr, b: &std::net::Ipv4Addr) -> ();
});
datagram!(UdpSocket, SocketAddr);
impl UdpSocket {
    pub fn bind<A: ToSocketAddrs>(a: A) -> io::Result<Self> {
        Self::from_std(std::net::UdpSocket::bind(a)?)
    }
    pub fn connect<A: ToSocketAddrs>(&self, a: A) -> io::Result<()> {
        self.with(|s| s.connect(a))
    }
    pub fn send_to<A: ToSocketAddrs>(&self, b: &[u8], a: A) -> io::Result<usize> {
        self.wait(1, |s| s.send_to(b, &a))
    }
    pub fn peek(&self, b: &mut [u8]) -> io::Result<usize> {
        self.wait(0, |s| s.peek(b))
    }
    pub fn peek_from(&self, b: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.wait(0, |s| s.peek_from(b))
    }
}
wrap!(UnixDatagram, unix::UnixDatagram, {
    fn local_addr() -> unix::SocketAddr;
    fn peer_addr() -> unix::SocketAddr;
    fn shutdown(how: Shutdown) -> ();
});
datagram!(UnixDatagram, unix::SocketAddr);
impl UnixDatagram {
    pub fn pair() -> io::Result<(Self, Self)> {
        let (a, b) = unix::UnixDatagram::pair()?;
        Ok((Self::from_std(a)?, Self::from_std(b)?))
    }
    pub fn unbound() -> io::Result<Self> {
        Self::from_std(unix::UnixDatagram::unbound()?)
    }
    pub fn bind(p: impl AsRef<Path>) -> io::Result<Self> {
        Self::from_std(unix::UnixDatagram::bind(p)?)
    }
    pub fn bind_addr(p: &unix::SocketAddr) -> io::Result<Self> {
        Self::from_std(unix::UnixDatagram::bind_addr(p)?)
    }
    pub fn connect(&self, p: impl AsRef<Path>) -> io::Result<()> {
        self.with(|s| s.connect(p))
    }
    pub fn connect_addr(&self, p: &unix::SocketAddr) -> io::Result<()> {
        self.with(|s| s.connect_addr(p))
    }
    pub fn send_to(&self, b: &[u8], p: impl AsRef<Path>) -> io::Result<usize> {
        self.wait(1, |s| s.send_to(b, &p))
    }
    pub fn send_to_addr(&self, b: &[u8], p: &unix::SocketAddr) -> io::Result<usize> {
        self.wait(1, |s| s.send_to_addr(b, p))
    }
}

pub fn lookup_host(host: &str) -> io::Result<impl Iterator<Item = SocketAddr>> {
    host.to_socket_addrs()
}
