//! Points in the code that a listener can observe. Without a listener, a point is a test of one
//! word.
//!
//! There is at most one listener. It is called at each point, on an M, with preemption off. `times`
//! contains what is measured. Data that exists only for inspection is written only if [`ENABLED`],
//! so that its cost can be measured.
//!
//! A point itself never changes what happens: only a listener can (`sched/boot/seed.rs`).

pub(crate) mod histogram;
pub(crate) mod times;

#[cfg(gosched_no_probes)]
mod off;
#[cfg(not(gosched_no_probes))]
mod on;

#[cfg(gosched_no_probes)]
pub(crate) use off::ENABLED;
#[cfg(not(gosched_no_probes))]
pub(crate) use on::ENABLED;

use gosched_fiber::hook::Hook;

/// The function that is called at each point.
pub(crate) type Listener = fn();

static LISTENER: Hook<Listener> = Hook::new();

/// Installs the listener for the rest of the process.
pub(crate) fn set_listener(listener: &'static Listener) {
    LISTENER.set(listener);
}

/// Calls the listener, if there is one.
#[inline(always)]
pub(crate) fn point() {
    if let Some(listener) = LISTENER.get().filter(|_| ENABLED) {
        call_listener(listener);
    }
}

#[cold]
fn call_listener(listener: &Listener) {
    listener();
}
