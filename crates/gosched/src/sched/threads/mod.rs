//! Waiting as a thread: ordinary threads that wait for goroutines, and goroutines that are threads.
//!
//! If goroutines cannot move between threads (no port, the `threads` feature, a system that
//! `support` rejects), each goroutine is an OS thread and waits as any other thread does: on a
//! futex, with a G of its own. So this folder is both the second backend and the way in which
//! ordinary threads wait for goroutines.
//!
//! Code in this folder never uses the record of an M or a P, and never takes the scheduler's lock.

pub(crate) mod activity;
pub(crate) mod goroutine;
pub(crate) mod poll_thread;
pub(crate) mod thread_spawn;
pub(crate) mod timer_heap;
pub(crate) mod timer_thread;
pub(crate) mod wait;
