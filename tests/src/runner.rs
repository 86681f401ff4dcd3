//! Runs routines on a few threads, and moves each to another thread whenever it suspends.

use gosched_fiber::{Routine, Size, Status};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// A closure to run as a routine.
pub type Job = Box<dyn FnOnce() + Send>;

/// What happened.
#[derive(Debug, Default)]
pub struct Report {
    /// How often a routine went on on another thread than it suspended on.
    pub moves: u64,
    /// Payload texts of routines that panicked.
    pub panics: Vec<String>,
}

struct Waiting {
    routine: Routine<()>,
    /// The thread it last ran on.
    last: usize,
}

/// Runs `jobs` on `threads` threads until all are done. Calls `started` on each thread first.
///
/// # Panics
/// A stack cannot be had.
pub fn run_with(threads: usize, jobs: Vec<Job>, started: impl Fn() + Sync) -> Report {
    let size = Size::from_environment().expect("a stack size");
    let live = AtomicUsize::new(jobs.len());
    let waiting = jobs.into_iter().map(|job| {
        let routine = Routine::new(size, job);
        Waiting { routine, last: usize::MAX }
    });
    let queue = Mutex::new(waiting.collect::<VecDeque<_>>());
    let panics = Mutex::new(Vec::new());
    let moves = AtomicU64::new(0);
    let lock = || -> MutexGuard<'_, VecDeque<Waiting>> { queue.lock().expect("the queue") };
    std::thread::scope(|scope| {
        for me in 0..threads {
            let (live, moves, panics, lock, started) = (&live, &moves, &panics, &lock, &started);
            scope.spawn(move || {
                started();
                while live.load(Ordering::Acquire) != 0 {
                    let Some(mut next) = take(&mut lock(), me) else {
                        std::thread::yield_now();
                        continue;
                    };
                    if next.last != me && next.last != usize::MAX {
                        moves.fetch_add(1, Ordering::Relaxed);
                    }
                    next.last = me;
                    match next.routine.resume().expect("a stack") {
                        Status::Suspended => lock().push_back(next),
                        Status::Finished => {
                            if let Some(Err(payload)) = next.routine.into_result() {
                                panics.lock().expect("panics").push(text(&*payload));
                            }
                            live.fetch_sub(1, Ordering::Release);
                        }
                    }
                }
            });
        }
    });
    Report { moves: moves.into_inner(), panics: panics.into_inner().expect("panics") }
}

/// As [`run_with`], with nothing to do on each thread.
pub fn run(threads: usize, jobs: Vec<Job>) -> Report {
    run_with(threads, jobs, || ())
}

/// Runs `count` copies of `f`, each told its number, and fails if one of them did.
///
/// # Panics
/// With the messages of those that panicked.
pub fn run_all(threads: usize, count: usize, f: impl Fn(usize) + Send + Sync + 'static) -> u64 {
    let f = std::sync::Arc::new(f);
    let jobs = (0..count).map(|number| {
        let f = f.clone();
        Box::new(move || f(number)) as Job
    });
    let report = run(threads, jobs.collect());
    assert!(report.panics.is_empty(), "{:?}", report.panics);
    report.moves
}

/// The first that did not run here last; any, if all did and few are left.
fn take(queue: &mut VecDeque<Waiting>, me: usize) -> Option<Waiting> {
    let other = queue.iter().take(16).position(|waiting| waiting.last != me);
    match other {
        Some(at) => queue.remove(at),
        None if queue.len() < 4 => queue.pop_front(),
        None => None,
    }
}

fn text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a payload that is no text".into())
}
