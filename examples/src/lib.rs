//! Helpers for the tests of the examples: a started program, which ends with its test.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit of every wait in a test. No wait takes that long, even on a slow machine, unless the
/// test fails.
const LIMIT: Duration = Duration::from_secs(120);

/// A running example that accepts connections.
#[derive(Debug)]
pub struct Program {
    /// The address on which the program listens.
    pub address: SocketAddr,
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Starts the program at `path` on a free port, with additional arguments.
    ///
    /// # Panics
    /// The program cannot be started, or does not print its address.
    pub fn start(path: &str, arguments: &[String]) -> Program {
        let mut command = Command::new(path);
        let command = command.arg("127.0.0.1:0").args(arguments).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program");
        let said = BufReader::new(child.stdout.take().expect("its output"));
        let mut program = Program { address: ([0, 0, 0, 0], 0).into(), child, output: said };
        let line = program.line();
        let address = line.strip_prefix("listening on ").and_then(|rest| rest.parse().ok());
        program.address =
            address.unwrap_or_else(|| panic!("the program did not print its address, but: {line}"));
        program
    }

    /// Returns the next line that the program prints, or an empty string at the end of its output.
    ///
    /// # Panics
    /// The output cannot be read.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// Connects to the program. Reads and writes of the connection fail after a time limit.
    ///
    /// # Panics
    /// The connection fails.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect_timeout(&self.address, LIMIT).expect("a connection");
        stream.set_read_timeout(Some(LIMIT)).expect("a limit");
        stream.set_write_timeout(Some(LIMIT)).expect("a limit");
        stream
    }

    /// Returns the number of threads of the program.
    ///
    /// # Panics
    /// `/proc` does not list the threads: the program has ended.
    pub fn threads(&self) -> usize {
        let tasks = format!("/proc/{}/task", self.child.id());
        std::fs::read_dir(tasks).expect("a running program").count()
    }

    /// Returns the number of open sockets of the program. Other descriptors do not count, because
    /// the runtime has some of its own.
    ///
    /// # Panics
    /// `/proc` does not list the descriptors: the program has ended.
    pub fn sockets(&self) -> usize {
        let descriptors = format!("/proc/{}/fd", self.child.id());
        let descriptors = std::fs::read_dir(descriptors).expect("a running program");
        let targets = descriptors.filter_map(|entry| entry.ok()?.path().read_link().ok());
        targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The program has nothing to clean up.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `condition` returns true.
///
/// # Panics
/// The time limit passes before `condition` returns true.
#[track_caller]
pub fn wait_until(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "the condition did not become true within the time limit");
        std::thread::sleep(Duration::from_millis(1));
    }
}
