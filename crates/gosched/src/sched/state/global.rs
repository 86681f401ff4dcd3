//! The state that all Ms share: the global queue, the idle Ms and Ps, and counts. One per process.
//!
//! The fields of [`Locked`] are accessed under the lock. The length of the global queue and the
//! number of idle Ps are written under the lock and read without it. The other fields are atomics
//! that are written without it. A reader that must not miss a change uses the barriers described in
//! `protocol::waking`.
//!
//! Code here never takes the lock and never wakes an M: its callers do both.

use crate::gmp::g::G;
use crate::gmp::global_queue::GlobalQueue;
use crate::gmp::list::{GList, List};
use crate::gmp::m::M;
use crate::gmp::p::P;
use crate::gmp::state::GState;
use crate::protocol::attention::{Attention, AttentionFlag};
use crate::protocol::note::Note;
use crate::protocol::poll_role::PollRole;
use crate::protocol::waking::WakeCounts;
use crate::protocol::world_stop::StopCount;
use crate::sys::Lock;
use crate::sys::cache_padded::CachePadded;
use crate::sys::fatal::fatal;
use gosched_fiber::base::atomic_ref::AtomicRef;
use gosched_fiber::exit_guard;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Maximum number of Ps.
pub(crate) const MAX_PROCS: usize = 4096;

/// See the top of this file. Three groups of fields lie on different cache lines: those written at
/// each yield, those written when an M sleeps or wakes, and those that hardly ever change. Every
/// yield reads the last two groups.
/// Go: schedt.
#[repr(C)]
pub(crate) struct Sched {
    pub(crate) lock: CachePadded<Lock<Locked>>,
    /// Length of the global queue.
    pub(crate) queued: AtomicUsize,
    /// Numbers of idle Ps and of spinning Ms.
    pub(crate) counts: WakeCounts,
    /// Number of Ps in use.
    pub(crate) procs: CachePadded<AtomicU32>,
    /// Flags that every M checks between goroutines. Written under the lock.
    pub(crate) attention: Attention,
    /// All Ps ever created; the first `procs` are in use.
    ps: [AtomicRef<P>; MAX_PROCS],
    /// The M created last: the head of the list of all Ms.
    pub(crate) last_m: AtomicRef<M>,
    /// Number of goroutines started by ordinary threads.
    pub(crate) foreign_goroutines: AtomicU64,
    next_id: CachePadded<AtomicU64>,
}

/// The fields that the lock protects.
#[derive(Debug)]
pub(crate) struct Locked {
    pub(crate) queue: GlobalQueue,
    pub(crate) idle_ps: List<P>,
    pub(crate) idle_ms: List<M>,
    /// The idle M that wakes for the next timer.
    pub(crate) timekeeper: Option<&'static M>,
    /// The role of poller, which the M that sleeps in the poller holds.
    pub(crate) poller: PollRole<M>,
    /// Ps for which there was no M: the thread maker creates one.
    pub(crate) orphans: List<P>,
    /// Ms whose thread has ended; their records are reused.
    pub(crate) dead_ms: List<M>,
    /// Dead Gs, for reuse.
    pub(crate) free: GList,
    /// Runnable Gs for which there was no memory for a stack.
    pub(crate) stackless: GList,
    /// Number of Ms that have a thread or are about to.
    pub(crate) ms: u32,
    pub(crate) next_m_id: u32,
    /// Number of Ms that sleep until the G that they are locked to, or were stopped with, can run.
    pub(crate) locked_ms: u32,
    /// The part of `locked_ms` that was stopped in place.
    pub(crate) stopped_ms: u32,
    /// Number of Ms that are blocked in a call and whose P was taken.
    pub(crate) blocked_ms: u32,
    /// Number of Ps that have not stopped yet, while the world stops.
    pub(crate) stop_count: StopCount,
    /// Whether the program was already warned that the system refuses threads.
    pub(crate) refusal_reported: bool,
    /// When the last M asleep checks for a deadlock; 0 if no check was ever scheduled.
    pub(crate) deadlock_check_at: u64,
    /// Whether that check was made, and no G has run since.
    pub(crate) has_checked_deadlock: bool,
}

/// A P takes from the global queue first once in this many slices (Go's number): often enough that
/// Gs there do not starve, seldom enough that its lock is not contended.
/// Go: the 61 in findRunnable.
pub(crate) const GLOBAL_QUEUE_INTERVAL_TICKS: u32 = 61;

/// The scheduler's state.
/// Go: sched.
pub(crate) static SCHED: Sched = Sched {
    lock: CachePadded::new(Lock::new(Locked {
        queue: GlobalQueue::new(),
        idle_ps: List::new(),
        idle_ms: List::new(),
        timekeeper: None,
        poller: PollRole::new(),
        orphans: List::new(),
        dead_ms: List::new(),
        free: GList::new(),
        stackless: GList::new(),
        ms: 0,
        next_m_id: 0,
        locked_ms: 0,
        stopped_ms: 0,
        blocked_ms: 0,
        stop_count: StopCount::new(),
        refusal_reported: false,
        deadlock_check_at: 0,
        has_checked_deadlock: false,
    })),
    queued: AtomicUsize::new(0),
    counts: WakeCounts::new(),
    procs: CachePadded::new(AtomicU32::new(0)),
    attention: Attention::new(),
    ps: [const { AtomicRef::new() }; MAX_PROCS],
    last_m: AtomicRef::new(),
    foreign_goroutines: AtomicU64::new(0),
    next_id: CachePadded::new(AtomicU64::new(FIRST_ID)),
};

/// The note on which the thread that stops the world sleeps.
/// Go: sched.stopnote.
pub(crate) static STOP_NOTE: Note = Note::new();

/// The first id after 1, which is the id of the main goroutine.
const FIRST_ID: u64 = 2;

/// Number of ids that a P takes at a time, as in Go.
/// Go: _GoidCacheBatch.
pub(crate) const ID_BATCH: u64 = 16;

impl Sched {
    #[inline]
    pub(crate) fn procs(&self) -> usize {
        self.procs.load(Ordering::Relaxed) as usize
    }

    /// Returns whether all Ps are idle.
    pub(crate) fn is_idle(&self) -> bool {
        self.counts.idle_ps() as usize == self.procs()
    }

    /// Returns the P with index `index`, or `None` if it was never created.
    #[inline]
    pub(crate) fn p(&self, index: usize) -> Option<&'static P> {
        self.ps.get(index)?.load()
    }

    /// Adds `p` to the table of Ps.
    pub(crate) fn add_p(&self, p: &'static P) {
        self.ps[p.id as usize].store(Some(p));
    }

    /// Iterates over all Ps ever created.
    pub(crate) fn all_ps(&self) -> impl Iterator<Item = &'static P> + '_ {
        (0..MAX_PROCS).map_while(|index| self.p(index))
    }

    /// Iterates over the Ps in use.
    pub(crate) fn used_ps(&self) -> impl Iterator<Item = &'static P> + '_ {
        (0..self.procs()).filter_map(|index| self.p(index))
    }

    /// Iterates over all Ms ever created, latest first.
    pub(crate) fn all_ms(&self) -> impl Iterator<Item = &'static M> + '_ {
        std::iter::successors(self.last_m.load(), |m| m.all_link.load())
    }

    /// Reserves `count` goroutine ids and returns the first.
    pub(crate) fn take_ids(&self, count: u64) -> u64 {
        self.next_id.fetch_add(count, Ordering::Relaxed)
    }
}

/// Checks what holds for every G in a queue, on hot paths in builds with debug assertions only.
/// Each G that runs is checked in all builds: see `G::transition`.
#[inline]
pub(crate) fn check_runnable(g: &'static G) {
    if cfg!(debug_assertions) {
        require_runnable(g);
    }
}

/// Checks what holds for every G in a queue.
pub(crate) fn require_runnable(g: &'static G) {
    if g.state() != GState::Runnable {
        fatal!("goroutine {} is queued, but it is {}", g.id(), g.state().name());
    }
}

impl Locked {
    /// Appends `g` to the tail of the global queue.
    /// Go: globrunqput.
    #[inline]
    pub(crate) fn push(&mut self, g: &'static G) {
        check_runnable(g);
        self.queue.push_back(g);
        self.publish_length();
    }

    /// Takes the next G of the global queue.
    /// Go: globrunqget.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<&'static G> {
        let g = self.queue.pop_front();
        self.publish_take(g)
    }

    /// Checks a G that was taken out of the global queue, and publishes the queue's new length.
    #[inline]
    pub(crate) fn publish_take(&self, g: Option<&'static G>) -> Option<&'static G> {
        g.inspect(|g| check_runnable(g));
        self.publish_length();
        g
    }

    /// Queues a G that runs before all others: one that was interrupted to make room for another G,
    /// or one that I/O made ready while all Ps were busy.
    pub(crate) fn push_interrupted(&mut self, g: &'static G) {
        require_runnable(g);
        self.queue.push_interrupted(g);
        self.publish_length();
        SCHED.attention.set(AttentionFlag::Interrupted, true);
    }

    /// Queues a G that was stopped in place with its M. It runs in its turn.
    pub(crate) fn push_stopped(&mut self, g: &'static G) {
        require_runnable(g);
        self.queue.push_stopped(g);
        self.publish_length();
    }

    /// Takes a G that was stopped in place with its M, or an interrupted G that is pinned to an M,
    /// whatever its turn.
    pub(crate) fn pop_pinned(&mut self) -> Option<&'static G> {
        let g = self.queue.pop_pinned();
        self.publish_take(g)
    }

    /// Takes the first G that only one M can run, whatever its turn.
    pub(crate) fn remove_pinned(&mut self) -> Option<&'static G> {
        let g = self.queue.remove_pinned();
        self.publish_take(g)
    }

    /// Adds `change` to the number of Ms that are stopped in place.
    pub(crate) fn count_stopped_m(&mut self, change: i32) {
        self.locked_ms = self.locked_ms.wrapping_add_signed(change);
        self.stopped_ms = self.stopped_ms.wrapping_add_signed(change);
        // While a report is written, every stopped G has priority: the report may wait for a
        // library's lock that one of them holds.
        let crowd = if exit_guard::is_claimed() { 0 } else { (8 * SCHED.procs() as u32).max(64) };
        SCHED.attention.set(AttentionFlag::TooManyStopped, self.stopped_ms > crowd);
    }

    /// Updates [`Sched::queued`] and [`AttentionFlag::Interrupted`]. Call after each change of the
    /// global queue.
    #[inline]
    pub(crate) fn publish_length(&self) {
        SCHED.queued.store(self.queue.len(), Ordering::Relaxed);
        if SCHED.attention.is_set(AttentionFlag::Interrupted) && !self.queue.has_interrupted() {
            SCHED.attention.set(AttentionFlag::Interrupted, false);
        }
    }
}
