//! Handles a thread that the system refuses: the runtime continues with the Ms that it has. This
//! module never ends the process, even if no M is left.

use crate::sched::state::global::SCHED;
use crate::sched::state::thread_requests;
use crate::sched::wake;
use crate::sched::wake::give;
use crate::sys::fatal::warning;
use std::sync::atomic::Ordering;

/// Handles a thread that could not be created or cannot carry goroutines. Makes the Ps that wait
/// for a new M idle, so that Ms without a P can take them. Prints one warning, the first time only,
/// without std's lock on standard error, which a goroutine may hold. The thread maker retries after
/// a while.
pub(crate) fn handle_refusal(why: std::fmt::Arguments<'_>) {
    thread_requests::REFUSED.store(true, Ordering::Relaxed);
    let mut locked = SCHED.lock.lock();
    locked.ms -= 1;
    let (left, first) = (locked.ms, !std::mem::replace(&mut locked.refusal_reported, true));
    while let Some(p) = locked.orphans.pop_front() {
        let spinning = p.for_spinner.take();
        give::drain_to_idle(&mut locked, p, spinning);
    }
    give::give_idle_ps_to_locked_ms(&mut locked);
    drop(locked);
    if first {
        match left {
            0 => warning!("{why}: no goroutine can run until the system grants a thread"),
            _ => warning!("{why}: continuing with the {left} existing threads"),
        }
    }
    if wake::is_m_wanted_after_idling() {
        wake::wake_if_m_sleeps();
    }
    thread_requests::request_thread();
}
