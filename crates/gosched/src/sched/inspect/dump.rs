//! Prints every G, M and P, for a fatal error. Code here never allocates and never takes a lock:
//! the code that failed may hold any lock.

use crate::gmp::g::G;
use crate::gmp::slab;
use crate::sched::inspect::contract::Tables;
use crate::sched::inspect::{schedtrace, tables};
use crate::sched::state::multi_thread::MultiThread;
use crate::sched::world;
use crate::sys::fatal::Stderr;
use std::fmt::Write;
use std::sync::atomic::Ordering;

/// Writes everything in the format of `schedtrace`, when an invariant is broken and the process
/// ends.
pub(crate) fn write_all(out: &mut Stderr) {
    let _ = schedtrace::detailed_head(out, &tables::header_without_lock());
    let _ = MultiThread::write_ps(out);
    let _ = MultiThread::write_ms(out);
    match world::last_reason() {
        "" => {}
        reason => drop(writeln!(out, "last stop of the world: {reason}")),
    }
    if let Some(seed) = crate::sys::random::explicit_seed() {
        let _ = writeln!(out, "GOSCHED_SEED={seed}");
    }
    goroutines(out);
}

/// Prints all goroutines without their frames on standard error. Allocates nothing and takes no
/// lock.
/// Go: tracebackothers, without frames.
pub(crate) fn print_goroutines() {
    let mut out = Stderr::new();
    goroutines(&mut out);
    out.flush();
}

/// Writes goroutines without their frames: locks may be held, and memory may be corrupt.
fn goroutines(out: &mut Stderr) {
    slab::live().for_each(|g| goroutine(out, g));
}

fn goroutine(out: &mut Stderr, g: &'static G) {
    let what = G::status_text(g.state(), g.reason());
    let locked =
        if g.os_thread_lock_count.load(Ordering::Relaxed) > 0 { ", locked to thread" } else { "" };
    let _ = writeln!(out, "\ngoroutine {}{} [{what}{locked}]:", g.id(), g.short_name());
    if let Some(site) = g.site().filter(|_| g.parent() != 0) {
        let _ = writeln!(out, "created by goroutine {}\n\t{site}", g.parent());
    }
}
