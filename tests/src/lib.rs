//! What the suites share: a runner that moves goroutines between threads, a storm of signals, the
//! linked C code, and child processes for tests that crash.

pub mod children;
pub mod linked;
pub mod runner;
pub mod storm;
