//! [`run`]: from an ordinary thread into a goroutine. `run` never waits for the goroutines that its
//! closure started.

use crate::block::goroutine::builder::start;
use crate::block::goroutine::packet;
use crate::gmp::current;
use crate::probe::wait_reason::WaitReason;
use crate::sched::SpawnOptions;
use std::panic::{Location, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs `f` as a goroutine and returns its result.
///
/// The calling thread waits until `f` returns. `run` starts the runtime if it has not started yet.
/// In a goroutine, `run` only calls `f`.
///
/// ```
/// let numbers = vec![1, 2, 3];
/// let sum = gosched::run(|| numbers.iter().sum::<i32>());
/// assert_eq!(sum, 6);
/// ```
///
/// Goroutines that `f` started continue after `run` has returned.
///
/// # Panics
/// If `f` panics, `run` panics with the same payload. `run` also panics if `f` calls
/// [`goexit`](crate::goexit), because there is no result then: return from `f` instead. With
/// [`Backend::Threads`](crate::runtime::Backend::Threads), `run` panics if the system cannot create
/// a thread.
#[track_caller]
pub fn run<F, T>(f: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    if current::goroutine().is_some() {
        return f();
    }
    let site = Location::caller();
    let spawn_options = SpawnOptions { id: take_main_id(), ..main_spawn_options() };
    // SAFETY: borrows — the caller waits until the goroutine has ended.
    let handle = match unsafe { start(packet::new(f, None), Some(&spawn_options), site) } {
        Ok(handle) => handle,
        Err(why) => panic!("`run`: the system cannot create a thread: {why}"),
    };
    match handle.join_for(WaitReason::Run) {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(payload) => resume_unwind(payload),
            Err(_) => panic!(
                "`run`: the closure called `goexit`, so there is no result: return from the closure instead"
            ),
        },
    }
}

/// Returns the id of the main goroutine, 1, to the first caller, and `None` to all others.
pub(crate) fn take_main_id() -> Option<u64> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    (!TAKEN.swap(true, Ordering::Relaxed)).then_some(1)
}

/// Returns options for a goroutine whose stack is as large as that of the process's main thread.
pub(crate) fn main_spawn_options() -> SpawnOptions {
    let bytes = crate::sys::main_stack::bytes();
    let size = crate::sched::stack_size(bytes).ok().flatten();
    SpawnOptions { size, bytes: Some(bytes), ..SpawnOptions::default() }
}
