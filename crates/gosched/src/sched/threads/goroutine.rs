//! The life of a goroutine that is an OS thread. This module never parks a goroutine and never
//! wakes one: `wait` does both.

use crate::gmp::current;
use crate::gmp::g::{G, GInit};
use crate::gmp::state::GState;
use crate::sched::state::spawn_request::SpawnRequest;
use crate::sched::threads::{activity, wait};
use crate::sys::mappings::{self, Mappings};
use gosched_fiber::lock::NoPreemptLockGuard;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

static NEXT_ID: AtomicU64 = AtomicU64::new(2);

/// Number of threads started between two checks of the process's memory mappings.
const STARTS_PER_CHECK: u64 = 256;

/// Number of memory mappings that a new thread may need: a stack, a signal stack, a guard for each,
/// and some for the heap that the allocator may create for the thread.
const MAPPINGS_PER_THREAD: usize = 8;

/// Refuses a thread that might have no memory for its signal stack. std creates that stack on the
/// new thread, outside the code that catches panics, and panics if the memory is missing. The
/// process then dies with "failed to initiate panic, error 5".
///
/// # Errors
/// The process has almost as many memory mappings as the system allows.
pub(crate) fn check_room() -> std::io::Result<()> {
    static STARTS: AtomicU64 = AtomicU64::new(1);
    static IS_TIGHT: AtomicBool = AtomicBool::new(false);
    let is_due = STARTS.fetch_add(1, Ordering::Relaxed).is_multiple_of(STARTS_PER_CHECK);
    if !is_due && !IS_TIGHT.load(Ordering::Relaxed) {
        return Ok(());
    }
    let Some(Mappings { used, limit }) = mappings::count() else { return Ok(()) };
    let is_tight = used + STARTS_PER_CHECK as usize * MAPPINGS_PER_THREAD > limit;
    IS_TIGHT.store(is_tight, Ordering::Relaxed);
    if is_tight {
        let why = format!(
            "the process has {used} memory mappings, each goroutine is a thread that needs some, \
             and vm.max_map_count is {limit}: raise it, or start fewer goroutines"
        );
        return Err(std::io::Error::new(std::io::ErrorKind::OutOfMemory, why));
    }
    Ok(())
}

/// See [`discard`](crate::sched::discard).
pub(crate) fn discard(g: &'static G) {
    g.set_prepared(false);
    g.set_group(None);
    g.end_thread();
    NoPreemptLockGuard::new(&wait::FREE).push_front(g);
}

/// Starts all prepared goroutines that were made ready. Called by the timer thread.
pub(crate) fn start_all_prepared() {
    loop {
        let next = NoPreemptLockGuard::new(&activity::PREPARED).pop_front();
        match next {
            Some(g) => start_prepared(g),
            None => return,
        }
    }
}

/// Starts the thread of a prepared goroutine. Retries until the system grants a thread, because the
/// code that made the goroutine ready cannot handle an error.
fn start_prepared(g: &'static G) {
    g.make_runnable();
    g.set_prepared(false);
    g.enter_group();
    activity::count_started();
    loop {
        let task = SendTask(g.task());
        let start = || {
            std::thread::Builder::new().spawn(move || {
                let task = task;
                run(g, task.0);
            })
        };
        match check_room().and_then(|()| start()) {
            Ok(_) => return,
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

pub(crate) fn begin(request: SpawnRequest<'_>) -> (&'static G, u64) {
    let (g, id) = fill(request);
    g.enter_group();
    g.transition(GState::Dead, GState::Runnable);
    activity::count_started();
    activity::ACTIVE.fetch_add(1, Ordering::Relaxed);
    (g, id)
}

/// Takes a dead G and fills it in from the request. Returns the G and its id.
pub(crate) fn fill(request: SpawnRequest<'_>) -> (&'static G, u64) {
    let id = request.options.and_then(|options| options.id);
    let id = id.unwrap_or_else(|| NEXT_ID.fetch_add(1, Ordering::Relaxed));
    let parent = current::goroutine().map_or(0, G::id);
    let g = wait::take_g();
    let details = request.options.and_then(|options| options.details.clone());
    g.init(GInit { id, parent, site: request.site, task: request.task, details });
    g.begin_thread_goroutine();
    (g, id)
}

/// A task that is sent to its thread.
pub(crate) struct SendTask(pub(crate) *mut crate::gmp::task::Task);

pub(crate) fn run(g: &'static G, task: *mut crate::gmp::task::Task) {
    g.transition(GState::Runnable, GState::Running);
    current::set_goroutine(Some(g));
    // SAFETY: the task belongs to the G, and is alive until `run` returns false or `complete`
    // returns.
    let kind = unsafe { (*task).kind };
    // SAFETY: as above; called once.
    let needs_completion = unsafe { (kind.run)(task) };
    g.leave_group();
    activity::GOROUTINES.fetch_sub(1, Ordering::Relaxed);
    // The thread's remaining destructors run after this point: std offers no later one.
    if needs_completion {
        // SAFETY: `run` returned true, so the task is alive; called once.
        unsafe { (kind.complete)(task) };
    }
    current::set_goroutine(None);
    recycle(g);
    wait::decrement_active();
}

pub(crate) fn recycle(g: &'static G) {
    g.forget_details();
    g.set_exiting(false);
    g.end_thread();
    g.os_thread_lock_count.store(0, Ordering::Relaxed);
    g.transition(GState::Running, GState::Dead);
    NoPreemptLockGuard::new(&wait::FREE).push_front(g);
}

// SAFETY: a task may run on another thread, and is given to one thread only.
unsafe impl Send for SendTask {}
