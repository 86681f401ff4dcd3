//! A hook: a place for a function that a lower layer calls and a higher layer provides.
//!
//! A hook stores a reference to a function pointer, not the function pointer itself. So a hook
//! needs no conversion between pointers and functions, and it can be read in a signal handler.
//!
//! A hook never calls its function: the layer that owns the hook does.

use super::atomic_ref::AtomicRef;

/// A place for a function of type `F`, or for any other `'static` value (see the top of this file).
#[derive(Debug, Default)]
pub struct Hook<F: Sync + 'static>(AtomicRef<F>);

impl<F: Sync + 'static> Hook<F> {
    /// Creates an empty hook.
    pub const fn new() -> Hook<F> {
        Hook(AtomicRef::new())
    }

    /// Puts a function into the hook. Replaces the previous function.
    pub fn set(&self, function: &'static F) {
        self.0.store(Some(function));
    }

    /// Returns the function, or `None` if the hook is empty.
    #[inline]
    pub fn get(&self) -> Option<&'static F> {
        self.0.load()
    }

    /// Empties the hook and returns the function that was in it.
    pub fn take(&self) -> Option<&'static F> {
        self.0.swap(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_returns_the_function_that_was_set_last_until_it_is_taken() {
        static HOOK: Hook<fn() -> u32> = Hook::new();
        assert!(HOOK.get().is_none());
        HOOK.set(&((|| 1) as fn() -> u32));
        HOOK.set(&((|| 2) as fn() -> u32));
        assert_eq!(HOOK.get().map(|function| function()), Some(2));
        assert_eq!(HOOK.take().map(|function| function()), Some(2));
        assert!(HOOK.take().is_none());
    }
}
