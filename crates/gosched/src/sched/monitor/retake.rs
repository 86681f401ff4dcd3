//! What sysmon does about each P: retakes it from a blocked M, and preempts a goroutine that has
//! run for long enough.
//!
//! **Marked calls.** The M records that it is in a marked call (`syscall`). If it is still in the
//! call at sysmon's next tick, sysmon hands the P off to another M.
//!
//! **Unmarked calls.** If the CPU clock of the M's thread has stood still since the last tick, the
//! thread is blocked, or waits for a CPU. Only then does sysmon ask the kernel which
//! (`/proc/self/task/…/syscall`). If the thread is blocked, sysmon retakes the P as `syscall`
//! describes. If it waits for a CPU, sysmon backs off and asks about it ever less often. Sysmon
//! also asks about a thread that has run for less than half of the time for a millisecond or more:
//! it sleeps for microseconds again and again, and would need seconds to use up a slice of CPU
//! time. A P with an empty queue is left alone for 10 ms while other Ps are idle: no G needs it.
//!
//! **Slices.** If a goroutine has run for a slice of CPU time and another G waits, sysmon requests
//! that it stop (`preempt`), every 100 µs until it does. CPU time that a goroutine had used when it
//! was interrupted to make room counts towards its slice when it continues. Goroutines that make
//! each other ready share a slice, as in Go: the request goes to the goroutine that runs when the
//! slice is over. (If they switch too fast for a request to reach one of them, the P counts their
//! turns instead: `P::has_spent_pair_budget`.)
//!
//! **Making room.** If a timer is due, or I/O has made a G ready, and all Ps are busy, sysmon
//! requests that the goroutine that has used most of its slice make room. The M that then has the P
//! fires the timer or runs the ready G. Only a goroutine that has not passed through the scheduler
//! for 100 µs is chosen: the M of any other has already checked the timers itself.
//!
//! **Ms without a P.** If no P is idle, sysmon also preempts goroutines that continue without a P
//! after an unmarked call in which their P was retaken.
//!
//! This module never takes a P itself and never sends a signal: `syscall` and `preempt` do.

use crate::gmp::g::G;
use crate::gmp::m::M;
use crate::gmp::p::{P, PStatus};
use crate::gmp::poll_desc;
use crate::probe::field::PreemptReason;
use crate::sched::monitor::in_flight;
use crate::sched::state::global::SCHED;
use crate::sched::state::{poller_role, stopping, timekeeper};
use crate::sched::switch::preempt;
use crate::sched::switch::syscall;
use crate::sys::clock;
use crate::sys::thread_status::{self, ThreadStatus};
use std::cmp::Reverse;
use std::sync::atomic::Ordering;

/// How long a P that no G needs is left with a blocked M.
/// Go: the 10 ms in retake.
const UNNEEDED_P_GRACE_NANOS: u64 = 10_000_000;
/// How long a P is left with a blocked M in virtual time.
const VIRTUAL_TIME_GRACE_NANOS: u64 = 1_000_000_000;
/// Interval at which a preemption request is repeated, and the minimum time that a goroutine runs
/// before it must make room.
pub(crate) const PREEMPT_RETRY_NANOS: u64 = 100_000;
/// Maximum number of ticks between two questions to the kernel about an M that waits for a CPU.
const MAX_BACKOFF_TICKS: u32 = 64;
/// Minimum time that a goroutine has its P before sysmon checks whether it is mostly blocked.
const MOSTLY_BLOCKED_MIN_NANOS: u64 = 1_000_000;
/// Maximum number of Ms that each tick checks for running without a P.
const M_SCAN_BATCH: usize = 16;
/// Number of requests to make room that one goroutine gets before another is chosen.
const PREEMPT_REQUESTS_PER_VICTIM: u32 = 2;
/// CPU time after which an M without a P counts as running again.
const RUNNING_AGAIN_NANOS: u64 = 20_000;

/// What sysmon saw of a P at its last tick. Times are in nanoseconds.
/// Go: sysmontick.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SysmonTick {
    /// Changes whenever the P passes through the scheduler.
    progress: Progress,
    /// The P's count of slices. Goroutines that make each other ready share a slice.
    slice: u32,
    /// When `progress` was first seen; and when `slice` was first seen.
    since: u64,
    slice_since: u64,
    /// CPU time of the slice that was used before `first` was read.
    used: u64,
    /// CPU clock of the M's thread when it was first read in this slice.
    first: Option<u64>,
    /// CPU clock of the M's thread at the last tick, and when it was first seen to have that value.
    cpu: Option<u64>,
    cpu_since: u64,
    /// Back-off after a false alarm, in ticks, doubling each time; and how many of these ticks have
    /// passed.
    backoff_ticks: u32,
    skipped_ticks: u32,
    /// Number of requests to make room.
    asked: u32,
    flight: in_flight::Seen,
}

impl SysmonTick {
    /// Returns how much CPU time of its slice the goroutine has used.
    fn ran(&self) -> u64 {
        match (self.first, self.cpu) {
            (Some(first), Some(cpu)) => self.used + cpu.saturating_sub(first),
            _ => self.used,
        }
    }
}

/// The result of a tick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Findings {
    /// Whether a P was retaken.
    pub(crate) took: bool,
    /// Whether a preemption request was made, or must be made soon.
    pub(crate) asked: bool,
    /// Time until the first slice ends that another G waits for, in nanoseconds; `u64::MAX` if
    /// there is none.
    pub(crate) slice_ends: u64,
}

/// Checks all Ps, and some of the Ms without a P.
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
    if SCHED.counts.idle_ps() == 0 && !clock::is_virtual() {
        let someone = timekeeper::are_due() || poller_role::is_io_unclaimed();
        if someone && SCHED.counts.spinning() == 0 {
            make_room(seen, now, &mut found);
        }
        check_ms_without_p(m_cursor, &mut found);
    }
    found
}

/// What changes when a P passes through the scheduler: its turn, its count of marked calls, its M.
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

/// Handles a P that runs another goroutine in the same slice: goroutines that make each other ready
/// share one.
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

/// Handles a P that has begun a slice since the last tick, or has another M.
fn begin_slice(
    p: &'static P,
    m: &'static M,
    seen: &mut SysmonTick,
    fresh: SysmonTick,
    found: &mut Findings,
) {
    let wanted = preempt::has_waiting_g(p);
    let used = take_used_nanos(m);
    // If the goroutine may have to make room soon, its CPU time must be known by then.
    let soon = || timekeeper::until_next().is_some() || poll_desc::has_waiters();
    let exact = SCHED.counts.idle_ps() == 0 && soon();
    let cpu = if exact { thread_status::thread_cpu_nanos(m.tid()) } else { None };
    *seen = SysmonTick { slice_since: fresh.since, used, first: cpu, cpu, ..fresh };
    if wanted {
        found.slice_ends = found.slice_ends.min(preempt::slice_nanos().saturating_sub(used));
    }
}

/// Handles a P that has not passed through the scheduler since the last tick: its goroutine runs,
/// or its M is blocked.
fn check_standing_p(
    p: &'static P,
    m: &'static M,
    seen: &mut SysmonTick,
    now: u64,
    found: &mut Findings,
) {
    if m.syscall_state.is_in_syscall_with_p() {
        found.took |= is_p_needed(p, seen, now) && syscall::retake_in_syscall(m);
        return;
    }
    let cpu = thread_status::thread_cpu_nanos(m.tid());
    // An M with preemption off is in the runtime, where it does not block for long.
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
        // A thread that is not blocked waited for a CPU most of the time: its slice continues.
        found.took = true;
        return;
    }
    end_slice(m, seen, wanted, found);
}

/// Takes the CPU time of its slice that the goroutine of `m` had used when it last made room.
fn take_used_nanos(m: &'static M) -> u64 {
    m.curg().map_or(0, |g| g.slice_used_nanos.swap(0, Ordering::Relaxed))
}

/// Requests that the goroutine of `m` stop, if its slice is over and another G waits.
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

/// Returns whether the goroutine has had its P for a while and has run for less than half of that
/// time: it blocks repeatedly, each time for less than a tick.
fn is_mostly_blocked(seen: &SysmonTick, now: u64) -> bool {
    let had = now - seen.slice_since;
    had >= MOSTLY_BLOCKED_MIN_NANOS && 2 * seen.ran() < had
}

/// Retakes the P of `m` if its thread is blocked. Called if the thread's CPU clock stands still, or
/// stood still most of the time. Returns whether the P was retaken.
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
        // The kernel does not report the state of the thread: one that has not run for this long
        // counts as blocked.
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

/// Returns whether the P should be retaken: a G waits in its queue, no other P is free, its M has
/// been blocked for long, or the world stops.
fn is_p_needed(p: &'static P, seen: &SysmonTick, now: u64) -> bool {
    // In virtual time the order of events should not depend on the duration of a call.
    if clock::is_virtual() {
        return now - seen.since >= VIRTUAL_TIME_GRACE_NANOS;
    }
    let others = SCHED.counts.idle_ps() + SCHED.counts.spinning();
    !p.is_queue_empty()
        || others == 0
        || now - seen.since >= UNNEEDED_P_GRACE_NANOS
        || stopping::is_stopping()
}

/// Requests that one of the running goroutines make room for a timer that is due, or for a G that
/// I/O made ready.
fn make_room(seen: &mut [SysmonTick], now: u64, found: &mut Findings) {
    // A goroutine that has not reacted to earlier requests ranks last.
    let mut best: Option<(&'static M, &mut SysmonTick)> = None;
    let rank = |seen: &SysmonTick| (Reverse(seen.asked / PREEMPT_REQUESTS_PER_VICTIM), seen.ran());
    for (p, seen) in SCHED.used_ps().zip(seen) {
        let Some(m) =
            p.m().filter(|m| p.status() == PStatus::Running && progress_of(p, m) == seen.progress)
        else {
            continue;
        };
        let may = now - seen.since >= PREEMPT_RETRY_NANOS
            && !m.syscall_state.is_in_syscall_with_p()
            && allows_preemption(m);
        if may && best.as_ref().is_none_or(|(_, best)| rank(seen) >= rank(best)) {
            best = Some((m, seen));
        }
    }
    // Even if no goroutine was chosen, the next tick comes soon: by then the goroutines have passed
    // through the scheduler, or have run for long enough.
    found.asked = true;
    let Some((m, seen)) = best else { return };
    seen.asked += 1;
    let ran = seen.ran();
    if ran >= preempt::slice_nanos() && m.p().is_some_and(preempt::has_waiting_g) {
        // Its slice is over, so it does not get priority over other Gs.
        return preempt::preempt_one(m, PreemptReason::Slice, seen.progress.turn);
    }
    if let Some(g) = m.curg() {
        g.slice_used_nanos.store(ran, Ordering::Relaxed);
    }
    preempt::preempt_one(m, PreemptReason::MakeRoom, seen.progress.turn);
}

fn allows_preemption(m: &'static M) -> bool {
    m.curg().is_some_and(|g: &G| g.no_preempt_depth.load(Ordering::Relaxed) == 0)
}

/// Preempts goroutines that run again after an unmarked call in which their P was retaken. Checks
/// at most [`M_SCAN_BATCH`] Ms.
fn check_ms_without_p(m_cursor: &mut Option<&'static M>, found: &mut Findings) {
    let mut m = *m_cursor;
    for _ in 0..M_SCAN_BATCH {
        let Some(this) = m.or_else(|| SCHED.all_ms().next()) else { return };
        if syscall::is_running_without_p(this) && check_running_again(this) {
            preempt::preempt_one(this, PreemptReason::NoP, 0);
            found.asked = true;
        }
        m = this.all_link.load();
        if m.is_none() {
            break;
        }
    }
    *m_cursor = m;
}

/// Returns whether the thread of `m` has run since its P was retaken, and runs at present.
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
