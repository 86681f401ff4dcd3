//! Replaces `start` on systems without a port: always fails, so that goroutines are OS threads.

pub(crate) fn start() -> Result<usize, String> {
    Err("gosched has not been ported to this system".into())
}
