//! Something that is done once, by whoever comes first; the others wait for it.

use super::mutex::RawMutex;
use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs one function, once. One that panics has not run: the next caller's does.
#[derive(Default)]
pub struct Once {
    done: AtomicBool,
    mutex: RawMutex,
}

/// Gives the mutex back, however the function ends.
struct Release<'a>(&'a RawMutex);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        // SAFETY: held — by `call_once`.
        unsafe { self.0.unlock() };
    }
}

impl Once {
    /// Nothing has run.
    pub const fn new() -> Once {
        Once { done: AtomicBool::new(false), mutex: RawMutex::new() }
    }

    /// Runs `f`, unless one has run; waits for one that runs.
    #[doc(alias = "Do")]
    pub fn call_once(&self, f: impl FnOnce()) {
        if self.is_completed() {
            return;
        }
        self.mutex.lock();
        let _release = Release(&self.mutex);
        if !self.done.load(Ordering::Relaxed) {
            f();
            // PAIR once: publishes what it did.
            self.done.store(true, Ordering::Release);
        }
    }

    /// Whether one has run.
    pub fn is_completed(&self) -> bool {
        // PAIR once: sees what it did.
        self.done.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Once({})", self.is_completed())
    }
}

/// A value that is written once.
///
/// ```
/// static NAME: gosched::sync::OnceLock<String> = gosched::sync::OnceLock::new();
/// assert_eq!(NAME.get(), None);
/// assert_eq!(NAME.get_or_init(|| "gopher".to_string()), "gopher");
/// assert_eq!(NAME.set("other".to_string()), Err("other".to_string()));
/// ```
pub struct OnceLock<T> {
    once: Once,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: written once, by whoever may send it; then only read.
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for OnceLock<T> {}

impl<T> OnceLock<T> {
    /// Without a value.
    pub const fn new() -> OnceLock<T> {
        OnceLock { once: Once::new(), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// The value, if it is there.
    pub fn get(&self) -> Option<&T> {
        self.once.is_completed().then(|| {
            // SAFETY: written before the once was completed, and not again.
            unsafe { &*self.value.get().cast::<T>() }
        })
    }

    /// The value; made by `f` if it is not there, while others wait.
    pub fn get_or_init(&self, f: impl FnOnce() -> T) -> &T {
        self.once.call_once(|| {
            let value = f();
            // SAFETY: one at a time, before it is completed: nobody reads it.
            unsafe { (*self.value.get()).write(value) };
        });
        match self.get() {
            Some(value) => value,
            None => unreachable!("it is completed"),
        }
    }

    /// Writes the value.
    ///
    /// # Errors
    /// One is there: the new one again.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.once.call_once(|| {
            if let Some(value) = value.take() {
                // SAFETY: as in `get_or_init`.
                unsafe { (*self.value.get()).write(value) };
            }
        });
        value.map_or(Ok(()), Err)
    }

    /// The value, if it is there.
    pub fn into_inner(self) -> Option<T> {
        let value = self.once.is_completed().then(|| {
            // SAFETY: written, and not used again: `drop` is not run.
            unsafe { self.value.get().cast::<T>().read() }
        });
        std::mem::forget(self);
        value
    }
}

impl<T> Drop for OnceLock<T> {
    fn drop(&mut self) {
        if self.once.is_completed() {
            // SAFETY: written, and dropped once.
            unsafe { self.value.get_mut().assume_init_drop() };
        }
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceLock").field(&self.get()).finish()
    }
}
