//! Async code for the suites `async_bridge`, `async_chan` and `async_io`: a waker that counts, and executors.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

/// Counts how often it was woken.
#[derive(Debug, Default)]
pub struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl CountingWaker {
    /// One, and a waker of it.
    pub fn new() -> (Arc<CountingWaker>, Waker) {
        let bell = Arc::new(CountingWaker::default());
        (bell.clone(), Waker::from(bell))
    }

    /// How often.
    pub fn wake_count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

/// Polls once.
pub fn poll_once<F: Future + ?Sized>(future: &mut Pin<Box<F>>, waker: &Waker) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(waker))
}

/// What an executor runs.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Calls `f` with something that runs tasks side by side: tokio on threads, tokio on one, smol.
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

/// The example in the documentation of `gosched::hyper`, compiled here: it needs more of hyper than gosched does.
#[cfg(doctest)]
#[doc = "```no_run"]
#[doc = include_str!("../../../crates/gosched/src/api/hyper_example.txt")]
#[doc = "```"]
#[derive(Debug)]
pub struct HyperExample;
