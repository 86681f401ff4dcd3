//! An HTTP server with hyper, one goroutine per connection. `http_server [ADDRESS]`
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | a greeting |
//! | `GET /fib/N` | the Nth Fibonacci number, computed slowly while other requests are served |
//! | `POST /queue` | puts the body into a queue |
//! | `GET /queue` | takes the oldest body out of the queue; waits until there is one |

use gosched::chan::{Receiver, Sender};
use gosched::hyper::{Stream, Timer};
use gosched::net::{TcpListener, TcpStream};
use gosched::{block_on, chan, go};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use std::convert::Infallible;
use std::io;
use std::time::Duration;

/// Maximum number of bodies in the queue.
const QUEUE: usize = 1000;
/// Maximum size of a body, in bytes.
const LARGEST: usize = 1 << 20;
/// How long a client may take to send the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Both ends of the queue.
type Queue = (Sender<Bytes>, Receiver<Bytes>);

#[gosched::main]
fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    let listener = TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    let queue = chan(QUEUE);
    loop {
        match listener.accept() {
            Ok((stream, client)) => {
                let queue = queue.clone();
                go(move || {
                    if let Err(why) = serve(stream, &queue) {
                        eprintln!("{client}: {why}");
                    }
                });
            }
            Err(why) => eprintln!("accepting a connection failed: {why}"),
        }
    }
}

/// Serves all requests of one connection. hyper returns a future, and the goroutine waits for it.
fn serve(stream: TcpStream, queue: &Queue) -> hyper::Result<()> {
    let service = service_fn(|request| async {
        let (status, body) = answer(request, queue).await;
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = status;
        Ok::<_, Infallible>(response)
    });
    let mut http = http1::Builder::new();
    http.timer(Timer).header_read_timeout(PATIENCE);
    block_on(http.serve_connection(Stream::new(stream), service))
}

/// Answers one request. Plain blocking code is fine here: the goroutine serves only this client.
async fn answer(request: Request<Incoming>, (tx, rx): &Queue) -> (StatusCode, Bytes) {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/") => (StatusCode::OK, "Hello from a goroutine!\n".into()),
        (&Method::GET, "/queue") => match rx.recv_async().await {
            Ok(body) => (StatusCode::OK, body),
            Err(_) => (StatusCode::GONE, Bytes::new()),
        },
        (&Method::POST, "/queue") if request.body().size_hint().lower() > LARGEST as u64 => {
            (StatusCode::PAYLOAD_TOO_LARGE, Bytes::new())
        }
        (&Method::POST, "/queue") => {
            let body = Limited::new(request.into_body(), LARGEST).collect().await;
            match body.map(|body| tx.try_send(body.to_bytes())) {
                Ok(Ok(())) => (StatusCode::OK, Bytes::new()),
                Ok(Err(_)) => (StatusCode::SERVICE_UNAVAILABLE, "the queue is full\n".into()),
                Err(why) => (StatusCode::PAYLOAD_TOO_LARGE, why.to_string().into()),
            }
        }
        (&Method::GET, path) => match path.strip_prefix("/fib/").and_then(|n| n.parse().ok()) {
            Some(n @ 0..=45) => (StatusCode::OK, fib(n).to_string().into()),
            _ => (StatusCode::NOT_FOUND, Bytes::new()),
        },
        _ => (StatusCode::METHOD_NOT_ALLOWED, Bytes::new()),
    }
}

fn fib(n: u64) -> u64 {
    if n < 2 { n } else { fib(n - 1) + fib(n - 2) }
}
