//! How a process is to be started.

use super::child::Child;
use super::{ExitStatus, Output, Stdio};
use crate::block::call::blocking;
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{CommandArgs, CommandEnvs};

/// A process to be started: [`std::process::Command`], for goroutines.
///
/// ```
/// use gosched::process::Command;
///
/// # fn main() -> std::io::Result<()> {
/// let output = Command::new("echo").args(["one", "two"]).output()?;
/// assert_eq!(output.stdout, b"one two\n");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Command {
    std: std::process::Command,
    /// Which of the three streams were spoken of.
    stdio_set: [bool; 3],
    kill_on_drop: bool,
}

impl From<std::process::Command> for Command {
    /// Std does not tell which streams it was told about: [`Command::output`] does not change them, so they
    /// should be set before, or on the result.
    fn from(std: std::process::Command) -> Command {
        Command { std, stdio_set: [true; 3], kill_on_drop: false }
    }
}

impl Command {
    /// To start `program`, which is looked for in `PATH` if it has no slash.
    pub fn new<S: AsRef<OsStr>>(program: S) -> Command {
        let std = std::process::Command::new(program);
        Command { std, stdio_set: [false; 3], kill_on_drop: false }
    }

    /// One more argument.
    pub fn arg<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.std.arg(arg);
        self
    }

    /// More arguments.
    pub fn args<I, S>(&mut self, args: I) -> &mut Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.std.args(args);
        self
    }

    /// What the program is told it was called as.
    pub fn arg0<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.std.arg0(arg);
        self
    }

    /// Sets a variable of its environment.
    pub fn env<K, V>(&mut self, key: K, value: V) -> &mut Command
    where
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.std.env(key, value);
        self
    }

    /// Sets variables of its environment.
    pub fn envs<I, K, V>(&mut self, variables: I) -> &mut Command
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.std.envs(variables);
        self
    }

    /// It does not get this variable.
    pub fn env_remove<K: AsRef<OsStr>>(&mut self, key: K) -> &mut Command {
        self.std.env_remove(key);
        self
    }

    /// It gets no variables but those that are set after this.
    pub fn env_clear(&mut self) -> &mut Command {
        self.std.env_clear();
        self
    }

    /// The directory it starts in.
    pub fn current_dir<P: AsRef<Path>>(&mut self, directory: P) -> &mut Command {
        self.std.current_dir(directory);
        self
    }

    /// Its standard input. Not said: that of this process; nothing for [`Command::output`].
    pub fn stdin<T: Into<Stdio>>(&mut self, stdin: T) -> &mut Command {
        self.stdio_set[0] = true;
        self.std.stdin(stdin);
        self
    }

    /// Its standard output. Not said: that of this process; a pipe for [`Command::output`].
    pub fn stdout<T: Into<Stdio>>(&mut self, stdout: T) -> &mut Command {
        self.stdio_set[1] = true;
        self.std.stdout(stdout);
        self
    }

    /// Its standard error. Not said: that of this process; a pipe for [`Command::output`].
    pub fn stderr<T: Into<Stdio>>(&mut self, stderr: T) -> &mut Command {
        self.stdio_set[2] = true;
        self.std.stderr(stderr);
        self
    }

    /// Whose process it is.
    pub fn uid(&mut self, id: u32) -> &mut Command {
        self.std.uid(id);
        self
    }

    /// Which group of users it belongs to.
    pub fn gid(&mut self, id: u32) -> &mut Command {
        self.std.gid(id);
        self
    }

    /// Which process group it belongs to; 0: a new one of its own.
    pub fn process_group(&mut self, group: i32) -> &mut Command {
        self.std.process_group(group);
        self
    }

    /// Runs `f` in the new process, just before the program.
    ///
    /// # Safety
    /// As [`std::os::unix::process::CommandExt::pre_exec`]: `f` runs in a copy of this process that has one
    /// thread, and may call only what a signal handler may. There is no runtime there: no goroutines, no
    /// waits.
    pub unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Command
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        // SAFETY: promised by the caller.
        unsafe { self.std.pre_exec(f) };
        self
    }

    /// Whether a [`Child`] that is dropped before its end was seen is killed, and waited for. Not said: it
    /// goes on.
    pub fn kill_on_drop(&mut self, kill: bool) -> &mut Command {
        self.kill_on_drop = kill;
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// There is no such program, or the system refuses.
    #[doc(alias = "Start")]
    pub fn spawn(&mut self) -> io::Result<Child> {
        let child = blocking(|| self.std.spawn())?;
        Child::new(child, self.kill_on_drop)
    }

    /// Starts it, waits for its end, and has what it wrote.
    ///
    /// # Errors
    /// As [`Command::spawn`] and [`Child::wait_with_output`].
    pub fn output(&mut self) -> io::Result<Output> {
        let [stdin, stdout, stderr] = self.stdio_set;
        if !stdin {
            self.std.stdin(Stdio::null());
        }
        if !stdout {
            self.std.stdout(Stdio::piped());
        }
        if !stderr {
            self.std.stderr(Stdio::piped());
        }
        let child = self.spawn();
        // As it was.
        if !stdin {
            self.std.stdin(Stdio::inherit());
        }
        if !stdout {
            self.std.stdout(Stdio::inherit());
        }
        if !stderr {
            self.std.stderr(Stdio::inherit());
        }
        child?.wait_with_output()
    }

    /// Starts it, and waits for its end.
    ///
    /// # Errors
    /// As [`Command::spawn`] and [`Child::wait`].
    #[doc(alias = "Run")]
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        self.spawn()?.wait()
    }

    /// Replaces this process, and all of its goroutines, by the program: comes back only if that fails.
    pub fn exec(&mut self) -> io::Error {
        self.std.exec()
    }

    /// The program.
    pub fn get_program(&self) -> &OsStr {
        self.std.get_program()
    }

    /// Its arguments.
    pub fn get_args(&self) -> CommandArgs<'_> {
        self.std.get_args()
    }

    /// What is said of its environment.
    pub fn get_envs(&self) -> CommandEnvs<'_> {
        self.std.get_envs()
    }

    /// The directory it starts in, if one was said.
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.std.get_current_dir()
    }
}
