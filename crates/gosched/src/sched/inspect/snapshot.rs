//! What a goroutine is doing, as it was at one moment: its registers, and a copy of its stack. The program goes
//! on meanwhile.
//!
//! **It does not run.** Its stack is copied, and the copy is good if the G stood still meanwhile (`gmp/state`).
//! The kernel copies: the stack may be gone by then, which is no fault. Registers are where the switch left them,
//! or, in a marked call and where the M was stopped in a signal handler, where the G says ([`G::show`]).
//!
//! **It runs.** Its M is interrupted, and copies them itself in the handler. The word `viewer` of an M, and who
//! may change it:
//!
//! - null: nobody looks. A viewer puts its [`Request`] there, then sends the signal.
//! - a [`Request`]: the handler takes it out, fills it, and says so in it. Or the viewer has waited for long
//!   enough and takes it back. Whoever takes it out has it.
//!
//! **It is blocked in a call that nobody marked.** A signal would end some calls before their time, and somebody may
//! hold it back. So none is sent: of their code only the two registers are known that the kernel tells, and its stack
//! is copied if it has not run meanwhile. The walk finds the rest in the code; where it does not, and the call goes
//! on by itself after a signal, the M is asked after all ([`Snapshot::take_more`]).
//!
//! A call may begin between the last look at a thread and the signal, and is ended then. So the signal is sent once,
//! and only to who has run for a while, and a moment ago by its CPU clock ([`can_be_interrupted`]).
//!
//! A stack that is larger than the room for it is read on while the goroutine stands still ([`Rest`]).
//!
//! One that changes all the time, faster than it can be copied, is copied while the world is stopped; if that can be
//! had in time, for somebody may hold the signal back.

use crate::gmp::g::G;
use crate::gmp::m::M;
use crate::gmp::reason::WaitReason;
use crate::gmp::state::{GState, Moment};
use crate::sched::inspect::batch::Ahead;
use crate::sched::inspect::stack_copy::{self, View};
use crate::sched::inspect::tables;
use crate::sched::inspect::types::Manners;
use crate::sched::switch::{preempt, syscall};
use crate::sched::world::{self, StopReason};
use crate::sys::forked;
use crate::sys::thread_look::{self, Call, Doing};
use gosched_context::arch::{self, Registers, SAVED_WORDS};
use gosched_context::interrupt::Interruption;
use gosched_context::stack;
use gosched_context::unwind::{End, Frame, Walker};
use std::cell::RefCell;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// So often it is tried.
const TRIES: u32 = 20;
/// How long it is waited for the world to stop.
const STOP: Duration = Duration::from_millis(100);
/// So often it is waited for another who looks.
const BUSY: u32 = 5000;
/// How long a goroutine that runs has to answer: its thread may not have a CPU.
const PATIENCE: Duration = Duration::from_millis(20);
/// The same where the process ends, and nobody waits for anything else.
const LAST_PATIENCE: Duration = Duration::from_millis(100);
/// How long between looks whether it has.
const PAUSE: Duration = Duration::from_micros(30);
/// When it is asked again: another's signal may have come just before.
const AGAIN: Duration = Duration::from_millis(2);
/// So many that are blocked in calls are waited for in vain: others are not asked then.
const SILENT: u32 = 3;

/// See the top of this file. It can be taken again.
#[derive(Debug)]
pub(crate) struct Snapshot {
    start: Start,
    /// Why the goroutine waited, and since when.
    wait: (WaitReason, u64),
    /// Its thread was blocked in a call that nobody marked; since when, if that is known.
    is_blocked: bool,
    blocked_since: Option<u64>,
    rest: Rest,
    /// How many did not answer that were blocked in a call.
    silent: u32,
    /// The M that copied it.
    copier: Option<&'static M>,
    ahead: Ahead,
    view: View,
    manners: Manners,
    /// The world was to stop, and did not.
    goes_on: bool,
}

/// Where a walk begins.
#[derive(Clone, Copy, Debug)]
enum Start {
    /// It has not begun.
    NotBegun,
    /// Nothing is known.
    Nowhere,
    /// Where the registers say; `true`: exactly there, `false`: after a call.
    At(bool),
    /// Of these only the two are known.
    Blocked,
}

/// Whether a stack that there was no room for can be read on.
#[derive(Clone, Copy, Debug)]
enum Rest {
    /// It cannot.
    Gone,
    /// While the goroutine stands still.
    Still(&'static G, Moment),
    /// While the thread of the M has run for so long.
    Blocked(&'static M, Option<u64>),
    /// It is the caller's.
    Own,
}

impl Rest {
    fn is_still(self) -> bool {
        match self {
            Rest::Gone => false,
            Rest::Still(g, moment) => g.is_still(moment),
            Rest::Blocked(m, ran) => ran.is_some() && ran == thread_look::cpu_time(m.thread()),
            Rest::Own => true,
        }
    }
}

/// What came of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// It was seen: it copied itself.
    AtThatMoment,
    /// It was, if it has stood still since.
    IfItIsStill,
    /// It was not there any more, or not yet.
    Not,
    /// It runs, and did not say where.
    NoAnswer,
    /// Somebody else looks at it.
    Busy,
}

impl Seen {
    fn if_so(there: bool) -> Seen {
        if there { Seen::IfItIsStill } else { Seen::Not }
    }
}

/// Asks an M for a view of its goroutine.
#[derive(Debug)]
struct Request {
    of: &'static G,
    /// The handler's, once it has taken the request.
    view: *mut View,
    answer: AtomicU32,
}

/// The answers of an M: none yet; here it is; it runs another one, or none.
const NONE: u32 = 0;
const HERE: u32 = 1;
const ELSEWHERE: u32 = 2;

impl Snapshot {
    pub(crate) fn new(manners: Manners) -> Snapshot {
        Snapshot {
            start: Start::Nowhere,
            wait: (WaitReason::None, 0),
            is_blocked: false,
            blocked_since: None,
            rest: Rest::Gone,
            silent: 0,
            copier: None,
            ahead: Ahead::new(),
            view: View::new(),
            manners,
            goes_on: false,
        }
    }

    /// Why the goroutine waited, if it did.
    pub(crate) fn reason(&self) -> WaitReason {
        self.wait.0
    }

    /// Since when it waits, or is in its call, if that is known.
    pub(crate) fn since(&self) -> Option<u64> {
        match self.is_blocked {
            true => self.blocked_since,
            false => Some(self.wait.1),
        }
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
    pub(crate) fn take(&mut self, g: &'static G) -> Option<Moment> {
        (self.copier, self.rest) = (None, Rest::Gone);
        self.view.shrink();
        if let Some(moment) = self.take_copied(g) {
            return Some(moment);
        }
        let (mut tries, mut busy, mut stops) = (0, 0, false);
        while tries < TRIES && busy < BUSY {
            let moment = g.moment();
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
                Seen::AtThatMoment => return Some(moment),
                Seen::IfItIsStill if g.is_still(moment) => {
                    if !matches!(self.rest, Rest::Blocked(..)) {
                        self.rest = Rest::Still(g, moment);
                    }
                    return Some(moment);
                }
                // It is on its way from one state to another.
                Seen::IfItIsStill | Seen::Not => 1,
                Seen::NoAnswer => TRIES / 4,
                // Somebody else looks at it.
                Seen::Busy => {
                    busy += 1;
                    std::thread::sleep(PAUSE);
                    0
                }
            };
            std::thread::yield_now();
        }
        // One that only runs would not stop for that either.
        if stops && self.manners == Manners::Polite && !self.goes_on && !forked::is_child() {
            return self.take_in_a_stopped_world(g);
        }
        (self.start, self.rest) = (Start::Nowhere, Rest::Gone);
        Some(g.moment()).filter(|moment| moment.state().is_alive())
    }

    /// Stacks of those who will be taken next, in this order: see `batch`.
    pub(crate) fn look_ahead(&mut self, gs: impl Iterator<Item = &'static G>) {
        self.ahead.copy(gs);
    }

    /// From the copy that was made ahead, if it is still good.
    fn take_copied(&mut self, g: &'static G) -> Option<Moment> {
        let (copied, bytes) = self.ahead.take(g)?;
        self.view.set(copied.sp, bytes);
        (self.wait, self.is_blocked) = (copied.wait, false);
        let moment = copied.moment;
        self.set_saved().then_some(moment)
    }

    /// It changes faster than it can be copied: not while the world is stopped.
    fn take_in_a_stopped_world(&mut self, g: &'static G) -> Option<Moment> {
        let mut moment = g.moment();
        let mut seen = Seen::Not;
        let stopped = world::try_with_world_stopped(StopReason::Dump, STOP, |_| {
            moment = g.moment();
            self.wait = (g.reason(), g.since());
            let state = moment.state();
            if state.is_alive() && state != GState::Running {
                seen = self.take_stopped(g, state);
            }
        });
        self.goes_on = stopped.is_err();
        self.rest = Rest::Still(g, moment);
        if seen == Seen::Not {
            self.start = Start::Nowhere;
        }
        moment.state().is_alive().then_some(moment)
    }

    /// Of the caller, a goroutine or not.
    #[inline(never)]
    pub(crate) fn take_own(&mut self) {
        let mut registers = Registers::default();
        // SAFETY: to — a local.
        unsafe { arch::registers_here(&raw mut registers) };
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
        (self.start, self.is_blocked) = (Start::At(false), false);
        (self.copier, self.rest) = (None, Rest::Gone);
        self.view.shrink();
        self.view.fill(registers, None);
    }

    fn begin_own(&mut self) {
        (self.start, self.is_blocked) = (Start::At(false), false);
        (self.copier, self.rest) = (None, Rest::Own);
        self.view.shrink();
    }

    fn take_stopped(&mut self, g: &'static G, state: GState) -> Seen {
        (self.start, self.is_blocked, self.rest) = (Start::Nowhere, false, Rest::Gone);
        let shown = g.shown();
        if !shown.is_null() {
            let Some(registers) = stack_copy::shown_registers(shown) else { return Seen::Not };
            self.start = Start::At(state != GState::Syscall);
            self.view.fill(registers, Some(g));
            return Seen::if_so(g.shown() == shown);
        }
        if state == GState::Syscall {
            return Seen::IfItIsStill;
        }
        if !g.has_stack() {
            self.start = Start::NotBegun;
            return Seen::IfItIsStill;
        }
        // The registers are the first words on the stack.
        self.view.fill(Registers { sp: stack_copy::saved_sp(g), ..Registers::default() }, Some(g));
        Seen::if_so(self.set_saved())
    }

    /// The walk begins where a switch left off, which is at the stack pointer. False: nothing is there.
    fn set_saved(&mut self) -> bool {
        let view = &mut self.view;
        let sp = view.registers.sp;
        let word = |index: usize| view.read(sp + 8 * index);
        let Some(words) = all(std::array::from_fn(word)) else { return false };
        self.start = Start::At(false);
        view.registers = arch::registers_of_saved(&words, sp);
        true
    }

    fn take_running(&mut self, g: &'static G) -> Seen {
        (self.start, self.is_blocked, self.rest) = (Start::Nowhere, false, Rest::Gone);
        if forked::is_child() {
            // Its thread stayed behind.
            return Seen::AtThatMoment;
        }
        let Some(m) = tables::runner_of(g) else { return Seen::Not };
        let before = thread_look::cpu_time(m.thread());
        let (doing, call) = thread_look::call(m.thread());
        if self.manners == Manners::Polite && doing == Doing::Unknown && !has_run(m, before) {
            // A signal might end a call.
            return Seen::AtThatMoment;
        }
        let Some(call) = call else { return self.ask(m, g) };
        (self.start, self.is_blocked) = (Start::Blocked, true);
        self.rest = Rest::Blocked(m, before);
        self.blocked_since = before.and_then(|ran| syscall::blocked_since(m, ran));
        let registers = Registers { kept: [0; 6], pc: call.pc, sp: call.sp };
        self.view.fill(registers, Some(g));
        Seen::if_so(self.rest.is_still())
    }

    /// Takes it again, where that may tell more than it did: all registers of one that is blocked, and more of the
    /// stack of one that runs. False: there is no more, and of what was taken nothing is left.
    pub(crate) fn take_more(&mut self, g: &'static G) -> bool {
        let m = match (self.rest, self.copier) {
            (Rest::Blocked(m, _), _) if self.silent < SILENT && self.may_be_asked(m) => m,
            (Rest::Gone, Some(m)) if self.view.grow() => m,
            _ => return false,
        };
        let was_blocked = matches!(self.start, Start::Blocked);
        let seen = self.ask(m, g);
        self.silent += u32::from(was_blocked && seen == Seen::NoAnswer);
        self.rest = Rest::Gone;
        seen == Seen::AtThatMoment
    }

    /// Whether its thread is in that call still, and goes on with it after a signal.
    fn may_be_asked(&self, m: &'static M) -> bool {
        let (_, call) = thread_look::call(m.thread());
        let may = |call: Call| self.manners == Manners::Rude || call.begins_again();
        call.is_some_and(may) && self.rest.is_still()
    }

    /// Lets the M copy it.
    fn ask(&mut self, m: &'static M, g: &'static G) -> Seen {
        let request = Request { of: g, view: &raw mut self.view, answer: AtomicU32::new(NONE) };
        let word = ptr::from_ref(&request).cast_mut().cast();
        // PAIR viewer: the handler sees the request.
        let free =
            m.viewer.compare_exchange(ptr::null_mut(), word, Ordering::AcqRel, Ordering::Relaxed);
        if free.is_err() {
            return Seen::Busy;
        }
        let start = Instant::now();
        let patience = match self.manners {
            Manners::Polite => PATIENCE,
            Manners::Rude => LAST_PATIENCE,
        };
        // A signal for each look might come after the answer, and end a call.
        let mut next = Duration::ZERO;
        loop {
            // PAIR viewer-answer: sees what the handler wrote.
            match request.answer.load(Ordering::Acquire) {
                HERE => {
                    (self.start, self.copier) = (Start::At(true), Some(m));
                    return Seen::AtThatMoment;
                }
                ELSEWHERE => return Seen::Not,
                _ => {}
            }
            let waited = start.elapsed();
            let mut seen = (waited > patience).then_some(Seen::NoAnswer);
            if waited >= next {
                let can_be = self.manners == Manners::Rude || can_be_interrupted(m);
                seen = match can_be && !syscall::is_marked(m) {
                    true if request.answer.load(Ordering::Relaxed) != NONE => continue,
                    true => (!preempt::interrupt(m)).then_some(Seen::NoAnswer).or(seen),
                    false => Some(Seen::Not),
                };
                next = waited + AGAIN;
            }
            if let Some(seen) = seen {
                // PAIR viewer: if it is still there, nobody else has it.
                let taken = m.viewer.compare_exchange(
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
            std::thread::sleep(PAUSE);
        }
    }

    /// Calls `each` with every word of the stack. False: not with all, or not all registers are known.
    pub(crate) fn words(&mut self, mut each: impl FnMut(usize)) -> bool {
        let has_registers = match self.start {
            Start::NotBegun => return true,
            Start::Nowhere => return false,
            Start::At(_) => true,
            Start::Blocked => false,
        };
        self.view.registers.kept.into_iter().for_each(&mut each);
        let rest = self.rest;
        self.view.words(each, || rest.is_still()) && has_registers
    }

    /// Calls `each` with each frame: see [`Walker::walk`].
    pub(crate) fn walk(&mut self, walker: &mut Walker, each: impl FnMut(Frame) -> bool) -> End {
        let (registers, rest) = (self.view.registers, self.rest);
        let view = RefCell::new(&mut self.view);
        let read = |address| view.borrow_mut().read_on(address, || rest.is_still());
        match self.start {
            Start::NotBegun => End::Complete,
            Start::Nowhere => End::Broken,
            Start::At(exact) => walker.walk(&registers, exact, read, each),
            Start::Blocked => walker.walk_blocked(registers.pc, registers.sp, read, each),
        }
    }
}

/// All words, if all are known.
fn all(words: [Option<usize>; SAVED_WORDS]) -> Option<[usize; SAVED_WORDS]> {
    let known = words.map(Option::unwrap_or_default);
    words.iter().all(Option::is_some).then_some(known)
}

/// Whether the M's thread has run a moment later.
fn has_run(m: &'static M, before: Option<u64>) -> bool {
    std::thread::sleep(PAUSE);
    before != thread_look::cpu_time(m.thread())
}

/// Whether a signal ends no call of the M's thread before its time, if it comes at once: as far as it can be seen.
///
/// It takes some microseconds until a signal has come. Whoever runs for a moment between two calls may be in the next
/// one by then, and is seen blocked soon; so only one that has run for a while is interrupted.
fn can_be_interrupted(m: &'static M) -> bool {
    let ran = || thread_look::cpu_time(m.thread());
    for _ in 0..TRIES {
        let (start, before) = (Instant::now(), ran());
        std::thread::sleep(PAUSE);
        let (waited, after) = (start.elapsed(), ran());
        let ran_for = Duration::from_nanos(after.unwrap_or(0).saturating_sub(before.unwrap_or(0)));
        if 4 * ran_for >= 3 * waited {
            return true;
        }
        match thread_look::call(m.thread()) {
            (_, Some(call)) => return call.begins_again(),
            (Doing::Unknown, _) => return before != after,
            // It waits for a CPU, and comes to the signal first; unless it had one meanwhile.
            _ if after == ran() => return true,
            _ => {}
        }
    }
    false
}

/// In the signal's handler: somebody may want to see what the goroutine of `m` does.
pub(crate) fn serve(m: &'static M, at: &Interruption) {
    if m.viewer.load(Ordering::Relaxed).is_null() {
        return;
    }
    // PAIR viewer: sees what the viewer wrote; and has the view, if there is one.
    let request = m.viewer.swap(ptr::null_mut(), Ordering::AcqRel).cast::<Request>();
    // SAFETY: null, or a request whose owner waits until it has an answer.
    let Some(request) = (unsafe { request.as_ref() }) else { return };
    let g = m.curg().filter(|g| ptr::eq(*g, request.of) && g.state() == GState::Running);
    // Just before a switch to it, the M is on another's stack.
    let is_there = |g: &&'static G| match stack::owner(at.registers().sp) {
        Some(owner) => owner == g.id(),
        None => m.carrier.preempt_off_count() == 0,
    };
    let g = g.filter(is_there);
    let answer = match g {
        Some(g) => {
            // SAFETY: the view is the handler's until it answers.
            unsafe { &mut *request.view }.fill(at.registers(), Some(g));
            HERE
        }
        None => ELSEWHERE,
    };
    // PAIR viewer-answer: publishes what was written above.
    request.answer.store(answer, Ordering::Release);
}

fn waits_for_some(flags: usize) -> bool {
    flags & libc::MSG_WAITALL as usize == 0
}

/// How a call of the kernel behaves when it is interrupted.
trait BeginsAgain {
    /// It goes on by itself.
    fn begins_again(&self) -> bool;
}

impl BeginsAgain for Call {
    fn begins_again(&self) -> bool {
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
                waits_for_some(self.arguments[3]) && !thread_look::has_limit(file)
            }
            libc::SYS_recvmsg => waits_for_some(self.arguments[2]) && !thread_look::has_limit(file),
            libc::SYS_read | libc::SYS_readv => !thread_look::has_limit(file),
            libc::SYS_accept | libc::SYS_accept4 => !thread_look::has_limit(file),
            _ => false,
        }
    }
}
