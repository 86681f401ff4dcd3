//! The descriptors 0, 1 and 2, which belong to other processes as well.
//!
//! They are left in the mode they are in: it is the mode of the open file, and so that of the shell that
//! started us. A call is tried in a way that does not wait (`RWF_NOWAIT`). Where the file has no such way, it
//! is asked whether it is ready (poll), and then used in a marked call, which does not take long, unless
//! somebody else was faster. What cannot be polled, such as a file on a disk, is used in marked calls.
//!
//! The poller knows the numbers themselves, not copies: a copy would keep a pipe open that the program has
//! closed. So a number may come to mean another file. That is noticed before each wait, and that file is
//! polled then; those who wait for the old one, through this, look again.

use super::polled::Polled;
use crate::block::call::blocking;
use crate::block::sync::Mutex;
use crate::sys::descriptor;
use crate::sys::poller::Direction;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One of the three numbers.
#[derive(Clone, Copy, Debug)]
struct StdFd(RawFd);

impl AsFd for StdFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open for as long as the process lives, as std takes it; or calls fail.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

/// A standard stream, without a buffer.
#[derive(Debug)]
pub(super) struct Standard {
    number: StdFd,
    watch: Mutex<Watch>,
}

/// How a file is waited for.
#[derive(Debug)]
struct Watch {
    /// Which file it is; none so far.
    file: Option<(u64, u64, u64)>,
    /// None: it cannot be polled.
    polled: Option<Arc<Polled<StdFd>>>,
}

/// So much can be written to a pipe that is ready without waiting.
const MAX_PIPE_WRITE_BYTES: usize = libc::PIPE_BUF;

/// The process ends: nobody polls any more.
pub(super) static IS_EXITING: AtomicBool = AtomicBool::new(false);

pub(super) static STDIN: Standard = Standard::new(libc::STDIN_FILENO);
pub(super) static STDOUT: Standard = Standard::new(libc::STDOUT_FILENO);
pub(super) static STDERR: Standard = Standard::new(libc::STDERR_FILENO);

impl Standard {
    const fn new(number: RawFd) -> Standard {
        let watch = Watch { file: None, polled: None };
        Standard { number: StdFd(number), watch: Mutex::new(watch) }
    }

    /// What is polled for the file that is there now.
    fn poll_current_file(&self) -> Option<Arc<Polled<StdFd>>> {
        let file = descriptor::identity(&self.number).ok()?;
        let mut watch = self.watch.lock_no_unwind();
        if watch.file != Some(file) {
            // The poller knows one file by a number.
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

/// As std: a stream that the program was started without is empty.
fn if_closed(result: io::Result<usize>, instead: usize) -> io::Result<usize> {
    match result {
        Err(why) if why.raw_os_error() == Some(libc::EBADF) => Ok(instead),
        result => result,
    }
}

/// Whether the way that does not wait has said nothing yet.
fn is_inconclusive(result: &io::Result<usize>) -> bool {
    let open = [ErrorKind::WouldBlock, ErrorKind::Unsupported, ErrorKind::Interrupted];
    result.as_ref().is_err_and(|why| open.contains(&why.kind()))
}

/// Whether what was waited for is closed, since the number is another file's: the system's errors have numbers.
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
