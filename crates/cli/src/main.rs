//! The command `gosched`. It never schedules anything itself: it shows what the library does.

mod new;
mod tour;

use clap::{Parser, Subcommand};
use gosched::signal::{self, Signal};
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::{self, ExitCode};
use std::thread;

/// Go's goroutine scheduler for Rust, at work.
///
/// Without a command, `gosched` shows the tour.
#[derive(Debug, Parser)]
#[command(
    name = "gosched",
    version,
    after_help = "Examples:\n  gosched                  the tour\n  gosched tour 4           one scenario\n  gosched tour --html out  a page that shows every step\n  gosched new hello        a project to start from"
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows each rule of the scheduler at work, on the real scheduler
    ///
    /// Each scenario is a program that runs on the real scheduler. What is drawn comes from
    /// recorded events, and each step is checked against the rule that it shows. The status is 1
    /// if the scheduler did not keep a rule.
    #[command(
        after_help = "Examples:\n  gosched tour\n  gosched tour 4 --plain\n  gosched tour --html out && xdg-open out/index.html"
    )]
    Tour(TourArguments),
    /// Makes a small project that uses gosched: it builds, runs and has a test
    #[command(after_help = "Example:\n  gosched new hello && cd hello && cargo run")]
    New {
        /// The folder to make; its last part is the name of the package
        folder: PathBuf,
        /// The folder of the crate `gosched`, if not the one that this command was built from
        #[arg(long, value_name = "FOLDER")]
        path: Option<PathBuf>,
    },
}

#[derive(Debug, clap::Args)]
struct TourArguments {
    /// The number of one scenario; without it, all of them
    scenario: Option<usize>,
    /// Writes a page into this folder that shows every step
    #[arg(long, value_name = "FOLDER")]
    html: Option<PathBuf>,
    /// Prints without colours and progress (the variable NO_COLOR turns off the colours)
    #[arg(long)]
    plain: bool,
    /// The width of the text, if not that of the terminal
    #[arg(long, value_name = "COLUMNS")]
    width: Option<usize>,
    /// How many goroutines the last scenario starts
    #[arg(long, value_name = "NUMBER", default_value_t = MILLION)]
    goroutines: u64,
}

const MILLION: u64 = 1_000_000;

#[gosched::main]
fn main() -> ExitCode {
    let tour = TourArguments {
        scenario: None,
        html: None,
        plain: false,
        width: None,
        goroutines: MILLION,
    };
    let done = match Arguments::parse().command.unwrap_or(Command::Tour(tour)) {
        Command::Tour(TourArguments { scenario, html, plain, width, goroutines }) => {
            end_on_interrupt();
            tour::run(&tour::Options { scenario, plain, width, goroutines, html })
        }
        Command::New { folder, path } => new::new(&folder, path).map(|()| tour::End::Passed),
    };
    match done {
        Ok(tour::End::Passed) => ExitCode::SUCCESS,
        Ok(tour::End::Failed) => ExitCode::FAILURE,
        // The reader of the output has gone: there is nothing more to do.
        Err(why) if why.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(why) => {
            say(&why.to_string());
            ExitCode::from(2)
        }
    }
}

/// Writes a line to standard error. It may be closed: the exit status says enough.
fn say(what: &str) {
    let _ = writeln!(io::stderr(), "gosched: {what}");
}

/// Ends the process at Ctrl-C, with the status that shells give to it. A thread waits for that, and
/// no goroutine: all Ps may be taken.
fn end_on_interrupt() {
    const INTERRUPTED: i32 = 130;
    let interrupts = signal::notify(&[Signal::INT]);
    let waiter = thread::Builder::new().spawn(move || {
        if interrupts.recv().is_err() {
            return;
        }
        if io::stderr().is_terminal() {
            // The line may show ^C, and the progress of a scenario.
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
        say("interrupted");
        process::exit(INTERRUPTED);
    });
    if waiter.is_err() {
        say("the system starts no thread that could wait for Ctrl-C");
    }
}
