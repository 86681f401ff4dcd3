//! The twin of `interpose` in a program that must not replace functions of libc: goroutines are
//! threads there, by the feature `threads` or because of a sanitizer.

use crate::base::unsupported::Unsupported;

/// # Errors
/// Always: no function is replaced.
pub(super) fn check() -> Result<(), Unsupported> {
    Err(if cfg!(feature = "threads") {
        Unsupported::new("a build without the feature `threads`", "one with it")
    } else {
        Unsupported::new(
            "a build without a sanitizer",
            "one with it, which knows the stacks of threads only",
        )
    })
}
