//! Stands in for `gosched::net` until that is there.

pub use std::net::{TcpListener, TcpStream, UdpSocket};
pub use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
