//! Tests an identity before any goroutine relies on it.
//!
//! Runs a function with an identity of its own, checks what a program would observe, and retires
//! the identity as at the end of a goroutine. If any check fails, goroutines run as threads.
//!
//! An identity that fails a check is never given to a goroutine.

use super::Glibc;
use crate::arch::{self, SavedContext};
use crate::base::unsupported::Unsupported;
use crate::exit_guard;
use crate::stack::{DEPOT, MIN_USABLE, Size, Stack, StackError};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    static VALUE: Cell<usize> = const { Cell::new(17) };
    static DROPPED: RefCell<Option<CountDrop>> = const { RefCell::new(None) };
}

static DROPS: AtomicUsize = AtomicUsize::new(0);

struct CountDrop;

impl Drop for CountDrop {
    fn drop(&mut self) {
        DROPS.fetch_add(1, Ordering::Relaxed);
    }
}

/// The state of one trial, shared by [`try_once`] and [`inside`].
struct Trial<'a> {
    glibc: &'a Glibc,
    stack: &'a Stack,
    caller: SavedContext,
    trial: SavedContext,
    /// The address of a thread-local on the caller's thread.
    outside: usize,
    caller_id: std::thread::ThreadId,
    /// What was wanted by the first check that failed.
    wrong: Option<&'static str>,
}

pub(super) fn run(glibc: &Glibc) -> Result<(), Unsupported> {
    let refused = |error: StackError| {
        Unsupported::transient("a stack for the self-test of an identity", error.to_string())
    };
    let size =
        Size::with_extent(MIN_USABLE.max(128 << 10), glibc.layout.extent).map_err(refused)?;
    let stack = DEPOT.take(size).map_err(refused)?;
    // SAFETY: quiet — a new stack, which only this function uses.
    unsafe { glibc.create(&stack) }.map_err(refused)?;
    VALUE.set(1);
    let drops = DROPS.load(Ordering::Relaxed);
    for round in 1..=2 {
        let wrong = try_once(glibc, &stack);
        let wrong = wrong.or(wrong_unless(
            DROPS.load(Ordering::Relaxed) == drops + round,
            "destructors of thread-locals at the end",
        ));
        let wrong =
            wrong.or(wrong_unless(VALUE.get() == 1, "the caller's thread-locals unchanged"));
        if let Some(wanted) = wrong {
            // The block may be damaged, so it must not be used again.
            std::mem::forget(stack);
            return Err(Unsupported::new(
                wanted,
                format!("a different result, with {:?}", glibc.layout.extent),
            ));
        }
    }
    Ok(())
}

fn try_once(glibc: &Glibc, stack: &Stack) -> Option<&'static str> {
    let mut trial = Trial {
        glibc,
        stack,
        caller: SavedContext::for_caller(),
        trial: SavedContext::empty(stack.thread_pointer()),
        outside: address(),
        caller_id: std::thread::current().id(),
        wrong: None,
    };
    let data = &raw mut trial;
    // SAFETY: mapped, quiet — the stack of `run`, on which no code runs.
    trial.trial.sp = unsafe { arch::first_frame(stack.top(), inside, data as usize) };
    // SAFETY: to, from — both are in `trial`, which outlives the switch; fs — built by `create`,
    // and no other context uses it.
    unsafe { arch::switch(&raw mut trial.caller, &raw const trial.trial, 0) };
    // SAFETY: quiet — `inside` retired the identity and will not run again.
    unsafe { glibc.wipe(stack) };
    trial.wrong
}

fn address() -> usize {
    VALUE.with(|value| std::ptr::from_ref(value) as usize)
}

fn wrong_unless(right: bool, wanted: &'static str) -> Option<&'static str> {
    (!right).then_some(wanted)
}

/// Runs the checks with the new identity, and retires it.
///
/// # Safety
/// - **callback**: [`try_once`] switches to it, with its [`Trial`].
unsafe extern "C" fn inside(_message: usize, data: usize) -> ! {
    // SAFETY: callback — a `Trial` that lives until `try_once` is switched back to.
    let trial = unsafe { &mut *(data as *mut Trial<'_>) };
    if arch::thread_pointer() == trial.stack.thread_pointer() {
        // SAFETY: own — this function runs with the new identity.
        unsafe { trial.glibc.begin() };
        // A panic must not leave this function, which has no caller.
        let look = std::panic::AssertUnwindSafe(|| first_wrong_answer(trial));
        let found = std::panic::catch_unwind(look);
        trial.wrong = found.unwrap_or(Some("a self-test without a panic"));
        // SAFETY: own — no later code needs this identity.
        unsafe { trial.glibc.retire() };
    } else {
        trial.wrong = Some("the identity's thread pointer after the switch");
    }
    // SAFETY: to — `try_once` waits there; from, fs — the trial's own.
    unsafe { arch::switch(&raw mut trial.trial, &raw const trial.caller, 0) };
    exit_guard::abort()
}

/// Returns what was wanted by the first check that fails, or `None` if all succeed.
fn first_wrong_answer(trial: &Trial<'_>) -> Option<&'static str> {
    let tp = trial.stack.thread_pointer();
    let block = tp - trial.glibc.layout.extent.below..tp + trial.glibc.layout.extent.hot;
    let questions: [(&'static str, &dyn Fn() -> bool); 9] = [
        ("pthread_self() equal to the thread pointer", &|| {
            // SAFETY: pthread_self has no precondition.
            tp == unsafe { libc::pthread_self() } as usize
        }),
        ("a thread-local at another address than the caller's", &|| address() != trial.outside),
        ("thread-locals inside the block", &|| block.contains(&address())),
        ("errno inside the block", &|| {
            // SAFETY: errno's address has no precondition.
            block.contains(&(unsafe { libc::__errno_location() } as usize))
        }),
        ("initial values in thread-locals", &|| {
            let counted = DROPPED.try_with(|dropped| *dropped.borrow_mut() = Some(CountDrop));
            counted.is_ok() && VALUE.replace(18) == 17
        }),
        ("malloc", &malloc_works),
        ("printf with a floating-point number", &formats),
        ("another std::thread::ThreadId than the caller's", &|| {
            std::thread::current().id() != trial.caller_id
        }),
        ("a recursive pthread mutex", &recursive_mutex_works),
    ];
    questions.iter().find(|(_, right)| !right()).map(|(wanted, _)| *wanted)
}

fn malloc_works() -> bool {
    // SAFETY: malloc accepts any size.
    let memory = unsafe { libc::malloc(1000) };
    // SAFETY: allocated above, or null.
    unsafe { libc::free(memory) };
    !memory.is_null()
}

fn formats() -> bool {
    let mut text = [0; 32];
    // SAFETY: the length is that of the buffer; the arguments match the format.
    unsafe { libc::snprintf(text.as_mut_ptr(), text.len(), c"%.2f %c".as_ptr(), 1.5f64, 0x41) };
    text[..6] == b"1.50 A".map(|byte| byte as libc::c_char)
}

fn recursive_mutex_works() -> bool {
    let mut mutex = libc::PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    let mutex = &raw mut mutex;
    // SAFETY: a valid mutex on this stack, which no other code uses.
    let locked = unsafe { libc::pthread_mutex_lock(mutex) };
    // SAFETY: as above.
    let again = unsafe { libc::pthread_mutex_trylock(mutex) };
    // SAFETY: as above, locked twice.
    let unlocked = unsafe { libc::pthread_mutex_unlock(mutex) };
    // SAFETY: as above, locked once.
    let unlocked_again = unsafe { libc::pthread_mutex_unlock(mutex) };
    locked | again | unlocked | unlocked_again == 0
}
