//! The points that record what happens; each is a test of one word unless something listens.
//!
//! One listener at most; it is told of each point, on an M, with preemption off. What is measured is in
//! `times`. Whatever is written down for whoever looks is written only if [`ENABLED`]: so it can be measured what that
//! costs.

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

use std::sync::atomic::{AtomicPtr, Ordering};

/// What is called at each point.
pub(crate) type Listener = fn();

static LISTENER: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Puts a listener in force, for the rest of the process.
pub(crate) fn set_listener(listener: Listener) {
    LISTENER.store(listener as *mut (), Ordering::Relaxed);
}

/// Something happened.
#[inline(always)]
pub(crate) fn point() {
    let listener = LISTENER.load(Ordering::Relaxed);
    if ENABLED && !listener.is_null() {
        call_listener(listener);
    }
}

#[cold]
fn call_listener(listener: *mut ()) {
    // SAFETY: `set_listener` stored a function of this type.
    let listener = unsafe { std::mem::transmute::<*mut (), Listener>(listener) };
    listener();
}
