//! Child processes that are watched while they run: what they print is waited for, then they get a
//! signal, or the end of their input. One that hangs fails, with what it printed.

use crate::wait::CHILD_LIMIT;
use std::io::Read;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

/// A child that runs.
#[derive(Debug)]
pub struct WatchedChild {
    child: Child,
    input: Option<ChildStdin>,
    said: Arc<(Mutex<ChildOutput>, Condvar)>,
}

/// What a child printed so far.
#[derive(Clone, Debug, Default)]
pub struct ChildOutput {
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
    closed_streams: usize,
}

impl WatchedChild {
    /// Starts it.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn start(mut command: Command) -> WatchedChild {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let said = Arc::default();
        collect_stream(child.stdout.take().expect("piped"), &said, |said| &mut said.out);
        collect_stream(child.stderr.take().expect("piped"), &said, |said| &mut said.err);
        WatchedChild { input: child.stdin.take(), child, said }
    }

    /// Waits until it printed enough.
    ///
    /// # Panics
    /// It ended, or hangs.
    pub fn wait_for(&mut self, what: &str, enough: impl Fn(&ChildOutput) -> bool) -> ChildOutput {
        let said = self.wait(|said| enough(said) || said.closed_streams == 2);
        if enough(&said) {
            said
        } else {
            let _ = self.child.kill();
            panic!("no {what}\n{}\n{}", said.out, said.err);
        }
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// It is gone.
    pub fn signal(&self, number: i32) {
        let id = self.child.id().cast_signed();
        // SAFETY: no memory is involved; the child was not waited for, so the id is still its own.
        let sent = unsafe { libc::kill(id, number) };
        assert_eq!(sent, 0, "{}", std::io::Error::last_os_error());
    }

    /// Ends its input.
    pub fn close_stdin(&mut self) {
        drop(self.input.take());
    }

    /// Waits for its end: how it ended, and all it printed.
    ///
    /// # Panics
    /// It hangs.
    pub fn wait_for_exit(mut self) -> (ExitStatus, ChildOutput) {
        let said = self.wait(|said| said.closed_streams == 2);
        if said.closed_streams < 2 {
            let _ = self.child.kill();
            panic!("it does not end\n{}\n{}", said.out, said.err);
        }
        (self.child.wait().expect("a child"), said)
    }

    /// Until then, or the limit.
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

/// A thread that keeps what comes from there.
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
            // Half a character waits for its other half.
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
