//! Connections over loopback, actors and byte streams for the suites `net_*`.

use crate::actors::{ACTOR_KINDS, ActorKind};
use crate::wait::LIMIT;
use gosched::chan;
use gosched::net::{TcpListener, TcpStream};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

/// Any free port of the loopback address.
pub const LOCAL: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

/// Returns a number that no other call in this process returns.
fn next_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Relaxed)
}

/// Returns a loopback address that no other call returns, with any free port. For tests in which a
/// port must stay free or datagrams must not reach another test, whichever ports other tests get.
/// A client that connects to it has another address.
pub fn unique_host() -> (Ipv4Addr, u16) {
    let number = std::process::id().wrapping_mul(1009).wrapping_add(next_number());
    let octet = |divisor: u32| 1 + (number / divisor % 254) as u8;
    (Ipv4Addr::new(127, octet(254 * 254), octet(254), octet(1)), 0)
}

/// Returns a name for a file or a socket that no other call and no earlier process has returned.
///
/// # Panics
/// The clock is before 1970.
pub fn unique_name() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock");
    format!("gosched-{}-{}-{}", std::process::id(), now.as_nanos(), next_number())
}

/// A handle to a running actor. Goroutines and threads may wait for the actor.
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
    /// Creates a handle to a goroutine that was started elsewhere.
    pub fn from_handle(handle: gosched::JoinHandle<T>) -> Spawned<T> {
        start(ActorKind::Thread, move || handle.join().unwrap_or_else(|why| panic!("{why}")))
    }
}

impl<T> Spawned<T> {
    /// Waits for the actor and returns its result.
    ///
    /// # Panics
    /// The actor panicked, or did not end within [`LIMIT`].
    #[track_caller]
    pub fn join(self) -> T {
        self.0.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("the other one: {error}"))
    }

    /// Returns whether the actor has ended.
    pub fn is_done(&self) -> bool {
        !self.0.is_empty() || self.0.is_closed()
    }
}

/// Runs `f` in goroutines and in threads, each once with goroutines and once with threads as the
/// kind of actor that `f` starts. All four run concurrently.
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

/// Returns both ends of a new connection.
///
/// # Panics
/// The connection fails.
pub fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(LOCAL).expect("a listener");
    let near = TcpStream::connect(listener.local_addr().expect("its address")).expect("one end");
    loop {
        let (far, from) = listener.accept().expect("the other end");
        // A client of another test may connect, if the port was that test's listener's before.
        if from == near.local_addr().expect("an address") {
            return (near, far);
        }
    }
}

/// Returns an address without a listener. No other socket gets the address as long as the
/// descriptor is open.
///
/// # Panics
/// The socket cannot be created or bound.
pub fn unused_address() -> (SocketAddr, OwnedFd) {
    // SAFETY: no pointers.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    assert!(socket >= 0, "{}", io::Error::last_os_error());
    // SAFETY: the descriptor is new, and owned by no other handle.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(Ipv4Addr::LOCALHOST.octets()) },
        sin_zero: [0; 8],
    };
    let size = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: a valid address and its size.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) };
    assert_eq!(bound, 0, "{}", io::Error::last_os_error());
    let socket = std::net::TcpListener::from(socket);
    (socket.local_addr().expect("an address"), socket.into())
}

/// Makes the socket reset its connection when its last handle is closed.
///
/// # Panics
/// The option cannot be set.
pub fn reset_on_close(socket: &impl AsRawFd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: a valid value and its size.
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

/// A reproducible stream of bytes: the bytes of stream `seed` from `position` on. Bytes of another
/// stream or position are detected as wrong.
#[derive(Clone, Debug)]
pub struct PatternBytes {
    seed: u64,
    position: u64,
}

impl PatternBytes {
    /// Creates the stream with this seed, from its first byte on.
    pub fn new(seed: u64) -> PatternBytes {
        PatternBytes { seed, position: 0 }
    }

    /// Returns how many bytes were skipped or checked.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the eight bytes from position `8 * index` on.
    fn block(&self, index: u64) -> [u8; 8] {
        let x = (index ^ (self.seed << 40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let x = (x ^ (x >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (x ^ (x >> 32)).to_le_bytes()
    }

    /// Fills `buffer` with the next bytes, without skipping them.
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

    /// Skips `count` bytes.
    pub fn skip(&mut self, count: usize) {
        self.position += count as u64;
    }

    /// Checks that `found` equals the next bytes, and skips them.
    ///
    /// # Panics
    /// The bytes differ.
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

/// Writes the bytes until a write fails, and returns the error. `bytes` is then at the first byte
/// that was not written.
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

/// Reads to the end of the stream, and checks that it consists of `bytes`.
///
/// # Panics
/// The bytes differ, or a read fails.
pub fn read_to_end(mut from: impl Read, bytes: &mut PatternBytes) {
    let mut buffer = vec![0; 30_000];
    loop {
        match from.read(&mut buffer).expect("a read") {
            0 => return,
            count => bytes.check(&buffer[..count]),
        }
    }
}

/// Sends back everything it receives, until end of file.
///
/// # Panics
/// A read or a write fails.
pub fn echo(stream: &TcpStream) {
    let mut buffer = vec![0; 4096];
    loop {
        match (&mut &*stream).read(&mut buffer).expect("a read") {
            0 => return,
            count => (&mut &*stream).write_all(&buffer[..count]).expect("a write"),
        }
    }
}

/// Returns the targets of this process's open descriptors.
///
/// # Panics
/// `/proc` cannot be read.
pub fn descriptors() -> Vec<String> {
    let name = |path| std::fs::read_link(path).map(|name| name.to_string_lossy().into_owned());
    let all = std::fs::read_dir("/proc/self/fd").expect("/proc").flatten();
    // The descriptor of the directory itself is left out; it may already be closed.
    all.filter_map(|entry| name(entry.path()).ok()).filter(|name| !name.ends_with("/fd")).collect()
}

/// Returns the CPU time of this process.
pub fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is ours to write.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Sets the limit of open descriptors to `count`, or to the hard limit if that is lower. Returns
/// the new limit.
///
/// # Panics
/// The limit cannot be read or set.
pub fn set_descriptor_limit(count: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is ours to write.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
    limit.rlim_cur = count.min(limit.rlim_max);
    // SAFETY: a limit that is at most the hard limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    limit.rlim_cur
}
