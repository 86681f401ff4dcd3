//! Inspection: shows what every goroutine does, in Go's formats. Until it is used, it costs
//! the program only the records that `probe` allows for: who holds a lock, what a waiter waits for.
//! This folder never changes what it inspects.

pub(crate) mod events;
mod fatal;
mod folded;
mod goroutines;
pub(crate) mod hints;
mod json;
mod level;
pub(crate) mod metrics;
pub(crate) mod sched_trace;
mod symbols;
mod text;
mod threads;

#[cfg(ported)]
mod quit;

#[cfg(not(ported))]
#[path = "quit_none.rs"]
mod quit;

#[cfg(ported)]
mod library;

#[cfg(not(ported))]
#[path = "library_none.rs"]
mod library;

pub(crate) use fatal::{dump_to_stderr, prepare};
pub(crate) use folded::folded;
pub(crate) use goroutines::count_goroutines_and_frames;
pub(crate) use json::{json, write_json};
pub(crate) use quit::install_quit_handler;
pub(crate) use text::{text, write_text};
