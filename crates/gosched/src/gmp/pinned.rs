//! The M that alone may run a G: the G is locked to its thread, or it was stopped in place. This
//! module never moves a G to its M: `wake::give` does.

use super::m::M;
use gosched_fiber::base::atomic_ref::AtomicRef;

/// The M that alone may run a G, if there is one. Written by the owner of the G.
/// Go: g.lockedm.
#[derive(Debug)]
pub(crate) struct PinnedM(AtomicRef<M>);

impl PinnedM {
    pub(crate) const fn new() -> PinnedM {
        PinnedM(AtomicRef::new())
    }

    /// Returns the M, or `None` if any M may run the G.
    #[inline]
    pub(crate) fn get(&self) -> Option<&'static M> {
        self.0.load()
    }

    /// Returns whether only one M may run the G.
    #[inline]
    pub(crate) fn is_pinned(&self) -> bool {
        self.get().is_some()
    }

    /// Sets the M, or `None` if any M may run the G. Returns the previous value.
    pub(crate) fn replace(&self, m: Option<&'static M>) -> Option<&'static M> {
        self.0.swap(m)
    }
}
