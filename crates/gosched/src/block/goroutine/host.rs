//! Running code as the thread below a goroutine.

use crate::gmp::current;
use crate::gmp::g::G;

/// Runs `f` as the thread that runs this goroutine: with the thread-locals of that thread, and
/// outside any goroutine.
///
/// On an ordinary thread this calls `f`. A panic in `f` propagates to the caller.
///
/// Use `host` for libraries whose state grows with the number of threads that they see, and for
/// calls that affect the calling thread (signal mask, affinity, namespaces).
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
