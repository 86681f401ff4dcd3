//! I/O beside goroutines that keep every P busy, for the suites `net_under_load` and `net_tcp` and
//! for the bench `limits`.
//!
//! The first argument is the mode, the second the number of requests. The program checks that all
//! requests are served, and prints their durations as `name number` pairs. Only the bench checks
//! the numbers.

use gosched::net::{TcpListener, TcpStream, UnixDatagram, UnixStream};
use gosched::{chan, go, runtime, yield_now};
use gosched_tests::actors::ACTOR_KINDS;
use gosched_tests::sockets::{
    LOCAL, cpu_time, echo, set_descriptor_limit, start, tcp_pair, unique_name,
};
use gosched_tests::wait::{settle, until};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const MILLI: Duration = Duration::from_millis(1);
static OVER: AtomicBool = AtomicBool::new(false);

fn is_over() -> bool {
    OVER.load(Relaxed)
}

#[gosched::main(alloc = off)]
fn main() {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().expect("a mode");
    let requests = arguments.next().map_or(0, |text| text.parse().expect("a number of requests"));
    match mode.as_str() {
        "loops" => beside(loops, requests),
        "loops, client inside" => beside_a_client_inside(loops, requests),
        "yields" => beside(yields, requests),
        "channels" => beside(channels, requests),
        "sockets" => beside(|| drop(sockets()), requests),
        "sockets, and a timer" => others_beside_sockets(),
        "threads that ask" => threads_that_ask(requests),
        "no descriptors" => no_descriptors(),
        "no room" => no_room(),
        mode => panic!("no mode {mode}"),
    }
}

/// Starts one endless loop without calls for each P.
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

/// Starts pairs of goroutines that make each other ready.
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

/// Number of pairs of goroutines that [`sockets`] starts.
const PAIRS: u64 = 4;

/// Starts such pairs that communicate over sockets. Returns a counter of the rounds of all pairs
/// together.
fn sockets() -> Arc<AtomicU64> {
    let rounds = Arc::new(AtomicU64::new(0));
    for _ in 0..PAIRS {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        go(move || {
            let mut byte = [0];
            while far.read_exact(&mut byte).is_ok() {
                far.write_all(&byte).unwrap();
            }
        });
        let rounds = rounds.clone();
        go(move || {
            while !is_over() {
                near.write_all(b"x").unwrap();
                near.read_exact(&mut [0]).unwrap();
                rounds.fetch_add(1, Relaxed);
            }
        });
    }
    rounds
}

/// Sends requests, checks each response, and prints how long they took, in microseconds.
fn request(mut stream: impl Read + Write, requests: usize, pause: impl Fn()) {
    let mut times: Vec<Duration> = (0..requests)
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
    let at = |share: usize| times[(times.len() - 1) * share / 100].as_micros();
    println!("requests {} p50 {} p99 {} most {}", times.len(), at(50), at(99), at(100));
}

/// Starts an OS thread that sends the requests.
fn request_by_a_thread(address: SocketAddr, requests: usize) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        request(stream, requests, || std::thread::sleep(MILLI));
    })
}

/// A goroutine serves echoes to an OS thread, beside the goroutines that `others` starts.
fn beside(others: fn(), requests: usize) {
    let listener = TcpListener::bind(LOCAL).unwrap();
    let address = listener.local_addr().unwrap();
    let server = go(move || echo(&listener.accept().unwrap().0));
    others();
    let client = request_by_a_thread(address, requests);
    // The server waits for I/O, and the end of the connection makes it ready.
    server.join().unwrap();
    client.join().unwrap();
    OVER.store(true, Relaxed);
}

/// A goroutine serves echoes to a goroutine, beside the goroutines that `others` starts.
fn beside_a_client_inside(others: fn(), requests: usize) {
    let listener = TcpListener::bind(LOCAL).unwrap();
    let address = listener.local_addr().unwrap();
    let server = go(move || echo(&listener.accept().unwrap().0));
    others();
    let stream = TcpStream::connect(address).unwrap();
    request(stream, requests, || gosched::time::sleep(MILLI));
    server.join().unwrap();
}

/// The control of the modes above: as many OS threads as there are Ps serve echoes. They never
/// sleep, and poll their socket in a loop. Whatever delays such a thread delays a busy M too.
fn threads_that_ask(requests: usize) {
    let listener = std::net::TcpListener::bind(LOCAL).unwrap();
    let client = request_by_a_thread(listener.local_addr().unwrap(), requests);
    let stream = Arc::new(listener.accept().unwrap().0);
    stream.set_nodelay(true).unwrap();
    stream.set_nonblocking(true).unwrap();
    for _ in 0..runtime::procs() {
        let stream = stream.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 64];
            loop {
                match (&*stream).read(&mut bytes) {
                    Ok(0) => return,
                    // There is one request at a time, and it arrives in one piece.
                    Ok(count) => (&*stream).write_all(&bytes[..count]).unwrap(),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
        });
    }
    client.join().unwrap();
}

/// Goroutines that are not made ready by I/O make progress too: a goroutine that sleeps, and a
/// goroutine that yields.
fn others_beside_sockets() {
    const SLEEPS: u32 = 50;
    const YIELDS: u64 = 50;
    let rounds = sockets();
    let yields = Arc::new(AtomicU64::new(0));
    let its = yields.clone();
    go(move || {
        while !is_over() {
            its.fetch_add(1, Relaxed);
            yield_now();
        }
    });
    let control = std::thread::spawn(|| {
        let start = Instant::now();
        (0..SLEEPS).for_each(|_| std::thread::sleep(MILLI));
        start.elapsed().as_micros()
    });
    let before = (rounds.load(Relaxed), yields.load(Relaxed));
    let start = Instant::now();
    (0..SLEEPS).for_each(|_| gosched::time::sleep(MILLI));
    let took = start.elapsed().as_micros();
    let after = (rounds.load(Relaxed), yields.load(Relaxed));
    until("the one that yields gets on", || yields.load(Relaxed) > YIELDS);
    OVER.store(true, Relaxed);
    println!("sleeps {took} of-a-thread {}", control.join().unwrap());
    println!("yields {} rounds {}", after.1 - before.1, (after.0 - before.0) / PAIRS);
}

/// Returns the CPU time, in microseconds, that this process uses during `time`.
fn used_in(time: Duration) -> u128 {
    let before = cpu_time();
    gosched::time::sleep(time);
    (cpu_time() - before).as_micros()
}

/// Connections wait, but there are no descriptors for them. Prints the CPU time that the listener
/// uses meanwhile, and the CPU time of an OS thread that retries every 5 ms.
fn no_descriptors() {
    const WHILE: Duration = Duration::from_millis(300);
    let listener = TcpListener::bind(LOCAL).unwrap();
    let address = listener.local_addr().unwrap();
    let (near, far) = tcp_pair();
    // Makes the runtime open the descriptors that it needs to wait for I/O.
    near.set_read_timeout(Some(MILLI)).unwrap();
    for _ in 0..10 {
        assert_eq!((&near).read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
    drop((near, far));
    let client = TcpStream::connect(address).unwrap();
    let plain = std::net::TcpListener::bind(LOCAL).unwrap();
    plain.set_nonblocking(true).unwrap();
    set_descriptor_limit(64);
    let mut all = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        all.push(file);
    }
    let server = go(move || {
        let mut failures = 0u64;
        loop {
            match listener.accept() {
                Ok((mut far, _)) => {
                    far.write_all(b"in").unwrap();
                    return failures;
                }
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{error}");
                    failures += 1;
                }
            }
        }
    });
    settle();
    let used = used_in(WHILE);
    assert!(!server.is_finished(), "a connection without a descriptor");
    let retries = std::thread::spawn(move || {
        let end = Instant::now() + WHILE;
        while Instant::now() < end {
            plain.accept().unwrap_err();
            std::thread::sleep(5 * MILLI);
        }
    });
    let control = used_in(WHILE);
    retries.join().unwrap();
    all.truncate(all.len() - 4);
    let mut text = String::new();
    (&client).read_to_string(&mut text).unwrap();
    assert_eq!(text, "in");
    println!("used {used} of-a-thread {control} failures {}", server.join().unwrap());
}

/// Datagrams wait for room at a socket that is not read. After each failed send, the system reports
/// that there is room again. Prints the CPU time that a sending goroutine and a sending thread use
/// meanwhile, and the CPU time while a thread's send blocks in the kernel.
fn no_room() {
    const WHILE: Duration = Duration::from_millis(300);
    let path = std::env::temp_dir().join(unique_name());
    let slow = UnixDatagram::bind(&path).unwrap();
    let full = std::os::unix::net::UnixDatagram::unbound().unwrap();
    full.set_nonblocking(true).unwrap();
    while full.send_to(b"full", &path).is_ok() {}
    full.set_nonblocking(false).unwrap();
    let its_path = path.clone();
    let blocks = std::thread::spawn(move || full.send_to(b"hello", its_path).unwrap());
    settle();
    let control = used_in(WHILE);
    let senders = ACTOR_KINDS.map(|kind| {
        let path = path.clone();
        start(kind, move || UnixDatagram::unbound().unwrap().send_to(b"hello", path).unwrap())
    });
    settle();
    let used = used_in(WHILE);
    assert!(senders.iter().all(|sender| !sender.is_done()));
    let mut bytes = [0; 9];
    let mut left = 3;
    while left > 0 {
        left -= usize::from(slow.recv(&mut bytes).unwrap() == 5);
    }
    assert_eq!(senders.map(|sender| sender.join()), [5, 5]);
    assert_eq!(blocks.join().unwrap(), 5);
    std::fs::remove_file(&path).unwrap();
    println!("used {used} of-a-thread {control}");
}
