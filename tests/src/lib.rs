//! What the suites share: a runner that moves goroutines between threads, a storm of signals, the
//! linked C code, and child processes for tests that crash.

#[cfg(not(feature = "system-alloc"))]
mod allocator;

pub mod actors;
pub mod alloc_blocks;
pub mod c_thread;
pub mod c_waits;
pub mod children;
pub mod dumps;
pub mod environment;
pub mod event_rules;
pub mod go_formats;
pub mod golang;
pub mod json;
pub mod linked;
pub mod lock_contention;
pub mod modules;
pub mod preempt_runs;
pub mod refuse;
pub mod runner;
pub mod shared_library;
pub mod signal_storm;
pub mod sockets;
pub mod trace_lines;
pub mod wait;
pub mod watched_child;

/// README's program, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
#[derive(Debug)]
pub struct Readme;
