//! The record of a goroutine (a *G*), reused from one goroutine to the next. An ordinary thread
//! that waits has a G too, so that a waker makes goroutines and threads ready in the same way.
//!
//! Records come from slabs and are never freed, so a reference to a G is always valid. Its contents
//! describe a goroutine only while that goroutine lives.
//!
//! This module never queues a G and never switches to a G.

use super::current;
use super::frame::{Frame, Registers, SavedContext};
use super::list::Linked;
use super::pinned::PinnedM;
use super::short_name::ShortName;
use super::state::{GState, StateVersion, StateWord};
use super::task::{Task, TaskKind};
use super::test_group::TestGroup;
use super::track;
use crate::probe;
use crate::probe::wait_reason::WaitReason;
use crate::protocol::park_token::ParkToken;
use crate::sys::clock;
use crate::sys::owner_cell::OwnerCell;
use crate::sys::sleep_word::SleepWord;
use gosched_fiber::base::atomic_ref::AtomicRef;
use gosched_fiber::lock::{Lock, NoPreemptLockGuard};
use std::panic::Location;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// The record of a goroutine or of a waiting thread (see the top of this file).
///
/// Fields without a note are written by the owner of the G (see `state`). Any thread may read them,
/// for reports.
/// Go: g.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct G {
    // Fields that a switch uses. They share one cache line.
    /// Saved registers of a G that does not run. Owner only.
    /// Go: g.sched.
    pub(crate) saved: OwnerCell<SavedContext>,
    /// Next G in the list that contains this G. Written by the owner of that list.
    link: AtomicRef<G>,
    /// The M that alone may run this G, if there is one.
    /// Go: g.lockedm.
    pub(crate) pinned: PinnedM,
    /// Go: g.atomicstatus.
    state: StateWord,
    /// Approximate time at which the G began to wait or entered a marked call, in nanoseconds. For
    /// a tracked G: the time at which it entered its state.
    /// Go: g.waitsince.
    pub(crate) state_since: AtomicU64,
    /// The `data` argument of the last `park`. It usually points into the frame that waits.
    waits_with: AtomicPtr<()>,
    /// Go: g.waitreason.
    reason: AtomicU8,
    /// Bit set of [`THREAD`], [`EXITING`] and [`PREPARED`].
    flags: AtomicU8,
    has_stack: AtomicBool,
    /// Number of `no_preempt` calls that have not returned.
    pub(crate) no_preempt_depth: AtomicU32,
    // Fields that are used when the goroutine starts, ends or is inspected.
    /// The stack. Owner only.
    pub(crate) frame: OwnerCell<Frame>,
    /// Registers of a G that stopped without a switch: in a marked call, in a signal handler, or as
    /// an ordinary thread that waits. Null for every other G.
    stopped_registers: AtomicPtr<Registers>,
    /// CPU time that the G had used of its slice when sysmon asked it to make room for another G,
    /// in nanoseconds. Written only by sysmon.
    pub(crate) slice_used_nanos: AtomicU64,
    /// Number of Gs that had ever been appended to the global queue when this G entered the list of
    /// stopped Gs. It determines the turn of this G: see `global_queue`.
    pub(crate) queue_position: AtomicU64,
    /// Go: g.goid.
    id: AtomicU64,
    /// Go: g.parentGoid.
    parent: AtomicU64,
    /// Go: g.gopc.
    site: AtomicPtr<Location<'static>>,
    task: AtomicPtr<Task>,
    /// The kind of the task, for inspectors: the task itself may already be freed.
    kind: AtomicPtr<TaskKind>,
    details: AtomicPtr<Details>,
    group: AtomicPtr<TestGroup>,
    /// The first bytes of the goroutine's name, readable while the goroutine runs.
    name: ShortName,
    /// The token of the public `park` and `unpark`.
    pub(crate) token: ParkToken,
    /// The word that a thread sleeps on.
    pub(crate) sleep_word: SleepWord,
    /// Number of `lock_os_thread` calls that have not been undone.
    pub(crate) os_thread_lock_count: AtomicU32,
}

/// Flag: the G belongs to a thread: an ordinary thread that waits, or a goroutine that is a thread.
const THREAD: u8 = 1;
/// Flag: the goroutine has called `goexit`.
const EXITING: u8 = 2;
/// Flag: the G is dead and has a task. Its goroutine starts when the G is made runnable.
const PREPARED: u8 = 4;

/// Held while a thread clones the details of a goroutine or takes them back.
static DETAILS: Lock<()> = Lock::new(());

/// Repairs [`DETAILS`] in a forked child. Called by the child's only thread.
///
/// # Safety
/// - **child**: as for [`Lock::repair_in_child`].
pub(crate) unsafe fn repair_in_child() {
    // SAFETY: child — promised by the caller.
    unsafe { DETAILS.repair_in_child(|()| ()) };
}

/// The name and the labels of a goroutine. Most goroutines have none.
#[derive(Debug, Default)]
pub(crate) struct Details {
    pub(crate) name: Option<String>,
    pub(crate) labels: Vec<(String, String)>,
}

/// The initial values in the G of a new goroutine.
#[derive(Debug)]
pub(crate) struct GInit {
    pub(crate) id: u64,
    pub(crate) parent: u64,
    pub(crate) site: &'static Location<'static>,
    pub(crate) task: *mut Task,
    pub(crate) details: Option<Arc<Details>>,
}

impl Linked for G {
    #[inline(always)]
    fn link(&self) -> &AtomicRef<G> {
        &self.link
    }
}

impl G {
    #[inline]
    pub(crate) fn new() -> G {
        G {
            saved: OwnerCell::new(SavedContext::empty(0)),
            frame: OwnerCell::new(Frame::new()),
            link: AtomicRef::new(),
            state: StateWord::new(),
            state_since: AtomicU64::new(0),
            waits_with: AtomicPtr::new(ptr::null_mut()),
            stopped_registers: AtomicPtr::new(ptr::null_mut()),
            reason: AtomicU8::new(0),
            flags: AtomicU8::new(0),
            has_stack: AtomicBool::new(false),
            slice_used_nanos: AtomicU64::new(0),
            queue_position: AtomicU64::new(0),
            no_preempt_depth: AtomicU32::new(0),
            os_thread_lock_count: AtomicU32::new(0),
            id: AtomicU64::new(0),
            parent: AtomicU64::new(0),
            site: AtomicPtr::new(ptr::null_mut()),
            task: AtomicPtr::new(ptr::null_mut()),
            kind: AtomicPtr::new(ptr::null_mut()),
            details: AtomicPtr::new(ptr::null_mut()),
            group: AtomicPtr::new(ptr::null_mut()),
            name: ShortName::new(),
            pinned: PinnedM::new(),
            token: ParkToken::new(),
            sleep_word: SleepWord::new(),
        }
    }

    /// Initializes a dead G for its next goroutine. Called by the owner of the G.
    #[inline]
    pub(crate) fn init(&self, birth: GInit) {
        self.id.store(birth.id, Ordering::Relaxed);
        self.parent.store(birth.parent, Ordering::Relaxed);
        self.site.store(ptr::from_ref(birth.site).cast_mut(), Ordering::Relaxed);
        self.task.store(birth.task, Ordering::Relaxed);
        // SAFETY: the task is null, or the caller passed it alive and it lives until the goroutine
        // has run.
        let kind = unsafe { birth.task.as_ref() }.map_or(ptr::null(), |task| task.kind);
        if probe::ENABLED {
            self.kind.store(kind.cast_mut(), Ordering::Relaxed);
        }
        self.name.set(birth.details.as_ref().and_then(|details| details.name.as_deref()));
        let details = birth.details.map_or(ptr::null(), Arc::into_raw);
        // PAIR g-details: publishes the details; a thread that reads the pointer sees them
        // complete.
        self.details.store(details.cast_mut(), Ordering::Release);
        self.token.begin(birth.id);
        self.set_group(current::goroutine().and_then(G::group));
    }

    /// Counts the starting goroutine in its group.
    #[inline]
    pub(crate) fn enter_group(&self) {
        if let Some(group) = self.group() {
            group.add_live(1);
        }
    }

    /// Removes the ending goroutine from its group.
    #[inline]
    pub(crate) fn leave_group(&self) {
        if let Some(group) = self.group() {
            group.add_live(-1);
            self.set_group(None);
        }
    }

    fn group(&self) -> Option<&'static TestGroup> {
        // SAFETY: the pointer is null or points to a group; groups are never freed.
        unsafe { self.group.load(Ordering::Relaxed).as_ref() }
    }

    #[inline]
    pub(crate) fn set_group(&self, group: Option<&'static TestGroup>) {
        let group = group.map_or(ptr::null(), ptr::from_ref);
        self.group.store(group.cast_mut(), Ordering::Relaxed);
    }

    /// Makes this the G of the calling thread, which is an ordinary thread.
    #[inline]
    pub(crate) fn begin_thread(&self) {
        self.set_flag(THREAD, true);
        self.id.store(0, Ordering::Relaxed);
    }

    /// Makes this the G of a goroutine that is a thread.
    #[inline]
    pub(crate) fn begin_thread_goroutine(&self) {
        self.set_flag(THREAD, true);
    }

    /// Undoes [`G::begin_thread`] or [`G::begin_thread_goroutine`].
    #[inline]
    pub(crate) fn end_thread(&self) {
        self.set_flag(THREAD, false);
    }

    /// Drops the details that [`G::init`] stored. Called by the owner, where memory may be freed.
    #[inline]
    pub(crate) fn forget_details(&self) {
        if self.details.load(Ordering::Relaxed).is_null() {
            return;
        }
        let lock = NoPreemptLockGuard::new(&DETAILS);
        let details = self.details.swap(ptr::null_mut(), Ordering::Relaxed);
        drop(lock);
        if !details.is_null() {
            // SAFETY: `init` made the pointer from an `Arc`, and the swap returns it once.
            drop(unsafe { Arc::from_raw(details) });
        }
    }

    /// Returns the name and the labels, if the goroutine has any. Any thread may call this.
    #[inline]
    pub(crate) fn details(&self) -> Option<Arc<Details>> {
        if self.details.load(Ordering::Relaxed).is_null() {
            return None;
        }
        let _lock = NoPreemptLockGuard::new(&DETAILS);
        // PAIR g-details: sees the details complete.
        let details = self.details.load(Ordering::Acquire).cast_const();
        if details.is_null() {
            return None;
        }
        // SAFETY: `init` made the pointer from an `Arc`, which lives until `forget_details`; that
        // function takes the lock first.
        unsafe { Arc::increment_strong_count(details) };
        // SAFETY: as above; the line above has counted this reference.
        Some(unsafe { Arc::from_raw(details) })
    }

    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn parent(&self) -> u64 {
        self.parent.load(Ordering::Relaxed)
    }

    /// Returns the first bytes of the goroutine's name; empty if it has none.
    pub(crate) fn short_name(&self) -> &ShortName {
        &self.name
    }

    /// Returns the location of the call that started the goroutine.
    #[inline]
    pub(crate) fn site(&self) -> Option<&'static Location<'static>> {
        // SAFETY: the pointer is null or points to a location, which is `'static`.
        unsafe { self.site.load(Ordering::Relaxed).as_ref() }
    }

    /// Returns the kind of the task, even if the task is already freed.
    pub(crate) fn kind(&self) -> Option<&'static TaskKind> {
        // SAFETY: the pointer is null or was stored by `init`; kinds are `'static`.
        unsafe { self.kind.load(Ordering::Relaxed).as_ref() }
    }

    /// Returns the type name of the task's closure.
    pub(crate) fn task_type_name(&self) -> Option<&'static str> {
        self.kind().map(|kind| (kind.name)())
    }

    #[inline]
    pub(crate) fn task(&self) -> *mut Task {
        self.task.load(Ordering::Relaxed)
    }

    /// Forgets the task, which is about to be freed.
    pub(crate) fn forget_task(&self) {
        self.task.store(ptr::null_mut(), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_thread(&self) -> bool {
        self.has_flag(THREAD)
    }

    #[inline]
    pub(crate) fn state(&self) -> GState {
        self.state.load()
    }

    /// Makes a waiting or a prepared G runnable.
    /// Go: casgstatus(_Gwaiting, _Grunnable) in ready.
    #[inline]
    pub(crate) fn make_runnable(&self) {
        let from = if self.has_flag(PREPARED) { GState::Dead } else { GState::Waiting };
        self.transition(from, GState::Runnable);
    }

    /// Changes the state, and records the time if the G is tracked. See [`StateWord::transition`].
    /// Go: casgstatus.
    #[inline(always)]
    pub(crate) fn transition(&self, from: GState, to: GState) {
        if self.state.transition(|| self.id(), from, to) {
            track::record_transition(self, from);
        }
    }

    /// Marks the G as tracked until it next runs or dies. Called by the owner.
    pub(crate) fn track(&self) {
        self.state.track();
    }

    #[inline]
    pub(crate) fn reason(&self) -> WaitReason {
        WaitReason::from_number(self.reason.load(Ordering::Relaxed))
    }

    /// Clears the wait reason when a goroutine has ended: the next goroutine of this G has not
    /// waited.
    #[inline]
    pub(crate) fn forget_reason(&self) {
        self.reason.store(WaitReason::None as u8, Ordering::Relaxed);
    }

    /// Records why the G is about to wait, and the data that it parks with.
    #[inline]
    pub(crate) fn begin_wait(&self, reason: WaitReason, with: *const ()) {
        self.reason.store(reason as u8, Ordering::Relaxed);
        if probe::ENABLED {
            self.waits_with.store(with.cast_mut(), Ordering::Relaxed);
            self.state_since.store(clock::coarse_now(), Ordering::Relaxed);
        }
    }

    /// Returns the `data` argument of the last `park`.
    pub(crate) fn park_data(&self) -> *const () {
        self.waits_with.load(Ordering::Relaxed)
    }

    /// Returns what the goroutine does in Go's words: its wait reason if it waits, or its state.
    pub(crate) fn status_text(state: GState, reason: WaitReason) -> &'static str {
        match state {
            GState::Waiting if reason != WaitReason::None => reason.words(),
            state => state.name(),
        }
    }

    /// Returns the approximate time at which the G began to wait or entered its marked call, in
    /// nanoseconds.
    pub(crate) fn since(&self) -> u64 {
        self.state_since.load(Ordering::Relaxed)
    }

    /// Records where the registers are, before the G stops without a switch. `registers` is null if
    /// they are not known, and when the G runs again.
    #[inline]
    pub(crate) fn set_stopped_registers(&self, registers: *const Registers) {
        self.stopped_registers.store(registers.cast_mut(), Ordering::Relaxed);
    }

    /// Returns what [`G::set_stopped_registers`] stored.
    pub(crate) fn shown(&self) -> *const Registers {
        self.stopped_registers.load(Ordering::Relaxed)
    }

    /// Records that a marked call begins, in a frame with these registers.
    #[inline]
    pub(crate) fn enter_syscall(&self, registers: *const Registers) {
        if probe::ENABLED {
            self.state_since.store(clock::coarse_now(), Ordering::Relaxed);
            self.set_stopped_registers(registers);
        }
    }

    /// See [`StateWord::state_version`].
    pub(crate) fn state_version(&self) -> StateVersion {
        self.state.state_version()
    }

    /// See [`StateWord::is_unchanged`].
    pub(crate) fn is_unchanged(&self, moment: StateVersion) -> bool {
        self.state.is_unchanged(moment)
    }

    #[inline]
    fn has_flag(&self, flag: u8) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    fn set_flag(&self, flag: u8, on: bool) {
        let rest = self.flags.load(Ordering::Relaxed) & !flag;
        self.flags.store(rest | if on { flag } else { 0 }, Ordering::Relaxed);
    }

    /// Returns whether the goroutine has a stack with its first frame. The frame may be written
    /// long before the first run, and counts until the goroutine ends.
    #[inline]
    pub(crate) fn has_stack(&self) -> bool {
        self.has_stack.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_has_stack(&self, has: bool) {
        self.has_stack.store(has, Ordering::Relaxed);
    }

    /// Returns whether the G is dead and has a task.
    #[inline]
    pub(crate) fn is_prepared(&self) -> bool {
        self.has_flag(PREPARED)
    }

    #[inline]
    pub(crate) fn set_prepared(&self, prepared: bool) {
        self.set_flag(PREPARED, prepared);
    }

    /// Returns whether the goroutine has called `goexit`.
    #[inline]
    pub(crate) fn is_exiting(&self) -> bool {
        self.has_flag(EXITING)
    }

    #[inline]
    pub(crate) fn set_exiting(&self, exiting: bool) {
        self.set_flag(EXITING, exiting);
    }
}
