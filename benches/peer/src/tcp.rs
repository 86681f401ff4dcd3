//! The workloads over TCP: server and clients in the one process, over loopback.
//!
//! Two of them are no part of the suite. `tcp_busy`: `n` tasks per P compute without a call, and a
//! client that is an ordinary thread asks a server among them, at most once a millisecond for
//! [`WINDOW`]; `lat_*` is what it waited. `tcp_idle`: `n` connections with nothing more to say after one
//! request, and a goroutine that waits for each; `threads` and `rss_per_conn` say what that takes. Its
//! clients are another process, so that one process need not have both ends.

use crate::common::{self, Measured, SETTLE, threads, timed};
use crate::join;
use crate::preempt::Hogs;
use gosched::net::{TcpListener, TcpStream};
use gosched::{go, runtime, time};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a request, and of its answer.
const MESSAGE: usize = 64;
/// How long the client of `tcp_busy` goes on.
const WINDOW: Duration = Duration::from_secs(3);
/// How long it thinks between two requests.
const PAUSE: Duration = Duration::from_millis(1);
/// No answer for so long: there will be none.
const STARVED: Duration = Duration::from_secs(2);
/// What the process with the clients of `tcp_idle` is called by.
pub(crate) const CLIENTS: &str = "clients-of-tcp-idle";
/// The names of what a request takes.
pub(crate) const LATENCIES: [&str; 3] = ["lat_p50_us", "lat_p99_us", "lat_max_us"];

/// A server with a goroutine for each connection, until it is dropped.
pub(crate) struct Server {
    listener: Arc<TcpListener>,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// `serve` is what is done with each connection.
    pub(crate) fn start(serve: fn(TcpStream) -> io::Result<()>) -> io::Result<Server> {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0")?);
        let address = listener.local_addr()?;
        let accepting = listener.clone();
        go(move || {
            while let Ok((stream, _)) = accepting.accept() {
                // Fails when its client goes away, which is how it ends.
                go(move || stream.set_nodelay(true).and_then(|()| serve(stream)));
            }
        });
        Ok(Server { listener, address })
    }

    /// A client's end.
    pub(crate) fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // That it is closed already would be as well.
        let _ = self.listener.close();
    }
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    let mut message = [0; MESSAGE];
    loop {
        stream.read_exact(&mut message)?;
        stream.write_all(&message)?;
    }
}

/// Sends `request` and takes the answer: whether that is right.
fn ask(stream: &mut (impl Read + Write), request: &[u8; MESSAGE]) -> io::Result<bool> {
    let mut answer = [0; MESSAGE];
    stream.write_all(request)?;
    stream.read_exact(&mut answer)?;
    Ok(answer == *request)
}

/// `n` requests from so many clients.
pub(crate) fn echo(n: u64, clients: u64) -> Measured {
    let server = Server::start(answer).expect("a port");
    let streams: Vec<_> = (0..clients).map(|_| server.connect().expect("a connection")).collect();
    let each = n / clients;
    let client = move |(id, mut stream): (u64, TcpStream)| {
        go(move || {
            let mut delays = Vec::with_capacity(each as usize);
            let mut request = [id as u8; MESSAGE];
            for i in 0..each {
                request[0] = i as u8;
                let start = Instant::now();
                let right = ask(&mut stream, &request).expect("an answer");
                delays.push(start.elapsed());
                assert!(right, "an answer that is not the request");
            }
            delays
        })
    };
    let (delays, wall) = timed(|| {
        let clients: Vec<_> = (0..).zip(streams).map(client).collect();
        clients.into_iter().map(join).collect::<Vec<_>>()
    });
    let delays = delays.concat();
    let right = delays.len() as u64;
    Measured::new(right, (right, wall))
        .and("req_per_s", right as f64 / wall.as_secs_f64())
        .delays(LATENCIES, delays)
}

/// Beside `each` hogs per P.
pub(crate) fn busy(each: u64) -> Measured {
    let server = Server::start(answer).expect("a port");
    let address = server.address;
    let hogs = Hogs::start(each * runtime::procs() as u64);
    // An ordinary thread: what it waits for is the server alone.
    let client = std::thread::spawn(move || impatient(address));
    let delays = gosched::blocking(|| client.join().expect("no panic")).expect("a connection");
    hogs.stop();
    let (answers, starved) = (delays.len() as u64, delays.iter().any(|delay| *delay >= STARVED));
    let wall = delays.iter().sum();
    Measured::new(answers, (each, wall)).is("starved", starved).delays(LATENCIES, delays)
}

/// What each request took; after one without an answer there are no more.
fn impatient(address: SocketAddr) -> io::Result<Vec<Duration>> {
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STARVED))?;
    let (begin, mut delays) = (Instant::now(), Vec::new());
    while begin.elapsed() < WINDOW {
        let start = Instant::now();
        let asked = ask(&mut stream, &[delays.len() as u8; MESSAGE]);
        delays.push(start.elapsed());
        match asked {
            Ok(right) => assert!(right, "an answer that is not the request"),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => break,
            Err(why) => return Err(why),
        }
        std::thread::sleep(PAUSE);
    }
    Ok(delays)
}

/// `n` connections that wait.
pub(crate) fn idle(n: u64) -> Measured {
    allow_descriptors();
    let server = Server::start(answer).expect("a port");
    let (before, start) = (common::resident(), Instant::now());
    let mut clients = Command::new(std::env::current_exe().expect("this program"))
        .args([CLIENTS, &server.address.to_string(), &n.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut right = String::new();
    let said = clients.stdout.take().expect("a pipe");
    gosched::blocking(|| BufReader::new(said).read_line(&mut right)).expect("a line");
    let wall = start.elapsed();
    // Threads that had to help go to sleep.
    time::sleep(SETTLE);
    let (threads, memory) = (threads(), common::resident());
    // It ends with its input.
    drop(clients.stdin.take());
    gosched::blocking(|| clients.wait()).expect("its end");
    Measured::new(n, (right.trim().parse().unwrap_or(0), wall))
        .and("threads", threads as f64)
        .and("rss_kb", memory as f64 / 1024.0)
        .and("rss_per_conn", memory.saturating_sub(before) as f64 / n as f64)
}

/// The process with the clients of `tcp_idle`: given an address and how many, it says how many were
/// answered, and keeps them until its input ends.
pub(crate) fn idle_clients(mut words: impl Iterator<Item = String>) -> io::Result<()> {
    allow_descriptors();
    let address: SocketAddr = words.next().and_then(|word| word.parse().ok()).expect("an address");
    let n: u64 = words.next().and_then(|word| word.parse().ok()).expect("a number");
    let (mut streams, mut right) = (Vec::new(), 0);
    for i in 0..n {
        let mut stream = std::net::TcpStream::connect(address)?;
        right += u64::from(ask(&mut stream, &[i as u8; MESSAGE])?);
        streams.push(stream);
    }
    println!("{right}");
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

/// As many descriptors as the process may have.
fn allow_descriptors() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0 {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: `limit` is valid for reads. If it fails, `connect` says what is missing.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    }
}
