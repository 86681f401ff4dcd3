//! Stubs for systems without a port: goroutines are not supported there, and [`support`] returns
//! the reason. These functions never create a stack or a thread.

use crate::base::unsupported::Unsupported;
use std::sync::OnceLock;

/// Returns an error: without a port, goroutines cannot have an identity.
///
/// # Errors
/// Always.
pub fn support() -> Result<(), &'static Unsupported> {
    static WHY: OnceLock<Unsupported> = OnceLock::new();
    Err(WHY.get_or_init(|| {
        let here = format!("{} on {}", std::env::consts::OS, std::env::consts::ARCH);
        Unsupported::new("x86-64 Linux with glibc", here)
    }))
}

/// Calls `f` directly: without a port there are no goroutines, so the caller is a thread.
pub fn host<F, R>(f: F) -> R
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    f()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_system_without_a_port_is_reported_as_unsupported() {
        let why = super::support().unwrap_err().to_string();
        assert!(why.contains("wanted x86-64 Linux with glibc, found "), "{why}");
        assert_eq!(super::host(|| 3), 3);
    }
}
