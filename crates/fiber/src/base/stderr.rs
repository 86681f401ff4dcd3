//! Standard error without std's lock, for code that may hold any lock and must not allocate. A
//! write never allocates and never reports an error: bytes that standard error does not accept are
//! lost.

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
        write_out(&self.buffer[..self.len]);
        self.len = 0;
    }
}

/// Writes `bytes` to standard error. Bytes that cannot be written are lost.
fn write_out(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY: the bytes are readable.
        let written = unsafe { libc::write(2, bytes.as_ptr().cast(), bytes.len() as _) };
        match usize::try_from(written) {
            Ok(written) if written > 0 => bytes = &bytes[written..],
            Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return,
        }
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
