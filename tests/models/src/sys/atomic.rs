//! The atomics for models: loom's, with orderings that a model can weaken.
//!
//! loom takes a `SeqCst` access for an acquire and release one. Here, a `SeqCst` operation that
//! writes (a compare-and-exchange, a store, an operation on an `AtomicU64`) has a
//! full fence on either side, and a `SeqCst` load is an acquire load. That is what x86-64 provides,
//! where these operations are locked instructions (a `SeqCst` store is an `xchg`) and all loads are
//! plain: two threads that each write one word and then load the word of the other thread do not
//! both load old values. The load may be relaxed on x86-64, so no model notices if it is. The
//! fences order more than Rust's `SeqCst` promises, also relaxed accesses before and after the
//! operation, so a model that needs `SeqCst` here is valid for x86-64 only.

use super::weakness::{self, Weakness};
pub(crate) use loom::sync::atomic::Ordering;
use loom::sync::atomic::{self as modelled, fence};
pub(crate) use loom::thread::yield_now as spin_loop;

/// Declares a function that is `const` in the product.
macro_rules! const_fn {
    ($(#[$attribute:meta])* $visibility:vis fn $($rest:tt)*) => {
        $(#[$attribute])* $visibility fn $($rest)*
    };
}

pub(crate) use const_fn;

/// Calls `write`, between full fences if `by` is `SeqCst` and `weakness` is not active.
fn with_total_order<R>(by: Ordering, weakness: Weakness, write: impl FnOnce() -> R) -> R {
    let is_total = by == Ordering::SeqCst && !weakness::is_active(weakness);
    if is_total {
        fence(Ordering::SeqCst);
    }
    let result = write();
    if is_total {
        fence(Ordering::SeqCst);
    }
    result
}

/// Returns the order of a load for loom: `SeqCst` becomes `Acquire`, because loom would not let the
/// load see a value older than that of the last `SeqCst` store to the same word.
fn of_load(by: Ordering) -> Ordering {
    if by == Ordering::SeqCst { Ordering::Acquire } else { by }
}

/// Returns `order`, or `Relaxed` if `weakness` is active.
fn order(order: Ordering, weakness: Weakness) -> Ordering {
    if weakness::is_active(weakness) { Ordering::Relaxed } else { order }
}

macro_rules! common {
    ($value:ty, $load:expr) => {
        pub(crate) fn load(&self, by: Ordering) -> $value {
            self.0.load(of_load(order(order(by, Weakness::Load), $load)))
        }

        pub(crate) fn store(&self, value: $value, by: Ordering) {
            let by = order(by, Weakness::Store);
            with_total_order(by, Weakness::TotalOrderOfStores, || self.0.store(value, by));
        }

        pub(crate) fn compare_exchange(
            &self,
            from: $value,
            to: $value,
            done: Ordering,
            failed: Ordering,
        ) -> Result<$value, $value> {
            if weakness::is_active(Weakness::ExchangeInTwoSteps) {
                return with_total_order(done, Weakness::TotalOrder, || {
                    self.exchange_in_two_steps(from, to)
                });
            }
            let (by, failed) = (done, order(failed, Weakness::CompareExchange));
            let done = order(done, Weakness::CompareExchange);
            with_total_order(by, Weakness::TotalOrder, || {
                self.0.compare_exchange(from, to, done, failed)
            })
        }

        /// A broken compare-and-exchange, with all the order of a whole one.
        fn exchange_in_two_steps(&self, from: $value, to: $value) -> Result<$value, $value> {
            match self.0.load(Ordering::Acquire) {
                now if now == from => {
                    self.0.store(to, Ordering::Release);
                    Ok(now)
                }
                now => Err(now),
            }
        }
    };
}

macro_rules! number {
    ($name:ident, $value:ty, $load:expr) => {
        #[derive(Debug)]
        pub(crate) struct $name(modelled::$name);

        impl $name {
            pub(crate) fn new(value: $value) -> $name {
                $name(modelled::$name::new(value))
            }

            common!($value, $load);
        }
    };
}

number!(AtomicU32, u32, Weakness::Load);
number!(AtomicU64, u64, Weakness::LoadOfU64);
number!(AtomicUsize, usize, Weakness::LoadOfUsize);

impl AtomicU32 {
    pub(crate) fn fetch_add(&self, value: u32, by: Ordering) -> u32 {
        self.0.fetch_add(value, order(by, Weakness::Add))
    }

    pub(crate) fn fetch_sub(&self, value: u32, by: Ordering) -> u32 {
        self.0.fetch_sub(value, order(by, Weakness::Add))
    }

    pub(crate) fn fetch_and(&self, value: u32, by: Ordering) -> u32 {
        self.0.fetch_and(value, order(by, Weakness::Add))
    }

    pub(crate) fn swap(&self, value: u32, by: Ordering) -> u32 {
        self.0.swap(value, order(by, Weakness::Store))
    }
}

impl AtomicU64 {
    pub(crate) fn swap(&self, value: u64, by: Ordering) -> u64 {
        let by = order(by, Weakness::Swap);
        with_total_order(by, Weakness::TotalOrderOfStores, || self.0.swap(value, by))
    }

    pub(crate) fn fetch_add(&self, value: u64, by: Ordering) -> u64 {
        let by = order(by, Weakness::Add);
        with_total_order(by, Weakness::TotalOrderOfAdds, || self.0.fetch_add(value, by))
    }

    pub(crate) fn fetch_min(&self, value: u64, by: Ordering) -> u64 {
        let by = order(by, Weakness::Add);
        with_total_order(by, Weakness::TotalOrderOfAdds, || self.0.fetch_min(value, by))
    }

    pub(crate) fn fetch_max(&self, value: u64, by: Ordering) -> u64 {
        self.0.fetch_max(value, order(by, Weakness::Add))
    }
}

/// Like `std::sync::atomic::AtomicPtr`.
#[derive(Debug)]
pub(crate) struct AtomicPtr<T>(modelled::AtomicPtr<T>);

impl<T> AtomicPtr<T> {
    pub(crate) fn new(value: *mut T) -> AtomicPtr<T> {
        AtomicPtr(modelled::AtomicPtr::new(value))
    }

    pub(crate) fn swap(&self, value: *mut T, by: Ordering) -> *mut T {
        self.0.swap(value, order(by, Weakness::Swap))
    }

    common!(*mut T, Weakness::LoadOfPointer);
}
