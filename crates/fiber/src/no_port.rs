//! What this crate is on a system without a port: an honest no.

use crate::base::unsupported::Unsupported;
use std::sync::OnceLock;

/// Whether goroutines can have an identity here: never.
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

/// Calls `f`: there is no goroutine to leave.
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
    fn a_system_without_a_port_says_so() {
        let why = super::support().unwrap_err().to_string();
        assert!(why.contains("wanted x86-64 Linux with glibc, found "), "{why}");
        assert_eq!(super::host(|| 3), 3);
    }
}
