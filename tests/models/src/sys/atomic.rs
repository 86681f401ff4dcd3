//! The atomics for models: loom's, with orderings that a model can weaken.

use super::weakness::{self, Weakness};
use loom::sync::atomic as modelled;
pub(crate) use loom::sync::atomic::Ordering;

/// Returns `order`, or `Relaxed` if `weakness` is active.
fn order(order: Ordering, weakness: Weakness) -> Ordering {
    if weakness::is_active(weakness) { Ordering::Relaxed } else { order }
}

macro_rules! common {
    ($value:ty) => {
        pub(crate) fn load(&self, by: Ordering) -> $value {
            self.0.load(order(by, Weakness::Load))
        }

        pub(crate) fn store(&self, value: $value, by: Ordering) {
            self.0.store(value, order(by, Weakness::Store));
        }

        pub(crate) fn compare_exchange(
            &self,
            from: $value,
            to: $value,
            done: Ordering,
            failed: Ordering,
        ) -> Result<$value, $value> {
            let done = order(done, Weakness::CompareExchange);
            self.0.compare_exchange(from, to, done, order(failed, Weakness::CompareExchange))
        }
    };
}

macro_rules! number {
    ($name:ident, $value:ty) => {
        #[derive(Debug)]
        pub(crate) struct $name(modelled::$name);

        impl $name {
            pub(crate) fn new(value: $value) -> $name {
                $name(modelled::$name::new(value))
            }

            common!($value);
        }
    };
}

number!(AtomicU32, u32);
number!(AtomicU64, u64);
number!(AtomicUsize, usize);

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

    common!(*mut T);
}
