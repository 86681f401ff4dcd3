//! Two HTTP servers that say hello, with one goroutine per connection. `http` is a minimal server:
//! plain reads and writes, and httparse. `http_hyper`, which is not part of the suite, uses hyper.
//!
//! The minimal server sends the same answer to every request. It keeps connections open as HTTP/1.0
//! and 1.1 specify, accepts several requests at once, and skips bodies of a known length. Without
//! `--n`, a server runs until it is killed. With `--n`, clients in the same process send `n`
//! requests, so that the server can be tried without another program.

use crate::common::{Measured, timed};
use crate::join;
use crate::tcp::{LATENCIES, Server};
use gosched::hyper::Stream;
use gosched::net::TcpStream;
use gosched::{go, runtime};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, header};
use std::io::{self, Read, Write};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The body of every answer.
const BODY: &str = "Hello, World!";
/// Maximum number of headers of a request. A request with more headers is refused.
const HEADERS: usize = 32;
/// Maximum size of the head of a request, in bytes. A request with a larger head is refused.
const HEAD: usize = 16 << 10;
/// Number of clients that send requests with `--n`.
const CLIENTS: u64 = 64;

/// Runs the minimal server for `n` requests, or until the process is killed if `n` is 0.
pub(crate) fn hello(n: u64) -> Measured {
    run(n, serve, "minimal: a goroutine a connection, httparse, gosched::net")
}

/// Like [`hello`], with hyper, as in tokio's peer.
pub(crate) fn hyper_hello(n: u64) -> Measured {
    run(n, hyper_serve, "hyper 1 http1, a goroutine a connection, gosched::hyper")
}

fn run(n: u64, serve: fn(TcpStream) -> io::Result<()>, how: &'static str) -> Measured {
    let server = Server::start(serve).expect("a port");
    let (port, procs) = (server.address.port(), runtime::procs());
    println!(r#"{{"ready":{port},"how":"{how}","procs":{procs}}}"#);
    if n == 0 {
        loop {
            gosched::park();
        }
    }
    let client = |mut stream: TcpStream| go(move || asks(&mut stream, n / CLIENTS));
    let streams: Vec<_> = (0..CLIENTS).map(|_| server.connect().expect("a connection")).collect();
    let (delays, wall) = timed(|| {
        let clients: Vec<_> = streams.into_iter().map(client).collect();
        clients.into_iter().map(|client| join(client).expect("answers")).collect::<Vec<_>>()
    });
    let delays = delays.concat();
    let right = delays.len() as u64;
    Measured::new(right, (right, wall))
        .and("req_per_s", right as f64 / wall.as_secs_f64())
        .delays(LATENCIES, delays)
        .with("how", how)
}

/// Returns the number of requests that the clients in this process send.
pub(crate) fn requests_of(n: u64) -> u64 {
    n / CLIENTS * CLIENTS
}

/// Sends requests one after another. Returns how long each request took.
fn asks(stream: &mut TcpStream, requests: u64) -> io::Result<Vec<std::time::Duration>> {
    let (mut delays, mut answer) = (Vec::new(), [0; 1024]);
    for _ in 0..requests {
        let start = Instant::now();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut length = 0;
        while !answer[..length].ends_with(BODY.as_bytes()) {
            match stream.read(&mut answer[length..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => length += read,
            }
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "the answer is not a `200 OK`");
        delays.push(start.elapsed());
    }
    Ok(delays)
}

/// Serves one connection with hyper.
fn hyper_serve(stream: TcpStream) -> io::Result<()> {
    let service = service_fn(|_: Request<Incoming>| async {
        let body = Full::new(Bytes::from_static(BODY.as_bytes()));
        Response::builder().header(header::CONTENT_TYPE, "text/plain").body(body)
    });
    let connection = http1::Builder::new().serve_connection(Stream::new(stream), service);
    gosched::block_on(connection).map_err(io::Error::other)
}

/// The result of parsing a request.
enum Asked {
    /// A head of `head` bytes, followed by a body of `body` bytes. `keep` is whether the connection
    /// stays open.
    Hello { head: usize, body: usize, keep: bool },
    /// The head is incomplete.
    Part,
    /// The request is invalid or not supported.
    Nonsense,
}

/// Serves one connection until its end.
fn serve(mut stream: TcpStream) -> io::Result<()> {
    let (mut input, mut held) = (vec![0; HEAD], 0);
    let (mut output, mut date) = (Vec::new(), Date::default());
    let mut skip = 0;
    loop {
        let read = stream.read(&mut input[held..])?;
        if read == 0 {
            return Ok(());
        }
        held += read;
        let (mut at, mut keep) = (0, true);
        while keep && at < held {
            let skipped = skip.min(held - at);
            (at, skip) = (at + skipped, skip - skipped);
            match parse(&input[at..held]) {
                Asked::Hello { head, body, keep: kept } => {
                    (at, skip, keep) = (at + head, body, kept);
                    respond(&mut output, date.now(), keep)?;
                }
                Asked::Part if held - at < HEAD => break,
                _ => {
                    keep = false;
                    output.extend_from_slice(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n");
                    output.extend_from_slice(b"Connection: close\r\n\r\n");
                }
            }
        }
        stream.write_all(&output)?;
        output.clear();
        if !keep {
            return stream.shutdown(std::net::Shutdown::Write);
        }
        input.copy_within(at..held, 0);
        held -= at;
    }
}

fn parse(input: &[u8]) -> Asked {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let head = match request.parse(input) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) => return Asked::Part,
        Err(_) => return Asked::Nonsense,
    };
    let (mut body, mut keep) = (0, request.version == Some(1));
    for header in request.headers.iter() {
        let value = header.value;
        if header.name.eq_ignore_ascii_case("content-length") {
            match str::from_utf8(value).ok().and_then(|digits| digits.parse().ok()) {
                Some(length) => body = length,
                None => return Asked::Nonsense,
            }
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            return Asked::Nonsense;
        } else if header.name.eq_ignore_ascii_case("connection") {
            keep = match value {
                value if value.eq_ignore_ascii_case(b"close") => false,
                value if value.eq_ignore_ascii_case(b"keep-alive") => true,
                _ => keep,
            };
        }
    }
    Asked::Hello { head, body, keep }
}

fn respond(output: &mut Vec<u8>, date: &str, keep: bool) -> io::Result<()> {
    let connection = if keep { "" } else { "Connection: close\r\n" };
    write!(
        output,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nDate: {date}\r\n{connection}\r\n{BODY}",
        BODY.len()
    )
}

/// The time in HTTP's format, computed again each second.
#[derive(Default)]
struct Date {
    second: u64,
    text: String,
}

impl Date {
    fn now(&mut self) -> &str {
        let second = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        if self.second != second || self.text.is_empty() {
            (self.second, self.text) = (second, text_of(second));
        }
        &self.text
    }
}

/// Returns the time in HTTP's format, `Sun, 06 Nov 1994 08:49:37 GMT`, from seconds since 1970.
fn text_of(second: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [(&str, u64); 12] = [
        ("Jan", 31),
        ("Feb", 28),
        ("Mar", 31),
        ("Apr", 30),
        ("May", 31),
        ("Jun", 30),
        ("Jul", 31),
        ("Aug", 31),
        ("Sep", 30),
        ("Oct", 31),
        ("Nov", 30),
        ("Dec", 31),
    ];
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (days, rest) = (second / 86_400, second % 86_400);
    let weekday = DAYS[(days % 7) as usize];
    let (mut year, mut day) = (1970, days);
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 0;
    while day >= MONTHS[month].1 + u64::from(month == 1 && leap(year)) {
        day -= MONTHS[month].1 + u64::from(month == 1 && leap(year));
        month += 1;
    }
    let (day, name) = (day + 1, MONTHS[month].0);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{weekday}, {day:02} {name} {year} {hour:02}:{minute:02}:{second:02} GMT")
}
