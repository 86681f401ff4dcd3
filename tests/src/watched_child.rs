//! Child processes that a test controls while they run: the test waits for their output, sends them
//! a signal, or closes their input. A child that hangs fails the test, with its output.

use crate::wait::CHILD_LIMIT;
use std::io::Read;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

/// A running child process. Dropping it kills the child.
#[derive(Debug)]
pub struct WatchedChild {
    child: Child,
    input: Option<ChildStdin>,
    said: Arc<(Mutex<ChildOutput>, Condvar)>,
}

/// The output of a child so far.
#[derive(Clone, Debug, Default)]
pub struct ChildOutput {
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
    closed_streams: usize,
}

impl WatchedChild {
    /// Starts the child.
    ///
    /// # Panics
    /// The child cannot be started.
    pub fn start(mut command: Command) -> WatchedChild {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let said = Arc::default();
        collect_stream(child.stdout.take().expect("piped"), &said, |said| &mut said.out);
        collect_stream(child.stderr.take().expect("piped"), &said, |said| &mut said.err);
        WatchedChild { input: child.stdin.take(), child, said }
    }

    /// Waits until `enough` returns true for the child's output, and returns that output.
    ///
    /// # Panics
    /// The child closes its output or hangs before that.
    pub fn wait_for(&mut self, what: &str, enough: impl Fn(&ChildOutput) -> bool) -> ChildOutput {
        let said = self.wait(|said| enough(said) || said.closed_streams == 2);
        if enough(&said) {
            said
        } else {
            let _ = self.child.kill();
            panic!("no {what}\n{}\n{}", said.out, said.err);
        }
    }

    /// Sends the child a signal.
    ///
    /// # Panics
    /// The signal cannot be sent.
    pub fn signal(&self, number: i32) {
        let id = self.child.id().cast_signed();
        // SAFETY: no memory is involved; the child has not been waited for, so its id is not
        // reused.
        let sent = unsafe { libc::kill(id, number) };
        assert_eq!(sent, 0, "{}", std::io::Error::last_os_error());
    }

    /// Closes the child's standard input.
    pub fn close_stdin(&mut self) {
        drop(self.input.take());
    }

    /// Waits until the child ends. Returns its exit status and all its output.
    ///
    /// # Panics
    /// The child hangs.
    pub fn wait_for_exit(mut self) -> (ExitStatus, ChildOutput) {
        let said = self.wait(|said| said.closed_streams == 2);
        if said.closed_streams < 2 {
            let _ = self.child.kill();
            panic!("it does not end\n{}\n{}", said.out, said.err);
        }
        (self.child.wait().expect("a child"), said)
    }

    /// Waits until `enough` returns true, or until [`CHILD_LIMIT`]. Returns the output.
    fn wait(&self, enough: impl Fn(&ChildOutput) -> bool) -> ChildOutput {
        let (said, changed) = &*self.said;
        let deadline = Instant::now() + CHILD_LIMIT;
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        while !enough(&said) && Instant::now() < deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            let waited = changed.wait_timeout(said, left);
            said = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        said.clone()
    }
}

impl Drop for WatchedChild {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a thread that appends the stream to the child's output.
fn collect_stream(
    mut from: impl Read + Send + 'static,
    said: &Arc<(Mutex<ChildOutput>, Condvar)>,
    of: fn(&mut ChildOutput) -> &mut String,
) {
    let said = said.clone();
    std::thread::spawn(move || {
        let (said, changed) = &*said;
        let mut buffer = [0; 1 << 16];
        let mut bytes = Vec::new();
        loop {
            let count = from.read(&mut buffer).unwrap_or(0);
            bytes.extend_from_slice(&buffer[..count]);
            let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
            // An incomplete UTF-8 character waits for its remaining bytes.
            let whole = match std::str::from_utf8(&bytes) {
                Err(error) if count > 0 => error.valid_up_to(),
                _ => bytes.len(),
            };
            *of(&mut said) += &String::from_utf8_lossy(&bytes[..whole]);
            bytes.drain(..whole);
            said.closed_streams += usize::from(count == 0);
            changed.notify_all();
            if count == 0 {
                return;
            }
        }
    });
}
