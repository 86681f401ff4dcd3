//! A WebSocket server: tungstenite over gosched's `TcpStream`. `websocket [ADDRESS]`
//!
//! The server sends a binary message back to its sender, and a text message to all clients. Each
//! connection has two goroutines. The reader owns the WebSocket. The writer takes bytes from a
//! channel and writes them to the stream. What the WebSocket writes itself (the handshake, pongs,
//! echoes) goes through the same channel, so frames never mix. A text is encoded once for all
//! clients.

use gosched::chan::{Receiver, Sender};
use gosched::net::{TcpListener, TcpStream};
use gosched::sync::Mutex;
use gosched::{chan, go};
use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use tungstenite::protocol::frame::Frame;
use tungstenite::protocol::frame::coding::{Data, OpCode};
use tungstenite::{Bytes, Error, Message};

/// Maximum number of frames that wait for a client to read them.
const BACKLOG: usize = 64;

/// All connected clients, by number: the channel for a client's frames, and its stream.
type Clients = Arc<Mutex<HashMap<u64, (Sender<Bytes>, Arc<TcpStream>)>>>;

#[gosched::main]
fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7002".into());
    let listener = TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    let clients = Clients::default();
    for id in 0.. {
        match listener.accept() {
            Ok((stream, _)) => {
                let clients = clients.clone();
                go(move || {
                    // Usually fails, because the connection was closed.
                    let _ = serve(id, Arc::new(stream), &clients);
                    clients.lock().remove(&id);
                });
            }
            Err(why) => eprintln!("accepting a connection failed: {why}"),
        }
    }
    Ok(())
}

fn serve(id: u64, stream: Arc<TcpStream>, clients: &Clients) -> Result<(), Error> {
    stream.set_nodelay(true)?;
    let (frames, to_write) = chan(BACKLOG);
    let writer = stream.clone();
    go(move || write(&writer, &to_write));
    let wire = Wire { stream: stream.clone(), frames: frames.clone() };
    let mut socket = tungstenite::accept(wire).map_err(|why| Error::Io(io::Error::other(why)))?;
    clients.lock().insert(id, (frames, stream));
    loop {
        match socket.read()? {
            Message::Text(text) => tell(clients, text.into())?,
            message @ Message::Binary(_) => socket.send(message)?,
            // tungstenite answers pings and close messages. The read after a close message fails.
            _ => {}
        }
    }
}

/// Sends a text to all clients. A client whose channel is full has stopped reading, and is
/// disconnected.
fn tell(clients: &Clients, text: Bytes) -> Result<(), Error> {
    let mut frame = Vec::new();
    Frame::message(text, OpCode::Data(Data::Text), true).format(&mut frame)?;
    let frame = Bytes::from(frame);
    clients.lock().retain(|_, (frames, stream)| {
        let sent = frames.try_send(frame.clone()).is_ok();
        if !sent {
            let _ = stream.shutdown(Shutdown::Both);
        }
        sent
    });
    Ok(())
}

/// Writes frames to a client until all senders of its channel are gone.
fn write(mut stream: &TcpStream, frames: &Receiver<Bytes>) -> io::Result<()> {
    let written = frames.iter().try_for_each(|frame| stream.write_all(&frame));
    written.and(stream.shutdown(Shutdown::Both))
}

/// The connection as the WebSocket sees it: reads come from the stream, writes go to the channel.
struct Wire {
    stream: Arc<TcpStream>,
    frames: Sender<Bytes>,
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self.stream).read(buffer)
    }
}

impl Write for Wire {
    /// Sends all bytes to the channel in one piece, which is one frame or several.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.frames.send(Bytes::copy_from_slice(bytes));
        sent.map(|()| bytes.len()).map_err(|_| ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
