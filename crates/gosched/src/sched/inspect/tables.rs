//! The tables of the M:N scheduler. Reading them stops nothing and allocates nothing. Code here
//! never holds the scheduler's lock while it writes lines: the writer may allocate.

use crate::gmp::g::G;
use crate::gmp::m::M;
use crate::gmp::p::P;
use crate::gmp::state::GState;
use crate::sched::inspect::contract::Tables;
use crate::sched::inspect::types::{NumberOrNil, SchedStats, TraceHeader};
use crate::sched::run::timers;
use crate::sched::state::global::SCHED;
use crate::sched::state::multi_thread::MultiThread;
use crate::sched::state::thread_requests::HELPER_THREADS;
use crate::sched::state::{counts, stopping, sysmon_alarm};
use crate::sched::switch::{preempt, syscall};
use gosched_fiber::lock::NoPreemptLockGuard;
use std::fmt::{self, Write};
use std::sync::atomic::Ordering;

impl Tables for MultiThread {
    fn head() -> TraceHeader {
        let locked = NoPreemptLockGuard::new(&SCHED.lock);
        TraceHeader {
            threads: locked.ms as usize + helper_threads(),
            idle_ms: locked.idle_ms.len(),
            queued: locked.queue.len(),
            locked_ms: locked.locked_ms - locked.stopped_ms,
            stop_wait: locked.stop_count.left(),
            ..without_lock()
        }
    }

    fn fill_stats(numbers: &mut SchedStats) {
        let locked = NoPreemptLockGuard::new(&SCHED.lock);
        numbers.threads = u64::from(locked.ms) + helper_threads() as u64;
        numbers.idle_threads = locked.idle_ms.len() as u64;
        numbers.blocked_threads = u64::from(locked.blocked_ms);
        numbers.global_queue = locked.queue.len() as u64;
        numbers.runnable = (locked.queue.len() + locked.stackless.len()) as u64;
        drop(locked);
        numbers.spinning_threads = u64::from(SCHED.counts.spinning());
        numbers.idle_procs = u64::from(SCHED.counts.idle_ps());
        numbers.created = counts::num_started();
        SCHED.used_ps().for_each(|p| count_p(numbers, p));
        numbers.runnable += numbers.local_queues;
        numbers.timers += timers::num_global_timers() as u64;
        (numbers.steals, numbers.stolen) = SCHED
            .all_ps()
            .map(P::steals)
            .fold((0, 0), |sum, of_p| (sum.0 + of_p.0, sum.1 + of_p.1));
        SCHED.all_ms().for_each(|m| count_m(numbers, m));
        numbers.hand_offs_lost = counts::lost();
        (numbers.hand_offs_marked, numbers.hand_offs_unmarked) = syscall::retake_counts();
        [numbers.moved, numbers.stopped_in_place, _, numbers.put_off] = preempt::counts();
        let stacks = gosched_fiber::stack::stats();
        numbers.stacks = stacks.out as u64;
        numbers.resting_stacks = (stacks.warm + stacks.bare) as u64;
        numbers.stack_bytes = stacks.reserved as u64;
    }

    fn length_and_tick(index: usize) -> (usize, u32) {
        SCHED.p(index).map_or((0, 0), |p| (p.queue_len(), p.tick()))
    }

    fn write_ps(out: &mut dyn Write) -> fmt::Result {
        SCHED.used_ps().try_for_each(|p| {
            writeln!(
                out,
                "  P{}: status={} schedtick={} syscalltick={} m={} runqsize={} gfreecnt={} timerslen={}",
                p.id,
                p.status() as u32,
                p.tick(),
                p.syscalltick.load(Ordering::Relaxed),
                NumberOrNil(p.m().map(|m| u64::from(m.id))),
                p.queue_len(),
                p.free_g_count.load(Ordering::Relaxed),
                p.timers.len(),
            )
        })
    }

    fn write_ms(out: &mut dyn Write) -> fmt::Result {
        SCHED.all_ms().filter(|m| m.alive.load(Ordering::Relaxed)).try_for_each(|m| {
            writeln!(
                out,
                "  M{}: p={} curg={} mallocing=0 throwing=0 preemptoff= locks={} dying=0 spinning={} \
                 blocked={} lockedg={}",
                m.id,
                NumberOrNil(m.p().map(|p| u64::from(p.id))),
                NumberOrNil(m.curg().map(G::id)),
                m.carrier.preempt_disable_count(),
                m.spinning.is_spinning(),
                m.is_blocked(),
                NumberOrNil(m.locked_g().map(G::id)),
            )
        })
    }

    fn m_of(g: &'static G) -> Option<u64> {
        runner_of(g).map(|m| u64::from(m.id))
    }

    fn locked_m_of(g: &'static G) -> Option<u64> {
        let locked = g.os_thread_lock_count.load(Ordering::Relaxed) > 0;
        g.pinned.get().filter(|_| locked).map(|m| u64::from(m.id))
    }

    fn num_goroutines() -> usize {
        counts::num_goroutines()
    }

    fn cpu_time() -> u64 {
        counts::cpu_time()
    }
}

/// As [`Tables::head`], for a caller that must not wait for the lock: counts the Ms instead.
pub(crate) fn header_without_lock() -> TraceHeader {
    let ms = || SCHED.all_ms().filter(|m| m.alive.load(Ordering::Relaxed));
    let sleeps = |m: &&M| m.is_blocked() || m.in_poller.get();
    TraceHeader {
        threads: ms().count() + helper_threads(),
        idle_ms: ms().filter(|m| sleeps(m) && m.curg().is_none() && m.locked_g().is_none()).count(),
        queued: SCHED.queued.load(Ordering::Relaxed),
        locked_ms: ms().filter(|m| sleeps(m) && m.locked_g().is_some()).count() as u32,
        ..without_lock()
    }
}

fn without_lock() -> TraceHeader {
    TraceHeader {
        procs: SCHED.procs(),
        idle_ps: SCHED.counts.idle_ps(),
        spinning: SCHED.counts.spinning(),
        stopping: stopping::is_stopping(),
        sysmon_sleeps: sysmon_alarm::is_asleep(),
        ..TraceHeader::default()
    }
}

fn helper_threads() -> usize {
    HELPER_THREADS.load(Ordering::Relaxed) as usize
}

/// Returns the M that runs `g`.
pub(crate) fn runner_of(g: &'static G) -> Option<&'static M> {
    SCHED.all_ms().find(|m| m.curg().is_some_and(|other| std::ptr::eq(other, g)))
}

/// Returns the M whose thread has this id.
pub(crate) fn with_thread(id: i32) -> Option<&'static M> {
    SCHED.all_ms().find(|m| m.alive.load(Ordering::Relaxed) && m.tid() == id)
}

fn count_p(numbers: &mut SchedStats, p: &'static P) {
    numbers.local_queues += p.queue_len() as u64 + u64::from(p.has_run_next());
    numbers.timers += p.timers.len() as u64;
}

/// Counts the goroutine of `m`. One in a marked call, or without a P, counts as not in Go.
fn count_m(numbers: &mut SchedStats, m: &'static M) {
    let Some(g) = m.curg() else { return };
    match g.state() {
        GState::Syscall => numbers.not_in_go += 1,
        GState::Running if m.p().is_none() => numbers.not_in_go += 1,
        GState::Running => numbers.running += 1,
        _ => {}
    }
}
