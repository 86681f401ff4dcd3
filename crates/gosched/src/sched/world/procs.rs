//! Changes the number of Ps. This module never frees a P: a later increase reuses the Ps that were
//! removed.

use crate::probe::field::StopReason;
use crate::sched::run::steal;
use crate::sched::state::global::{MAX_PROCS, SCHED};
use crate::sched::state::{available_cpu, ps};
use crate::sched::world;
use crate::sys::cpu_limit;
use std::sync::atomic::{AtomicBool, Ordering};

/// Sets the number of Ps, one change at a time. Returns the previous number.
pub(crate) fn set_procs(procs: usize) -> usize {
    change_procs(procs, || true)
}

/// Like [`set_procs`], unless the program has chosen a number itself meanwhile.
/// Go: updateMaxProcsGoroutine.
pub(crate) fn follow_cpu_limit(procs: usize) {
    change_procs(procs, || !cpu_limit::is_procs_fixed());
}

/// Sets the number of Ps to `procs`, if `is_wanted` returns true once no other change is in
/// progress. Returns the previous number.
/// Go: GOMAXPROCS.
fn change_procs(procs: usize, is_wanted: impl FnOnce() -> bool) -> usize {
    let procs = procs.min(MAX_PROCS);
    let mut tries = 0;
    // PAIR changing-procs: sees the previous change.
    while CHANGING.swap(true, Ordering::Acquire) {
        world::wait_for_another_stopper(&mut tries);
    }
    let procs = if is_wanted() { procs } else { SCHED.procs() };
    ps::make_more_ps(procs);
    let before = SCHED.procs();
    if procs != before {
        let table = steal::coprimes_for(procs);
        world::with_world_stopped(StopReason::SetProcs, |stopped| {
            world::proc_resize(stopped, procs);
            steal::set_coprimes(table);
        });
        available_cpu::record_procs(procs);
    }
    // PAIR changing-procs: publishes this change.
    CHANGING.store(false, Ordering::Release);
    before
}

static CHANGING: AtomicBool = AtomicBool::new(false);
