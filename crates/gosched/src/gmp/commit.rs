//! The last step of a wait: what publishes that the caller waits, once its context is saved. This
//! module never parks a G.

use super::g::G;

/// Publishes a G that waits, or finds that there is nothing to wait for and returns false. It may
/// run on the stack of another goroutine, so it must not allocate, panic or use thread-locals.
pub(crate) type CommitFn = unsafe fn(&'static G, *const ()) -> bool;

/// A function that publishes a G, and the data that the function takes. It can be run once.
#[derive(Debug)]
pub(crate) struct Commit {
    function: CommitFn,
    data: *const (),
}

impl Commit {
    /// Creates the last step of a wait.
    ///
    /// # Safety
    /// - **commit**: `function` may be called with a G and `data`, perhaps on another stack, until
    ///   the call that takes this value returns; and it keeps the rules of [`CommitFn`].
    #[inline(always)]
    pub(crate) unsafe fn new(function: CommitFn, data: *const ()) -> Commit {
        Commit { function, data }
    }

    /// Returns the data.
    #[inline(always)]
    pub(crate) fn data(&self) -> *const () {
        self.data
    }

    /// Publishes `g`. Returns false if there is nothing to wait for.
    #[inline(always)]
    pub(crate) fn run(self, g: &'static G) -> bool {
        // SAFETY: commit — promised by the caller of `new`; the call that takes `self` has not
        // returned.
        unsafe { (self.function)(g, self.data) }
    }
}
