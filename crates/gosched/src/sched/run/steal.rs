//! Steals Gs from other Ps: half of the queue of a random P, with Ps of the same NUMA node first.
//! This module never decides which Ms may steal: `find` does.

use crate::gmp::g::G;
use crate::gmp::p::{P, PStatus};
use crate::gmp::token::OwnedP;
use crate::protocol::run_queue::Stolen;
use crate::sched::state::global::SCHED;
use crate::sched::state::stopping;
use crate::sys::Lock;
use crate::sys::topology::{Coprimes, StealOrder, Topology};
use gosched_fiber::base::atomic_ref::AtomicRef;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

/// How many times a thief tries all other Ps. In the last pass it also takes a P's `run_next`.
/// Go: stealTries.
const STEAL_TRIES: usize = 4;

/// How long a thief asks the system to sleep before it takes a P's `run_next`. Meanwhile the victim
/// can run that G itself, as it does if its running G parks right after making that G ready. The
/// actual sleep takes about 60 µs.
const NAP: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 3_000 };

fn nap() {
    // SAFETY: `nanosleep` reads `NAP`; the null pointer means that the remaining time is not
    // needed.
    unsafe { libc::nanosleep(&NAP, std::ptr::null_mut()) };
}

/// Steals from other Ps for the owner of `p`, whose queue is empty (except in the seeded mode).
/// Returns the P that was stolen from, and what: one G to run, the others are in the queue of `p`.
/// Go: stealWork.
///
/// If Gs on other Ps keep passing control to each other through `run_next`, there seems to be a G
/// to steal on each pass, but there is none. The thief then naps and stays a spinner. If it went to
/// sleep instead, the next G that is made ready would wake it.
pub(crate) fn steal(mut p: OwnedP<'_>) -> Option<(&'static P, Stolen<G>)> {
    let coprimes = coprimes()?;
    loop {
        let turns = total_run_next_takes();
        for pass in 0..STEAL_TRIES {
            let stolen = steal_once(p.lend(), coprimes, pass == STEAL_TRIES - 1);
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
    SCHED.used_ps().fold(0, |sum, p| sum.wrapping_add(p.run_next_takes()))
}

/// Tries to steal from each other P once. Takes a `run_next` only if `last` is set.
/// Go: runqsteal for each victim.
fn steal_once(p: OwnedP<'_>, coprimes: &Coprimes, last: bool) -> Option<(&'static P, Stolen<G>)> {
    let node = p.node.load(Ordering::Relaxed);
    let near = |index: usize| {
        SCHED.p(index).is_none_or(|victim| victim.node.load(Ordering::Relaxed) == node)
    };
    StealOrder::new(coprimes, p.random.next(), near).find_map(|index| {
        let other = |victim: &&'static P| victim.id != p.id && victim.status() != PStatus::Dead;
        let victim = SCHED.p(index).filter(other)?;
        let stolen = p.steal_from(victim, last.then_some(nap as fn()))?;
        Some((victim, stolen))
    })
}

/// The step sizes for walks through the current Ps. A replaced table is never freed: a thief may be
/// using it.
static COPRIMES: AtomicRef<Coprimes> = AtomicRef::new();

fn coprimes() -> Option<&'static Coprimes> {
    COPRIMES.load()
}

/// All tables made so far, by number of Ps, for reuse.
static TABLES: Lock<Vec<(usize, &'static Coprimes)>> = Lock::new(Vec::new());

/// Returns the table for `procs` Ps. May allocate. [`set_coprimes`] puts the table into use.
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
    COPRIMES.store(Some(table));
}

static TOPOLOGY: OnceLock<Topology> = OnceLock::new();

/// Reads the NUMA topology. The first call allocates.
pub(crate) fn read_topology() {
    TOPOLOGY.get_or_init(|| Topology::read(Path::new("/")));
}

/// Returns the NUMA node of the CPU that the calling thread runs on. Returns 0 on a machine with
/// one node.
pub(crate) fn current_node() -> u32 {
    let Some(topology) = TOPOLOGY.get().filter(|topology| topology.nodes() > 1) else { return 0 };
    // SAFETY: `sched_getcpu` has no precondition.
    let cpu = unsafe { libc::sched_getcpu() };
    usize::try_from(cpu).map_or(0, |cpu| topology.node_of(cpu) as u32)
}
