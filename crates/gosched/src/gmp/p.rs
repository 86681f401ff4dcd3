//! The right to run Gs (a *P*), with the queue of its runnable Gs and the caches that new Gs come
//! from.
//!
//! Ps are allocated once and never freed. The status determines who owns a P:
//!
//! - [`PStatus::Idle`]: the list of idle Ps or of orphans, the M that the P was handed to
//!   (`P::flight`), or the thread that has just released or taken the P.
//! - [`PStatus::Running`]: the M that [`P::m`] returns.
//! - [`PStatus::Stopped`]: the thread that stopped the world.
//! - [`PStatus::Dead`]: no thread. The number of Ps is lower than it was.
//!
//! This module never decides which M gets a P.

use super::g::G;
use super::list::{GList, Linked};
use super::m::M;
use super::spin_state::SpinState;
use super::timer::TimerHeap;
use crate::protocol::hand_over::Flight;
use crate::protocol::run_queue::{CAPACITY, RunQueue};
use crate::sys::fatal::fatal;
use crate::sys::owner_cell::OwnerCell;
use crate::sys::random::Random;
use gosched_fiber::Size;
use gosched_fiber::base::atomic_ref::AtomicRef;
use gosched_fiber::stack::Cache;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The status of a P (see the top of this file), with Go's numbers. 2 was Go's status for system
/// calls.
/// Go: _Pidle, _Prunning, _Pgcstop, _Pdead.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PStatus {
    Idle = 0,
    Running = 1,
    Stopped = 3,
    Dead = 4,
}

impl PStatus {
    /// Returns whether a P with this status can have `next` as its next status.
    #[inline]
    fn can_become(self, next: PStatus) -> bool {
        use PStatus::{Dead, Idle, Running, Stopped};
        matches!(
            (self, next),
            (Idle, Running | Stopped)
                | (Running, Idle | Stopped)
                | (Stopped, Idle | Running | Dead)
                | (Dead, Idle | Stopped)
        )
    }
}

/// The right to run Gs (see the top of this file).
/// Go: p.
#[repr(align(128))]
#[derive(Debug)]
pub(crate) struct P {
    pub(crate) id: u32,
    status: AtomicU32,
    /// The M that holds the P.
    m: AtomicRef<M>,
    /// The M that the P was handed to, until an M acquires the P.
    pub(crate) flight: Flight<M>,
    /// Next P in the list that contains this P. Written by the owner of that list.
    link: AtomicRef<P>,
    /// Go: p.runq, p.runnext.
    pub(super) queue: RunQueue<G, CAPACITY>,
    /// Number of slices that started on this P. It wraps.
    pub(super) schedtick: AtomicU32,
    /// Number of Gs in a row that inherited the current slice. Owner only.
    pub(super) inherited: AtomicU32,
    /// Number of Gs in a row that I/O made ready and that ran before an interrupted G. Owner only.
    pub(crate) io_ahead_streak: AtomicU32,
    /// Number of marked calls that goroutines entered on this P. It wraps.
    pub(crate) syscalltick: AtomicU32,
    /// Number of goroutines started on this P. Owner only.
    pub(super) started: Count,
    /// Number of goroutines that ended on this P. Owner only.
    pub(super) ended: Count,
    /// Number of times the P stole Gs from other Ps. Owner only.
    pub(super) steals: Count,
    /// Number of Gs that the P stole. Owner only.
    pub(super) stolen: Count,
    /// Number of departures until the next tracked one. Owner only.
    pub(super) departures_until_tracked: AtomicU32,
    /// Number of dead Gs in the cache, for reports. Written by the owner.
    pub(crate) free_g_count: AtomicU32,
    pub(crate) random: Random,
    /// The NUMA node on which the M ran when it acquired the P.
    pub(crate) node: AtomicU32,
    /// Whether the M that gets this P is already counted as spinning. Valid while the P waits for
    /// an M to be created. Written by the owner of the P: while the P is in the list of orphans,
    /// under the scheduler's lock.
    pub(crate) for_spinner: SpinState,
    /// The heap of the timers that were started on this P.
    pub(crate) timers: TimerHeap,
    /// The caches. Owner only.
    pub(crate) caches: OwnerCell<Caches>,
}

/// Number of switches after which two Gs that keep making each other ready must let others run. A
/// pair in Go switches about this often in its slice of 10 ms; here it takes a tenth of that time.
const PAIR_BUDGET_TURNS: u32 = 20_000;

/// Width of the part of a turn number that counts the turns within one slice, in bits.
const TURN_SHIFT: u32 = 16;
const _: () = assert!(PAIR_BUDGET_TURNS < 1 << TURN_SHIFT);

/// Gs, stacks and ids that a P keeps, so that most goroutines start without access to shared data.
#[derive(Debug)]
pub(crate) struct Caches {
    /// Dead Gs for reuse.
    /// Go: p.gFree.
    pub(crate) free: GList,
    pub(crate) stacks: Cache,
    /// Number of goroutines that ended here. It wraps, and selects the stacks to trim.
    pub(crate) ends: u32,
    /// Number of batches of ids that the P took. It wraps, and selects the goroutines to track.
    pub(crate) batches: u32,
    /// Ids that are not used yet: from the first number up to, but not including, the second.
    /// Go: p.goidcache.
    pub(crate) ids: (u64, u64),
}

impl P {
    /// Allocates a P. Must not be called with preemption off.
    #[inline]
    pub(crate) fn new(id: u32, size: Size) -> &'static P {
        Box::leak(Box::new(P {
            id,
            status: AtomicU32::new(PStatus::Dead as u32),
            m: AtomicRef::new(),
            flight: Flight::new(),
            link: AtomicRef::new(),
            queue: RunQueue::new(),
            schedtick: AtomicU32::new(0),
            inherited: AtomicU32::new(0),
            io_ahead_streak: AtomicU32::new(0),
            syscalltick: AtomicU32::new(0),
            started: Count::new(),
            ended: Count::new(),
            steals: Count::new(),
            stolen: Count::new(),
            departures_until_tracked: AtomicU32::new(0),
            free_g_count: AtomicU32::new(0),
            random: Random::new(id),
            node: AtomicU32::new(0),
            for_spinner: SpinState::new(),
            timers: TimerHeap::new(),
            caches: OwnerCell::new(Caches {
                free: GList::new(),
                stacks: Cache::new(size),
                ends: 0,
                batches: 0,
                ids: (0, 0),
            }),
        }))
    }

    #[inline]
    pub(crate) fn status(&self) -> PStatus {
        match self.status.load(Ordering::Relaxed) {
            0 => PStatus::Idle,
            1 => PStatus::Running,
            3 => PStatus::Stopped,
            _ => PStatus::Dead,
        }
    }

    /// Changes the status. Called by the owner of the P.
    #[inline]
    pub(crate) fn change_status(&self, to: PStatus) {
        if !self.status().can_become(to) {
            fatal!("P{}, which is {:?}, becomes {to:?}", self.id, self.status());
        }
        self.status.store(to as u32, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn m(&self) -> Option<&'static M> {
        self.m.load()
    }

    /// Checks what holds for a P that is in a list, or about to be handed to an M: no M has the P,
    /// and it is not in flight.
    pub(crate) fn check_unowned(&self) {
        let receiver = self.flight.current().map(|(_, receiver)| receiver.id);
        if self.status() != PStatus::Idle || self.m().is_some() || receiver.is_some() {
            let holder = self.m().map(|m| m.id);
            fatal!(
                "P{} must be idle, but it is {:?}, its M is {holder:?}, and it was handed to \
                 M {receiver:?}",
                self.id,
                self.status()
            );
        }
    }

    /// Returns whether an M may acquire the P: the P is in use, and no M holds it.
    pub(crate) fn is_available(&self) -> bool {
        self.m().is_none() && matches!(self.status(), PStatus::Idle | PStatus::Stopped)
    }

    #[inline]
    pub(crate) fn set_m(&self, m: Option<&'static M>) {
        self.m.store(m);
    }

    /// Returns whether the queue is empty.
    #[inline]
    pub(crate) fn is_queue_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the number of Gs in the ring of the queue.
    #[inline]
    pub(crate) fn queue_len(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether the queue has a G in `run_next`.
    pub(crate) fn has_run_next(&self) -> bool {
        self.queue.has_run_next()
    }

    /// Returns the number of times the owner took `run_next`.
    #[inline]
    pub(crate) fn run_next_takes(&self) -> u32 {
        self.queue.run_next_takes()
    }

    /// Takes a G out of the queue of a P that no M has. The caller owns the P.
    pub(crate) fn drain(&self) -> Option<&'static G> {
        if let Some(m) = self.m() {
            fatal!("the queue of P{} is emptied although M{} has the P", self.id, m.id);
        }
        self.queue.take().map(|(g, _)| g)
    }

    /// Returns how many times the P stole Gs from other Ps, and how many Gs.
    pub(crate) fn steals(&self) -> (u64, u64) {
        (self.steals.get(), self.stolen.get())
    }

    /// Returns the number of goroutines started on this P.
    #[inline]
    pub(crate) fn started(&self) -> u64 {
        self.started.get()
    }

    /// Returns the number of goroutines that ended on this P.
    #[inline]
    pub(crate) fn ended(&self) -> u64 {
        self.ended.get()
    }

    #[inline]
    pub(crate) fn tick(&self) -> u32 {
        self.schedtick.load(Ordering::Relaxed)
    }

    /// Returns the number of the turn: it changes with each G that runs, and repeats after 65 536
    /// slices.
    #[inline]
    pub(crate) fn turn(&self) -> u32 {
        self.tick().wrapping_shl(TURN_SHIFT).wrapping_add(self.inherited())
    }

    /// Returns the number of Gs in a row that inherited the current slice.
    #[inline]
    fn inherited(&self) -> u32 {
        self.inherited.load(Ordering::Relaxed)
    }

    /// Returns whether the running G continues the slice of the G that made it ready.
    pub(crate) fn is_slice_inherited(&self) -> bool {
        self.inherited() > 0
    }

    /// Returns whether Gs that keep making each other ready have used up their budget of switches.
    #[inline]
    pub(crate) fn has_spent_pair_budget(&self) -> bool {
        self.inherited.load(Ordering::Relaxed) >= PAIR_BUDGET_TURNS
    }
}

/// A counter with one writer at a time and any number of readers. Two threads must not add at the
/// same time: an addition is a plain load and store.
#[derive(Debug)]
pub(crate) struct Count(AtomicU64);

impl Count {
    const fn new() -> Count {
        Count(AtomicU64::new(0))
    }

    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.get() + more, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Linked for P {
    #[inline(always)]
    fn link(&self) -> &AtomicRef<P> {
        &self.link
    }
}
