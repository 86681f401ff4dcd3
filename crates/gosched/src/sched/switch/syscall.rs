//! Calls that block: how an M loses its P meanwhile, and how its goroutine goes on.
//!
//! The word `syscall_state` of an M, and who may change it:
//!
//! - 0: the M has its P, or runs g0. The M makes it [`IN_SYSCALL`], a taker [`RETAKING`].
//! - [`IN_SYSCALL`]: it is in a marked call, with its P. The M takes that back, or a taker makes it [`RETAKING`].
//! - [`RETAKING`]: a taker takes the P, or thinks better of it: then it is what it was.
//! - [`RETAKEN`]: the P is gone. The M makes it 0 when it has one again.
//!
//! **A call nobody marked.** Taker: 1. [`RETAKING`]; 2. heavy barrier; 3. looks whether the M has preemption
//! off, which means that it is in the runtime, and takes the mark back if so. M, at each way into the
//! runtime: 1. preemption off; 2. light barrier; 3. looks at the word. One of them sees the other.
//!
//! **A marked call.** Both sides change the word by exchange: one of them wins.
//!
//! A goroutine that comes back and finds its P gone takes its old one if that is idle, or any idle one, or
//! goes to the tail of the global queue; the M then sleeps as an idle one. Coming into the runtime is a call
//! like any other, so the goroutine can be moved there.

use crate::gmp::frame::Registers;
use crate::gmp::g::G;
use crate::gmp::m::{Departure, M};
use crate::gmp::p::P;
use crate::gmp::state::GState;
use crate::sched::state::global::SCHED;
use crate::sched::state::ps;
use crate::sched::switch;
use crate::sched::switch::stopped_m::wait_for_p_in_place;
use crate::sched::wake::hand_off::hand_off;
use crate::sys::fatal::fatal;
use crate::sys::forked;
use crate::sys::{barrier, clock, thread_status};
use gosched_fiber::arch;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often a P was taken: in marked calls, and in others.
static RETAKES_IN_SYSCALL: AtomicU64 = AtomicU64::new(0);
static RETAKES_UNMARKED: AtomicU64 = AtomicU64::new(0);

/// See the two above.
pub(crate) fn retake_counts() -> (u64, u64) {
    (RETAKES_IN_SYSCALL.load(Ordering::Relaxed), RETAKES_UNMARKED.load(Ordering::Relaxed))
}

/// Somebody is about to take the P, or thinks better of it.
const RETAKING: u32 = 1;
/// The P is gone.
const RETAKEN: u32 = 2;
/// In a marked call, with its P.
/// Go: _Psyscall (until 1.25).
const IN_SYSCALL: u32 = 3;

/// Takes the P of an M that is blocked in the kernel, if it is: `false` if it came back. By any
/// other thread.
pub(crate) fn retake_unmarked(m: &'static M) -> bool {
    if !cas_syscall_state(m, 0, RETAKING) {
        return false;
    }
    barrier::heavy();
    if m.carrier.preempt_disable_count() > 0 || m.p().is_none() {
        // It may be waiting for us to make up our mind.
        m.syscall_state.store(0, Ordering::Relaxed);
        return false;
    }
    RETAKES_UNMARKED.fetch_add(1, Ordering::Relaxed);
    let ran = thread_status::thread_cpu_nanos(m.tid()).unwrap_or(0);
    record_retake(m, ran);
    finish_retake(m);
    true
}

/// Its thread is blocked in a call that nobody marked, without a P, and has run for so long.
pub(crate) fn record_retake(m: &'static M, ran: u64) {
    m.retaken_at_nanos.store(clock::real_now(), Ordering::Relaxed);
    // PAIR taken-at: whoever sees that it has not run since sees since when.
    m.cpu_nanos_at_retake.store(ran, Ordering::Release);
}

/// Since when its thread is in a call that nobody marked, about, if that has run for so long: where its P was taken
/// in that call, and not before.
pub(crate) fn blocked_since(m: &'static M, ran: u64) -> Option<u64> {
    // PAIR taken-at: the time is not older than this.
    let is_same = m.cpu_nanos_at_retake.load(Ordering::Acquire) == ran;
    let since = m.retaken_at_nanos.load(Ordering::Relaxed);
    (is_same && is_running_without_p(m)).then_some(since)
}

/// Takes the P of an M that is in a marked call: `false` if the call has ended. By sysmon, by who stops the world, and by
/// the M itself when its call is known to be long.
/// Go: retake, its part for system calls.
pub(crate) fn retake_in_syscall(m: &'static M) -> bool {
    let first = cas_syscall_state(m, IN_SYSCALL, RETAKING);
    if first {
        RETAKES_IN_SYSCALL.fetch_add(1, Ordering::Relaxed);
        finish_retake(m);
    }
    first
}

/// Whether it is in a marked call, and has its P.
pub(crate) fn is_in_syscall_with_p(m: &'static M) -> bool {
    m.syscall_state.load(Ordering::Relaxed) == IN_SYSCALL
}

/// Whether it is in a marked call, with or without its P.
pub(crate) fn is_in_syscall(m: &'static M) -> bool {
    // PAIR in-call: one order for this and the beginning of a call.
    match m.syscall_state.load(Ordering::SeqCst) {
        IN_SYSCALL => true,
        0 => false,
        _ => m.curg().is_some_and(|g| g.state() == GState::Syscall),
    }
}

/// Whether its P was taken in a call that nobody marked.
pub(crate) fn is_running_without_p(m: &'static M) -> bool {
    let running = m.curg().is_some_and(|g| g.state() == GState::Running);
    m.syscall_state.load(Ordering::Relaxed) == RETAKEN && running
}

fn cas_syscall_state(m: &'static M, from: u32, to: u32) -> bool {
    // PAIR p-taken: in a marked call, sees what the other side did before.
    m.syscall_state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// The P of an M whose word says that it is being taken, to somebody else.
/// Go: takeP, then handoffp.
fn finish_retake(m: &'static M) {
    let p = m.release_p();
    m.old_p.store(p.map_or(ptr::null(), ptr::from_ref).cast_mut(), Ordering::Relaxed);
    SCHED.lock.lock().blocked_ms += 1;
    // PAIR p-taken: the M sees that the P is gone.
    m.syscall_state.store(RETAKEN, Ordering::Release);
    if let Some(p) = p {
        hand_off(p);
    }
}

/// A marked call begins, in a frame with these registers, if they are known. The caller is inside the runtime,
/// and leaves it for the call.
/// Go: entersyscall.
pub(crate) fn enter_syscall(m: &'static M, g: &'static G, registers: *const Registers) {
    let Some(p) = m.p() else { fatal!("a call of goroutine {} begins without a P", g.id()) };
    p.syscalltick.store(p.syscalltick.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    g.enter_syscall(registers);
    g.transition(GState::Running, GState::Syscall);
    // Somebody may think of taking the P, who sees then that preemption is off.
    // PAIR in-call: one order for this and who sends a signal.
    while m
        .syscall_state
        .compare_exchange(0, IN_SYSCALL, Ordering::SeqCst, Ordering::Relaxed)
        .is_err()
    {
        std::hint::spin_loop();
    }
    // From here on nobody sends a signal, and one that was sent is waited for.
    m.carrier.drain_signal();
}

/// As [`enter_syscall`], and the P goes to somebody else at once.
/// Go: entersyscallblock.
pub(crate) fn enter_syscall_block(m: &'static M, g: &'static G, registers: *const Registers) {
    enter_syscall(m, g, registers);
    // In virtual time its end would be a matter of chance.
    if !clock::is_virtual() {
        retake_in_syscall(m);
    }
}

/// The calling goroutine comes into the runtime from a marked call, or finds its P taken. It has a P when
/// this returns, and perhaps another M: that one.
/// Go: exitsyscall.
#[cold]
#[inline(never)]
pub(crate) fn exit_syscall(m: &'static M) -> &'static M {
    let Some(g) = m.curg() else { fatal!("M{} lost its P without a goroutine", m.id) };
    if exit_syscall_in_child(m, g) || !settle_retake(m, g) {
        return m;
    }
    if !try_acquire_idle_p(m) {
        m.syscall_state.store(0, Ordering::Relaxed);
        switch::switch_to_g0(m, g, Departure::Yield { g, held: false });
    }
    // SAFETY: carried — a goroutine of this runtime, that is not moved now.
    unsafe { M::current() }
}

/// As [`exit_syscall`], for code that cannot be moved: its M sleeps right here until somebody brings a P.
#[cold]
#[inline(never)]
pub(crate) fn exit_syscall_in_place(m: &'static M) {
    let Some(g) = m.curg() else { fatal!("M{} lost its P without a goroutine", m.id) };
    if !exit_syscall_in_child(m, g) && settle_retake(m, g) && !try_acquire_idle_p(m) {
        let mut registers = Registers::default();
        let is_shown = !g.shown().is_null();
        if !is_shown {
            // SAFETY: to — a local.
            unsafe { arch::capture_registers(&raw mut registers) };
            g.set_stopped_registers(&raw const registers);
        }
        wait_for_p_in_place(m, g);
        if !is_shown {
            g.set_stopped_registers(ptr::null());
        }
        m.syscall_state.store(0, Ordering::Relaxed);
    }
}

/// In a forked child nobody else is left: not who took the P, nor who could bring one; and Ps of others may
/// be as they were in the middle of something. So it gets a new one. False: this is no child.
fn exit_syscall_in_child(m: &'static M, g: &'static G) -> bool {
    if !forked::is_child() {
        return false;
    }
    m.syscall_state.store(0, Ordering::Relaxed);
    restore_running(g);
    if m.p().is_none()
        && let Some(p) = ps::spare_p()
    {
        m.acquire_p(p);
    }
    true
}

/// The call is over, if it was one. True: the P is gone.
fn settle_retake(m: &'static M, g: &'static G) -> bool {
    let lost = loop {
        // PAIR p-taken: with the P gone, all that the taker did is seen.
        match m.syscall_state.load(Ordering::Acquire) {
            RETAKING => std::hint::spin_loop(),
            IN_SYSCALL if !cas_syscall_state(m, IN_SYSCALL, 0) => {}
            word => break word == RETAKEN,
        }
    };
    restore_running(g);
    lost
}

/// It runs like any other from here on, if it was in a marked call.
fn restore_running(g: &'static G) {
    if g.state() == GState::Syscall {
        g.transition(GState::Syscall, GState::Running);
        g.set_stopped_registers(ptr::null());
    }
}

/// The one it had, if that is idle; or any. It is not counted as blocked any more in either case.
/// Go: exitsyscallTryGetP (exitsyscallfast until 1.25).
fn try_acquire_idle_p(m: &'static M) -> bool {
    let mut locked = SCHED.lock.lock();
    locked.blocked_ms -= 1;
    // SAFETY: null, or a P: they are never freed.
    let old: Option<&'static P> = unsafe { m.old_p.load(Ordering::Relaxed).as_ref() };
    let taken = old.and_then(|old| locked.take_idle_p(old)).or_else(|| locked.pop_idle_p());
    drop(locked);
    let Some(p) = taken else { return false };
    m.acquire_p(p);
    m.syscall_state.store(0, Ordering::Relaxed);
    true
}
