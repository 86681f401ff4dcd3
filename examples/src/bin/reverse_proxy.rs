//! A reverse proxy for HTTP or any other protocol over TCP. `reverse_proxy [ADDRESS [BACKEND…]]`
//!
//! Each connection goes to the next backend in turn. If that backend is down, the connection goes
//! to the following one. If all backends are down, the client gets a 502. Each connection has two
//! goroutines, one for each direction. When one side has sent everything, the proxy ends only that
//! direction, so the opposite side can still answer.

use gosched::net::{TcpListener, TcpStream, lookup_host};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

/// How long the proxy waits for a backend to accept.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the proxy reads from a client that it refuses.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
const BAD_GATEWAY: &[u8] =
    b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

#[gosched::main]
fn main() -> io::Result<()> {
    let mut words = std::env::args().skip(1);
    let address = words.next().unwrap_or_else(|| "127.0.0.1:8000".into());
    let mut backends: Vec<SocketAddr> = Vec::new();
    for name in words {
        backends.extend(lookup_host(&name)?.take(1));
    }
    if backends.is_empty() {
        backends.extend([8001, 8002].map(|port| SocketAddr::from(([127, 0, 0, 1], port))));
    }
    let listener = TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    loop {
        match listener.accept() {
            Ok((client, _)) => {
                let turn = backends.clone();
                backends.rotate_left(1);
                // An error means that one side has vanished. Both connections end then.
                gosched::go(move || serve(&client, &turn));
            }
            Err(why) => eprintln!("accepting a connection failed: {why}"),
        }
    }
}

fn serve(client: &TcpStream, backends: &[SocketAddr]) -> io::Result<()> {
    let connect = |backend| TcpStream::connect_timeout(backend, CONNECT_TIMEOUT).ok();
    let Some(backend) = backends.iter().find_map(connect) else {
        return refuse(client);
    };
    client.set_nodelay(true)?;
    backend.set_nodelay(true)?;
    gosched::scope(|scope| {
        scope.go(|| forward(client, &backend));
        forward(&backend, client);
    });
    Ok(())
}

/// Forwards one direction until its end. An error ends both directions.
fn forward(from: &TcpStream, to: &TcpStream) {
    match gosched::io::copy(&mut &*from, &mut &*to) {
        Ok(_) => drop(to.shutdown(Shutdown::Write)),
        Err(_) => {
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        }
    }
}

/// Answers with a 502, then reads until the client has sent everything. Closing earlier would reset
/// the connection, and the client might never see the answer.
fn refuse(mut client: &TcpStream) -> io::Result<()> {
    client.write_all(BAD_GATEWAY)?;
    client.shutdown(Shutdown::Write)?;
    client.set_read_deadline(Some(std::time::Instant::now() + DRAIN_TIMEOUT))?;
    while client.read(&mut [0; 4096])? > 0 {}
    Ok(())
}
