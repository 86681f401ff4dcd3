//! A runner that resumes routines on several threads, and resumes each routine on another thread
//! than the one it suspended on.

use gosched_fiber::{Routine, Size, Status};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// A closure that runs as a routine.
pub type Job = Box<dyn FnOnce() + Send>;

/// The result of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// How often a routine resumed on another thread than the one it suspended on.
    pub moves: u64,
    /// Panic messages of routines.
    pub panics: Vec<String>,
}

struct Waiting {
    routine: Routine<()>,
    /// The thread that the routine last ran on.
    last: usize,
}

/// Runs `jobs` on `threads` threads until all are done. Calls `started` on each thread first.
///
/// # Panics
/// A stack cannot be allocated.
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

/// Runs `jobs` as [`run_with`] does, without a call on each thread.
pub fn run(threads: usize, jobs: Vec<Job>) -> Report {
    run_with(threads, jobs, || ())
}

/// Runs `f(number)` for all numbers below `count`, each in a routine. Returns how often a routine
/// moved to another thread.
///
/// # Panics
/// A routine panicked. The message contains the messages of all panics.
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

/// Takes the first routine that did not last run on thread `me`. If there is none and few routines
/// are left, takes any.
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
