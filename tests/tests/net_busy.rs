//! Who is made ready by I/O is served although all Ps are busy: with loops that never yield, with goroutines that
//! yield all the time, with channels. Each case is a process of its own.

use gosched::net::{TcpListener, TcpStream, UnixStream};
use gosched::{chan, go, runtime, yield_now};
use gosched_tests::children;
use gosched_tests::sockets::{LOCAL, echo};
use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const MILLI: Duration = Duration::from_millis(1);
const REQUESTS: usize = if cfg!(debug_assertions) { 60 } else { 200 };
static OVER: AtomicBool = AtomicBool::new(false);

fn is_over() -> bool {
    OVER.load(Relaxed)
}

/// What a child is to do.
#[test]
fn child() {
    let Some(scenario) = children::scenario() else { return };
    gosched::run(move || match scenario.as_str() {
        "loops" => beside(loops),
        "loops, client inside" => beside_a_client_inside(loops),
        "yields" => beside(yields),
        "channels" => beside(channels),
        "sockets" => beside(sockets),
        "sockets, and a timer" => others_beside_sockets(),
        other => panic!("no scenario {other}"),
    });
}

/// One for each P, without an end and without a call.
fn loops() {
    for _ in 0..runtime::procs() {
        go(|| {
            let mut u: u64 = std::hint::black_box(1 << 40);
            while u != 1 {
                u = u.wrapping_sub(2);
            }
            println!("it was one");
        });
    }
}

fn yields() {
    for _ in 0..8 {
        go(|| {
            while !is_over() {
                yield_now();
            }
        });
    }
}

/// Pairs of which each always makes the other ready.
fn channels() {
    for _ in 0..4 {
        let ((ping, pinged), (pong, ponged)) = (chan::<u32>(0), chan::<u32>(0));
        go(move || while pinged.recv().is_ok_and(|x| pong.send(x).is_ok()) {});
        go(move || {
            while !is_over() {
                ping.send(1).unwrap();
                ponged.recv().unwrap();
            }
        });
    }
}

/// As these, by sockets.
fn sockets() {
    for _ in 0..4 {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        go(move || {
            let mut byte = [0];
            while far.read_exact(&mut byte).is_ok() {
                far.write_all(&byte).unwrap();
            }
        });
        go(move || {
            while !is_over() {
                near.write_all(b"x").unwrap();
                near.read_exact(&mut [0]).unwrap();
            }
        });
    }
}

/// Requests of a client: how long each took.
fn requests(mut stream: impl Read + Write, pause: impl Fn()) -> Vec<Duration> {
    let mut times: Vec<Duration> = (0..REQUESTS)
        .map(|i| {
            pause();
            let start = Instant::now();
            stream.write_all(&[i as u8; 64]).unwrap();
            let mut back = [0; 64];
            stream.read_exact(&mut back).unwrap();
            assert_eq!(back, [i as u8; 64]);
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times
}

fn print(times: &[Duration]) {
    let at = |share: usize| times[(times.len() - 1) * share / 100].as_micros();
    println!("requests {} p50 {} p99 {} most {}", times.len(), at(50), at(99), at(100));
}

/// An echo for an ordinary thread.
fn beside(others: fn()) {
    let listener = TcpListener::bind(LOCAL).unwrap();
    let address = listener.local_addr().unwrap();
    let server = go(move || echo(&listener.accept().unwrap().0));
    others();
    let client = std::thread::spawn(move || {
        let stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        requests(stream, || std::thread::sleep(MILLI))
    });
    // It waits for I/O, and is woken by the end of the connection.
    server.join().unwrap();
    print(&client.join().unwrap());
    OVER.store(true, Relaxed);
}

/// An echo for a goroutine.
fn beside_a_client_inside(others: fn()) {
    let listener = TcpListener::bind(LOCAL).unwrap();
    let address = listener.local_addr().unwrap();
    let server = go(move || echo(&listener.accept().unwrap().0));
    others();
    let stream = TcpStream::connect(address).unwrap();
    print(&requests(stream, || gosched::time::sleep(MILLI)));
    server.join().unwrap();
}

/// Who is not made ready by I/O gets on too.
fn others_beside_sockets() {
    sockets();
    let count = Arc::new(AtomicU64::new(0));
    let its = count.clone();
    go(move || {
        while !is_over() {
            its.fetch_add(1, Relaxed);
            yield_now();
        }
    });
    let start = Instant::now();
    for _ in 0..50 {
        gosched::time::sleep(MILLI);
    }
    OVER.store(true, Relaxed);
    println!("sleeps {} yields {}", start.elapsed().as_millis(), count.load(Relaxed));
}

struct Said(String);

impl Said {
    fn number(&self, word: &str) -> u64 {
        let mut words = self.0.split_whitespace().skip_while(|&found| found != word).skip(1);
        let number = words.next().and_then(|number| number.parse().ok());
        number.unwrap_or_else(|| panic!("no `{word}`: {}", self.0))
    }
}

/// What a child says, which has nothing of this suite beside it. `procs` 0: as many as there are CPUs.
fn run(scenario: &str, procs: usize) -> Said {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = children::command(scenario);
    let procs = if procs == 0 { runtime::num_cpu() } else { procs };
    command.env("GOMAXPROCS", procs.to_string()).stdin(Stdio::null());
    let output = command.output().unwrap();
    drop(alone);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = children::stderr(&output);
    assert!(output.status.success(), "{scenario}, {procs} Ps: {:?}: {text}{error}", output.status);
    println!("{scenario}, {procs} Ps: {text}");
    Said(text)
}

/// For what depends on time: a machine that is busy with other things may spoil it a few times.
fn at_best(scenario: &str, procs: usize, is_right: impl Fn(&Said) -> bool) {
    let mut seen = Vec::new();
    while seen.len() < 4 {
        let said = run(scenario, procs);
        if is_right(&said) {
            return;
        }
        seen.push(said.0);
    }
    panic!("{scenario}: never: {seen:#?}");
}

/// In a debug build, and where threads share the CPUs as the system likes, only that all are served.
fn is_prompt(said: &Said, micros: u64) -> bool {
    let measured = cfg!(not(any(debug_assertions, feature = "threads")));
    said.number("requests") == REQUESTS as u64 && (!measured || said.number("p50") <= micros)
}

#[test]
fn an_echo_is_prompt_beside_loops_that_never_yield() {
    for procs in [1, 0] {
        at_best("loops", procs, |said| is_prompt(said, 500));
    }
}

#[test]
fn an_echo_to_a_goroutine_is_prompt_beside_loops_that_never_yield() {
    for procs in [1, 0] {
        at_best("loops, client inside", procs, |said| is_prompt(said, 1000));
    }
}

#[test]
fn an_echo_is_served_beside_goroutines_that_yield_all_the_time() {
    at_best("yields", 1, |said| is_prompt(said, 500));
}

#[test]
fn an_echo_is_served_beside_channels_that_are_never_empty() {
    // Those who make each other ready share a slice.
    at_best("channels", 1, |said| is_prompt(said, 15_000));
}

#[test]
fn an_echo_is_served_beside_sockets_that_are_never_idle() {
    at_best("sockets", 1, |said| is_prompt(said, 500));
}

#[test]
fn timers_and_goroutines_that_yield_get_on_beside_sockets_that_are_never_idle() {
    at_best("sockets, and a timer", 1, |said| {
        said.number("sleeps") < 1000 && said.number("yields") > 50
    });
}
