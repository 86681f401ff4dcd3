//! A chat server with one room. `chat [ADDRESS]`
//!
//! The first line that a client sends is its name. The server sends every other line to all
//! members. The room is one goroutine that owns the list of members, so there is no lock. Each
//! member has a channel, and a goroutine that writes the lines in the channel to the client. The
//! room never waits for a member: a member whose channel is full has stopped reading, and is
//! removed.

use gosched::chan::{Receiver, Sender};
use gosched::net::{TcpListener, TcpStream};
use gosched::{chan, go};
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;

/// Maximum number of lines that wait for a member to read them.
const BACKLOG: usize = 64;
/// Maximum length of a line, in bytes. The rest counts as the next line.
const MAX_LINE_BYTES: u64 = 4096;

/// An event in the room. The number identifies the client.
enum Event {
    /// A client wants to join. The room sends back whether it accepts the name.
    Join(u64, Member, Sender<bool>),
    Say(u64, String),
    Leave(u64),
}

struct Member {
    name: String,
    lines: Sender<Arc<str>>,
    stream: Arc<TcpStream>,
}

#[gosched::main]
fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7001".into());
    let listener = TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    let (room, events) = chan(0);
    go(move || run_room(&events));
    for id in 0.. {
        match listener.accept() {
            Ok((stream, _)) => {
                let room = room.clone();
                go(move || {
                    // Every error means that the client has left.
                    let _ = serve_client(id, Arc::new(stream), &room);
                    let _ = room.send(Event::Leave(id));
                });
            }
            Err(why) => eprintln!("accepting a connection failed: {why}"),
        }
    }
    Ok(())
}

/// Runs the room: handles one event after another.
fn run_room(events: &Receiver<Event>) {
    let mut members = HashMap::new();
    for event in events {
        let line = match event {
            Event::Join(id, member, admitted) => {
                let taken = |other: &Member| other.name == member.name;
                let admit = !member.name.is_empty() && !members.values().any(taken);
                // Does not wait: the channel has room for one answer.
                let _ = admitted.send(admit);
                let line = format!("* {} is here\n", member.name);
                admit.then(|| members.insert(id, member)).map(|_| line)
            }
            Event::Say(id, text) => members.get(&id).map(|by| format!("{}: {text}\n", by.name)),
            Event::Leave(id) => members.remove(&id).map(|who| format!("* {} has left\n", who.name)),
        };
        if let Some(line) = line {
            broadcast(&mut members, line);
        }
    }
}

/// Sends a line to all members. Removes each member whose channel is full, and announces that to
/// the remaining members.
fn broadcast(members: &mut HashMap<u64, Member>, line: String) {
    let mut lines = vec![line];
    while let Some(line) = lines.pop() {
        let line: Arc<str> = line.into();
        for (_, slow) in
            members.extract_if(|_, member| member.lines.try_send(line.clone()).is_err())
        {
            // Wakes the goroutines that read from the stream and write to it.
            let _ = slow.stream.shutdown(Shutdown::Both);
            lines.push(format!("* {} does not read\n", slow.name));
        }
    }
}

/// Serves a client, from its name to its last line. Sends to the room do not fail: the room never
/// ends.
fn serve_client(id: u64, stream: Arc<TcpStream>, room: &Sender<Event>) -> io::Result<()> {
    let mut input = BufReader::new(&*stream);
    (&*stream).write_all(b"your name?\n")?;
    let lines = loop {
        let name = next_line(&mut input)?;
        let ((lines, to_write), (admitted, answer)) = (chan(BACKLOG), chan(1));
        let _ =
            room.send(Event::Join(id, Member { name, lines, stream: stream.clone() }, admitted));
        if answer.recv() == Ok(true) {
            break to_write;
        }
        (&*stream).write_all(b"another name, please\n")?;
    };
    let writer = stream.clone();
    go(move || write_lines(&writer, &lines));
    loop {
        let _ = room.send(Event::Say(id, next_line(&mut input)?));
    }
}

/// Writes lines to a client until it has left the room.
fn write_lines(mut stream: &TcpStream, lines: &Receiver<Arc<str>>) -> io::Result<()> {
    lines.iter().try_for_each(|line| stream.write_all(line.as_bytes()))?;
    stream.shutdown(Shutdown::Both)
}

/// Reads a line and removes its control characters: the line end, and characters that control a
/// terminal.
fn next_line(input: &mut BufReader<&TcpStream>) -> io::Result<String> {
    let mut line = Vec::new();
    if input.take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(String::from_utf8_lossy(&line).chars().filter(|char| !char.is_control()).collect())
}
