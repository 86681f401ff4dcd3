//! Everything a goroutine can wait for, built on one waiter and one park/ready pair.

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
pub mod net;
pub mod process;
pub(crate) mod select;
pub mod signal;
pub mod sync;
pub mod time;
pub(crate) mod wait_record;
pub(crate) mod waiter;

use crate::sched;

/// What every call that may wait does first.
#[inline]
pub(crate) fn before_wait() {
    exit::resume_if_exiting();
    sched::refuse_in_child("a wait");
}
