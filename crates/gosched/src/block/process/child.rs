//! [`Child`]: a process that was started, and the pipes to and from it. A signal is never sent to a
//! process that the `Child` has reaped.

use super::{ExitStatus, Output};
use crate::block::before_wait;
use crate::block::call;
use crate::block::goroutine;
use crate::block::io::names::*;
use crate::block::signal::Signal;
use crate::block::sync::Mutex;

/// The standard input of a child process, like [`std::process::ChildStdin`]. When it is dropped or
/// closed, the child reads the end of its input.
pub struct ChildStdin {
    pub(in crate::block) polled: Polled<std::io::PipeWriter>,
}

/// The standard output of a child process, like [`std::process::ChildStdout`].
pub struct ChildStdout {
    pub(in crate::block) polled: Polled<std::io::PipeReader>,
}

/// The standard error of a child process, like [`std::process::ChildStderr`].
pub struct ChildStderr {
    pub(in crate::block) polled: Polled<std::io::PipeReader>,
}

writing_end!(ChildStdin, std::process::ChildStdin);
reading_end!(ChildStdout, std::process::ChildStdout);
reading_end!(ChildStderr, std::process::ChildStderr);

/// A child process, like [`std::process::Child`].
///
/// Dropping a `Child` does not end the process, unless
/// [`Command::kill_on_drop`](super::Command::kill_on_drop) is set. A process that has ended but was
/// not waited for remains in the system's process table, as a zombie, until this process ends.
///
/// Several goroutines may use one `Child` at the same time:
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
    /// The standard input of the process, if it is a pipe.
    pub stdin: Option<ChildStdin>,
    /// The standard output of the process, if it is a pipe.
    pub stdout: Option<ChildStdout>,
    /// The standard error of the process, if it is a pipe.
    pub stderr: Option<ChildStderr>,
    process: Process,
}

/// The process of a [`Child`]. Once the process is reaped, the system may give its number to
/// another process. Reaping and signalling are therefore done under the lock of `std`.
#[derive(Debug)]
struct Process {
    id: u32,
    std: Mutex<std::process::Child>,
    /// Descriptor that becomes readable when the process ends. `None` if the system does not
    /// support it.
    pidfd: Option<Polled<OwnedFd>>,
    kill_on_drop: bool,
}

impl Child {
    pub(super) fn new(mut std: std::process::Child, kill_on_drop: bool) -> io::Result<Child> {
        let (stdin, stdout, stderr) = (std.stdin.take(), std.stdout.take(), std.stderr.take());
        // If a conversion below fails, the process is killed: the caller would have no handle to
        // it.
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

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.process.id
    }

    /// Kills the process with `SIGKILL`. Does nothing if the process has already ended.
    ///
    /// # Errors
    /// The process may not be signalled, for example because it has changed its user id.
    pub fn kill(&self) -> io::Result<()> {
        self.process.std.lock_no_unwind().kill()
    }

    /// Sends a signal to the process. Does nothing if the process has already ended.
    ///
    /// # Errors
    /// The process may not be signalled, or there is no such signal.
    pub fn send_signal(&self, signal: Signal) -> io::Result<()> {
        self.process.send(signal)
    }

    /// Waits until the process has ended, and returns its exit status. If `stdin` is still set, it
    /// is closed first.
    ///
    /// # Errors
    /// The system call fails, for example because other code has already waited for the process by
    /// its id.
    pub fn wait(&self) -> io::Result<ExitStatus> {
        if let Some(stdin) = &self.stdin {
            // The only possible error is that it is already closed.
            let _ = stdin.close();
        }
        self.process.wait()
    }

    /// Returns the exit status if the process has ended, and `None` if it still runs. Does not
    /// wait.
    ///
    /// # Errors
    /// The same as those of [`Child::wait`].
    pub fn try_wait(&self) -> io::Result<Option<ExitStatus>> {
        self.process.std.lock_no_unwind().try_wait()
    }

    /// Reads the standard output and the standard error to their ends, both at the same time, then
    /// waits until the process has ended. If `stdin` is still set, it is closed first.
    ///
    /// # Errors
    /// A pipe cannot be read; otherwise the same as those of [`Child::wait`].
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        let stderr = self.stderr.take();
        // If both streams are pipes, another goroutine reads standard error: a child that fills one
        // pipe must not block while only the other pipe is read.
        let stderr = stderr.map(|stderr| match self.stdout {
            Some(_) => Reading::Begun(goroutine::go(move || all_of(stderr))),
            None => Reading::Done(all_of(stderr)),
        });
        let stdout = self.stdout.take().map_or(Ok(Vec::new()), all_of);
        let stderr = match stderr {
            None => Ok(Vec::new()),
            Some(Reading::Done(read)) => read,
            Some(Reading::Begun(goroutine)) => goroutine.join().unwrap_or_else(|why| {
                Err(io::Error::other(format!(
                    "the goroutine that reads standard error failed: {why}"
                )))
            }),
        };
        Ok(Output { stdout: stdout?, stderr: stderr?, status: self.wait()? })
    }
}

/// Standard error, which another goroutine reads (`Begun`) or which has been read (`Done`).
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
                // The wait does not reap the process, so its id cannot be reused before `try_wait`
                // above reaps it.
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
        // SAFETY: no memory is involved. The process is not reaped, so the id is still its own.
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

/// Kills the process when dropped, and waits for its end, which usually takes little time.
struct KillOnDrop<'a>(&'a mut std::process::Child);

impl Drop for KillOnDrop<'_> {
    fn drop(&mut self) {
        if self.0.kill().is_ok() {
            let _ = self.0.wait();
        }
    }
}
