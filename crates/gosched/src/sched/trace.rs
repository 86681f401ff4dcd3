//! `GODEBUG=schedtrace=N`: a line about the scheduler every N milliseconds, in Go's format.

use super::num_threads;
use super::state::SCHED;
use crate::sys::fatal::Stderr;
use crate::sys::{clock, godebug};
use std::fmt::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often, in nanoseconds; 0: never.
static PERIOD: AtomicU64 = AtomicU64::new(0);

/// When the next one is due.
static DUE: AtomicU64 = AtomicU64::new(u64::MAX);

/// When the runtime started.
static START: OnceLock<u64> = OnceLock::new();

/// Reads the environment: called once, when the runtime starts.
pub(crate) fn start() {
    let now = *START.get_or_init(clock::real_now);
    let period = godebug::value("schedtrace");
    let millis = period.and_then(|period| period.parse::<u64>().ok()).unwrap_or(0);
    if millis > 0 {
        PERIOD.store(millis.saturating_mul(1_000_000), Ordering::Relaxed);
        DUE.store(now, Ordering::Relaxed);
    }
}

pub(crate) fn is_on() -> bool {
    PERIOD.load(Ordering::Relaxed) > 0
}

/// How long until the next line.
pub(crate) fn until_due(now: u64) -> u64 {
    DUE.load(Ordering::Relaxed).saturating_sub(now)
}

/// By the watcher.
pub(crate) fn print_if_due(now: u64) {
    if now < DUE.load(Ordering::Relaxed) {
        return;
    }
    DUE.store(now.saturating_add(PERIOD.load(Ordering::Relaxed)), Ordering::Relaxed);
    let mut out = Stderr::new();
    let _ = write(&mut out);
    out.flush();
}

/// One line, as Go's.
pub(crate) fn write(out: &mut dyn Write) -> fmt::Result {
    let now = clock::real_now();
    let millis = (now - START.get().copied().unwrap_or(now)) / 1_000_000;
    let (procs, idle) = (SCHED.procs(), SCHED.idle_ps.load(Ordering::Relaxed));
    let spinning = SCHED.spinning.load(Ordering::Relaxed);
    let threads = num_threads();
    let locked = SCHED.lock.lock();
    let (idle_ms, queued) = (locked.idle_ms.len(), locked.queue.len());
    drop(locked);
    write!(
        out,
        "SCHED {millis}ms: gomaxprocs={procs} idleprocs={idle} threads={threads} \
         spinningthreads={spinning} needspinning=0 idlethreads={idle_ms} runqueue={queued}"
    )?;
    write!(out, " [ ")?;
    for p in SCHED.used_ps() {
        write!(out, "{} ", p.queue.len())?;
    }
    write!(out, "] schedticks=[ ")?;
    for p in SCHED.used_ps() {
        write!(out, "{} ", p.tick())?;
    }
    writeln!(out, "]")
}
