//! Tests of the example `echo`, with plain TCP clients.

use gosched_examples::{Program, wait_until};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::thread;

fn start() -> Program {
    Program::start(env!("CARGO_BIN_EXE_echo"), &[])
}

#[test]
fn many_clients_get_back_what_they_sent() {
    let program = start();
    thread::scope(|scope| {
        for client in 0..50 {
            let mut stream = program.connect();
            scope.spawn(move || {
                for round in 0..20 {
                    let sent: Vec<u8> = (0..1 + client * 97).map(|i| (i + round) as u8).collect();
                    let mut back = vec![0; sent.len()];
                    stream.write_all(&sent).unwrap();
                    stream.read_exact(&mut back).unwrap();
                    assert_eq!(sent, back);
                }
            });
        }
    });
}

#[test]
fn a_client_that_has_shut_down_its_write_side_gets_all_data_back() {
    let program = start();
    let stream = program.connect();
    let sent: Vec<u8> = (0..4 << 20).map(|i: u32| (i / 3) as u8).collect();
    let mut back = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            (&stream).write_all(&sent).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        });
        (&stream).read_to_end(&mut back).unwrap();
    });
    assert!(sent == back);
}

#[test]
fn idle_clients_need_no_threads_and_vanished_clients_leave_no_sockets() {
    let program = start();
    let mut first = program.connect();
    first.write_all(b"?").unwrap();
    first.read_exact(&mut [0]).unwrap();
    let before = program.sockets();
    let mut clients: Vec<_> = (0..300).map(|_| program.connect()).collect();
    wait_until(|| program.sockets() == before + clients.len());
    if !cfg!(feature = "threads") {
        let most = thread::available_parallelism().unwrap().get() + 8;
        wait_until(|| program.threads() <= most);
    }
    // Half of the clients leave data unread, so their connections are reset.
    for client in clients.iter_mut().step_by(2) {
        client.write_all(b"never read").unwrap();
    }
    drop(clients);
    wait_until(|| program.sockets() == before);
}
