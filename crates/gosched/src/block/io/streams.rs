//! Standard input, output and error as std has them: one for the process, with a lock, and a buffer.

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
    // SAFETY: a function that does not unwind. Where there is no memory for it, a line that was not ended
    // when the process ends is lost.
    unsafe { libc::atexit(flush_at_exit) };
    Mutex::new(LineWriter::new(&STDOUT))
});

static ERRORS: Mutex<&'static Standard> = Mutex::new(&STDERR);

/// The last line, which was not ended. Whoever holds the lock for ever does without.
extern "C" fn flush_at_exit() {
    standard::IS_EXITING.store(true, Ordering::Relaxed);
    if let Some(mut output) = OUTPUT.try_lock() {
        let _ = output.flush();
    }
}

/// Standard input: [`std::io::stdin`], for goroutines. One that reads is parked where the descriptor can be
/// polled: a terminal, a pipe, a socket. Elsewhere it is in a [marked](crate::blocking) call.
///
/// It has a buffer of its own: a program should read from this one or from std's, not from both. The
/// descriptor is left in the mode it is in, as other processes have it too.
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

/// Standard output: [`std::io::stdout`], for goroutines. A write waits for a slow reader as [`stdin`] waits
/// for a slow writer.
///
/// Lines are written when they end; the rest when it is flushed, or the process ends. It has a buffer of its
/// own, beside the one of `println!`.
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

/// Standard error: [`std::io::stderr`], for goroutines. Without a buffer; otherwise as [`stdout`].
pub fn stderr() -> Stderr {
    Stderr { _one: () }
}

/// See [`stdin`].
#[derive(Debug)]
pub struct Stdin {
    _one: (),
}

/// See [`stdout`].
#[derive(Debug)]
pub struct Stdout {
    _one: (),
}

/// See [`stderr`].
#[derive(Debug)]
pub struct Stderr {
    _one: (),
}

/// Standard input, for one alone. Its own holder must not ask for the lock again: it would wait for itself.
pub struct StdinLock<'a> {
    guard: MutexGuard<'a, Input>,
}

/// Standard output, for one alone. Its own holder must not ask for the lock again: it would wait for itself.
pub struct StdoutLock<'a> {
    guard: MutexGuard<'a, Output>,
}

/// Standard error, for one alone. Its own holder must not ask for the lock again: it would wait for itself.
pub struct StderrLock<'a> {
    guard: MutexGuard<'a, &'static Standard>,
}

impl Stdin {
    /// Waits until nobody else reads.
    pub fn lock(&self) -> StdinLock<'static> {
        StdinLock { guard: INPUT.lock() }
    }

    /// Reads a line, with what ends it, and appends it: how many bytes; 0 at the end.
    ///
    /// # Errors
    /// It cannot be read, or is not UTF-8.
    pub fn read_line(&self, line: &mut String) -> io::Result<usize> {
        self.lock().read_line(line)
    }

    /// All lines, without what ends them.
    pub fn lines(self) -> Lines<StdinLock<'static>> {
        self.lock().lines()
    }
}

impl Stdout {
    /// Waits until nobody else writes.
    pub fn lock(&self) -> StdoutLock<'static> {
        StdoutLock { guard: OUTPUT.lock() }
    }
}

impl Stderr {
    /// Waits until nobody else writes.
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

/// `Read` of the handle, and of a reference to it: each call takes the lock once.
macro_rules! read {
    ($($handle:ty),*) => {$(
        impl Read for $handle {
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

/// `Write` of the handle, and of a reference to it: each call takes the lock once.
macro_rules! write {
    ($($handle:ty),*) => {$(
        impl Write for $handle {
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

/// `Write` of a lock.
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

read!(Stdin, &Stdin);
write!(Stdout, &Stdout, Stderr, &Stderr);
write_locked!(StdoutLock<'_>, StderrLock<'_>);

/// The descriptor, for those who want to know more of it.
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
