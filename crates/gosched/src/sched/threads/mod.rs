//! Waiting as a thread: ordinary threads among goroutines, and goroutines that are threads.
//!
//! Where goroutines cannot move (no port, the `threads` feature, a system that `support` refuses),
//! each is an OS thread, and waits as any other thread does: on a futex, in a G of its own. So this
//! folder is both the other backend and the way ordinary threads wait for goroutines.

pub(crate) mod activity;
pub(crate) mod goroutine;
pub(crate) mod poll_thread;
pub(crate) mod thread_spawn;
pub(crate) mod timer_heap;
pub(crate) mod timer_thread;
pub(crate) mod wait;
