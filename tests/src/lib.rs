//! What the suites share: a runner that moves goroutines between threads, a storm of signals, the
//! linked C code, and child processes for tests that crash.

#[cfg(not(feature = "system-alloc"))]
mod allocator;

pub mod attended;
pub mod blocks;
pub mod children;
pub mod dumps;
pub mod golang;
pub mod json;
pub mod linked;
pub mod locks;
pub mod modules;
pub mod parties;
pub mod preempting;
pub mod refuse;
pub mod runner;
pub mod shapes;
pub mod shared_library;
pub mod sockets;
pub mod storm;
pub mod trace_lines;
pub mod wait;
pub mod waits;

/// README's program, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
#[derive(Debug)]
pub struct Readme;
