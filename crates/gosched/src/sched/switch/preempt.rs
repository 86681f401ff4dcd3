//! Preemption: a signal interrupts a G that does not enter the runtime, so that its P can run other
//! Gs.
//!
//! **Requesting.** The word `preempt_request` of an M holds the reason ([`PreemptReason`]) and the
//! turn on the M's P that the request is for. The requesting thread sets this word, then the
//! pending flag that a G checks when it leaves the runtime (`Carrier::set_preempt_pending`), then
//! sends the signal. A request stays in place until it is served; sysmon repeats the signal. A
//! request for an earlier turn is out of date and is not served.
//!
//! **Serving.** A G that is inside the runtime serves the request when it leaves. It goes to the
//! tail of the global queue if its slice is over, before all other Gs if it makes room, and to
//! `run_next` of its P if the world stops. If preemption is on, the signal handler serves the
//! request in one of two ways:
//!
//! - *Moved.* The handler makes the G continue in `boot::preemption::async_preempt`, on the G's own
//!   stack, where it serves the request as above. Any M can resume it. This requires that the G was
//!   interrupted in the program's own text, with its own identity, on its own stack, and with the
//!   thread's signal mask unchanged. It also requires a program with the allocation cache: see
//!   `boot::preemption::is_allocator_without_locks`.
//! - *Stopped in place.* Otherwise the M gives its P away and sleeps in the handler. The G is
//!   queued as pinned to that M; an M that finds it there hands its P to the pinned M. The G may
//!   hold any lock of libc, and creating a thread takes such locks. So the M stops only if its P
//!   does not have to wait for a new thread.
//!
//! A request that finds the G outside the program's text is deferred a few times: the G may soon be
//! back in the program's text.
//!
//! This module never chooses the M to preempt: its callers do.

use crate::gmp::current;
use crate::gmp::g::G;
use crate::gmp::m::{Departure, M};
use crate::gmp::p::P;
use crate::gmp::record::record;
use crate::gmp::token::{MayMove, OnM};
use crate::probe;
use crate::probe::event::EventKind;
use crate::probe::field::{PreemptMethod, PreemptReason};
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
use gosched_fiber::hook::Hook;
use gosched_fiber::interrupt::Interruption;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The slice: how long a G runs before other Gs get its P, in nanoseconds of CPU time. Set when the
/// runtime starts.
/// Go: forcePreemptNS.
pub(crate) static SLICE_NANOS: AtomicU64 = AtomicU64::new(10_000_000);

/// Whether the signal handler is installed.
pub(crate) static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Whether signals are sent to preempt Gs.
/// Go: debug.asyncpreemptoff, inverted.
pub(crate) static SIGNALS_ENABLED: AtomicBool = AtomicBool::new(false);

/// Whether Gs may be moved, and whether they may be stopped in place. Set when the runtime starts.
pub(crate) static MAY_MOVE: AtomicBool = AtomicBool::new(true);
pub(crate) static MAY_STOP_IN_PLACE: AtomicBool = AtomicBool::new(true);

static MOVED: AtomicU64 = AtomicU64::new(0);
static STOPPED_IN_PLACE: AtomicU64 = AtomicU64::new(0);
static STOPPED_OUTSIDE_TEXT: AtomicU64 = AtomicU64::new(0);
static DEFERRED: AtomicU64 = AtomicU64::new(0);

/// Returns how many times Gs were moved, stopped in place, stopped in place outside the program's
/// text, and deferred.
pub(crate) fn counts() -> [u64; 4] {
    [&MOVED, &STOPPED_IN_PLACE, &STOPPED_OUTSIDE_TEXT, &DEFERRED]
        .map(|count| count.load(Ordering::Relaxed))
}

/// How many times in a row a request is deferred outside the program's text.
const MAX_DEFERRALS: u32 = 5;
/// The same limit while a report is being written: about 100 ms. The report needs the locks of
/// libraries, which a stopped G may hold.
const MAX_DEFERRALS_DURING_REPORT: u32 = 1000;

/// Returns how long a G runs before other Gs get its P, in nanoseconds of CPU time.
pub(crate) fn slice_nanos() -> u64 {
    SLICE_NANOS.load(Ordering::Relaxed)
}

/// Prepares a new M's thread for the signal: unblocks it, if the handler is installed, and saves
/// the thread's signal mask.
/// Go: minitSignals.
pub(crate) fn init_thread(m: &'static M) {
    if INSTALLED.load(Ordering::Relaxed) {
        m.carrier.enable_interrupts();
    }
    m.carrier.save_mask();
}

/// Requests that `m` stops its G, and signals `m`. A request to end a slice or to make room is
/// ignored if `turn` is no longer the current turn of the M's P. Called by another thread.
/// Go: preemptone.
pub(crate) fn preempt_one(m: &'static M, why: PreemptReason, turn: u32) {
    record(|| EventKind::RequestPreempt { m: m.id, g: m.curg().map_or(0, G::id), reason: why });
    m.request_preempt(why, turn);
    let thread = m.tid();
    if SIGNALS_ENABLED.load(Ordering::Relaxed) && thread != 0 {
        m.carrier.interrupt(thread, || syscall::is_in_syscall(m));
    }
}

/// Interrupts the G of `m` without a preemption request, so that the signal handler can copy its
/// stack. Called by another thread. Returns false if the signal cannot be sent.
/// Go: preemptM.
pub(crate) fn interrupt(m: &'static M) -> bool {
    let thread = m.tid();
    if !INSTALLED.load(Ordering::Relaxed) || thread == 0 {
        return false;
    }
    // A sender that is stopped halfway would keep all other threads from signalling `m`.
    // SAFETY: here — nothing below waits or switches.
    let _no_preempt = unsafe { NoPreempt::new() };
    m.carrier.interrupt(thread, || syscall::is_in_syscall(m))
}

/// Returns why `m`, which has the P `p`, must stop its G. Returns `None` if there is no request, or
/// if the request is for an earlier turn.
fn request(m: &M, p: &'static P) -> Option<PreemptReason> {
    if stopping::is_stopping() {
        return Some(PreemptReason::World);
    }
    m.preempt_request.reason_in(p.turn())
}

/// Serves the request of `m`, if it is not out of date. In a `no_preempt` section the request stays
/// in place, unless the world stops. A forked child drops the request, which was for the parent.
/// Called when the G leaves the runtime, with preemption off. `how` is recorded.
/// Go: gopreempt_m.
pub(crate) fn serve_request(on: MayMove<'_>, how: PreemptMethod) {
    on.carrier.set_preempt_pending(false);
    if forked::is_child() {
        return;
    }
    let (Some(g), Some(p)) = (on.curg(), on.p()) else { return };
    let why = request(&on, p);
    if g.no_preempt_depth.load(Ordering::Relaxed) > 0 && why != Some(PreemptReason::World) {
        return;
    }
    on.preempt_request.clear();
    if let Some(reason) = why.filter(|_| probe::is_recording()) {
        on.record(EventKind::Preempt { g: g.id(), reason, how });
    }
    match why {
        None => {}
        Some(PreemptReason::World) => switch::switch_to_g0(on, g, Departure::Stopped { g }),
        Some(PreemptReason::MakeRoom) => switch::switch_to_g0(on, g, Departure::Interrupted { g }),
        Some(_) => switch::switch_to_g0(on, g, Departure::Yield { g, held: false }),
    }
}

/// Answers a pending request for a copy of the stack of the M's G. Set when the runtime starts,
/// because `inspect` is above this module.
pub(crate) static SNAPSHOT_SERVER: Hook<SnapshotServer> = Hook::new();

/// See [`SNAPSHOT_SERVER`].
pub(crate) type SnapshotServer = fn(&'static M, &Interruption);

/// Handles the preemption signal on an M's thread. `gosched_fiber::interrupt` calls this function
/// in the signal handler.
/// Go: doSigPreempt.
///
/// # Safety
/// - **callback**: called in a signal handler, with the carrier of an M.
pub(crate) unsafe fn on_preempt_signal(carrier: &Carrier, at: &mut Interruption) {
    // SAFETY: only Ms of this runtime are interruptible. The carrier is the first field of an M,
    // and Ms are never freed.
    let m: &'static M = unsafe { &*std::ptr::from_ref(carrier).cast::<M>() };
    if let Some(serve) = SNAPSHOT_SERVER.get() {
        serve(m, at);
    }
    if carrier.preempt_disable_count() > 0
        || forked::is_child()
        || !SIGNALS_ENABLED.load(Ordering::Relaxed)
    {
        return; // the G serves the request when it leaves the runtime
    }
    // SAFETY: carried — this is the thread of the M `m`.
    unsafe { arch::preempt_disable() };
    barrier::light();
    // SAFETY: own — this is the thread of `m`; only — preemption was on, so the interrupted code
    // has no token, or it is `build_identity`, which does not use its token meanwhile.
    let on = unsafe { OnM::of(m) };
    if !try_preempt(on, at) {
        // SAFETY: carried, counted — as above.
        unsafe { arch::preempt_enable() };
    }
}

/// Preempts the G of `m`, if there is a valid request. Returns whether the G will be moved: it
/// then continues in `boot::preemption::async_preempt`, and preemption stays off until that
/// function returns.
fn try_preempt(on: OnM<'_>, at: &mut Interruption) -> bool {
    let m = on.m();
    let Some(g) = m.curg() else { return false };
    let why = if !m.syscall_state.must_settle() {
        m.p().and_then(|p| request(m, p).filter(|&why| is_worthwhile(p, why)))
    } else if syscall::is_in_syscall(m) {
        None
    } else {
        m.preempt_request.is_for(PreemptReason::NoP).then_some(PreemptReason::NoP)
    };
    let steady = g.no_preempt_depth.load(Ordering::Relaxed) > 0;
    let Some(why) = why.filter(|&why| !steady || why == PreemptReason::World) else { return false };
    let own = current::goroutine().is_some_and(|own| std::ptr::eq(own, g));
    let may_move = own && MAY_MOVE.load(Ordering::Relaxed);
    // SAFETY: off — preemption is off, and the G runs with its own identity.
    if may_move && unsafe { at.redirect() } {
        MOVED.fetch_add(1, Ordering::Relaxed);
        m.deferred.store(0, Ordering::Relaxed);
        return true;
    }
    if MAY_STOP_IN_PLACE.load(Ordering::Relaxed) && !defer_if_outside_text(m, at) {
        stop_in_place(on, g, why, at);
    }
    false
}

/// Returns whether stopping the current G is useful: the world stops, a timer is due, or a G waits
/// for the P.
fn is_worthwhile(p: &'static P, why: PreemptReason) -> bool {
    why == PreemptReason::World || timekeeper::are_due() || has_waiting_g(p)
}

/// Returns whether a G is queued that this P could run.
pub(crate) fn has_waiting_g(p: &'static P) -> bool {
    !p.is_queue_empty() || SCHED.queued.load(Ordering::Relaxed) > 0
}

/// Defers the request if the G is outside the program's text and the limit is not reached. Returns
/// whether the request is deferred.
fn defer_if_outside_text(m: &M, at: &Interruption) -> bool {
    let times = m.deferred.load(Ordering::Relaxed);
    let most = if exit_guard::is_claimed() { MAX_DEFERRALS_DURING_REPORT } else { MAX_DEFERRALS };
    let is_deferred = !at.is_async_safe_point() && times < most && MAY_MOVE.load(Ordering::Relaxed);
    m.deferred.store(if is_deferred { times + 1 } else { 0 }, Ordering::Relaxed);
    DEFERRED.fetch_add(u64::from(is_deferred), Ordering::Relaxed);
    is_deferred
}

/// Gives the M's P away and sleeps in the signal handler until the M gets a P again. The registers
/// of `g` are visible to dumps meanwhile. Returns at once if the P would have to wait for a new
/// thread.
fn stop_in_place(on: OnM<'_>, g: &'static G, why: PreemptReason, at: &Interruption) {
    let registers = at.registers();
    g.set_stopped_registers(&raw const registers);
    sleep_in_place(on, g, why, at);
    g.set_stopped_registers(ptr::null());
}

/// The part of [`stop_in_place`] during which the registers are visible.
fn sleep_in_place(mut on: OnM<'_>, g: &'static G, why: PreemptReason, at: &Interruption) {
    if why == PreemptReason::NoP {
        count(at);
        return syscall::exit_syscall_in_place(on);
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
    let Some(mut p) = on.own_p() else { return };
    if probe::is_recording() {
        let how = PreemptMethod::InPlace;
        p.on_m().record(EventKind::Preempt { g: g.id(), reason: why, how });
    }
    let (p, mut on) = p.release();
    on.preempt_request.clear();
    on.carrier.set_preempt_pending(false);
    let before = stopped_m::pin_and_enqueue(&mut locked, on.lend(), g, why != PreemptReason::Slice);
    if stopping {
        stopping::count_stopped(&mut locked, p);
        drop(locked);
    } else {
        hand_off_locked(locked, p);
        wake::wake_if_idle();
    }
    count(at);
    stopped_m::sleep_pinned(on, g, before);
}

fn count(at: &Interruption) {
    STOPPED_IN_PLACE.fetch_add(1, Ordering::Relaxed);
    STOPPED_OUTSIDE_TEXT.fetch_add(u64::from(!at.is_async_safe_point()), Ordering::Relaxed);
}
