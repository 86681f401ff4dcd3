//! Waiting as a thread: ordinary threads among goroutines, and goroutines that are threads.
//!
//! Where goroutines cannot move (no port, the `threads` feature, a system that `support` refuses),
//! each is an OS thread, and waits as any other thread does: on a futex, in a G of its own. So this
//! file is both the other backend and the way ordinary threads wait for goroutines.

use crate::gmp::current;
use crate::gmp::frame;
use crate::gmp::frame::Registers;
use crate::gmp::g::{Birth, G};
use crate::gmp::list::GList;
use crate::gmp::reason::WaitReason;
use crate::gmp::slab;
use crate::gmp::state::GState;
use crate::probe;
use crate::sched::inspect::schedtrace;
use crate::sched::state::report;
use crate::sched::state::spawn_request::Order;
use crate::sched::{moving, timer_thread};
use crate::sys::Lock;
use crate::sys::fatal::warning;
use crate::sys::forked;
use crate::sys::mappings::{self, Mappings};
use crate::sys::thread_look;
use crate::sys::{clock, random};
use gosched_context::Still;
use gosched_context::fatal::Stderr;
use gosched_context::lock::Guarded;
use std::cell::Cell;
use std::fmt::Write;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Gs of threads: dead ones, for reuse.
static FREE: Lock<GList> = Lock::new(GList::new());

/// Ordinary threads that wait for a goroutine. Counted up by the thread once others know of it, and
/// down by whoever lets it go on, who may come first.
static WAITING: AtomicIsize = AtomicIsize::new(0);

/// Once, when the runtime starts.
pub(crate) fn start() {
    random::start();
    schedtrace::start();
    if schedtrace::is_on() {
        let thread = std::thread::Builder::new().name("gosched-trace".into());
        if let Err(why) = thread.spawn(schedtrace::print_for_ever) {
            warning!("no thread for GODEBUG=schedtrace: {why}");
        }
    }
}

/// What `procs` says where goroutines are threads: nothing else depends on it.
static PROCS: AtomicUsize = AtomicUsize::new(1);

pub(crate) fn procs() -> usize {
    PROCS.load(Ordering::Relaxed)
}

/// Returns what it was.
pub(crate) fn set_procs(procs: usize) -> usize {
    PROCS.swap(procs, Ordering::Relaxed)
}

/// How many ordinary threads wait for a goroutine.
pub(crate) fn waiting() -> usize {
    // PAIR thread-waits: whoever counts a thread sees what it waits for.
    usize::try_from(WAITING.load(Ordering::Acquire)).unwrap_or(0)
}

fn take_g() -> &'static G {
    loop {
        if let Some(g) = Guarded::new(&FREE).pop_front() {
            return g;
        }
        let mut new = slab::grow();
        let mut free = Guarded::new(&FREE);
        while let Some(g) = new.pop_front() {
            free.push_back(g);
        }
    }
}

/// The G that an ordinary thread waits with; back to the others when the thread ends.
struct ThreadG {
    g: &'static G,
    /// The system's number of the thread.
    id: i32,
}

impl ThreadG {
    fn new() -> ThreadG {
        let g = take_g();
        g.begin_thread();
        ThreadG { g, id: thread_look::id() }
    }
}

/// Where an ordinary thread waits: [`G::show`] shows the first field.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct WaitingPlace {
    pub(crate) registers: MaybeUninit<Registers>,
    /// The system's number of the thread.
    pub(crate) thread: i32,
}

impl Drop for ThreadG {
    fn drop(&mut self) {
        self.g.end_thread();
        Guarded::new(&FREE).push_front(self.g);
    }
}

thread_local! {
    static MINE: ThreadG = ThreadG::new();
}

/// The calling thread has what it needs to [`park`]: allocates, the first time.
pub(crate) fn get_ready_to_wait() {
    // One that is ending does without.
    let _ = MINE.try_with(|_| ());
}

/// What a thread waits for is told to others by this; false if it need not wait.
pub(crate) type Commit = unsafe fn(&'static G, *const ()) -> bool;

/// Waits, as a thread, until the G that `commit` gets is made ready. `still` ends when `commit` has been
/// called.
///
/// # Safety
/// - **commit**: `commit` may be called once with the G and `data`, before this returns.
pub(crate) unsafe fn park(
    reason: WaitReason,
    commit: Commit,
    data: *const (),
    still: Option<Still>,
) {
    forked::refuse_in_child("a wait");
    // A goroutine of this backend has its own G; a thread that is ending has none left to use.
    let goroutine = current::goroutine();
    let mine = MINE.try_with(|mine| (mine.g, mine.id)).ok();
    let own = goroutine.map(|g| (g, 0)).or(mine);
    let temporary = own.is_none().then(ThreadG::new);
    let temporary = temporary.as_ref().map(|mine| (mine.g, mine.id));
    let Some((g, thread)) = own.or(temporary) else { return };
    g.word.set(0);
    g.begin_wait(reason, data);
    if goroutine.is_some() {
        g.transition(GState::Running, GState::Waiting);
    }
    let limited = usize::from(LIMIT.get().is_some());
    LIMITED.fetch_add(limited, Ordering::Relaxed);
    // SAFETY: commit — promised by the caller.
    let waits = unsafe { commit(g, data) };
    drop(still);
    if waits {
        // PAIR thread-waits: publishes what the thread waits for, a timer's channel perhaps.
        WAITING.fetch_add(1, Ordering::Release);
        match goroutine {
            Some(_) => {
                less_active();
                sleep(g);
            }
            None => {
                super::look_at_virtual_time();
                // Of this frame, which is there until the thread goes on.
                let mut place = WaitingPlace { registers: MaybeUninit::uninit(), thread };
                frame::registers_here(&mut place.registers);
                g.show(if probe::ON { place.registers.as_ptr() } else { ptr::null() });
                sleep(g);
                g.show(ptr::null());
            }
        }
    }
    LIMITED.fetch_sub(limited, Ordering::Relaxed);
    if goroutine.is_some() {
        g.transition(GState::Waiting, GState::Runnable);
        g.transition(GState::Runnable, GState::Running);
    }
}

/// Until when a thread sleeps, and what it does then: it takes itself out of where it waits. True: it was
/// there, and nobody will make it ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadLimit {
    pub(crate) when: u64,
    /// May be called with `data` by the thread that set the limit, until it sets another.
    pub(crate) take_out: unsafe fn(*const ()) -> bool,
    pub(crate) data: *const (),
}

thread_local! {
    static LIMIT: Cell<Option<ThreadLimit>> = const { Cell::new(None) };
}

/// Threads that wait with a limit: they go on by themselves.
static LIMITED: AtomicUsize = AtomicUsize::new(0);

/// Whether a thread waits that will go on by itself.
pub(crate) fn is_one_limited() -> bool {
    LIMITED.load(Ordering::Relaxed) > 0
}

/// For the calling thread's next sleep.
pub(crate) fn limit_thread(limit: Option<ThreadLimit>) {
    LIMIT.set(limit);
}

fn sleep(g: &'static G) {
    if let Some(limit) = LIMIT.get() {
        return sleep_until(g, limit);
    }
    // If all goroutines slept already, nobody else looks. Code inside `host` is on an M that is awake for
    // those who count: it would find nothing, and may be stopped with the lock that it looks under.
    if !current::is_m() && g.word.get() == 0 && !g.word.wait(0, Some(moving::PATIENCE)) {
        look_for_deadlock();
    }
    while g.word.get() == 0 {
        g.word.wait(0, None);
    }
}

fn sleep_until(g: &'static G, limit: ThreadLimit) {
    while g.word.get() == 0 {
        let left = limit.when.saturating_sub(clock::now());
        if left == 0 {
            // SAFETY: set by this thread, and not changed since: it waits.
            if unsafe { (limit.take_out)(limit.data) } {
                WAITING.fetch_sub(1, Ordering::Relaxed);
                return;
            }
            // Somebody else was first, and is about to say so.
            LIMIT.set(None);
            return sleep(g);
        }
        g.word.wait(0, Some(Duration::from_nanos(left)));
    }
}

/// Lets a thread go on that waits in [`park`]. From here on it counts as one that can do something,
/// whenever the system lets it run.
pub(crate) fn ready(g: &'static G) {
    if g.is_prepared() {
        // Making a thread takes memory and time: whoever calls this may hold a lock.
        ACTIVE.fetch_add(1, Ordering::Relaxed);
        Guarded::new(&PREPARED).push_back(g);
        return timer_thread::look();
    }
    WAITING.fetch_sub(1, Ordering::Relaxed);
    if g.id() != 0 {
        ACTIVE.fetch_add(1, Ordering::Relaxed);
    }
    g.word.set(1);
    g.word.wake();
}

/// Goroutines that do not wait, and timers that are being fired: while there is one, virtual time stands
/// still. Counted up by whoever lets one go on, before it does.
pub(crate) static ACTIVE: AtomicIsize = AtomicIsize::new(0);

/// One less. In virtual time, the last one lets time pass.
pub(super) fn less_active() {
    if ACTIVE.fetch_sub(1, Ordering::Relaxed) == 1 && clock::is_virtual() {
        timer_thread::start();
        timer_thread::look();
    }
}

static DEADLOCK_ENDS: AtomicBool = AtomicBool::new(false);

/// See [`set_deadlock_ends`](super::set_deadlock_ends).
pub(crate) fn set_deadlock_ends(ends: bool) {
    DEADLOCK_ENDS.store(ends, Ordering::Relaxed);
}

/// All goroutines wait, and have for a while: in virtual time that is the end, if there is no timer.
pub(super) fn look_for_deadlock() {
    let ends = DEADLOCK_ENDS.load(Ordering::Relaxed) && ACTIVE.load(Ordering::Relaxed) == 0;
    if ends && !timer_thread::can_wake() && ACTIVE.load(Ordering::Relaxed) == 0 {
        report::begin();
        let mut out = Stderr::new();
        let _ = writeln!(out, "fatal error: all goroutines are asleep - deadlock!");
        report::report(report::End::Fatal);
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(2) }
    }
    moving::look_for_deadlock();
}

static NEXT_ID: AtomicU64 = AtomicU64::new(2);
static GOROUTINES: AtomicUsize = AtomicUsize::new(0);

/// Goroutines that live.
pub(crate) fn num_goroutines() -> usize {
    GOROUTINES.load(Ordering::Relaxed)
}

/// Goroutines that were ever started.
pub(crate) static STARTED: AtomicU64 = AtomicU64::new(0);

fn count_started() {
    GOROUTINES.fetch_add(1, Ordering::Relaxed);
    STARTED.fetch_add(1, Ordering::Relaxed);
}

/// A goroutine as a thread, and the thread, which ends after it.
pub(crate) type Started = (&'static G, u64, std::thread::JoinHandle<()>);

/// Threads that are started between two looks at the process's memory mappings.
const STARTS_PER_LOOK: u64 = 256;

/// Memory mappings that a new thread may need: a stack, a signal stack and a guard for each, and
/// some for the heap that an allocator gives to a thread.
const MAPPINGS_PER_THREAD: usize = 8;

/// Refuses a thread that might find no room for its signal stack. std makes that stack on the new
/// thread, before the code that catches panics, and panics if the memory cannot be had: the process
/// dies with "failed to initiate panic, error 5".
///
/// # Errors
/// The process has almost as many memory mappings as the system allows.
fn check_room() -> std::io::Result<()> {
    static STARTS: AtomicU64 = AtomicU64::new(1);
    static IS_TIGHT: AtomicBool = AtomicBool::new(false);
    let is_due = STARTS.fetch_add(1, Ordering::Relaxed).is_multiple_of(STARTS_PER_LOOK);
    if !is_due && !IS_TIGHT.load(Ordering::Relaxed) {
        return Ok(());
    }
    let Some(Mappings { used, limit }) = mappings::count() else { return Ok(()) };
    let is_tight = used + STARTS_PER_LOOK as usize * MAPPINGS_PER_THREAD > limit;
    IS_TIGHT.store(is_tight, Ordering::Relaxed);
    if is_tight {
        let why = format!(
            "the process has {used} memory mappings, each goroutine is a thread that needs some, \
             and vm.max_map_count is {limit}"
        );
        return Err(std::io::Error::new(std::io::ErrorKind::OutOfMemory, why));
    }
    Ok(())
}

/// Starts a goroutine as a thread.
///
/// # Errors
/// The system refuses a thread.
pub(crate) fn spawn(order: Order<'_>) -> std::io::Result<Started> {
    check_room()?;
    let (g, id) = begin(order);
    let mut thread = std::thread::Builder::new();
    let details = order.wishes.and_then(|wishes| wishes.details.as_ref());
    let name = details.and_then(|details| details.name.clone());
    if let Some(name) = name.filter(|name| !name.contains('\0')) {
        thread = thread.name(name);
    }
    if let Some(bytes) = order.wishes.and_then(|wishes| wishes.bytes) {
        thread = thread.stack_size(bytes);
    }
    let task = SendTask(order.task);
    let started = thread.spawn(move || {
        let task = task;
        live(g, task.0);
    });
    started.map(|thread| (g, id, thread)).inspect_err(|_| {
        GOROUTINES.fetch_sub(1, Ordering::Relaxed);
        STARTED.fetch_sub(1, Ordering::Relaxed);
        g.leave_group();
        less_active();
        g.transition(GState::Runnable, GState::Running);
        bury(g);
    })
}

/// Runs a goroutine on the calling thread, to its end.
pub(crate) fn run_here(order: Order<'_>) {
    let (g, _) = begin(order);
    live(g, order.task);
}

/// See [`prepare`](super::prepare).
pub(crate) fn prepare(order: Order<'_>) -> &'static G {
    timer_thread::start();
    let (g, _) = fill(order);
    g.set_prepared(true);
    g
}

/// See [`discard`](super::discard).
pub(crate) fn discard(g: &'static G) {
    g.set_prepared(false);
    g.set_group(None);
    g.end_thread();
    Guarded::new(&FREE).push_front(g);
}

/// Prepared goroutines that were made ready: the thread of the timers starts them.
static PREPARED: Lock<GList> = Lock::new(GList::new());

/// By the thread of the timers.
pub(super) fn start_all_prepared() {
    loop {
        let next = Guarded::new(&PREPARED).pop_front();
        match next {
            Some(g) => start_prepared(g),
            None => return,
        }
    }
}

/// A prepared goroutine gets its thread. Whoever made it ready cannot do without: so it is tried until the
/// system gives one.
fn start_prepared(g: &'static G) {
    g.make_runnable();
    g.set_prepared(false);
    g.enter_group();
    count_started();
    loop {
        let task = SendTask(g.task());
        let start = || {
            std::thread::Builder::new().spawn(move || {
                let task = task;
                live(g, task.0);
            })
        };
        match check_room().and_then(|()| start()) {
            Ok(_) => return,
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn begin(order: Order<'_>) -> (&'static G, u64) {
    let (g, id) = fill(order);
    g.enter_group();
    g.transition(GState::Dead, GState::Runnable);
    count_started();
    ACTIVE.fetch_add(1, Ordering::Relaxed);
    (g, id)
}

/// A dead G that knows what it is to do.
fn fill(order: Order<'_>) -> (&'static G, u64) {
    let id = order.wishes.and_then(|wishes| wishes.id);
    let id = id.unwrap_or_else(|| NEXT_ID.fetch_add(1, Ordering::Relaxed));
    let parent = current::goroutine().map_or(0, G::id);
    let g = take_g();
    let details = order.wishes.and_then(|wishes| wishes.details.clone());
    g.begin(Birth { id, parent, site: order.site, task: order.task, details });
    g.begin_thread_goroutine();
    (g, id)
}

/// A task on its way to its thread.
struct SendTask(*mut crate::gmp::task::Task);

// SAFETY: the task is made to be run by another thread, and given to one only.
unsafe impl Send for SendTask {}

fn live(g: &'static G, task: *mut crate::gmp::task::Task) {
    g.transition(GState::Runnable, GState::Running);
    current::set_goroutine(Some(g));
    // SAFETY: the task was given with the G, and is alive until it says otherwise.
    let kind = unsafe { (*task).kind };
    // SAFETY: as above; once.
    let heard = unsafe { (kind.run)(task) };
    g.leave_group();
    GOROUTINES.fetch_sub(1, Ordering::Relaxed);
    // The thread's other destructors still run after this; std has no later place.
    if heard {
        // SAFETY: the task is alive: `run` said so; once.
        unsafe { (kind.complete)(task) };
    }
    current::set_goroutine(None);
    bury(g);
    less_active();
}

fn bury(g: &'static G) {
    g.forget_details();
    g.set_exiting(false);
    g.end_thread();
    g.locks.store(0, Ordering::Relaxed);
    g.transition(GState::Running, GState::Dead);
    Guarded::new(&FREE).push_front(g);
}

/// Main has called `goexit` or cannot return: the others go on, and when none is left the process
/// ends as Go's does. (Where goroutines are threads, ones that wait for ever are not noticed.)
pub(crate) fn wait_for_the_last() -> ! {
    while num_goroutines() > 0 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let mut out = Stderr::new();
    let _ = writeln!(out, "fatal error: no goroutines (main called runtime.Goexit) - deadlock!");
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(2) }
}
