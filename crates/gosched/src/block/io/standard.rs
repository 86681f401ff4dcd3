//! The descriptors 0, 1 and 2, which other processes may share.
//!
//! The descriptors stay in the mode they are in (blocking or non-blocking): the mode belongs to the
//! open file, which may also be used by the shell that started the program. A call is first tried
//! without blocking (`RWF_NOWAIT`). If the file does not support that, poll(2) checks whether the
//! file is ready, and the call is made as a marked call. Such a call is short unless another
//! process has used the file in between. A file that cannot be polled, such as a file on a disk, is
//! read and written in marked calls.
//!
//! The poller registers the descriptors themselves, not duplicates: a duplicate would keep a pipe
//! open after the program has closed its descriptor. The number of a descriptor may therefore come
//! to refer to another file. This is checked before each wait, and the new file is registered in
//! place of the old one. The goroutines that wait here for the old file then retry with the new
//! one.
//!
//! A `Standard` never buffers (`streams` does), and never closes its descriptor.

use super::polled::Polled;
use crate::block::call::blocking;
use crate::block::sync::Mutex;
use crate::sys::descriptor;
use crate::sys::poller::Direction;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One of the descriptors 0, 1 and 2.
#[derive(Clone, Copy, Debug)]
struct StdFd(RawFd);

impl AsFd for StdFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the standard descriptors stay open as long as the process runs, as std assumes.
        // If the program closes one, calls on it fail.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

/// A standard stream without a buffer.
#[derive(Debug)]
pub(super) struct Standard {
    number: StdFd,
    watch: Mutex<Watch>,
}

/// The registration of the current file with the poller.
#[derive(Debug)]
struct Watch {
    /// Identity of the file, as returned by `descriptor::identity`. `None` before the first wait.
    file: Option<(u64, u64, u64)>,
    /// `None` if the file cannot be polled.
    polled: Option<Arc<Polled<StdFd>>>,
}

/// Number of bytes that can be written without blocking to a pipe that is ready.
const MAX_PIPE_WRITE_BYTES: usize = libc::PIPE_BUF;

/// Whether the process is exiting. Writes then no longer use the poller.
pub(super) static IS_EXITING: AtomicBool = AtomicBool::new(false);

pub(super) static STDIN: Standard = Standard::new(libc::STDIN_FILENO);
pub(super) static STDOUT: Standard = Standard::new(libc::STDOUT_FILENO);
pub(super) static STDERR: Standard = Standard::new(libc::STDERR_FILENO);

impl Standard {
    const fn new(number: RawFd) -> Standard {
        let watch = Watch { file: None, polled: None };
        Standard { number: StdFd(number), watch: Mutex::new(watch) }
    }

    /// Returns the registration of the file that the descriptor refers to. Returns `None` if the
    /// file cannot be polled.
    fn poll_current_file(&self) -> Option<Arc<Polled<StdFd>>> {
        let file = descriptor::identity(&self.number).ok()?;
        let mut watch = self.watch.lock_no_unwind();
        if watch.file != Some(file) {
            // The poller takes one registration per descriptor number, so the old one is removed
            // first.
            watch.polled.take().map(|old| old.close());
            let polled = Polled::new(self.number).ok();
            *watch = Watch { file: Some(file), polled: polled.map(Arc::new) };
        }
        watch.polled.clone()
    }
}

impl AsFd for Standard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.number.as_fd()
    }
}

/// Returns `Ok(instead)` if the call has failed because the descriptor is closed, as std does: such
/// a stream reads as empty and discards what is written.
fn if_closed(result: io::Result<usize>, instead: usize) -> io::Result<usize> {
    match result {
        Err(why) if why.raw_os_error() == Some(libc::EBADF) => Ok(instead),
        result => result,
    }
}

/// Returns whether the attempt without blocking has failed in a way that calls for a wait or
/// another attempt.
fn is_inconclusive(result: &io::Result<usize>) -> bool {
    let open = [ErrorKind::WouldBlock, ErrorKind::Unsupported, ErrorKind::Interrupted];
    result.as_ref().is_err_and(|why| open.contains(&why.kind()))
}

/// Returns whether a wait was ended because the descriptor refers to another file. The registration
/// of the old file was then closed; unlike errors of the system, that error has no number.
fn is_replaced(why: &io::Error) -> bool {
    why.kind() == ErrorKind::NotConnected && why.raw_os_error().is_none()
}

impl Read for &Standard {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let first = descriptor::read_now(&self.number, buffer);
        if !is_inconclusive(&first) {
            return if_closed(first, 0);
        }
        let read = loop {
            let Some(polled) = self.poll_current_file() else {
                break blocking(|| descriptor::read(&self.number, buffer));
            };
            match polled.read(|number| read_if_ready(number, buffer)) {
                Err(why) if is_replaced(&why) => {}
                done => break done,
            }
        };
        if_closed(read, 0)
    }
}

fn read_if_ready(number: &StdFd, buffer: &mut [u8]) -> io::Result<usize> {
    match descriptor::read_now(number, buffer) {
        Err(why) if why.kind() == ErrorKind::Unsupported => {
            descriptor::check_ready(number, Direction::Read)?;
            blocking(|| descriptor::read(number, buffer))
        }
        done => done,
    }
}

impl Write for &Standard {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if IS_EXITING.load(Ordering::Relaxed) {
            return if_closed(descriptor::write(&self.number, bytes), bytes.len());
        }
        let first = descriptor::write_now(&self.number, bytes);
        if !is_inconclusive(&first) {
            return if_closed(first, bytes.len());
        }
        let written = loop {
            let Some(polled) = self.poll_current_file() else {
                break blocking(|| descriptor::write(&self.number, bytes));
            };
            match polled.write(|number| write_if_ready(number, bytes)) {
                Err(why) if is_replaced(&why) => {}
                done => break done,
            }
        };
        if_closed(written, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_if_ready(number: &StdFd, bytes: &[u8]) -> io::Result<usize> {
    match descriptor::write_now(number, bytes) {
        Err(why) if why.kind() == ErrorKind::Unsupported => {
            descriptor::check_ready(number, Direction::Write)?;
            blocking(|| descriptor::write(number, &bytes[..bytes.len().min(MAX_PIPE_WRITE_BYTES)]))
        }
        done => done,
    }
}
