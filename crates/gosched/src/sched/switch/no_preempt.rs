//! Sections of code that ask not to be preempted. Such a section never prevents a stop of the
//! world.

use crate::gmp::g::G;
use crate::sched::switch::boundary;
use std::sync::atomic::Ordering;

/// Runs `f`. The calling G is not preempted while `f` runs, except to stop the world.
pub(crate) fn without<R>(g: &'static G, f: impl FnOnce() -> R) -> R {
    /// Ends the section when `f` returns or unwinds.
    struct End(&'static G);
    impl Drop for End {
        fn drop(&mut self) {
            let before = self.0.no_preempt_depth.load(Ordering::Relaxed);
            self.0.no_preempt_depth.store(before - 1, Ordering::Relaxed);
            if before == 1 {
                let mut inside = boundary::enter();
                let on = inside.on_m();
                // Dropping `inside` serves a request that came during the section.
                if on.preempt_request.is_set() {
                    on.carrier.set_preempt_pending(true);
                }
            }
        }
    }
    g.no_preempt_depth.store(g.no_preempt_depth.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    let _end = End(g);
    f()
}
