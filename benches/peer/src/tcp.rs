//! Workloads over TCP, with the server and its clients in one process, over loopback.
//!
//! Two of the workloads are not part of the suite:
//!
//! - `tcp_busy`: `n` tasks per P compute without a call. A client on an ordinary thread sends
//!   requests to a server among these tasks, at most one per millisecond, for [`WINDOW`]. `lat_*`
//!   is how long the client waits for its answers.
//! - `tcp_idle`: `n` connections are idle after one request, and a goroutine waits on each.
//!   `threads` and `rss_per_conn` show what that costs. The clients run in another process, so that
//!   no process has both ends of the connections.

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

/// Size of a request, and of its answer, in bytes.
const MESSAGE: usize = 64;
/// How long the client of `tcp_busy` runs.
const WINDOW: Duration = Duration::from_secs(3);
/// Pause of the client of `tcp_busy` between two requests.
const PAUSE: Duration = Duration::from_millis(1);
/// How long the client of `tcp_busy` waits for an answer before it gives up.
const STARVED: Duration = Duration::from_secs(2);
/// First argument of the process that runs the clients of `tcp_idle`.
pub(crate) const CLIENTS: &str = "clients-of-tcp-idle";
/// Names of the latencies in the results.
pub(crate) const LATENCIES: [&str; 3] = ["lat_p50_us", "lat_p99_us", "lat_max_us"];

/// A server with a goroutine for each connection. Dropping it closes the listener.
pub(crate) struct Server {
    listener: Arc<TcpListener>,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts a server that calls `serve` with each connection.
    pub(crate) fn start(serve: fn(TcpStream) -> io::Result<()>) -> io::Result<Server> {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0")?);
        let address = listener.local_addr()?;
        let accepting = listener.clone();
        go(move || {
            while let Ok((stream, _)) = accepting.accept() {
                // `serve` fails when the client disconnects, which is the normal end.
                go(move || stream.set_nodelay(true).and_then(|()| serve(stream)));
            }
        });
        Ok(Server { listener, address })
    }

    /// Connects a client to the server.
    pub(crate) fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only if the listener is already closed.
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

/// Sends `request` and reads the answer. Returns whether the answer is correct.
fn ask(stream: &mut (impl Read + Write), request: &[u8; MESSAGE]) -> io::Result<bool> {
    let mut answer = [0; MESSAGE];
    stream.write_all(request)?;
    stream.read_exact(&mut answer)?;
    Ok(answer == *request)
}

/// Sends `n` requests from `clients` clients.
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
                assert!(right, "the answer differs from the request");
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

/// Runs a server beside `each` hogs per P.
pub(crate) fn busy(each: u64) -> Measured {
    let server = Server::start(answer).expect("a port");
    let address = server.address;
    let hogs = Hogs::start(each * runtime::procs() as u64);
    // The client is an ordinary thread, so it waits only for the server, not for a P.
    let client = std::thread::spawn(move || impatient(address));
    let delays = gosched::blocking(|| client.join().expect("no panic")).expect("a connection");
    hogs.stop();
    let (answers, starved) = (delays.len() as u64, delays.iter().any(|delay| *delay >= STARVED));
    let wall = delays.iter().sum();
    Measured::new(answers, (each, wall)).is("starved", starved).delays(LATENCIES, delays)
}

/// Sends requests. Returns how long each request took. Stops after a request without an answer.
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
            Ok(right) => assert!(right, "the answer differs from the request"),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => break,
            Err(why) => return Err(why),
        }
        std::thread::sleep(PAUSE);
    }
    Ok(delays)
}

/// Opens `n` connections that are idle after one request.
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
    // Threads that are no longer needed go to sleep meanwhile.
    time::sleep(SETTLE);
    let (threads, memory) = (threads(), common::resident());
    // The client process exits when its input ends.
    drop(clients.stdin.take());
    gosched::blocking(|| clients.wait()).expect("its end");
    Measured::new(n, (right.trim().parse().unwrap_or(0), wall))
        .and("threads", threads as f64)
        .and("rss_kb", memory as f64 / 1024.0)
        .and("rss_per_conn", memory.saturating_sub(before) as f64 / n as f64)
}

/// Runs the clients of `tcp_idle`, in a process of their own. The arguments are an address and the
/// number of clients. Prints how many clients got a correct answer, and keeps the connections open
/// until the input ends.
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

/// Raises the limit on open descriptors to the maximum that the system allows.
fn allow_descriptors() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0 {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: `limit` is valid for reads. If the call fails, `connect` reports that descriptors
        // are missing.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    }
}
