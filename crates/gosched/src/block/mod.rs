//! Everything that a goroutine can wait for. Each wait parks the caller with `sched::park` and ends
//! with `sched::ready`; channels, `select!` and locks share one record for it, `waiter::Waiter`.
//!
//! This folder never chooses which goroutine runs next, or on which thread: `sched` does.

pub(crate) mod call;
pub mod chan;
pub mod context;
pub(crate) mod exit;
pub mod fs;
pub(crate) mod future;
pub(crate) mod goroutine;
#[macro_use]
pub mod io;
pub(crate) mod limit;
pub(crate) mod linked_list;
pub mod net;
pub mod process;
pub(crate) mod select;
pub mod signal;
pub mod sync;
pub mod time;
pub(crate) mod wait_record;
pub(crate) mod waiter;

use crate::sched;

/// Runs the checks that every call that may block makes first: resumes a `goexit` whose unwinding
/// was caught, and panics in a forked child process.
#[inline]
pub(crate) fn before_wait() {
    exit::resume_if_exiting();
    sched::refuse_in_child("a blocking operation");
}
