//! Connections over loopback, and who uses them, for the suites `net_*`.

use crate::parties::{KINDS, Kind};
use crate::wait::LIMIT;
use gosched::chan;
use gosched::net::{TcpListener, TcpStream};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Any port of this machine alone.
pub const LOCAL: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

/// Somebody who was started; goroutines and threads may wait for it.
#[derive(Debug)]
pub struct Other<T>(chan::Receiver<T>);

/// Starts a goroutine or a thread.
pub fn start<T: Send + 'static>(kind: Kind, f: impl FnOnce() -> T + Send + 'static) -> Other<T> {
    let (tx, rx) = chan(1);
    let work = move || drop(tx.send(f()));
    match kind {
        Kind::Goroutine => drop(gosched::go(work)),
        Kind::Thread => drop(std::thread::spawn(work)),
    }
    Other(rx)
}

impl<T: Send + 'static> Other<T> {
    /// One who was started elsewhere.
    pub fn of(handle: gosched::JoinHandle<T>) -> Other<T> {
        start(Kind::Thread, move || handle.join().unwrap_or_else(|why| panic!("{why}")))
    }
}

impl<T> Other<T> {
    /// Its result.
    ///
    /// # Panics
    /// It panicked, or hangs.
    #[track_caller]
    pub fn join(self) -> T {
        self.0.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("the other one: {error}"))
    }

    /// Whether it has ended.
    pub fn is_done(&self) -> bool {
        !self.0.is_empty() || self.0.is_closed()
    }
}

/// Runs `f` as a goroutine and as a thread, each with goroutines and with threads to start: all four at once.
pub fn everywhere(f: impl Fn(Kind) + Clone + Send + 'static) {
    let mut others = Vec::new();
    for own in KINDS {
        for other in KINDS {
            let f = f.clone();
            others.push(((own, other), start(own, move || f(other))));
        }
    }
    for ((own, other), party) in others {
        let ended = party.0.recv_timeout(2 * LIMIT);
        assert!(ended.is_ok(), "{own:?} with a {other:?}: {ended:?}");
    }
}

/// Both ends of a new connection.
///
/// # Panics
/// There is none.
pub fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(LOCAL).expect("a listener");
    let near = TcpStream::connect(listener.local_addr().expect("its address")).expect("one end");
    loop {
        let (far, from) = listener.accept().expect("the other end");
        // Somebody else may be looking for a listener that is gone.
        if from == near.local_addr().expect("an address") {
            return (near, far);
        }
    }
}

/// An address where nobody listens, and nobody will as long as the descriptor is there.
///
/// # Panics
/// None can be had.
pub fn nobody() -> (SocketAddr, OwnedFd) {
    // SAFETY: no pointers.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    assert!(socket >= 0, "{}", io::Error::last_os_error());
    // SAFETY: it is new, and nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(Ipv4Addr::LOCALHOST.octets()) },
        sin_zero: [0; 8],
    };
    let size = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: an address and its size.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) };
    assert_eq!(bound, 0, "{}", io::Error::last_os_error());
    let socket = std::net::TcpListener::from(socket);
    (socket.local_addr().expect("an address"), socket.into())
}

/// Makes the end of this descriptor's connection a reset, once its last handle is gone.
///
/// # Panics
/// It is not a connection.
pub fn end_by_reset(socket: &impl AsRawFd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: a value and its size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// Bytes that are told apart wherever they end up: those of stream `seed` from `position` on.
#[derive(Clone, Debug)]
pub struct Bytes {
    seed: u64,
    position: u64,
}

impl Bytes {
    /// All bytes of a stream.
    pub fn new(seed: u64) -> Bytes {
        Bytes { seed, position: 0 }
    }

    /// How many were taken or found right.
    pub fn position(&self) -> u64 {
        self.position
    }

    fn at(&self, position: u64) -> u8 {
        let x = (position ^ (self.seed << 40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (x ^ (x >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9).to_le_bytes()[6]
    }

    /// The next ones, without taking them.
    pub fn fill(&self, buffer: &mut [u8]) {
        for (byte, position) in buffer.iter_mut().zip(self.position..) {
            *byte = self.at(position);
        }
    }

    /// Takes so many.
    pub fn skip(&mut self, count: usize) {
        self.position += count as u64;
    }

    /// Takes as many as `found` has.
    ///
    /// # Panics
    /// They are others.
    #[track_caller]
    pub fn check(&mut self, found: &[u8]) {
        for (&byte, position) in found.iter().zip(self.position..) {
            assert_eq!(byte, self.at(position), "byte {position} of stream {}", self.seed);
        }
        self.skip(found.len());
    }
}

/// Writes the bytes of `stream` until a write fails: how many were acknowledged, and the error.
pub fn write_until_error(mut to: impl Write, bytes: &mut Bytes) -> io::Error {
    let mut buffer = vec![0; 30_000];
    loop {
        bytes.fill(&mut buffer);
        match to.write(&buffer) {
            Ok(count) => bytes.skip(count),
            Err(error) => return error,
        }
    }
}

/// Reads to the end; all must be `bytes`.
///
/// # Panics
/// They are not, or a read fails.
pub fn read_to_end(mut from: impl Read, bytes: &mut Bytes) {
    let mut buffer = vec![0; 30_000];
    loop {
        match from.read(&mut buffer).expect("a read") {
            0 => return,
            count => bytes.check(&buffer[..count]),
        }
    }
}

/// Sends back all it gets, until there is no more.
///
/// # Panics
/// A call fails.
pub fn echo(stream: &TcpStream) {
    let mut buffer = vec![0; 4096];
    loop {
        match (&mut &*stream).read(&mut buffer).expect("a read") {
            0 => return,
            count => (&mut &*stream).write_all(&buffer[..count]).expect("a write"),
        }
    }
}

/// What the open descriptors of this process are.
///
/// # Panics
/// The system does not tell.
pub fn descriptors() -> Vec<String> {
    let name = |path| std::fs::read_link(path).map(|name| name.to_string_lossy().into_owned());
    let all = std::fs::read_dir("/proc/self/fd").expect("/proc").flatten();
    // One is the look itself, and is gone or not.
    all.filter_map(|entry| name(entry.path()).ok()).filter(|name| !name.ends_with("/fd")).collect()
}

/// CPU time of this process.
pub fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is ours to write.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Lets this process have so many descriptors, or all it may have: how many that is.
///
/// # Panics
/// The system does not tell.
pub fn allow_descriptors(count: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is ours to write.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
    limit.rlim_cur = count.min(limit.rlim_max);
    // SAFETY: a limit below the one that holds.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    limit.rlim_cur
}
