//! TCP behaves as in std. Each rule is tested in goroutines and in threads, with goroutines and
//! with threads on the other end. Deadlines and `close`, which std does not have, are tested in
//! `net_deadlines.rs`.

use gosched::net::{TcpListener, TcpStream};
use gosched_tests::children;
use gosched_tests::sockets::{
    LOCAL, PatternBytes, echo, for_all_kind_pairs, read_to_end, reset_on_close, start, tcp_pair,
    unique_host, unused_address, write_until_error,
};
use gosched_tests::wait::{LIMIT, settle, until};
use gosched_tests::watched_child::WatchedChild;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

const MILLI: Duration = Duration::from_millis(1);

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> ErrorKind {
    result.expect_err("an error").kind()
}

#[test]
fn an_echo_server_returns_what_is_written() {
    for_all_kind_pairs(|other| {
        let listener = TcpListener::bind(LOCAL).unwrap();
        let address = listener.local_addr().unwrap();
        let server = start(other, move || echo(&listener.accept().unwrap().0));
        let mut client = TcpStream::connect(address).unwrap();
        for text in ["a", "word or two", ""] {
            client.write_all(text.as_bytes()).unwrap();
            let mut back = vec![0; text.len()];
            client.read_exact(&mut back).unwrap();
            assert_eq!(back, text.as_bytes());
        }
        client.flush().unwrap();
        drop(client);
        server.join();
    });
}

#[test]
fn one_party_can_read_while_another_writes_on_the_same_stream() {
    const ALL: usize = 1_000_000;
    for_all_kind_pairs(|other| {
        let (near, far) = tcp_pair();
        let near = Arc::new(near);
        let server = start(other, move || echo(&far));
        let its = near.clone();
        let writer = start(other, move || {
            let mut data = vec![0; ALL];
            PatternBytes::new(1).fill(&mut data);
            (&*its).write_all(&data).unwrap();
            its.shutdown(Shutdown::Write).unwrap();
        });
        let mut bytes = PatternBytes::new(1);
        read_to_end(&*near, &mut bytes);
        assert_eq!(bytes.position(), ALL as u64);
        writer.join();
        server.join();
    });
}

#[test]
fn both_ends_return_both_addresses() {
    for_all_kind_pairs(|_| {
        let listener = TcpListener::bind(LOCAL).unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(address.ip(), Ipv4Addr::LOCALHOST);
        let near = TcpStream::connect(address).unwrap();
        let (far, from) = listener.accept().unwrap();
        assert_eq!(near.peer_addr().unwrap(), address);
        assert_eq!(far.local_addr().unwrap(), address);
        assert_eq!(near.local_addr().unwrap(), from);
        assert_eq!(far.peer_addr().unwrap(), from);
    });
}

#[test]
fn a_peek_waits_for_bytes_and_consumes_none() {
    for_all_kind_pairs(|other| {
        let (near, mut far) = tcp_pair();
        let writer = start(other, move || {
            settle();
            far.write_all(b"abc").unwrap();
            far
        });
        let mut buffer = [0; 10];
        let mut near = near;
        while near.peek(&mut buffer).unwrap() < 3 {}
        assert_eq!(near.peek(&mut buffer[..2]).unwrap(), 2);
        assert_eq!(near.read(&mut buffer).unwrap(), 3);
        assert_eq!(&buffer[..3], b"abc");
        drop(writer.join());
        assert_eq!(near.peek(&mut buffer).unwrap(), 0, "the end");
        assert_eq!(near.read(&mut buffer).unwrap(), 0);
    });
}

#[test]
fn a_half_closed_connection_still_works_the_other_way() {
    for_all_kind_pairs(|other| {
        let (mut near, mut far) = tcp_pair();
        let server = start(other, move || {
            let mut question = String::new();
            far.read_to_string(&mut question).unwrap();
            settle();
            write!(far, "{question}!").unwrap();
        });
        near.write_all(b"question").unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        assert_eq!(kind(near.write(b"more")), ErrorKind::BrokenPipe);
        let mut answer = String::new();
        near.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "question!");
        server.join();
    });
}

#[test]
fn a_local_shutdown_ends_a_waiting_read() {
    for how in [Shutdown::Read, Shutdown::Both] {
        for_all_kind_pairs(move |other| {
            let (near, mut far) = tcp_pair();
            let near = Arc::new(near);
            let its = near.clone();
            let reader = start(other, move || (&*its).read(&mut [0; 10]));
            settle();
            near.shutdown(how).unwrap();
            assert_eq!(reader.join().unwrap(), 0);
            assert_eq!((&*near).read(&mut [0; 10]).unwrap(), 0);
            // After `Shutdown::Read`, both ends can still write.
            if how == Shutdown::Read {
                far.write_all(b"x").unwrap();
                (&*near).write_all(b"y").unwrap();
                assert_eq!(far.read(&mut [0; 10]).unwrap(), 1);
            } else {
                assert_eq!(far.read(&mut [0; 10]).unwrap(), 0);
            }
        });
    }
}

#[test]
fn a_local_shutdown_ends_a_waiting_write() {
    for_all_kind_pairs(|other| {
        let (near, far) = tcp_pair();
        let near = Arc::new(near);
        let its = near.clone();
        let writer = start(other, move || {
            let mut bytes = PatternBytes::new(2);
            (write_until_error(&*its, &mut bytes).kind(), bytes.position())
        });
        settle();
        near.shutdown(Shutdown::Write).unwrap();
        let (error, written) = writer.join();
        assert_eq!(error, ErrorKind::BrokenPipe);
        let mut bytes = PatternBytes::new(2);
        read_to_end(&far, &mut bytes);
        assert!(bytes.position() >= written, "{} of {written}", bytes.position());
    });
}

#[test]
fn a_repeated_shutdown_succeeds_until_the_connection_is_gone() {
    for_all_kind_pairs(|_| {
        let (near, far) = tcp_pair();
        near.shutdown(Shutdown::Read).unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        near.shutdown(Shutdown::Both).unwrap();
        drop(far);
        until("the connection is gone", || near.shutdown(Shutdown::Write).is_err());
        assert_eq!(kind(near.shutdown(Shutdown::Write)), ErrorKind::NotConnected);
    });
}

#[test]
fn empty_reads_and_writes_succeed() {
    for_all_kind_pairs(|_| {
        let (mut near, mut far) = tcp_pair();
        assert_eq!(near.write(&[]).unwrap(), 0);
        far.write_all(b"z").unwrap();
        while near.peek(&mut [0; 1]).unwrap() < 1 {}
        assert_eq!(near.read(&mut []).unwrap(), 0);
        assert_eq!(near.peek(&mut []).unwrap(), 0);
        assert_eq!(near.read(&mut [0; 9]).unwrap(), 1);
        assert_eq!(near.write_vectored(&[]).unwrap(), 0);
        assert_eq!(near.write_vectored(&[IoSlice::new(&[])]).unwrap(), 0);
        drop(far);
        assert_eq!(near.read(&mut []).unwrap(), 0);
        assert_eq!(near.read(&mut [0; 9]).unwrap(), 0, "nothing was written");
    });
}

#[test]
fn vectored_reads_and_writes_keep_the_order_of_their_buffers() {
    for_all_kind_pairs(|other| {
        let (mut near, mut far) = tcp_pair();
        let reader = start(other, move || {
            let (mut one, mut two, mut three) = ([0; 3], [0; 0], [0; 4]);
            let mut slices = [&mut one[..], &mut two, &mut three].map(IoSliceMut::new);
            // The bytes may arrive in several pieces; the first slices are filled first.
            let count = far.read_vectored(&mut slices).unwrap();
            let mut all = [one.as_slice(), &three].concat();
            all.truncate(count);
            far.read_to_end(&mut all).unwrap();
            all
        });
        let pieces: Vec<[u8; 2]> = (0..1500u16).map(u16::to_be_bytes).collect();
        let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        // More slices than the system takes in one call.
        let count = near.write_vectored(&slices).unwrap();
        assert!((1..=3000).contains(&count), "{count}");
        near.write_all(&pieces.concat()[count..]).unwrap();
        drop(near);
        assert_eq!(reader.join(), pieces.concat());
    });
}

#[test]
fn a_clone_is_another_handle_of_the_same_connection() {
    for_all_kind_pairs(|other| {
        let (near, mut far) = tcp_pair();
        let mut clone = near.try_clone().unwrap();
        assert_eq!(clone.local_addr().unwrap(), near.local_addr().unwrap());
        assert_ne!(clone.as_raw_fd(), near.as_raw_fd());
        far.write_all(b"ab").unwrap();
        let mut byte = [0];
        (&near).read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"a");
        clone.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"b");
        drop(near);
        // The connection stays open as long as there is one handle.
        let reader = start(other, move || {
            let mut all = Vec::new();
            far.read_to_end(&mut all).unwrap();
            all
        });
        clone.write_all(b"cd").unwrap();
        drop(clone);
        assert_eq!(reader.join(), b"cd");
    });
}

#[test]
fn a_clone_of_a_listener_accepts_after_the_original_is_dropped() {
    for_all_kind_pairs(|other| {
        let listener = TcpListener::bind(LOCAL).unwrap();
        let clone = listener.try_clone().unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let accepts = start(other, move || clone.accept().unwrap().1);
        let near = TcpStream::connect(address).unwrap();
        assert_eq!(accepts.join(), near.local_addr().unwrap());
    });
}

#[test]
fn tcp_options_are_kept() {
    for_all_kind_pairs(|_| {
        let (near, _far) = tcp_pair();
        for on in [true, false, true] {
            near.set_nodelay(on).unwrap();
            assert_eq!(near.nodelay().unwrap(), on);
        }
        near.set_ttl(77).unwrap();
        assert_eq!(near.ttl().unwrap(), 77);
        assert!(near.take_error().unwrap().is_none());
        let listener = TcpListener::bind(LOCAL).unwrap();
        listener.set_ttl(78).unwrap();
        assert_eq!(listener.ttl().unwrap(), 78);
        assert!(listener.take_error().unwrap().is_none());
        assert_eq!(near.as_fd().as_raw_fd(), near.as_raw_fd());
        assert_eq!(listener.as_fd().as_raw_fd(), listener.as_raw_fd());
    });
}

#[test]
fn sockets_are_not_inherited_by_child_processes() {
    let (near, far) = tcp_pair();
    let listener = TcpListener::bind(LOCAL).unwrap();
    let clone = near.try_clone().unwrap();
    for descriptor in [near.as_fd(), far.as_fd(), listener.as_fd(), clone.as_fd()] {
        // SAFETY: the descriptor is open.
        let flags = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags, libc::FD_CLOEXEC);
    }
}

#[test]
fn connections_without_a_listener_are_refused() {
    for_all_kind_pairs(|_| {
        let (address, _held) = unused_address();
        assert_eq!(kind(TcpStream::connect(address)), ErrorKind::ConnectionRefused);
        let within = TcpStream::connect_timeout(&address, LIMIT);
        assert_eq!(kind(within), ErrorKind::ConnectionRefused);
        let zero = TcpStream::connect_timeout(&address, Duration::ZERO);
        assert_eq!(kind(zero), ErrorKind::InvalidInput);
    });
}

/// Returns how many connections wait to be accepted, and how many may wait before the system drops
/// further requests.
fn backlog(listener: &TcpListener) -> (u32, u32) {
    // SAFETY: all-zero is a valid value of this type.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut size = size_of::<libc::tcp_info>() as libc::socklen_t;
    let fd = listener.as_raw_fd();
    let to = (&raw mut info).cast();
    // SAFETY: `info` has room for `size` bytes.
    let told =
        unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, to, &raw mut size) };
    assert_eq!(told, 0, "{}", io::Error::last_os_error());
    // For a listener, these fields have another meaning than for a connection.
    (info.tcpi_unacked, info.tcpi_sacked)
}

/// Returns a listener whose queue is full, and the connections in the queue.
fn full() -> (TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind(LOCAL).unwrap();
    // SAFETY: the socket is open.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let address = listener.local_addr().unwrap();
    let mut queue: Vec<TcpStream> = Vec::new();
    while backlog(&listener).0 <= backlog(&listener).1 {
        queue.push(TcpStream::connect(address).unwrap());
        until("the connection is queued", || backlog(&listener).0 as usize == queue.len());
    }
    (listener, queue)
}

#[test]
fn an_unanswered_connect_times_out() {
    for_all_kind_pairs(|_| {
        let (listener, _queue) = full();
        let start = Instant::now();
        let result = TcpStream::connect_timeout(&listener.local_addr().unwrap(), 60 * MILLI);
        assert_eq!(kind(result), ErrorKind::TimedOut);
        assert!(start.elapsed() >= 60 * MILLI, "{:?}", start.elapsed());
    });
}

#[test]
fn a_connect_waits_until_it_is_answered() {
    for_all_kind_pairs(|other| {
        let (listener, queue) = full();
        let address = listener.local_addr().unwrap();
        let connects = start(other, move || TcpStream::connect(address).unwrap());
        settle();
        for _ in 0..queue.len() {
            listener.accept().unwrap();
        }
        // The kernel retries the connection request after a second.
        let mut far = listener.accept().unwrap().0;
        let mut near = connects.join();
        near.write_all(b"there").unwrap();
        let mut there = [0; 5];
        far.read_exact(&mut there).unwrap();
        assert_eq!(&there, b"there");
    });
}

#[test]
fn connect_and_bind_resolve_host_names() {
    for_all_kind_pairs(|_| {
        let listener = TcpListener::bind("localhost:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let by_text = TcpStream::connect(format!("localhost:{port}")).unwrap();
        let by_pair = TcpStream::connect(("localhost", port)).unwrap();
        for near in [by_text, by_pair] {
            assert_eq!(near.local_addr().unwrap(), listener.accept().unwrap().1);
        }
    });
}

#[test]
fn connect_and_bind_try_all_addresses() {
    for_all_kind_pairs(|_| {
        let listener = TcpListener::bind(LOCAL).unwrap();
        let (refused, _held) = unused_address();
        let there = listener.local_addr().unwrap();
        let near = TcpStream::connect(&[refused, refused, there][..]).unwrap();
        assert_eq!(near.peer_addr().unwrap(), there);
        let result = TcpStream::connect(&[refused, refused][..]);
        assert_eq!(kind(result), ErrorKind::ConnectionRefused);
        let nowhere: SocketAddr = "192.0.2.1:0".parse().unwrap();
        let bound = TcpListener::bind(&[nowhere, (Ipv4Addr::LOCALHOST, 0).into()][..]).unwrap();
        assert_eq!(bound.local_addr().unwrap().ip(), Ipv4Addr::LOCALHOST);
    });
}

#[test]
fn invalid_host_names_are_refused_as_std_does() {
    for_all_kind_pairs(|_| {
        for name in ["", "no port", "a:99999", "nul\0byte:80", "name.invalid:80", ":80:80"] {
            let expected = kind(std::net::TcpStream::connect(name));
            assert_eq!(kind(TcpStream::connect(name)), expected, "{name:?}");
            assert_eq!(kind(TcpListener::bind(name)), expected, "{name:?}");
        }
        let none: &[SocketAddr] = &[];
        assert_eq!(kind(TcpStream::connect(none)), ErrorKind::InvalidInput);
        assert_eq!(kind(TcpListener::bind(none)), ErrorKind::InvalidInput);
    });
}

#[test]
fn unavailable_addresses_are_refused_as_std_does() {
    for_all_kind_pairs(|_| {
        let listener = TcpListener::bind(LOCAL).unwrap();
        let taken = TcpListener::bind(listener.local_addr().unwrap());
        assert_eq!(kind(taken), ErrorKind::AddrInUse);
        assert_eq!(kind(TcpListener::bind("192.0.2.1:0")), ErrorKind::AddrNotAvailable);
    });
}

#[test]
fn an_address_can_be_bound_again_at_once() {
    for_all_kind_pairs(|_| {
        let listener = TcpListener::bind(unique_host()).unwrap();
        let address = listener.local_addr().unwrap();
        let near = TcpStream::connect(address).unwrap();
        // The end that closes first keeps its address in use for a while.
        drop(listener.accept().unwrap());
        drop(listener);
        assert_eq!((&near).read(&mut [0; 1]).unwrap(), 0);
        drop(near);
        let again = TcpListener::bind(address).unwrap();
        assert_eq!(again.local_addr().unwrap(), address);
    });
}

#[test]
fn several_readers_share_the_incoming_bytes() {
    const READERS: usize = 4;
    for_all_kind_pairs(|other| {
        let (near, mut far) = tcp_pair();
        let near = Arc::new(near);
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                let near = near.clone();
                start(other, move || {
                    let (mut sum, mut buffer) = ([0u64; 256], [0; 70]);
                    loop {
                        let count = (&*near).read(&mut buffer).unwrap();
                        if count == 0 {
                            return sum;
                        }
                        buffer[..count].iter().for_each(|&byte| sum[usize::from(byte)] += 1);
                    }
                })
            })
            .collect();
        let all: Vec<u8> = (0..=255).cycle().take(256 * 100).collect();
        for piece in all.chunks(97) {
            far.write_all(piece).unwrap();
        }
        drop(far);
        let mut sum = [0u64; 256];
        for reader in readers {
            reader.join().iter().zip(&mut sum).for_each(|(part, sum)| *sum += part);
        }
        assert_eq!(sum, [100; 256]);
    });
}

#[test]
fn several_writers_lose_nothing() {
    const WRITERS: u8 = 4;
    for_all_kind_pairs(|other| {
        let (near, mut far) = tcp_pair();
        let near = Arc::new(near);
        let writers: Vec<_> = (0..WRITERS)
            .map(|i| {
                let near = near.clone();
                start(other, move || (&*near).write_all(&vec![i; 200_000]).unwrap())
            })
            .collect();
        drop(near);
        let mut all = Vec::new();
        far.read_to_end(&mut all).unwrap();
        writers.into_iter().for_each(|writer| writer.join());
        for i in 0..WRITERS {
            assert_eq!(all.iter().filter(|&&byte| byte == i).count(), 200_000);
        }
    });
}

#[test]
fn a_reset_ends_a_waiting_read() {
    for_all_kind_pairs(|other| {
        let (near, far) = tcp_pair();
        let reader = start(other, move || {
            let first = kind((&near).read(&mut [0; 10]));
            // The error is returned once; after it, reads return the end of the stream.
            (first, (&near).read(&mut [0; 10]).unwrap(), kind((&near).write(b"x")))
        });
        settle();
        reset_on_close(&far);
        drop(far);
        assert_eq!(reader.join(), (ErrorKind::ConnectionReset, 0, ErrorKind::BrokenPipe));
    });
}

#[test]
fn a_reset_ends_a_waiting_write() {
    for_all_kind_pairs(|other| {
        let (near, far) = tcp_pair();
        let writer =
            start(other, move || write_until_error(&near, &mut PatternBytes::new(3)).kind());
        settle();
        reset_on_close(&far);
        drop(far);
        let error = writer.join();
        assert!(matches!(error, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
    });
}

#[test]
fn writes_to_a_peer_that_is_gone_fail() {
    for_all_kind_pairs(|_| {
        let (near, far) = tcp_pair();
        drop(far);
        let error = write_until_error(&near, &mut PatternBytes::new(3)).kind();
        assert!(matches!(error, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
        assert_eq!(kind((&near).write(b"x")), ErrorKind::BrokenPipe);
    });
}

#[test]
fn nothing_is_lost_to_a_peer_that_begins_to_read_late() {
    const ALL: usize = 8_000_000;
    for_all_kind_pairs(|other| {
        let (near, far) = tcp_pair();
        let writer = start(other, move || {
            let mut data = vec![0; ALL];
            PatternBytes::new(4).fill(&mut data);
            (&near).write_all(&data).unwrap();
        });
        settle();
        assert!(!writer.is_done(), "so much does not fit");
        let mut bytes = PatternBytes::new(4);
        read_to_end(&far, &mut bytes);
        assert_eq!(bytes.position(), ALL as u64);
        writer.join();
    });
}

#[test]
fn a_read_timeout_applies_to_each_call() {
    for_all_kind_pairs(|_| {
        let (near, mut far) = tcp_pair();
        assert_eq!(near.read_timeout().unwrap(), None);
        near.set_read_timeout(Some(40 * MILLI)).unwrap();
        assert_eq!(near.read_timeout().unwrap(), Some(40 * MILLI));
        for _ in 0..2 {
            let start = Instant::now();
            assert_eq!(kind((&near).read(&mut [0; 9])), ErrorKind::WouldBlock);
            assert!(start.elapsed() >= 35 * MILLI, "{:?}", start.elapsed());
        }
        assert_eq!(kind(near.peek(&mut [0; 9])), ErrorKind::WouldBlock);
        far.write_all(b"x").unwrap();
        until("what was written is read", || match (&near).read(&mut [0; 9]) {
            Ok(count) => count == 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                false
            }
        });
        near.set_read_timeout(None).unwrap();
        assert_eq!(near.read_timeout().unwrap(), None);
        assert_eq!(near.write_timeout().unwrap(), None, "it is the other one");
    });
}

#[test]
fn reads_wait_without_limit_after_the_timeout_is_removed() {
    for_all_kind_pairs(|other| {
        let (near, mut far) = tcp_pair();
        near.set_read_timeout(Some(MILLI)).unwrap();
        assert_eq!(kind((&near).read(&mut [0; 9])), ErrorKind::WouldBlock);
        near.set_read_timeout(None).unwrap();
        let reader = start(other, move || (&near).read(&mut [0; 9]).unwrap());
        std::thread::sleep(30 * MILLI);
        assert!(!reader.is_done());
        far.write_all(b"x").unwrap();
        assert_eq!(reader.join(), 1);
    });
}

#[test]
fn the_peer_receives_exactly_the_bytes_acknowledged_before_a_write_timeout() {
    for_all_kind_pairs(|_| {
        let (near, far) = tcp_pair();
        near.set_write_timeout(Some(40 * MILLI)).unwrap();
        assert_eq!(near.write_timeout().unwrap(), Some(40 * MILLI));
        let mut bytes = PatternBytes::new(5);
        assert_eq!(write_until_error(&near, &mut bytes).kind(), ErrorKind::WouldBlock);
        drop(near);
        let mut found = PatternBytes::new(5);
        read_to_end(&far, &mut found);
        assert_eq!(found.position(), bytes.position());
    });
}

#[test]
fn a_zero_timeout_is_refused() {
    for_all_kind_pairs(|_| {
        let (near, _far) = tcp_pair();
        let zero = Some(Duration::ZERO);
        assert_eq!(kind(near.set_read_timeout(zero)), ErrorKind::InvalidInput);
        assert_eq!(kind(near.set_write_timeout(zero)), ErrorKind::InvalidInput);
        assert_eq!(near.read_timeout().unwrap(), None);
        // Very long and very short timeouts are accepted.
        near.set_read_timeout(Some(Duration::MAX)).unwrap();
        near.set_read_timeout(Some(Duration::from_nanos(1))).unwrap();
        assert_eq!(kind((&near).read(&mut [0; 9])), ErrorKind::WouldBlock);
    });
}

#[test]
fn incoming_yields_connections_in_order() {
    const COUNT: usize = 20;
    for_all_kind_pairs(|other| {
        let listener = TcpListener::bind(LOCAL).unwrap();
        let address = listener.local_addr().unwrap();
        let clients = start(other, move || {
            (0..COUNT).for_each(|i| {
                let mut near = TcpStream::connect(address).unwrap();
                near.write_all(&[i as u8]).unwrap();
            });
        });
        for (far, i) in listener.incoming().take(COUNT).zip(0u8..) {
            let mut byte = [0];
            far.unwrap().read_exact(&mut byte).unwrap();
            assert_eq!(byte, [i]);
        }
        clients.join();
    });
}

#[test]
fn several_parties_can_accept_from_one_listener() {
    const COUNT: usize = 40;
    for_all_kind_pairs(|other| {
        let listener = Arc::new(TcpListener::bind(LOCAL).unwrap());
        let address = listener.local_addr().unwrap();
        let servers: Vec<_> = (0..4)
            .map(|_| {
                let listener = listener.clone();
                start(other, move || {
                    (0..COUNT / 4).map(|_| listener.accept().unwrap().1).collect::<Vec<_>>()
                })
            })
            .collect();
        let clients: Vec<_> = (0..COUNT).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut known: Vec<_> = clients.iter().map(|near| near.local_addr().unwrap()).collect();
        let mut accepted: Vec<_> = servers.into_iter().flat_map(|server| server.join()).collect();
        known.sort();
        accepted.sort();
        assert_eq!(accepted, known);
    });
}

#[test]
fn a_client_that_resets_before_it_is_accepted_does_no_harm() {
    for_all_kind_pairs(|_| {
        let listener = TcpListener::bind(LOCAL).unwrap();
        let address = listener.local_addr().unwrap();
        let gone = TcpStream::connect(address).unwrap();
        reset_on_close(&gone);
        drop(gone);
        let stays = TcpStream::connect(address).unwrap();
        // Linux accepts the connection that is gone; other systems report that it was aborted.
        let mut results = (0..2).map(|_| listener.accept().map(|(_, from)| from));
        let found = results.any(|from| from.ok() == Some(stays.local_addr().unwrap()));
        assert!(found);
    });
}

#[test]
fn dropping_a_listener_resets_connections_that_were_not_accepted() {
    for_all_kind_pairs(|_| {
        let listener = TcpListener::bind(LOCAL).unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        drop(listener);
        assert_eq!(kind(near.read(&mut [0; 9])), ErrorKind::ConnectionReset);
    });
}

/// Runs a scenario in a child process.
#[test]
fn child() {
    match children::scenario().as_deref() {
        Some("broken pipe") => broken_pipe(),
        Some("alone") => alone(),
        Some("signals") => signals(),
        _ => (),
    }
}

fn passes(scenario: &str) -> String {
    let output = children::run(scenario);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{:?}: {text}{}", output.status, children::stderr(&output));
    text
}

/// Writes to closed connections, in a process that SIGPIPE would kill.
fn broken_pipe() {
    // SAFETY: sets the default action.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    for_all_kind_pairs(|_| {
        let (near, far) = tcp_pair();
        drop(far);
        write_until_error(&near, &mut PatternBytes::new(3));
        assert_eq!(kind((&near).write(b"x")), ErrorKind::BrokenPipe);
    });
    println!("lives");
}

#[test]
fn a_write_to_a_closed_connection_raises_no_signal() {
    assert!(passes("broken pipe").contains("lives"));
}

/// The bench `limits` measures the cost of the retries.
#[test]
fn a_listener_survives_the_lack_of_descriptors_without_spinning() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_net_program"));
    command.arg("no descriptors");
    let (status, said) = WatchedChild::start(command).wait_for_exit();
    assert!(status.success(), "{status:?}: {}{}", said.out, said.err);
    assert!(said.out.contains("failures"), "{}", said.out);
}

/// The only goroutine waits for a connection from an ordinary thread.
fn alone() {
    let address = gosched::run(|| {
        let listener = TcpListener::bind(LOCAL).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            std::thread::sleep(300 * MILLI);
            std::net::TcpStream::connect(address).unwrap();
        });
        assert_eq!((&listener.accept().unwrap().0).read(&mut [0; 9]).unwrap(), 0);
        address
    });
    println!("served {address}");
}

#[test]
fn waiting_for_a_connection_is_not_a_deadlock() {
    assert!(passes("alone").contains("served"));
}

/// Uses connections while all threads get signals, whose handler interrupts system calls.
fn signals() {
    extern "C" fn handler(_: i32) {}
    // SAFETY: all-zero is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_ONSTACK;
    // SAFETY: the handler does nothing.
    unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) };
    let over = Arc::new(AtomicBool::new(false));
    let its = over.clone();
    let storm = std::thread::spawn(move || {
        while !its.load(SeqCst) {
            for thread in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
                let thread: i32 = thread.file_name().to_str().unwrap().parse().unwrap();
                // SAFETY: a signal with a handler. If the thread is gone, the call returns an
                // error.
                unsafe {
                    libc::syscall(libc::SYS_tgkill, std::process::id(), thread, libc::SIGUSR1)
                };
            }
            std::thread::sleep(MILLI / 10);
        }
    });
    for_all_kind_pairs(|other| {
        let listener = TcpListener::bind(LOCAL).unwrap();
        let address = listener.local_addr().unwrap();
        for i in 0..20 {
            let client = start(other, move || {
                let mut near = TcpStream::connect(address).unwrap();
                std::thread::sleep(MILLI);
                near.write_all(&[i; 100]).unwrap();
                near.read_exact(&mut [0; 100]).unwrap();
            });
            // A signal ends neither `accept` nor `connect`. It may end a read, as in std.
            let (mut far, _) = listener.accept().unwrap();
            let mut buffer = [0; 100];
            far.read_exact(&mut buffer).unwrap();
            std::thread::sleep(MILLI);
            far.write_all(&buffer).unwrap();
            client.join();
        }
    });
    over.store(true, SeqCst);
    storm.join().unwrap();
    println!("all came through");
}

#[test]
fn signals_do_not_end_accept_or_connect() {
    assert!(passes("signals").contains("all came through"));
}
