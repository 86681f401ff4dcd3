//! The part of an M that sleeps, for the models with an M in the poller.

use crate::explore::leak;
use crate::kernel::Kernel;
use crate::protocol::note::Note;
use crate::protocol::poll_role::{self, InPoller};
use crate::sys::atomic::{AtomicU32, Ordering};

pub(super) struct Sleeper {
    pub(super) note: Note,
    pub(super) in_poller: InPoller,
    next_p: AtomicU32,
}

/// How a sleep has ended.
pub(super) struct Awake {
    /// Whether another thread has woken the M.
    pub(super) woken: bool,
    /// Whether the M has taken an event out of the poller.
    pub(super) event: bool,
}

impl Sleeper {
    pub(super) fn new() -> &'static Sleeper {
        leak(Sleeper { note: Note::new(), in_poller: InPoller::new(), next_p: AtomicU32::new(0) })
    }

    /// Stores what the M is woken with: 1 for a P, 0 for none.
    pub(super) fn set_next_p(&self, p: u32) {
        self.next_p.store(p, Ordering::Relaxed);
    }

    /// Takes what [`Sleeper::set_next_p`] has stored. Returns whether that is a P.
    pub(super) fn take_next_p(&self) -> bool {
        self.next_p.swap(0, Ordering::Relaxed) == 1
    }

    /// Sleeps, in the poller if `polls` is set, as `sched::run::poll` does without a time limit.
    pub(super) fn sleep(&self, polls: bool, kernel: &Kernel) -> Awake {
        let mut event = false;
        let woken = if polls {
            poll_role::sleep(&self.note, || {
                if event {
                    return false;
                }
                event = kernel.wait();
                true
            })
        } else {
            self.note.sleep(None)
        };
        Awake { woken, event }
    }

    /// Wakes the M, as `sched::state::poller_role::wake_m` does.
    pub(super) fn wake(&self, kernel: &Kernel) {
        poll_role::wake(&self.note, &self.in_poller, || kernel.ring());
    }
}
