//! The twin of `pinned.rs` for systems without a port, where each goroutine is a thread, and a G is
//! never pinned to another one.

/// See `pinned.rs`.
#[derive(Debug)]
pub(crate) struct PinnedM;

impl PinnedM {
    pub(crate) const fn new() -> PinnedM {
        PinnedM
    }
}
