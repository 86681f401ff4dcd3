//! The watcher: a thread of its own, without a P, that takes Ps from Ms that are blocked.
//!
//! It looks at each running P every 20 µs to 10 ms: often after it had something to do, ever more seldom
//! while it has not. Where all Ps are idle it sleeps until one is not. It allocates nothing.
//!
//! **Marked calls.** The M says that it is in one (`calls`). If it still is at the next look, the P goes to
//! somebody who can use it.
//!
//! **Calls nobody marked.** The M's CPU clock has stood still since the last look: it is blocked, or was not
//! given a CPU. The kernel knows which (`/proc/self/task/…/syscall`, opened only then). If it is blocked, its
//! P is taken as `calls` says. An M that was only not given a CPU is asked about ever more seldom.
//!
//! A P whose queue is empty while others are idle is left alone for 10 ms: nobody needs it.

use super::state::{MAX_PROCS, SCHED};
use super::{calls, spawner, timers, trace, wake, world};
use crate::gmp::m::M;
use crate::gmp::p::{P, PStatus};
use crate::sys::sleep_word::SleepWord;
use crate::sys::thread_look::{self, Doing};
use crate::sys::{barrier, clock};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Not 0: it is to look at once.
static WORD: SleepWord = SleepWord::new();

/// It sleeps until a P is not idle. Written under the scheduler's lock.
static ASLEEP: AtomicBool = AtomicBool::new(false);

/// It waits for longer than it would if all Ps were busy.
static NAPS: AtomicBool = AtomicBool::new(false);

/// How long it waits between two looks, in nanoseconds.
const SHORTEST: u64 = 20_000;
const LONGEST: u64 = 10_000_000;
/// The longest while something waits for a P.
const LONGEST_WANTED: u64 = 1_000_000;
/// The first time when it was woken from a longer wait.
const WOKEN: u64 = 200_000;
/// So many looks in vain, then ever longer.
const PATIENCE: u32 = 50;
/// How long a P that nobody needs is left with a blocked M.
const UNNEEDED: u64 = 10_000_000;
/// How long one is left with a blocked M in virtual time.
const VIRTUAL: u64 = 1_000_000_000;
/// All Ps are idle for so long before it sleeps for good: waking it costs.
const LINGER: u64 = 50_000_000;
/// How often the CPU limit is read again.
const LIMIT_PERIOD: u64 = 1_000_000_000;

/// Starts the watcher, if that was not done. By the spawner, once there is an M: where threads are refused
/// an M is worth more, and work goes on without a watcher.
pub(crate) fn start() {
    if STARTED.load(Ordering::Relaxed) {
        return;
    }
    let thread = std::thread::Builder::new().name("gosched-sysmon".into());
    spawner::OTHER_THREADS.fetch_add(1, Ordering::Relaxed);
    match thread.spawn(watch) {
        Ok(_) => STARTED.store(true, Ordering::Relaxed),
        Err(_) => drop(spawner::OTHER_THREADS.fetch_sub(1, Ordering::Relaxed)),
    }
}

static STARTED: AtomicBool = AtomicBool::new(false);

/// A P is idle no more: somebody should watch; sooner than planned, if it was the last one. Under the
/// scheduler's lock.
#[inline]
pub(crate) fn p_was_taken() {
    barrier::light();
    let last = SCHED.idle_ps.load(Ordering::Relaxed) == 0 && NAPS.load(Ordering::Relaxed);
    if last || ASLEEP.load(Ordering::Relaxed) {
        ASLEEP.store(false, Ordering::Relaxed);
        NAPS.store(false, Ordering::Relaxed);
        look_now();
    }
}

/// Somebody waits for a P that an M may be blocked with.
pub(crate) fn look_now() {
    WORD.set(1);
    WORD.wake();
}

/// What it saw of a P when it looked last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Seen {
    /// Changes whenever the P passes the scheduler.
    mark: [u32; 4],
    /// When that was first seen.
    since: u64,
    /// What the CPU clock of its M said, and when it first said so.
    cpu: Option<u64>,
    still: u64,
    /// It was asked about in vain: not for so many looks, and twice as many the next time.
    skip: u32,
    skipped: u32,
}

fn watch() {
    thread_look::sleep_exactly();
    let mut seen = vec![Seen::default(); MAX_PROCS];
    let (mut delay, mut in_vain) = (SHORTEST, 0u32);
    let (mut idle_since, mut limit_read) = (None, clock::real_now());
    loop {
        if delay > LONGEST_WANTED {
            NAPS.store(true, Ordering::Relaxed);
            barrier::heavy();
            // The last one may have been taken just before it said so.
            if SCHED.idle_ps.load(Ordering::Relaxed) == 0 {
                delay = delay.min(longest(clock::real_now()));
            }
        }
        WORD.wait(0, Some(Duration::from_nanos(delay)));
        let woken = WORD.get() != 0;
        WORD.set(0);
        NAPS.store(false, Ordering::Relaxed);
        let now = clock::real_now();
        trace::print_if_due(now);
        if all_idle() {
            let since = *idle_since.get_or_insert(now);
            if now - since >= LINGER && sleep_for_good() {
                (delay, in_vain, idle_since) = (SHORTEST, 0, None);
                continue;
            }
        } else {
            idle_since = None;
        }
        let took = look_at_all(&mut seen, now);
        feed_idle_ps();
        if now - limit_read >= LIMIT_PERIOD && !all_idle() {
            limit_read = now;
            spawner::ask_for_limit();
        }
        in_vain = if took { 0 } else { in_vain.saturating_add(1) };
        delay = match in_vain {
            0 => SHORTEST,
            _ if woken => WOKEN.min(delay),
            1..=PATIENCE => delay,
            _ => delay * 2,
        };
        delay = delay.min(longest(now));
    }
}

fn all_idle() -> bool {
    SCHED.idle_ps.load(Ordering::Relaxed) as usize == SCHED.procs()
}

/// Sleeps until a P is not idle. False: one is.
fn sleep_for_good() -> bool {
    let locked = SCHED.lock.lock();
    if !all_idle() || world::is_stopping() || trace::is_on() {
        return false;
    }
    ASLEEP.store(true, Ordering::Relaxed);
    drop(locked);
    while WORD.get() == 0 {
        WORD.wait(0, None);
    }
    WORD.set(0);
    true
}

/// How long it may wait at most.
fn longest(now: u64) -> u64 {
    let waits = SCHED.queued.load(Ordering::Relaxed) > 0
        || SCHED.used_ps().any(|p| !p.queue.is_empty())
        || world::is_stopping();
    if waits {
        return LONGEST_WANTED;
    }
    if SCHED.idle_ps.load(Ordering::Relaxed) > 0 {
        return trace::until_due(now).min(LONGEST);
    }
    // Nobody sleeps who would wake for the next timer.
    let timer = timers::until_next().map_or(LONGEST, |_| LONGEST_WANTED);
    timer.min(trace::until_due(now))
}

/// True if a P was taken.
fn look_at_all(seen: &mut [Seen], now: u64) -> bool {
    let mut took = false;
    for (p, seen) in SCHED.used_ps().zip(seen) {
        if p.status() == PStatus::Running
            && let Some(m) = p.m()
        {
            took |= look_at(p, m, seen, now);
        }
    }
    took
}

fn look_at(p: &'static P, m: &'static M, seen: &mut Seen, now: u64) -> bool {
    let mark = [p.tick(), p.inherited(), p.syscalltick.load(Ordering::Relaxed), m.id];
    if mark != seen.mark {
        *seen = Seen { mark, since: now, ..Seen::default() };
        return false;
    }
    if calls::is_in_call(m) {
        return is_needed(p, seen, now) && calls::take_p_in_call(m);
    }
    // In the runtime it is not blocked for long.
    if m.carrier.preempt_off_count() > 0 {
        return false;
    }
    let cpu = thread_look::cpu_time(m.thread());
    if cpu.is_none() || cpu != seen.cpu {
        *seen = Seen { cpu, still: now, skip: 0, skipped: 0, ..*seen };
        return false;
    }
    if seen.skipped < seen.skip {
        seen.skipped += 1;
        return false;
    }
    if !is_needed(p, seen, now) {
        return false;
    }
    let blocked = match thread_look::doing(m.thread()) {
        Doing::Blocked => true,
        Doing::Runs => false,
        // Nobody says: it has not run for so long that it might as well be.
        Doing::Unknown => now - seen.still >= UNNEEDED,
    };
    if !blocked {
        *seen = Seen { skip: (2 * seen.skip).clamp(1, MOST_SKIPPED), skipped: 0, ..*seen };
        return false;
    }
    calls::take_p_of(m)
}

/// An M that is not given a CPU is asked about every so many looks, at least.
const MOST_SKIPPED: u32 = 64;

/// Whether somebody could use the P.
fn is_needed(p: &'static P, seen: &Seen, now: u64) -> bool {
    // In virtual time what comes next must not depend on how long a call takes, if it can be helped.
    if clock::is_virtual() {
        return now - seen.since >= VIRTUAL;
    }
    let others = SCHED.idle_ps.load(Ordering::Relaxed) + SCHED.spinning.load(Ordering::Relaxed);
    !p.queue.is_empty() || others == 0 || now - seen.since >= UNNEEDED || world::is_stopping()
}

/// Gs of the global queue that no P has come for.
fn feed_idle_ps() {
    if SCHED.queued.load(Ordering::Relaxed) > 0 && SCHED.idle_ps.load(Ordering::Relaxed) > 0 {
        wake::wake_if_idle();
    }
}
