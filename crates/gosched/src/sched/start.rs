//! The runtime's first moment: once per process, on first use.

use crate::gmp::m::M;
use crate::gmp::p::PStatus;
use crate::sched::run::steal;
use crate::sched::state::global::{MAX_PROCS, SCHED, STOPPED};
use crate::sched::state::{fork, ps, thread_requests};
use crate::sched::switch::preempt;
use crate::sched::{chaos, dump, moving, spawner, trace};
use crate::sys::fatal::warning;
use crate::sys::{cpu_limit, fatal};
use gosched_context::Size;
use std::sync::atomic::Ordering;

/// Makes the Ps and starts the spawner.
///
/// # Errors
/// Why goroutines cannot be had here: they will be threads.
pub(crate) fn start() -> Result<(), String> {
    gosched_context::support().map_err(ToString::to_string)?;
    let size = Size::from_environment().or_else(|why| {
        warning!("{why}: using the default");
        Size::standard().map_err(|why| why.to_string())
    })?;
    let size = *ps::SIZE.get_or_init(|| size);
    chaos::start();
    std::sync::LazyLock::force(&STOPPED);
    steal::read_topology();
    fork::install();
    fatal::set_dump(dump::all);
    gosched_alloc::set_check(moving::check_allocation);
    let procs = cpu_limit::start_procs().clamp(1, MAX_PROCS);
    ps::make_ps(procs, size);
    steal::use_table(steal::table_for(procs));
    SCHED.procs.store(procs as u32, Ordering::Relaxed);
    {
        let mut locked = SCHED.lock.lock();
        // The first one is the first to be taken.
        for p in SCHED.used_ps().collect::<Vec<_>>().into_iter().rev() {
            p.set_status(PStatus::Idle);
            locked.push_idle_p(p);
        }
    }
    trace::start();
    preempt::start();
    spawner::start().map_err(|why| format!("a thread to make threads: {why}"))
}

/// Makes the calling thread, the process's first, an M with a P. It is to run `schedule::live`.
pub(crate) fn main_m() -> &'static M {
    let mut locked = SCHED.lock.lock();
    let id = locked.next_m;
    locked.next_m += 1;
    locked.ms += 1;
    let p = locked.pop_idle_p();
    drop(locked);
    let m = spawner::new_m(id);
    m.alive.store(true, Ordering::Relaxed);
    m.set_main(true);
    if let Some(p) = p {
        m.acquire_p(p);
    }
    // One in stock, and a watcher.
    thread_requests::ask();
    m
}
