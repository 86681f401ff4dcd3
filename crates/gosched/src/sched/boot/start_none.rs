//! Replaces `start` on systems without a port: always fails, so that goroutines are OS threads.
//! This version never creates a thread: `choose` starts the other backend.

pub(crate) fn start() -> Result<usize, String> {
    Err("gosched has not been ported to this system".into())
}
