//! A shared library that runs goroutines inside a host program that does not use gosched itself.

use gosched::runtime::{Backend, backend};

/// Runs 100 goroutines and joins them. Returns 1 if goroutines move between threads, 2 if each
/// goroutine is a thread, and 3 if a result is wrong.
#[unsafe(no_mangle)]
pub extern "C" fn gosched_tests_run_goroutines() -> i32 {
    let start = |number: u64| {
        gosched::go(move || {
            gosched::yield_now();
            number
        })
    };
    let handles: Vec<_> = (1..=100).map(start).collect();
    let results = handles.into_iter().map(gosched::JoinHandle::join);
    match (results.sum::<Result<u64, _>>(), backend()) {
        (Ok(5050), Backend::MultiThread) => 1,
        (Ok(5050), Backend::Threads) => 2,
        _ => 3,
    }
}
