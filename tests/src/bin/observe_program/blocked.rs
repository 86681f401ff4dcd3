//! Goroutines that block their threads in unmarked calls that a signal would interrupt. Dumps show
//! them with all their functions while other goroutines start, compute and end, and the calls are
//! not ended early.

use crate::churn::foreign;
use gosched::{Builder, runtime, yield_now};
use gosched_tests::dumps::{self, DumpedGoroutine};
use gosched_tests::wait::LIMIT;
use std::hint::black_box;
use std::io::{ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

/// Usual duration of a blocking call.
const TIME: Duration = Duration::from_millis(20);
/// Maximum number of recursive calls before the blocking call.
const DEEPEST: u64 = 6;

static STOP: AtomicBool = AtomicBool::new(false);
static SINK: AtomicU64 = AtomicU64::new(0);
/// Number of completed calls, and of calls that ended early.
static CALLS: AtomicU64 = AtomicU64::new(0);
static EARLY: AtomicU64 = AtomicU64::new(0);

/// A kind of goroutine: its call chain goes from `root` through `step` to `leaf`, in which it
/// blocks.
struct GoroutineKind {
    name: &'static str,
    root: fn(),
    functions: [&'static str; 3],
}

macro_rules! goroutine_kind {
    ($name:ident, $root:ident, $step:ident, $leaf:ident, $state:ty, $begin:expr) => {
        #[inline(never)]
        fn $root() {
            let mut state: $state = $begin;
            for round in 0.. {
                if STOP.load(SeqCst) {
                    break;
                }
                let sum = $step(&mut state, round % DEEPEST);
                SINK.fetch_add(sum, SeqCst);
                CALLS.fetch_add(1, SeqCst);
            }
            black_box(&mut state);
        }

        #[inline(never)]
        fn $step(state: &mut $state, depth: u64) -> u64 {
            let room = black_box([depth; 9]);
            let below = if depth == 0 { $leaf(state) } else { $step(state, depth - 1) };
            black_box(below + room[3])
        }

        const $name: GoroutineKind = GoroutineKind {
            name: stringify!($leaf),
            root: $root,
            functions: [stringify!($root), stringify!($step), stringify!($leaf)],
        };
    };
}

goroutine_kind!(SLEEP, sleep_root, sleep_step, sleep_leaf, (), ());
goroutine_kind!(POLL, poll_root, poll_step, poll_leaf, (), ());
goroutine_kind!(NANOSLEEP, nano_root, nano_step, nano_leaf, (), ());
goroutine_kind!(PARK, park_root, park_step, park_leaf, (), ());
goroutine_kind!(COND, cond_root, cond_step, cond_leaf, (), ());
goroutine_kind!(WRITE, write_root, write_step, write_leaf, Pipe, Pipe::new());
goroutine_kind!(WRITE_ALL, all_root, all_step, all_leaf, Pipe, Pipe::new());

goroutine_kind!(RECV, recv_root, recv_step, recv_leaf, (), ());
goroutine_kind!(SOCKET, socket_root, socket_step, socket_leaf, UdpSocket, socket());
goroutine_kind!(SELECT, select_root, select_step, select_leaf, (), ());

const GOROUTINE_KINDS: [&GoroutineKind; 10] =
    [&SLEEP, &POLL, &NANOSLEEP, &PARK, &COND, &WRITE, &WRITE_ALL, &RECV, &SOCKET, &SELECT];

#[inline(never)]
fn sleep_leaf(_: &mut ()) -> u64 {
    let start = Instant::now();
    std::thread::sleep(black_box(TIME));
    count_early(start.elapsed() < TIME);
    black_box(1)
}

#[inline(never)]
fn poll_leaf(_: &mut ()) -> u64 {
    // SAFETY: no entries.
    let result = unsafe { libc::poll(std::ptr::null_mut(), 0, black_box(TIME.as_millis() as i32)) };
    count_early(result != 0);
    black_box(1)
}

#[inline(never)]
fn nano_leaf(_: &mut ()) -> u64 {
    let time = black_box(libc::timespec { tv_sec: 0, tv_nsec: i64::from(TIME.subsec_nanos()) });
    // SAFETY: the time is valid for reads; the remaining time is not requested.
    let result = unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
    count_early(result != 0);
    black_box(1)
}

#[inline(never)]
fn park_leaf(_: &mut ()) -> u64 {
    std::thread::park_timeout(black_box(TIME));
    black_box(1)
}

#[inline(never)]
fn cond_leaf(_: &mut ()) -> u64 {
    let (lock, cond) = (Mutex::new(()), Condvar::new());
    let waited = cond.wait_timeout(lock.lock().unwrap(), black_box(TIME)).unwrap();
    count_early(!waited.1.timed_out());
    black_box(1)
}

#[inline(never)]
fn recv_leaf(_: &mut ()) -> u64 {
    let (_sender, receiver) = mpsc::channel::<u64>();
    count_early(receiver.recv_timeout(black_box(TIME)) != Err(mpsc::RecvTimeoutError::Timeout));
    black_box(1)
}

/// Returns a socket that receives nothing.
fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(TIME)).unwrap();
    socket
}

#[inline(never)]
fn socket_leaf(socket: &mut UdpSocket) -> u64 {
    let error = socket.recv_from(&mut [0; 8]).unwrap_err();
    count_early(error.kind() == ErrorKind::Interrupted);
    black_box(1)
}

#[inline(never)]
fn select_leaf(_: &mut ()) -> u64 {
    let micros = i64::from(TIME.subsec_micros());
    let mut time = black_box(libc::timeval { tv_sec: 0, tv_usec: micros });
    let none = std::ptr::null_mut();
    // SAFETY: no files; the time is valid for reads and writes.
    let result = unsafe { libc::select(0, none, none, none, &mut time) };
    count_early(result != 0);
    black_box(1)
}

/// More bytes than a pipe holds.
const PIPE_OVERFILL_BYTES: usize = 200_000;

#[inline(never)]
fn write_leaf(pipe: &mut Pipe) -> u64 {
    let bytes = pipe.ask();
    let file = pipe.writer.as_raw_fd();
    // SAFETY: the buffer is valid for reads of its length.
    let written = unsafe { libc::write(file, bytes.as_ptr().cast(), bytes.len()) };
    count_early(written != PIPE_OVERFILL_BYTES as isize);
    pipe.finish(usize::try_from(written).unwrap_or(0));
    black_box(1)
}

#[inline(never)]
fn all_leaf(pipe: &mut Pipe) -> u64 {
    let bytes = pipe.ask();
    pipe.writer.write_all(&bytes).unwrap();
    pipe.finish(PIPE_OVERFILL_BYTES);
    black_box(1)
}

fn count_early(early: bool) {
    EARLY.fetch_add(u64::from(early), SeqCst);
}

/// A pipe, and a thread that reads from it after [`TIME`].
struct Pipe {
    writer: PipeWriter,
    reader: Option<PipeReader>,
    reads: Option<std::thread::JoinHandle<PipeReader>>,
}

impl Pipe {
    fn new() -> Pipe {
        let (reader, writer) = std::io::pipe().unwrap();
        Pipe { writer, reader: Some(reader), reads: None }
    }

    /// Returns the bytes to write, and starts the thread that reads them later.
    fn ask(&mut self) -> Vec<u8> {
        let mut reader = self.reader.take().unwrap();
        self.reads = Some(std::thread::spawn(move || {
            std::thread::sleep(TIME);
            reader.read_exact(&mut vec![0; PIPE_OVERFILL_BYTES]).unwrap();
            reader
        }));
        vec![7; PIPE_OVERFILL_BYTES]
    }

    fn finish(&mut self, written: usize) {
        self.writer.write_all(&vec![7; PIPE_OVERFILL_BYTES - written]).unwrap();
        self.reader = self.reads.take().map(|reads| reads.join().unwrap());
    }
}

#[inline(never)]
fn busy_root() {
    while !STOP.load(SeqCst) {
        let short = Builder::new().name("short").go(|| SINK.fetch_add(1, SeqCst)).unwrap();
        for _ in 0..black_box(2_000) {
            SINK.fetch_add(black_box(1), SeqCst);
        }
        drop(short);
        yield_now();
    }
}

/// Returns the function of this module that a frame belongs to. A closure belongs to its enclosing
/// function. In optimized builds, names may lack their module.
fn own(function: &str) -> Option<&str> {
    let is_ours =
        |name: &&str| GOROUTINE_KINDS.iter().any(|nature| nature.functions.contains(name));
    match function.strip_prefix("observe_program::blocked::") {
        Some(path) => path.split("::").next(),
        None => Some(function).filter(is_ours),
    }
}

/// Returns whether a dump shows all functions of a goroutine, down to the function in which it
/// blocks. Fails for frames that the goroutine cannot have.
fn is_whole(block: &DumpedGoroutine, nature: &GoroutineKind) -> Result<bool, String> {
    let [root, step, leaf] = nature.functions;
    // Generic arguments of foreign functions may be types of this module, without a path.
    let plain =
        |name: &str| name.split('<').next().filter(|plain| !plain.is_empty()).is_some_and(foreign);
    let stranger = |name: &&str| own(name).is_none() && !foreign(name) && !plain(name);
    let mut functions = block.frames.iter().map(|frame| frame.function.as_str());
    if let Some(stranger) = functions.clone().find(stranger) {
        return Err(format!("a frame of nobody: {stranger}"));
    }
    let calls: Vec<&str> = functions.by_ref().rev().filter_map(own).collect();
    // Helpers that leaves call.
    let besides = |name: &&str| matches!(*name, "count_early" | "{impl#0}" | "Pipe");
    let may_call = |pair: &[&str]| {
        let [from, to] = pair else { return false };
        let from_step = *from == step && (*to == step || *to == leaf);
        let from_leaf = (*from == leaf || besides(from)) && besides(to);
        (*from == root && *to == step) || from_step || from_leaf
    };
    match calls.windows(2).find(|pair| !may_call(pair)) {
        Some(pair) => return Err(format!("{} calls {}", pair[0], pair[1])),
        None if calls.iter().any(|name| !nature.functions.contains(name) && !besides(name)) => {
            return Err(format!("not its own: {calls:?}"));
        }
        None => {}
    }
    Ok(calls.first() == Some(&root) && calls.contains(&leaf))
}

pub(crate) fn program() {
    let looks: usize = std::env::args().nth(2).map_or(100, |number| number.parse().unwrap());
    let start = |name: &str, root: fn()| Builder::new().name(name).go(root).unwrap();
    let mut all: Vec<_> = (0..2).map(|_| start("busy", busy_root)).collect();
    all.extend(
        GOROUTINE_KINDS
            .iter()
            .chain(&GOROUTINE_KINDS)
            .map(|nature| start(nature.name, nature.root)),
    );
    let mut seen = [(0, 0); GOROUTINE_KINDS.len()];
    let (mut looked, deadline) = (0, Instant::now() + LIMIT);
    // A thread without a CPU does not answer a dump, so a dump may miss some kinds.
    while looked < looks || seen.iter().any(|(_, whole)| *whole == 0) {
        assert!(Instant::now() < deadline, "not all are shown with all their functions: {seen:?}");
        looked += 1;
        let calls = CALLS.load(SeqCst);
        while CALLS.load(SeqCst) == calls {
            yield_now();
        }
        let text = runtime::dump();
        let blocks = dumps::parse(&text).unwrap_or_else(|why| panic!("{why}\n{text}"));
        for (nature, (blocked, whole)) in GOROUTINE_KINDS.iter().zip(&mut seen) {
            let name = Some(nature.name);
            for block in blocks.iter().filter(|block| block.label("name") == name) {
                let is_whole = is_whole(block, nature)
                    .unwrap_or_else(|what| panic!("a frame that cannot be: {what}\n{text}"));
                let is_blocked = block.state == "syscall";
                *blocked += usize::from(is_blocked);
                *whole += usize::from(is_blocked && is_whole);
            }
        }
    }
    let (calls, early) = (CALLS.load(SeqCst), EARLY.load(SeqCst));
    // Half as many calls again, without dumps.
    while CALLS.load(SeqCst) < calls + calls / 2 + 1 {
        gosched::time::sleep(TIME);
    }
    let (alone, early_alone) = (CALLS.load(SeqCst) - calls, EARLY.load(SeqCst) - early);
    STOP.store(true, SeqCst);
    all.into_iter().for_each(|other| other.join().unwrap());
    for (nature, (blocked, whole)) in GOROUTINE_KINDS.iter().zip(seen) {
        println!("{} blocked {blocked} whole {whole}", nature.name);
    }
    println!("looks {looked} calls {calls} early {early}");
    println!("alone {alone} early_alone {early_alone}");
}
