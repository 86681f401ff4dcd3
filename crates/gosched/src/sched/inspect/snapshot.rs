//! What a goroutine is doing, as it was at one moment: its registers, and a copy of its stack. The program goes
//! on meanwhile.
//!
//! **It does not run.** Its stack is copied, and the copy is good if the G stood still meanwhile (`gmp/state`).
//! The kernel copies: the stack may be gone by then, which is no fault. Registers are where the switch left them,
//! or, in a marked call and where the M was stopped in a signal handler, where the G says ([`G::set_stopped_registers`]).
//!
//! **It runs.** Its M is interrupted, and copies them itself in the handler. The word `copy_request` of an M, and who
//! may change it:
//!
//! - null: nobody looks. An inspector puts its [`CopyRequest`] there, then sends the signal.
//! - a [`CopyRequest`]: the handler takes it out, fills it, and says so in it. Or the inspector has waited for long
//!   enough and takes it back. Whoever takes it out has it.
//!
//! **It is blocked in a call that nobody marked.** A signal would end some calls before their time, and somebody may
//! hold it back. So none is sent: of their code only the two registers are known that the kernel tells, and its stack
//! is copied if it has not run meanwhile. The walk finds the rest in the code; where it does not, and the call goes
//! on by itself after a signal, the M is asked after all ([`Snapshot::take_more`]).
//!
//! A call may begin between the last look at a thread and the signal, and is ended then. So the signal is sent once,
//! and only to who has run for a while, and a moment ago by its CPU clock ([`wait_until_interruptible`]).
//!
//! A stack that is larger than the room for it is read on while the goroutine stands still ([`StackAccess`]).
//!
//! One that changes all the time, faster than it can be copied, is copied while the world is stopped; if that can be
//! had in time, for somebody may hold the signal back.

use crate::gmp::g::G;
use crate::gmp::m::M;
use crate::gmp::reason::WaitReason;
use crate::gmp::state::{GState, StateVersion};
use crate::sched::inspect::batch::StackBatch;
use crate::sched::inspect::stack_copy::{self, StackCopy};
use crate::sched::inspect::tables;
use crate::sched::inspect::types::InterruptPolicy;
use crate::sched::switch::{preempt, syscall};
use crate::sched::world::{self, StopReason};
use crate::sys::forked;
use crate::sys::thread_status::{self, BlockedSyscall, ThreadStatus};
use gosched_fiber::arch::{self, Registers, SAVED_WORDS};
use gosched_fiber::interrupt::Interruption;
use gosched_fiber::stack;
use gosched_fiber::unwind::{End, Frame, Walker};
use std::cell::RefCell;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// So often it is tried.
const MAX_TRIES: u32 = 20;
/// How long it is waited for the world to stop.
const STOP_WORLD_TIMEOUT: Duration = Duration::from_millis(100);
/// So often it is waited for another who looks.
const MAX_BUSY_WAITS: u32 = 5000;
/// How long a goroutine that runs has to answer: its thread may not have a CPU.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(20);
/// The same where the process ends, and nobody waits for anything else.
const ANSWER_TIMEOUT_AT_EXIT: Duration = Duration::from_millis(100);
/// How long between looks whether it has.
const POLL_INTERVAL: Duration = Duration::from_micros(30);
/// When it is asked again: another's signal may have come just before.
const RESEND_INTERVAL: Duration = Duration::from_millis(2);
/// So many that are blocked in calls are waited for in vain: others are not asked then.
const MAX_UNANSWERED: u32 = 3;

/// See the top of this file. It can be taken again.
#[derive(Debug)]
pub(crate) struct Snapshot {
    start: WalkStart,
    /// Why the goroutine waited, and since when.
    wait: (WaitReason, u64),
    /// Its thread was blocked in a call that nobody marked; since when, if that is known.
    is_blocked: bool,
    blocked_since: Option<u64>,
    access: StackAccess,
    /// How many did not answer that were blocked in a call.
    unanswered: u32,
    /// The M that copied it.
    copier: Option<&'static M>,
    batch: StackBatch,
    view: StackCopy,
    policy: InterruptPolicy,
    /// The world was to stop, and did not.
    stop_failed: bool,
}

/// Where a walk begins.
#[derive(Clone, Copy, Debug)]
enum WalkStart {
    /// It has not begun.
    NotBegun,
    /// Nothing is known.
    Unknown,
    /// Where the registers say; `true`: exactly there, `false`: after a call.
    At(bool),
    /// Of these only the two are known.
    Blocked,
}

/// Whether a stack that there was no room for can be read on.
#[derive(Clone, Copy, Debug)]
enum StackAccess {
    /// It cannot.
    Gone,
    /// While the goroutine stands still.
    WhileStill(&'static G, StateVersion),
    /// While the thread of the M has run for so long.
    Blocked(&'static M, Option<u64>),
    /// It is the caller's.
    Own,
}

impl StackAccess {
    fn is_still(self) -> bool {
        match self {
            StackAccess::Gone => false,
            StackAccess::WhileStill(g, moment) => g.is_unchanged(moment),
            StackAccess::Blocked(m, ran) => {
                ran.is_some() && ran == thread_status::thread_cpu_nanos(m.tid())
            }
            StackAccess::Own => true,
        }
    }
}

/// What came of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyResult {
    /// It was seen: it copied itself.
    Copied,
    /// It was, if it has stood still since.
    CopiedIfStill,
    /// It was not there any more, or not yet.
    Missed,
    /// It runs, and did not say where.
    NoAnswer,
    /// Somebody else looks at it.
    Busy,
}

impl CopyResult {
    fn from_copied(there: bool) -> CopyResult {
        if there { CopyResult::CopiedIfStill } else { CopyResult::Missed }
    }
}

/// Asks an M for a view of its goroutine.
#[derive(Debug)]
struct CopyRequest {
    of: &'static G,
    /// The handler's, once it has taken the request.
    view: *mut StackCopy,
    answer: AtomicU32,
}

/// The answers of an M: none yet; here it is; it runs another one, or none.
const ANSWER_PENDING: u32 = 0;
const ANSWER_COPIED: u32 = 1;
const ANSWER_NOT_RUNNING: u32 = 2;

impl Snapshot {
    pub(crate) fn new(policy: InterruptPolicy) -> Snapshot {
        Snapshot {
            start: WalkStart::Unknown,
            wait: (WaitReason::None, 0),
            is_blocked: false,
            blocked_since: None,
            access: StackAccess::Gone,
            unanswered: 0,
            copier: None,
            batch: StackBatch::new(),
            view: StackCopy::new(),
            policy,
            stop_failed: false,
        }
    }

    /// Why the goroutine waited, if it did.
    pub(crate) fn reason(&self) -> WaitReason {
        self.wait.0
    }

    /// Since when it waits, or is in its call, if that is known.
    pub(crate) fn since(&self) -> Option<u64> {
        if self.is_blocked { self.blocked_since } else { Some(self.wait.1) }
    }

    /// Whether the goroutine's thread was blocked in a call that nobody marked.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// The M that ran it, if that one was asked.
    pub(crate) fn copier(&self) -> Option<&'static M> {
        self.copier
    }

    /// Of `g`, which is not the caller: its state then. `None`: it is dead.
    pub(crate) fn take(&mut self, g: &'static G) -> Option<StateVersion> {
        (self.copier, self.access) = (None, StackAccess::Gone);
        self.view.shrink();
        if let Some(moment) = self.take_prefetched(g) {
            return Some(moment);
        }
        let (mut tries, mut busy, mut stops) = (0, 0, false);
        while tries < MAX_TRIES && busy < MAX_BUSY_WAITS {
            let moment = g.state_version();
            self.wait = (g.reason(), g.since());
            let seen = match moment.state() {
                state if !state.is_alive() => return None,
                GState::Running => self.take_running(g),
                state => {
                    stops = true;
                    self.take_stopped(g, state)
                }
            };
            tries += match seen {
                CopyResult::Copied => return Some(moment),
                CopyResult::CopiedIfStill if g.is_unchanged(moment) => {
                    if !matches!(self.access, StackAccess::Blocked(..)) {
                        self.access = StackAccess::WhileStill(g, moment);
                    }
                    return Some(moment);
                }
                // It is on its way from one state to another.
                CopyResult::CopiedIfStill | CopyResult::Missed => 1,
                CopyResult::NoAnswer => MAX_TRIES / 4,
                // Somebody else looks at it.
                CopyResult::Busy => {
                    busy += 1;
                    std::thread::sleep(POLL_INTERVAL);
                    0
                }
            };
            std::thread::yield_now();
        }
        // One that only runs would not stop for that either.
        if stops
            && self.policy == InterruptPolicy::RestartableOnly
            && !self.stop_failed
            && !forked::is_child()
        {
            return self.take_in_a_stopped_world(g);
        }
        (self.start, self.access) = (WalkStart::Unknown, StackAccess::Gone);
        Some(g.state_version()).filter(|moment| moment.state().is_alive())
    }

    /// Stacks of those who will be taken next, in this order: see `batch`.
    pub(crate) fn prefetch(&mut self, gs: impl Iterator<Item = &'static G>) {
        self.batch.copy(gs);
    }

    /// From the copy that was made ahead, if it is still good.
    fn take_prefetched(&mut self, g: &'static G) -> Option<StateVersion> {
        let (copied, bytes) = self.batch.take(g)?;
        self.view.set(copied.sp, bytes);
        (self.wait, self.is_blocked) = (copied.wait, false);
        let moment = copied.moment;
        self.set_saved().then_some(moment)
    }

    /// It changes faster than it can be copied: not while the world is stopped.
    fn take_in_a_stopped_world(&mut self, g: &'static G) -> Option<StateVersion> {
        let mut moment = g.state_version();
        let mut seen = CopyResult::Missed;
        let stopped = world::try_with_world_stopped(StopReason::Dump, STOP_WORLD_TIMEOUT, |_| {
            moment = g.state_version();
            self.wait = (g.reason(), g.since());
            let state = moment.state();
            if state.is_alive() && state != GState::Running {
                seen = self.take_stopped(g, state);
            }
        });
        self.stop_failed = stopped.is_err();
        self.access = StackAccess::WhileStill(g, moment);
        if seen == CopyResult::Missed {
            self.start = WalkStart::Unknown;
        }
        moment.state().is_alive().then_some(moment)
    }

    /// Of the caller, a goroutine or not.
    #[inline(never)]
    pub(crate) fn take_own(&mut self) {
        let mut registers = Registers::default();
        // SAFETY: to — a local.
        unsafe { arch::capture_registers(&raw mut registers) };
        self.begin_own();
        self.view.fill(registers, None);
    }

    /// Of the caller, which is `g`: of the frames above the one that these registers are of.
    pub(crate) fn take_above(&mut self, g: &'static G, registers: Registers) {
        self.begin_own();
        self.view.fill(registers, Some(g));
    }

    /// Of an ordinary thread, which waits and shows these registers.
    pub(crate) fn take_thread(&mut self, registers: Registers) {
        (self.start, self.is_blocked) = (WalkStart::At(false), false);
        (self.copier, self.access) = (None, StackAccess::Gone);
        self.view.shrink();
        self.view.fill(registers, None);
    }

    fn begin_own(&mut self) {
        (self.start, self.is_blocked) = (WalkStart::At(false), false);
        (self.copier, self.access) = (None, StackAccess::Own);
        self.view.shrink();
    }

    fn take_stopped(&mut self, g: &'static G, state: GState) -> CopyResult {
        (self.start, self.is_blocked, self.access) = (WalkStart::Unknown, false, StackAccess::Gone);
        let shown = g.shown();
        if !shown.is_null() {
            let Some(registers) = stack_copy::shown_registers(shown) else {
                return CopyResult::Missed;
            };
            self.start = WalkStart::At(state != GState::Syscall);
            self.view.fill(registers, Some(g));
            return CopyResult::from_copied(g.shown() == shown);
        }
        if state == GState::Syscall {
            return CopyResult::CopiedIfStill;
        }
        if !g.has_stack() {
            self.start = WalkStart::NotBegun;
            return CopyResult::CopiedIfStill;
        }
        // The registers are the first words on the stack.
        self.view.fill(Registers { sp: stack_copy::saved_sp(g), ..Registers::default() }, Some(g));
        CopyResult::from_copied(self.set_saved())
    }

    /// The walk begins where a switch left off, which is at the stack pointer. False: nothing is there.
    fn set_saved(&mut self) -> bool {
        let view = &mut self.view;
        let sp = view.registers.sp;
        let word = |index: usize| view.read(sp + 8 * index);
        let Some(words) = all(std::array::from_fn(word)) else { return false };
        self.start = WalkStart::At(false);
        view.registers = arch::registers_of_context(&words, sp);
        true
    }

    fn take_running(&mut self, g: &'static G) -> CopyResult {
        (self.start, self.is_blocked, self.access) = (WalkStart::Unknown, false, StackAccess::Gone);
        if forked::is_child() {
            // Its thread stayed behind.
            return CopyResult::Copied;
        }
        let Some(m) = tables::runner_of(g) else { return CopyResult::Missed };
        let before = thread_status::thread_cpu_nanos(m.tid());
        let (doing, call) = thread_status::status_and_syscall(m.tid());
        if self.policy == InterruptPolicy::RestartableOnly
            && doing == ThreadStatus::Unknown
            && !sample_progress(m, before)
        {
            // A signal might end a call.
            return CopyResult::Copied;
        }
        let Some(call) = call else { return self.request_copy(m, g) };
        (self.start, self.is_blocked) = (WalkStart::Blocked, true);
        self.access = StackAccess::Blocked(m, before);
        self.blocked_since = before.and_then(|ran| syscall::blocked_since(m, ran));
        let registers = Registers { callee_saved: [0; 6], pc: call.pc, sp: call.sp };
        self.view.fill(registers, Some(g));
        CopyResult::from_copied(self.access.is_still())
    }

    /// Takes it again, where that may tell more than it did: all registers of one that is blocked, and more of the
    /// stack of one that runs. False: there is no more, and of what was taken nothing is left.
    pub(crate) fn take_more(&mut self, g: &'static G) -> bool {
        let m = match (self.access, self.copier) {
            (StackAccess::Blocked(m, _), _)
                if self.unanswered < MAX_UNANSWERED && self.may_be_asked(m) =>
            {
                m
            }
            (StackAccess::Gone, Some(m)) if self.view.grow() => m,
            _ => return false,
        };
        let was_blocked = matches!(self.start, WalkStart::Blocked);
        let seen = self.request_copy(m, g);
        self.unanswered += u32::from(was_blocked && seen == CopyResult::NoAnswer);
        self.access = StackAccess::Gone;
        seen == CopyResult::Copied
    }

    /// Whether its thread is in that call still, and goes on with it after a signal.
    fn may_be_asked(&self, m: &'static M) -> bool {
        let (_, call) = thread_status::status_and_syscall(m.tid());
        let may =
            |call: BlockedSyscall| self.policy == InterruptPolicy::Always || call.is_restartable();
        call.is_some_and(may) && self.access.is_still()
    }

    /// Lets the M copy it.
    fn request_copy(&mut self, m: &'static M, g: &'static G) -> CopyResult {
        let request =
            CopyRequest { of: g, view: &raw mut self.view, answer: AtomicU32::new(ANSWER_PENDING) };
        let word = ptr::from_ref(&request).cast_mut().cast();
        // PAIR inspector: the handler sees the request.
        let free = m.copy_request.compare_exchange(
            ptr::null_mut(),
            word,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if free.is_err() {
            return CopyResult::Busy;
        }
        let start = Instant::now();
        let timeout = match self.policy {
            InterruptPolicy::RestartableOnly => ANSWER_TIMEOUT,
            InterruptPolicy::Always => ANSWER_TIMEOUT_AT_EXIT,
        };
        // A signal for each look might come after the answer, and end a call.
        let mut next = Duration::ZERO;
        loop {
            // PAIR inspector-answer: sees what the handler wrote.
            match request.answer.load(Ordering::Acquire) {
                ANSWER_COPIED => {
                    (self.start, self.copier) = (WalkStart::At(true), Some(m));
                    return CopyResult::Copied;
                }
                ANSWER_NOT_RUNNING => return CopyResult::Missed,
                _ => {}
            }
            let waited = start.elapsed();
            let mut seen = (waited > timeout).then_some(CopyResult::NoAnswer);
            if waited >= next {
                let can_be = self.policy == InterruptPolicy::Always || wait_until_interruptible(m);
                if !can_be || syscall::is_in_syscall(m) {
                    seen = Some(CopyResult::Missed);
                } else if request.answer.load(Ordering::Relaxed) != ANSWER_PENDING {
                    continue;
                } else if !preempt::interrupt(m) {
                    seen = Some(CopyResult::NoAnswer);
                }
                next = waited + RESEND_INTERVAL;
            }
            if let Some(seen) = seen {
                // PAIR inspector: if it is still there, nobody else has it.
                let taken = m.copy_request.compare_exchange(
                    word,
                    ptr::null_mut(),
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
                if taken.is_ok() {
                    return seen;
                }
                // The handler has it, and is not long.
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Calls `each` with every word of the stack. False: not with all, or not all registers are known.
    pub(crate) fn words(&mut self, mut each: impl FnMut(usize)) -> bool {
        let has_registers = match self.start {
            WalkStart::NotBegun => return true,
            WalkStart::Unknown => return false,
            WalkStart::At(_) => true,
            WalkStart::Blocked => false,
        };
        self.view.registers.callee_saved.into_iter().for_each(&mut each);
        let rest = self.access;
        self.view.words(each, || rest.is_still()) && has_registers
    }

    /// Calls `each` with each frame: see [`Walker::walk`].
    pub(crate) fn walk(&mut self, walker: &mut Walker, each: impl FnMut(Frame) -> bool) -> End {
        let (registers, rest) = (self.view.registers, self.access);
        let view = RefCell::new(&mut self.view);
        let read = |address| view.borrow_mut().read_or_recopy(address, || rest.is_still());
        match self.start {
            WalkStart::NotBegun => End::Complete,
            WalkStart::Unknown => End::Broken,
            WalkStart::At(exact) => walker.walk(&registers, exact, read, each),
            WalkStart::Blocked => {
                walker.walk_from_pc_and_sp(registers.pc, registers.sp, read, each)
            }
        }
    }
}

/// All words, if all are known.
fn all(words: [Option<usize>; SAVED_WORDS]) -> Option<[usize; SAVED_WORDS]> {
    let known = words.map(Option::unwrap_or_default);
    words.iter().all(Option::is_some).then_some(known)
}

/// Whether the M's thread has run a moment later.
fn sample_progress(m: &'static M, before: Option<u64>) -> bool {
    std::thread::sleep(POLL_INTERVAL);
    before != thread_status::thread_cpu_nanos(m.tid())
}

/// Whether a signal ends no call of the M's thread before its time, if it comes at once: as far as it can be seen.
///
/// It takes some microseconds until a signal has come. Whoever runs for a moment between two calls may be in the next
/// one by then, and is seen blocked soon; so only one that has run for a while is interrupted.
fn wait_until_interruptible(m: &'static M) -> bool {
    let ran = || thread_status::thread_cpu_nanos(m.tid());
    for _ in 0..MAX_TRIES {
        let (start, before) = (Instant::now(), ran());
        std::thread::sleep(POLL_INTERVAL);
        let (waited, after) = (start.elapsed(), ran());
        let ran_for = Duration::from_nanos(after.unwrap_or(0).saturating_sub(before.unwrap_or(0)));
        if 4 * ran_for >= 3 * waited {
            return true;
        }
        match thread_status::status_and_syscall(m.tid()) {
            (_, Some(call)) => return call.is_restartable(),
            (ThreadStatus::Unknown, _) => return before != after,
            // It waits for a CPU, and comes to the signal first; unless it had one meanwhile.
            _ if after == ran() => return true,
            _ => {}
        }
    }
    false
}

/// In the signal's handler: somebody may want to see what the goroutine of `m` does.
pub(crate) fn answer_request(m: &'static M, at: &Interruption) {
    if m.copy_request.load(Ordering::Relaxed).is_null() {
        return;
    }
    // PAIR inspector: sees what the inspector wrote; and has the view, if there is one.
    let request = m.copy_request.swap(ptr::null_mut(), Ordering::AcqRel).cast::<CopyRequest>();
    // SAFETY: null, or a request whose owner waits until it has an answer.
    let Some(request) = (unsafe { request.as_ref() }) else { return };
    let g = m.curg().filter(|g| ptr::eq(*g, request.of) && g.state() == GState::Running);
    // Just before a switch to it, the M is on another's stack.
    let is_there = |g: &&'static G| match stack::owner(at.registers().sp) {
        Some(owner) => owner == g.id(),
        None => m.carrier.preempt_disable_count() == 0,
    };
    let g = g.filter(is_there);
    let answer = match g {
        Some(g) => {
            // SAFETY: the view is the handler's until it answers.
            unsafe { &mut *request.view }.fill(at.registers(), Some(g));
            ANSWER_COPIED
        }
        None => ANSWER_NOT_RUNNING,
    };
    // PAIR inspector-answer: publishes what was written above.
    request.answer.store(answer, Ordering::Release);
}

fn allows_partial_data(flags: usize) -> bool {
    flags & libc::MSG_WAITALL as usize == 0
}

/// How a call of the kernel behaves when it is interrupted.
trait Restartable {
    /// It goes on by itself.
    fn is_restartable(&self) -> bool;
}

impl Restartable for BlockedSyscall {
    fn is_restartable(&self) -> bool {
        let file = self.arguments[0] as i32;
        match self.number {
            // With a time limit it does not.
            libc::SYS_futex => self.arguments[3] == 0,
            libc::SYS_wait4
            | libc::SYS_waitid
            | libc::SYS_flock
            | libc::SYS_fcntl
            | libc::SYS_openat
            | libc::SYS_open => true,
            // Those that write, and those that wait for all, may end with a part.
            libc::SYS_recvfrom => {
                allows_partial_data(self.arguments[3]) && !thread_status::has_socket_timeout(file)
            }
            libc::SYS_recvmsg => {
                allows_partial_data(self.arguments[2]) && !thread_status::has_socket_timeout(file)
            }
            libc::SYS_read | libc::SYS_readv => !thread_status::has_socket_timeout(file),
            libc::SYS_accept | libc::SYS_accept4 => !thread_status::has_socket_timeout(file),
            _ => false,
        }
    }
}
