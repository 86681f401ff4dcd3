//! The boundary of the runtime: what a G does before and after it uses an M or a P.
//!
//! Between [`enter`] and [`leave`], preemption is off: the G cannot be moved to another M.
//! [`enter`] also checks whether the M still has its P, which may have been taken while the M was
//! blocked in the kernel. This check and the *retaker*, the thread that takes the P, do not miss
//! each other:
//!
//! - G: 1. turns preemption off; 2. passes a light barrier; 3. checks whether its P is being taken.
//! - Retaker: 1. announces that it takes the P; 2. passes a heavy barrier; 3. checks whether the G
//!   has turned preemption off, and takes nothing in that case.
//!
//! At least one side sees the other. If both do, the P is not taken: see `syscall`. A G whose P was
//! taken may be on another M when [`enter`] returns.

use crate::gmp::m::M;
use crate::sched::switch::{preempt, syscall};
use gosched_fiber::arch;
use gosched_fiber::carrier::{Role, role};

/// Turns preemption off for the calling G. Returns the G's M, which has a P. Must be paired with
/// [`leave`], which may be called on another M.
/// Go: acquirem.
#[inline(always)]
pub(crate) fn enter() -> &'static M {
    debug_assert_eq!(role(), Role::Goroutine);
    // SAFETY: carried — the caller is a goroutine.
    unsafe { arch::preempt_disable() };
    // SAFETY: carried — the caller is a goroutine, and its carrier is an M.
    let m = unsafe { M::current() };
    if m.syscall_state.must_settle_after_barrier() {
        return syscall::exit_syscall(m);
    }
    m
}

/// Turns preemption on again, and serves a preemption request that came in the meantime.
/// Go: releasem.
#[inline(always)]
pub(crate) fn leave() {
    // SAFETY: carried, counted — the caller has called `enter`.
    if unsafe { arch::preempt_enable() } {
        serve_preempt_request();
    }
}

/// Serves the pending preemption request, unless preemption is off for another reason as well.
#[cold]
#[inline(never)]
fn serve_preempt_request() {
    loop {
        let m = enter();
        if m.carrier.preempt_disable_count() == 1 && m.carrier.is_preempt_pending() {
            preempt::serve_request(m);
        }
        // SAFETY: carried, counted — `enter` was called above.
        let again = unsafe { arch::preempt_enable() };
        // SAFETY: carried — the caller is a goroutine.
        if !again || unsafe { arch::preempt_disable_count() } > 0 {
            return;
        }
    }
}
