//! A P: the right to run Gs, with the queue they wait in and the caches they are made from.
//!
//! Ps are made once and never freed. Status, and who owns the P:
//!
//! - [`PStatus::Idle`]: the list of idle Ps, or the M that the P was handed to ([`P::flight`]).
//! - [`PStatus::Running`]: the M it points at.
//! - [`PStatus::Stopped`]: whoever stopped the world.
//! - [`PStatus::Dead`]: nobody; there are fewer Ps now than there were.

use super::g::G;
use super::intrusive_stack::Linked;
use super::list::GList;
use super::m::M;
use super::run_queue::{CAPACITY, RunQueue};
use super::timer::TimerHeap;
use crate::sys::owner_cell::OwnerCell;
use crate::sys::random::Random;
use gosched_fiber::Size;
use gosched_fiber::stack::Cache;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// What a P is doing: see the top of this file. Go's numbers (2 was the status in system calls).
/// Go: _Pidle, _Prunning, _Pgcstop, _Pdead.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PStatus {
    Idle = 0,
    Running = 1,
    Stopped = 3,
    Dead = 4,
}

/// See the top of this file.
/// Go: p.
#[repr(align(128))]
#[derive(Debug)]
pub(crate) struct P {
    pub(crate) id: u32,
    status: AtomicU32,
    /// The M it runs on, or ran on last.
    m: AtomicPtr<M>,
    /// The M that the P was handed to, until that M acquires the P; and the number of that flight.
    receiver: AtomicPtr<M>,
    flight: AtomicU64,
    /// The last flight whose giver has woken the receiver.
    woken_flight: AtomicU64,
    /// The list it is in; that list's owner's.
    link: AtomicPtr<P>,
    /// Go: p.runq, p.runnext.
    pub(crate) queue: RunQueue<G, CAPACITY>,
    /// How often it started a slice.
    pub(crate) schedtick: AtomicU32,
    /// How many Gs in a row went on with the slice of the one before; the owner's.
    inherited: AtomicU32,
    /// How many Gs in a row that I/O has made ready went before one that was interrupted; the owner's.
    pub(crate) io_ahead_streak: AtomicU32,
    /// How often a goroutine entered a marked call here.
    pub(crate) syscalltick: AtomicU32,
    /// Goroutines started here, and ended here; the owner's.
    started: Count,
    ended: Count,
    /// How often it took Gs of other Ps, and how many; the owner's.
    pub(crate) steals: Count,
    pub(crate) stolen: Count,
    /// So many turns until a departure is tracked; the owner's.
    departures_until_tracked: AtomicU32,
    /// How many dead Gs it keeps; the owner's, for reports.
    pub(crate) free_g_count: AtomicU32,
    pub(crate) random: Random,
    /// The NUMA node its M ran on when it took the P.
    pub(crate) node: AtomicU32,
    /// On its way to an M that is to spin; under the scheduler's lock.
    pub(crate) for_spinner: AtomicBool,
    /// Timers that were started here.
    pub(crate) timers: TimerHeap,
    /// Caches; the owner's.
    pub(crate) caches: OwnerCell<Caches>,
}

/// How many switches a pair that keeps making each other ready has before others get a turn: about
/// what a slice of 10 ms is to Go, in a tenth of the time.
const PAIR_BUDGET_TURNS: u32 = 20_000;

/// A slice has fewer turns than this many bits can count.
const TURN_SHIFT: u32 = 16;
const _: () = assert!(PAIR_BUDGET_TURNS < 1 << TURN_SHIFT);

/// What a P keeps so that it need not ask others.
#[derive(Debug)]
pub(crate) struct Caches {
    /// Dead Gs.
    /// Go: p.gFree.
    pub(crate) free: GList,
    pub(crate) stacks: Cache,
    /// Goroutines that ended here.
    pub(crate) ends: u32,
    /// How often it took ids.
    pub(crate) batches: u32,
    /// Ids not yet given, from the first to before the second.
    /// Go: p.goidcache.
    pub(crate) ids: (u64, u64),
}

impl P {
    /// Allocates: not with preemption off.
    #[inline]
    pub(crate) fn new(id: u32, size: Size) -> &'static P {
        Box::leak(Box::new(P {
            id,
            status: AtomicU32::new(PStatus::Dead as u32),
            m: AtomicPtr::new(ptr::null_mut()),
            receiver: AtomicPtr::new(ptr::null_mut()),
            flight: AtomicU64::new(0),
            woken_flight: AtomicU64::new(0),
            link: AtomicPtr::new(ptr::null_mut()),
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
            for_spinner: AtomicBool::new(false),
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

    #[inline]
    pub(crate) fn set_status(&self, status: PStatus) {
        self.status.store(status as u32, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn m(&self) -> Option<&'static M> {
        // SAFETY: null, or an M: they are never freed.
        unsafe { self.m.load(Ordering::Relaxed).as_ref() }
    }

    #[inline]
    pub(crate) fn set_m(&self, m: Option<&'static M>) {
        self.m.store(m.map_or(ptr::null(), ptr::from_ref).cast_mut(), Ordering::Relaxed);
    }

    /// The owner hands the P to `receiver`, which it is about to wake. Returns the number of the flight.
    pub(crate) fn start_flight(&self, receiver: &'static M) -> u64 {
        let flight = self.flight.load(Ordering::Relaxed) + 1;
        self.flight.store(flight, Ordering::Relaxed);
        self.receiver.store(ptr::from_ref(receiver).cast_mut(), Ordering::Relaxed);
        flight
    }

    /// The giver has woken the receiver, which may have acquired the P already, and given it to others.
    pub(crate) fn mark_receiver_woken(&self, flight: u64) {
        self.woken_flight.fetch_max(flight, Ordering::Relaxed);
    }

    /// The receiver, or another M, acquires the P.
    pub(crate) fn end_flight(&self) {
        self.receiver.store(ptr::null_mut(), Ordering::Relaxed);
    }

    /// The flight that the P is in, and its receiver.
    pub(crate) fn flight(&self) -> Option<(u64, &'static M)> {
        let flight = self.flight.load(Ordering::Relaxed);
        // SAFETY: null, or an M: they are never freed.
        unsafe { self.receiver.load(Ordering::Relaxed).as_ref() }.map(|receiver| (flight, receiver))
    }

    /// Whether the giver has woken the receiver of that flight.
    pub(crate) fn is_receiver_woken(&self, flight: u64) -> bool {
        self.woken_flight.load(Ordering::Relaxed) >= flight
    }

    /// One goroutine more. Owner only.
    #[inline]
    pub(crate) fn count_started(&self) {
        self.started.add(1);
    }

    /// One goroutine less. Owner only.
    #[inline]
    pub(crate) fn count_ended(&self) {
        self.ended.add(1);
    }

    /// How many goroutines were started here.
    #[inline]
    pub(crate) fn started(&self) -> u64 {
        self.started.get()
    }

    /// How many goroutines ended here.
    #[inline]
    pub(crate) fn ended(&self) -> u64 {
        self.ended.get()
    }

    /// A goroutine departs. True: this one is to be tracked. Owner only.
    #[inline]
    pub(crate) fn count_departure(&self) -> bool {
        let left = self.departures_until_tracked.load(Ordering::Relaxed);
        self.departures_until_tracked.store(left.wrapping_sub(1), Ordering::Relaxed);
        left == 0
    }

    /// So many turns until the next one is. Owner only.
    pub(crate) fn set_departures_until_tracked(&self, turns: u32) {
        self.departures_until_tracked.store(turns, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn tick(&self) -> u32 {
        self.schedtick.load(Ordering::Relaxed)
    }

    /// Which turn it is: another number for each G that runs, but for chance.
    #[inline]
    pub(crate) fn turn(&self) -> u32 {
        self.tick().wrapping_shl(TURN_SHIFT).wrapping_add(self.inherited())
    }

    /// A G goes on with the slice of the one before. Owner only.
    #[inline]
    pub(crate) fn inherit_slice(&self) {
        let now = self.inherited.load(Ordering::Relaxed);
        self.inherited.store(now + 1, Ordering::Relaxed);
    }

    /// How many in a row did so.
    #[inline]
    fn inherited(&self) -> u32 {
        self.inherited.load(Ordering::Relaxed)
    }

    /// Whether a pair that keeps making each other ready has had its turn.
    #[inline]
    pub(crate) fn has_spent_pair_budget(&self) -> bool {
        self.inherited.load(Ordering::Relaxed) >= PAIR_BUDGET_TURNS
    }

    /// A new slice starts. Owner only.
    #[inline]
    pub(crate) fn start_slice(&self) {
        self.inherited.store(0, Ordering::Relaxed);
        self.schedtick.store(self.tick().wrapping_add(1), Ordering::Relaxed);
    }
}

/// What one thread at a time counts, and any may read. Never shared by those who count: an addition is no
/// exchange.
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

// SAFETY: same — the field, and only chains write it.
unsafe impl Linked for P {
    fn link(&self) -> &AtomicPtr<P> {
        &self.link
    }
}
