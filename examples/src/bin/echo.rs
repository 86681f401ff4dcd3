//! A TCP echo server: sends back what a client sends. `echo [ADDRESS]`

use gosched::net::{TcpListener, TcpStream};
use std::io;

#[gosched::main]
fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7000".into());
    let listener = TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    loop {
        match listener.accept() {
            Ok((stream, client)) => drop(gosched::go(move || {
                if let Err(why) = echo(&stream) {
                    eprintln!("{client}: {why}");
                }
            })),
            Err(why) => eprintln!("accepting a connection failed: {why}"),
        }
    }
}

/// Echoes until the client has sent everything. Returns the number of bytes.
fn echo(stream: &TcpStream) -> io::Result<u64> {
    gosched::io::copy(&mut &*stream, &mut &*stream)
}
