//! A G: one goroutine's record, from its birth to its reuse. Or a thread's that waits among them.
//!
//! Records come from slabs and are never freed, so a reference to one is good for ever; what it says
//! is only true while its goroutine lives. An ordinary thread that waits has one too: whoever makes
//! it ready need not know the difference.

use super::current;
use super::frame::{Frame, Registers, SavedContext};
use super::park_token::ParkToken;
use super::reason::WaitReason;
use super::short_name::ShortName;
use super::state::{GState, StateVersion, StateWord};
use super::task::{Task, TaskKind};
use super::test_group::TestGroup;
use super::track;
use crate::probe;
use crate::sys::clock;
use crate::sys::owner_cell::OwnerCell;
use crate::sys::sleep_word::SleepWord;
use gosched_fiber::lock::{Lock, NoPreemptLockGuard};
use std::panic::Location;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// See the top of this file.
/// Go: g.
///
/// Fields without a note are written by the owner (see `state`) and may be read by anybody who
/// wants to print them.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct G {
    // What a switch touches: one cache line.
    /// Registers; the owner's.
    /// Go: g.sched.
    pub(crate) saved: OwnerCell<SavedContext>,
    /// The list it is in; that list's owner's.
    pub(crate) link: AtomicPtr<G>,
    /// The M that must run it, if only one may.
    /// Go: g.lockedm.
    pub(crate) pinned: AtomicPtr<()>,
    /// Go: g.atomicstatus.
    state: StateWord,
    /// When it began to wait, about; or when a tracked one came into its state.
    /// Go: g.waitsince.
    pub(crate) state_since: AtomicU64,
    /// What it parked with: in a frame that waits, as a rule.
    waits_with: AtomicPtr<()>,
    /// Go: g.waitreason.
    reason: AtomicU8,
    /// [`THREAD`], [`EXITING`], [`PREPARED`].
    flags: AtomicU8,
    has_stack: AtomicBool,
    /// How often `no_preempt` was called and has not ended.
    pub(crate) no_preempt_depth: AtomicU32,
    // Touched when it begins, ends, or is looked at.
    /// The stack; the owner's.
    pub(crate) frame: OwnerCell<Frame>,
    /// Where its registers are while it is stopped without a switch: in a marked call, or in a signal handler.
    stopped_registers: AtomicPtr<Registers>,
    /// What it has used of its slice, in nanoseconds, when it was interrupted for another's sake; for the
    /// sysmon.
    pub(crate) slice_used_nanos: AtomicU64,
    /// How many had been put into the global queue when it was put beside it.
    pub(crate) queue_position: AtomicU64,
    /// Go: g.goid.
    id: AtomicU64,
    /// Go: g.parentGoid.
    parent: AtomicU64,
    /// Go: g.gopc.
    site: AtomicPtr<Location<'static>>,
    task: AtomicPtr<Task>,
    /// Of its task, for whoever looks: the task may be gone.
    kind: AtomicPtr<TaskKind>,
    details: AtomicPtr<Details>,
    group: AtomicPtr<TestGroup>,
    /// The beginning of its name, for whoever prints it while it runs.
    name: ShortName,
    /// What `park` and `unpark` of the public face talk about.
    pub(crate) token: ParkToken,
    /// Where a thread sleeps.
    pub(crate) sleep_word: SleepWord,
    /// How often `lock_os_thread` was called and not undone.
    pub(crate) os_thread_lock_count: AtomicU32,
}

/// It is a thread: an ordinary one that waits, or a goroutine that is one.
const THREAD: u8 = 1;
/// `goexit` was called in it.
const EXITING: u8 = 2;
/// Dead, with a task: it lives when it is made runnable.
const PREPARED: u8 = 4;

/// Held while somebody asks for a goroutine's details, or takes them back.
static DETAILS: Lock<()> = Lock::new(());

/// In a forked child, by its only thread.
///
/// # Safety
/// - **child**: as for [`Lock::repair_in_child`].
pub(crate) unsafe fn repair_in_child() {
    // SAFETY: child — promised by the caller.
    unsafe { DETAILS.repair_in_child(|()| ()) };
}

/// What most goroutines do not have.
#[derive(Debug, Default)]
pub(crate) struct Details {
    pub(crate) name: Option<String>,
    pub(crate) labels: Vec<(String, String)>,
}

/// What a new goroutine is told.
#[derive(Debug)]
pub(crate) struct GInit {
    pub(crate) id: u64,
    pub(crate) parent: u64,
    pub(crate) site: &'static Location<'static>,
    pub(crate) task: *mut Task,
    pub(crate) details: Option<Arc<Details>>,
}

impl G {
    #[inline]
    pub(crate) fn new() -> G {
        G {
            saved: OwnerCell::new(SavedContext::empty(0)),
            frame: OwnerCell::new(Frame::new()),
            link: AtomicPtr::new(ptr::null_mut()),
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
            pinned: AtomicPtr::new(ptr::null_mut()),
            token: ParkToken::new(),
            sleep_word: SleepWord::new(),
        }
    }

    /// Gives a dead record its next life. The caller owns it.
    #[inline]
    pub(crate) fn init(&self, birth: GInit) {
        self.id.store(birth.id, Ordering::Relaxed);
        self.parent.store(birth.parent, Ordering::Relaxed);
        self.site.store(ptr::from_ref(birth.site).cast_mut(), Ordering::Relaxed);
        self.task.store(birth.task, Ordering::Relaxed);
        // SAFETY: the task was given with the order, and is there until the goroutine has run.
        let kind = unsafe { birth.task.as_ref() }.map_or(ptr::null(), |task| task.kind);
        if probe::ENABLED {
            self.kind.store(kind.cast_mut(), Ordering::Relaxed);
        }
        self.name.set(birth.details.as_ref().and_then(|details| details.name.as_deref()));
        let details = birth.details.map_or(ptr::null(), Arc::into_raw);
        // PAIR g-details: whoever sees them sees them whole.
        self.details.store(details.cast_mut(), Ordering::Release);
        self.token.begin(birth.id);
        self.set_group(current::goroutine().and_then(G::group));
    }

    /// It lives from here on: its group is one more.
    #[inline]
    pub(crate) fn enter_group(&self) {
        if let Some(group) = self.group() {
            group.add_live(1);
        }
    }

    /// It is done: its group is one less.
    #[inline]
    pub(crate) fn leave_group(&self) {
        if let Some(group) = self.group() {
            group.add_live(-1);
            self.set_group(None);
        }
    }

    fn group(&self) -> Option<&'static TestGroup> {
        // SAFETY: null, or a group: they are never freed.
        unsafe { self.group.load(Ordering::Relaxed).as_ref() }
    }

    #[inline]
    pub(crate) fn set_group(&self, group: Option<&'static TestGroup>) {
        let group = group.map_or(ptr::null(), ptr::from_ref);
        self.group.store(group.cast_mut(), Ordering::Relaxed);
    }

    /// Makes the record an ordinary thread's: the caller's.
    #[inline]
    pub(crate) fn begin_thread(&self) {
        self.set_flag(THREAD, true);
        self.id.store(0, Ordering::Relaxed);
    }

    /// Makes the record that of a goroutine which is a thread.
    #[inline]
    pub(crate) fn begin_thread_goroutine(&self) {
        self.set_flag(THREAD, true);
    }

    /// Ends [`G::begin_thread`].
    #[inline]
    pub(crate) fn end_thread(&self) {
        self.set_flag(THREAD, false);
    }

    /// Takes back what [`G::init`] gave. The caller owns it, and may allocate.
    #[inline]
    pub(crate) fn forget_details(&self) {
        if self.details.load(Ordering::Relaxed).is_null() {
            return;
        }
        let lock = NoPreemptLockGuard::new(&DETAILS);
        let details = self.details.swap(ptr::null_mut(), Ordering::Relaxed);
        drop(lock);
        if !details.is_null() {
            // SAFETY: `init` made it from an `Arc`, and it is taken back once: the swap.
            drop(unsafe { Arc::from_raw(details) });
        }
    }

    /// Name and labels; asked by anybody.
    #[inline]
    pub(crate) fn details(&self) -> Option<Arc<Details>> {
        if self.details.load(Ordering::Relaxed).is_null() {
            return None;
        }
        let _lock = NoPreemptLockGuard::new(&DETAILS);
        // PAIR g-details: sees them whole.
        let details = self.details.load(Ordering::Acquire).cast_const();
        if details.is_null() {
            return None;
        }
        // SAFETY: `init` made it from an `Arc`, which is alive until `forget_details`, which wants the lock.
        unsafe { Arc::increment_strong_count(details) };
        // SAFETY: as above; counted one line above.
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

    /// The beginning of its name, if it has one.
    pub(crate) fn short_name(&self) -> &ShortName {
        &self.name
    }

    /// Where it was started.
    #[inline]
    pub(crate) fn site(&self) -> Option<&'static Location<'static>> {
        // SAFETY: null, or a location of the program's text.
        unsafe { self.site.load(Ordering::Relaxed).as_ref() }
    }

    /// What its task is.
    pub(crate) fn kind(&self) -> Option<&'static TaskKind> {
        // SAFETY: null, or one that `init` put there: they are never freed.
        unsafe { self.kind.load(Ordering::Relaxed).as_ref() }
    }

    /// What it runs, as the compiler names it.
    pub(crate) fn task_type_name(&self) -> Option<&'static str> {
        self.kind().map(|kind| (kind.name)())
    }

    #[inline]
    pub(crate) fn task(&self) -> *mut Task {
        self.task.load(Ordering::Relaxed)
    }

    /// Its task is about to be freed.
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

    /// From waiting to runnable; or, if it was prepared, from its preparation.
    /// Go: casgstatus(_Gwaiting, _Grunnable) in ready.
    #[inline]
    pub(crate) fn make_runnable(&self) {
        let from = if self.has_flag(PREPARED) { GState::Dead } else { GState::Waiting };
        self.transition(from, GState::Runnable);
    }

    /// See [`StateWord::transition`].
    /// Go: casgstatus.
    #[inline(always)]
    pub(crate) fn transition(&self, from: GState, to: GState) {
        if self.state.transition(|| self.id(), from, to) {
            track::record_transition(self, from);
        }
    }

    /// Its next wait for a P is measured. By whoever owns it.
    pub(crate) fn track(&self) {
        self.state.track();
    }

    #[inline]
    pub(crate) fn reason(&self) -> WaitReason {
        WaitReason::from_number(self.reason.load(Ordering::Relaxed))
    }

    /// It is over: the next one has never waited.
    #[inline]
    pub(crate) fn forget_reason(&self) {
        self.reason.store(WaitReason::None as u8, Ordering::Relaxed);
    }

    /// Before it waits: why, and with what.
    #[inline]
    pub(crate) fn begin_wait(&self, reason: WaitReason, with: *const ()) {
        self.reason.store(reason as u8, Ordering::Relaxed);
        if probe::ENABLED {
            self.waits_with.store(with.cast_mut(), Ordering::Relaxed);
            self.state_since.store(clock::coarse_now(), Ordering::Relaxed);
        }
    }

    /// What it parked with last.
    pub(crate) fn park_data(&self) -> *const () {
        self.waits_with.load(Ordering::Relaxed)
    }

    /// What it does: why it waits, or its state; Go's words.
    pub(crate) fn status_text(state: GState, reason: WaitReason) -> &'static str {
        match state {
            GState::Waiting if reason != WaitReason::None => reason.words(),
            state => state.name(),
        }
    }

    /// When it began to wait, about; or its marked call.
    pub(crate) fn since(&self) -> u64 {
        self.state_since.load(Ordering::Relaxed)
    }

    /// Before it is stopped without a switch: where its registers are, if they are known.
    #[inline]
    pub(crate) fn set_stopped_registers(&self, registers: *const Registers) {
        self.stopped_registers.store(registers.cast_mut(), Ordering::Relaxed);
    }

    /// See [`G::set_stopped_registers`].
    pub(crate) fn shown(&self) -> *const Registers {
        self.stopped_registers.load(Ordering::Relaxed)
    }

    /// A marked call begins.
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

    /// It has begun, and is not finished.
    #[inline]
    pub(crate) fn has_stack(&self) -> bool {
        self.has_stack.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_has_stack(&self, has: bool) {
        self.has_stack.store(has, Ordering::Relaxed);
    }

    /// Dead, with a task.
    #[inline]
    pub(crate) fn is_prepared(&self) -> bool {
        self.has_flag(PREPARED)
    }

    #[inline]
    pub(crate) fn set_prepared(&self, prepared: bool) {
        self.set_flag(PREPARED, prepared);
    }

    /// `goexit` was called in it.
    #[inline]
    pub(crate) fn is_exiting(&self) -> bool {
        self.has_flag(EXITING)
    }

    #[inline]
    pub(crate) fn set_exiting(&self, exiting: bool) {
        self.set_flag(EXITING, exiting);
    }
}
