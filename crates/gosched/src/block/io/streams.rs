//! Standard input, output and error with the interface of std: one lock for each stream of the
//! process, and buffers for input and output. The streams never share a lock or a buffer with std's
//! streams, which `println!` uses.

use super::by_reference::{read_by_reference, write_by_reference};
use super::standard::{self, STDERR, STDIN, STDOUT, Standard};
use crate::block::sync::{Mutex, MutexGuard};
use std::fmt;
use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, LineWriter, Lines, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::LazyLock;
use std::sync::atomic::Ordering;

type Input = BufReader<&'static Standard>;
type Output = LineWriter<&'static Standard>;

static INPUT: LazyLock<Mutex<Input>> = LazyLock::new(|| Mutex::new(BufReader::new(&STDIN)));

static OUTPUT: LazyLock<Mutex<Output>> = LazyLock::new(|| {
    // SAFETY: `flush_at_exit` does not unwind. If `atexit` fails for lack of memory, an unfinished
    // last line is lost when the process exits.
    unsafe { libc::atexit(flush_at_exit) };
    Mutex::new(LineWriter::new(&STDOUT))
});

static ERRORS: Mutex<&'static Standard> = Mutex::new(&STDERR);

/// Writes the unfinished last line when the process exits. Skipped if the lock is held: its holder
/// may never release it.
extern "C" fn flush_at_exit() {
    standard::IS_EXITING.store(true, Ordering::Relaxed);
    if let Some(mut output) = OUTPUT.try_lock() {
        let _ = output.flush();
    }
}

/// Returns a handle to standard input, like [`std::io::stdin`].
///
/// A goroutine that reads is parked if the descriptor can be polled: a terminal, a pipe or a
/// socket. Otherwise the read is a [marked call](crate::blocking).
///
/// The buffer is separate from std's: read either from this handle or from that of std, not from
/// both. The descriptor stays in its mode (blocking or non-blocking), because other processes may
/// share it.
///
/// ```no_run
/// use gosched::io::stdin;
///
/// # fn main() -> std::io::Result<()> {
/// let mut line = String::new();
/// while stdin().read_line(&mut line)? > 0 {
///     print!("{line}");
///     line.clear();
/// }
/// # Ok(())
/// # }
/// ```
pub fn stdin() -> Stdin {
    Stdin { _one: () }
}

/// Returns a handle to standard output, like [`std::io::stdout`]. A write that would block parks
/// the goroutine or is a marked call, as described for [`stdin`].
///
/// A line is written when it is complete. An incomplete line is written when the buffer is full, by
/// `flush`, or when the process exits. The buffer is separate from that of `println!`.
///
/// ```
/// use gosched::io::stdout;
/// use std::io::Write;
///
/// # fn main() -> std::io::Result<()> {
/// let mut out = stdout().lock();
/// writeln!(out, "two lines that")?;
/// writeln!(out, "stay together")
/// # }
/// ```
pub fn stdout() -> Stdout {
    Stdout { _one: () }
}

/// Returns a handle to standard error, like [`std::io::stderr`]. It has no buffer; otherwise it
/// works like [`stdout`].
pub fn stderr() -> Stderr {
    Stderr { _one: () }
}

/// A handle to standard input, returned by [`stdin`].
#[derive(Debug)]
pub struct Stdin {
    _one: (),
}

/// A handle to standard output, returned by [`stdout`].
#[derive(Debug)]
pub struct Stdout {
    _one: (),
}

/// A handle to standard error, returned by [`stderr`].
#[derive(Debug)]
pub struct Stderr {
    _one: (),
}

/// A locked handle to standard input, returned by [`Stdin::lock`]. The lock is not reentrant: a
/// goroutine that holds it and locks the stream again deadlocks.
pub struct StdinLock<'a> {
    guard: MutexGuard<'a, Input>,
}

/// A locked handle to standard output, returned by [`Stdout::lock`]. The lock is not reentrant: a
/// goroutine that holds it and locks the stream again deadlocks.
pub struct StdoutLock<'a> {
    guard: MutexGuard<'a, Output>,
}

/// A locked handle to standard error, returned by [`Stderr::lock`]. The lock is not reentrant: a
/// goroutine that holds it and locks the stream again deadlocks.
pub struct StderrLock<'a> {
    guard: MutexGuard<'a, &'static Standard>,
}

impl Stdin {
    /// Locks standard input. Blocks while another goroutine or thread holds the lock.
    pub fn lock(&self) -> StdinLock<'static> {
        StdinLock { guard: INPUT.lock() }
    }

    /// Reads a line, including its line feed, and appends it to `line`. Returns the number of bytes
    /// read; 0 means the end of the input.
    ///
    /// # Errors
    /// The read fails, or the line is not valid UTF-8.
    pub fn read_line(&self, line: &mut String) -> io::Result<usize> {
        self.lock().read_line(line)
    }

    /// Locks standard input and returns an iterator over its lines, without their line feeds.
    pub fn lines(self) -> Lines<StdinLock<'static>> {
        self.lock().lines()
    }
}

impl Stdout {
    /// Locks standard output. Blocks while another goroutine or thread holds the lock.
    pub fn lock(&self) -> StdoutLock<'static> {
        StdoutLock { guard: OUTPUT.lock() }
    }
}

impl Stderr {
    /// Locks standard error. Blocks while another goroutine or thread holds the lock.
    pub fn lock(&self) -> StderrLock<'static> {
        StderrLock { guard: ERRORS.lock() }
    }
}

impl Read for StdinLock<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.guard.read(buffer)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.guard.read_vectored(buffers)
    }

    fn read_to_end(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        self.guard.read_to_end(buffer)
    }

    fn read_to_string(&mut self, buffer: &mut String) -> io::Result<usize> {
        self.guard.read_to_string(buffer)
    }
}

impl BufRead for StdinLock<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.guard.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.guard.consume(amount);
    }
}

/// Implements `Read` for references to a handle. Each call takes the lock once.
macro_rules! read {
    ($($handle:ty),*) => {$(
        impl Read for &$handle {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.lock().read(buffer)
            }

            fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.lock().read_vectored(buffers)
            }

            fn read_to_end(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
                self.lock().read_to_end(buffer)
            }

            fn read_to_string(&mut self, buffer: &mut String) -> io::Result<usize> {
                self.lock().read_to_string(buffer)
            }

            fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
                self.lock().read_exact(buffer)
            }
        }
    )*};
}

/// Implements `Write` for references to a handle. Each call takes the lock once.
macro_rules! write {
    ($($handle:ty),*) => {$(
        impl Write for &$handle {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.lock().write(bytes)
            }

            fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
                self.lock().write_vectored(parts)
            }

            fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
                self.lock().write_all(bytes)
            }

            fn write_fmt(&mut self, what: fmt::Arguments<'_>) -> io::Result<()> {
                self.lock().write_fmt(what)
            }

            fn flush(&mut self) -> io::Result<()> {
                self.lock().flush()
            }
        }
    )*};
}

/// Implements `Write` for a locked handle.
macro_rules! write_locked {
    ($($lock:ty),*) => {$(
        impl Write for $lock {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.guard.write(bytes)
            }

            fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
                self.guard.write_vectored(parts)
            }

            fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
                self.guard.write_all(bytes)
            }

            fn flush(&mut self) -> io::Result<()> {
                self.guard.flush()
            }
        }
    )*};
}

read!(Stdin);
read_by_reference!(Stdin);
write!(Stdout, Stderr);
write_by_reference!(Stdout, Stderr);
write_locked!(StdoutLock<'_>, StderrLock<'_>);

/// Implements `AsFd` and `AsRawFd`.
macro_rules! descriptor {
    ($($kind:ty: $standard:ident),*) => {$(
        impl AsFd for $kind {
            fn as_fd(&self) -> BorrowedFd<'_> {
                $standard.as_fd()
            }
        }

        impl AsRawFd for $kind {
            fn as_raw_fd(&self) -> RawFd {
                self.as_fd().as_raw_fd()
            }
        }
    )*};
}

descriptor!(Stdin: STDIN, StdinLock<'_>: STDIN, Stdout: STDOUT, StdoutLock<'_>: STDOUT);
descriptor!(Stderr: STDERR, StderrLock<'_>: STDERR);

impl fmt::Debug for StdinLock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StdinLock")
    }
}

impl fmt::Debug for StdoutLock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StdoutLock")
    }
}

impl fmt::Debug for StderrLock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StderrLock")
    }
}
