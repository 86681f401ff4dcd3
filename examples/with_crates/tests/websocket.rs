//! Tests of the example `websocket`, with tungstenite's client.

use gosched_examples::{Program, wait_until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use tungstenite::protocol::CloseFrame;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Bytes, Error, Message, WebSocket};

fn start() -> Program {
    Program::start(env!("CARGO_BIN_EXE_websocket"), &[])
}

fn connect(program: &Program) -> WebSocket<TcpStream> {
    let url = format!("ws://{}/", program.address);
    let mut socket = tungstenite::client(url, program.connect()).unwrap().0;
    // Only after this answer is the client certain to receive messages for all clients.
    socket.send(Message::binary("here")).unwrap();
    assert_eq!(socket.read().unwrap(), Message::binary("here"));
    socket
}

#[test]
fn a_binary_message_is_returned_only_to_its_sender() {
    let program = start();
    thread::scope(|scope| {
        for client in 0..20 {
            let mut socket = connect(&program);
            scope.spawn(move || {
                for round in 0..10 {
                    let message = Message::binary(vec![client as u8; client * 1000 + round]);
                    socket.send(message.clone()).unwrap();
                    assert!(socket.read().unwrap() == message);
                }
            });
        }
    });
}

#[test]
fn text_messages_reach_all_clients_in_the_same_order() {
    let program = start();
    let mut sockets: Vec<_> = (0..10).map(|_| connect(&program)).collect();
    for (i, socket) in sockets.iter_mut().enumerate() {
        socket.send(Message::text(format!("from {i}"))).unwrap();
    }
    let hears = |socket: &mut WebSocket<TcpStream>| -> Vec<Message> {
        (0..10).map(|_| socket.read().unwrap()).collect()
    };
    let heard = hears(&mut sockets[0]);
    for i in 0..10 {
        assert!(heard.contains(&Message::text(format!("from {i}"))));
    }
    for socket in &mut sockets[1..] {
        assert_eq!(hears(socket), heard);
    }
}

#[test]
fn pings_are_answered_and_a_close_is_confirmed() {
    let program = start();
    let _other = connect(&program);
    let before = program.sockets();
    let mut socket = connect(&program);
    socket.send(Message::Ping(Bytes::from_static(b"there?"))).unwrap();
    assert_eq!(socket.read().unwrap(), Message::Pong(Bytes::from_static(b"there?")));
    let end = CloseFrame { code: CloseCode::Normal, reason: "enough".into() };
    socket.close(Some(end.clone())).unwrap();
    assert_eq!(socket.read().unwrap(), Message::Close(Some(end)));
    assert!(matches!(socket.read(), Err(Error::ConnectionClosed)));
    wait_until(|| program.sockets() == before);
}

#[test]
fn clients_that_stop_reading_vanish_or_send_garbage_do_not_block_other_clients() {
    let program = start();
    let mut good = connect(&program);
    let before = program.sockets();
    let deaf = connect(&program);
    drop(connect(&program));
    let mut nonsense = program.connect();
    nonsense.write_all(b"hello\r\n\r\n").unwrap();
    let _ = nonsense.read_to_end(&mut Vec::new());
    wait_until(|| program.sockets() == before + 1);
    // `good` reads each message before it sends the next, so only `deaf` falls behind, until it is
    // disconnected.
    let text = Message::text("x".repeat(50_000));
    wait_until(|| {
        good.send(text.clone()).unwrap();
        assert!(good.read().unwrap() == text);
        program.sockets() == before
    });
    drop(deaf);
}
