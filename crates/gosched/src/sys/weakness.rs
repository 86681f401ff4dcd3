//! How a model breaks a protocol on purpose, to show that it would notice.
//!
//! A model runs all its threads on the thread of its test, so a weakness in force there is in force
//! for that model and no other. Products know nothing of this: only the twins of `sys` ask.

use std::cell::Cell;

/// What is weaker than it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weakness {
    /// Every load is relaxed.
    Load,
    /// Every store is relaxed.
    Store,
    /// Every swap is relaxed.
    Swap,
    /// Every addition and subtraction is relaxed.
    Add,
    /// Every compare-and-exchange is relaxed.
    CompareExchange,
    /// The hot side has no barrier.
    Light,
    /// The rare side has no barrier.
    Heavy,
    /// Look and sleep are two steps.
    Futex,
}

thread_local! {
    static ACTIVE: Cell<Option<Weakness>> = const { Cell::new(None) };
}

pub(crate) fn is_active(weakness: Weakness) -> bool {
    ACTIVE.get() == Some(weakness)
}

/// In force until it is dropped.
#[derive(Debug)]
pub(crate) struct WeakenedGuard;

pub(crate) fn weaken(weakness: Weakness) -> WeakenedGuard {
    ACTIVE.set(Some(weakness));
    WeakenedGuard
}

impl Drop for WeakenedGuard {
    fn drop(&mut self) {
        ACTIVE.set(None);
    }
}
