//! The command `gosched`. It never schedules anything itself: it shows what the library does.

mod tour;

use clap::{Parser, Subcommand};
use std::io::{self, Write};
use std::process::ExitCode;

/// Go's goroutine scheduler for Rust, at work.
///
/// Without a command, `gosched` shows the tour.
#[derive(Debug, Parser)]
#[command(name = "gosched", version, after_help = "Example: gosched tour 4")]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows each rule of the scheduler at work, on the real scheduler
    #[command(after_help = "Examples:\n  gosched tour\n  gosched tour 4 --plain")]
    Tour {
        /// The number of one scenario; without it, all of them
        scenario: Option<usize>,
        /// Prints without colours
        #[arg(long)]
        plain: bool,
        /// The width of the text, if not that of the terminal
        #[arg(long, value_name = "COLUMNS")]
        width: Option<usize>,
    },
}

#[gosched::main]
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let command =
        arguments.command.unwrap_or(Command::Tour { scenario: None, plain: false, width: None });
    let Command::Tour { scenario, plain, width } = command;
    match tour::run(tour::Options { scenario, plain, width }) {
        Ok(tour::End::Passed) => ExitCode::SUCCESS,
        Ok(tour::End::Failed) => ExitCode::FAILURE,
        // The reader of the output has gone: there is nothing more to do.
        Err(why) if why.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(why) => {
            // Standard error may be closed; the status says enough.
            let _ = writeln!(io::stderr(), "gosched: {why}");
            ExitCode::from(2)
        }
    }
}
