//! Goroutines in marked and unmarked system calls, of which many dumps are taken: the dumps show
//! their functions, and the calls complete.

use gosched::net::TcpStream;
use gosched::{blocking, go, runtime};
use gosched_tests::dumps::{self, DumpedGoroutine};
use gosched_tests::wait::LIMIT;
use std::hint::black_box;
use std::io::{PipeReader, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Number of dumps.
const LOOKS: usize = 50;
/// How long `marked_nanosleep` sleeps.
const SLEEP: Duration = Duration::from_millis(1500);

#[inline(never)]
fn marked_read(pipe: &PipeReader) -> isize {
    let result = blocking(|| read(pipe));
    black_box(result)
}

#[inline(never)]
fn unmarked_read(pipe: &PipeReader) -> isize {
    let result = read(pipe);
    black_box(result)
}

#[inline(never)]
fn marked_poll(pipe: &PipeReader) -> isize {
    let result = blocking(|| poll(pipe));
    black_box(result)
}

#[inline(never)]
fn unmarked_poll(pipe: &PipeReader) -> isize {
    let result = poll(pipe);
    black_box(result)
}

/// Returns 1 if the sleep completes, and -1 if a signal interrupts it.
#[inline(never)]
fn marked_nanosleep(_: &PipeReader) -> isize {
    let tv_nsec = i64::from(SLEEP.subsec_nanos());
    let time = libc::timespec { tv_sec: SLEEP.as_secs() as i64, tv_nsec };
    // SAFETY: the time is valid for reads; the remaining time is not requested.
    let result = blocking(|| unsafe { libc::nanosleep(&time, std::ptr::null_mut()) });
    black_box(if result == 0 { 1 } else { -1 })
}

fn read(pipe: &PipeReader) -> isize {
    let mut byte = [0u8];
    // SAFETY: the buffer is valid for writes of one byte.
    unsafe { libc::read(pipe.as_raw_fd(), byte.as_mut_ptr().cast(), 1) }
}

fn poll(pipe: &PipeReader) -> isize {
    let mut polled = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, valid for reads and writes.
    unsafe { libc::poll(&mut polled, 1, -1) as isize }
}

type Call = fn(&PipeReader) -> isize;
const CALLS: [(&str, Call); 5] = [
    ("marked_read", marked_read),
    ("unmarked_read", unmarked_read),
    ("marked_poll", marked_poll),
    ("unmarked_poll", unmarked_poll),
    ("marked_nanosleep", marked_nanosleep),
];

/// Closes the socket. The close lingers, since the peer does not read.
#[inline(never)]
fn closes_a_socket(socket: TcpStream) {
    drop(socket);
    black_box(());
}

/// Returns a socket with a full send buffer, whose close waits until the peer has received the
/// data, and the peer.
fn full_socket() -> (TcpStream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 1 << 16]).is_ok() {}
    let linger = libc::linger { l_onoff: 1, l_linger: 600 };
    let size = size_of::<libc::linger>() as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_LINGER);
    // SAFETY: the value is valid for reads of its size.
    let set = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const linger).cast(), size)
    };
    assert_eq!(set, 0);
    (TcpStream::from_std(socket).unwrap(), listener.accept().unwrap().0)
}

/// A destructor that blocks is shown as a call.
pub(crate) fn closing() {
    let (socket, other) = full_socket();
    let closes = go(move || closes_a_socket(socket));
    let deadline = Instant::now() + LIMIT;
    let mut looks = 0;
    while looks < LOOKS {
        let text = runtime::dump();
        let blocks = dumps::parse(&text).unwrap_or_else(|why| panic!("{why}\n{text}"));
        let seen = find(&blocks, "closes_a_socket").is_some_and(|block| block.state == "syscall");
        looks += usize::from(seen);
        assert!(!closes.is_finished(), "after {looks} looks it is gone\n{text}");
        assert!(Instant::now() < deadline, "it is not seen\n{text}");
        gosched::yield_now();
    }
    // Without a peer, the close does not wait.
    drop(other);
    closes.join().unwrap();
    println!("seen {looks}");
}

fn find<'a>(blocks: &'a [DumpedGoroutine], name: &str) -> Option<&'a DumpedGoroutine> {
    blocks.iter().find(|block| block.frame(name).is_some())
}

pub(crate) fn program() {
    let start = Instant::now();
    let mut writers = Vec::new();
    let mut calls = Vec::new();
    for (name, call) in CALLS {
        let (reader, writer) = std::io::pipe().unwrap();
        writers.push(writer);
        let result = move || {
            let result = call(&reader);
            (result, std::io::Error::last_os_error())
        };
        calls.push((name, go(result)));
    }
    let deadline = Instant::now() + LIMIT;
    let mut looks = 0;
    while looks < LOOKS {
        let text = runtime::dump();
        let blocks = dumps::parse(&text).unwrap_or_else(|why| panic!("{why}\n{text}"));
        let state = |name: &str| find(&blocks, name).map(|block| block.state.as_str());
        let is_asleep = start.elapsed() < SLEEP;
        let marked = |name: &str| {
            let is_awake = name == "marked_nanosleep" && !is_asleep;
            state(name) == Some("syscall") || is_awake
        };
        // A signal may have interrupted an unmarked call, and a thread without a CPU does not
        // report its state.
        let unmarked = |name: &str, is_finished: bool| {
            matches!(state(name), Some("syscall" | "running"))
                || (name == "unmarked_poll" && is_finished)
        };
        let (all_marked, all_unmarked) = calls.iter().fold((true, true), |(a, b), (name, call)| {
            if name.starts_with("marked") {
                (a && marked(name), b)
            } else {
                (a, b && unmarked(name, call.is_finished()))
            }
        });
        assert!(all_marked || looks == 0, "after {looks} looks a marked call is gone\n{text}");
        looks += usize::from(all_marked && all_unmarked);
        assert!(Instant::now() < deadline, "not all are seen\n{text}");
        gosched::yield_now();
    }
    for mut writer in writers {
        // A call that was interrupted has closed its end of the pipe.
        let written = writer.write_all(b"x").map_err(|error| error.kind());
        assert!(matches!(written, Ok(()) | Err(std::io::ErrorKind::BrokenPipe)), "{written:?}");
    }
    for (name, call) in calls {
        let (result, error) = call.join().unwrap();
        // poll(2) is never restarted, and the thread of an unmarked call may get signals.
        let interrupted = error.kind() == std::io::ErrorKind::Interrupted;
        let excused = name == "unmarked_poll" && result == -1 && interrupted;
        assert!(result == 1 || excused, "{name}: {result}, {error}");
        println!("{name} came to its end");
    }
}
