//! Code that runs as the thread below a goroutine.

use crate::gmp::current;
use crate::gmp::g::G;

/// Runs `f` as the thread that carries this goroutine: with the thread's own thread-locals, and as
/// nobody's goroutine. On an ordinary thread it just calls `f`.
///
/// For libraries whose state grows with the number of threads they see, and for calls whose effect is
/// the thread's (signal mask, affinity, namespaces). A panic goes through.
pub fn host<F, R>(f: F) -> R
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    match current::goroutine() {
        Some(g) if g.is_thread() => {
            // Set back whatever `f` does.
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
