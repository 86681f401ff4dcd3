//! Standard error without std's lock, for code that may hold any lock and must not allocate. A
//! write never allocates, and never panics: bytes that standard error does not accept are lost.

use std::fmt::{self, Write};
use std::io;

/// A writer to standard error that takes no lock of std's. Collects bytes and writes them at the
/// end of each line, and when its buffer is full.
#[derive(Debug)]
pub struct Stderr {
    buffer: [u8; 512],
    len: usize,
}

impl Default for Stderr {
    fn default() -> Stderr {
        Stderr::new()
    }
}

impl Stderr {
    /// Creates a writer with an empty buffer.
    pub const fn new() -> Stderr {
        Stderr { buffer: [0; 512], len: 0 }
    }

    /// Writes the buffered bytes.
    pub fn flush(&mut self) {
        write(&self.buffer[..self.len]);
        self.len = 0;
    }
}

/// Writes `bytes` to standard error. Bytes that cannot be written are lost.
pub fn write(bytes: &[u8]) {
    let _ = write_all(bytes);
}

/// Writes `bytes` to standard error.
///
/// # Errors
/// The system does not accept all of them.
fn write_all(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match write_once(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

/// Makes one system call that writes the first of `bytes`. Returns how many were written.
///
/// # Errors
/// The system does not accept any of them.
pub fn write_once(bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the bytes are readable.
    let written = unsafe { libc::write(2, bytes.as_ptr().cast(), bytes.len() as _) };
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}

/// A writer to standard error without a buffer, for code that may fault in the middle of a line.
/// Fails if the system does not accept all bytes.
#[derive(Clone, Copy, Debug)]
pub struct Unbuffered;

impl Write for Unbuffered {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        write_all(text.as_bytes()).map_err(|_| fmt::Error)
    }
}

impl Write for Stderr {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            self.buffer[self.len] = byte;
            self.len += 1;
            if self.len == self.buffer.len() || byte == b'\n' {
                self.flush();
            }
        }
        Ok(())
    }
}
