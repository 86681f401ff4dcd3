//! A stand-in for the kernel's poller: a mutex and a condition variable. The wake descriptor is
//! called a bell here: a signal *rings* it, draining *silences* it.

use loom::sync::{Condvar, Mutex};

/// The kernel's poller: a bell that rings until it is silenced, and events that are delivered once.
pub(super) struct Kernel {
    state: Mutex<Pending>,
    changed: Condvar,
}

#[derive(Default)]
struct Pending {
    rings: bool,
    events: u32,
}

impl Kernel {
    pub(super) fn new() -> Kernel {
        Kernel { state: Mutex::default(), changed: Condvar::new() }
    }

    pub(super) fn ring(&self) {
        self.state.lock().unwrap().rings = true;
        self.changed.notify_all();
    }

    pub(super) fn silence(&self) {
        self.state.lock().unwrap().rings = false;
    }

    pub(super) fn happen(&self) {
        self.state.lock().unwrap().events += 1;
        self.changed.notify_all();
    }

    /// Takes an event without waiting. Returns whether there was an event.
    pub(super) fn poll(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        let event = state.events > 0;
        if event {
            state.events -= 1;
        }
        event
    }

    /// Waits in two system calls, as the real poller does: the wait, and the read that silences the
    /// bell. Returns whether there was an event.
    pub(super) fn wait(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        while !state.rings && state.events == 0 {
            state = self.changed.wait(state).unwrap();
        }
        let (rings, event) = (state.rings, state.events > 0);
        if event {
            state.events -= 1;
        }
        drop(state);
        if rings {
            self.silence();
        }
        event
    }
}
