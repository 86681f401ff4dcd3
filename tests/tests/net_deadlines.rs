//! Deadlines and `close`, which std does not have, follow the same rules for every kind of socket,
//! in goroutines and in threads. The suite also tests the conversions to and from std.

use gosched::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream};
use gosched_tests::actors::ActorKind;
use gosched_tests::sockets::{
    LOCAL, PatternBytes, Spawned, for_all_kind_pairs, read_to_end, start, tcp_pair, unique_host,
    unique_name, write_until_error,
};
use gosched_tests::wait::{settle, until};
use std::fmt::Debug;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MILLI: Duration = Duration::from_millis(1);

fn kind<T: Debug>(result: io::Result<T>) -> ErrorKind {
    result.expect_err("an error").kind()
}

fn past() -> Option<Instant> {
    Some(Instant::now())
}

fn far_away() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(1_000_000))
}

fn sleep_until(time: Instant) {
    std::thread::sleep(time.saturating_duration_since(Instant::now()));
}

/// Operations that all sockets have.
trait Socket: Debug + Send + Sync + Sized + 'static {
    type Peer: Send + Sync + 'static;
    type Std: AsFd;
    /// Creates a socket whose `wait` blocks as long as the peer does nothing, and the peer.
    fn new() -> (Self, Self::Peer);
    /// Waits for a byte, a datagram or a connection.
    fn wait(&self) -> io::Result<()>;
    /// Sends the byte or the datagram, or makes the connection, that ends a `wait`.
    fn feed(peer: &Self::Peer);
    fn close(&self) -> io::Result<()>;
    fn try_clone(&self) -> io::Result<Self>;
    fn set_deadline(&self, deadline: Option<Instant>) -> io::Result<()>;
    fn set_read_deadline(&self, deadline: Option<Instant>) -> io::Result<()>;
    fn set_write_deadline(&self, deadline: Option<Instant>) -> io::Result<()>;
    fn local_address(&self) -> io::Result<()>;
    fn take_error(&self) -> io::Result<Option<io::Error>>;
    fn into_std(self) -> io::Result<Self::Std>;
    fn from_std(socket: Self::Std) -> io::Result<Self>;
    fn wait_std(socket: &Self::Std) -> io::Result<()>;
    fn std_non_blocking(socket: &Self::Std, on: bool);
}

/// Operations of sockets that can send.
trait Sends: Socket {
    fn send(&self) -> io::Result<()>;
    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;
}

macro_rules! socket {
    ($type:ident, $std:ty, $peer:ty, $new:expr, $wait:expr, $feed:expr) => {
        impl Socket for $type {
            type Peer = $peer;
            type Std = $std;
            fn new() -> (Self, Self::Peer) {
                $new
            }
            fn wait(&self) -> io::Result<()> {
                let wait: fn(&$type) -> io::Result<()> = $wait;
                wait(self)
            }
            fn feed(peer: &Self::Peer) {
                let feed: fn(&$peer) = $feed;
                feed(peer);
            }
            fn close(&self) -> io::Result<()> {
                <$type>::close(self)
            }
            fn try_clone(&self) -> io::Result<Self> {
                <$type>::try_clone(self)
            }
            fn set_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
                <$type>::set_deadline(self, deadline)
            }
            fn set_read_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
                <$type>::set_read_deadline(self, deadline)
            }
            fn set_write_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
                <$type>::set_write_deadline(self, deadline)
            }
            fn local_address(&self) -> io::Result<()> {
                <$type>::local_addr(self).map(drop)
            }
            fn take_error(&self) -> io::Result<Option<io::Error>> {
                <$type>::take_error(self)
            }
            fn into_std(self) -> io::Result<Self::Std> {
                <$type>::into_std(self)
            }
            fn from_std(socket: Self::Std) -> io::Result<Self> {
                <$type>::from_std(socket)
            }
            fn wait_std(socket: &Self::Std) -> io::Result<()> {
                let wait: fn(&$std) -> io::Result<()> = $wait;
                wait(socket)
            }
            fn std_non_blocking(socket: &Self::Std, on: bool) {
                socket.set_nonblocking(on).unwrap();
            }
        }
    };
}

macro_rules! sends {
    ($type:ident, $send:expr) => {
        impl Sends for $type {
            fn send(&self) -> io::Result<()> {
                let send: fn(&$type) -> io::Result<usize> = $send;
                send(self).map(|count| assert_eq!(count, 1))
            }
            fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                <$type>::set_read_timeout(self, timeout)
            }
        }
    };
}

/// Checks that one byte was read, and not the end of the stream.
fn one(result: io::Result<usize>) -> io::Result<()> {
    result.map(|count| assert_eq!(count, 1, "the end"))
}

fn unique() -> UnixAddr {
    UnixAddr::from_abstract_name(unique_name()).unwrap()
}

socket!(
    TcpStream,
    std::net::TcpStream,
    TcpStream,
    tcp_pair(),
    |mut socket| one(socket.read(&mut [0])),
    |mut peer| peer.write_all(b"x").unwrap()
);
socket!(
    UnixStream,
    std::os::unix::net::UnixStream,
    UnixStream,
    UnixStream::pair().unwrap(),
    |mut socket| one(socket.read(&mut [0])),
    |mut peer| peer.write_all(b"x").unwrap()
);
socket!(
    UdpSocket,
    std::net::UdpSocket,
    UdpSocket,
    {
        let (near, far) = (UdpSocket::bind(LOCAL).unwrap(), UdpSocket::bind(LOCAL).unwrap());
        near.connect(far.local_addr().unwrap()).unwrap();
        far.connect(near.local_addr().unwrap()).unwrap();
        (near, far)
    },
    |socket| one(socket.recv(&mut [0])),
    |peer| assert_eq!(peer.send(b"x").unwrap(), 1)
);
socket!(
    UnixDatagram,
    std::os::unix::net::UnixDatagram,
    UnixDatagram,
    UnixDatagram::pair().unwrap(),
    |socket| one(socket.recv(&mut [0])),
    |peer| assert_eq!(peer.send(b"x").unwrap(), 1)
);
socket!(
    TcpListener,
    std::net::TcpListener,
    SocketAddr,
    {
        let listener = TcpListener::bind(LOCAL).unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    },
    |socket| socket.accept().map(drop),
    |peer| drop(TcpStream::connect(peer).unwrap())
);
socket!(
    UnixListener,
    std::os::unix::net::UnixListener,
    UnixAddr,
    {
        let address = unique();
        (UnixListener::bind_addr(&address).unwrap(), address)
    },
    |socket| socket.accept().map(drop),
    |peer| drop(UnixStream::connect_addr(peer).unwrap())
);
sends!(TcpStream, |mut socket| socket.write(b"y"));
sends!(UnixStream, |mut socket| socket.write(b"y"));
sends!(UdpSocket, |socket| socket.send(b"y"));
sends!(UnixDatagram, |socket| socket.send(b"y"));

/// Checks a rule for all of these socket types at once.
macro_rules! holds_for {
    ($rule:ident: $($type:ident)*) => {
        std::thread::scope(|scope| {
            let all = [$((stringify!($type), scope.spawn(|| for_all_kind_pairs($rule::<$type>)))),*];
            for (name, result) in all {
                assert!(result.join().is_ok(), "{name}");
            }
        })
    };
}
macro_rules! holds_for_all {
    ($rule:ident) => {
        holds_for!($rule: TcpStream UnixStream UdpSocket UnixDatagram TcpListener UnixListener)
    };
}
macro_rules! holds_for_senders {
    ($rule:ident) => {
        holds_for!($rule: TcpStream UnixStream UdpSocket UnixDatagram)
    };
}

fn waits<S: Socket>(other: ActorKind, socket: &Arc<S>) -> Spawned<io::Result<()>> {
    let socket = socket.clone();
    start(other, move || socket.wait())
}

fn fails_in_the_past<S: Socket>(_: ActorKind) {
    let (socket, peer) = S::new();
    for has_cooled_down in [Duration::ZERO, 100 * MILLI] {
        socket.set_read_deadline(Some(Instant::now() - has_cooled_down)).unwrap();
        assert_eq!(kind(socket.wait()), ErrorKind::TimedOut);
        assert_eq!(kind(socket.wait()), ErrorKind::TimedOut, "it stays");
        S::feed(&peer);
        assert_eq!(kind(socket.wait()), ErrorKind::TimedOut, "also if something is there");
        socket.set_read_deadline(None).unwrap();
        socket.wait().unwrap();
        socket.set_deadline(past()).unwrap();
        assert_eq!(kind(socket.wait()), ErrorKind::TimedOut);
        socket.set_deadline(far_away()).unwrap();
        S::feed(&peer);
        socket.wait().unwrap();
    }
}

#[test]
fn a_deadline_in_the_past_ends_every_call_until_it_is_changed() {
    holds_for_all!(fails_in_the_past);
}

fn ends_at_its_deadline<S: Socket>(_: ActorKind) {
    let (socket, peer) = S::new();
    for both in [false, true] {
        let deadline = Instant::now() + 30 * MILLI;
        if both {
            socket.set_deadline(Some(deadline)).unwrap();
        } else {
            socket.set_read_deadline(Some(deadline)).unwrap();
        }
        S::feed(&peer);
        let first = socket.wait();
        assert!(first.is_ok() || Instant::now() >= deadline, "{first:?}");
        if first.is_ok() {
            assert_eq!(kind(socket.wait()), ErrorKind::TimedOut);
        }
        assert!(Instant::now() >= deadline, "too early by {:?}", deadline - Instant::now());
        assert_eq!(kind(socket.wait()), ErrorKind::TimedOut, "it stays");
        socket.set_deadline(None).unwrap();
        if first.is_ok() {
            S::feed(&peer);
        }
        socket.wait().unwrap();
    }
}

#[test]
fn a_waiting_call_ends_at_the_deadline() {
    holds_for_all!(ends_at_its_deadline);
}

fn is_woken_by_an_earlier_one<S: Socket>(other: ActorKind) {
    let (socket, peer) = S::new();
    let socket = Arc::new(socket);
    for before in [None, far_away()] {
        for soon in [Duration::ZERO, 10 * MILLI] {
            socket.set_read_deadline(before).unwrap();
            let all: Vec<_> = (0..4).map(|_| waits(other, &socket)).collect();
            settle();
            socket.set_read_deadline(Some(Instant::now() + soon)).unwrap();
            for waiter in all {
                assert_eq!(kind(waiter.join()), ErrorKind::TimedOut);
            }
        }
    }
    socket.set_read_deadline(None).unwrap();
    S::feed(&peer);
    socket.wait().unwrap();
}

#[test]
fn setting_an_earlier_deadline_ends_all_waiting_calls() {
    holds_for_all!(is_woken_by_an_earlier_one);
}

fn waits_for_a_later_one<S: Socket>(other: ActorKind) {
    let (socket, _peer) = S::new();
    let socket = Arc::new(socket);
    let mut soon = 50 * MILLI;
    until("a deadline is moved before it is over", || {
        let first = Instant::now() + soon;
        soon *= 2;
        socket.set_read_deadline(Some(first)).unwrap();
        let waiter = waits(other, &socket);
        settle();
        let second = first + 60 * MILLI;
        socket.set_read_deadline(Some(second)).unwrap();
        let is_in_time = Instant::now() < first;
        assert_eq!(kind(waiter.join()), ErrorKind::TimedOut);
        let now = Instant::now();
        assert!(!is_in_time || now >= second, "too early by {:?}", second - now);
        is_in_time
    });
}

#[test]
fn setting_a_later_deadline_makes_waiting_calls_wait_longer() {
    holds_for_all!(waits_for_a_later_one);
}

fn waits_without_one<S: Socket>(other: ActorKind) {
    let (socket, peer) = S::new();
    let socket = Arc::new(socket);
    let mut soon = 50 * MILLI;
    until("a deadline is taken away before it is over", || {
        let first = Instant::now() + soon;
        soon *= 2;
        socket.set_deadline(Some(first)).unwrap();
        let waiter = waits(other, &socket);
        settle();
        socket.set_deadline(None).unwrap();
        if Instant::now() < first {
            sleep_until(first + 30 * MILLI);
            assert!(!waiter.is_done());
            S::feed(&peer);
            waiter.join().unwrap();
            return true;
        }
        // The deadline passed before it was removed, and may have ended the wait.
        S::feed(&peer);
        if waiter.join().is_err() {
            socket.wait().unwrap();
        }
        false
    });
}

#[test]
fn removing_a_deadline_makes_waiting_calls_wait_without_limit() {
    holds_for_all!(waits_without_one);
}

fn is_apart<S: Sends>(other: ActorKind) {
    let (socket, peer) = S::new();
    let socket = Arc::new(socket);
    socket.set_read_deadline(past()).unwrap();
    socket.send().unwrap();
    assert_eq!(kind(socket.wait()), ErrorKind::TimedOut);
    socket.set_read_deadline(None).unwrap();
    let waiter = waits(other, &socket);
    settle();
    socket.set_write_deadline(past()).unwrap();
    assert_eq!(kind(socket.send()), ErrorKind::TimedOut, "although there is room");
    settle();
    assert!(!waiter.is_done());
    S::feed(&peer);
    waiter.join().unwrap();
    socket.set_deadline(past()).unwrap();
    assert_eq!(kind(socket.send()), ErrorKind::TimedOut);
    assert_eq!(kind(socket.wait()), ErrorKind::TimedOut);
    socket.set_deadline(None).unwrap();
    socket.send().unwrap();
    S::feed(&peer);
    socket.wait().unwrap();
}

#[test]
fn read_and_write_deadlines_are_independent() {
    holds_for_senders!(is_apart);
}

fn ends_by_the_first<S: Sends>(_: ActorKind) {
    let (socket, _peer) = S::new();
    socket.set_read_timeout(Some(20 * MILLI)).unwrap();
    socket.set_read_deadline(far_away()).unwrap();
    assert_eq!(kind(socket.wait()), ErrorKind::WouldBlock);
    socket.set_read_timeout(Some(Duration::from_secs(1000))).unwrap();
    socket.set_read_deadline(Some(Instant::now() + 20 * MILLI)).unwrap();
    assert_eq!(kind(socket.wait()), ErrorKind::TimedOut);
    socket.set_read_timeout(Some(20 * MILLI)).unwrap();
    assert_eq!(kind(socket.wait()), ErrorKind::TimedOut, "the deadline is over");
    socket.set_read_deadline(None).unwrap();
    assert_eq!(kind(socket.wait()), ErrorKind::WouldBlock);
}

#[test]
fn the_earlier_of_timeout_and_deadline_ends_a_call() {
    holds_for_senders!(ends_by_the_first);
}

fn is_woken_by_close<S: Socket>(other: ActorKind) {
    let (socket, _peer) = S::new();
    let socket = Arc::new(socket);
    for deadline in [None, far_away()] {
        socket.set_deadline(deadline).unwrap();
    }
    let all: Vec<_> = (0..4).map(|_| waits(other, &socket)).collect();
    settle();
    socket.close().unwrap();
    for waiter in all {
        assert_eq!(kind(waiter.join()), ErrorKind::NotConnected);
    }
    assert_eq!(kind(socket.wait()), ErrorKind::NotConnected);
    assert_eq!(kind(socket.close()), ErrorKind::NotConnected);
    assert_eq!(kind(socket.try_clone()), ErrorKind::NotConnected);
    assert_eq!(kind(socket.local_address()), ErrorKind::NotConnected);
    assert_eq!(kind(socket.take_error()), ErrorKind::NotConnected);
    assert_eq!(kind(socket.set_deadline(None)), ErrorKind::NotConnected);
    assert_eq!(kind(socket.set_read_deadline(past())), ErrorKind::NotConnected);
    assert_eq!(kind(socket.set_write_deadline(far_away())), ErrorKind::NotConnected);
    assert_eq!(kind(socket.wait()), ErrorKind::NotConnected);
    let socket = Arc::into_inner(socket).expect("nobody else has it");
    assert_eq!(socket.into_std().map(drop).unwrap_err().kind(), ErrorKind::NotConnected);
}

#[test]
fn close_ends_all_waiting_calls_and_later_calls_fail() {
    holds_for_all!(is_woken_by_close);
}

fn is_closed_once<S: Socket>(other: ActorKind) {
    let (socket, _peer) = S::new();
    let socket = Arc::new(socket);
    let waiter = waits(other, &socket);
    let closers: Vec<_> = (0..4)
        .map(|_| {
            let socket = socket.clone();
            start(other, move || socket.close())
        })
        .collect();
    let results: Vec<_> = closers.into_iter().map(Spawned::join).collect();
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
    for failed in results.into_iter().filter(Result::is_err) {
        assert_eq!(kind(failed), ErrorKind::NotConnected);
    }
    assert_eq!(kind(waiter.join()), ErrorKind::NotConnected);
}

#[test]
fn exactly_one_of_several_concurrent_closes_succeeds() {
    holds_for_all!(is_closed_once);
}

fn has_its_own_end<S: Socket>(other: ActorKind) {
    let (socket, peer) = S::new();
    let clone = Arc::new(socket.try_clone().unwrap());
    let waiter = waits(other, &clone);
    settle();
    socket.set_deadline(past()).unwrap();
    assert_eq!(kind(socket.wait()), ErrorKind::TimedOut);
    socket.close().unwrap();
    settle();
    assert!(!waiter.is_done());
    S::feed(&peer);
    waiter.join().unwrap();
    clone.set_read_deadline(Some(Instant::now() + 10 * MILLI)).unwrap();
    assert_eq!(kind(clone.wait()), ErrorKind::TimedOut);
}

#[test]
fn a_clone_has_its_own_deadlines_and_its_own_close() {
    holds_for_all!(has_its_own_end);
}

fn is_blocking(descriptor: impl AsFd) -> bool {
    // SAFETY: the descriptor is open.
    let flags = unsafe { libc::fcntl(descriptor.as_fd().as_raw_fd(), libc::F_GETFL) };
    flags & libc::O_NONBLOCK == 0
}

fn goes_to_std_and_back<S: Socket>(other: ActorKind) {
    for non_blocking in [false, true] {
        let (socket, peer) = S::new();
        socket.set_deadline(past()).unwrap();
        let socket = socket.into_std().unwrap();
        assert!(is_blocking(&socket));
        S::feed(&peer);
        S::wait_std(&socket).unwrap();
        S::std_non_blocking(&socket, non_blocking);
        let socket = Arc::new(S::from_std(socket).unwrap());
        // The conversion has removed the deadline.
        let waiter = waits(other, &socket);
        settle();
        assert!(!waiter.is_done());
        S::feed(&peer);
        waiter.join().unwrap();
        let waiter = waits(other, &socket);
        settle();
        socket.set_read_deadline(past()).unwrap();
        assert_eq!(kind(waiter.join()), ErrorKind::TimedOut);
        socket.close().unwrap();
    }
}

#[test]
fn a_socket_converts_to_std_and_back() {
    holds_for_all!(goes_to_std_and_back);
}

fn is_dropped_when_none_waits<S: Socket>(other: ActorKind) {
    let (socket, peer) = S::new();
    let socket = Arc::new(socket);
    socket.set_deadline(far_away()).unwrap();
    let waiter = waits(other, &socket);
    drop(socket);
    settle();
    S::feed(&peer);
    waiter.join().unwrap();
}

#[test]
fn a_waiting_call_may_hold_the_last_reference_to_its_socket() {
    holds_for_all!(is_dropped_when_none_waits);
}

#[test]
fn a_write_that_waits_is_woken_by_its_deadline_and_nothing_acknowledged_is_lost() {
    fn rule<S>(other: ActorKind, near: S, far: S, set: fn(&S, Option<Instant>), end: fn(&S))
    where
        S: Send + Sync + 'static,
        for<'a> &'a S: Read + Write,
    {
        let near = Arc::new(near);
        let its = near.clone();
        let writer = start(other, move || {
            let mut bytes = PatternBytes::new(7);
            let error = write_until_error(&*its, &mut bytes);
            (error.kind(), bytes)
        });
        settle();
        set(&near, past());
        let (error, mut bytes) = writer.join();
        assert_eq!(error, ErrorKind::TimedOut);
        set(&near, Some(Instant::now() + 20 * MILLI));
        assert_eq!(write_until_error(&*near, &mut bytes).kind(), ErrorKind::TimedOut);
        set(&near, None);
        let reader = start(other, move || {
            let mut bytes = PatternBytes::new(7);
            read_to_end(&far, &mut bytes);
            bytes.position()
        });
        let mut more = vec![0; 1_000_000];
        bytes.fill(&mut more);
        (&*near).write_all(&more).unwrap();
        end(&near);
        assert_eq!(reader.join(), bytes.position() + 1_000_000);
    }
    for_all_kind_pairs(|other| {
        let (near, far) = tcp_pair();
        let set: fn(&TcpStream, _) = |stream, to| stream.set_write_deadline(to).unwrap();
        rule(other, near, far, set, |stream| stream.shutdown(Shutdown::Write).unwrap());
        let (near, far) = UnixStream::pair().unwrap();
        let set: fn(&UnixStream, _) = |stream, to| stream.set_deadline(to).unwrap();
        rule(other, near, far, set, |stream| stream.close().unwrap());
    });
}

#[test]
fn a_write_that_waits_is_woken_by_close_and_nothing_acknowledged_is_lost() {
    for_all_kind_pairs(|other| {
        let (near, far) = tcp_pair();
        let near = Arc::new(near);
        let its = near.clone();
        let writer = start(other, move || {
            let mut bytes = PatternBytes::new(8);
            let error = write_until_error(&*its, &mut bytes);
            (error.kind(), bytes.position())
        });
        let its = near.clone();
        let reader = start(other, move || (&*its).read(&mut [0; 9]));
        settle();
        near.close().unwrap();
        let (error, written) = writer.join();
        assert_eq!(error, ErrorKind::NotConnected);
        assert_eq!(kind(reader.join()), ErrorKind::NotConnected);
        let mut bytes = PatternBytes::new(8);
        read_to_end(&far, &mut bytes);
        assert_eq!(bytes.position(), written);
    });
}

#[test]
fn all_calls_on_a_closed_stream_fail() {
    for_all_kind_pairs(|_| {
        let (near, mut far) = tcp_pair();
        near.close().unwrap();
        assert_eq!(far.read(&mut [0; 9]).unwrap(), 0, "the peer sees the end at once");
        let not = ErrorKind::NotConnected;
        assert_eq!(kind((&near).read(&mut [0; 9])), not);
        assert_eq!(kind((&near).write(b"x")), not);
        assert_eq!(kind((&near).write_vectored(&[io::IoSlice::new(b"x")])), not);
        assert_eq!(kind(near.peek(&mut [0; 9])), not);
        assert_eq!(kind(near.shutdown(Shutdown::Both)), not);
        assert_eq!(kind(near.peer_addr()), not);
        assert_eq!(kind(near.nodelay()), not);
        assert_eq!(kind(near.set_nodelay(true)), not);
        assert_eq!(kind(near.set_ttl(9)), not);
        assert_eq!(kind(near.set_linger(None)), not);
        assert_eq!(kind(near.set_read_timeout(Some(MILLI))), not);
        assert!(!format!("{near:?}").is_empty());
    });
}

#[test]
fn connections_to_a_listener_are_refused_when_its_close_returns() {
    for_all_kind_pairs(|other| {
        let listener = Arc::new(TcpListener::bind(unique_host()).unwrap());
        let address = listener.local_addr().unwrap();
        let waiters: Vec<_> = (0..3).map(|_| waits(other, &listener)).collect();
        settle();
        listener.close().unwrap();
        assert_eq!(kind(TcpStream::connect(address)), ErrorKind::ConnectionRefused);
        TcpListener::bind(address).unwrap();
        for waiter in waiters {
            assert_eq!(kind(waiter.join()), ErrorKind::NotConnected);
        }
        let mut incoming = listener.incoming();
        assert_eq!(kind(incoming.next().unwrap()), ErrorKind::NotConnected);
    });
}

#[test]
fn the_linger_option_is_kept_and_zero_linger_resets_the_connection() {
    for_all_kind_pairs(|_| {
        let (near, mut far) = tcp_pair();
        assert_eq!(near.linger().unwrap(), None);
        near.set_linger(Some(Duration::from_secs(5))).unwrap();
        assert_eq!(near.linger().unwrap(), Some(Duration::from_secs(5)));
        near.set_linger(None).unwrap();
        assert_eq!(near.linger().unwrap(), None);
        near.set_linger(Some(Duration::ZERO)).unwrap();
        near.close().unwrap();
        assert_eq!(kind(far.read(&mut [0; 9])), ErrorKind::ConnectionReset);
    });
}
