//! Turns the process's first thread into an M. The thread never ends, even if its M does.

use crate::gmp::token::OnM;
use crate::sched::boot::thread_maker;
use crate::sched::run::{deadlock, schedule};
use crate::sched::state::global::SCHED;
use crate::sched::state::thread_requests;
use crate::sched::switch::spawn;
use crate::sched::switch::submit::{self, Submission};
use crate::sched::threads::activity;
use std::sync::atomic::Ordering;

/// Makes the calling thread, the process's first, an M with a P. The caller must then run
/// `schedule::run_m`.
/// Go: m0.
pub(crate) fn make_main_m() -> OnM<'static> {
    let mut locked = SCHED.lock.lock();
    let id = locked.next_m_id;
    locked.next_m_id += 1;
    locked.ms += 1;
    let p = locked.pop_idle_p();
    drop(locked);
    let m = thread_maker::new_m(id);
    m.alive.store(true, Ordering::Relaxed);
    m.set_main(true);
    // SAFETY: own — this thread runs the M from here on; only — the M does not run yet.
    let mut on = unsafe { OnM::of(m) };
    if let Some(p) = p {
        on.lend().acquire_p(p);
    }
    // Makes the thread maker start sysmon and the other Ms.
    thread_requests::request_thread();
    on
}

/// Makes the calling thread, the process's first, an M, and runs goroutines on it. Never returns.
pub(crate) fn become_main_m() -> ! {
    let mut on = make_main_m();
    if let Some(main) = spawn::MAIN.load() {
        submit::push_next(on.lend(), main, Submission::Spawn);
    }
    schedule::run_m(on.m());
    // A goroutine ended while it was locked to this thread, so the M is gone. The process's first
    // thread must not end: it counts as a helper thread from here on. If this M was the last one
    // awake, no other thread checks for a deadlock, so this thread does.
    thread_requests::HELPER_THREADS.fetch_add(1, Ordering::Relaxed);
    std::thread::sleep(activity::DEADLOCK_CHECK_DELAY);
    deadlock::check_for_deadlock();
    loop {
        std::thread::park();
    }
}
