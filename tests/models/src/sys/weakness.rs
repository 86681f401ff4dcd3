//! Deliberate defects: a model weakens a protocol and must then fail, which shows that it would
//! find such a defect.
//!
//! A model runs all its threads on the OS thread of its test, so a weakness that is active there
//! affects this model and no other. Only the loom versions of the types in `sys` check for a
//! weakness; the product contains no such checks.

use std::cell::Cell;

/// The kind of operation that is weaker than it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weakness {
    /// Every load is relaxed.
    Load,
    /// Every load of an `AtomicPtr` is relaxed.
    LoadOfPointer,
    /// Every load of an `AtomicU64` is relaxed.
    LoadOfU64,
    /// Every load of an `AtomicUsize` is relaxed.
    LoadOfUsize,
    /// Every store, and every swap of an `AtomicU32`, is relaxed.
    Store,
    /// Every swap of an `AtomicPtr` or `AtomicU64` is relaxed.
    Swap,
    /// Every addition, subtraction and `fetch_and` is relaxed.
    Add,
    /// Every compare-and-exchange is relaxed.
    CompareExchange,
    /// A compare-and-exchange is a load, and a store if the value is the expected one.
    ExchangeInTwoSteps,
    /// A `SeqCst` access has no fence.
    TotalOrder,
    /// A `SeqCst` store or swap has no fences.
    TotalOrderOfStores,
    /// A `SeqCst` addition or minimum has no fences.
    TotalOrderOfAdds,
    /// The light barrier does nothing.
    Light,
    /// The heavy barrier does nothing.
    Heavy,
    /// Checking the word and falling asleep are two steps.
    Futex,
}

thread_local! {
    /// A bit for each weakness.
    static ACTIVE: Cell<u32> = const { Cell::new(0) };
}

pub(crate) fn is_active(weakness: Weakness) -> bool {
    ACTIVE.get() & bit(weakness) != 0
}

fn bit(weakness: Weakness) -> u32 {
    1 << weakness as u32
}

/// Keeps a weakness active until it is dropped.
#[derive(Debug)]
pub(crate) struct WeakenedGuard(Weakness);

/// Activates `weakness` on this thread until the guard is dropped.
pub(crate) fn weaken(weakness: Weakness) -> WeakenedGuard {
    ACTIVE.set(ACTIVE.get() | bit(weakness));
    WeakenedGuard(weakness)
}

impl Drop for WeakenedGuard {
    fn drop(&mut self) {
        ACTIVE.set(ACTIVE.get() & !bit(self.0));
    }
}
