//! Blocking calls: how an M loses its P during a call, and how its G continues afterwards.
//!
//! A *marked* call is announced by [`enter_syscall`]. The *retaker* is the thread that takes the P
//! of an M in a call. The word through which the M and the retaker agree on who has the P, and the
//! protocol, are in `protocol::syscall_state`.
//!
//! A G that has lost its P takes its old P if that is idle, otherwise any idle P. If no P is idle,
//! the G goes to the tail of the global queue, and its M sleeps as an idle M. The G enters the
//! runtime by an ordinary function call, so it can be moved to another M there. Code that cannot be
//! moved calls [`exit_syscall_in_place`]: if no P is idle, the G is pinned, and its M sleeps.
//!
//! This module never makes the call itself: for a marked call, `block::call` does.

use crate::gmp::frame::Registers;
use crate::gmp::g::G;
use crate::gmp::m::{Departure, M};
use crate::gmp::record::record;
use crate::gmp::state::GState;
use crate::gmp::token::{MayMove, OnM};
use crate::probe;
use crate::probe::event::EventKind;
use crate::probe::field::CallEnd;
use crate::protocol::syscall_state::{MarkedCall, Retaking, Settled};
use crate::sched::state::global::SCHED;
use crate::sched::state::ps;
use crate::sched::switch;
use crate::sched::switch::stopped_m::wait_for_p_in_place;
use crate::sched::wake::hand_off::hand_off;
use crate::sys::fatal::fatal;
use crate::sys::forked;
use crate::sys::{clock, thread_status};
use gosched_fiber::arch;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many times a P was taken, in marked calls and in unmarked calls.
static RETAKES_IN_SYSCALL: AtomicU64 = AtomicU64::new(0);
static RETAKES_UNMARKED: AtomicU64 = AtomicU64::new(0);

/// Returns how many times a P was taken in marked calls, and in unmarked calls.
pub(crate) fn retake_counts() -> (u64, u64) {
    (RETAKES_IN_SYSCALL.load(Ordering::Relaxed), RETAKES_UNMARKED.load(Ordering::Relaxed))
}

/// Takes the P of an M that is blocked in an unmarked call, and hands it off. Returns false if the
/// M is inside the runtime, is in a marked call, or has no P. Called by another thread.
pub(crate) fn retake_unmarked(m: &'static M) -> bool {
    let is_in_runtime = || m.carrier.preempt_disable_count() > 0 || m.p().is_none();
    let Some(retaking) = m.syscall_state.retake_unmarked(is_in_runtime) else { return false };
    RETAKES_UNMARKED.fetch_add(1, Ordering::Relaxed);
    let ran = thread_status::thread_cpu_nanos(m.tid()).unwrap_or(0);
    record_retake(m, ran);
    finish_retake(m, retaking, false);
    true
}

/// Records that the thread of `m` is blocked in an unmarked call without a P, and that the thread
/// has used `ran` nanoseconds of CPU time.
pub(crate) fn record_retake(m: &'static M, ran: u64) {
    m.retaken_at_nanos.store(clock::real_now(), Ordering::Relaxed);
    // PAIR taken-at: a thread that reads this CPU time also sees the time stored above.
    m.cpu_nanos_at_retake.store(ran, Ordering::Release);
}

/// Returns the approximate time at which the thread of `m` blocked in its current unmarked call.
/// `ran` is the CPU time that the thread has used, in nanoseconds. Returns `None` unless the P of
/// `m` was taken in that same call.
pub(crate) fn blocked_since(m: &'static M, ran: u64) -> Option<u64> {
    // PAIR taken-at: the time read below is not older than this CPU time.
    let is_same = m.cpu_nanos_at_retake.load(Ordering::Acquire) == ran;
    let since = m.retaken_at_nanos.load(Ordering::Relaxed);
    (is_same && is_running_without_p(m)).then_some(since)
}

/// Takes the P of an M that is in a marked call, and hands it off. Returns false if the call has
/// ended or the P was already taken. Called by sysmon, by a thread that stops the world, and by the
/// M itself if the call is known to block.
/// Go: retake, its part for system calls.
pub(crate) fn retake_in_syscall(m: &'static M) -> bool {
    let Some(retaking) = m.syscall_state.retake_in_syscall() else { return false };
    RETAKES_IN_SYSCALL.fetch_add(1, Ordering::Relaxed);
    finish_retake(m, retaking, true);
    true
}

/// Returns whether `m` is in a marked call, with or without its P.
pub(crate) fn is_in_syscall(m: &'static M) -> bool {
    match m.syscall_state.is_call_marked() {
        MarkedCall::Yes => true,
        MarkedCall::No => false,
        MarkedCall::Unknown => m.curg().is_some_and(|g| g.state() == GState::Syscall),
    }
}

/// Returns whether the P of `m` was taken in an unmarked call and `m` has had no P since.
pub(crate) fn is_running_without_p(m: &'static M) -> bool {
    let running = m.curg().is_some_and(|g| g.state() == GState::Running);
    m.syscall_state.is_retaken() && running
}

/// Takes the P of an M, and hands it off. `marked` is recorded: whether the M is in a marked call.
/// Go: takeP, then handoffp.
fn finish_retake(m: &'static M, retaking: Retaking<'_>, marked: bool) {
    let p = m.lose_p_to(&retaking);
    if let Some(p) = p.filter(|_| probe::is_recording()) {
        let g = m.curg().map_or(0, G::id);
        record(|| EventKind::Retake { p: p.id, m: m.id, g, marked });
    }
    m.old_p.store(p);
    SCHED.lock.lock().blocked_ms += 1;
    retaking.finish();
    if let Some(p) = p {
        hand_off(p);
    }
}

/// Begins a marked call. `registers` are those of the calling frame, or null if they are unknown.
/// The caller is inside the runtime and leaves it for the call.
/// Go: entersyscall.
pub(crate) fn enter_syscall(on: MayMove<'_>, g: &'static G, registers: *const Registers) {
    begin_call(on, g, registers, false);
}

/// Begins a marked call. `blocks` is recorded.
fn begin_call(on: MayMove<'_>, g: &'static G, registers: *const Registers, blocks: bool) {
    if probe::is_recording() {
        on.record(EventKind::EnterCall { g: g.id(), blocks });
    }
    let Some(p) = on.p() else { fatal!("goroutine {} begins a blocking call without a P", g.id()) };
    p.syscalltick.store(p.syscalltick.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    g.enter_syscall(registers);
    g.transition(GState::Running, GState::Syscall);
    on.syscall_state.enter();
    // No thread sends a signal from here on. Wait for a signal that is already on its way.
    on.carrier.drain_signal();
}

/// Like [`enter_syscall`], but hands the P off at once.
/// Go: entersyscallblock.
pub(crate) fn enter_syscall_block(mut on: MayMove<'_>, g: &'static G, registers: *const Registers) {
    let m = on.on_m().m();
    begin_call(on, g, registers, true);
    // In virtual time, the order of events must not depend on how long the call takes.
    if !clock::is_virtual() {
        retake_in_syscall(m);
    }
}

/// Ends a marked call, or regains a P that was taken in an unmarked call. Called when the G enters
/// the runtime. When this returns, the G's M has a P, and may be another M than before.
/// Go: exitsyscall.
#[cold]
#[inline(never)]
pub(crate) fn exit_syscall(mut on: MayMove<'_>) {
    let Some(g) = on.curg() else { fatal!("M{} lost its P while it ran no goroutine", on.id) };
    if !end_and_regain_p(on.on_m(), g, CallEnd::Queued) {
        on.syscall_state.clear();
        switch::switch_to_g0(on, g, Departure::Yield { g, held: false });
    }
}

/// Like [`exit_syscall`], for code that cannot be moved to another M: if no P is idle, the M sleeps
/// here until it is handed one.
#[cold]
#[inline(never)]
pub(crate) fn exit_syscall_in_place(mut on: OnM<'_>) {
    let Some(g) = on.curg() else { fatal!("M{} lost its P while it ran no goroutine", on.id) };
    if !end_and_regain_p(on.lend(), g, CallEnd::Waits) {
        let mut registers = Registers::default();
        let is_shown = !g.shown().is_null();
        if !is_shown {
            // SAFETY: to — `registers` is a local variable.
            unsafe { arch::capture_registers(&raw mut registers) };
            g.set_stopped_registers(&raw const registers);
        }
        wait_for_p_in_place(on.lend(), g);
        if !is_shown {
            g.set_stopped_registers(ptr::null());
        }
        on.syscall_state.clear();
    }
}

/// Ends the call, and acquires an idle P if the P was taken. Returns whether the M has a P.
/// `without_p` is recorded if not.
fn end_and_regain_p(mut on: OnM<'_>, g: &'static G, without_p: CallEnd) -> bool {
    let end = if exit_syscall_in_child(on.lend(), g) || !settle_retake(on.lend(), g) {
        CallEnd::Kept
    } else {
        try_acquire_idle_p(on.lend()).unwrap_or(without_p)
    };
    if probe::is_recording() {
        on.record(EventKind::LeaveCall { g: g.id(), end });
    }
    end != without_p
}

/// Ends a call in a forked child, where only the calling thread exists: neither the thread that
/// took the P nor a thread that could hand one over. The child's other Ps may be in an inconsistent
/// state, so an M without a P gets a new one. Returns false if this process is not a forked child.
fn exit_syscall_in_child(on: OnM<'_>, g: &'static G) -> bool {
    if !forked::is_child() {
        return false;
    }
    on.syscall_state.clear();
    restore_running(g);
    if on.p().is_none()
        && let Some(p) = ps::spare_p()
    {
        on.acquire_p(p);
    }
    true
}

/// Ends the marked call, if there is one, and waits for a retaker that is taking the P. Returns
/// whether the P was taken.
fn settle_retake(on: OnM<'_>, g: &'static G) -> bool {
    let settled = on.syscall_state.settle();
    restore_running(g);
    settled == Settled::LostP
}

/// Sets `g` back to running if it was in a marked call.
fn restore_running(g: &'static G) {
    if g.state() == GState::Syscall {
        g.transition(GState::Syscall, GState::Running);
        g.set_stopped_registers(ptr::null());
    }
}

/// Acquires the P that `m` had before, or any idle P. Returns `None` if `m` gets no P. In any case,
/// `m` no longer counts as blocked.
/// Go: exitsyscallTryGetP (exitsyscallfast until 1.25).
fn try_acquire_idle_p(mut on: OnM<'_>) -> Option<CallEnd> {
    let mut locked = SCHED.lock.lock();
    locked.blocked_ms -= 1;
    let old = on.old_p.load();
    let taken = match old.and_then(|old| locked.take_idle_p(old)) {
        Some(p) => Some((p, CallEnd::OldP)),
        None => locked.pop_idle_p().map(|p| (p, CallEnd::IdleP)),
    };
    drop(locked);
    let (p, end) = taken?;
    on.lend().acquire_p(p);
    on.syscall_state.clear();
    Some(end)
}
