//! TCP, UDP and Unix sockets with the methods of std. A call that would block parks the goroutine;
//! on an ordinary thread it blocks the thread. (Name lookup, connecting a Unix socket and a close
//! that lingers are [marked](crate::blocking) calls.)
//!
//! A call that waits never keeps other goroutines from running.
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
//! - **Deadlines** (`set_deadline`, `set_read_deadline`, `set_write_deadline`) are points in time.
//!   A deadline applies to all calls, including calls that already wait, and stays set until it is
//!   changed. Once it has passed, calls fail with [`TimedOut`](std::io::ErrorKind::TimedOut), even
//!   if there is something to read.
//! - **`close`** can be called by any goroutine and ends all calls on the handle. These calls and
//!   all later ones fail with [`NotConnected`](std::io::ErrorKind::NotConnected).
//! - **Sharing:** several goroutines may use one socket through `&T`. Reads take turns, and so do
//!   writes.
//!
//! Time limits (`set_read_timeout`, `set_write_timeout`) work as in std: they apply to each call,
//! which fails with [`WouldBlock`](std::io::ErrorKind::WouldBlock) when the time is over. Time
//! limits, deadlines and `close` belong to the handle: a clone has its own.
//!
//! Compute a deadline from [`time::now`](crate::time::now): in a test in virtual time,
//! [`Instant::now`](std::time::Instant::now) is another clock.
//!
//! # Stopping a server
//!
//! `close` ends the loop around `accept`; `join_timeout` limits how long the program waits for open
//! connections to end:
//!
//! ```no_run
//! use gosched::signal::{self, Signal};
//! use gosched::{go, net::TcpListener, scope};
//! use std::{io::ErrorKind, sync::Arc, time::Duration};
//!
//! #[gosched::main]
//! fn main() -> std::io::Result<()> {
//!     let listener = Arc::new(TcpListener::bind("127.0.0.1:8080")?);
//!     let accepting = listener.clone();
//!     let server = go(move || {
//!         scope(|s| {
//!             loop {
//!                 match accepting.accept() {
//!                     Ok((stream, _)) => _ = s.go(move || drop(stream)),
//!                     Err(why) if why.kind() == ErrorKind::NotConnected => break,
//!                     Err(why) => eprintln!("accepting a connection failed: {why}"),
//!                 }
//!             }
//!         })
//!     });
//!     let _ = signal::notify(&[Signal::TERM]).recv();
//!     listener.close()?;
//!     let _ = server.join_timeout(Duration::from_secs(2));
//!     Ok(())
//! }
//! ```

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
