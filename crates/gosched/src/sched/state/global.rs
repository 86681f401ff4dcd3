//! What all Ms share: the global queue, idle Ms and Ps, counts. One per process.
//!
//! What is in [`Locked`] is under the lock. The counts beside it are written under the lock (but for
//! [`Sched::spinning`]) and read without: a reader that must not miss a change uses the barriers of
//! `wake`.

use crate::gmp::g::G;
use crate::gmp::global_queue::GlobalQueue;
use crate::gmp::intrusive_stack::IntrusiveStack;
use crate::gmp::list::GList;
use crate::gmp::m::M;
use crate::gmp::note::Note;
use crate::gmp::p::P;
use crate::gmp::poll_role::PollRole;
use crate::sys::Lock;
use crate::sys::cache_padded::CachePadded;
use gosched_fiber::exit_guard;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// More Ps than this cannot be asked for.
pub(crate) const MAX_PROCS: usize = 4096;

/// See the top of this file. What is written at each yield, what is written when an M comes or goes,
/// and what hardly ever changes lie on different cache lines: every yield reads the last two.
/// Go: schedt.
#[repr(C)]
pub(crate) struct Sched {
    pub(crate) lock: CachePadded<Lock<Locked>>,
    /// Length of the global queue.
    pub(crate) queued: AtomicUsize,
    /// How many Ps are idle.
    pub(crate) idle_ps: CachePadded<AtomicU32>,
    /// How many Ms look for work, with a P, or will as soon as they run.
    pub(crate) spinning: AtomicU32,
    /// How many Ps there are.
    pub(crate) procs: CachePadded<AtomicU32>,
    /// What every M looks at between goroutines: [`STOPPING`] and its kin. Written under the lock.
    attention: AtomicU32,
    /// All Ps ever made; the first `procs` are in use.
    ps: [AtomicPtr<P>; MAX_PROCS],
    /// The M made last.
    pub(crate) last_m: AtomicPtr<M>,
    /// Goroutines started by ordinary threads.
    pub(crate) foreign_goroutines: AtomicU64,
    next_id: CachePadded<AtomicU64>,
}

/// What is under the lock.
#[derive(Debug)]
pub(crate) struct Locked {
    pub(crate) queue: GlobalQueue,
    pub(crate) idle_ps: IntrusiveStack<P>,
    pub(crate) idle_ms: IntrusiveStack<M>,
    /// Of these, the one that wakes for the next timer.
    pub(crate) timekeeper: Option<&'static M>,
    /// The role of the M that sleeps in the poller.
    pub(crate) poller: PollRole<M>,
    /// Ps for which no M was there: the thread maker makes one.
    pub(crate) orphans: IntrusiveStack<P>,
    /// Ms whose thread has ended.
    pub(crate) dead_ms: IntrusiveStack<M>,
    /// Dead Gs.
    pub(crate) free: GList,
    /// Runnable Gs for which there was no stack.
    pub(crate) stackless: GList,
    /// Ms that have a thread, or are about to.
    pub(crate) ms: u32,
    pub(crate) next_m_id: u32,
    /// Ms asleep until the goroutine they are locked to, or were stopped with, can run.
    pub(crate) locked_ms: u32,
    /// Of these, those that were stopped with it.
    pub(crate) stopped_ms: u32,
    /// Ms that are blocked in the kernel, and whose P was taken.
    pub(crate) blocked_ms: u32,
    /// Ps that have not stopped yet.
    pub(crate) stop_wait: u32,
    /// The system refused a thread: said once.
    pub(crate) refusal_reported: bool,
    /// When the last M asleep looks whether this is a deadlock; 0: that was never asked.
    pub(crate) deadlock_check_at: u64,
    /// It has looked, and nothing has run since.
    pub(crate) has_checked_deadlock: bool,
}

/// Every so many slices a P looks at the global queue first (Go's number): small enough that Gs
/// there do not starve, large enough that its lock is not fought for.
/// Go: the 61 in findRunnable.
pub(crate) const GLOBAL_QUEUE_INTERVAL_TICKS: u32 = 61;

/// The world is to stop, or has stopped.
/// Go: sched.gcwaiting.
pub(crate) const STOPPING: u32 = 1;
/// A G was interrupted, and is to go on before others.
pub(crate) const INTERRUPTED: u32 = 2;
/// Many Ms are stopped with their goroutines: those go on before others begin.
pub(crate) const TOO_MANY_STOPPED: u32 = 4;

/// The one there is.
/// Go: sched.
pub(crate) static SCHED: Sched = Sched {
    lock: CachePadded::new(Lock::new(Locked {
        queue: GlobalQueue::new(),
        idle_ps: IntrusiveStack::new(),
        idle_ms: IntrusiveStack::new(),
        timekeeper: None,
        poller: PollRole::new(),
        orphans: IntrusiveStack::new(),
        dead_ms: IntrusiveStack::new(),
        free: GList::new(),
        stackless: GList::new(),
        ms: 0,
        next_m_id: 0,
        locked_ms: 0,
        stopped_ms: 0,
        blocked_ms: 0,
        stop_wait: 0,
        refusal_reported: false,
        deadlock_check_at: 0,
        has_checked_deadlock: false,
    })),
    queued: AtomicUsize::new(0),
    idle_ps: CachePadded::new(AtomicU32::new(0)),
    spinning: AtomicU32::new(0),
    procs: CachePadded::new(AtomicU32::new(0)),
    attention: AtomicU32::new(0),
    ps: [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_PROCS],
    last_m: AtomicPtr::new(std::ptr::null_mut()),
    foreign_goroutines: AtomicU64::new(0),
    next_id: CachePadded::new(AtomicU64::new(FIRST_ID)),
};

/// Where whoever stops the world waits for it.
/// Go: sched.stopnote.
pub(crate) static STOP_NOTE: LazyLock<Note> = LazyLock::new(Note::new);

/// 1 is main's.
const FIRST_ID: u64 = 2;

/// How many ids a P takes at a time, as Go.
/// Go: _GoidCacheBatch.
pub(crate) const ID_BATCH: u64 = 16;

impl Sched {
    #[inline]
    pub(crate) fn procs(&self) -> usize {
        self.procs.load(Ordering::Relaxed) as usize
    }

    /// No P is in use.
    pub(crate) fn is_idle(&self) -> bool {
        self.idle_ps.load(Ordering::Relaxed) as usize == self.procs()
    }

    /// What Ms must look at; 0: nothing.
    #[inline]
    pub(crate) fn attention(&self) -> u32 {
        self.attention.load(Ordering::Relaxed)
    }

    /// The P of that number, if it was ever made.
    #[inline]
    pub(crate) fn p(&self, index: usize) -> Option<&'static P> {
        // PAIR all-ps: sees a P whole.
        let p = self.ps.get(index)?.load(Ordering::Acquire);
        // SAFETY: null, or a P: they are never freed.
        unsafe { p.as_ref() }
    }

    /// Makes the P known.
    pub(crate) fn add_p(&self, p: &'static P) {
        // PAIR all-ps: publishes the P.
        self.ps[p.id as usize].store(std::ptr::from_ref(p).cast_mut(), Ordering::Release);
    }

    /// All Ps ever made.
    pub(crate) fn all_ps(&self) -> impl Iterator<Item = &'static P> + '_ {
        (0..MAX_PROCS).map_while(|index| self.p(index))
    }

    /// Ps in use.
    pub(crate) fn used_ps(&self) -> impl Iterator<Item = &'static P> + '_ {
        (0..self.procs()).filter_map(|index| self.p(index))
    }

    /// All Ms ever made, latest first.
    pub(crate) fn all_ms(&self) -> impl Iterator<Item = &'static M> + '_ {
        // PAIR all-ms: sees an M whole.
        let mut m = self.last_m.load(Ordering::Acquire).cast_const();
        std::iter::from_fn(move || {
            // SAFETY: null, or an M: they are never freed.
            let this: &'static M = unsafe { m.as_ref() }?;
            m = this.all_link.load(Ordering::Relaxed);
            Some(this)
        })
    }

    /// The first of so many ids that nobody else gets.
    pub(crate) fn take_ids(&self, count: u64) -> u64 {
        self.next_id.fetch_add(count, Ordering::Relaxed)
    }
}

impl Locked {
    /// To the tail of the global queue.
    /// Go: globrunqput.
    #[inline]
    pub(crate) fn push(&mut self, g: &'static G) {
        self.queue.push_back(g);
        self.publish_length();
    }

    /// From the head of the global queue.
    /// Go: globrunqget.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<&'static G> {
        let g = self.queue.pop_front();
        self.publish_length();
        g
    }

    /// Says what Ms must look at, or need not any more.
    pub(crate) fn set_attention(&self, what: u32, on: bool) {
        let rest = SCHED.attention() & !what;
        SCHED.attention.store(if on { rest | what } else { rest }, Ordering::Relaxed);
    }

    /// A G that was interrupted for another's sake: it goes on before the others.
    pub(crate) fn push_interrupted(&mut self, g: &'static G) {
        self.queue.push_interrupted(g);
        self.publish_length();
        self.set_attention(INTERRUPTED, true);
    }

    /// A G that was stopped with its M: it goes on in its turn.
    pub(crate) fn push_stopped(&mut self, g: &'static G) {
        self.queue.push_stopped(g);
        self.publish_length();
    }

    /// One that was stopped with its M, or interrupted there, whoever's turn it is.
    pub(crate) fn pop_pinned(&mut self) -> Option<&'static G> {
        let g = self.queue.pop_pinned();
        self.publish_length();
        g
    }

    /// An M more is stopped with its goroutine, or one less.
    pub(crate) fn count_stopped_m(&mut self, change: i32) {
        self.locked_ms = self.locked_ms.wrapping_add_signed(change);
        self.stopped_ms = self.stopped_ms.wrapping_add_signed(change);
        // A report may wait for a lock of a library that one of them holds.
        let crowd = if exit_guard::is_claimed() { 0 } else { (8 * SCHED.procs() as u32).max(64) };
        self.set_attention(TOO_MANY_STOPPED, self.stopped_ms > crowd);
    }

    /// To be called after each change of the global queue.
    #[inline]
    pub(crate) fn publish_length(&self) {
        SCHED.queued.store(self.queue.len(), Ordering::Relaxed);
        if SCHED.attention() & INTERRUPTED != 0 && !self.queue.has_interrupted() {
            self.set_attention(INTERRUPTED, false);
        }
    }
}
