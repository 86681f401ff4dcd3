//! A goroutine that does not come into the runtime is made to: it is interrupted by a signal, and gives its P
//! to others.
//!
//! **Asking.** The word `asked` of an M says what for ([`Why`]), and in which turn on its P. Whoever asks
//! sets it, then the request that the way out of the runtime looks at (`Carrier::set_pending`), then sends the
//! signal. A request stands until it is served: the watcher asks again. One that is about an earlier turn
//! is out of date, and nobody serves it.
//!
//! **Serving.** On the way out of the runtime the goroutine leaves as if it yielded. In the signal's handler,
//! where the runtime is not on the stack (preemption is on), one of two things happens:
//!
//! - *Moved.* The goroutine was interrupted in the program's own text, with its own identity, on its own
//!   stack, and has not changed its thread (signal mask): it goes on in `boot::preemption::moved`, on its own stack, and
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
use gosched_context::Still;
use gosched_context::arch;
use gosched_context::carrier::Carrier;
use gosched_context::dying;
use gosched_context::interrupt::Interruption;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Why an M is asked to stop.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Its goroutine has used its slice.
    Slice = 1,
    /// Another one is to run at once.
    Wake = 2,
    /// It has no P: that was taken while it was blocked, and now it runs.
    NoP = 3,
    /// The world stops.
    World = 4,
    /// A draw of the seeded mode.
    Chance = 5,
}

/// How long a goroutine runs before others get its P, in nanoseconds of CPU time.
pub(crate) static SLICE: AtomicU64 = AtomicU64::new(10_000_000);

/// The handler is there.
pub(crate) static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Signals are sent, so as to preempt.
pub(crate) static ON: AtomicBool = AtomicBool::new(false);

/// Goroutines may be moved, or be stopped in place.
pub(crate) static MAY_MOVE: AtomicBool = AtomicBool::new(true);
pub(crate) static MAY_STOP: AtomicBool = AtomicBool::new(true);

static MOVED: AtomicU64 = AtomicU64::new(0);
static IN_PLACE: AtomicU64 = AtomicU64::new(0);
static OUTSIDE: AtomicU64 = AtomicU64::new(0);
static DEFERRED: AtomicU64 = AtomicU64::new(0);

/// How often goroutines were moved, stopped in place, of these outside the program's text, and put off.
pub(crate) fn counts() -> [u64; 4] {
    [&MOVED, &IN_PLACE, &OUTSIDE, &DEFERRED].map(|count| count.load(Ordering::Relaxed))
}

/// So often a request is put off outside the program's text.
const PUT_OFF: u32 = 5;
/// The same while a report is written, which needs the locks of libraries: 100 ms.
const PUT_OFF_FOR_REPORT: u32 = 1000;

/// How long a goroutine runs before others get its P.
pub(crate) fn slice() -> u64 {
    SLICE.load(Ordering::Relaxed)
}

/// An M's thread begins, and lets the signal through.
pub(crate) fn begin_thread(m: &'static M) {
    if INSTALLED.load(Ordering::Relaxed) {
        m.carrier.be_interruptible();
    }
    m.carrier.keep_mask();
}

/// Asks `m` to stop, if the turn on its P is still this one: see the top of this file. By any other thread.
pub(crate) fn ask(m: &'static M, why: Why, turn: u32) {
    note(m, why, turn);
    let thread = m.thread();
    if ON.load(Ordering::Relaxed) && thread != 0 {
        m.carrier.interrupt(thread, || syscall::is_marked(m));
    }
}

/// The goroutine of `m` is interrupted, and asked for nothing. By any other thread. False: there is no way.
pub(crate) fn interrupt(m: &'static M) -> bool {
    let thread = m.thread();
    if !INSTALLED.load(Ordering::Relaxed) || thread == 0 {
        return false;
    }
    // One that was stopped while it sends would keep all others from it.
    // SAFETY: here — nothing below waits or switches.
    let _still = unsafe { Still::new() };
    m.carrier.interrupt(thread, || syscall::is_marked(m))
}

/// As [`ask`], without a signal.
pub(crate) fn note(m: &'static M, why: Why, turn: u32) {
    m.asked.store((why as u64) << 32 | u64::from(turn), Ordering::Relaxed);
    m.carrier.set_pending(true);
}

/// Whether a request of this kind stands.
fn is_asked(m: &'static M, why: Why) -> bool {
    m.asked.load(Ordering::Relaxed) >> 32 == why as u64
}

/// What `m`, which has a P, is to stop for; `None`: nothing, or what was asked for is out of date.
fn request(m: &'static M, p: &'static P) -> Option<Why> {
    if stopping::is_stopping() {
        return Some(Why::World);
    }
    let asked = m.asked.load(Ordering::Relaxed);
    let kinds = [Why::Slice, Why::Wake, Why::Chance];
    let why = kinds.into_iter().find(|&why| why as u64 == asked >> 32)?;
    (asked as u32 == p.turn() || why == Why::Chance).then_some(why)
}

/// Does what `m` was asked for, on the way out of the runtime, with preemption off.
pub(crate) fn serve(m: &'static M) {
    m.carrier.set_pending(false);
    let (Some(g), Some(p)) = (m.curg(), m.p()) else { return };
    let why = request(m, p);
    if g.steady.load(Ordering::Relaxed) > 0 && why != Some(Why::World) {
        return;
    }
    m.asked.store(0, Ordering::Relaxed);
    match why {
        None => {}
        Some(Why::World) => switch::leave_to_g0(m, g, Departure::Stopped { g }),
        Some(Why::Wake) => switch::leave_to_g0(m, g, Departure::Interrupted { g }),
        Some(_) => switch::leave_to_g0(m, g, Departure::Yield { g, held: false }),
    }
}

/// Copies what the goroutine of an M does, if somebody asked for that. Set when the runtime starts: `inspect` is above this
/// module.
pub(crate) static SNAPSHOT_SERVER: OnceLock<fn(&'static M, &Interruption)> = OnceLock::new();

/// The signal's handler, on an M's thread.
///
/// # Safety
/// - **callback**: called in a signal handler, with the carrier of an M.
pub(crate) unsafe fn interrupted(carrier: &Carrier, at: &mut Interruption) {
    // SAFETY: only Ms of this runtime are interruptible; the carrier is their first field, and they are
    // never freed.
    let m: &'static M = unsafe { &*std::ptr::from_ref(carrier).cast::<M>() };
    if let Some(serve) = SNAPSHOT_SERVER.get() {
        serve(m, at);
    }
    if carrier.preempt_off_count() > 0 || forked::is_child() || !ON.load(Ordering::Relaxed) {
        return; // it looks itself, when it leaves the runtime
    }
    // SAFETY: carried — by this M, whose thread this is.
    unsafe { arch::preempt_off() };
    barrier::light();
    if !stop(m, at) {
        // SAFETY: carried, counted — above.
        unsafe { arch::preempt_on() };
    }
}

/// Stops the goroutine of `m`, if that is still asked for. True: it goes on in `boot::preemption::moved`, and preemption is
/// off until then.
fn stop(m: &'static M, at: &mut Interruption) -> bool {
    let Some(g) = m.curg() else { return false };
    let why = match m.taken.load(Ordering::Relaxed) {
        0 => m.p().and_then(|p| request(m, p).filter(|&why| is_of_use(p, why))),
        _ if syscall::is_marked(m) => None,
        _ => is_asked(m, Why::NoP).then_some(Why::NoP),
    };
    let steady = g.steady.load(Ordering::Relaxed) > 0;
    let Some(why) = why.filter(|&why| !steady || why == Why::World) else { return false };
    let own = current::goroutine().is_some_and(|own| std::ptr::eq(own, g));
    let may_move = own && MAY_MOVE.load(Ordering::Relaxed);
    // SAFETY: off — it is, and the identity is the goroutine's own.
    if may_move && unsafe { at.redirect() } {
        MOVED.fetch_add(1, Ordering::Relaxed);
        m.deferred.store(0, Ordering::Relaxed);
        return true;
    }
    if MAY_STOP.load(Ordering::Relaxed) && !is_put_off(m, at) {
        stop_in_place(m, g, why, at);
    }
    false
}

/// Whether somebody would run instead.
fn is_of_use(p: &'static P, why: Why) -> bool {
    why == Why::World || timekeeper::are_due() || is_wanted(p)
}

/// Whether a G waits that this P could run.
pub(crate) fn is_wanted(p: &'static P) -> bool {
    !p.queue.is_empty() || SCHED.queued.load(Ordering::Relaxed) > 0
}

/// Whether the request waits until the goroutine is back in the program's text: so often, and no more.
fn is_put_off(m: &'static M, at: &Interruption) -> bool {
    let times = m.deferred.load(Ordering::Relaxed);
    let most = if dying::has_begun() { PUT_OFF_FOR_REPORT } else { PUT_OFF };
    let put_off = !at.is_movable() && times < most && MAY_MOVE.load(Ordering::Relaxed);
    m.deferred.store(if put_off { times + 1 } else { 0 }, Ordering::Relaxed);
    DEFERRED.fetch_add(u64::from(put_off), Ordering::Relaxed);
    put_off
}

/// The M gives its P to somebody else, and sleeps right here until it gets one again.
fn stop_in_place(m: &'static M, g: &'static G, why: Why, at: &Interruption) {
    let registers = at.registers();
    g.show(&raw const registers);
    sleep_in_place(m, g, why, at);
    g.show(ptr::null());
}

/// See [`stop_in_place`].
fn sleep_in_place(m: &'static M, g: &'static G, why: Why, at: &Interruption) {
    if why == Why::NoP {
        count(at);
        return syscall::come_back_here(m);
    }
    let mut locked = SCHED.lock.lock();
    let stopping = stopping::is_stopping();
    if !stopping && locked.idle_ms.is_empty() && (why == Why::Wake || !locked.queue.has_stopped()) {
        drop(locked);
        thread_requests::ask();
        return;
    }
    let Some(p) = m.release_p() else { return };
    m.asked.store(0, Ordering::Relaxed);
    m.carrier.set_pending(false);
    let pinned = stopped_m::stop_with_m(&mut locked, m, g, why != Why::Slice);
    if stopping {
        stopping::count_stopped(&mut locked, p);
        drop(locked);
    } else {
        hand_off_locked(locked, p);
        wake::wake_if_idle();
    }
    count(at);
    stopped_m::sleep_stopped(m, g, pinned);
}

fn count(at: &Interruption) {
    IN_PLACE.fetch_add(1, Ordering::Relaxed);
    OUTSIDE.fetch_add(u64::from(!at.is_movable()), Ordering::Relaxed);
}
