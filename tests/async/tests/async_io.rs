//! Sockets in async code: `gosched::hyper::Stream` under `block_on`, tokio and smol. Covers wakers
//! that change, streams that are dropped or forgotten, deadlines, and close.

use gosched::hyper::{Executor, Stream, Timer};
use gosched::net::TcpStream;
use gosched::{block_on, go};
use gosched_async_tests::{CountingWaker, for_each_executor};
use gosched_tests::sockets::tcp_pair;
use gosched_tests::wait::{settle, until};
use hyper::rt::{self, Executor as _, ReadBuf, Timer as _};
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Runs `f` under `block_on` in a goroutine, and under tokio and smol.
fn under_all<F: Future<Output = ()> + Send + 'static>(f: fn() -> F) {
    gosched::run(|| block_on(f()));
    for_each_executor(|run| run(vec![Box::pin(f()), Box::pin(f())]));
}

const MILLI: Duration = Duration::from_millis(1);

/// Returns both ends of a connection.
fn pair() -> (Stream, TcpStream) {
    let (near, far) = tcp_pair();
    (Stream::new(near), far)
}

/// Polls a read once.
fn poll_read(
    stream: &mut Stream,
    context: &mut Context<'_>,
    bytes: &mut [u8],
) -> Poll<io::Result<usize>> {
    let mut buffer = ReadBuf::new(bytes);
    let read = rt::Read::poll_read(Pin::new(stream), context, buffer.unfilled());
    read.map_ok(|()| buffer.filled().len())
}

async fn read(stream: &mut Stream, bytes: &mut [u8]) -> io::Result<usize> {
    poll_fn(|context| poll_read(stream, context, bytes)).await
}

async fn read_exact(stream: &mut Stream, bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        match read(stream, &mut bytes[filled..]).await? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    Ok(())
}

async fn write_all(stream: &mut Stream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let write =
            |context: &mut Context<'_>| rt::Write::poll_write(Pin::new(stream), context, bytes);
        bytes = &bytes[poll_fn(write).await?..];
    }
    Ok(())
}

/// Returns the numbers below `count` as bytes.
fn numbers(count: usize) -> Vec<u8> {
    (0..count).flat_map(|number| (number as u32).to_le_bytes()).collect()
}

#[test]
fn bytes_go_both_ways_under_every_executor() {
    under_all(|| async {
        let (mut stream, mut far) = pair();
        let echo = go(move || {
            let mut byte = [0];
            while far.read(&mut byte).unwrap() == 1 {
                far.write_all(&byte).unwrap();
            }
        });
        for byte in 0..200 {
            write_all(&mut stream, &[byte]).await.unwrap();
            let mut answer = [0; 9];
            // The buffer is larger than the data: after such a read, the next read waits without a
            // system call first.
            assert_eq!(read(&mut stream, &mut answer).await.unwrap(), 1);
            assert_eq!(answer[0], byte);
        }
        drop(stream);
        echo.join().unwrap();
    });
}

#[test]
fn megabytes_are_written_to_a_peer_that_begins_to_read_late() {
    under_all(|| async {
        let (mut stream, mut far) = pair();
        let sent = numbers(2_000_000);
        let expected = sent.clone();
        let reader = go(move || {
            settle();
            let mut all = Vec::new();
            far.read_to_end(&mut all).unwrap();
            assert!(all == expected);
        });
        write_all(&mut stream, &sent).await.unwrap();
        drop(stream);
        reader.join().unwrap();
    });
}

#[test]
fn end_of_file_is_read_after_the_last_bytes_whenever_the_peer_closes() {
    under_all(|| async {
        for waits in [false, true] {
            let (mut stream, mut far) = pair();
            let other = go(move || {
                far.write_all(b"last").unwrap();
                if waits {
                    settle();
                }
            });
            let mut bytes = [0; 100];
            let mut count = 0;
            loop {
                match read(&mut stream, &mut bytes).await.unwrap() {
                    0 => break,
                    some => count += some,
                }
            }
            assert_eq!(count, 4);
            assert_eq!(read(&mut stream, &mut bytes).await.unwrap(), 0, "it stays");
            other.join().unwrap();
        }
    });
}

#[test]
fn a_stream_wakes_only_its_last_waker() {
    let (mut stream, mut far) = pair();
    let bells = [CountingWaker::new(), CountingWaker::new()];
    let mut bytes = [0; 10];
    for (_, waker) in &bells {
        let look = poll_read(&mut stream, &mut Context::from_waker(waker), &mut bytes);
        assert!(look.is_pending());
    }
    far.write_all(b"x").unwrap();
    until("the waker", || bells[1].0.wake_count() > 0);
    settle();
    assert_eq!((bells[0].0.wake_count(), bells[1].0.wake_count()), (0, 1));
    let look = poll_read(&mut stream, &mut Context::from_waker(&bells[0].1), &mut bytes);
    assert!(matches!(look, Poll::Ready(Ok(1))));
}

#[test]
fn a_stream_may_be_dropped_or_forgotten_while_its_waker_is_registered() {
    for _ in 0..200 {
        let (mut stream, mut far) = pair();
        let (_bell, waker) = CountingWaker::new();
        let mut bytes = [0; 10];
        let look = poll_read(&mut stream, &mut Context::from_waker(&waker), &mut bytes);
        assert!(look.is_pending());
        let writer = go(move || far.write_all(b"x"));
        drop(stream);
        // The write fails if the stream is already closed.
        let _ = writer.join().unwrap();
    }
    let (mut stream, mut far) = pair();
    let (bell, waker) = CountingWaker::new();
    let look = poll_read(&mut stream, &mut Context::from_waker(&waker), &mut [0; 10]);
    assert!(look.is_pending());
    std::mem::forget(stream);
    drop(waker);
    far.write_all(b"x").unwrap();
    until("the waker", || bell.wake_count() == 1);
}

#[test]
fn deadlines_and_close_end_a_read() {
    under_all(|| async {
        let (mut stream, _far) = pair();
        let soon = Instant::now() + 5 * MILLI;
        stream.set_read_deadline(Some(soon)).unwrap();
        let error = read(&mut stream, &mut [0; 10]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(Instant::now() >= soon);
        stream.set_read_deadline(None).unwrap();
        let mut looks = 0;
        let end = poll_fn(|context| {
            let look = poll_read(&mut stream, context, &mut [0; 10]);
            looks += 1;
            if looks == 1 {
                assert!(look.is_pending());
                stream.close().unwrap();
            }
            look
        });
        assert_eq!(end.await.unwrap_err().kind(), ErrorKind::NotConnected);
    });
}

#[test]
fn a_stream_goes_from_goroutine_to_goroutine() {
    let (mut stream, mut far) = pair();
    for round in 0..100u8 {
        stream = go(move || {
            let mut bytes = [0; 2];
            // Leaves a waker of this goroutine registered.
            let (_bell, waker) = CountingWaker::new();
            let look = poll_read(&mut stream, &mut Context::from_waker(&waker), &mut bytes);
            assert!(look.is_pending());
            stream
        })
        .join()
        .unwrap();
        let reader = go(move || {
            let mut bytes = [0; 2];
            block_on(read_exact(&mut stream, &mut bytes)).unwrap();
            assert_eq!(bytes, [round; 2]);
            stream
        });
        far.write_all(&[round; 2]).unwrap();
        stream = reader.join().unwrap();
    }
}

#[test]
fn many_streams_are_awaited_by_goroutines() {
    const STREAMS: usize = 300;
    let (streams, fars): (Vec<_>, Vec<_>) = (0..STREAMS).map(|_| pair()).unzip();
    let readers: Vec<_> = (streams.into_iter().enumerate())
        .map(|(number, mut stream)| {
            go(move || {
                let mut bytes = vec![0; 4000];
                block_on(read_exact(&mut stream, &mut bytes)).unwrap();
                assert!(bytes.iter().all(|&byte| byte == number as u8));
            })
        })
        .collect();
    for part in 0..4 {
        for (number, mut far) in fars.iter().enumerate() {
            far.write_all(&[number as u8; 1000]).unwrap();
        }
        if part == 2 {
            settle();
        }
    }
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}

#[test]
fn timer_sleeps_last_their_duration_and_executor_tasks_are_goroutines() {
    under_all(|| async {
        let start = Instant::now();
        Timer.sleep(3 * MILLI).await;
        assert!(start.elapsed() >= 3 * MILLI);
        Timer.sleep_until(Timer.now() + MILLI).await;
        drop(Timer.sleep(Duration::from_secs(1000)));
    });
    let done = Arc::new(AtomicUsize::new(0));
    for _ in 0..10 {
        let done = done.clone();
        Executor.execute(async move {
            assert!(gosched::id().is_some());
            done.fetch_add(1, SeqCst);
        });
    }
    until("the tasks", || done.load(SeqCst) == 10);
}

/// A new stream reuses the record of the closed stream, and both streams have the same waker.
#[test]
fn a_closed_stream_that_is_dropped_late_keeps_the_wait_of_a_stream_that_reuses_its_record() {
    gosched::run(|| {
        let (first, _far) = pair();
        let (second, mut other) = pair();
        let second = second.into_inner().into_std().unwrap();
        let (mut first, mut second) = (Some(first), Some(second));
        let mut stream = None;
        let writer = go(move || {
            settle();
            other.write_all(b"hello").unwrap();
            other
        });
        let count = block_on(poll_fn(|context| {
            if let Some(mut closed) = first.take() {
                assert!(poll_read(&mut closed, context, &mut [0; 9]).is_pending());
                closed.close().unwrap();
                let reused = TcpStream::from_std(second.take().unwrap()).unwrap();
                let reused = stream.insert(Stream::new(reused));
                assert!(poll_read(reused, context, &mut [0; 9]).is_pending());
                drop(closed);
                return Poll::Pending;
            }
            poll_read(stream.as_mut().unwrap(), context, &mut [0; 9])
        }));
        assert_eq!(count.unwrap(), 5);
        writer.join().unwrap();
    });
}
