//! A process that was started.

use super::{ExitStatus, Output};
use crate::block::before_wait;
use crate::block::call;
use crate::block::goroutine;
use crate::block::io::names::*;
use crate::block::signal::Signal;
use crate::block::sync::Mutex;

/// What a child reads: [`std::process::ChildStdin`], polled. Dropped or closed, the child finds the end.
pub struct ChildStdin {
    pub(in crate::block) polled: Polled<std::io::PipeWriter>,
}

/// What a child writes to its standard output: [`std::process::ChildStdout`], polled.
pub struct ChildStdout {
    pub(in crate::block) polled: Polled<std::io::PipeReader>,
}

/// What a child writes to its standard error: [`std::process::ChildStderr`], polled.
pub struct ChildStderr {
    pub(in crate::block) polled: Polled<std::io::PipeReader>,
}

writing_end!(ChildStdin, std::process::ChildStdin);
reading_end!(ChildStdout, std::process::ChildStdout);
reading_end!(ChildStderr, std::process::ChildStderr);

/// A child process: [`std::process::Child`], for goroutines.
///
/// Dropped, it goes on, unless [`Command::kill_on_drop`](super::Command::kill_on_drop) said otherwise; one
/// that ends without being waited for stays in the system's table until this process ends.
///
/// Any number of goroutines may use it at once:
///
/// ```
/// use gosched::process::Command;
/// use std::os::unix::process::ExitStatusExt;
/// use std::sync::Arc;
///
/// # fn main() -> std::io::Result<()> {
/// let child = Arc::new(Command::new("sleep").arg("1000").spawn()?);
/// let waiting = child.clone();
/// let ended = gosched::go(move || waiting.wait());
/// child.kill()?;
/// assert_eq!(ended.join().unwrap()?.signal(), Some(9));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Child {
    /// Its standard input, if that is a pipe.
    pub stdin: Option<ChildStdin>,
    /// Its standard output, if that is a pipe.
    pub stdout: Option<ChildStdout>,
    /// Its standard error, if that is a pipe.
    pub stderr: Option<ChildStderr>,
    process: Process,
}

/// The process itself. Its number is its own until its end was seen, so all of that is done under the lock.
#[derive(Debug)]
struct Process {
    id: u32,
    std: Mutex<std::process::Child>,
    /// Can be read when it has ended. None where the system has nothing like that.
    pidfd: Option<Polled<OwnedFd>>,
    kill_on_drop: bool,
}

impl Child {
    pub(super) fn new(mut std: std::process::Child, kill_on_drop: bool) -> io::Result<Child> {
        let (stdin, stdout, stderr) = (std.stdin.take(), std.stdout.take(), std.stderr.take());
        // From here on an error kills it: nobody would know of it.
        let mut process = Process::new(std, true);
        let child = Child {
            stdin: stdin.map(ChildStdin::from_std).transpose()?,
            stdout: stdout.map(ChildStdout::from_std).transpose()?,
            stderr: stderr.map(ChildStderr::from_std).transpose()?,
            process: {
                process.kill_on_drop = kill_on_drop;
                process
            },
        };
        Ok(child)
    }

    /// Its number in the system.
    pub fn id(&self) -> u32 {
        self.process.id
    }

    /// Ends it at once. Nothing happens to one whose end was seen.
    ///
    /// # Errors
    /// The system refuses.
    pub fn kill(&self) -> io::Result<()> {
        self.process.std.lock_no_unwind().kill()
    }

    /// Sends it a signal. Nothing happens to one whose end was seen.
    ///
    /// # Errors
    /// The system refuses, or knows no such signal.
    pub fn send_signal(&self, signal: Signal) -> io::Result<()> {
        self.process.send(signal)
    }

    /// Waits until it has ended. Its standard input is closed before, if it is still here.
    ///
    /// # Errors
    /// The system refuses, or somebody else has waited for the process by its number.
    pub fn wait(&self) -> io::Result<ExitStatus> {
        if let Some(stdin) = &self.stdin {
            // It may be closed already.
            let _ = stdin.close();
        }
        self.process.wait()
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// As [`Child::wait`].
    pub fn try_wait(&self) -> io::Result<Option<ExitStatus>> {
        self.process.std.lock_no_unwind().try_wait()
    }

    /// Reads all that it writes, both streams at once, and waits for its end. Its standard input is closed
    /// before, if it is still here.
    ///
    /// # Errors
    /// As [`Child::wait`], or a pipe cannot be read.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        let stderr = self.stderr.take();
        // One of them by another goroutine: a child that fills one pipe must not wait for the other.
        let stderr = stderr.map(|stderr| match self.stdout {
            Some(_) => Reading::Begun(goroutine::go(move || all_of(stderr))),
            None => Reading::Done(all_of(stderr)),
        });
        let stdout = self.stdout.take().map_or(Ok(Vec::new()), all_of);
        let stderr = match stderr {
            None => Ok(Vec::new()),
            Some(Reading::Done(read)) => read,
            Some(Reading::Begun(goroutine)) => goroutine.join().unwrap_or_else(|why| {
                Err(io::Error::other(format!("who read standard error: {why}")))
            }),
        };
        Ok(Output { stdout: stdout?, stderr: stderr?, status: self.wait()? })
    }
}

/// Reading one of the streams.
enum Reading {
    Begun(goroutine::JoinHandle<io::Result<Vec<u8>>>),
    Done(io::Result<Vec<u8>>),
}

fn all_of(mut stream: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Process {
    fn new(std: std::process::Child, kill_on_drop: bool) -> Process {
        let id = std.id();
        let end = descriptor::pidfd_open(id).and_then(Polled::new).ok();
        Process { id, std: Mutex::new(std), pidfd: end, kill_on_drop }
    }

    fn wait(&self) -> io::Result<ExitStatus> {
        before_wait();
        loop {
            if let Some(status) = self.std.lock_no_unwind().try_wait()? {
                return Ok(status);
            }
            match &self.pidfd {
                Some(end) => end.read(|end| descriptor::check_ready(end, Direction::Read))?,
                // It stays to be waited for: nobody else gets its number before that is done above.
                None => match call::blocking_now(|| descriptor::block_until_waitable(self.id)) {
                    Err(why) if why.raw_os_error() == Some(libc::ECHILD) => {}
                    Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                    ended => ended?,
                },
            }
        }
    }

    fn send(&self, signal: Signal) -> io::Result<()> {
        let mut std = self.std.lock_no_unwind();
        if std.try_wait()?.is_some() {
            return Ok(());
        }
        // SAFETY: no memory is involved; its end was not seen, so the number is its own.
        let sent = unsafe { libc::kill(self.id.cast_signed(), signal.as_raw()) };
        crate::sys::poller::checked(sent).map(drop)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.kill_on_drop && !matches!(self.std.get_mut().try_wait(), Ok(Some(_))) {
            drop(call::BlockingDrop::new(KillOnDrop(self.std.get_mut())));
        }
    }
}

/// A process that is killed, and waited for, when this is dropped: it does not take long, as a rule.
struct KillOnDrop<'a>(&'a mut std::process::Child);

impl Drop for KillOnDrop<'_> {
    fn drop(&mut self) {
        if self.0.kill().is_ok() {
            let _ = self.0.wait();
        }
    }
}
