//! The panic hook, which prints the panics of goroutines. The hook never applies the panic policy:
//! `block::exit` does.

use crate::block::exit::panic_message;
use crate::gmp::current;
use crate::sched;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Write as _;
use std::io::Write as _;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};

/// Installs a panic hook that names the goroutine in which a panic happened. The hook calls the
/// previous hook for panics outside goroutines. A hook that the program sets later replaces this
/// one. Called before `main`; on systems other than Linux the hook is not installed.
pub(crate) fn install_hook() {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if INSTALLED.swap(true, Ordering::Relaxed) {
        return;
    }
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        sched::check_panic(info);
        match current::goroutine() {
            Some(g) => report(info, g.id(), g.details().and_then(|d| d.name.clone()).as_deref()),
            None => {
                before(info);
                if let Some(note) = seed_note() {
                    print(&note);
                }
            }
        }
    }));
}

/// Returns a line with the seed of this run, or `None` if no seed was given.
fn seed_note() -> Option<String> {
    sched::seed()
        .map(|seed| format!("note: the scheduler's choices come from GOSCHED_SEED={seed}\n"))
}

/// Prints what std prints for a thread, but with the id and the name of the goroutine.
fn report(info: &PanicHookInfo<'_>, id: u64, name: Option<&str>) {
    let mut text = format!("\ngoroutine {id}");
    if let Some(name) = name {
        let _ = write!(text, " ({name})");
    }
    text.push_str(" panicked");
    if let Some(location) = info.location() {
        let _ = write!(text, " at {location}");
    }
    let payload = panic_message(info.payload()).unwrap_or("Box<dyn Any>");
    let _ = writeln!(text, ":\n{payload}");
    text.extend(seed_note());
    let trace = Backtrace::capture();
    static NOTE_PRINTED: AtomicBool = AtomicBool::new(false);
    match trace.status() {
        BacktraceStatus::Captured => drop(writeln!(text, "stack backtrace:\n{trace}")),
        BacktraceStatus::Disabled if !NOTE_PRINTED.swap(true, Ordering::Relaxed) => text.push_str(
            "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n",
        ),
        _ => {}
    }
    print(&text);
}

/// Prints without `eprint!`, which panics if it cannot write: a panic in the hook aborts the
/// process.
fn print(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
