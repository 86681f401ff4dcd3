//! Pipes and the standard streams.

use gosched::io::{PipeReader, PipeWriter, pipe};
use gosched::{go, run};
use gosched_tests::actors::{ACTOR_KINDS, in_goroutine_and_thread, run_alternating};
use gosched_tests::sockets::unique_name;
use gosched_tests::wait::{settle, until};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn is_blocking(fd: &impl AsFd) -> bool {
    // SAFETY: no memory is involved.
    let flags = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_GETFL) };
    assert!(flags >= 0);
    flags & libc::O_NONBLOCK == 0
}

/// Returns a pattern of `count` bytes.
fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// Returns whether a write would not block.
fn has_room(writer: &PipeWriter) -> bool {
    let fd = writer.as_raw_fd();
    let mut asked = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    // SAFETY: `asked` is a valid array of one entry.
    let ready = unsafe { libc::poll(&raw mut asked, 1, 0) };
    assert!(ready >= 0, "{}", std::io::Error::last_os_error());
    ready == 1
}

/// Returns a pipe whose buffer is full.
fn full() -> (PipeReader, PipeWriter) {
    let (reader, writer) = pipe().unwrap();
    // A slow machine may need more than one deadline.
    until("the pipe is full", || {
        writer.set_deadline(Some(Instant::now() + Duration::from_millis(20))).unwrap();
        let error = (&writer).write_all(&vec![0; 1 << 21]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        !has_room(&writer)
    });
    writer.set_deadline(None).unwrap();
    (reader, writer)
}

#[test]
fn a_pipe_carries_bytes_in_order() {
    for from in ACTOR_KINDS {
        for to in ACTOR_KINDS {
            let (mut reader, mut writer) = pipe().unwrap();
            let sender = from.start(move || writer.write_all(&bytes(300_000)).unwrap());
            let receiver = to.start(move || {
                let mut found = Vec::new();
                reader.read_to_end(&mut found).unwrap();
                found
            });
            sender.join();
            assert!(receiver.join() == bytes(300_000));
        }
    }
}

#[test]
fn small_pipe_writes_of_many_parties_stay_whole() {
    const EACH: usize = 200;
    let (reader, writer) = pipe().unwrap();
    let (reader, writer) = (Arc::new(reader), Arc::new(writer));
    let reading = ACTOR_KINDS[0].start(move || {
        let mut counts = [0; 8];
        let mut message = [0; 64];
        for _ in 0..8 * EACH {
            (&*reader).read_exact(&mut message).unwrap();
            assert!(message.iter().all(|byte| *byte == message[0]));
            counts[usize::from(message[0])] += 1;
        }
        counts
    });
    run_alternating(8, move |i| {
        for _ in 0..EACH {
            assert_eq!((&*writer).write(&[i as u8; 64]).unwrap(), 64);
        }
    });
    assert_eq!(reading.join(), [EACH; 8]);
}

#[test]
fn vectored_reads_and_writes_use_all_parts() {
    in_goroutine_and_thread(|| {
        let (reader, writer) = pipe().unwrap();
        let parts = [IoSlice::new(b"one"), IoSlice::new(b""), IoSlice::new(b"two")];
        assert_eq!((&writer).write_vectored(&parts).unwrap(), 6);
        let (mut first, mut second) = ([0; 2], [0; 8]);
        let mut parts = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!((&reader).read_vectored(&mut parts).unwrap(), 6);
        assert_eq!((&first, &second[..4]), (b"on", &b"etwo"[..]));
    });
}

#[test]
fn dropping_one_end_of_a_pipe_ends_calls_on_the_other_end() {
    in_goroutine_and_thread(|| {
        let (mut reader, writer) = pipe().unwrap();
        let clone = writer.try_clone().unwrap();
        let reading = go(move || reader.read(&mut [0; 8]).unwrap());
        drop(writer);
        clone.close().unwrap();
        assert_eq!(reading.join().unwrap(), 0);

        let (reader, mut writer) = full();
        let writing = go(move || writer.write_all(b"more").unwrap_err().kind());
        drop(reader);
        assert_eq!(writing.join().unwrap(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_deadline_ends_waiting_pipe_calls() {
    in_goroutine_and_thread(|| {
        let (reader, writer) = pipe().unwrap();
        let reader = Arc::new(reader);
        let waiting = go({
            let reader = reader.clone();
            move || (&*reader).read(&mut [0; 8]).unwrap_err().kind()
        });
        settle();
        reader.set_deadline(Some(Instant::now())).unwrap();
        assert_eq!(waiting.join().unwrap(), ErrorKind::TimedOut);
        (&writer).write_all(b"x").unwrap();
        let late = (&*reader).read(&mut [0; 8]);
        assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut, "also with something to read");
        reader.set_deadline(None).unwrap();
        assert_eq!((&*reader).read(&mut [0; 8]).unwrap(), 1);
    });
}

#[test]
fn close_ends_waiting_pipe_calls() {
    in_goroutine_and_thread(|| {
        let (reader, _writer) = pipe().unwrap();
        let reader = Arc::new(reader);
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                let reader = reader.clone();
                go(move || (&*reader).read(&mut [0; 8]).unwrap_err().kind())
            })
            .collect();
        settle();
        reader.close().unwrap();
        for waiting in waiting {
            assert_eq!(waiting.join().unwrap(), ErrorKind::NotConnected);
        }
        assert_eq!(reader.close().unwrap_err().kind(), ErrorKind::NotConnected);
        let (_reader, writer) = full();
        let writer = Arc::new(writer);
        let waiting = go({
            let writer = writer.clone();
            move || (&*writer).write_all(b"more").unwrap_err().kind()
        });
        settle();
        writer.close().unwrap();
        assert_eq!(waiting.join().unwrap(), ErrorKind::NotConnected);
    });
}

#[test]
fn a_pipe_converts_from_std_and_back() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut reader = PipeReader::from_std(reader).unwrap();
    assert!(!is_blocking(&reader));
    let waiting = go(move || {
        let mut text = [0; 4];
        reader.read_exact(&mut text).unwrap();
        (reader, text)
    });
    settle();
    writer.write_all(b"texts").unwrap();
    let (reader, text) = waiting.join().unwrap();
    assert_eq!(&text, b"text");
    let mut reader = reader.into_std().unwrap();
    assert!(is_blocking(&reader));
    assert_eq!(reader.read(&mut [0; 4]).unwrap(), 1);
    let (_, writer) = pipe().unwrap();
    writer.close().unwrap();
    assert_eq!(writer.into_std().unwrap_err().kind(), ErrorKind::NotConnected);
}

// The standard streams.

fn program(mode: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_io_program"));
    command.arg(mode).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the program with `input` as its standard input, and returns its standard output.
fn answer(mode: &str, input: &[u8]) -> String {
    let mut child = program(mode).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    ended(child)
}

fn ended(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn read_until(stream: &mut impl Read, what: &str) {
    let mut found = String::new();
    while !found.contains(what) {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{found}");
        found.push(char::from(byte[0]));
    }
}

#[test]
fn lines_from_a_pipe_are_read_as_they_arrive() {
    let mut child = program("cat").spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    for line in ["one\n", "two\n", "three\n"] {
        stdin.write_all(line.as_bytes()).unwrap();
        let mut back = vec![0; line.len()];
        stdout.read_exact(&mut back).unwrap();
        assert_eq!(back, line.as_bytes());
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b"end"[..]));
}

#[test]
fn standard_input_can_be_a_file_a_socket_or_empty() {
    let path = std::env::temp_dir().join(unique_name());
    std::fs::write(&path, "first\nsecond\n").unwrap();
    let with = |stdin: Stdio| ended(program("cat").stdin(stdin).spawn().unwrap());
    assert_eq!(with(std::fs::File::open(&path).unwrap().into()), "first\nsecond\n");
    assert_eq!(with(Stdio::null()), "");
    let mut out = program("cat");
    out.stdin(std::fs::File::open(&path).unwrap());
    let copy = std::fs::File::create(path.with_extension("copy")).unwrap();
    assert_eq!(ended(out.stdout(copy).spawn().unwrap()), "");
    assert_eq!(std::fs::read_to_string(path.with_extension("copy")).unwrap(), "first\nsecond\n");
    std::fs::remove_file(path.with_extension("copy")).unwrap();
    std::fs::remove_file(path).unwrap();

    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let child = program("cat").stdin(std::os::fd::OwnedFd::from(theirs)).spawn().unwrap();
    settle();
    ours.write_all(b"through a socket\n").unwrap();
    drop(ours);
    assert_eq!(ended(child), "through a socket\n");
}

#[test]
fn a_terminal_is_read_line_by_line() {
    let (mut ours, mut theirs) = (0, 0);
    let (none, no_modes, no_size) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
    // SAFETY: both descriptors are valid for writes; the other arguments may be null.
    let made = unsafe { libc::openpty(&raw mut ours, &raw mut theirs, none, no_modes, no_size) };
    assert_eq!(made, 0);
    // SAFETY: the descriptor was opened above, and has no other owner.
    let mut ours: std::fs::File = unsafe { std::os::fd::FromRawFd::from_raw_fd(ours) };
    // SAFETY: the descriptor was opened above, and has no other owner.
    let theirs: std::fs::File = unsafe { std::os::fd::FromRawFd::from_raw_fd(theirs) };
    let mut child = program("cat").stdin(theirs.try_clone().unwrap()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    for line in ["typed\n", "and more\n"] {
        settle();
        ours.write_all(line.as_bytes()).unwrap();
        read_until(&mut stdout, line);
        assert!(is_blocking(&theirs));
    }
    // Ctrl-D.
    ours.write_all(&[4]).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_goroutine_that_waits_for_a_line_is_parked() {
    let mut command = program("parks");
    let mut child = command.env("GOMAXPROCS", "1").spawn().unwrap();
    read_until(child.stdout.as_mut().unwrap(), "alive\n");
    child.stdin.take().unwrap().write_all(b"line\n").unwrap();
    assert_eq!(ended(child), "line 0\n", "the line, and how often a P was taken");
}

#[test]
fn the_standard_streams_stay_in_blocking_mode() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let (mut answers, answer) = std::io::pipe().unwrap();
    let mut command = program("cat");
    command.stdin(reader.try_clone().unwrap()).stdout(answer.try_clone().unwrap());
    let mut child = command.spawn().unwrap();
    drop(command);
    for _ in 0..3 {
        settle();
        writer.write_all(b"line\n").unwrap();
        read_until(&mut answers, "line\n");
        assert!(is_blocking(&reader) && is_blocking(&answer));
    }
    drop(writer);
    assert!(child.wait().unwrap().success());
}

#[test]
fn each_line_goes_to_one_of_many_readers() {
    let lines: String = (0..2000).map(|i| format!("{i}\n")).collect();
    assert_eq!(answer("crowd", lines.as_bytes()), "1999000\n");
}

#[test]
fn no_byte_is_lost_when_a_thread_reads_standard_input_too() {
    let mut child = program("beside").spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for _ in 0..2000 {
        stdin.write_all(b"some bytes").unwrap();
    }
    drop(stdin);
    assert_eq!(ended(child), "20000\n");
}

#[test]
fn an_unfinished_line_is_written_at_exit() {
    let output = program("partial").output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(7), &b"no newline"[..]));
}

#[test]
fn a_full_standard_output_blocks_only_the_goroutine_that_writes() {
    let mut command = program("spill");
    let mut child = command.env("GOMAXPROCS", "1").spawn().unwrap();
    read_until(child.stderr.as_mut().unwrap(), "alive");
    let text = ended(child);
    assert_eq!(text.len(), 512 << 10);
    assert!(text.lines().all(|line| line.len() == 1023));
}

#[test]
fn large_output_arrives_completely_on_pipes_and_sockets() {
    let expected: String = (0..20_000).map(|i| format!("{i}\n")).collect();
    assert!(ended(program("slow").spawn().unwrap()) == expected);
    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let child = program("slow").stdout(std::os::fd::OwnedFd::from(theirs)).spawn().unwrap();
    let mut found = String::new();
    ours.read_to_string(&mut found).unwrap();
    assert!(found == expected);
    ended(child);
}

#[test]
fn standard_input_can_be_replaced_by_another_file() {
    let mut child = program("replaced").spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    settle();
    stdin.write_all(b"first\n").unwrap();
    assert_eq!(ended(child), "first\nsecond\n");
}

#[test]
fn copy_reads_standard_input_to_the_end() {
    assert_eq!(answer("sum", &bytes(500_000)), "500000\n");
}

#[test]
fn goroutines_that_read_pipes_end_when_the_writers_are_dropped() {
    run(|| {
        let pipes: Vec<_> = (0..200).map(|_| pipe().unwrap()).collect();
        let (readers, writers): (Vec<_>, Vec<_>) = pipes.into_iter().unzip();
        let waiting: Vec<_> = readers
            .into_iter()
            .map(|mut reader| go(move || reader.read_to_end(&mut Vec::new()).unwrap()))
            .collect();
        drop(writers);
        waiting.into_iter().for_each(|waiting| assert_eq!(waiting.join().unwrap(), 0));
    });
    until("few goroutines are left behind", || gosched::runtime::num_goroutines() < 100);
}
