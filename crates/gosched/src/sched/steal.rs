//! Work from other Ps: half of a random one's queue, those of the same NUMA node first.

use super::state::SCHED;
use crate::gmp::g::G;
use crate::gmp::p::{P, PStatus};
use crate::sys::topology::{Coprimes, StealOrder, Topology};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// How often all others are asked; the last time also for the G that is to run next.
const PASSES: usize = 4;

/// About 3 µs: time for the victim to run its next G itself, as it does when it made that one ready
/// just before it parks.
const PAUSES: u32 = 120;

fn pause() {
    for _ in 0..PAUSES {
        std::hint::spin_loop();
    }
}

/// A G of another P, for the owner of `p`, whose queue is empty. What was stolen with it is in that
/// queue.
pub(crate) fn steal(p: &'static P) -> Option<&'static G> {
    let coprimes = coprimes()?;
    for pass in 0..PASSES {
        let last = pass == PASSES - 1;
        let node = p.node.load(Ordering::Relaxed);
        let near = |index: usize| {
            SCHED.p(index).is_none_or(|victim| victim.node.load(Ordering::Relaxed) == node)
        };
        for index in StealOrder::new(coprimes, p.random.next(), near) {
            let Some(victim) = SCHED.p(index) else { continue };
            if victim.id == p.id || victim.status() == PStatus::Dead {
                continue;
            }
            let stolen = victim.queue.steal_into(&p.queue, last.then_some(pause as fn()));
            if stolen.is_some() {
                return stolen;
            }
        }
        if SCHED.stopping.load(Ordering::Relaxed) {
            return None;
        }
    }
    None
}

/// Steps through the Ps there are now. Replaced, never freed: a thief may still walk by it.
static COPRIMES: AtomicPtr<Coprimes> = AtomicPtr::new(std::ptr::null_mut());

fn coprimes() -> Option<&'static Coprimes> {
    // PAIR coprimes: sees the table whole.
    let table = COPRIMES.load(Ordering::Acquire);
    // SAFETY: null, or a table: they are never freed.
    unsafe { table.as_ref() }
}

/// Makes a table for `procs` Ps: allocates. To be put in force by [`use_table`].
pub(crate) fn new_table(procs: usize) -> &'static Coprimes {
    Box::leak(Box::new(Coprimes::new(procs)))
}

pub(crate) fn use_table(table: &'static Coprimes) {
    // PAIR coprimes: publishes the table.
    COPRIMES.store(std::ptr::from_ref(table).cast_mut(), Ordering::Release);
}

static TOPOLOGY: OnceLock<Topology> = OnceLock::new();

/// Reads the topology: allocates, once.
pub(crate) fn read_topology() {
    TOPOLOGY.get_or_init(|| Topology::read(Path::new("/")));
}

/// The node the calling thread runs on now.
pub(crate) fn node_here() -> u32 {
    let Some(topology) = TOPOLOGY.get().filter(|topology| topology.nodes() > 1) else { return 0 };
    // SAFETY: asks for a number.
    let cpu = unsafe { libc::sched_getcpu() };
    usize::try_from(cpu).map_or(0, |cpu| topology.node_of(cpu) as u32)
}
