//! The twin of `start` on systems without a port: an honest no.

pub(crate) fn start() -> Result<usize, String> {
    Err("there is no port to this system".into())
}
