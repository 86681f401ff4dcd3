//! Regression tests for corner cases of sockets.

use gosched::net::{TcpStream, UnixDatagram};
use gosched::{go, time};
use gosched_tests::sockets::{Spawned, for_all_kind_pairs, start, tcp_pair, unique_name};
use gosched_tests::wait::{LIMIT, settle, until};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const MILLI: Duration = Duration::from_millis(1);

fn pair() -> (TcpStream, std::net::TcpStream) {
    let (near, far) = tcp_pair();
    (near, far.into_std().unwrap())
}

/// After a read has drained the socket, the next read waits before it tries the system call. If
/// that read fails by its deadline, later reads must not miss bytes that arrived meanwhile.
#[test]
fn data_that_arrives_after_the_deadline_is_read_later() {
    for_all_kind_pairs(|_| {
        let (mut near, mut far) = pair();
        let mut bytes = [0; 100];
        far.write_all(b"abc").unwrap();
        assert_eq!(near.read(&mut bytes).unwrap(), 3);
        near.set_read_deadline(Some(Instant::now())).unwrap();
        far.write_all(b"def").unwrap();
        time::sleep(10 * MILLI);
        assert_eq!(near.read(&mut bytes).unwrap_err().kind(), ErrorKind::TimedOut);
        near.set_read_deadline(None).unwrap();
        let reader = go(move || near.read(&mut bytes).unwrap());
        assert_eq!(Spawned::from_handle(reader).join(), 3);
    });
}

#[test]
fn data_that_arrives_just_as_a_read_times_out_is_read_later() {
    const ROUNDS: u64 = 400;
    let (mut near, mut far) = pair();
    near.set_read_timeout(Some(MILLI)).unwrap();
    let sent = Arc::new(AtomicU64::new(0));
    let (tx, rx) = mpsc::channel::<Duration>();
    let its_sent = sent.clone();
    let sender = std::thread::spawn(move || {
        for pause in rx {
            std::thread::sleep(pause);
            far.write_all(b"x").unwrap();
            its_sent.fetch_add(1, SeqCst);
        }
    });
    let reader = go(move || {
        for round in 0..ROUNDS {
            tx.send(Duration::from_micros(800 + round * 7 % 300)).unwrap();
            let mut sent_since = None;
            while let Err(why) = near.read(&mut [0; 100]) {
                assert_eq!(why.kind(), ErrorKind::WouldBlock);
                if sent.load(SeqCst) > round {
                    let since = *sent_since.get_or_insert_with(Instant::now);
                    assert!(since.elapsed() < LIMIT, "round {round}: sent, and cannot be read");
                }
            }
        }
    });
    reader.join().unwrap();
    sender.join().unwrap();
}

#[test]
fn a_read_timeout_applies_to_the_whole_read() {
    let (mut near, mut far) = pair();
    far.write_all(b"abc").unwrap();
    assert_eq!(near.read(&mut [0; 100]).unwrap(), 3);
    // A slow machine may be late by as much as the limit, but not for every limit.
    let mut limit = 50 * MILLI;
    until("a read ends before its time limit is over twice", || {
        near.set_read_timeout(Some(limit)).unwrap();
        let start = Instant::now();
        assert_eq!((&near).read(&mut [0; 100]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(start.elapsed() >= limit, "{:?}", start.elapsed());
        let is_in_time = start.elapsed() < 2 * limit;
        limit *= 2;
        is_in_time
    });
}

/// The kernel reports a Unix datagram socket as writable even right after a send to a full receiver
/// has failed. The bench `limits` measures the cost of a waiting send.
#[test]
fn a_datagram_to_a_full_receiver_waits_until_there_is_room() {
    for_all_kind_pairs(|other| {
        let path = std::env::temp_dir().join(unique_name());
        let slow = UnixDatagram::bind(&path).unwrap();
        let full = std::os::unix::net::UnixDatagram::unbound().unwrap();
        full.set_nonblocking(true).unwrap();
        while full.send_to(b"full", &path).is_ok() {}
        let its_path = path.clone();
        let sender = start(other, move || {
            UnixDatagram::unbound().unwrap().send_to(b"hello", &its_path).unwrap()
        });
        settle();
        assert!(!sender.is_done());
        let mut bytes = [0; 9];
        while slow.recv(&mut bytes).unwrap() != 5 {}
        assert_eq!(sender.join(), 5);
        std::fs::remove_file(&path).unwrap();
    });
}

#[test]
fn a_datagram_send_without_room_ends_by_deadline_timeout_or_close() {
    let path = std::env::temp_dir().join(unique_name());
    let _slow = UnixDatagram::bind(&path).unwrap();
    let sender = Arc::new(UnixDatagram::unbound().unwrap());
    sender.set_write_timeout(Some(5 * MILLI)).unwrap();
    let error = loop {
        if let Err(why) = sender.send_to(b"full", &path) {
            break why;
        }
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    sender.set_write_timeout(None).unwrap();
    sender.set_write_deadline(Some(Instant::now() + 5 * MILLI)).unwrap();
    assert_eq!(sender.send_to(b"x", &path).unwrap_err().kind(), ErrorKind::TimedOut);
    sender.set_write_deadline(None).unwrap();
    let (its, its_path) = (sender.clone(), path.clone());
    let waits = go(move || its.send_to(b"x", &its_path).unwrap_err().kind());
    time::sleep(5 * MILLI);
    sender.close().unwrap();
    assert_eq!(Spawned::from_handle(waits).join(), ErrorKind::NotConnected);
    std::fs::remove_file(&path).unwrap();
}

/// A forked child shares its parent's poller, and must not change what is registered there.
#[test]
fn a_forked_child_that_drops_a_socket_does_not_affect_its_parent() {
    let (mut near, mut far) = pair();
    // SAFETY: the child only closes its descriptors, and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(near);
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    until("the child has ended", || {
        // SAFETY: `status` is valid for writes.
        let ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        assert!([0, child].contains(&ended), "{}", std::io::Error::last_os_error());
        ended == child
    });
    assert_eq!(status, 0);
    let reader = go(move || near.read(&mut [0; 8]).unwrap());
    time::sleep(5 * MILLI);
    far.write_all(b"hi").unwrap();
    assert_eq!(Spawned::from_handle(reader).join(), 2);
}

#[test]
fn the_number_of_a_borrowed_descriptor_is_not_reused_when_the_socket_is_closed() {
    let (near, _far) = pair();
    let lent = near.as_fd();
    let number = lent.as_raw_fd();
    near.close().unwrap();
    // No new socket gets the same descriptor number.
    let others: Vec<_> = (0..20).map(|_| pair()).collect();
    assert!(
        others
            .iter()
            .all(|(one, other)| { one.as_raw_fd() != number && other.as_raw_fd() != number })
    );
    let mut byte = 0u8;
    // SAFETY: `byte` is valid for a write of one byte.
    assert_eq!(unsafe { libc::read(number, (&raw mut byte).cast(), 1) }, -1);
    let later = near.as_fd().as_raw_fd();
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::listen(later, 1) }, -1);
    drop(near);
}
