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
//!   stack, and has not changed its thread (signal mask): it goes on in [`moved`], on its own stack, and
//!   leaves as if it yielded. Any M can resume it. Only in a program with the allocation cache: see
//!   [`is_allocator_without_locks`].
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
use crate::sched::state::{fork, stopping, thread_requests, timekeeper};
use crate::sched::switch::{boundary, stopped_m, syscall};
use crate::sched::wake::hand_off::hand_off_locked;
use crate::sched::{snapshot, switch, wake};
use crate::sys::fatal::warning;
use crate::sys::{barrier, godebug};
use gosched_context::Still;
use gosched_context::arch;
use gosched_context::carrier::Carrier;
use gosched_context::dying;
use gosched_context::interrupt::{self, Interruption};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

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
static SLICE: AtomicU64 = AtomicU64::new(10_000_000);

/// The handler is there.
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Signals are sent, so as to preempt.
static ON: AtomicBool = AtomicBool::new(false);

/// Goroutines may be moved, or be stopped in place.
static MAY_MOVE: AtomicBool = AtomicBool::new(true);
static MAY_STOP: AtomicBool = AtomicBool::new(true);

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

/// Reads the environment and installs the handler: called once, when the runtime starts.
pub(crate) fn start() {
    if let Some(text) = std::env::var_os("GOSCHED_SLICE") {
        let text = text.to_string_lossy();
        match parse_duration(&text) {
            Some(slice) => SLICE.store(slice.as_nanos() as u64, Ordering::Relaxed),
            None => warning!(
                "GOSCHED_SLICE is {text:?}: it may be a time such as 500us, 10ms or 1s: using 10ms"
            ),
        }
    }
    MAY_MOVE.store(is_allocator_without_locks(), Ordering::Relaxed);
    if let Some(way) = std::env::var_os("GOSCHED_PREEMPT") {
        match way.to_str() {
            Some("in-place") => MAY_MOVE.store(false, Ordering::Relaxed),
            Some("moving") => {
                MAY_MOVE.store(true, Ordering::Relaxed);
                MAY_STOP.store(false, Ordering::Relaxed);
            }
            _ => {
                warning!("GOSCHED_PREEMPT is {way:?}: it may be `in-place` or `moving`: using both")
            }
        }
    }
    let off = godebug::value("asyncpreemptoff").is_some_and(|value| value != 0);
    // Whoever wants to see what goroutines do interrupts them too.
    // SAFETY: then — `moved` is made for that.
    match unsafe { interrupt::install(interrupted, moved) } {
        Ok(()) => {
            INSTALLED.store(true, Ordering::Relaxed);
            ON.store(!off, Ordering::Relaxed);
        }
        Err(why) => warning!("goroutines are not preempted: {why}"),
    }
}

/// Whether the program's global allocator is the allocation cache, which enters the allocator behind
/// it only as a thread. Any other may be code of the program's with locks, as jemalloc is and a
/// wrapper that counts. A goroutine that was moved out of there holds a lock without which no M can be
/// made: when all Ms wait for the lock, none is left to go on with the goroutine.
fn is_allocator_without_locks() -> bool {
    drop(std::hint::black_box(Box::new(0)));
    gosched_alloc::stats().reserved > 0
}

fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok().filter(|&number| number > 0)?;
    let nanos = match unit {
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    Some(Duration::from_nanos(number.checked_mul(nanos)?))
}

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

/// Where a goroutine goes on that was interrupted and is to be moved, with preemption off.
///
/// # Safety
/// - **redirect**: reached from [`interrupted`], on the stack of the goroutine.
unsafe extern "C" fn moved() {
    // SAFETY: carried — a goroutine of this runtime, that is not moved now.
    let m = unsafe { M::current() };
    match m.taken.load(Ordering::Relaxed) {
        0 => serve(m),
        _ => drop(syscall::come_back(m)),
    }
    boundary::leave();
}

/// The signal's handler, on an M's thread.
///
/// # Safety
/// - **callback**: called in a signal handler, with the carrier of an M.
unsafe fn interrupted(carrier: &Carrier, at: &mut Interruption) {
    // SAFETY: only Ms of this runtime are interruptible; the carrier is their first field, and they are
    // never freed.
    let m: &'static M = unsafe { &*std::ptr::from_ref(carrier).cast::<M>() };
    snapshot::serve(m, at);
    if carrier.preempt_off_count() > 0 || fork::is_child() || !ON.load(Ordering::Relaxed) {
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

/// Stops the goroutine of `m`, if that is still asked for. True: it goes on in [`moved`], and preemption is
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

/// The calling goroutine is not preempted while `f` runs.
pub(crate) fn without<R>(g: &'static G, f: impl FnOnce() -> R) -> R {
    /// However it ends.
    struct End(&'static G);
    impl Drop for End {
        fn drop(&mut self) {
            let before = self.0.steady.load(Ordering::Relaxed);
            self.0.steady.store(before - 1, Ordering::Relaxed);
            if before == 1 {
                let m = boundary::enter();
                // What was asked for meanwhile is done on the way out.
                if m.asked.load(Ordering::Relaxed) != 0 {
                    m.carrier.set_pending(true);
                }
                boundary::leave();
            }
        }
    }
    g.steady.store(g.steady.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    let _end = End(g);
    f()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_a_number_with_a_unit() {
        assert_eq!(parse_duration("500us"), Some(Duration::from_micros(500)));
        assert_eq!(parse_duration("10ms"), Some(Duration::from_millis(10)));
        assert_eq!(parse_duration("2s"), Some(Duration::from_secs(2)));
        for wrong in
            ["", "10", "ms", "0ms", "-1ms", "1.5ms", "10 ms", "1h", "99999999999999999999s"]
        {
            assert_eq!(parse_duration(wrong), None, "{wrong}");
        }
    }
}
