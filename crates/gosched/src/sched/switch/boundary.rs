//! Into the runtime and out again: what a goroutine does before and after it touches an M or a P.
//!
//! Inside, preemption is off: the goroutine cannot be moved to another M. Coming in, it looks whether
//! its P is still there: somebody may have taken it while the M was blocked in the kernel.
//!
//! Goroutine: 1. counts itself in; 2. looks whether the P was taken.
//! Taker: 1. says that it takes the P; 2. makes the M's CPU pass a barrier; 3. looks whether the
//! goroutine has counted itself in, and takes nothing if so.
//!
//! One of them sees the other, and where both do, nothing was taken: see `syscall`. A goroutine whose P is
//! gone may have another M when it is inside.

use crate::gmp::m::M;
use crate::sched::switch::{preempt, syscall};
use crate::sys::barrier;
use gosched_fiber::arch;
use gosched_fiber::carrier::{Role, role};
use std::sync::atomic::Ordering;

/// Turns preemption off for the calling goroutine and finds its M, with a P. To be undone by
/// [`leave`], on whatever M the goroutine is then.
/// Go: acquirem.
#[inline(always)]
pub(crate) fn enter() -> &'static M {
    debug_assert_eq!(role(), Role::Goroutine);
    // SAFETY: carried — goroutines are.
    unsafe { arch::preempt_disable() };
    // SAFETY: carried — goroutines are, by Ms.
    let m = unsafe { M::current() };
    barrier::light();
    if m.syscall_state.load(Ordering::Relaxed) != 0 {
        return syscall::exit_syscall(m);
    }
    m
}

/// Turns preemption on again, and does what was asked for meanwhile.
/// Go: releasem.
#[inline(always)]
pub(crate) fn leave() {
    // SAFETY: carried, counted — `enter` was called.
    if unsafe { arch::preempt_enable() } {
        serve_preempt_request();
    }
}

/// A request waits: stops here if nothing speaks against it any more.
#[cold]
#[inline(never)]
fn serve_preempt_request() {
    loop {
        let m = enter();
        if m.carrier.preempt_disable_count() == 1 && m.carrier.is_preempt_pending() {
            preempt::serve_request(m);
        }
        // SAFETY: carried, counted — `enter` was called.
        let again = unsafe { arch::preempt_enable() };
        // SAFETY: carried — goroutines are.
        if !again || unsafe { arch::preempt_disable_count() } > 0 {
            return;
        }
    }
}
