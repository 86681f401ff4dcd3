//! Tests of the example `http_server`, with clients that write requests by hand, also invalid ones.

use gosched_examples::{Program, wait_until};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;

fn start() -> Program {
    Program::start(env!("CARGO_BIN_EXE_http_server"), &[])
}

/// A client that keeps its connection open.
struct Client(BufReader<TcpStream>);

impl Client {
    fn new(program: &Program) -> Client {
        Client(BufReader::new(program.connect()))
    }

    fn sends(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    fn get(&mut self, path: &str) {
        self.sends(&format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n"));
    }

    fn post(&mut self, path: &str, body: &str) {
        let length = body.len();
        self.sends(&format!(
            "POST {path} HTTP/1.1\r\nHost: here\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
    }

    /// Reads the next answer. Returns its status and its body.
    fn answer(&mut self) -> (u16, String) {
        let (mut status, mut length) = (String::new(), 0);
        self.0.read_line(&mut status).unwrap();
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "the answer is truncated");
            let line = line.to_ascii_lowercase();
            match line.strip_prefix("content-length: ") {
                Some(digits) => length = digits.trim_end().parse().unwrap(),
                None if line == "\r\n" => break,
                None => assert!(line.ends_with("\r\n"), "the answer is truncated: {line}"),
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        (status[9..12].parse().unwrap(), String::from_utf8(body).unwrap())
    }
}

#[test]
fn many_clients_each_send_many_requests_on_one_connection() {
    let program = start();
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let mut client = Client::new(&program);
                for _ in 0..20 {
                    client.get("/");
                    assert_eq!(client.answer(), (200, "Hello from a goroutine!\n".into()));
                }
                client.get("/nowhere");
                assert_eq!(client.answer().0, 404);
            });
        }
    });
}

#[test]
fn requests_sent_at_once_are_answered_in_order() {
    let program = start();
    let mut client = Client::new(&program);
    client.sends(&"GET /fib/N HTTP/1.1\r\nHost: here\r\n\r\n".repeat(3).replacen('N', "10", 1));
    let answers: Vec<_> = (0..3).map(|_| client.answer()).collect();
    assert_eq!(answers[0], (200, "55".into()));
    assert_eq!((answers[1].0, answers[2].0), (404, 404));
}

#[test]
fn waiting_clients_do_not_block_other_clients() {
    let program = start();
    let mut waiting: Vec<_> = (0..20).map(|_| Client::new(&program)).collect();
    waiting.iter_mut().for_each(|client| client.get("/queue"));
    let mut client = Client::new(&program);
    for i in 0..waiting.len() {
        client.post("/queue", &format!("body {i:02}"));
        assert_eq!(client.answer().0, 200);
    }
    let mut taken: Vec<_> = waiting.iter_mut().map(|client| client.answer().1).collect();
    taken.sort();
    assert_eq!(taken, (0..waiting.len()).map(|i| format!("body {i:02}")).collect::<Vec<_>>());
}

#[test]
fn other_requests_are_answered_while_some_compute() {
    let program = start();
    let mut slow: Vec<_> = (0..4).map(|_| Client::new(&program)).collect();
    slow.iter_mut().for_each(|client| client.get("/fib/27"));
    let mut client = Client::new(&program);
    client.get("/");
    assert_eq!(client.answer().0, 200);
    slow.iter_mut().for_each(|client| assert_eq!(client.answer().1, "196418"));
}

#[test]
fn a_chunked_body_arrives_complete_and_a_body_that_is_too_large_is_refused() {
    let program = start();
    let mut client = Client::new(&program);
    client.sends(
        "POST /queue HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    );
    client.sends("4\r\ndefg\r\n0\r\n\r\n");
    assert_eq!(client.answer().0, 200);
    client.get("/queue");
    assert_eq!(client.answer(), (200, "abcdefg".into()));
    client.sends("POST /queue HTTP/1.1\r\nHost: here\r\nContent-Length: 2000000\r\n\r\n");
    assert_eq!(client.answer().0, 413);
}

#[test]
fn clients_that_vanish_or_send_garbage_leave_no_sockets() {
    let program = start();
    let mut client = Client::new(&program);
    client.get("/");
    assert_eq!(client.answer().0, 200);
    let before = program.sockets();
    for _ in 0..10 {
        // These clients vanish in the middle of a request, while they wait for an answer, and with
        // an unread answer.
        Client::new(&program).sends("GET / HT");
        Client::new(&program).get("/queue");
        Client::new(&program).get("/");
        let mut nonsense = Client::new(&program);
        nonsense.sends("\0\r\n\r\n");
        assert_eq!(nonsense.answer().0, 400);
    }
    wait_until(|| {
        // The server closes a connection without requests, so this client sends one in each round.
        client.get("/");
        assert_eq!(client.answer().0, 200);
        program.sockets() == before
    });
    // The vanished clients that waited for a body have not taken one.
    client.post("/queue", "still here");
    assert_eq!(client.answer().0, 200);
    client.get("/queue");
    assert_eq!(client.answer(), (200, "still here".into()));
}
