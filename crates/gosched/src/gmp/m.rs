//! The record of a thread that runs Gs (an *M*). The thread's own stack is g0, on which the
//! scheduler runs.
//!
//! Records are never freed; the record of a thread that has ended is reused for the next thread.
//!
//! This module never chooses the G that an M runs, and never switches to a G.

use super::commit::Commit;
use super::current;
use super::g::G;
use super::list::Linked;
use super::p::{P, PStatus};
use super::preempt_request::PreemptRequest;
use super::spin_state::SpinState;
use crate::probe;
use crate::probe::event::EventKind;
use crate::probe::field::{PreemptReason, Source};
use crate::probe::recorder::{self, EventThread, Ring};
use crate::protocol::hand_over::{NextP, hand_over};
use crate::protocol::note::Note;
use crate::protocol::poll_role::InPoller;
use crate::protocol::syscall_state::{Retaking, SyscallState};
use crate::sys::fatal::fatal;
use crate::sys::owner_cell::OwnerCell;
use gosched_fiber::arch::{self, SavedContext};
use gosched_fiber::base::atomic_ref::AtomicRef;
use gosched_fiber::carrier::Carrier;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// A thread that runs Gs. Fields without a note are written by the M's own thread.
/// Go: m.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct M {
    /// Must be the first field: GS points to the carrier.
    pub(crate) carrier: Carrier,
    /// The P that the M holds. Written by the M's thread, and by a taker while
    /// `syscall_state` marks the P as being taken.
    p: AtomicRef<P>,
    /// Whether the M is in a marked call, or another thread takes or has taken its P.
    pub(crate) syscall_state: SyscallState,
    /// Why, and in which turn on its P, the M is asked to stop: see `sched::switch::preempt`. Set
    /// by the requesting thread, cleared by the M.
    pub(crate) preempt_request: PreemptRequest,
    curg: AtomicRef<G>,
    /// The request of an inspector for a copy of the running goroutine's stack, or null: see
    /// `sched::inspect::snapshot`.
    pub(crate) copy_request: AtomicPtr<()>,
    /// Saved context of g0 while a goroutine runs.
    pub(crate) g0: OwnerCell<SavedContext>,
    /// What remains to be done for the goroutine that was left last.
    pub(crate) pending_departure: OwnerCell<Departure>,
    /// The next G for g0 to run, if the departing goroutine has already picked one.
    picked: AtomicRef<G>,
    pub(crate) id: u32,
    /// Whether the M spins. Written by the waker before it wakes the M, and by the M.
    pub(crate) spinning: SpinState,
    /// The P that the M is woken with. Written by the waker before it wakes the M.
    /// Go: m.nextp.
    pub(crate) next_p: NextP<P>,
    /// The P that was taken from the M in its last blocking call. Written by the taker.
    /// Go: m.oldp.
    pub(crate) old_p: AtomicRef<P>,
    /// The goroutine that is locked to this M; the M then runs no other.
    /// Go: m.lockedg.
    locked_g: AtomicRef<G>,
    /// Go: m.park.
    pub(crate) note: Note,
    /// Whether the M is in [`M::sleep`]; for reports.
    blocked: AtomicBool,
    /// Whether the M holds the role of poller: see `poll_role`. Written under the scheduler's lock.
    pub(crate) in_poller: InPoller,
    /// Next M in the list that contains this M. Written under the scheduler's lock.
    link: AtomicRef<M>,
    /// The M that was created before this one.
    /// Go: m.alllink.
    pub(crate) all_link: AtomicRef<M>,
    /// The thread's id; 0 until the thread runs.
    /// Go: m.procid.
    tid: AtomicI32,
    /// Number of times in a row that a preemption request was put off because the goroutine was
    /// outside the program's text.
    pub(crate) deferred: AtomicU32,
    /// CPU time of the thread, in nanoseconds, when sysmon took its P or last found it blocked
    /// without a P. Written by sysmon.
    pub(crate) cpu_nanos_at_retake: AtomicU64,
    /// The time at which sysmon took that reading, in nanoseconds. Written by sysmon.
    pub(crate) retaken_at_nanos: AtomicU64,
    /// The [`turn_key`] of the P with which the M woke to fire timers; 0 if the M has done anything
    /// else since. Owner only.
    timer_wake_turn: AtomicU64,
    /// Whether the M has a thread. Written by the thread that starts the M's thread, and by the M's
    /// thread when it ends.
    pub(crate) alive: AtomicBool,
    /// Whether the thread must exit because a goroutine ended while it was locked to the M.
    dying: AtomicBool,
    /// Whether the thread is the main thread of the process, which cannot exit.
    main: AtomicBool,
    /// Where the M's thread records events, once there was a recording.
    pub(crate) ring: AtomicRef<Ring>,
    /// Where the G was found that the M runs next: a [`Source`] as a word. Written while events are
    /// recorded. Owner only.
    source: AtomicU64,
}

/// Returns a number that identifies a P and the current turn on it; never 0.
fn turn_key(p: &'static P) -> u64 {
    u64::from(p.id + 1) << 32 | u64::from(p.turn())
}

// SAFETY: only the M's own thread uses the carrier's cells; all other fields are atomic or
// `OwnerCell`s.
unsafe impl Sync for M {}

/// What remains to be done for a goroutine that has switched away. The code that runs next on the
/// M, another goroutine or g0, does it first: by then the goroutine's context is saved, and its
/// thread pointer is no longer in use.
#[derive(Debug)]
pub(crate) enum Departure {
    /// Nothing: the switch left g0.
    None,
    /// Puts the G at the tail of the global queue. `held`: the scheduler's lock was taken before
    /// the switch.
    Yield { g: &'static G, held: bool },
    /// As `Yield`, and records that.
    RecordedYield { g: &'static G, held: bool },
    /// Puts the G at the tail of the P's own queue.
    YieldLocally { g: &'static G },
    /// Makes the G the next to run on this P: it stopped because the world stops, not because its
    /// slice is over.
    Stopped { g: &'static G },
    /// Puts the G before all others in the global queue: it made room for another G in the middle
    /// of its slice.
    Interrupted { g: &'static G },
    /// Parks the G. `commit` publishes that the G waits; it returns false if the G need not wait,
    /// and the G becomes runnable again.
    Park { g: &'static G, commit: Commit },
    /// Recycles the G: the goroutine has ended.
    /// Go: goexit0.
    Exit { g: &'static G },
    /// Takes the stack back, and queues the G until there is memory: the goroutine's identity could
    /// not be built, so the goroutine has not started.
    NoStack { g: &'static G },
}

// SAFETY: a departure stays on the M on which it was stored.
unsafe impl Send for Departure {}

impl M {
    /// Records that the M woke to fire timers and acquired `p`. Owner only.
    pub(crate) fn set_timer_wake(&self, p: &'static P) {
        self.timer_wake_turn.store(turn_key(p), Ordering::Relaxed);
    }

    /// Forgets the record of [`M::set_timer_wake`] if a goroutine has had a turn on `p` since.
    /// Called when the M releases `p`. Owner only.
    pub(crate) fn clear_timer_wake_if_g_ran(&self, p: &'static P) {
        if self.timer_wake_turn.load(Ordering::Relaxed) != turn_key(p) {
            self.timer_wake_turn.store(0, Ordering::Relaxed);
        }
    }

    /// Returns whether the M, since it last slept, has only fired timers that made nothing ready.
    /// Clears the record of [`M::set_timer_wake`]. Owner only.
    pub(crate) fn take_timer_wake(&self) -> bool {
        let fired = self.timer_wake_turn.load(Ordering::Relaxed);
        self.timer_wake_turn.store(0, Ordering::Relaxed);
        fired != 0
    }

    /// Allocates an M. Must not be called with preemption off.
    #[inline]
    pub(crate) fn new(id: u32) -> &'static M {
        Box::leak(Box::new(M {
            carrier: Carrier::new(),
            p: AtomicRef::new(),
            syscall_state: SyscallState::new(),
            preempt_request: PreemptRequest::new(),
            curg: AtomicRef::new(),
            copy_request: AtomicPtr::new(ptr::null_mut()),
            g0: OwnerCell::new(SavedContext::empty(0)),
            pending_departure: OwnerCell::new(Departure::None),
            picked: AtomicRef::new(),
            id,
            spinning: SpinState::new(),
            next_p: NextP::new(),
            old_p: AtomicRef::new(),
            locked_g: AtomicRef::new(),
            note: Note::new(),
            blocked: AtomicBool::new(false),
            in_poller: InPoller::new(),
            link: AtomicRef::new(),
            all_link: AtomicRef::new(),
            tid: AtomicI32::new(0),
            deferred: AtomicU32::new(0),
            cpu_nanos_at_retake: AtomicU64::new(0),
            retaken_at_nanos: AtomicU64::new(0),
            timer_wake_turn: AtomicU64::new(0),
            alive: AtomicBool::new(false),
            dying: AtomicBool::new(false),
            main: AtomicBool::new(false),
            ring: AtomicRef::new(),
            source: AtomicU64::new(Source::Earlier.to_word()),
        }))
    }

    /// Returns the M that the caller runs on. The result is valid until the caller can be moved: do
    /// not use it across a switch, nor with preemption on.
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

    /// Returns the M whose thread calls, also inside `host`, or `None` on an ordinary thread. For
    /// code that runs as the thread, not as a goroutine.
    pub(crate) fn of_this_thread() -> Option<&'static M> {
        // SAFETY: carried — the calling thread is the thread of an M.
        current::is_m().then(|| unsafe { M::current() })
    }

    /// Returns the P that the M holds, if any.
    #[inline]
    pub(crate) fn p(&self) -> Option<&'static P> {
        self.p.load()
    }

    /// Acquires `p`, which the caller owns: see `OnM::acquire_p`.
    #[inline]
    pub(super) fn acquire_p(&'static self, p: &'static P) {
        let is_for_this_m = p.flight.current().is_none_or(|(_, receiver)| ptr::eq(receiver, self));
        if self.p().is_some() || !p.is_available() || !is_for_this_m {
            self.fail_to_acquire(p);
        }
        self.p.store(Some(p));
        p.flight.end();
        p.set_m(Some(self));
        p.change_status(PStatus::Running);
        if probe::is_recording() {
            self.record(EventKind::AcquireP { p: p.id });
        }
    }

    /// Releases `p`, the M's P, to the caller: see `OwnedP::release`.
    #[inline]
    pub(super) fn release_p(&self, p: &'static P) {
        if !p.m().is_some_and(|m| ptr::eq(m, self)) {
            fatal!("M{} releases P{}, which it does not have", self.id, p.id);
        }
        self.p.store(None);
        p.set_m(None);
        p.change_status(PStatus::Idle);
    }

    /// Takes the M's P, for a retaker that has won the right to take it.
    /// Go: takeP.
    pub(crate) fn lose_p_to(&self, _retaker: &Retaking<'_>) -> Option<&'static P> {
        let p = self.p()?;
        self.release_p(p);
        Some(p)
    }

    #[cold]
    fn fail_to_acquire(&self, p: &P) -> ! {
        let (own, other) = (self.p().map(|p| p.id), p.m().map(|m| m.id));
        let receiver = p.flight.current().map(|(_, receiver)| receiver.id);
        fatal!(
            "M{}, whose P is {own:?}, acquires P{}, which is {:?}, whose M is {other:?}, and which \
             was handed to M {receiver:?}",
            self.id,
            p.id,
            p.status()
        )
    }

    /// Returns the goroutine that the M runs, or `None` while g0 runs.
    #[inline]
    pub(crate) fn curg(&self) -> Option<&'static G> {
        self.curg.load()
    }

    #[inline]
    pub(crate) fn set_curg(&self, g: Option<&'static G>) {
        self.curg.store(g);
    }

    #[inline]
    pub(crate) fn set_picked(&self, g: &'static G) {
        self.picked.store(Some(g));
    }

    /// Requests that the M stop its G: sets the request, and the flag that the G checks when it
    /// leaves the runtime. Sends no signal.
    pub(crate) fn request_preempt(&self, why: PreemptReason, turn: u32) {
        self.preempt_request.set(why, turn);
        self.carrier.set_preempt_pending(true);
    }

    /// Records where the G was found that the M runs next. Owner only, or the thread that hands a P
    /// to the sleeping M.
    #[inline]
    pub(crate) fn set_source(&self, source: Source) {
        if probe::is_recording() {
            self.source.store(source.to_word(), Ordering::Relaxed);
        }
    }

    /// Returns what [`M::set_source`] stored last. Owner only.
    pub(crate) fn take_source(&self) -> Source {
        let word = self.source.load(Ordering::Relaxed);
        self.source.store(Source::Earlier.to_word(), Ordering::Relaxed);
        Source::from_word(word)
    }

    /// Forgets what [`M::set_source`] stored. Called while the world is stopped.
    pub(crate) fn forget_source(&self) {
        self.source.store(Source::Earlier.to_word(), Ordering::Relaxed);
    }

    /// Records an event of the M's thread, or of the goroutine on it. The caller has tested
    /// `probe::is_recording`.
    #[inline]
    pub(crate) fn record(&self, event: EventKind) {
        let p = self.p().map(|p| p.id);
        recorder::write(self.ring.load(), EventThread::M(self.id), p, event);
    }

    #[inline]
    pub(crate) fn take_picked(&self) -> Option<&'static G> {
        let picked = self.picked.load();
        self.picked.store(None);
        picked
    }

    /// Hands `p` to this M, which sleeps, and wakes the M by calling `wake`. The caller owned `p`.
    /// Go: the end of startm.
    pub(crate) fn wake_with_p(&'static self, p: &'static P, wake: impl FnOnce(&'static M)) {
        p.check_unowned();
        hand_over(p, &p.flight, self, &self.next_p, || wake(self));
    }

    /// Sleeps on the M's note: see [`Note::sleep`].
    /// Go: mPark.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) -> bool {
        self.blocked.store(true, Ordering::Relaxed);
        let woken = self.note.sleep(timeout);
        self.blocked.store(false, Ordering::Relaxed);
        woken
    }

    /// Returns whether the M is in [`M::sleep`].
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    /// Returns the id of the M's thread, or 0 if the thread does not run yet.
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
        self.locked_g.load()
    }

    #[inline]
    pub(crate) fn set_locked_g(&self, g: Option<&'static G>) {
        self.carrier.set_slow_path_flag(LOCKED, g.is_some());
        self.locked_g.store(g);
    }
}

/// A bit of [`Carrier::slow_path_flags`]: the M is locked to a goroutine.
const LOCKED: u32 = 2;

impl Linked for M {
    #[inline(always)]
    fn link(&self) -> &AtomicRef<M> {
        &self.link
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_carrier_is_the_first_field_of_an_m() {
        assert_eq!(std::mem::offset_of!(M, carrier), 0);
    }
}
