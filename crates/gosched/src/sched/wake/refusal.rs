//! The system refuses a thread: work goes on with the Ms there are.

use crate::sched::state::global::SCHED;
use crate::sched::state::thread_requests;
use crate::sched::wake;
use crate::sched::wake::give;
use crate::sys::barrier;
use crate::sys::fatal::warning;
use std::sync::atomic::Ordering;

/// A thread could not be had, or cannot carry goroutines: says so once, without std's lock on standard
/// error, which a goroutine may hold. The Ps that wait for an M are idle, for Ms that have none. The
/// thread maker tries again after a while.
pub(crate) fn handle_refusal(why: std::fmt::Arguments<'_>) {
    thread_requests::REFUSED.store(true, Ordering::Relaxed);
    let mut locked = SCHED.lock.lock();
    locked.ms -= 1;
    let (left, first) = (locked.ms, !std::mem::replace(&mut locked.refusal_reported, true));
    while let Some(p) = locked.orphans.pop() {
        let spinning = p.for_spinner.load(Ordering::Relaxed);
        give::drain_to_idle(&mut locked, p, spinning);
    }
    give::give_idle_ps_to_locked_ms(&mut locked);
    drop(locked);
    if first {
        match left {
            0 => warning!("{why}: no goroutine can run until the system grants one"),
            _ => warning!("{why}: going on with the {left} threads there are"),
        }
    }
    barrier::heavy();
    if wake::is_m_wanted() {
        wake::wake_if_m_sleeps();
    }
    thread_requests::request_thread();
}
