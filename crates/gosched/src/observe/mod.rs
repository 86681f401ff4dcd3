//! Seeing: what every goroutine does, in Go's texts. Nothing here is on anybody's way until somebody looks.

mod fatal;
mod folded;
mod goroutines;
mod json;
mod level;
pub(crate) mod metrics;
mod quit;
pub(crate) mod sched_trace;
mod symbols;
mod text;

pub(crate) use fatal::{dump_to_stderr, prepare};
pub(crate) use folded::folded;
pub(crate) use json::json;
pub(crate) use quit::watch_for_quit;
pub(crate) use text::{text, write_text};
