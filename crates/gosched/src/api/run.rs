//! From an ordinary thread into the world of goroutines.

use crate::block::goroutine::builder::start;
use crate::block::goroutine::packet;
use crate::gmp::current;
use crate::gmp::reason::WaitReason;
use crate::sched::SpawnOptions;
use std::panic::{Location, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs `f` as a goroutine while the caller waits as an ordinary thread: starts the runtime, if that
/// was not done. In a goroutine it just calls `f`.
///
/// ```
/// let numbers = vec![1, 2, 3];
/// let sum = gosched::run(|| numbers.iter().sum::<i32>());
/// assert_eq!(sum, 6);
/// ```
///
/// When it returns, goroutines that `f` started go on.
///
/// # Panics
/// With the panic of `f`. Or `f` called [`goexit`](crate::goexit): there is no result.
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
    // SAFETY: borrows — the caller waits for the goroutine's end.
    let handle = match unsafe { start(packet::new(f, None), Some(&spawn_options), site) } {
        Ok(handle) => handle,
        Err(why) => panic!("`run`: the system refuses a thread: {why}"),
    };
    match handle.join_for(WaitReason::Run) {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(payload) => resume_unwind(payload),
            Err(_) => panic!("`run`: the closure called `goexit`, so there is no result"),
        },
    }
}

/// Main's id, for the first one.
pub(crate) fn take_main_id() -> Option<u64> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    (!TAKEN.swap(true, Ordering::Relaxed)).then_some(1)
}

/// A stack as large as the process's main thread has.
pub(crate) fn main_spawn_options() -> SpawnOptions {
    let bytes = crate::sys::main_stack::bytes();
    let size = crate::sched::stack_size(bytes).ok().flatten();
    SpawnOptions { size, bytes: Some(bytes), ..SpawnOptions::default() }
}
