//! Tests of the example `reverse_proxy`, with plain clients, and backends that are up, down, or
//! vanish.

use gosched_examples::{Program, wait_until};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::{io, thread};

fn start(backends: &[String]) -> Program {
    Program::start(env!("CARGO_BIN_EXE_reverse_proxy"), backends)
}

/// Starts a backend that calls `serve` with every connection. Returns its address.
fn backend(serve: impl Fn(TcpStream) + Copy + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || serve(stream.unwrap()));
        }
    });
    address
}

/// Returns an address without a listener, on an IP address where no other test gets a port.
fn unused_address() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = std::process::id().wrapping_mul(1009).wrapping_add(NEXT.fetch_add(1, Relaxed));
    let octet = |divisor: u32| 1 + (number / divisor % 254) as u8;
    let host = Ipv4Addr::new(127, octet(254 * 254), octet(254), octet(1));
    TcpListener::bind((host, 0)).unwrap().local_addr().unwrap().to_string()
}

/// Starts a backend that answers each request of a connection with `name`.
fn named(name: &'static str) -> String {
    backend(move |stream| {
        let mut lines = BufReader::new(&stream).lines();
        while let Some(Ok(line)) = lines.next() {
            if line.is_empty() {
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{name}");
                (&stream).write_all(answer.as_bytes()).unwrap();
            }
        }
    })
}

/// Sends a request on `stream`. Returns the status, and the body of one byte if there is one.
fn get(stream: &mut BufReader<TcpStream>) -> io::Result<(String, Option<char>)> {
    stream.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: there\r\n\r\n")?;
    let (mut status, mut line, mut body) = (String::new(), String::new(), [0]);
    stream.read_line(&mut status)?;
    let mut empty = false;
    while line != "\r\n" {
        line.clear();
        assert_ne!(stream.read_line(&mut line)?, 0, "the answer is truncated");
        empty |= line == "Content-Length: 0\r\n";
    }
    if !empty {
        stream.read_exact(&mut body)?;
    }
    Ok((status.trim_end().to_owned(), (!empty).then_some(body[0] as char)))
}

/// The proxy also skips a backend that is too slow, so on a slow machine the test retries.
#[test]
fn backends_are_used_in_turn_and_a_backend_that_is_down_is_skipped() {
    wait_until(|| {
        let program = start(&[named("a"), unused_address(), named("b")]);
        let mut seen = String::new();
        for _ in 0..6 {
            let mut stream = BufReader::new(program.connect());
            let (status, body) = get(&mut stream).unwrap();
            assert_eq!(status, "HTTP/1.1 200 OK");
            assert_eq!(
                get(&mut stream).unwrap().1,
                body,
                "all requests of a connection go to the same backend"
            );
            seen.extend(body);
        }
        // The second backend is down, so the third one answers in its place.
        println!("{seen}");
        seen == "abbabb"
    });
}

/// The proxy reads for one second what the client still sends. A slower client may miss the answer,
/// so the test retries.
#[test]
fn a_client_gets_a_502_if_all_backends_are_down() {
    let program = start(&[unused_address(), unused_address()]);
    wait_until(|| {
        let mut stream = BufReader::new(program.connect());
        let Ok(answer) = get(&mut stream) else { return false };
        assert_eq!(answer, ("HTTP/1.1 502 Bad Gateway".to_owned(), None));
        let mut rest = Vec::new();
        assert_eq!(stream.read_to_end(&mut rest).unwrap(), 0);
        true
    });
}

#[test]
fn a_client_that_has_shut_down_its_write_side_still_gets_the_answer() {
    // Answers with the number of bytes once the client has sent everything.
    let counts = backend(|mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(format!("{} bytes", all.len()).as_bytes()).unwrap();
    });
    let program = start(&[counts]);
    thread::scope(|scope| {
        for client in 1..20 {
            let mut stream = program.connect();
            scope.spawn(move || {
                stream.write_all(&vec![1; client * 50_000]).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).unwrap();
                assert_eq!(answer, format!("{} bytes", client * 50_000));
            });
        }
    });
}

#[test]
fn if_one_side_closes_the_proxy_closes_the_other_side_and_leaves_no_sockets() {
    // Echoes bytes until the client disconnects or sends `!`.
    let waits = backend(|mut stream| {
        let mut byte = [0];
        while stream.read(&mut byte).is_ok_and(|read| read == 1 && byte[0] != b'!') {
            stream.write_all(&byte).unwrap();
        }
    });
    let program = start(&[waits]);
    let connect = || {
        let mut client = program.connect();
        client.write_all(b"?").unwrap();
        client.read_exact(&mut [0]).unwrap();
        client
    };
    let _first = connect();
    let before = program.sockets();
    let mut clients: Vec<TcpStream> = (0..20).map(|_| connect()).collect();
    assert_eq!(program.sockets(), before + 2 * clients.len());
    // Half of the clients make the backend disconnect and see the end. The rest disconnect
    // themselves.
    for client in clients.iter_mut().step_by(2) {
        client.write_all(b"!").unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    }
    drop(clients);
    wait_until(|| program.sockets() == before);
}
