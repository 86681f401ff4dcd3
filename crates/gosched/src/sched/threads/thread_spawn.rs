//! Starts goroutines as OS threads. This module never retries a thread that the system refuses: the
//! caller gets the error.

use crate::gmp::g::G;
use crate::gmp::state::GState;
use crate::sched::state::spawn_request::SpawnRequest;
use crate::sched::threads::activity::{self, Upcalls};
use crate::sched::threads::{goroutine, timer_thread, wait};
use crate::sys::clock;
use gosched_fiber::exit_guard;
use gosched_fiber::fatal::Stderr;
use std::fmt::Write;
use std::sync::atomic::Ordering;

/// The G and the id of a goroutine, and its thread, which ends after the goroutine.
pub(crate) type Started = (&'static G, u64, std::thread::JoinHandle<()>);

/// Starts a goroutine as a thread.
///
/// # Errors
/// The system refuses a thread, or the process has almost no memory mappings left.
pub(crate) fn spawn(
    request: SpawnRequest<'_>,
    upcalls: &'static Upcalls,
) -> std::io::Result<Started> {
    goroutine::check_room()?;
    start_virtual_time(upcalls);
    let (g, id) = goroutine::begin(request);
    let mut thread = std::thread::Builder::new();
    let details = request.options.and_then(|options| options.details.as_ref());
    let name = details.and_then(|details| details.name.clone());
    if let Some(name) = name.filter(|name| !name.contains('\0')) {
        thread = thread.name(name);
    }
    if let Some(bytes) = request.options.and_then(|options| options.bytes) {
        thread = thread.stack_size(bytes);
    }
    let task = goroutine::SendTask(request.task);
    let started = thread.spawn(move || {
        let task = task;
        goroutine::run(g, task.0);
    });
    started.map(|thread| (g, id, thread)).inspect_err(|_| {
        activity::GOROUTINES.fetch_sub(1, Ordering::Relaxed);
        activity::STARTED.fetch_sub(1, Ordering::Relaxed);
        g.leave_group();
        wait::decrement_active();
        g.transition(GState::Runnable, GState::Running);
        goroutine::recycle(g);
    })
}

/// Runs a goroutine on the calling thread until it ends.
pub(crate) fn run_on_calling_thread(request: SpawnRequest<'_>, upcalls: &'static Upcalls) {
    start_virtual_time(upcalls);
    let (g, _) = goroutine::begin(request);
    goroutine::run(g, request.task);
}

/// See [`prepare`](crate::sched::prepare).
pub(crate) fn prepare(request: SpawnRequest<'_>, upcalls: &'static Upcalls) -> &'static G {
    timer_thread::start(upcalls);
    let (g, _) = goroutine::fill(request);
    g.set_prepared(true);
    g
}

/// Waits until all goroutines have ended, and then ends the process as Go does. Called on the main
/// thread, after main has called `goexit` or if main runs on another thread. Goroutines that wait
/// without end are not detected.
pub(crate) fn wait_for_last_goroutine() -> ! {
    while activity::num_goroutines() > 0 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let mut out = Stderr::new();
    let _ = writeln!(out, "fatal error: no goroutines (main called runtime.Goexit) - deadlock!");
    exit_guard::end_process()
}

/// Starts the timer thread if time is virtual: that thread advances the time, even if there is no
/// timer.
fn start_virtual_time(upcalls: &'static Upcalls) {
    if clock::is_virtual() {
        timer_thread::start(upcalls);
    }
}
