//! Implementations of hyper's runtime traits: a stream, an executor and a timer. Each connection is
//! a goroutine that blocks on hyper's future.
//!
//! A poll never waits for the network or for time: it returns `Pending`, and the waker is called
//! when hyper can continue.
//!
#![doc = "```ignore"]
#![doc = include_str!("hyper_example.txt")]
#![doc = "```"]

use crate::block::future::block_on;
use crate::block::goroutine::go;
use crate::block::io::async_wait::AsyncWait;
use crate::block::net::TcpStream;
use crate::block::sync::Mutex;
use crate::block::time::{self, after_func};
use crate::sys::poller::Direction;
use crate::sys::tcp_inq;
use hyper::rt::{self, ReadBufCursor};
use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::mem::ManuallyDrop;
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::ptr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// A [`TcpStream`] that `hyper` can read from and write to.
pub struct Stream {
    stream: TcpStream,
    reading: AsyncWait,
    writing: AsyncWait,
}

impl Stream {
    /// Creates a stream for `hyper`. Deadlines of `stream` apply to the reads and writes of `hyper`
    /// too.
    pub fn new(mut stream: TcpStream) -> Stream {
        stream.polled_mut().forget_drained();
        let [reading, writing] = [Direction::Read, Direction::Write].map(AsyncWait::new);
        Stream { stream, reading, writing }
    }

    /// Returns the inner [`TcpStream`].
    pub fn into_inner(self) -> TcpStream {
        let mut this = ManuallyDrop::new(self);
        this.take_back();
        // SAFETY: the stream is read once, and `this` is never dropped. The other fields own
        // nothing after `take_back`.
        unsafe { ptr::read(&raw const this.stream) }
    }

    /// Returns the address of the peer.
    ///
    /// # Errors
    /// The socket is not connected, or was closed.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    /// Sets the deadline of reads: see [`TcpStream::set_read_deadline`].
    ///
    /// # Errors
    /// The socket was closed.
    pub fn set_read_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
        self.stream.set_read_deadline(deadline)
    }

    /// Sets the deadline of writes: see [`TcpStream::set_write_deadline`].
    ///
    /// # Errors
    /// The socket was closed.
    pub fn set_write_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
        self.stream.set_write_deadline(deadline)
    }

    /// Closes the socket: see [`TcpStream::close`].
    ///
    /// # Errors
    /// The socket was already closed.
    pub fn close(&self) -> io::Result<()> {
        self.stream.close()
    }

    fn take_back(&mut self) {
        self.reading.deregister(self.stream.polled());
        self.writing.deregister(self.stream.polled());
    }

    fn write(
        &mut self,
        context: &mut Context<'_>,
        mut f: impl FnMut(&std::net::TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let mut write = |socket: &_| f(socket).map(|count| (count, false));
        self.writing.attempt(self.stream.polled(), context, &mut write)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.take_back();
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stream.fmt(f)
    }
}

impl rt::Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let Stream { stream, reading, .. } = &mut *self;
        // SAFETY: no byte becomes uninitialised, because only the kernel writes to the buffer.
        let free = unsafe { buffer.as_mut() };
        if free.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let read = reading.attempt(stream.polled(), context, |socket| tcp_inq::read(socket, free));
        read.map_ok(|count| {
            // SAFETY: the kernel has written `count` bytes.
            unsafe { buffer.advance(count) };
        })
    }
}

impl rt::Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |mut socket| io::Write::write(&mut socket, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |socket| crate::block::net::write_vectored(socket, parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.shutdown(Shutdown::Write))
    }
}

/// An executor for `hyper` that runs each future in a goroutine of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Executor;

impl<F> rt::Executor<F> for Executor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        drop(go(move || block_on(future)));
    }
}

/// A timer for `hyper` that uses the clock and the timers of [`gosched::time`](crate::time).
#[derive(Clone, Copy, Debug, Default)]
pub struct Timer;

impl rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(Sleep::new(duration))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn rt::Sleep>> {
        self.sleep(deadline.saturating_duration_since(time::now()))
    }

    fn now(&self) -> Instant {
        time::now()
    }
}

/// A future that completes when its duration is over.
struct Sleep {
    end: Arc<Mutex<End>>,
    timer: time::Timer,
}

/// The state of a [`Sleep`]: whether it is over, and the waker to call when it is.
#[derive(Default)]
struct End {
    over: bool,
    waker: Option<Waker>,
}

impl Sleep {
    fn new(duration: Duration) -> Sleep {
        let end = Arc::new(Mutex::new(End::default()));
        let its_end = end.clone();
        let timer = after_func(duration, move || {
            let mut end = its_end.lock();
            end.over = true;
            let waker = end.waker.take();
            drop(end);
            if let Some(waker) = waker {
                waker.wake();
            }
        });
        Sleep { end, timer }
    }
}

impl rt::Sleep for Sleep {}

impl Future for Sleep {
    type Output = ();
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // A waker's `clone` and `drop` are user code, so they run outside the lock.
        let new = context.waker().clone();
        let mut end = self.end.lock();
        if end.over {
            return Poll::Ready(());
        }
        let old = end.waker.replace(new);
        drop(end);
        drop(old);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.timer.stop();
    }
}
