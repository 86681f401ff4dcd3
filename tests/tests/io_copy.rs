//! `io::copy` does what std's function does, between all kinds of readers and writers, whichever
//! mechanism moves the bytes.

use gosched::fs::File;
use gosched::io::{CopyError, PipeReader, PipeWriter, copy, pipe};
use gosched::net::{Shutdown, TcpStream, UnixStream};
use gosched::process::{Command, Stdio};
use gosched::{JoinHandle, go, run};
use gosched_tests::actors::{ActorKind, in_goroutine_and_thread};
use gosched_tests::sockets::{tcp_pair, unique_name};
use gosched_tests::wait::settle;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Returns pseudo-random bytes from a seed.
fn bytes(seed: usize, count: usize) -> Vec<u8> {
    let mut state = seed as u64 * 2 + 1;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}

/// Returns a new file without a name.
fn file() -> File {
    let path: PathBuf = std::env::temp_dir().join(unique_name());
    let file = File::create_new(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

fn file_of(contents: &[u8]) -> File {
    let mut file = file();
    file.write_all(contents).unwrap();
    file.rewind().unwrap();
    file
}

/// Writes `contents` in pieces of many sizes.
fn feed(mut writer: impl Write, contents: &[u8], seed: usize) {
    let mut rest = contents;
    for piece in bytes(seed, 1000).iter().cycle() {
        let (now, later) = rest.split_at(rest.len().min(usize::from(*piece) * 137 + 1));
        writer.write_all(now).unwrap();
        rest = later;
        if rest.is_empty() {
            return;
        }
        if *piece < 32 {
            gosched::yield_now();
        }
    }
}

type Feeding = Option<JoinHandle<()>>;
/// A function that returns a reader of the given bytes, and the goroutine that sends them, if any.
/// The seed determines the sizes of the pieces.
type Source = fn(Vec<u8>, usize) -> (Box<dyn CopySource>, Feeding);
/// A function that returns a writer, and a goroutine that returns all bytes written once the writer
/// is dropped.
type Sink = fn() -> (Box<dyn CopySink>, JoinHandle<Vec<u8>>);

/// A reader that is passed to `copy` with its own type.
trait CopySource: Send {
    fn copy_to(&mut self, sink: &mut dyn CopySink) -> io::Result<u64>;
}

/// A writer that is passed to `copy` with its own type. It has one method per type of reader,
/// because `copy` depends on the types.
trait CopySink: Send {
    fn tcp(&mut self, reader: &mut TcpStream) -> io::Result<u64>;
    fn unix(&mut self, reader: &mut &UnixStream) -> io::Result<u64>;
    fn pipe(&mut self, reader: &mut PipeReader) -> io::Result<u64>;
    fn file(&mut self, reader: &mut &mut File) -> io::Result<u64>;
    fn any(&mut self, reader: &mut dyn Read) -> io::Result<u64>;
}

impl<W: Write + Send> CopySink for W {
    fn tcp(&mut self, reader: &mut TcpStream) -> io::Result<u64> {
        copy(reader, self)
    }
    fn unix(&mut self, reader: &mut &UnixStream) -> io::Result<u64> {
        copy(reader, self)
    }
    fn pipe(&mut self, reader: &mut PipeReader) -> io::Result<u64> {
        copy(reader, self)
    }
    fn file(&mut self, reader: &mut &mut File) -> io::Result<u64> {
        copy(reader, self)
    }
    fn any(&mut self, reader: &mut dyn Read) -> io::Result<u64> {
        copy(reader, self)
    }
}

impl CopySource for TcpStream {
    fn copy_to(&mut self, sink: &mut dyn CopySink) -> io::Result<u64> {
        sink.tcp(self)
    }
}

impl CopySource for UnixStream {
    fn copy_to(&mut self, sink: &mut dyn CopySink) -> io::Result<u64> {
        sink.unix(&mut &*self)
    }
}

impl CopySource for PipeReader {
    fn copy_to(&mut self, sink: &mut dyn CopySink) -> io::Result<u64> {
        sink.pipe(self)
    }
}

impl CopySource for File {
    fn copy_to(&mut self, sink: &mut dyn CopySink) -> io::Result<u64> {
        sink.file(&mut &mut *self)
    }
}

impl CopySource for io::Cursor<Vec<u8>> {
    fn copy_to(&mut self, sink: &mut dyn CopySink) -> io::Result<u64> {
        sink.any(self)
    }
}

/// A stream inside a reader whose type `copy` does not recognise.
struct Wrapped(io::BufReader<TcpStream>);

impl CopySource for Wrapped {
    fn copy_to(&mut self, sink: &mut dyn CopySink) -> io::Result<u64> {
        sink.any(&mut self.0)
    }
}

const SOURCES: [(&str, Source); 6] = [
    ("tcp", |contents, seed| {
        let (ours, theirs) = tcp_pair();
        (Box::new(ours), Some(go(move || feed(theirs, &contents, seed))))
    }),
    ("unix", |contents, seed| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Box::new(ours), Some(go(move || feed(theirs, &contents, seed))))
    }),
    ("pipe", |contents, seed| {
        let (ours, theirs) = pipe().unwrap();
        (Box::new(ours), Some(go(move || feed(theirs, &contents, seed))))
    }),
    ("file", |contents, _| (Box::new(file_of(&contents)), None)),
    ("memory", |contents, _| (Box::new(io::Cursor::new(contents)), None)),
    ("wrapped", |contents, seed| {
        let (ours, theirs) = tcp_pair();
        let reader = io::BufReader::new(ours);
        (Box::new(Wrapped(reader)), Some(go(move || feed(theirs, &contents, seed))))
    }),
];

fn drained(mut reader: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    go(move || {
        let mut found = Vec::new();
        reader.read_to_end(&mut found).unwrap();
        found
    })
}

/// Returns the contents of the file, in a goroutine, once the writing end of the pipe is dropped.
fn contents_of(mut file: File, end: PipeReader) -> JoinHandle<Vec<u8>> {
    go(move || {
        assert_eq!({ end }.read(&mut [0]).unwrap(), 0);
        let mut found = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut found).unwrap();
        found
    })
}

/// A file, with a pipe end that is dropped together with it.
struct FileSink(File, #[expect(dead_code, reason = "dropped with the file")] PipeWriter);

/// Passes only the file to `copy`.
impl CopySink for FileSink {
    fn tcp(&mut self, reader: &mut TcpStream) -> io::Result<u64> {
        copy(reader, &mut self.0)
    }
    fn unix(&mut self, reader: &mut &UnixStream) -> io::Result<u64> {
        copy(reader, &mut self.0)
    }
    fn pipe(&mut self, reader: &mut PipeReader) -> io::Result<u64> {
        copy(reader, &mut self.0)
    }
    fn file(&mut self, reader: &mut &mut File) -> io::Result<u64> {
        copy(reader, &mut self.0)
    }
    fn any(&mut self, reader: &mut dyn Read) -> io::Result<u64> {
        copy(reader, &mut self.0)
    }
}

fn appending() -> File {
    let file = file();
    // SAFETY: no memory is involved.
    let set = unsafe {
        libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&file), libc::F_SETFL, libc::O_APPEND)
    };
    assert_eq!(set, 0);
    file
}

fn file_sink(file: File) -> (Box<dyn CopySink>, JoinHandle<Vec<u8>>) {
    let (end, told) = pipe().unwrap();
    let contents = contents_of(file.try_clone().unwrap(), end);
    (Box::new(FileSink(file, told)), contents)
}

const SINKS: [(&str, Sink); 6] = [
    ("tcp", || {
        let (ours, theirs) = tcp_pair();
        (Box::new(ours), drained(theirs))
    }),
    ("unix", || {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Box::new(ours), drained(theirs))
    }),
    ("pipe", || {
        let (theirs, ours) = pipe().unwrap();
        (Box::new(ours), drained(theirs))
    }),
    ("file", || file_sink(file())),
    ("appended file", || file_sink(appending())),
    ("wrapped", || {
        let (ours, theirs) = tcp_pair();
        (Box::new(io::BufWriter::new(ours)), drained(theirs))
    }),
];

#[test]
fn copy_delivers_all_bytes_from_every_reader_to_every_writer() {
    in_goroutine_and_thread(|| {
        for (from, source) in SOURCES {
            for (to, sink) in SINKS {
                for (seed, count) in [0, 1, 4097, 200_003].into_iter().enumerate() {
                    let contents = bytes(seed, count);
                    let (mut reader, feeding) = source(contents.clone(), seed + 9);
                    let (mut writer, found) = sink();
                    let copied = reader.copy_to(&mut *writer).unwrap();
                    assert_eq!(copied, count as u64, "{from} to {to}");
                    drop(writer);
                    assert!(found.join().unwrap() == contents, "{from} to {to}: {count}");
                    if let Some(feeding) = feeding {
                        feeding.join().unwrap();
                    }
                }
            }
        }
    });
}

#[test]
fn copy_uses_files_at_their_position() {
    in_goroutine_and_thread(|| {
        let contents = bytes(1, 50_000);
        let mut from = file_of(&contents);
        let mut to = file_of(b"before");
        from.seek(SeekFrom::Start(10_000)).unwrap();
        to.seek(SeekFrom::End(0)).unwrap();
        assert_eq!(copy(&mut from, &mut to).unwrap(), 40_000);
        assert_eq!(from.stream_position().unwrap(), 50_000);
        assert_eq!(to.stream_position().unwrap(), 40_006);
        from.seek(SeekFrom::Start(49_000)).unwrap();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        assert_eq!(copy(&mut from, &mut ours).unwrap(), 1000);
        drop(ours);
        assert!(drained(theirs).join().unwrap() == contents[49_000..]);
        assert_eq!(from.stream_position().unwrap(), 50_000);
        let mut found = Vec::new();
        to.rewind().unwrap();
        to.read_to_end(&mut found).unwrap();
        assert!(found[..6] == b"before"[..] && found[6..] == contents[10_000..]);
    });
}

#[test]
fn files_generated_by_the_kernel_are_copied() {
    in_goroutine_and_thread(|| {
        let expected = std::fs::read("/proc/version").unwrap();
        assert!(!expected.is_empty());
        for (to, sink) in SINKS {
            let mut version = File::open("/proc/version").unwrap();
            let (mut writer, found) = sink();
            version.copy_to(&mut *writer).unwrap();
            drop(writer);
            assert!(found.join().unwrap() == expected, "to {to}");
        }
    });
}

#[test]
fn copy_works_with_the_pipes_of_child_processes() {
    in_goroutine_and_thread(|| {
        let mut child = Command::new("cat");
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let contents = bytes(3, 300_000);
        let mut stdin = child.stdin.take().unwrap();
        let mut from = file_of(&contents);
        let sending = go(move || copy(&mut from, &mut stdin).unwrap());
        let (mut ours, theirs) = tcp_pair();
        let found = drained(theirs);
        assert_eq!(copy(&mut child.stdout.take().unwrap(), &mut ours).unwrap(), 300_000);
        assert_eq!(sending.join().unwrap(), 300_000);
        drop(ours);
        assert!(found.join().unwrap() == contents);
        assert!(child.wait().unwrap().success());
    });
}

#[test]
fn a_proxy_forwards_both_directions_and_half_closes() {
    in_goroutine_and_thread(|| {
        let (mut client, outside) = tcp_pair();
        let (inside, server) = UnixStream::pair().unwrap();
        let (outside, inside) = (Arc::new(outside), Arc::new(inside));
        let there = go({
            let (outside, inside) = (outside.clone(), inside.clone());
            move || {
                let count = copy(&mut &*outside, &mut &*inside).unwrap();
                inside.shutdown(Shutdown::Write).unwrap();
                count
            }
        });
        let back = go(move || {
            let count = copy(&mut &*inside, &mut &*outside).unwrap();
            outside.shutdown(Shutdown::Write).unwrap();
            count
        });
        let echo = go(move || {
            let count = copy(&mut &server, &mut &server).unwrap();
            server.shutdown(Shutdown::Write).unwrap();
            count
        });
        let contents = bytes(4, 500_000);
        let found = drained(client.try_clone().unwrap());
        client.write_all(&contents).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert!(found.join().unwrap() == contents);
        let counts = [there.join().unwrap(), echo.join().unwrap(), back.join().unwrap()];
        assert_eq!(counts, [500_000; 3]);
    });
}

#[test]
fn a_read_deadline_loses_no_bytes() {
    in_goroutine_and_thread(|| {
        let (reader, mut feeder) = tcp_pair();
        let (ours, theirs) = tcp_pair();
        let found = drained(theirs);
        let contents = bytes(5, 100_000);
        feeder.write_all(&contents[..60_000]).unwrap();
        reader.set_read_deadline(Some(Instant::now() + Duration::from_millis(30))).unwrap();
        let error = copy(&mut &reader, &mut &ours).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(error.get_ref().is_none(), "nothing was left behind: {error:?}");
        reader.set_read_deadline(None).unwrap();
        feeder.write_all(&contents[60_000..]).unwrap();
        drop(feeder);
        copy(&mut &reader, &mut &ours).unwrap();
        drop(ours);
        assert!(found.join().unwrap() == contents);
    });
}

/// Copies to a peer that does not read until the deadline has passed, then writes the bytes in the
/// error and copies the rest.
fn copy_resumes_after_deadline(mut reader: impl Read, contents: &[u8]) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_write_deadline(Some(Instant::now() + Duration::from_millis(30))).unwrap();
    let error = copy(&mut reader, &mut &ours).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    ours.set_write_deadline(None).unwrap();
    let found = drained(theirs);
    let mut copied = 0;
    if let Ok(error) = error.downcast::<CopyError>() {
        assert_eq!(error.error().kind(), ErrorKind::TimedOut);
        copied += error.copied() + error.unsent().len() as u64;
        (&ours).write_all(error.unsent()).unwrap();
    }
    copied += copy(&mut reader, &mut &ours).unwrap();
    drop(ours);
    let found = found.join().unwrap();
    assert!(found == contents, "{} of {}", found.len(), contents.len());
    assert!(copied <= contents.len() as u64);
}

#[test]
fn a_write_deadline_leaves_the_unsent_bytes_in_the_error() {
    in_goroutine_and_thread(|| {
        let contents = bytes(6, 2_000_000);
        for wrapped in [false, true] {
            let (ours, theirs) = tcp_pair();
            let sent = contents.clone();
            let feeding = go(move || feed(theirs, &sent, 7));
            if wrapped {
                copy_resumes_after_deadline(io::BufReader::new(ours), &contents);
            } else {
                copy_resumes_after_deadline(ours, &contents);
            }
            feeding.join().unwrap();
        }
        copy_resumes_after_deadline(file_of(&contents), &contents);
        let (reader, writer) = pipe().unwrap();
        let sent = contents.clone();
        let feeding = go(move || feed(writer, &sent, 7));
        copy_resumes_after_deadline(reader, &contents);
        feeding.join().unwrap();
    });
}

#[test]
fn the_reader_can_be_closed_while_copy_waits_for_the_writer() {
    fn stuck(
        close: impl Fn() + Send + 'static,
        copying: JoinHandle<io::Result<u64>>,
        full: TcpStream,
    ) {
        settle();
        // `close` returns although the peer does not read.
        ActorKind::Goroutine.start(close).join();
        drop(drained(full));
        let error = copying.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotConnected);
    }
    let (reader, writer) = pipe().unwrap();
    let (ours, theirs) = tcp_pair();
    drop(go(move || { writer }.write_all(&vec![0; 20 << 20])));
    let reader = Arc::new(reader);
    let copying = go({
        let reader = reader.clone();
        move || copy(&mut &*reader, &mut &ours)
    });
    stuck(move || reader.close().unwrap(), copying, theirs);

    let (reader, writer) = tcp_pair();
    let (ours, theirs) = tcp_pair();
    drop(go(move || { writer }.write_all(&vec![0; 20 << 20])));
    let reader = Arc::new(reader);
    let copying = go({
        let reader = reader.clone();
        move || copy(&mut &*reader, &mut &ours)
    });
    stuck(move || reader.close().unwrap(), copying, theirs);
}

#[test]
fn closing_the_writer_ends_the_copy() {
    in_goroutine_and_thread(|| {
        let (mut reader, feeder) = tcp_pair();
        drop(go(move || { feeder }.write_all(&vec![0; 20 << 20])));
        let (ours, _theirs) = tcp_pair();
        let ours = Arc::new(ours);
        let copying = go({
            let ours = ours.clone();
            move || copy(&mut reader, &mut &*ours).unwrap_err().kind()
        });
        settle();
        ours.close().unwrap();
        assert_eq!(copying.join().unwrap(), ErrorKind::NotConnected);
    });
}

#[test]
fn copying_to_a_peer_that_is_gone_is_an_error() {
    in_goroutine_and_thread(|| {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let mut from = file_of(&bytes(8, 100_000));
        let error = copy(&mut from, &mut ours).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        from.rewind().unwrap();
        let error = copy(&mut from, &mut &writer).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn copying_to_a_full_disk_fails_and_keeps_the_unsent_bytes() {
    in_goroutine_and_thread(|| {
        let (mut reader, mut feeder) = tcp_pair();
        feeder.write_all(b"no room").unwrap();
        drop(feeder);
        let mut full = File::options().write(true).open("/dev/full").unwrap();
        let error = copy(&mut reader, &mut full).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        let error = error.downcast::<CopyError>().unwrap();
        assert_eq!((error.copied(), error.unsent()), (0, &b"no room"[..]));
    });
}

/// A stream that reads and writes few bytes at a time, and is interrupted at every fifth call.
struct Reluctant<T>(T, usize);

impl<T> Reluctant<T> {
    fn next(&mut self) -> io::Result<usize> {
        self.1 += 1;
        match self.1 % 5 {
            0 => Err(ErrorKind::Interrupted.into()),
            some => Ok(some),
        }
    }
}

impl<T: Read> Read for Reluctant<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.next()?.min(buffer.len());
        self.0.read(&mut buffer[..count])
    }
}

impl<T: Write> Write for Reluctant<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.next()?.min(bytes.len());
        self.0.write(&bytes[..count])
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn short_and_interrupted_calls_lose_nothing() {
    in_goroutine_and_thread(|| {
        let contents = bytes(9, 5000);
        let (mut ours, theirs) = tcp_pair();
        let found = drained(theirs);
        let mut reader = Reluctant(&contents[..], 0);
        assert_eq!(copy(&mut reader, &mut ours).unwrap(), 5000);
        drop(ours);
        assert!(found.join().unwrap() == contents);
        let mut written = Reluctant(Vec::new(), 0);
        assert_eq!(copy(&mut file_of(&contents), &mut written).unwrap(), 5000);
        assert!(written.0 == contents);
        let mut none: &mut [u8] = &mut [];
        let error = copy(&mut &contents[..], &mut none).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WriteZero);
    });
}

#[test]
fn many_copies_run_at_once() {
    run(|| {
        let all: Vec<_> = (0..40)
            .map(|i| {
                go(move || {
                    let contents = bytes(i, 30_000 + i * 1000);
                    let (mut reader, feeder) = tcp_pair();
                    let (mut ours, theirs) = tcp_pair();
                    let found = drained(theirs);
                    let sent = contents.clone();
                    let feeding = go(move || feed(feeder, &sent, i));
                    assert_eq!(copy(&mut reader, &mut ours).unwrap(), contents.len() as u64);
                    drop(ours);
                    feeding.join().unwrap();
                    assert!(found.join().unwrap() == contents);
                })
            })
            .collect();
        all.into_iter().for_each(|one| one.join().unwrap());
    });
}
