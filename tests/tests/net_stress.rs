//! Many goroutines and threads on few sockets: races of reads, writes, deadlines, `close` and new
//! sockets with reused descriptors. Also many sockets at once.
//!
//! `GOSCHED_NET_OPS` sets the number of operations of each race.

use gosched::go;
use gosched::net::{TcpListener, TcpStream, UnixStream};
use gosched::runtime::{num_goroutines, procs};
use gosched_tests::actors::{ActorKind, kind_for};
use gosched_tests::alloc_blocks::Random;
use gosched_tests::children;
use gosched_tests::sockets::{
    LOCAL, PatternBytes, Spawned, descriptors, reset_on_close, set_descriptor_limit, start,
    tcp_pair,
};
use gosched_tests::wait::{LIMIT, settle, until};
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const MILLI: Duration = Duration::from_millis(1);

/// Returns a smaller number where each goroutine is a thread.
fn scale(many: usize) -> usize {
    if cfg!(feature = "threads") { many / 10 } else { many }
}

fn operations(default: u64) -> u64 {
    let given = std::env::var("GOSCHED_NET_OPS").ok();
    given.map_or(default, |text| text.parse().expect("a number of operations"))
}

/// Returns the number of descriptors that do not belong to the runtime, which may have few.
fn sockets(descriptors: &[String]) -> usize {
    let own = descriptors.iter().filter(|name| name.starts_with("anon_inode")).count();
    assert!(own < 6, "{descriptors:?}");
    descriptors.len() - own
}

/// Waits until all parties have ended, and calls `help` again and again meanwhile. The total time
/// has no limit, but the time without progress has: `progress` returns a number that changes when a
/// party makes progress.
fn join_all(all: Vec<Spawned<()>>, progress: impl Fn() -> u64, mut help: impl FnMut()) {
    let mut last = (progress(), Instant::now());
    while !all.iter().all(Spawned::is_done) {
        let now = progress();
        if now != last.0 {
            last = (now, Instant::now());
        }
        let left = all.iter().filter(|one| !one.is_done()).count();
        assert!(last.1.elapsed() < LIMIT, "{left} of {} do not get on: at {now}", all.len());
        help();
        std::thread::sleep(MILLI);
    }
    all.into_iter().for_each(Spawned::join);
}

/// Runs `f` while no other test of this suite runs, and checks that `f` leaves no descriptor and no
/// goroutine behind.
fn assert_leaves_nothing(f: impl FnOnce()) {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Opens all descriptors that are opened only once.
    let (near, far) = tcp_pair();
    let reader = start(ActorKind::Goroutine, move || (&near).read(&mut [0; 1]).unwrap());
    settle();
    drop(far);
    assert_eq!(reader.join(), 0);
    until("the first goroutines are gone", || num_goroutines() <= 1);
    let before = (descriptors(), num_goroutines());
    f();
    let clean = || sockets(&descriptors()) <= sockets(&before.0) && num_goroutines() <= before.1;
    let start = Instant::now();
    while !clean() {
        let now = (descriptors(), num_goroutines());
        assert!(start.elapsed() < LIMIT, "descriptors, goroutines: {now:?},\nbefore: {before:?}");
        std::thread::sleep(MILLI);
    }
    drop(alone);
}

/// One end of a connection. All bytes of the connection are its tag.
struct ConnectionEnd {
    stream: Stream,
    tag: u8,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

macro_rules! each {
    ($end:expr, $stream:ident => $call:expr) => {
        match &$end.stream {
            Stream::Tcp($stream) => $call,
            Stream::Unix($stream) => $call,
        }
    };
}

impl ConnectionEnd {
    fn two() -> [Arc<ConnectionEnd>; 2] {
        static TAG: AtomicUsize = AtomicUsize::new(0);
        let count = TAG.fetch_add(1, SeqCst);
        let (one, two) = if count.is_multiple_of(4) {
            let (one, two) = tcp_pair();
            reset_on_close(&one);
            (Stream::Tcp(one), Stream::Tcp(two))
        } else {
            let (one, two) = UnixStream::pair().unwrap();
            (Stream::Unix(one), Stream::Unix(two))
        };
        [one, two].map(|stream| Arc::new(ConnectionEnd { stream, tag: count as u8 }))
    }

    /// Reads up to `size` bytes, checks them, and returns their number.
    fn read(&self, size: usize) -> io::Result<usize> {
        let mut buffer = [0; 256];
        let count = each!(self, stream => (&mut &*stream).read(&mut buffer[..size]))?;
        let strange = buffer[..count].iter().find(|&&byte| byte != self.tag);
        assert_eq!(strange, None, "a byte of another connection than {}", self.tag);
        Ok(count)
    }

    fn write(&self, size: usize) -> io::Result<usize> {
        each!(self, stream => (&mut &*stream).write(&vec![self.tag; size]))
    }

    fn close(&self) -> io::Result<()> {
        each!(self, stream => stream.close())
    }

    fn set_deadline(&self, which: usize, deadline: Option<Instant>) -> io::Result<()> {
        each!(self, stream => match which {
            0 => stream.set_read_deadline(deadline),
            1 => stream.set_write_deadline(deadline),
            _ => stream.set_deadline(deadline),
        })
    }
}

/// Number of calls by outcome: success, and each of the allowed errors.
static OUTCOMES: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];
const ALLOWED_ERRORS: [ErrorKind; 4] = [
    ErrorKind::TimedOut,
    ErrorKind::NotConnected,
    ErrorKind::BrokenPipe,
    ErrorKind::ConnectionReset,
];

/// Counts the outcome of a call that may fail because others set deadlines and close both ends.
#[track_caller]
fn record_outcome<T>(result: io::Result<T>) {
    let how = result.err().map_or(0, |error| {
        let at = ALLOWED_ERRORS.iter().position(|&kind| kind == error.kind());
        1 + at.unwrap_or_else(|| panic!("{:?}: {error}", error.kind()))
    });
    OUTCOMES[how].fetch_add(1, SeqCst);
}

/// A few connections that are replaced while they are used.
struct Table {
    slots: Vec<Mutex<[Arc<ConnectionEnd>; 2]>>,
    left: AtomicU64,
}

impl Table {
    fn new(slots: usize, operations: u64) -> Table {
        let slots = (0..slots).map(|_| Mutex::new(ConnectionEnd::two())).collect();
        Table { slots, left: AtomicU64::new(operations) }
    }

    fn step(&self) -> bool {
        self.left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
    }

    fn end(&self, random: &mut Random) -> Arc<ConnectionEnd> {
        let slot = &self.slots[random.below(self.slots.len())];
        slot.lock().unwrap()[random.below(2)].clone()
    }

    /// Reads and writes, and blocks as long as needed.
    fn read_and_write(&self, random: &mut Random) {
        while self.step() {
            let end = self.end(random);
            match random.below(8) {
                0..4 => record_outcome(end.read(1 + random.below(200))),
                4..7 => record_outcome(end.write(1 + random.below(100))),
                // These writes fill the buffer, and then block.
                _ => record_outcome(end.write(20_000)),
            }
        }
    }

    /// Sets deadlines, and closes and replaces connections, which wakes the readers and writers.
    /// Never blocks.
    fn disturb(&self, random: &mut Random) {
        while self.step() {
            let at = random.below(self.slots.len());
            let end = self.end(random);
            let which = random.below(3);
            let now = Instant::now();
            match random.below(10) {
                0..2 => record_outcome(end.set_deadline(which, Some(now))),
                2..5 => record_outcome(end.set_deadline(which, None)),
                5 => record_outcome(end.set_deadline(which, Some(now + MILLI))),
                6 => record_outcome(end.set_deadline(which, Some(now + 1000 * MILLI))),
                7 => record_outcome(end.close()),
                _ => {
                    let old = std::mem::replace(
                        &mut *self.slots[at].lock().unwrap(),
                        ConnectionEnd::two(),
                    );
                    old.iter().for_each(|end| record_outcome(end.close()));
                }
            }
            if random.below(8) == 0 {
                gosched::yield_now();
            }
        }
    }

    fn close_all(&self) {
        for slot in &self.slots {
            slot.lock().unwrap().iter().for_each(|end| record_outcome(end.close()));
        }
    }
}

#[test]
fn races_of_reads_writes_deadlines_and_close_end_well() {
    assert_leaves_nothing(|| {
        let default = if cfg!(debug_assertions) { 150_000 } else { 1_000_000 };
        race(operations(default));
        let ends = || OUTCOMES.each_ref().map(|count| count.load(SeqCst));
        println!("well, {ALLOWED_ERRORS:?}: {:?}", ends());
        // The races happened. Resets are rare, so they are not required.
        until("calls end in each of four ways", || {
            let have_met = ends()[..4].iter().all(|&count| count > 20);
            if !have_met {
                race(default);
            }
            have_met
        });
    });
}

fn race(operations: u64) {
    let table = Arc::new(Table::new(4, operations));
    let all: Vec<Spawned<()>> = (0..28u64)
        .map(|i| {
            let table = table.clone();
            let kind = if i % 7 < 5 { ActorKind::Goroutine } else { ActorKind::Thread };
            start(kind, move || {
                let mut random = Random::new(i);
                if i % 4 == 0 {
                    table.disturb(&mut random)
                } else {
                    table.read_and_write(&mut random)
                }
            })
        })
        .collect();
    let left = || table.left.load(SeqCst);
    // At the end, no party is left that would wake the waiting ones.
    join_all(all, left, || {
        if left() == 0 {
            table.close_all();
        }
    });
}

/// The kernel reuses the number of a closed descriptor at once.
#[test]
fn no_connection_receives_bytes_of_another_connection() {
    assert_leaves_nothing(|| {
        let default = if cfg!(debug_assertions) { 4_000 } else { 40_000 };
        let rounds = operations(default) / 8;
        let done = Arc::new(AtomicU64::new(0));
        let all: Vec<_> = (0..8)
            .map(|i| {
                let done = done.clone();
                start(kind_for(i), move || {
                    let mut random = Random::new(i as u64);
                    let mut readers = Vec::new();
                    for round in 0..rounds {
                        let [near, far] = ConnectionEnd::two();
                        // There is something to read from the start.
                        record_outcome(far.write(1 + random.below(200)));
                        let its = near.clone();
                        readers.push(start(kind_for(i / 2), move || {
                            loop {
                                match its.read(50) {
                                    Ok(0) => return,
                                    Ok(_) => (),
                                    Err(error) => return record_outcome::<()>(Err(error)),
                                }
                            }
                        }));
                        if random.below(2) == 0 {
                            gosched::yield_now();
                        }
                        near.close().unwrap();
                        done.fetch_add(1, SeqCst);
                        if round % 4 == 3 {
                            readers.drain(..).for_each(Spawned::join);
                        }
                    }
                    readers.into_iter().for_each(Spawned::join);
                })
            })
            .collect();
        join_all(all, || done.load(SeqCst), || ());
    });
}

#[test]
fn close_wakes_two_hundred_readers_of_one_socket() {
    assert_leaves_nothing(|| {
        let [near, far] = ConnectionEnd::two();
        let readers: Vec<_> = (0..200)
            .map(|i| {
                let near = near.clone();
                let kind = if i % 10 == 0 { ActorKind::Thread } else { ActorKind::Goroutine };
                start(kind, move || near.read(1).unwrap_err().kind())
            })
            .collect();
        settle();
        near.close().unwrap();
        for reader in readers {
            assert_eq!(reader.join(), ErrorKind::NotConnected);
        }
        drop(far);
    });
}

#[test]
fn two_hundred_sockets_are_closed_at_once() {
    assert_leaves_nothing(|| {
        let pairs: Vec<_> = (0..200).map(|_| ConnectionEnd::two()).collect();
        let readers: Vec<_> = pairs
            .iter()
            .enumerate()
            .map(|(i, [near, _])| {
                let near = near.clone();
                let kind = if i % 10 == 0 { ActorKind::Thread } else { ActorKind::Goroutine };
                start(kind, move || near.read(1).unwrap_err().kind())
            })
            .collect();
        settle();
        let closers: Vec<_> = pairs
            .chunks(50)
            .map(|pairs| {
                let ends: Vec<_> = pairs.iter().map(|[near, _]| near.clone()).collect();
                start(ActorKind::Goroutine, move || {
                    ends.iter().for_each(|end| end.close().unwrap())
                })
            })
            .collect();
        closers.into_iter().for_each(Spawned::join);
        for reader in readers {
            assert_eq!(reader.join(), ErrorKind::NotConnected);
        }
    });
}

/// A hash of all bytes sent, in order.
#[derive(Clone, Copy)]
struct Hash(u64);

impl Hash {
    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }
}

/// Sends back all bytes received, in pieces of other sizes, and finally their hash.
fn serve(stream: &TcpStream, mut random: Random) {
    let (mut hash, mut buffer) = (Hash(0), vec![0; 5000]);
    loop {
        let size = 1 + random.below(buffer.len());
        let count = (&*stream).read(&mut buffer[..size]).unwrap();
        if count == 0 {
            break;
        }
        hash.add(&buffer[..count]);
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            let cut = 1 + random.below(rest.len());
            rest = &rest[(&*stream).write(&rest[..cut]).unwrap()..];
        }
    }
    (&*stream).write_all(&hash.0.to_be_bytes()).unwrap();
}

/// Sends `size` bytes of pattern `seed` in pieces, from a separate goroutine, and checks the bytes
/// that come back.
fn ask(stream: TcpStream, seed: u64, size: usize) {
    let stream = Arc::new(stream);
    let its = stream.clone();
    let writer = start(ActorKind::Goroutine, move || {
        let (mut random, mut bytes, mut hash) =
            (Random::new(seed), PatternBytes::new(seed), Hash(0));
        let mut buffer = vec![0; 3000];
        let mut left = size;
        while left > 0 {
            let cut = (1 + random.below(buffer.len())).min(left);
            bytes.fill(&mut buffer[..cut]);
            let count = (&*its).write(&buffer[..cut]).unwrap();
            hash.add(&buffer[..count]);
            bytes.skip(count);
            left -= count;
        }
        its.shutdown(Shutdown::Write).unwrap();
        hash
    });
    let (mut random, mut bytes) = (Random::new(seed + 1), PatternBytes::new(seed));
    let mut buffer = vec![0; 4000];
    let mut left = size;
    while left > 0 {
        let cut = (1 + random.below(buffer.len())).min(left);
        let count = (&*stream).read(&mut buffer[..cut]).unwrap();
        assert!(count > 0, "the end, {left} bytes too early");
        bytes.check(&buffer[..count]);
        left -= count;
    }
    let mut hash = [0; 8];
    (&*stream).read_exact(&mut hash).unwrap();
    assert_eq!(u64::from_be_bytes(hash), writer.join().0, "the hash of {seed}");
    assert_eq!((&*stream).read(&mut hash).unwrap(), 0);
}

#[test]
fn every_byte_of_a_thousand_connections_is_correct() {
    assert_leaves_nothing(|| {
        let count = scale(1000);
        assert!(set_descriptor_limit(10_000) > 2 * count as u64 + 50);
        let size = if cfg!(debug_assertions) { 12_000 } else { 100_000 };
        let listener = TcpListener::bind(LOCAL).unwrap();
        let address = listener.local_addr().unwrap();
        let server = start(ActorKind::Goroutine, move || {
            let serving: Vec<_> = (0..count)
                .map(|i| {
                    let (far, _) = listener.accept().unwrap();
                    start(ActorKind::Goroutine, move || serve(&far, Random::new(i as u64)))
                })
                .collect();
            serving.into_iter().for_each(Spawned::join);
        });
        let mut random = Random::new(99);
        let clients: Vec<_> = (0..count)
            .map(|i| {
                let size = if i % 50 == 0 { 20 * size } else { random.below(size) };
                let kind = if i % 20 == 0 { ActorKind::Thread } else { ActorKind::Goroutine };
                start(kind, move || ask(TcpStream::connect(address).unwrap(), i as u64, size))
            })
            .collect();
        clients.into_iter().for_each(Spawned::join);
        server.join();
    });
}

const IDLE: usize = 10_000;
/// The environment variables with the number of connections and the address of the server.
const COUNT: &str = "GOSCHED_TEST_COUNT";
const ADDRESS: &str = "GOSCHED_TEST_ADDRESS";

fn idle_count() -> usize {
    std::env::var(COUNT).unwrap().parse().unwrap()
}

/// Runs a scenario in a child process.
#[test]
fn child() {
    match children::scenario().as_deref() {
        Some("idle server") => idle_server(),
        Some("idle clients") => idle_clients(),
        _ => (),
    }
}

/// Returns the number of threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Serves connections from a child process, each in a goroutine, with few threads.
fn idle_server() {
    let before = threads();
    assert!(set_descriptor_limit(IDLE as u64 + 500) >= IDLE as u64 + 500);
    let listener = TcpListener::bind(LOCAL).unwrap();
    let mut clients = children::command("idle clients");
    clients.env(ADDRESS, listener.local_addr().unwrap().to_string());
    let mut clients = clients.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let served = Arc::new(AtomicUsize::new(0));
    let its = served.clone();
    let serving: Vec<_> = gosched::run(move || {
        let serve = |_| {
            let (mut far, _) = listener.accept().unwrap();
            let served = its.clone();
            go(move || {
                let mut byte = [0];
                while matches!(far.read(&mut byte), Ok(1)) {
                    far.write_all(&byte).unwrap();
                    served.fetch_add(1, SeqCst);
                }
            })
        };
        (0..idle_count()).map(serve).collect()
    });
    std::thread::sleep(200 * MILLI);
    // Surplus threads, started while all clients connected, end before long.
    let most = before + procs() + 4;
    until(&format!("there are {most} threads or less"), || threads() <= most);
    clients.stdin.take().unwrap().write_all(b"\n").unwrap();
    io::copy(&mut clients.stdout.take().unwrap(), &mut io::sink()).unwrap();
    assert!(clients.wait().unwrap().success());
    serving.into_iter().for_each(|one| one.join().unwrap());
    println!("served {}", served.load(SeqCst));
}

fn idle_clients() {
    assert!(set_descriptor_limit(IDLE as u64 + 500) >= IDLE as u64 + 500);
    let address = std::env::var(ADDRESS).unwrap();
    let count = idle_count();
    let all: Vec<_> = (0..count).map(|_| std::net::TcpStream::connect(&address).unwrap()).collect();
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).unwrap();
    for (i, mut one) in all.iter().enumerate() {
        one.write_all(&[i as u8]).unwrap();
    }
    for (i, mut one) in all.iter().enumerate() {
        let mut byte = [0];
        one.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [i as u8]);
        // Without a reset, the port would stay in use for a minute.
        reset_on_close(one);
    }
}

#[test]
#[cfg_attr(feature = "threads", ignore = "goroutines are threads")]
fn ten_thousand_idle_connections_need_a_handful_of_threads() {
    if set_descriptor_limit(20_000) < IDLE as u64 + 500 {
        eprintln!("skipped: a process may not have {IDLE} descriptors");
        return;
    }
    // In debug builds, only the run with 4 Ps uses the full number of connections.
    let fewer = if cfg!(debug_assertions) { IDLE / 5 } else { IDLE };
    assert_leaves_nothing(|| [("1", fewer), ("4", IDLE)].into_iter().for_each(serve_idle));
}

fn serve_idle((procs, count): (&str, usize)) {
    let mut command = children::command("idle server");
    command.env("GOMAXPROCS", procs).env(COUNT, count.to_string());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = children::stderr(&output);
    assert!(output.status.success(), "{:?}: {text}{error}", output.status);
    assert!(text.contains(&format!("served {count}\n")), "{text}");
}
