//! Tests of the example `tls_echo`, with rustls clients, and with clients that do not use TLS.

use gosched_examples::{Program, wait_until};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;

/// Starts the program. Returns it and a client configuration that trusts its certificate.
fn start() -> (Program, Arc<ClientConfig>) {
    let mut program = Program::start(env!("CARGO_BIN_EXE_tls_echo"), &[]);
    let mut certificate = String::new();
    while !certificate.contains("END CERTIFICATE") {
        certificate += &program.line();
        certificate.push('\n');
    }
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    (program, Arc::new(config))
}

type Client = StreamOwned<ClientConnection, TcpStream>;

fn connect(program: &Program, config: &Arc<ClientConfig>, name: &str) -> Client {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connection = ClientConnection::new(config.clone(), name).unwrap();
    StreamOwned::new(connection, program.connect())
}

#[test]
fn many_tls_clients_get_back_what_they_sent_and_a_close_notify() {
    let (program, config) = start();
    thread::scope(|scope| {
        for client in 1..9 {
            let mut stream = connect(&program, &config, "localhost");
            scope.spawn(move || {
                let sent: Vec<u8> = (0..client * 9000).map(|i| i as u8).collect();
                let mut back = vec![0; sent.len()];
                for _ in 0..3 {
                    stream.write_all(&sent).unwrap();
                    stream.read_exact(&mut back).unwrap();
                    assert!(sent == back);
                }
                stream.conn.send_close_notify();
                stream.flush().unwrap();
                // Without TLS's close message the read would fail.
                assert_eq!(stream.read(&mut back).unwrap(), 0);
            });
        }
    });
}

#[test]
fn a_client_that_expects_another_server_name_refuses_the_certificate() {
    let (program, config) = start();
    let mut stream = connect(&program, &config, "example.org");
    let why = stream.write_all(b"secret").unwrap_err();
    assert_eq!(why.kind(), ErrorKind::InvalidData, "{why}");
}

#[test]
fn clients_that_speak_no_tls_or_vanish_do_not_disturb_other_clients() {
    let (program, config) = start();
    let mut good = connect(&program, &config, "127.0.0.1");
    let mut back = [0; 3];
    good.write_all(b"one").unwrap();
    good.read_exact(&mut back).unwrap();
    let before = program.sockets();
    for i in 0..10 {
        let mut plain = program.connect();
        plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        // The server answers with a TLS alert, then closes the connection.
        if i % 2 == 0 {
            let _ = plain.read_to_end(&mut Vec::new());
        }
        let mut vanishing = connect(&program, &config, "localhost");
        vanishing.write_all(b"never read").unwrap();
    }
    wait_until(|| program.sockets() == before);
    good.write_all(b"two").unwrap();
    good.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"two");
}
