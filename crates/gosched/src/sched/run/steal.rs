//! Work from other Ps: half of a random one's queue, those of the same NUMA node first.

use crate::gmp::g::G;
use crate::gmp::p::{P, PStatus};
use crate::sched::state::global::SCHED;
use crate::sched::state::stopping;
use crate::sys::Lock;
use crate::sys::topology::{Coprimes, StealOrder, Topology};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// How often all others are asked; the last time also for the G that is to run next.
/// Go: stealTries.
const STEAL_TRIES: usize = 4;

/// What a thief asks the system to sleep before it takes the G that is to run next: time for the
/// victim to run it itself, as it does when it made that one ready just before it parks. The system
/// makes about 60 µs of it.
const NAP: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 3_000 };

fn nap() {
    // SAFETY: reads the time given; what is left of it is not asked for.
    unsafe { libc::nanosleep(&NAP, std::ptr::null_mut()) };
}

/// A G of another P, for the owner of `p`, whose queue is empty. What was stolen with it is in that
/// queue.
/// Go: stealWork.
///
/// Where others pass control to and fro by `run_next` there is nothing to steal, but each time there
/// seems to be: the thief then naps, still as one who looks, rather than fall asleep and be woken by
/// the next of them.
pub(crate) fn steal(p: &'static P) -> Option<&'static G> {
    let coprimes = coprimes()?;
    loop {
        let turns = total_run_next_takes();
        for pass in 0..STEAL_TRIES {
            let stolen = steal_once(p, coprimes, pass == STEAL_TRIES - 1);
            if stolen.is_some() || stopping::is_stopping() {
                return stolen;
            }
        }
        if total_run_next_takes() == turns || SCHED.queued.load(Ordering::Relaxed) > 0 {
            return None;
        }
        nap();
    }
}

fn total_run_next_takes() -> u32 {
    SCHED.used_ps().fold(0, |sum, p| sum.wrapping_add(p.queue.run_next_takes()))
}

/// Asks each other P once.
/// Go: runqsteal for each victim.
fn steal_once(p: &'static P, coprimes: &Coprimes, last: bool) -> Option<&'static G> {
    let node = p.node.load(Ordering::Relaxed);
    let near = |index: usize| {
        SCHED.p(index).is_none_or(|victim| victim.node.load(Ordering::Relaxed) == node)
    };
    StealOrder::new(coprimes, p.random.next(), near).find_map(|index| {
        let other = |victim: &&'static P| victim.id != p.id && victim.status() != PStatus::Dead;
        let victim = SCHED.p(index).filter(other)?;
        victim.queue.steal_into(&p.queue, last.then_some(nap as fn()))
    })
}

/// Steps through the Ps there are now. Replaced, never freed: a thief may still walk by it.
static COPRIMES: AtomicPtr<Coprimes> = AtomicPtr::new(std::ptr::null_mut());

fn coprimes() -> Option<&'static Coprimes> {
    // PAIR coprimes: sees the table whole.
    let table = COPRIMES.load(Ordering::Acquire);
    // SAFETY: null, or a table: they are never freed.
    unsafe { table.as_ref() }
}

/// Tables made so far: the same number may come again.
static TABLES: Lock<Vec<(usize, &'static Coprimes)>> = Lock::new(Vec::new());

/// The table for `procs` Ps: may allocate. To be put in force by [`set_coprimes`].
pub(crate) fn coprimes_for(procs: usize) -> &'static Coprimes {
    let mut tables = TABLES.lock_preemptible();
    if let Some((_, table)) = tables.iter().find(|(count, _)| *count == procs) {
        return table;
    }
    let table = Box::leak(Box::new(Coprimes::new(procs)));
    tables.push((procs, table));
    table
}

pub(crate) fn set_coprimes(table: &'static Coprimes) {
    // PAIR coprimes: publishes the table.
    COPRIMES.store(std::ptr::from_ref(table).cast_mut(), Ordering::Release);
}

static TOPOLOGY: OnceLock<Topology> = OnceLock::new();

/// Reads the topology: allocates, once.
pub(crate) fn read_topology() {
    TOPOLOGY.get_or_init(|| Topology::read(Path::new("/")));
}

/// The node the calling thread runs on now.
pub(crate) fn current_node() -> u32 {
    let Some(topology) = TOPOLOGY.get().filter(|topology| topology.nodes() > 1) else { return 0 };
    // SAFETY: asks for a number.
    let cpu = unsafe { libc::sched_getcpu() };
    usize::try_from(cpu).map_or(0, |cpu| topology.node_of(cpu) as u32)
}
