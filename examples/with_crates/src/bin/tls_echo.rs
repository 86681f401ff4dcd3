//! An echo server with TLS: rustls over gosched's `TcpStream`. `tls_echo [ADDRESS]`
//!
//! The server creates a certificate when it starts, and prints it. A client must trust that
//! certificate, as with `openssl s_client -connect ADDRESS -CAfile FILE`.

use gosched::net::{TcpListener, TcpStream};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::error::Error;
use std::io::{self, Read, Write};
use std::sync::Arc;

/// Maximum size of a TLS record, in bytes.
const RECORD: usize = 16 << 10;

#[gosched::main]
fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7443".into());
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names)?;
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    let config = Arc::new(config);

    let listener = TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    print!("{}", made.cert.pem());
    io::stdout().flush()?;
    loop {
        match listener.accept() {
            Ok((stream, client)) => {
                let config = config.clone();
                gosched::go(move || {
                    if let Err(why) = serve(stream, config) {
                        eprintln!("{client}: {why}");
                    }
                });
            }
            Err(why) => eprintln!("accepting a connection failed: {why}"),
        }
    }
}

/// Echoes what a client sends. The first read performs the handshake. A client that disconnects
/// without TLS's close message causes an error, because what it sent may have been cut short.
fn serve(stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<()> {
    let connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut tls = StreamOwned::new(connection, stream);
    let mut buffer = vec![0; RECORD];
    loop {
        match tls.read(&mut buffer)? {
            0 => break,
            read => tls.write_all(&buffer[..read])?,
        }
    }
    tls.conn.send_close_notify();
    tls.flush()
}
