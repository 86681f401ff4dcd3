//! Async helpers for the suites `async_bridge`, `async_chan` and `async_io`: a counting waker, and
//! executors.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

/// A waker that counts its wake-ups.
#[derive(Debug, Default)]
pub struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl CountingWaker {
    /// Returns the counter and a waker that increments it.
    pub fn new() -> (Arc<CountingWaker>, Waker) {
        let bell = Arc::new(CountingWaker::default());
        (bell.clone(), Waker::from(bell))
    }

    /// Returns the number of wake-ups so far.
    pub fn wake_count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

/// Polls `future` once.
pub fn poll_once<F: Future + ?Sized>(future: &mut Pin<Box<F>>, waker: &Waker) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(waker))
}

/// A future that an executor of [`for_each_executor`] runs.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Calls `f` for each executor: tokio with three threads, tokio with one thread, and smol. The
/// argument of `f` runs tasks concurrently and waits for them.
pub fn for_each_executor(f: impl Fn(&dyn Fn(Vec<Task>))) {
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
    let one = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for runtime in [threads, one] {
        f(&|tasks| {
            runtime.block_on(async {
                let tasks: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
                for task in tasks {
                    task.await.unwrap();
                }
            });
        });
    }
    f(&|tasks| {
        let tasks: Vec<_> = tasks.into_iter().map(smol::spawn).collect();
        smol::block_on(async {
            for task in tasks {
                task.await;
            }
        });
    });
}

/// Compiles the example from the documentation of `gosched::hyper`. The example needs more of
/// hyper's features than gosched enables.
#[cfg(doctest)]
#[doc = "```no_run"]
#[doc = include_str!("../../../crates/gosched/src/api/hyper_example.txt")]
#[doc = "```"]
#[derive(Debug)]
pub struct HyperExample;
