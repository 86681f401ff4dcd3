//! Sockets, with std's methods. A call that would block parks the goroutine; on an ordinary thread it blocks
//! the thread.
//!
//! ```
//! use gosched::net::{TcpListener, TcpStream};
//! use std::io::{Read, Write};
//!
//! gosched::run(|| {
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let address = listener.local_addr()?;
//!     gosched::go(move || {
//!         let (mut stream, _) = listener.accept()?;
//!         std::io::copy(&mut stream.try_clone()?, &mut stream)
//!     });
//!     let mut stream = TcpStream::connect(address)?;
//!     stream.write_all(b"hello")?;
//!     let mut answer = [0; 5];
//!     stream.read_exact(&mut answer)?;
//!     assert_eq!(&answer, b"hello");
//!     std::io::Result::Ok(())
//! }).unwrap();
//! ```
//!
//! Beyond std:
//!
//! - **Deadlines** (`set_deadline` and its kin) are moments, hold for all calls, also for those that wait
//!   already, and stay until they are changed. Expiry is [`TimedOut`](std::io::ErrorKind::TimedOut), also
//!   where there would be something to read.
//! - **`close`** ends all calls on the socket, from anywhere. They and later ones fail with
//!   [`NotConnected`](std::io::ErrorKind::NotConnected).
//! - **Reads take turns**, and so do writes: several goroutines may use one socket through `&T`.
//!
//! Time limits (`set_read_timeout`) are as std's: for each call, and what comes of it is
//! [`WouldBlock`](std::io::ErrorKind::WouldBlock). They and deadlines belong to the handle: a clone has its own.

mod connect;
#[macro_use]
mod socket;
mod tcp;
mod udp;
mod unix;

pub use connect::lookup_host;
#[cfg(feature = "hyper")]
pub(crate) use socket::write_vectored;
pub use std::net::{
    AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV4, SocketAddrV6,
    ToSocketAddrs,
};
pub use tcp::{Incoming, IntoIncoming, TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use unix::{UnixDatagram, UnixIncoming, UnixListener, UnixStream};
