//! [`Command`]: how a process is started. A `Command` never waits for the end of the process
//! itself, and never reads its pipes: `Child` does both.

use super::child::Child;
use super::{ExitStatus, Output, Stdio};
use crate::block::call::blocking;
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{CommandArgs, CommandEnvs};

/// A builder that starts processes, like [`std::process::Command`].
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
    /// Whether standard input, output and error were configured.
    stdio_set: [bool; 3],
    kill_on_drop: bool,
}

impl From<std::process::Command> for Command {
    /// Converts a command of std.
    ///
    /// std does not show which streams are configured, so [`Command::output`] leaves all three as
    /// they are. Configure them before the conversion, or on the result.
    fn from(std: std::process::Command) -> Command {
        Command { std, stdio_set: [true; 3], kill_on_drop: false }
    }
}

impl Command {
    /// Creates a command that starts `program`. A name without a slash is searched for in `PATH`.
    pub fn new<S: AsRef<OsStr>>(program: S) -> Command {
        let std = std::process::Command::new(program);
        Command { std, stdio_set: [false; 3], kill_on_drop: false }
    }

    /// Adds an argument.
    pub fn arg<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.std.arg(arg);
        self
    }

    /// Adds several arguments.
    pub fn args<I, S>(&mut self, args: I) -> &mut Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.std.args(args);
        self
    }

    /// Sets argument 0, the name by which the program is called. The default is the program's name.
    pub fn arg0<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.std.arg0(arg);
        self
    }

    /// Sets an environment variable of the process.
    pub fn env<K, V>(&mut self, key: K, value: V) -> &mut Command
    where
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.std.env(key, value);
        self
    }

    /// Sets several environment variables of the process.
    pub fn envs<I, K, V>(&mut self, variables: I) -> &mut Command
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.std.envs(variables);
        self
    }

    /// Removes an environment variable, so that the process does not inherit it.
    pub fn env_remove<K: AsRef<OsStr>>(&mut self, key: K) -> &mut Command {
        self.std.env_remove(key);
        self
    }

    /// Removes all environment variables. The process gets only variables that are set after this
    /// call.
    pub fn env_clear(&mut self) -> &mut Command {
        self.std.env_clear();
        self
    }

    /// Sets the working directory of the process.
    pub fn current_dir<P: AsRef<Path>>(&mut self, directory: P) -> &mut Command {
        self.std.current_dir(directory);
        self
    }

    /// Configures the standard input of the process. By default it is inherited, or empty for
    /// [`Command::output`].
    pub fn stdin<T: Into<Stdio>>(&mut self, stdin: T) -> &mut Command {
        self.stdio_set[0] = true;
        self.std.stdin(stdin);
        self
    }

    /// Configures the standard output of the process. By default it is inherited, or a pipe for
    /// [`Command::output`].
    pub fn stdout<T: Into<Stdio>>(&mut self, stdout: T) -> &mut Command {
        self.stdio_set[1] = true;
        self.std.stdout(stdout);
        self
    }

    /// Configures the standard error of the process. By default it is inherited, or a pipe for
    /// [`Command::output`].
    pub fn stderr<T: Into<Stdio>>(&mut self, stderr: T) -> &mut Command {
        self.stdio_set[2] = true;
        self.std.stderr(stderr);
        self
    }

    /// Sets the user id of the process.
    pub fn uid(&mut self, id: u32) -> &mut Command {
        self.std.uid(id);
        self
    }

    /// Sets the group id of the process.
    pub fn gid(&mut self, id: u32) -> &mut Command {
        self.std.gid(id);
        self
    }

    /// Sets the process group of the process. 0 creates a new group.
    pub fn process_group(&mut self, group: i32) -> &mut Command {
        self.std.process_group(group);
        self
    }

    /// Adds a closure `f` that runs in the child process just before the program is executed.
    ///
    /// # Safety
    /// The rules of [`std::os::unix::process::CommandExt::pre_exec`] apply: `f` runs in a forked
    /// copy of this process that has one thread, and may call only functions that a signal handler
    /// may call. The copy has no runtime: `f` must neither start goroutines nor wait.
    pub unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Command
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        // SAFETY: promised by the caller.
        unsafe { self.std.pre_exec(f) };
        self
    }

    /// Sets whether dropping the [`Child`] kills the process if it still runs, and waits for its
    /// end. The default is `false`: the process continues.
    pub fn kill_on_drop(&mut self, kill: bool) -> &mut Command {
        self.kill_on_drop = kill;
        self
    }

    /// Starts the process and returns a handle to it.
    ///
    /// # Errors
    /// The program does not exist, the system refuses to start it, or a pipe to the process cannot
    /// be polled. In the last case the process is killed.
    #[doc(alias = "Start")]
    pub fn spawn(&mut self) -> io::Result<Child> {
        let child = blocking(|| self.std.spawn())?;
        Child::new(child, self.kill_on_drop)
    }

    /// Starts the process, waits until it has ended, and returns its output and exit status.
    ///
    /// # Errors
    /// The same as those of [`Command::spawn`] and [`Child::wait_with_output`].
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
        // Restores the defaults of the streams that are not configured.
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

    /// Starts the process, waits until it has ended, and returns its exit status.
    ///
    /// # Errors
    /// The same as those of [`Command::spawn`] and [`Child::wait`].
    #[doc(alias = "Run")]
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        self.spawn()?.wait()
    }

    /// Replaces this process and all its goroutines with the program. Returns only if that fails.
    pub fn exec(&mut self) -> io::Error {
        self.std.exec()
    }

    /// Returns the program.
    pub fn get_program(&self) -> &OsStr {
        self.std.get_program()
    }

    /// Returns an iterator over the arguments.
    pub fn get_args(&self) -> CommandArgs<'_> {
        self.std.get_args()
    }

    /// Returns an iterator over the environment variables that were set or removed explicitly.
    pub fn get_envs(&self) -> CommandEnvs<'_> {
        self.std.get_envs()
    }

    /// Returns the working directory of the process, or `None` if it is not set.
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.std.get_current_dir()
    }
}
