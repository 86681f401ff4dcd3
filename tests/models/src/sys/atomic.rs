//! The atomics for models: loom's, with orderings that a model can weaken.
//!
//! loom takes a `SeqCst` access for an acquire and release one. Here, a full fence stands between a
//! `SeqCst` write and the next `SeqCst` access of the same thread: two threads that each write one
//! word and then load the word of the other thread do not both load old values, if all four
//! accesses are `SeqCst`. With a weaker write or a weaker load there is no fence, although some
//! CPUs would have one, so a model notices both.

use super::weakness::{self, Weakness};
pub(crate) use loom::sync::atomic::Ordering;
use loom::sync::atomic::{self as modelled, fence};
pub(crate) use loom::thread::yield_now as spin_loop;
use std::cell::Cell;

/// Declares a function that is `const` in the product.
macro_rules! const_fn {
    ($(#[$attribute:meta])* $visibility:vis fn $($rest:tt)*) => {
        $(#[$attribute])* $visibility fn $($rest)*
    };
}

pub(crate) use const_fn;

loom::thread_local! {
    /// Whether the thread has made a `SeqCst` write since its last full fence of this kind.
    static HAS_WRITTEN: Cell<bool> = Cell::new(false);
}

/// What an access does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Load,
    Write,
}

/// Passes a full fence if this access and the write before are `SeqCst`.
fn enter_total_order(access: Access, by: Ordering) {
    if by != Ordering::SeqCst || weakness::is_active(Weakness::TotalOrder) {
        return;
    }
    HAS_WRITTEN.with(|has_written| {
        if has_written.replace(access == Access::Write) {
            fence(Ordering::SeqCst);
        }
    });
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
            enter_total_order(Access::Load, by);
            self.0.load(of_load(order(order(by, Weakness::Load), $load)))
        }

        pub(crate) fn store(&self, value: $value, by: Ordering) {
            enter_total_order(Access::Write, order(by, Weakness::TotalOrderOfStores));
            self.0.store(value, order(by, Weakness::Store));
        }

        pub(crate) fn compare_exchange(
            &self,
            from: $value,
            to: $value,
            done: Ordering,
            failed: Ordering,
        ) -> Result<$value, $value> {
            enter_total_order(Access::Write, done);
            if weakness::is_active(Weakness::ExchangeInTwoSteps) {
                let result = self.exchange_in_two_steps(from, to);
                enter_total_order(Access::Load, done);
                return result;
            }
            let failed = order(failed, Weakness::CompareExchange);
            self.0.compare_exchange(from, to, order(done, Weakness::CompareExchange), failed)
        }

        /// A broken compare-and-exchange, with all the order of a whole one on x86-64.
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

impl AtomicUsize {
    pub(crate) fn fetch_add(&self, value: usize, by: Ordering) -> usize {
        enter_total_order(Access::Write, by);
        self.0.fetch_add(value, order(by, Weakness::Add))
    }

    pub(crate) fn fetch_sub(&self, value: usize, by: Ordering) -> usize {
        enter_total_order(Access::Write, by);
        self.0.fetch_sub(value, order(by, Weakness::Add))
    }
}

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
        enter_total_order(Access::Write, order(by, Weakness::TotalOrderOfStores));
        self.0.swap(value, by)
    }

    pub(crate) fn fetch_add(&self, value: u64, by: Ordering) -> u64 {
        let by = order(by, Weakness::Add);
        enter_total_order(Access::Write, order(by, Weakness::TotalOrderOfAdds));
        self.0.fetch_add(value, by)
    }

    pub(crate) fn fetch_min(&self, value: u64, by: Ordering) -> u64 {
        let by = order(by, Weakness::Add);
        enter_total_order(Access::Write, order(by, Weakness::TotalOrderOfAdds));
        self.0.fetch_min(value, by)
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
