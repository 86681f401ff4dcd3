//! Every G, M and P in words: what a fatal error shows.

use super::state::SCHED;
use crate::gmp::g::G;
use crate::gmp::slab;
use crate::gmp::state::GState;
use crate::sys::fatal::Stderr;
use std::fmt::Write;
use std::sync::atomic::Ordering;

/// Everything: for the end after a broken rule.
pub(crate) fn all(out: &mut Stderr) {
    let _ = writeln!(
        out,
        "SCHED gomaxprocs={} idleprocs={} spinningthreads={} runqueue={} stopping={} laststop={}",
        SCHED.procs(),
        SCHED.idle_ps.load(Ordering::Relaxed),
        SCHED.spinning.load(Ordering::Relaxed),
        SCHED.queued.load(Ordering::Relaxed),
        super::world::is_stopping(),
        super::world::last_reason(),
    );
    for p in SCHED.all_ps() {
        let _ = writeln!(
            out,
            "  P{}: status={} schedtick={} syscalltick={} m={} runqsize={} runnext={}",
            p.id,
            p.status() as u32,
            p.tick(),
            p.syscalltick.load(Ordering::Relaxed),
            Number(p.m().map(|m| u64::from(m.id))),
            p.queue.len(),
            p.queue.has_next(),
        );
    }
    for m in SCHED.all_ms().filter(|m| m.alive.load(Ordering::Relaxed)) {
        let _ = writeln!(
            out,
            "  M{}: p={} curg={} locks={} spinning={} lockedg={}",
            m.id,
            Number(m.p().map(|p| u64::from(p.id))),
            Number(m.curg().map(G::id)),
            m.carrier.preempt_off_count(),
            m.spinning.load(Ordering::Relaxed),
            Number(m.locked_g().map(G::id)),
        );
    }
    goroutines(out);
}

/// `nil` as Go prints it, or the number.
struct Number(Option<u64>);

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(number) => write!(f, "{number}"),
            None => f.write_str("nil"),
        }
    }
}

/// Goroutines without their frames: locks may be held, and memory may be broken.
fn goroutines(out: &mut Stderr) {
    let live = |g: &&'static G| g.id() != 0 && !matches!(g.state(), GState::Idle | GState::Dead);
    slab::all().filter(live).for_each(|g| goroutine(out, g));
}

fn goroutine(out: &mut Stderr, g: &'static G) {
    let what = match g.state() {
        GState::Waiting => g.reason().words(),
        state => state.name(),
    };
    let locked = if g.locks.load(Ordering::Relaxed) > 0 { ", locked to thread" } else { "" };
    let _ = writeln!(out, "\ngoroutine {}{} [{what}{locked}]:", g.id(), g.short_name());
    if let Some(site) = g.site().filter(|_| g.parent() != 0) {
        let _ = writeln!(out, "created by goroutine {}\n\t{site}", g.parent());
    }
}
