//! The example `reverse_proxy`, between plain clients and backends that are up, down, or vanish.

use gosched_examples::{Program, wait_until};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

fn start(backends: &[String]) -> Program {
    Program::start(env!("CARGO_BIN_EXE_reverse_proxy"), backends)
}

/// A backend that does `serve` with every connection, and where it is.
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

/// An address where nobody listens.
fn nobody() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// A backend that answers each request of one connection with `name`.
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

/// One request on `stream`: the status, and the body of one byte if there is one.
fn get(stream: &mut BufReader<TcpStream>) -> (String, Option<char>) {
    stream.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: there\r\n\r\n").unwrap();
    let (mut status, mut line, mut body) = (String::new(), String::new(), [0]);
    stream.read_line(&mut status).unwrap();
    let mut empty = false;
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).unwrap();
        empty |= line == "Content-Length: 0\r\n";
    }
    if !empty {
        stream.read_exact(&mut body).unwrap();
    }
    (status.trim_end().to_owned(), (!empty).then_some(body[0] as char))
}

#[test]
fn backends_are_used_in_turn_and_one_that_is_down_is_passed_over() {
    let program = start(&[named("a"), nobody(), named("b")]);
    let mut seen = String::new();
    for _ in 0..6 {
        let mut stream = BufReader::new(program.connect());
        let (status, body) = get(&mut stream);
        assert_eq!(status, "HTTP/1.1 200 OK");
        assert_eq!(get(&mut stream).1, body, "a connection stays where it is");
        seen.extend(body);
    }
    // Where the second is down, the third answers for it.
    assert_eq!(seen, "abbabb");
}

#[test]
fn where_all_are_down_the_client_gets_a_502() {
    let program = start(&[nobody(), nobody()]);
    let mut stream = BufReader::new(program.connect());
    assert_eq!(get(&mut stream), ("HTTP/1.1 502 Bad Gateway".to_owned(), None));
    let mut rest = Vec::new();
    assert_eq!(stream.read_to_end(&mut rest).unwrap(), 0);
}

#[test]
fn who_has_sent_everything_still_gets_the_answer() {
    // Says how much came, once all of it has.
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
fn where_one_side_vanishes_the_other_is_told_and_nothing_is_left() {
    // Ends when the client has gone, or when it is told to.
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
    // These hear that the backend has gone, those just go.
    for client in clients.iter_mut().step_by(2) {
        client.write_all(b"!").unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    }
    drop(clients);
    wait_until(|| program.sockets() == before);
}
