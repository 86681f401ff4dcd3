//! UDP sockets, Unix sockets and host lookups behave as in std. Deadlines and `close` of these
//! sockets are tested in `net_deadlines.rs`.

use gosched::net::{TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream, lookup_host};
use gosched_tests::sockets::{
    PatternBytes, for_all_kind_pairs, read_to_end, start, unique_host, unique_name, unused_address,
    write_until_error,
};
use gosched_tests::wait::{settle, until};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const MILLI: Duration = Duration::from_millis(1);

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> ErrorKind {
    result.expect_err("an error").kind()
}

fn code<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    let error = result.expect_err("an error");
    error.raw_os_error().unwrap_or_else(|| panic!("not the system's: {error}"))
}

/// Returns a socket, and its address, which no other socket gets even after this one is dropped.
fn udp() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(unique_host()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

fn udp_pair() -> (UdpSocket, UdpSocket) {
    let ((one, its), (two, other)) = (udp(), udp());
    one.connect(other).unwrap();
    two.connect(its).unwrap();
    (one, two)
}

fn abstract_address() -> UnixAddr {
    UnixAddr::from_abstract_name(unique_name()).unwrap()
}

/// A path for a socket. The file is removed when this value is dropped.
struct TempPath(PathBuf);

impl TempPath {
    fn new() -> TempPath {
        TempPath(std::env::temp_dir().join(unique_name()))
    }
}

impl AsRef<Path> for TempPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn datagrams_arrive_one_by_one_with_their_sender() {
    for_all_kind_pairs(|other| {
        let ((near, its), (far, there)) = (udp(), udp());
        let echo = start(other, move || {
            let mut buffer = [0; 100];
            for _ in 0..3 {
                let (count, from) = far.recv_from(&mut buffer).unwrap();
                assert_eq!(from, its);
                assert_eq!(far.send_to(&buffer[..count], from).unwrap(), count);
            }
        });
        let mut buffer = [0; 100];
        for text in ["one", "", "three"] {
            assert_eq!(near.send_to(text.as_bytes(), there).unwrap(), text.len());
            assert_eq!(near.recv_from(&mut buffer).unwrap(), (text.len(), there));
            assert_eq!(&buffer[..text.len()], text.as_bytes());
        }
        echo.join();
    });
}

#[test]
fn an_empty_datagram_is_delivered() {
    for_all_kind_pairs(|other| {
        let (near, far) = udp_pair();
        let reader = start(other, move || {
            let first = far.recv(&mut [0; 9]).unwrap();
            (first, far.recv(&mut [0; 9]).unwrap(), far.recv(&mut []).unwrap())
        });
        settle();
        assert_eq!(near.send(&[]).unwrap(), 0);
        near.send(b"ab").unwrap();
        near.send(b"lost").unwrap();
        assert_eq!(reader.join(), (0, 2, 0));
    });
}

#[test]
fn the_part_of_a_datagram_that_does_not_fit_is_lost() {
    for_all_kind_pairs(|_| {
        let (near, far) = udp_pair();
        near.send(b"abcdef").unwrap();
        near.send(b"next").unwrap();
        let mut buffer = [0; 4];
        assert_eq!(far.peek(&mut buffer[..2]).unwrap(), 2);
        assert_eq!(far.peek_from(&mut buffer).unwrap(), (4, near.local_addr().unwrap()));
        assert_eq!(far.recv(&mut buffer).unwrap(), 4);
        assert_eq!(&buffer, b"abcd");
        assert_eq!(far.recv(&mut buffer).unwrap(), 4);
        assert_eq!(&buffer, b"next");
        assert_eq!(code(near.send(&[0; 70_000])), libc::EMSGSIZE);
    });
}

#[test]
fn a_connected_socket_receives_only_from_its_peer() {
    for_all_kind_pairs(|_| {
        let (near, far) = udp_pair();
        let (stranger, _) = udp();
        let here = near.local_addr().unwrap();
        stranger.send_to(b"stranger", here).unwrap();
        far.send(b"peer").unwrap();
        let mut buffer = [0; 100];
        assert_eq!(near.recv(&mut buffer).unwrap(), 4);
        assert_eq!(near.peer_addr().unwrap(), far.local_addr().unwrap());
        assert_eq!(kind(stranger.peer_addr()), ErrorKind::NotConnected);
        assert_eq!(code(stranger.send(b"x")), libc::EDESTADDRREQ);
        assert_eq!(kind(stranger.send_to(b"x", &[][..])), ErrorKind::InvalidInput);
    });
}

#[test]
fn a_vanished_peer_is_reported_to_senders_and_waiting_receivers() {
    for_all_kind_pairs(|other| {
        let (near, far) = udp_pair();
        let near = Arc::new(near);
        drop(far);
        near.send(b"x").unwrap();
        assert_eq!(kind(near.recv(&mut [0; 9])), ErrorKind::ConnectionRefused);
        let its = near.clone();
        let reader = start(other, move || its.recv(&mut [0; 9]));
        settle();
        // The kernel reports each error once. If this sender gets an error, the reader gets a
        // later one.
        let told = (0..).map(|_| near.send(b"x")).take_while(|_| !reader.is_done());
        for told in told {
            assert!(told.as_ref().err().is_none_or(|e| e.kind() == ErrorKind::ConnectionRefused));
            settle();
        }
        assert_eq!(kind(reader.join()), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn take_error_returns_an_error_once() {
    for_all_kind_pairs(|_| {
        let (near, far) = udp_pair();
        drop(far);
        near.send(b"x").unwrap();
        let mut error = None;
        until("the error has come", || {
            error = near.take_error().unwrap();
            error.is_some()
        });
        assert_eq!(error.unwrap().kind(), ErrorKind::ConnectionRefused);
        assert!(near.take_error().unwrap().is_none());
    });
}

#[test]
fn several_receivers_share_the_datagrams_of_one_socket() {
    const EACH: usize = 20;
    for_all_kind_pairs(|other| {
        let (near, far) = udp_pair();
        let far = Arc::new(far);
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let far = far.clone();
                start(other, move || {
                    (0..EACH)
                        .map(|_| {
                            let mut byte = [0; 2];
                            assert_eq!(far.recv(&mut byte).unwrap(), 1);
                            byte[0]
                        })
                        .collect::<Vec<u8>>()
                })
            })
            .collect();
        for i in 0..4 * EACH as u8 {
            near.send(&[i]).unwrap();
        }
        let mut all: Vec<u8> = readers.into_iter().flat_map(|reader| reader.join()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..4 * EACH as u8).collect::<Vec<_>>());
    });
}

#[test]
fn datagram_options_and_timeouts_are_kept() {
    for_all_kind_pairs(|_| {
        let (near, far) = udp_pair();
        near.set_ttl(70).unwrap();
        assert_eq!(near.ttl().unwrap(), 70);
        near.set_broadcast(true).unwrap();
        assert!(near.broadcast().unwrap());
        near.set_multicast_loop_v4(false).unwrap();
        assert!(!near.multicast_loop_v4().unwrap());
        near.set_multicast_ttl_v4(3).unwrap();
        assert_eq!(near.multicast_ttl_v4().unwrap(), 3);
        let not_a_group = near.join_multicast_v4(&Ipv4Addr::LOCALHOST, &Ipv4Addr::LOCALHOST);
        assert_eq!(kind(not_a_group), ErrorKind::InvalidInput);
        assert_eq!(near.as_fd().as_raw_fd(), near.as_raw_fd());
        near.set_read_timeout(Some(20 * MILLI)).unwrap();
        assert_eq!(near.read_timeout().unwrap(), Some(20 * MILLI));
        assert_eq!(kind(near.recv(&mut [0; 9])), ErrorKind::WouldBlock);
        assert_eq!(kind(near.peek_from(&mut [0; 9])), ErrorKind::WouldBlock);
        assert_eq!(kind(near.set_write_timeout(Some(Duration::ZERO))), ErrorKind::InvalidInput);
        near.set_read_timeout(None).unwrap();
        let clone = far.try_clone().unwrap();
        drop(far);
        clone.send(b"x").unwrap();
        assert_eq!(near.recv(&mut [0; 9]).unwrap(), 1);
    });
}

#[test]
fn a_listener_has_a_path_and_its_clients_have_none() {
    for_all_kind_pairs(|other| {
        let place = TempPath::new();
        let listener = UnixListener::bind(&place).unwrap();
        assert_eq!(listener.local_addr().unwrap().as_pathname(), Some(place.as_ref()));
        assert_eq!(kind(UnixListener::bind(&place)), ErrorKind::AddrInUse);
        let server = start(other, move || {
            let (mut far, from) = listener.accept().unwrap();
            assert!(from.is_unnamed());
            let mut text = String::new();
            far.read_to_string(&mut text).unwrap();
            far.write_all(text.to_uppercase().as_bytes()).unwrap();
        });
        let mut near = UnixStream::connect(&place).unwrap();
        assert!(near.local_addr().unwrap().is_unnamed());
        assert_eq!(near.peer_addr().unwrap().as_pathname(), Some(place.as_ref()));
        near.write_all(b"text").unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        assert_eq!(kind(near.write(b"more")), ErrorKind::BrokenPipe);
        let mut text = String::new();
        near.read_to_string(&mut text).unwrap();
        assert_eq!(text, "TEXT");
        server.join();
    });
}

#[test]
fn a_listener_may_have_an_abstract_name() {
    for_all_kind_pairs(|other| {
        let address = abstract_address();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let found = listener.local_addr().unwrap();
        assert_eq!(found.as_abstract_name(), address.as_abstract_name());
        let its = address.clone();
        let client = start(other, move || {
            for i in 0..3 {
                UnixStream::connect_addr(&its).unwrap().write_all(&[i]).unwrap();
            }
        });
        for (far, i) in listener.incoming().take(3).zip(0..) {
            let mut all = Vec::new();
            far.unwrap().read_to_end(&mut all).unwrap();
            assert_eq!(all, [i]);
        }
        client.join();
        drop(listener);
        assert_eq!(kind(UnixStream::connect_addr(&address)), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn paths_that_are_no_sockets_are_refused_as_std_does() {
    for_all_kind_pairs(|_| {
        let place = TempPath::new();
        assert_eq!(kind(UnixStream::connect(&place)), ErrorKind::NotFound);
        drop(UnixListener::bind(&place).unwrap());
        assert_eq!(kind(UnixStream::connect(&place)), ErrorKind::ConnectionRefused);
        let long = "x".repeat(200);
        assert_eq!(kind(UnixStream::connect(&long)), ErrorKind::InvalidInput);
        assert_eq!(kind(UnixListener::bind(&long)), ErrorKind::InvalidInput);
        assert_eq!(kind(UnixStream::connect("nul\0byte")), ErrorKind::InvalidInput);
    });
}

/// For a full queue, the kernel fails a non-blocking connect at once. `connect` must wait instead.
#[test]
fn a_connect_waits_for_room_in_the_queue_of_a_listener() {
    for_all_kind_pairs(|other| {
        let address = abstract_address();
        let listener = UnixListener::bind_addr(&address).unwrap();
        // SAFETY: the socket is open.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let clients: Vec<_> = (0..5u8)
            .map(|i| {
                let address = address.clone();
                start(other, move || {
                    UnixStream::connect_addr(&address).unwrap().write_all(&[i]).unwrap();
                })
            })
            .collect();
        settle();
        let mut found: Vec<u8> = (0..5)
            .map(|_| {
                let mut byte = [0];
                listener.accept().unwrap().0.read_exact(&mut byte).unwrap();
                byte[0]
            })
            .collect();
        clients.into_iter().for_each(|client| client.join());
        found.sort_unstable();
        assert_eq!(found, [0, 1, 2, 3, 4]);
    });
}

#[test]
fn a_pair_of_streams_is_a_connection() {
    const ALL: usize = 1_000_000;
    for_all_kind_pairs(|other| {
        let (near, far) = UnixStream::pair().unwrap();
        assert!(near.local_addr().unwrap().is_unnamed());
        assert!(near.peer_addr().unwrap().is_unnamed());
        let near = Arc::new(near);
        let echo = start(other, move || {
            let mut buffer = [0; 5000];
            loop {
                match (&far).read(&mut buffer).unwrap() {
                    0 => return,
                    count => (&far).write_all(&buffer[..count]).unwrap(),
                }
            }
        });
        let its = near.clone();
        let writer = start(other, move || {
            let mut data = vec![0; ALL];
            PatternBytes::new(1).fill(&mut data);
            let count = (&*its).write_vectored(&[IoSlice::new(&data[..10])]).unwrap();
            (&*its).write_all(&data[count..]).unwrap();
            its.shutdown(Shutdown::Write).unwrap();
        });
        let mut bytes = PatternBytes::new(1);
        read_to_end(&*near, &mut bytes);
        assert_eq!(bytes.position(), ALL as u64);
        writer.join();
        echo.join();
    });
}

#[test]
fn a_unix_stream_reports_timeouts_and_a_lost_peer() {
    for_all_kind_pairs(|other| {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_read_timeout(Some(20 * MILLI)).unwrap();
        assert_eq!(near.read_timeout().unwrap(), Some(20 * MILLI));
        assert_eq!(kind((&near).read(&mut [0; 9])), ErrorKind::WouldBlock);
        near.set_write_timeout(Some(20 * MILLI)).unwrap();
        let mut bytes = PatternBytes::new(2);
        assert_eq!(write_until_error(&near, &mut bytes).kind(), ErrorKind::WouldBlock);
        near.set_write_timeout(None).unwrap();
        let writer =
            start(other, move || write_until_error(&near, &mut PatternBytes::new(2)).kind());
        settle();
        drop(far);
        assert_eq!(writer.join(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_pair_of_datagram_sockets_keeps_messages_apart() {
    for_all_kind_pairs(|other| {
        let (near, far) = UnixDatagram::pair().unwrap();
        let reader = start(other, move || {
            let mut buffer = [0; 4];
            let counts = [(); 3].map(|()| far.recv(&mut buffer).unwrap());
            (counts, buffer)
        });
        settle();
        for text in ["abcdef", "", "xy"] {
            assert_eq!(near.send(text.as_bytes()).unwrap(), text.len());
        }
        assert_eq!(reader.join(), ([4, 0, 2], *b"xycd"));
        assert_eq!(kind(near.send(b"gone")), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn datagrams_go_to_paths_and_names() {
    for_all_kind_pairs(|other| {
        let place = TempPath::new();
        let far = UnixDatagram::bind(&place).unwrap();
        let address = abstract_address();
        let near = UnixDatagram::bind_addr(&address).unwrap();
        let nameless = UnixDatagram::unbound().unwrap();
        assert!(nameless.local_addr().unwrap().is_unnamed());
        assert_eq!(kind(nameless.send(b"x")), ErrorKind::NotConnected);
        let reader = start(other, move || {
            let mut buffer = [0; 9];
            let (one, from) = far.recv_from(&mut buffer).unwrap();
            let (two, nobody) = far.recv_from(&mut buffer).unwrap();
            assert!(nobody.is_unnamed());
            far.send_to_addr(b"back", &from).unwrap();
            (one, two)
        });
        assert_eq!(near.send_to(b"one", &place).unwrap(), 3);
        nameless.connect(&place).unwrap();
        assert_eq!(nameless.peer_addr().unwrap().as_pathname(), Some(place.as_ref()));
        nameless.send(b"tw").unwrap();
        assert_eq!(near.recv(&mut [0; 9]).unwrap(), 4);
        assert_eq!(reader.join(), (3, 2));
        assert_eq!(kind(near.send_to(b"x", &place)), ErrorKind::ConnectionRefused);
    });
}

/// A Unix socket refuses more datagrams than its peer has room for.
#[test]
fn a_datagram_waits_for_room_and_none_is_lost() {
    const COUNT: u32 = 2000;
    for_all_kind_pairs(|other| {
        let (near, far) = UnixDatagram::pair().unwrap();
        let writer = start(other, move || {
            for i in 0..COUNT {
                assert_eq!(near.send(&i.to_be_bytes()).unwrap(), 4);
            }
        });
        settle();
        assert!(!writer.is_done(), "so many do not fit");
        for i in 0..COUNT {
            let mut number = [0; 4];
            assert_eq!(far.recv(&mut number).unwrap(), 4);
            assert_eq!(u32::from_be_bytes(number), i);
        }
        writer.join();
    });
}

/// All senders send to one socket, and each waits for room in its queue.
#[test]
fn datagrams_of_many_senders_wait_for_room_in_one_receiver() {
    const EACH: usize = 200;
    for_all_kind_pairs(|other| {
        let address = abstract_address();
        let far = UnixDatagram::bind_addr(&address).unwrap();
        let senders: Vec<_> = (0..4u8)
            .map(|i| {
                let address = address.clone();
                start(other, move || {
                    let near = UnixDatagram::unbound().unwrap();
                    near.connect_addr(&address).unwrap();
                    for _ in 0..EACH {
                        near.send(&[i]).unwrap();
                    }
                })
            })
            .collect();
        settle();
        let mut counts = [0; 4];
        for _ in 0..4 * EACH {
            let mut byte = [0];
            far.recv(&mut byte).unwrap();
            counts[usize::from(byte[0])] += 1;
        }
        senders.into_iter().for_each(|sender| sender.join());
        assert_eq!(counts, [EACH; 4]);
    });
}

#[test]
fn a_shutdown_ends_a_waiting_receive() {
    for_all_kind_pairs(|other| {
        let (near, _far) = UnixDatagram::pair().unwrap();
        let near = Arc::new(near);
        let its = near.clone();
        let reader = start(other, move || its.recv(&mut [0; 9]));
        settle();
        near.shutdown(Shutdown::Both).unwrap();
        assert_eq!(reader.join().unwrap(), 0);
        assert_eq!(kind(near.send(b"x")), ErrorKind::BrokenPipe);
    });
}

#[test]
fn hosts_are_looked_up_as_std_does() {
    for_all_kind_pairs(|_| {
        for host in ["localhost:80", "127.0.0.1:7", "[::1]:9"] {
            let found: Vec<SocketAddr> = lookup_host(host).unwrap().collect();
            let expected: Vec<SocketAddr> = host.to_socket_addrs().unwrap().collect();
            assert_eq!(found, expected, "{host}");
            assert!(!found.is_empty());
        }
        for host in ["localhost", "", "a:b", "name.invalid:80", "nul\0:80", ":99999"] {
            let error = lookup_host(host).map(Iterator::count);
            assert_eq!(kind(error), kind(host.to_socket_addrs()), "{host:?}");
        }
    });
}

/// A lookup may take long. Other goroutines and threads continue meanwhile.
#[test]
fn many_host_lookups_run_at_once() {
    for_all_kind_pairs(|other| {
        let all: Vec<_> = (0..30)
            .map(|i| {
                start(other, move || lookup_host(&format!("localhost:{}", i + 1)).unwrap().count())
            })
            .collect();
        assert!(all.into_iter().all(|one| one.join() > 0));
        let (address, _held) = unused_address();
        let refused = TcpStream::connect(("localhost", address.port()));
        assert_eq!(kind(refused), ErrorKind::ConnectionRefused);
    });
}
