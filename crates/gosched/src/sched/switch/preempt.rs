//! A goroutine that does not come into the runtime is made to: it is interrupted by a signal, and gives its P
//! to others.
//!
//! **Asking.** The word `preempt_request` of an M says what for ([`PreemptReason`]), and in which turn on its P. Whoever asks
//! sets it, then the request that the way out of the runtime looks at (`Carrier::set_preempt_pending`), then sends the
//! signal. A request stands until it is served: sysmon asks again. One that is about an earlier turn
//! is out of date, and nobody serves it.
//!
//! **Serving.** On the way out of the runtime the goroutine leaves as if it yielded. In the signal's handler,
//! where the runtime is not on the stack (preemption is on), one of two things happens:
//!
//! - *Moved.* The goroutine was interrupted in the program's own text, with its own identity, on its own
//!   stack, and has not changed its thread (signal mask): it goes on in `boot::preemption::async_preempt`, on its own stack, and
//!   leaves as if it yielded. Any M can resume it. Only in a program with the allocation cache: see
//!   `boot::preemption::is_allocator_without_locks`.
//! - *Stopped in place.* Else the M gives its P away and sleeps in the handler. The G is queued as only that
//!   M's; whoever finds it brings the M a P. It may hold any lock of libc's, so an M that stops like this
//!   never leaves its P waiting for a thread that has yet to be made: making one takes such locks.
//!
//! Outside the program's text a request is put off a few times: the goroutine may be back soon.

use crate::gmp::current;
use crate::gmp::g::G;
use crate::gmp::m::{Departure, M};
use crate::gmp::p::P;
use crate::sched::state::global::SCHED;
use crate::sched::state::{stopping, thread_requests, timekeeper};
use crate::sched::switch::{stopped_m, syscall};
use crate::sched::wake::hand_off::hand_off_locked;
use crate::sched::{switch, wake};
use crate::sys::barrier;
use crate::sys::forked;
use gosched_fiber::NoPreempt;
use gosched_fiber::arch;
use gosched_fiber::carrier::Carrier;
use gosched_fiber::exit_guard;
use gosched_fiber::interrupt::Interruption;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Why an M is asked to stop.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PreemptReason {
    /// Its goroutine has used its slice.
    Slice = 1,
    /// Another one is to run at once.
    MakeRoom = 2,
    /// It has no P: that was taken while it was blocked, and now it runs.
    NoP = 3,
    /// The world stops.
    World = 4,
    /// A draw of the seeded mode.
    Seeded = 5,
}

/// How long a goroutine runs before others get its P, in nanoseconds of CPU time.
/// Go: forcePreemptNS.
pub(crate) static SLICE_NANOS: AtomicU64 = AtomicU64::new(10_000_000);

/// The handler is there.
pub(crate) static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Signals are sent, so as to preempt.
/// Go: debug.asyncpreemptoff, inverted.
pub(crate) static SIGNALS_ENABLED: AtomicBool = AtomicBool::new(false);

/// Goroutines may be moved, or be stopped in place.
pub(crate) static MAY_MOVE: AtomicBool = AtomicBool::new(true);
pub(crate) static MAY_STOP_IN_PLACE: AtomicBool = AtomicBool::new(true);

static MOVED: AtomicU64 = AtomicU64::new(0);
static STOPPED_IN_PLACE: AtomicU64 = AtomicU64::new(0);
static STOPPED_OUTSIDE_TEXT: AtomicU64 = AtomicU64::new(0);
static DEFERRED: AtomicU64 = AtomicU64::new(0);

/// How often goroutines were moved, stopped in place, of these outside the program's text, and put off.
pub(crate) fn counts() -> [u64; 4] {
    [&MOVED, &STOPPED_IN_PLACE, &STOPPED_OUTSIDE_TEXT, &DEFERRED]
        .map(|count| count.load(Ordering::Relaxed))
}

/// So often a request is put off outside the program's text.
const MAX_DEFERRALS: u32 = 5;
/// The same while a report is written, which needs the locks of libraries: 100 ms.
const MAX_DEFERRALS_DURING_REPORT: u32 = 1000;

/// How long a goroutine runs before others get its P.
pub(crate) fn slice_nanos() -> u64 {
    SLICE_NANOS.load(Ordering::Relaxed)
}

/// An M's thread begins, and lets the signal through.
/// Go: minitSignals.
pub(crate) fn init_thread(m: &'static M) {
    if INSTALLED.load(Ordering::Relaxed) {
        m.carrier.enable_interrupts();
    }
    m.carrier.save_mask();
}

/// Asks `m` to stop, if the turn on its P is still this one: see the top of this file. By any other thread.
/// Go: preemptone.
pub(crate) fn preempt_one(m: &'static M, why: PreemptReason, turn: u32) {
    set_request(m, why, turn);
    let thread = m.tid();
    if SIGNALS_ENABLED.load(Ordering::Relaxed) && thread != 0 {
        m.carrier.interrupt(thread, || syscall::is_in_syscall(m));
    }
}

/// The goroutine of `m` is interrupted, and asked for nothing. By any other thread. False: there is no way.
/// Go: preemptM.
pub(crate) fn interrupt(m: &'static M) -> bool {
    let thread = m.tid();
    if !INSTALLED.load(Ordering::Relaxed) || thread == 0 {
        return false;
    }
    // One that was stopped while it sends would keep all others from it.
    // SAFETY: here — nothing below waits or switches.
    let _no_preempt = unsafe { NoPreempt::new() };
    m.carrier.interrupt(thread, || syscall::is_in_syscall(m))
}

/// As [`preempt_one`], without a signal.
pub(crate) fn set_request(m: &'static M, why: PreemptReason, turn: u32) {
    m.preempt_request.store((why as u64) << 32 | u64::from(turn), Ordering::Relaxed);
    m.carrier.set_preempt_pending(true);
}

/// Whether a request of this kind stands.
fn has_request(m: &'static M, why: PreemptReason) -> bool {
    m.preempt_request.load(Ordering::Relaxed) >> 32 == why as u64
}

/// What `m`, which has a P, is to stop for; `None`: nothing, or what was asked for is out of date.
fn request(m: &'static M, p: &'static P) -> Option<PreemptReason> {
    if stopping::is_stopping() {
        return Some(PreemptReason::World);
    }
    let asked = m.preempt_request.load(Ordering::Relaxed);
    let kinds = [PreemptReason::Slice, PreemptReason::MakeRoom, PreemptReason::Seeded];
    let why = kinds.into_iter().find(|&why| why as u64 == asked >> 32)?;
    (asked as u32 == p.turn() || why == PreemptReason::Seeded).then_some(why)
}

/// Does what `m` was asked for, on the way out of the runtime, with preemption off.
/// Go: gopreempt_m.
pub(crate) fn serve_request(m: &'static M) {
    m.carrier.set_preempt_pending(false);
    let (Some(g), Some(p)) = (m.curg(), m.p()) else { return };
    let why = request(m, p);
    if g.no_preempt_depth.load(Ordering::Relaxed) > 0 && why != Some(PreemptReason::World) {
        return;
    }
    m.preempt_request.store(0, Ordering::Relaxed);
    match why {
        None => {}
        Some(PreemptReason::World) => switch::switch_to_g0(m, g, Departure::Stopped { g }),
        Some(PreemptReason::MakeRoom) => switch::switch_to_g0(m, g, Departure::Interrupted { g }),
        Some(_) => switch::switch_to_g0(m, g, Departure::Yield { g, held: false }),
    }
}

/// Copies what the goroutine of an M does, if somebody asked for that. Set when the runtime starts: `inspect` is above this
/// module.
pub(crate) static SNAPSHOT_SERVER: OnceLock<fn(&'static M, &Interruption)> = OnceLock::new();

/// What `gosched_fiber::interrupt` calls in the handler of the preemption signal, on an M's thread.
/// Go: doSigPreempt.
///
/// # Safety
/// - **callback**: called in a signal handler, with the carrier of an M.
pub(crate) unsafe fn on_preempt_signal(carrier: &Carrier, at: &mut Interruption) {
    // SAFETY: only Ms of this runtime are interruptible; the carrier is their first field, and they are
    // never freed.
    let m: &'static M = unsafe { &*std::ptr::from_ref(carrier).cast::<M>() };
    if let Some(serve) = SNAPSHOT_SERVER.get() {
        serve(m, at);
    }
    if carrier.preempt_disable_count() > 0
        || forked::is_child()
        || !SIGNALS_ENABLED.load(Ordering::Relaxed)
    {
        return; // it looks itself, when it leaves the runtime
    }
    // SAFETY: carried — by this M, whose thread this is.
    unsafe { arch::preempt_disable() };
    barrier::light();
    if !try_preempt(m, at) {
        // SAFETY: carried, counted — above.
        unsafe { arch::preempt_enable() };
    }
}

/// Stops the goroutine of `m`, if that is still asked for. True: it goes on in `boot::preemption::async_preempt`, and preemption is
/// off until then.
fn try_preempt(m: &'static M, at: &mut Interruption) -> bool {
    let Some(g) = m.curg() else { return false };
    let why = match m.syscall_state.load(Ordering::Relaxed) {
        0 => m.p().and_then(|p| request(m, p).filter(|&why| is_worthwhile(p, why))),
        _ if syscall::is_in_syscall(m) => None,
        _ => has_request(m, PreemptReason::NoP).then_some(PreemptReason::NoP),
    };
    let steady = g.no_preempt_depth.load(Ordering::Relaxed) > 0;
    let Some(why) = why.filter(|&why| !steady || why == PreemptReason::World) else { return false };
    let own = current::goroutine().is_some_and(|own| std::ptr::eq(own, g));
    let may_move = own && MAY_MOVE.load(Ordering::Relaxed);
    // SAFETY: off — it is, and the identity is the goroutine's own.
    if may_move && unsafe { at.redirect() } {
        MOVED.fetch_add(1, Ordering::Relaxed);
        m.deferred.store(0, Ordering::Relaxed);
        return true;
    }
    if MAY_STOP_IN_PLACE.load(Ordering::Relaxed) && !defer_if_outside_text(m, at) {
        stop_in_place(m, g, why, at);
    }
    false
}

/// Whether somebody would run instead.
fn is_worthwhile(p: &'static P, why: PreemptReason) -> bool {
    why == PreemptReason::World || timekeeper::are_due() || has_waiting_g(p)
}

/// Whether a G waits that this P could run.
pub(crate) fn has_waiting_g(p: &'static P) -> bool {
    !p.queue.is_empty() || SCHED.queued.load(Ordering::Relaxed) > 0
}

/// Whether the request waits until the goroutine is back in the program's text: so often, and no more.
fn defer_if_outside_text(m: &'static M, at: &Interruption) -> bool {
    let times = m.deferred.load(Ordering::Relaxed);
    let most = if exit_guard::is_claimed() { MAX_DEFERRALS_DURING_REPORT } else { MAX_DEFERRALS };
    let is_deferred = !at.is_async_safe_point() && times < most && MAY_MOVE.load(Ordering::Relaxed);
    m.deferred.store(if is_deferred { times + 1 } else { 0 }, Ordering::Relaxed);
    DEFERRED.fetch_add(u64::from(is_deferred), Ordering::Relaxed);
    is_deferred
}

/// The M gives its P to somebody else, and sleeps right here until it gets one again.
fn stop_in_place(m: &'static M, g: &'static G, why: PreemptReason, at: &Interruption) {
    let registers = at.registers();
    g.set_stopped_registers(&raw const registers);
    sleep_in_place(m, g, why, at);
    g.set_stopped_registers(ptr::null());
}

/// See [`stop_in_place`].
fn sleep_in_place(m: &'static M, g: &'static G, why: PreemptReason, at: &Interruption) {
    if why == PreemptReason::NoP {
        count(at);
        return syscall::exit_syscall_in_place(m);
    }
    let mut locked = SCHED.lock.lock();
    let stopping = stopping::is_stopping();
    if !stopping
        && locked.idle_ms.is_empty()
        && (why == PreemptReason::MakeRoom || !locked.queue.has_stopped())
    {
        drop(locked);
        thread_requests::request_thread();
        return;
    }
    let Some(p) = m.release_p() else { return };
    m.preempt_request.store(0, Ordering::Relaxed);
    m.carrier.set_preempt_pending(false);
    let pinned = stopped_m::pin_and_enqueue(&mut locked, m, g, why != PreemptReason::Slice);
    if stopping {
        stopping::count_stopped(&mut locked, p);
        drop(locked);
    } else {
        hand_off_locked(locked, p);
        wake::wake_if_idle();
    }
    count(at);
    stopped_m::sleep_pinned(m, g, pinned);
}

fn count(at: &Interruption) {
    STOPPED_IN_PLACE.fetch_add(1, Ordering::Relaxed);
    STOPPED_OUTSIDE_TEXT.fetch_add(u64::from(!at.is_async_safe_point()), Ordering::Relaxed);
}
