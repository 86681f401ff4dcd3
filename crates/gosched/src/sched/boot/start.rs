//! Starts the M:N scheduler: once per process, on first use. This module never falls back to OS
//! threads: `choose` does.

use crate::gmp::p::PStatus;
use crate::sched::boot::{preemption, seed, thread_maker};
use crate::sched::inspect::{dump, schedtrace, snapshot};
use crate::sched::run::steal;
use crate::sched::state::global::{MAX_PROCS, SCHED};
use crate::sched::state::{fork, ps};
use crate::sched::switch::{checks, first_frame, preempt, stacks};
use crate::sys::fatal::warning;
use crate::sys::{cpu_limit, fatal};
use gosched_fiber::Size;
use std::sync::atomic::Ordering;

/// Creates the Ps and starts the thread maker. Returns the number of Ps.
/// Go: schedinit.
///
/// # Errors
/// The system does not support goroutines, or refuses a thread. The error states the reason; the
/// caller falls back to OS threads.
pub(crate) fn start() -> Result<usize, String> {
    gosched_fiber::support().map_err(ToString::to_string)?;
    let size = Size::from_environment().or_else(|why| {
        warning!("{why}: using the default");
        Size::standard().map_err(|why| why.to_string())
    })?;
    let size = *ps::STACK_SIZE.get_or_init(|| size);
    seed::start();
    steal::read_topology();
    fork::install();
    fatal::set_dump(&(dump::write_all as fatal::Dump));
    stacks::FIRST_FRAMES.set(&first_frame::FIRST_FRAMES);
    preempt::SNAPSHOT_SERVER.set(&(snapshot::answer_request as preempt::SnapshotServer));
    gosched_alloc::set_check(&(checks::check_allocation as fn()));
    let procs = cpu_limit::initial_procs().clamp(1, MAX_PROCS);
    ps::make_ps(procs, size);
    steal::set_coprimes(steal::coprimes_for(procs));
    SCHED.procs.store(procs as u32, Ordering::Relaxed);
    {
        let mut locked = SCHED.lock.lock();
        // Pushed in reverse order, so that P0 is acquired first.
        for p in SCHED.used_ps().collect::<Vec<_>>().into_iter().rev() {
            p.change_status(PStatus::Idle);
            locked.push_idle_p(p);
        }
    }
    schedtrace::start();
    preemption::start();
    thread_maker::start()
        .map_err(|why| format!("cannot start the thread that creates threads: {why}"))?;
    Ok(procs)
}
