//! Connections over loopback, and who uses them, for the suites `net_*`.

use crate::actors::{ACTOR_KINDS, ActorKind};
use crate::wait::LIMIT;
use gosched::chan;
use gosched::net::{TcpListener, TcpStream};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

/// Any port of this machine alone.
pub const LOCAL: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

/// A number that no other call has returned.
fn next_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Relaxed)
}

/// Any port of a loopback address that this call alone returns: where a port must stay free, or its datagrams must
/// reach no other test, whatever ports others are given meanwhile. What connects to it has another address.
pub fn unique_host() -> (Ipv4Addr, u16) {
    let number = std::process::id().wrapping_mul(1009).wrapping_add(next_number());
    let octet = |divisor: u32| 1 + (number / divisor % 254) as u8;
    (Ipv4Addr::new(127, octet(254 * 254), octet(254), octet(1)), 0)
}

/// A name for a file or a socket that no other call has returned, and no earlier process.
///
/// # Panics
/// The clock is before 1970.
pub fn unique_name() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock");
    format!("gosched-{}-{}-{}", std::process::id(), now.as_nanos(), next_number())
}

/// Somebody who was started; goroutines and threads may wait for it.
#[derive(Debug)]
pub struct Spawned<T>(chan::Receiver<T>);

/// Starts a goroutine or a thread.
pub fn start<T: Send + 'static>(
    kind: ActorKind,
    f: impl FnOnce() -> T + Send + 'static,
) -> Spawned<T> {
    let (tx, rx) = chan(1);
    let work = move || drop(tx.send(f()));
    match kind {
        ActorKind::Goroutine => drop(gosched::go(work)),
        ActorKind::Thread => drop(std::thread::spawn(work)),
    }
    Spawned(rx)
}

impl<T: Send + 'static> Spawned<T> {
    /// One who was started elsewhere.
    pub fn from_handle(handle: gosched::JoinHandle<T>) -> Spawned<T> {
        start(ActorKind::Thread, move || handle.join().unwrap_or_else(|why| panic!("{why}")))
    }
}

impl<T> Spawned<T> {
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
pub fn for_all_kind_pairs(f: impl Fn(ActorKind) + Clone + Send + 'static) {
    let mut others = Vec::new();
    for own in ACTOR_KINDS {
        for other in ACTOR_KINDS {
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
pub fn unused_address() -> (SocketAddr, OwnedFd) {
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
pub fn reset_on_close(socket: &impl AsRawFd) {
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
pub struct PatternBytes {
    seed: u64,
    position: u64,
}

impl PatternBytes {
    /// All bytes of a stream.
    pub fn new(seed: u64) -> PatternBytes {
        PatternBytes { seed, position: 0 }
    }

    /// How many were taken or found right.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The eight bytes from position `8 * index` on.
    fn block(&self, index: u64) -> [u8; 8] {
        let x = (index ^ (self.seed << 40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let x = (x ^ (x >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (x ^ (x >> 32)).to_le_bytes()
    }

    /// The next ones, without taking them.
    pub fn fill(&self, mut buffer: &mut [u8]) {
        let mut position = self.position;
        while !buffer.is_empty() {
            let block = self.block(position / 8);
            let rest = &block[(position % 8) as usize..];
            let count = rest.len().min(buffer.len());
            let (now, later) = buffer.split_at_mut(count);
            now.copy_from_slice(&rest[..count]);
            buffer = later;
            position += count as u64;
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
        let mut expected = vec![0; found.len()];
        self.fill(&mut expected);
        if found != expected {
            let wrong = (0..found.len()).find(|&i| found[i] != expected[i]);
            let position = self.position + wrong.map_or(0, |i| i as u64);
            panic!("byte {position} of stream {} is another", self.seed);
        }
        self.skip(found.len());
    }
}

/// Writes the bytes of `stream` until a write fails: how many were acknowledged, and the error.
pub fn write_until_error(mut to: impl Write, bytes: &mut PatternBytes) -> io::Error {
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
pub fn read_to_end(mut from: impl Read, bytes: &mut PatternBytes) {
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
pub fn set_descriptor_limit(count: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is ours to write.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
    limit.rlim_cur = count.min(limit.rlim_max);
    // SAFETY: a limit below the one that holds.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    limit.rlim_cur
}
