//! Initialisation that runs once: the first caller runs it, and other callers wait until it is
//! done. Two functions of one `Once` never run at the same time.

use super::mutex::RawMutex;
use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs a function once.
///
/// If the function panics, it does not count as run: the next caller runs its own function.
#[derive(Default)]
pub struct Once {
    done: AtomicBool,
    mutex: RawMutex,
}

/// Releases the mutex, whether the function returns or unwinds.
struct Release<'a>(&'a RawMutex);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        // SAFETY: held — by `call_once`.
        unsafe { self.0.unlock() };
    }
}

impl Once {
    /// Creates a `Once` whose function has not run.
    pub const fn new() -> Once {
        Once { done: AtomicBool::new(false), mutex: RawMutex::new() }
    }

    /// Calls `f`, unless a function has already run to completion. If another caller's function is
    /// running, waits for it, and calls `f` if that function panics. A call of `call_once` inside
    /// `f` blocks forever.
    #[doc(alias = "Do")]
    pub fn call_once(&self, f: impl FnOnce()) {
        if self.is_completed() {
            return;
        }
        self.mutex.lock();
        let _release = Release(&self.mutex);
        if !self.done.load(Ordering::Relaxed) {
            f();
            // PAIR once: publishes what `f` did.
            self.done.store(true, Ordering::Release);
        }
    }

    /// Returns whether a function has run to completion.
    pub fn is_completed(&self) -> bool {
        // PAIR once: sees what the function did.
        self.done.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Once({})", self.is_completed())
    }
}

/// A cell whose value is written at most once.
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

// SAFETY: the value is written once, by a thread that may send it, and then only read.
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for OnceLock<T> {}

impl<T> OnceLock<T> {
    /// Creates a cell without a value.
    pub const fn new() -> OnceLock<T> {
        OnceLock { once: Once::new(), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Returns a reference to the value, or `None` if it has not been written.
    pub fn get(&self) -> Option<&T> {
        self.once.is_completed().then(|| {
            // SAFETY: written before the once was completed, and not again.
            unsafe { &*self.value.get().cast::<T>() }
        })
    }

    /// Returns a reference to the value. If it has not been written, calls `f` to create it; other
    /// callers wait meanwhile. A call of `get_or_init` or `set` inside `f` blocks forever.
    pub fn get_or_init(&self, f: impl FnOnce() -> T) -> &T {
        self.once.call_once(|| {
            let value = f();
            // SAFETY: one caller at a time, before the `Once` is completed: the value is not read
            // yet.
            unsafe { (*self.value.get()).write(value) };
        });
        match self.get() {
            Some(value) => value,
            None => unreachable!("`call_once` has completed"),
        }
    }

    /// Writes the value. If another caller is creating the value, waits for it.
    ///
    /// # Errors
    /// The value has already been written. The error contains `value`.
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

    /// Consumes the cell and returns the value, or `None` if it has not been written.
    pub fn into_inner(self) -> Option<T> {
        let value = self.once.is_completed().then(|| {
            // SAFETY: the value was written, and is not used again: `drop` does not run.
            unsafe { self.value.get().cast::<T>().read() }
        });
        std::mem::forget(self);
        value
    }
}

impl<T> Drop for OnceLock<T> {
    fn drop(&mut self) {
        if self.once.is_completed() {
            // SAFETY: the value was written, and is dropped once.
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
