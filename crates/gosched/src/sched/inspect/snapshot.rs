//! A snapshot of one goroutine at one moment: its registers, and a copy of its stack. The program
//! continues meanwhile.
//!
//! **A goroutine that does not run.** The inspector copies the stack; the copy is valid if the G's
//! state has not changed meanwhile (`gmp/state`). The kernel does the copying, so a stack that was
//! unmapped meanwhile causes no fault. The registers are where the switch saved them or, in a
//! marked call and in an M that was stopped in a signal handler, where the G publishes them
//! ([`G::set_stopped_registers`]).
//!
//! **A goroutine that runs.** The inspector interrupts the M, which makes the copy itself, in the
//! signal handler. The word `copy_request` of an M, and who may change it:
//!
//! - null: no request. An inspector stores its [`CopyRequest`] there, then sends the signal.
//! - a [`CopyRequest`]: the handler takes it out, fills it in, and stores the answer in it. Or the
//!   inspector times out and takes it back. Only the thread that has taken the request out uses it.
//!
//! **A goroutine that is blocked in an unmarked call.** A signal would end some calls early, and
//! the thread may block the signal. So none is sent at first: the kernel reports the program
//! counter and the stack pointer, and the copy is valid if the thread has not run meanwhile. The
//! walk derives further registers from the code. If it cannot, and the call continues by itself
//! after a signal, the inspector interrupts the M after all ([`Snapshot::take_more`]).
//!
//! A call that begins between the last check of a thread and the signal is ended early. So a signal
//! is sent at most every [`RESEND_INTERVAL`], and only to a thread that, by its CPU clock, has been
//! running for a while ([`wait_until_interruptible`]).
//!
//! A stack that is larger than the buffer is read piece by piece while the goroutine stands still
//! ([`StackAccess`]). A goroutine that changes its state faster than its stack can be copied is
//! copied while the world is stopped, if the world stops in time: a goroutine may block the signal.
//!
//! This module never reads an inspected stack through a pointer: the kernel makes each copy.

use crate::gmp::g::G;
use crate::gmp::m::M;
use crate::gmp::state::{GState, StateVersion};
use crate::probe::field::StopReason;
use crate::probe::wait_reason::WaitReason;
use crate::sched::inspect::batch::StackBatch;
use crate::sched::inspect::stack_copy::{self, StackCopy};
use crate::sched::inspect::tables;
use crate::sched::inspect::types::InterruptPolicy;
use crate::sched::switch::{preempt, syscall};
use crate::sched::world;
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

/// Maximum number of attempts.
const MAX_TRIES: u32 = 20;
/// How long the inspector waits for the world to stop.
const STOP_WORLD_TIMEOUT: Duration = Duration::from_millis(100);
/// Maximum number of waits for another inspector.
const MAX_BUSY_WAITS: u32 = 5000;
/// How long a running goroutine has to answer: its thread may have to wait for a CPU.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(20);
/// The same while the process ends, when nothing else is urgent.
const ANSWER_TIMEOUT_AT_EXIT: Duration = Duration::from_millis(100);
/// Interval between two checks for the answer.
const POLL_INTERVAL: Duration = Duration::from_micros(30);
/// Interval between signals: the first may have been handled before the request was stored.
const RESEND_INTERVAL: Duration = Duration::from_millis(2);
/// Number of unanswered requests after which blocked goroutines are no longer interrupted.
const MAX_UNANSWERED: u32 = 3;

/// See the top of this file. One value can take many snapshots, one after the other.
#[derive(Debug)]
pub(crate) struct Snapshot {
    start: WalkStart,
    /// Why and since when the goroutine waited.
    wait: (WaitReason, u64),
    /// Whether the thread was blocked in an unmarked call; and since when, if that is known.
    is_blocked: bool,
    blocked_since: Option<u64>,
    access: StackAccess,
    /// Number of goroutines blocked in a call that did not answer.
    unanswered: u32,
    /// The M that made the copy.
    copier: Option<&'static M>,
    batch: StackBatch,
    view: StackCopy,
    policy: InterruptPolicy,
    /// Whether an attempt to stop the world failed.
    stop_failed: bool,
}

/// Where a walk begins.
#[derive(Clone, Copy, Debug)]
enum WalkStart {
    /// The goroutine has not begun.
    NotBegun,
    /// No register is known.
    Unknown,
    /// At the registers. `true`: the program counter is exact; `false`: it is a return address.
    At(bool),
    /// Only the program counter and the stack pointer are known.
    Blocked,
}

/// Whether the rest of a stack that did not fit into the buffer can be read.
#[derive(Clone, Copy, Debug)]
enum StackAccess {
    /// No.
    Gone,
    /// As long as the state of the G has not changed.
    WhileStill(&'static G, StateVersion),
    /// As long as the CPU clock of the M's thread has this value.
    Blocked(&'static M, Option<u64>),
    /// Always: the stack is the caller's own.
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

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyResult {
    /// The snapshot is final: the M made the copy itself, or nothing can be learned.
    Copied,
    /// The stack was copied. The copy is valid if the goroutine has stood still since.
    CopiedIfStill,
    /// The goroutine was not found in the state that was seen.
    Missed,
    /// The goroutine runs, and its M did not answer.
    NoAnswer,
    /// Another inspector has a request at the M.
    Busy,
}

impl CopyResult {
    fn from_copied(there: bool) -> CopyResult {
        if there { CopyResult::CopiedIfStill } else { CopyResult::Missed }
    }
}

/// A request to an M to copy the registers and the stack of its goroutine.
#[derive(Debug)]
struct CopyRequest {
    of: &'static G,
    /// Belongs to the handler once it has taken the request.
    view: *mut StackCopy,
    answer: AtomicU32,
}

/// The answers of an M: none yet; copied; the M runs another goroutine, or none.
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

    /// Returns why the goroutine waited, if it did.
    pub(crate) fn reason(&self) -> WaitReason {
        self.wait.0
    }

    /// Returns since when the goroutine has waited or has been in its call, if that is known.
    pub(crate) fn since(&self) -> Option<u64> {
        if self.is_blocked { self.blocked_since } else { Some(self.wait.1) }
    }

    /// Returns whether the goroutine's thread was blocked in an unmarked call.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Returns the M that made the copy, if an M did.
    pub(crate) fn copier(&self) -> Option<&'static M> {
        self.copier
    }

    /// Takes a snapshot of `g`, which is not the caller. Returns its state at that moment, or
    /// `None` if `g` is dead.
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
                // The goroutine is changing its state.
                CopyResult::CopiedIfStill | CopyResult::Missed => 1,
                CopyResult::NoAnswer => MAX_TRIES / 4,
                CopyResult::Busy => {
                    busy += 1;
                    std::thread::sleep(POLL_INTERVAL);
                    0
                }
            };
            std::thread::yield_now();
        }
        // A goroutine that was only seen running would not stop for the world either.
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

    /// Copies the stacks of the goroutines that will be taken next, in this order; see `batch`.
    pub(crate) fn prefetch(&mut self, gs: impl Iterator<Item = &'static G>) {
        self.batch.copy(gs);
    }

    /// Takes the snapshot from the prefetched copy, if that is still valid.
    fn take_prefetched(&mut self, g: &'static G) -> Option<StateVersion> {
        let (copied, bytes) = self.batch.take(g)?;
        self.view.set(copied.sp, bytes);
        (self.wait, self.is_blocked) = (copied.wait, false);
        let moment = copied.moment;
        self.set_saved().then_some(moment)
    }

    /// Takes the snapshot of a goroutine that changes its state too fast, in a stopped world.
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

    /// Takes a snapshot of the caller, which may be a goroutine or a thread.
    #[inline(never)]
    pub(crate) fn take_own(&mut self) {
        let mut registers = Registers::default();
        // SAFETY: to — a local variable.
        unsafe { arch::capture_registers(&raw mut registers) };
        self.begin_own();
        self.view.fill(registers, None);
    }

    /// Takes a snapshot of the caller, `g`, from the frame with these registers outwards.
    pub(crate) fn take_above(&mut self, g: &'static G, registers: Registers) {
        self.begin_own();
        self.view.fill(registers, Some(g));
    }

    /// Takes a snapshot of an ordinary thread that waits and has published these registers.
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
        // The switch has saved the registers on the stack, at the stack pointer.
        self.view.fill(Registers { sp: stack_copy::saved_sp(g), ..Registers::default() }, Some(g));
        CopyResult::from_copied(self.set_saved())
    }

    /// Reads the registers that the switch saved at the stack pointer. Returns false if the copy
    /// does not contain them.
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
            // The thread exists only in the parent.
            return CopyResult::Copied;
        }
        let Some(m) = tables::runner_of(g) else { return CopyResult::Missed };
        let before = thread_status::thread_cpu_nanos(m.tid());
        let (doing, call) = thread_status::status_and_syscall(m.tid());
        if self.policy == InterruptPolicy::RestartableOnly
            && doing == ThreadStatus::Unknown
            && !sample_progress(m, before)
        {
            // The thread may be blocked in a call that a signal would end early.
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

    /// Takes the snapshot again, if that may show more: all registers of a blocked goroutine, or
    /// more of the stack of a running one. If it returns false, the stack must not be read again:
    /// the copy may be gone.
    pub(crate) fn take_more(&mut self, g: &'static G) -> bool {
        let m = match (self.access, self.copier) {
            (StackAccess::Blocked(m, _), _)
                if self.unanswered < MAX_UNANSWERED && self.may_be_interrupted(m) =>
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

    /// Returns whether the thread of `m` is still in that call and continues it after a signal.
    fn may_be_interrupted(&self, m: &'static M) -> bool {
        let (_, call) = thread_status::status_and_syscall(m.tid());
        let may =
            |call: BlockedSyscall| self.policy == InterruptPolicy::Always || call.is_restartable();
        call.is_some_and(may) && self.access.is_still()
    }

    /// Interrupts `m`, whose signal handler copies `g`, and waits for the answer.
    fn request_copy(&mut self, m: &'static M, g: &'static G) -> CopyResult {
        let request =
            CopyRequest { of: g, view: &raw mut self.view, answer: AtomicU32::new(ANSWER_PENDING) };
        let word = ptr::from_ref(&request).cast_mut().cast();
        // PAIR inspector: publishes the request to the handler.
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
        // Not at each check: a signal might arrive after the answer, and end a call early.
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
                // PAIR inspector: if the request is still there, the handler has not taken it.
                let taken = m.copy_request.compare_exchange(
                    word,
                    ptr::null_mut(),
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
                if taken.is_ok() {
                    return seen;
                }
                // The handler has taken the request, and answers soon.
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Calls `each` with every word of registers and stack. Returns false if some are missing.
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

    /// Calls `each` with each frame; see [`Walker::walk`].
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

/// Returns all words, or `None` if one is missing.
fn all(words: [Option<usize>; SAVED_WORDS]) -> Option<[usize; SAVED_WORDS]> {
    let known = words.map(Option::unwrap_or_default);
    words.iter().all(Option::is_some).then_some(known)
}

/// Returns whether the M's thread runs within [`POLL_INTERVAL`].
fn sample_progress(m: &'static M, before: Option<u64>) -> bool {
    std::thread::sleep(POLL_INTERVAL);
    before != thread_status::thread_cpu_nanos(m.tid())
}

/// Waits until a signal that is sent at once would end no call of the M's thread early, as far as
/// that can be seen. Returns false if there was no such moment.
///
/// A signal takes some microseconds to arrive. A thread that runs only for a moment between two
/// calls may be in the next call by then. So only a thread that has run for a while is interrupted;
/// any other is soon seen blocked.
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
            // The thread waits for a CPU and handles the signal first, unless it has run since.
            _ if after == ran() => return true,
            _ => {}
        }
    }
    false
}

/// Answers the request at `m`, if there is one. Called in the handler of the preemption signal.
pub(crate) fn answer_request(m: &'static M, at: &Interruption) {
    if m.copy_request.load(Ordering::Relaxed).is_null() {
        return;
    }
    // PAIR inspector: sees what the inspector wrote, and owns the request from here on.
    let request = m.copy_request.swap(ptr::null_mut(), Ordering::AcqRel).cast::<CopyRequest>();
    // SAFETY: null, or a request whose owner waits for the answer.
    let Some(request) = (unsafe { request.as_ref() }) else { return };
    let g = m.curg().filter(|g| ptr::eq(*g, request.of) && g.state() == GState::Running);
    // Shortly before a switch to the goroutine, the M is still on another stack.
    let is_there = |g: &&'static G| match stack::owner(at.registers().sp) {
        Some(owner) => owner == g.id(),
        None => m.carrier.preempt_disable_count() == 0,
    };
    let g = g.filter(is_there);
    let answer = match g {
        Some(g) => {
            // SAFETY: the copy belongs to the handler until it answers.
            unsafe { &mut *request.view }.fill(at.registers(), Some(g));
            ANSWER_COPIED
        }
        None => ANSWER_NOT_RUNNING,
    };
    // PAIR inspector-answer: publishes what was written above.
    request.answer.store(answer, Ordering::Release);
}

fn lacks_msg_waitall(flags: usize) -> bool {
    flags & libc::MSG_WAITALL as usize == 0
}

/// How a system call behaves when a signal interrupts it.
trait Restartable {
    /// Returns whether the call continues by itself.
    fn is_restartable(&self) -> bool;
}

impl Restartable for BlockedSyscall {
    fn is_restartable(&self) -> bool {
        let file = self.arguments[0] as i32;
        match self.number {
            // A wait with a timeout does not continue.
            libc::SYS_futex => self.arguments[3] == 0,
            libc::SYS_wait4
            | libc::SYS_waitid
            | libc::SYS_flock
            | libc::SYS_fcntl
            | libc::SYS_openat
            | libc::SYS_open => true,
            // Calls that write, and receives with `MSG_WAITALL`, may return partial data.
            libc::SYS_recvfrom => {
                lacks_msg_waitall(self.arguments[3]) && !thread_status::has_socket_timeout(file)
            }
            libc::SYS_recvmsg => {
                lacks_msg_waitall(self.arguments[2]) && !thread_status::has_socket_timeout(file)
            }
            libc::SYS_read | libc::SYS_readv => !thread_status::has_socket_timeout(file),
            libc::SYS_accept | libc::SYS_accept4 => !thread_status::has_socket_timeout(file),
            _ => false,
        }
    }
}
