//! What the tests of the examples share: a program that was started, and ends with its test.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Far longer than anything takes that a test waits for, on the slowest machine too: only a failure waits so long.
const LIMIT: Duration = Duration::from_secs(120);

/// An example that runs, and listens.
#[derive(Debug)]
pub struct Program {
    /// Where.
    pub address: SocketAddr,
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Starts the program at `path`, on any free port, with more arguments.
    ///
    /// # Panics
    /// It does not say where it listens.
    pub fn start(path: &str, arguments: &[String]) -> Program {
        let mut command = Command::new(path);
        let command = command.arg("127.0.0.1:0").args(arguments).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program");
        let said = BufReader::new(child.stdout.take().expect("its output"));
        let mut program = Program { address: ([0, 0, 0, 0], 0).into(), child, output: said };
        let line = program.line();
        let address = line.strip_prefix("listening on ").and_then(|rest| rest.parse().ok());
        program.address = address.unwrap_or_else(|| panic!("not an address: {line}"));
        program
    }

    /// The next line it prints.
    ///
    /// # Panics
    /// There is none.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// A connection to it. Reads and writes that take too long fail.
    ///
    /// # Panics
    /// There is none to be had.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect_timeout(&self.address, LIMIT).expect("a connection");
        stream.set_read_timeout(Some(LIMIT)).expect("a limit");
        stream.set_write_timeout(Some(LIMIT)).expect("a limit");
        stream
    }

    /// How many threads it has.
    ///
    /// # Panics
    /// It is gone.
    pub fn threads(&self) -> usize {
        let tasks = format!("/proc/{}/task", self.child.id());
        std::fs::read_dir(tasks).expect("a running program").count()
    }

    /// How many sockets it has open. Not all descriptors: the runtime has some of its own.
    ///
    /// # Panics
    /// It is gone.
    pub fn sockets(&self) -> usize {
        let descriptors = format!("/proc/{}/fd", self.child.id());
        let descriptors = std::fs::read_dir(descriptors).expect("a running program");
        let targets = descriptors.filter_map(|entry| entry.ok()?.path().read_link().ok());
        targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It has nothing to clean up.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `condition` holds.
///
/// # Panics
/// It does not.
#[track_caller]
pub fn wait_until(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "what should happen did not");
        std::thread::sleep(Duration::from_millis(1));
    }
}
