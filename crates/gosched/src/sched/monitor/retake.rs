//! What sysmon does about each P: takes it from an M that is blocked, and asks an M to stop whose
//! goroutine has run for long enough.
//!
//! **Marked calls.** The M says that it is in one (`syscall`). If it still is at the next look, the P goes to
//! somebody who can use it.
//!
//! **Calls nobody marked.** The M's CPU clock has stood still since the last look: it is blocked, or was not
//! given a CPU. The kernel knows which (`/proc/self/task/…/syscall`, opened only then). If it is blocked, its
//! P is taken as `syscall` says. An M that was only not given a CPU is asked about ever more seldom. The same is done
//! with an M that has run now and then in the last millisecond or more, but for less than half of the time: it sleeps for
//! some microseconds, again and again, and a slice of CPU time would take it seconds. A P whose
//! queue is empty while others are idle is left alone for 10 ms: nobody needs it.
//!
//! **Slices.** A goroutine that has run for a slice of CPU time, while another waits, is asked to stop
//! (`preempt`), every 100 µs until it does. What a goroutine had used when it was interrupted for another's
//! sake counts when it goes on. Goroutines that make each other ready share a slice, as Go's: whichever runs when it is
//! over is asked. (Where they change faster than they can be asked, they count their turns: `P::has_spent_pair_budget`.)
//!
//! **A timer is due, or I/O has made somebody ready, and all Ps are busy.** The goroutine that has used most of its slice is asked to make
//! room: whoever gets its P fires what is due. It must not have passed the scheduler for 100 µs, where it
//! would have seen the timer itself.
//!
//! **Ms without a P** whose goroutine runs again, in a program where no P is idle, are asked to stop too.

use crate::gmp::g::G;
use crate::gmp::m::M;
use crate::gmp::p::{P, PStatus};
use crate::gmp::poll_desc;
use crate::sched::monitor::in_flight;
use crate::sched::state::global::SCHED;
use crate::sched::state::{poller_role, stopping, timekeeper};
use crate::sched::switch::preempt::{self, PreemptReason};
use crate::sched::switch::syscall;
use crate::sys::clock;
use crate::sys::thread_status::{self, ThreadStatus};
use std::cmp::Reverse;
use std::sync::atomic::Ordering;

/// How long a P that nobody needs is left with a blocked M.
/// Go: the 10 ms in retake.
const UNNEEDED_P_GRACE_NANOS: u64 = 10_000_000;
/// How long one is left with a blocked M in virtual time.
const VIRTUAL_TIME_GRACE_NANOS: u64 = 1_000_000_000;
/// How long after a request it is made again; and how long a goroutine must have run to make room.
pub(crate) const PREEMPT_RETRY_NANOS: u64 = 100_000;
/// An M that is not given a CPU is asked about every so many looks, at least.
const MAX_BACKOFF_TICKS: u32 = 64;
/// How long a goroutine has its P before it is asked whether it is blocked most of the time.
const MOSTLY_BLOCKED_MIN_NANOS: u64 = 1_000_000;
/// So many Ms without a P are looked at each time.
const M_SCAN_BATCH: usize = 16;
/// So often one is asked to make room before another is.
const PREEMPT_REQUESTS_PER_VICTIM: u32 = 2;
/// An M without a P runs again when it has run for so long.
const RUNNING_AGAIN_NANOS: u64 = 20_000;

/// What was seen of a P at the last look.
/// Go: sysmontick.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SysmonTick {
    /// Changes whenever the P passes the scheduler.
    progress: Progress,
    /// Changes with each slice: goroutines that make each other ready share one.
    slice: u32,
    /// When that was first seen; and when the slice was.
    since: u64,
    slice_since: u64,
    /// What its goroutine had used of its slice before.
    used: u64,
    /// What the CPU clock of its M said then.
    first: Option<u64>,
    /// What it said last, and when it first said so.
    cpu: Option<u64>,
    cpu_since: u64,
    /// It was asked about in vain: not for so many looks, and twice as many the next time.
    backoff_ticks: u32,
    skipped_ticks: u32,
    /// How often it was asked to make room.
    asked: u32,
    flight: in_flight::Seen,
}

impl SysmonTick {
    /// How much of its slice the goroutine has used.
    fn ran(&self) -> u64 {
        match (self.first, self.cpu) {
            (Some(first), Some(cpu)) => self.used + cpu.saturating_sub(first),
            _ => self.used,
        }
    }
}

/// What came of a look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Findings {
    /// A P was taken.
    pub(crate) took: bool,
    /// Somebody was asked to stop.
    pub(crate) asked: bool,
    /// When a slice will be over that somebody waits for, at the earliest: so long from now.
    pub(crate) slice_ends: u64,
}

/// Looks at all Ps, and at some of the Ms that have none.
/// Go: retake.
pub(crate) fn retake(
    seen: &mut [SysmonTick],
    m_cursor: &mut Option<&'static M>,
    now: u64,
) -> Findings {
    let mut found = Findings { took: false, asked: false, slice_ends: u64::MAX };
    for (p, seen) in SCHED.used_ps().zip(&mut *seen) {
        if p.status() == PStatus::Running
            && let Some(m) = p.m()
        {
            check_p(p, m, seen, now, &mut found);
        } else {
            in_flight::check(p, &mut seen.flight, now);
        }
    }
    if SCHED.idle_ps.load(Ordering::Relaxed) == 0 && !clock::is_virtual() {
        let someone = timekeeper::are_due() || poller_role::is_io_unclaimed();
        if someone && SCHED.spinning.load(Ordering::Relaxed) == 0 {
            make_room(seen, now, &mut found);
        }
        check_ms_without_p(m_cursor, &mut found);
    }
    found
}

/// What changes when a P passes the scheduler: its turn, its count of marked calls, its M.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Progress {
    turn: u32,
    calls: u32,
    m: u32,
}

fn progress_of(p: &'static P, m: &'static M) -> Progress {
    Progress { turn: p.turn(), calls: p.syscalltick.load(Ordering::Relaxed), m: m.id }
}

/// Compares a P with what sysmon saw of it at the last tick.
fn check_p(p: &'static P, m: &'static M, seen: &mut SysmonTick, now: u64, found: &mut Findings) {
    let (progress, slice) = (progress_of(p, m), p.tick());
    let fresh = SysmonTick { progress, slice, since: now, cpu_since: now, ..SysmonTick::default() };
    if progress == seen.progress {
        check_standing_p(p, m, seen, now, found);
    } else if slice == seen.slice && progress.m == seen.progress.m {
        continue_slice(p, m, seen, fresh, found);
    } else {
        begin_slice(p, m, seen, fresh, found);
    }
}

/// The P runs another goroutine, in the same slice: goroutines that make each other ready share one.
fn continue_slice(
    p: &'static P,
    m: &'static M,
    seen: &mut SysmonTick,
    fresh: SysmonTick,
    found: &mut Findings,
) {
    let wanted = preempt::has_waiting_g(p);
    let cpu = if wanted { thread_status::thread_cpu_nanos(m.tid()) } else { seen.cpu };
    let (used, first) = (seen.used + take_used_nanos(m), seen.first.or(cpu));
    *seen = SysmonTick { slice_since: seen.slice_since, used, first, cpu, ..fresh };
    end_slice(m, seen, wanted, found);
}

/// The P has begun a slice since the last tick, or has another M.
fn begin_slice(
    p: &'static P,
    m: &'static M,
    seen: &mut SysmonTick,
    fresh: SysmonTick,
    found: &mut Findings,
) {
    let wanted = preempt::has_waiting_g(p);
    let used = take_used_nanos(m);
    // If it is to make room soon, what it has used by then must be known.
    let soon = || timekeeper::until_next().is_some() || poll_desc::has_waiters();
    let exact = SCHED.idle_ps.load(Ordering::Relaxed) == 0 && soon();
    let cpu = if exact { thread_status::thread_cpu_nanos(m.tid()) } else { None };
    *seen = SysmonTick { slice_since: fresh.since, used, first: cpu, cpu, ..fresh };
    if wanted {
        found.slice_ends = found.slice_ends.min(preempt::slice_nanos().saturating_sub(used));
    }
}

/// The P has not passed the scheduler since the last tick: its goroutine runs, or its M is blocked.
fn check_standing_p(
    p: &'static P,
    m: &'static M,
    seen: &mut SysmonTick,
    now: u64,
    found: &mut Findings,
) {
    if syscall::is_in_syscall_with_p(m) {
        found.took |= is_p_needed(p, seen, now) && syscall::retake_in_syscall(m);
        return;
    }
    let cpu = thread_status::thread_cpu_nanos(m.tid());
    // In the runtime it is not blocked for long.
    let is_standing = cpu.is_some() && cpu == seen.cpu && m.carrier.preempt_disable_count() == 0;
    if is_standing {
        found.took |= retake_if_blocked(p, m, seen, now);
        return;
    }
    *seen = SysmonTick { cpu, first: seen.first.or(cpu), cpu_since: now, ..*seen };
    let wanted = preempt::has_waiting_g(p);
    if !wanted || !is_mostly_blocked(seen, now) {
        (seen.backoff_ticks, seen.skipped_ticks) = (0, 0);
    } else if retake_if_blocked(p, m, seen, now) {
        // Else it was not given a CPU for most of the time.
        found.took = true;
        return;
    }
    end_slice(m, seen, wanted, found);
}

/// Takes what the goroutine that the M runs had used of its slice when it was last stopped.
fn take_used_nanos(m: &'static M) -> u64 {
    m.curg().map_or(0, |g| g.slice_used_nanos.swap(0, Ordering::Relaxed))
}

/// Asks a goroutine to stop whose slice is over, if another waits.
fn end_slice(m: &'static M, seen: &SysmonTick, wanted: bool, found: &mut Findings) {
    if !wanted || clock::is_virtual() {
        return;
    }
    match preempt::slice_nanos().saturating_sub(seen.ran()) {
        0 => {
            preempt::preempt_one(m, PreemptReason::Slice, seen.progress.turn);
            found.asked = true;
        }
        left => found.slice_ends = found.slice_ends.min(left),
    }
}

/// Whether a goroutine has had its P for a while, and has run for less than half of that: it blocks again and
/// again, for less than the time between two looks.
fn is_mostly_blocked(seen: &SysmonTick, now: u64) -> bool {
    let had = now - seen.slice_since;
    had >= MOSTLY_BLOCKED_MIN_NANOS && 2 * seen.ran() < had
}

/// An M whose CPU clock stands still, or stood still for most of the time.
fn retake_if_blocked(p: &'static P, m: &'static M, seen: &mut SysmonTick, now: u64) -> bool {
    if seen.skipped_ticks < seen.backoff_ticks {
        seen.skipped_ticks += 1;
        return false;
    }
    if !is_p_needed(p, seen, now) {
        return false;
    }
    let blocked = match thread_status::status(m.tid()) {
        ThreadStatus::Blocked => true,
        ThreadStatus::Running => false,
        // Nobody says: it has not run for so long that it might as well be.
        ThreadStatus::Unknown => now - seen.cpu_since >= UNNEEDED_P_GRACE_NANOS,
    };
    if !blocked {
        *seen = SysmonTick {
            backoff_ticks: (2 * seen.backoff_ticks).clamp(1, MAX_BACKOFF_TICKS),
            skipped_ticks: 0,
            ..*seen
        };
        return false;
    }
    syscall::retake_unmarked(m)
}

/// Whether somebody could use the P.
fn is_p_needed(p: &'static P, seen: &SysmonTick, now: u64) -> bool {
    // In virtual time what comes next must not depend on how long a call takes, if it can be helped.
    if clock::is_virtual() {
        return now - seen.since >= VIRTUAL_TIME_GRACE_NANOS;
    }
    let others = SCHED.idle_ps.load(Ordering::Relaxed) + SCHED.spinning.load(Ordering::Relaxed);
    !p.queue.is_empty()
        || others == 0
        || now - seen.since >= UNNEEDED_P_GRACE_NANOS
        || stopping::is_stopping()
}

/// A timer is due, or somebody is ready: one of the goroutines that run makes room.
fn make_room(seen: &mut [SysmonTick], now: u64, found: &mut Findings) {
    // Whoever does not hear comes last.
    let mut best: Option<(&'static M, &mut SysmonTick)> = None;
    let rank = |seen: &SysmonTick| (Reverse(seen.asked / PREEMPT_REQUESTS_PER_VICTIM), seen.ran());
    for (p, seen) in SCHED.used_ps().zip(seen) {
        let Some(m) =
            p.m().filter(|m| p.status() == PStatus::Running && progress_of(p, m) == seen.progress)
        else {
            continue;
        };
        let may = now - seen.since >= PREEMPT_RETRY_NANOS
            && !syscall::is_in_syscall_with_p(m)
            && can_be_asked(m);
        if may && best.as_ref().is_none_or(|(_, best)| rank(seen) >= rank(best)) {
            best = Some((m, seen));
        }
    }
    // Nobody has run for long enough: they pass the scheduler, or will have run for that long soon.
    found.asked = true;
    let Some((m, seen)) = best else { return };
    seen.asked += 1;
    let ran = seen.ran();
    if ran >= preempt::slice_nanos() && m.p().is_some_and(preempt::has_waiting_g) {
        // It does not go on before others.
        return preempt::preempt_one(m, PreemptReason::Slice, seen.progress.turn);
    }
    if let Some(g) = m.curg() {
        g.slice_used_nanos.store(ran, Ordering::Relaxed);
    }
    preempt::preempt_one(m, PreemptReason::MakeRoom, seen.progress.turn);
}

fn can_be_asked(m: &'static M) -> bool {
    m.curg().is_some_and(|g: &G| g.no_preempt_depth.load(Ordering::Relaxed) == 0)
}

/// Some of the Ms whose P was taken in a call that nobody marked, and that may be back from it.
fn check_ms_without_p(m_cursor: &mut Option<&'static M>, found: &mut Findings) {
    let mut m = *m_cursor;
    for _ in 0..M_SCAN_BATCH {
        let Some(this) = m.or_else(|| SCHED.all_ms().next()) else { return };
        if syscall::is_running_without_p(this) && check_running_again(this) {
            preempt::preempt_one(this, PreemptReason::NoP, 0);
            found.asked = true;
        }
        // SAFETY: null, or an M: they are never freed.
        m = unsafe { this.all_link.load(Ordering::Relaxed).as_ref() };
        if m.is_none() {
            break;
        }
    }
    *m_cursor = m;
}

/// Whether it has run since its P was taken, and does now.
fn check_running_again(m: &'static M) -> bool {
    let Some(ran) = thread_status::thread_cpu_nanos(m.tid()) else { return false };
    let before = m.cpu_nanos_at_retake.load(Ordering::Relaxed);
    if ran < before + RUNNING_AGAIN_NANOS {
        return false;
    }
    let runs = thread_status::status(m.tid()) != ThreadStatus::Blocked;
    if !runs {
        syscall::record_retake(m, ran);
    }
    runs
}
