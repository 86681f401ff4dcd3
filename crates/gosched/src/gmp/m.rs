//! An M: a thread that runs Gs. Its own stack is g0, where the scheduler runs.
//!
//! Records are never freed; that of a thread that ended is used for the next one.

use super::current;
use super::g::G;
use super::intrusive_stack::Linked;
use super::note::Note;
use super::p::{P, PStatus};
use super::poll_role::InPoller;
use crate::sys::owner_cell::OwnerCell;
use gosched_fiber::arch::{self, SavedContext};
use gosched_fiber::carrier::Carrier;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// See the top of this file. Fields without a note are written by the M's own thread.
/// Go: m.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct M {
    /// First: this is what GS finds.
    pub(crate) carrier: Carrier,
    p: AtomicPtr<P>,
    /// Not 0: it is in a marked call, or its P was taken while it was blocked: see `syscall`.
    pub(crate) syscall_state: AtomicU32,
    /// What it was asked to stop for, and when: see `preempt`.
    pub(crate) preempt_request: AtomicU64,
    curg: AtomicPtr<G>,
    /// Somebody wants to see what its goroutine does: see `snapshot`.
    pub(crate) copy_request: AtomicPtr<()>,
    /// Where g0 waits while a goroutine runs.
    pub(crate) g0: OwnerCell<SavedContext>,
    /// What is still to be done for the goroutine that was left last.
    pub(crate) pending_departure: OwnerCell<Departure>,
    /// What g0 is to run, where the goroutine that left has chosen already.
    picked: AtomicPtr<G>,
    pub(crate) id: u32,
    /// It looks for work. Counted in the scheduler too.
    pub(crate) spinning: AtomicBool,
    /// The P it is woken with; the waker's, before it wakes.
    /// Go: m.nextp.
    next_p: AtomicPtr<P>,
    /// The P it had before its P was taken in a call, or before a marked call.
    /// Go: m.oldp.
    pub(crate) old_p: AtomicPtr<P>,
    /// The goroutine that only this M may run.
    /// Go: m.lockedg.
    locked_g: AtomicPtr<G>,
    /// Go: m.park.
    pub(crate) note: Note,
    /// It sleeps until it is woken; for reports.
    blocked: AtomicBool,
    /// It holds the role of poller: see `poll_role`.
    pub(crate) in_poller: InPoller,
    /// The list it is in; under the scheduler's lock.
    link: AtomicPtr<M>,
    /// The M made before it.
    /// Go: m.alllink.
    pub(crate) all_link: AtomicPtr<M>,
    /// Its thread's id.
    /// Go: m.procid.
    tid: AtomicI32,
    /// How often a request was put off, since its goroutine was outside the program's text.
    pub(crate) deferred: AtomicU32,
    /// How long it had run when its P was taken, in nanoseconds; sysmon's.
    pub(crate) cpu_nanos_at_retake: AtomicU64,
    /// When that was, about.
    pub(crate) retaken_at_nanos: AtomicU64,
    /// The P and the turn on it when the M woke to fire timers; 0: the M has done something else since. Owner only.
    timer_wake_turn: AtomicU64,
    /// It has a thread.
    pub(crate) alive: AtomicBool,
    /// Its thread is to end, since a goroutine ended that was locked to it.
    dying: AtomicBool,
    /// Its thread is the process's first, which cannot end.
    main: AtomicBool,
}

/// Another number for each P, and each turn on it; not 0.
fn turn_key(p: &'static P) -> u64 {
    u64::from(p.id + 1) << 32 | u64::from(p.turn())
}

// SAFETY: the carrier's cells belong to the M's own thread; all else is atomic or `OwnerCell`.
unsafe impl Sync for M {}

/// What is to be done with a goroutine once its context is saved and the next one's thread pointer
/// is in force: by that one, or by g0.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Departure {
    /// Nothing: g0 was left.
    None,
    /// To the tail of the global queue. `held`: its lock was taken before the switch.
    Yield { g: &'static G, held: bool },
    /// To the tail of the P's own queue.
    YieldLocally { g: &'static G },
    /// To run next on this P: it was stopped, not out of time.
    Stopped { g: &'static G },
    /// Before all others, when whoever it was interrupted for has had its turn.
    Interrupted { g: &'static G },
    /// Waits. `commit` tells the world so, and returns false if it need not wait any more.
    Park { g: &'static G, commit: Commit, data: *const () },
    /// Is finished.
    /// Go: goexit0.
    Exit { g: &'static G },
    /// There was no memory for its stack: it never began.
    NoStack { g: &'static G },
}

/// See [`Departure::Park`]. It runs on another goroutine's stack: no allocation, no panic, no
/// thread-local.
pub(crate) type Commit = unsafe fn(&'static G, *const ()) -> bool;

// SAFETY: it goes no further than the M it was left on.
unsafe impl Send for Departure {}

impl M {
    /// The M woke to fire timers, and has this P. Owner only.
    pub(crate) fn set_timer_wake(&self, p: &'static P) {
        self.timer_wake_turn.store(turn_key(p), Ordering::Relaxed);
    }

    /// The M gives this P back: if a goroutine has had a turn on it, the M has not only fired timers. Owner only.
    pub(crate) fn clear_timer_wake_if_g_ran(&self, p: &'static P) {
        if self.timer_wake_turn.load(Ordering::Relaxed) != turn_key(p) {
            self.timer_wake_turn.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the M has only fired timers since it last slept, which woke nobody. Owner only.
    pub(crate) fn take_timer_wake(&self) -> bool {
        let fired = self.timer_wake_turn.load(Ordering::Relaxed);
        self.timer_wake_turn.store(0, Ordering::Relaxed);
        fired != 0
    }

    /// Allocates: not with preemption off.
    #[inline]
    pub(crate) fn new(id: u32) -> &'static M {
        Box::leak(Box::new(M {
            carrier: Carrier::new(),
            p: AtomicPtr::new(ptr::null_mut()),
            syscall_state: AtomicU32::new(0),
            preempt_request: AtomicU64::new(0),
            curg: AtomicPtr::new(ptr::null_mut()),
            copy_request: AtomicPtr::new(ptr::null_mut()),
            g0: OwnerCell::new(SavedContext::empty(0)),
            pending_departure: OwnerCell::new(Departure::None),
            picked: AtomicPtr::new(ptr::null_mut()),
            id,
            spinning: AtomicBool::new(false),
            next_p: AtomicPtr::new(ptr::null_mut()),
            old_p: AtomicPtr::new(ptr::null_mut()),
            locked_g: AtomicPtr::new(ptr::null_mut()),
            note: Note::new(),
            blocked: AtomicBool::new(false),
            in_poller: InPoller::new(),
            link: AtomicPtr::new(ptr::null_mut()),
            all_link: AtomicPtr::new(ptr::null_mut()),
            tid: AtomicI32::new(0),
            deferred: AtomicU32::new(0),
            cpu_nanos_at_retake: AtomicU64::new(0),
            retaken_at_nanos: AtomicU64::new(0),
            timer_wake_turn: AtomicU64::new(0),
            alive: AtomicBool::new(false),
            dying: AtomicBool::new(false),
            main: AtomicBool::new(false),
        }))
    }

    /// The M the caller runs on. Good until the caller can be moved: never across a switch, nor
    /// with preemption on.
    ///
    /// # Safety
    /// - **carried**: the caller is a goroutine of this runtime, or runs as the thread of an M.
    #[inline(always)]
    pub(crate) unsafe fn current() -> &'static M {
        // SAFETY: carried — promised by the caller.
        let carrier = unsafe { arch::carrier() };
        // SAFETY: carried — the carrier is the first field of an M, and Ms are never freed.
        unsafe { &*carrier.cast::<M>() }
    }

    /// The M whose thread this is, also inside `host`; `None` on an ordinary thread. Asked by code
    /// that runs as the thread, not as a goroutine.
    pub(crate) fn of_this_thread() -> Option<&'static M> {
        // SAFETY: carried — by the M that this thread is.
        current::is_m().then(|| unsafe { M::current() })
    }

    /// Its P, if it has one.
    #[inline]
    pub(crate) fn p(&self) -> Option<&'static P> {
        // SAFETY: null, or a P: they are never freed.
        unsafe { self.p.load(Ordering::Relaxed).as_ref() }
    }

    /// Takes the right to run. The caller owned the P.
    /// Go: acquirep.
    #[inline]
    pub(crate) fn acquire_p(&'static self, p: &'static P) {
        self.p.store(ptr::from_ref(p).cast_mut(), Ordering::Relaxed);
        p.end_flight();
        p.set_m(Some(self));
        p.set_status(PStatus::Running);
    }

    /// Gives the right to run to the caller.
    /// Go: releasep.
    #[inline]
    pub(crate) fn release_p(&self) -> Option<&'static P> {
        let p = self.p()?;
        self.p.store(ptr::null_mut(), Ordering::Relaxed);
        p.set_m(None);
        p.set_status(PStatus::Idle);
        Some(p)
    }

    /// The goroutine it runs; none while g0 looks for one.
    #[inline]
    pub(crate) fn curg(&self) -> Option<&'static G> {
        // SAFETY: null, or a G: they are never freed.
        unsafe { self.curg.load(Ordering::Relaxed).as_ref() }
    }

    #[inline]
    pub(crate) fn set_curg(&self, g: Option<&'static G>) {
        self.curg.store(g.map_or(ptr::null(), ptr::from_ref).cast_mut(), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn set_picked(&self, g: &'static G) {
        self.picked.store(ptr::from_ref(g).cast_mut(), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn take_picked(&self) -> Option<&'static G> {
        let picked = self.picked.load(Ordering::Relaxed);
        self.picked.store(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: null, or a G: they are never freed.
        unsafe { picked.as_ref() }
    }

    /// Hands the P to a sleeping M and wakes that M by `wake`. The caller owned the P.
    /// Go: the end of startm.
    pub(crate) fn wake_with_p(&'static self, p: &'static P, wake: impl FnOnce(&'static M)) {
        let flight = p.start_flight(self);
        self.next_p.store(ptr::from_ref(p).cast_mut(), Ordering::Relaxed);
        wake(self);
        p.mark_receiver_woken(flight);
    }

    #[inline]
    pub(crate) fn take_next_p(&self) -> Option<&'static P> {
        let p = self.next_p.swap(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: null, or a P: they are never freed.
        unsafe { p.as_ref() }
    }

    /// See [`Note::sleep`].
    /// Go: mPark.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) -> bool {
        self.blocked.store(true, Ordering::Relaxed);
        let woken = self.note.sleep(timeout);
        self.blocked.store(false, Ordering::Relaxed);
        woken
    }

    /// It is in [`M::sleep`].
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    /// Its thread's id; 0: none yet.
    pub(crate) fn tid(&self) -> i32 {
        self.tid.load(Ordering::Relaxed)
    }

    pub(crate) fn set_tid(&self, id: i32) {
        self.tid.store(id, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_dying(&self) -> bool {
        self.dying.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_dying(&self, dying: bool) {
        self.dying.store(dying, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_main(&self) -> bool {
        self.main.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_main(&self, main: bool) {
        self.main.store(main, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn locked_g(&self) -> Option<&'static G> {
        // SAFETY: null, or a G: they are never freed.
        unsafe { self.locked_g.load(Ordering::Relaxed).as_ref() }
    }

    #[inline]
    pub(crate) fn set_locked_g(&self, g: Option<&'static G>) {
        self.carrier.set_slow_path_flag(LOCKED, g.is_some());
        self.locked_g.store(g.map_or(ptr::null(), ptr::from_ref).cast_mut(), Ordering::Relaxed);
    }
}

/// A bit of [`Carrier::slow_path_flags`]: the M runs one goroutine only.
const LOCKED: u32 = 2;

// SAFETY: same — the field, and only chains write it.
unsafe impl Linked for M {
    fn link(&self) -> &AtomicPtr<M> {
        &self.link
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_carrier_is_what_gs_finds() {
        assert_eq!(std::mem::offset_of!(M, carrier), 0);
    }
}
