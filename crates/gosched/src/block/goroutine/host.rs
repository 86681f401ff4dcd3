//! Running code as the thread below a goroutine. The code never moves to another thread while it
//! runs.

use crate::gmp::current;
use crate::gmp::g::G;

/// Runs `f` as the OS thread that carries the calling goroutine: `f` sees the thread-locals of that
/// thread, and [`current()`](crate::current) returns `None`.
///
/// `f` runs on the stack of the goroutine. Until `f` returns, the thread runs no other goroutine,
/// even if `f` blocks. On an ordinary thread, `host` only calls `f`. A panic in `f` propagates to
/// the caller.
///
/// Use `host` for libraries whose state grows with the number of threads that they see, and for
/// calls that affect the calling thread (signal mask, affinity, namespaces). Afterwards the
/// goroutine may continue on another thread: see [`lock_os_thread`](crate::lock_os_thread).
pub fn host<F, R>(f: F) -> R
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    match current::goroutine() {
        Some(g) if g.is_thread() => {
            // Restores the goroutine, whether `f` returns or unwinds.
            struct Back(&'static G);
            impl Drop for Back {
                fn drop(&mut self) {
                    current::set_goroutine(Some(self.0));
                }
            }
            let _back = Back(g);
            current::set_goroutine(None);
            f()
        }
        _ => gosched_fiber::host(f),
    }
}
