//! The flags that every M checks between goroutines: the next G may not be the next in the queue.
//!
//! All flags are in one word, so that an M that has nothing to check reads one word. The word is
//! written under the scheduler's lock and read without it. An M that misses a flag sees it at its
//! next switch, and the thread that sets a flag wakes or interrupts the Ms that must see it at
//! once.
//!
//! This module never decides what a flag means for an M: `find_runnable` does.

use crate::sys::atomic::{AtomicU32, Ordering, const_fn};

/// A reason to search for the next G, instead of taking the next G of the P's own queue.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttentionFlag {
    /// The world is stopping or has stopped.
    /// Go: sched.gcwaiting.
    Stopping = 1,
    /// The global queue holds an interrupted G, which runs before other Gs.
    Interrupted = 2,
    /// Too many Ms are stopped in place: their Gs run before other Gs.
    TooManyStopped = 4,
    /// Events are recorded. This flag alone changes nothing about which G is next.
    Recording = 8,
}

/// The flags (see the top of this file).
#[derive(Debug)]
pub(crate) struct Attention(AtomicU32);

impl Attention {
    const_fn! {
        pub(crate) fn new() -> Attention {
            Attention(AtomicU32::new(0))
        }
    }

    #[inline]
    fn flags(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns whether any flag is set.
    #[inline]
    pub(crate) fn is_any_set(&self) -> bool {
        self.flags() != 0
    }

    /// Returns whether an M must search for the next G: a flag other than
    /// [`AttentionFlag::Recording`] is set.
    pub(crate) fn must_search(&self) -> bool {
        self.flags() & !(AttentionFlag::Recording as u32) != 0
    }

    /// Returns whether `flag` is set.
    #[inline]
    pub(crate) fn is_set(&self, flag: AttentionFlag) -> bool {
        self.flags() & flag as u32 != 0
    }

    /// Returns whether the world is stopping or has stopped.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_set(AttentionFlag::Stopping)
    }

    /// Sets or clears `flag`. Called under the lock.
    pub(crate) fn set(&self, flag: AttentionFlag, on: bool) {
        let rest = self.flags() & !(flag as u32);
        self.0.store(if on { rest | flag as u32 } else { rest }, Ordering::Relaxed);
    }
}
