//! The boundary of the runtime: what a G does before and after it uses an M or a P.
//!
//! From [`enter`] until the guard that it returns is dropped, preemption is off: the G is moved to
//! another M only if it switches away itself. [`enter`] also checks whether the M still has its P,
//! which may have been taken while the M was blocked in the kernel. This check and the *retaker*,
//! the thread that takes the P, do not miss each other:
//!
//! - G: 1. turns preemption off; 2. passes a light barrier; 3. checks whether its P is being taken.
//! - Retaker: 1. announces that it takes the P; 2. passes a heavy barrier; 3. checks whether the G
//!   has turned preemption off, and takes nothing in that case.
//!
//! At least one side sees the other. If both do, the P is not taken: see `syscall`. A G whose P was
//! taken may be on another M when [`enter`] returns. This module never takes the P of an M: the
//! retaker's code is in `syscall`.

use crate::gmp::token::{MayMove, OnM};
use crate::probe::field::PreemptMethod;
use crate::sched::switch::{preempt, syscall};
use gosched_fiber::arch;
use gosched_fiber::carrier::{Role, role};
use std::marker::PhantomData;

/// A guard of a G that is inside the runtime: preemption is off. Dropping the guard turns
/// preemption on again, possibly on another M, and serves a preemption request that came in the
/// meantime.
/// Go: acquirem, releasem.
#[must_use]
#[derive(Debug)]
pub(crate) struct InRuntime(PhantomData<*mut ()>);

impl InRuntime {
    /// Creates the guard of a G for which preemption is already off.
    ///
    /// # Safety
    /// - **carried**: the caller is a G of this runtime.
    /// - **counted**: preemption was turned off once for this guard.
    #[inline(always)]
    pub(crate) unsafe fn new() -> InRuntime {
        InRuntime(PhantomData)
    }

    /// Returns the token of the M that the G runs on now.
    #[inline(always)]
    pub(crate) fn on_m(&mut self) -> OnM<'_> {
        // SAFETY: carried — by `new`, and preemption is off; only — the token borrows the guard.
        unsafe { OnM::current() }
    }

    /// Returns the token with which the G can leave the M that it runs on now.
    #[inline(always)]
    pub(crate) fn may_move(&mut self) -> MayMove<'_> {
        // SAFETY: carried, only — as above.
        unsafe { MayMove::current() }
    }

    /// Turns preemption on without serving a request. Returns whether there is one.
    #[inline(always)]
    pub(crate) fn leave_without_serving(self) -> bool {
        std::mem::forget(self);
        // SAFETY: carried, counted — by `new`.
        unsafe { arch::preempt_enable() }
    }
}

impl Drop for InRuntime {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: carried, counted — by `new`.
        if unsafe { arch::preempt_enable() } {
            serve_preempt_request();
        }
    }
}

/// Turns preemption off for the calling G. The G's M may be in a call that has not ended.
#[inline(always)]
fn disable_preemption() -> InRuntime {
    debug_assert_eq!(role(), Role::Goroutine);
    // SAFETY: carried — the caller is a goroutine.
    unsafe { arch::preempt_disable() };
    // SAFETY: carried — as above; counted — by the line above.
    unsafe { InRuntime::new() }
}

/// Turns preemption off for the calling G.
/// Go: acquirem.
#[inline(always)]
pub(crate) fn enter() -> InRuntime {
    let mut inside = disable_preemption();
    let may_move = inside.may_move();
    if may_move.syscall_state.must_settle_after_barrier() {
        syscall::exit_syscall(may_move);
    }
    inside
}

/// Calls `f` with preemption off for the calling G. `f` gets the token of the M that the G runs on,
/// which has a P.
#[inline(always)]
pub(crate) fn while_inside<R>(f: impl FnOnce(MayMove<'_>) -> R) -> R {
    let mut inside = disable_preemption();
    let mut may_move = inside.may_move();
    if may_move.syscall_state.must_settle_after_barrier() {
        syscall::exit_syscall(may_move);
        may_move = inside.may_move();
    }
    f(may_move)
}

/// Serves the pending preemption request, unless preemption is off for another reason as well.
#[cold]
#[inline(never)]
fn serve_preempt_request() {
    loop {
        let mut inside = enter();
        let may_move = inside.may_move();
        let carrier = &may_move.carrier;
        if carrier.preempt_disable_count() == 1 && carrier.is_preempt_pending() {
            preempt::serve_request(may_move, PreemptMethod::Leaving);
        }
        let again = inside.leave_without_serving();
        // SAFETY: carried — the caller is a goroutine.
        if !again || unsafe { arch::preempt_disable_count() } > 0 {
            return;
        }
    }
}
