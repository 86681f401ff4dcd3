//! Stand-in for `interpose` in a build that must not replace libc functions, because of the feature
//! `threads` or a sanitizer. Goroutines are threads there. `check` never succeeds.

use crate::base::unsupported::Unsupported;

/// # Errors
/// Always: no function is replaced.
pub(super) fn check() -> Result<(), Unsupported> {
    Err(if cfg!(feature = "threads") {
        Unsupported::new("a build without the feature `threads`", "a build with it")
    } else {
        Unsupported::new(
            "a build without a sanitizer",
            "a build with a sanitizer, which supports only the stacks of threads",
        )
    })
}
