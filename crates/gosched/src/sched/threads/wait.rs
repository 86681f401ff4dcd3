//! A thread waits, and is made ready.

use crate::gmp::current;
use crate::gmp::frame;
use crate::gmp::frame::Registers;
use crate::gmp::g::G;
use crate::gmp::list::GList;
use crate::gmp::reason::WaitReason;
use crate::gmp::slab;
use crate::gmp::state::GState;
use crate::probe;
use crate::sched::state::report;
use crate::sched::threads::activity::{self, Upcalls};
use crate::sched::threads::timer_heap;
use crate::sys::Lock;
use crate::sys::clock;
use crate::sys::forked;
use crate::sys::thread_status;
use gosched_fiber::NoPreempt;
use gosched_fiber::fatal::Stderr;
use gosched_fiber::lock::NoPreemptLockGuard;
use std::cell::Cell;
use std::fmt::Write;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Gs of threads: dead ones, for reuse.
pub(super) static FREE: Lock<GList> = Lock::new(GList::new());

pub(super) fn take_g() -> &'static G {
    loop {
        if let Some(g) = NoPreemptLockGuard::new(&FREE).pop_front() {
            return g;
        }
        let mut new = slab::grow();
        let mut free = NoPreemptLockGuard::new(&FREE);
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
        ThreadG { g, id: thread_status::id() }
    }
}

/// Where an ordinary thread waits: [`G::set_stopped_registers`] shows the first field.
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
        NoPreemptLockGuard::new(&FREE).push_front(self.g);
    }
}

thread_local! {
    static THREAD_G: ThreadG = ThreadG::new();
}

/// The calling thread has what it needs to [`park`]: allocates, the first time.
pub(crate) fn ensure_thread_g() {
    // One that is ending does without.
    let _ = THREAD_G.try_with(|_| ());
}

/// What a thread waits for is told to others by this; false if it need not wait.
pub(crate) type Commit = unsafe fn(&'static G, *const ()) -> bool;

/// Waits, as a thread, until the G that `commit` gets is made ready. `still` ends when `commit` has been
/// called.
/// Go: gopark.
///
/// # Safety
/// - **commit**: `commit` may be called once with the G and `data`, before this returns.
pub(crate) unsafe fn park(
    reason: WaitReason,
    commit: Commit,
    data: *const (),
    no_preempt: Option<NoPreempt>,
    upcalls: &Upcalls,
) {
    forked::refuse_in_child("a wait");
    // A goroutine of this backend has its own G; a thread that is ending has none left to use.
    let goroutine = current::goroutine();
    let mine = THREAD_G.try_with(|mine| (mine.g, mine.id)).ok();
    let own = goroutine.map(|g| (g, 0)).or(mine);
    let temporary = own.is_none().then(ThreadG::new);
    let temporary = temporary.as_ref().map(|mine| (mine.g, mine.id));
    let Some((g, thread)) = own.or(temporary) else { return };
    g.sleep_word.set(0);
    g.begin_wait(reason, data);
    if goroutine.is_some() {
        g.transition(GState::Running, GState::Waiting);
    }
    let limited = usize::from(DEADLINE.get().is_some());
    activity::THREADS_WITH_DEADLINE.fetch_add(limited, Ordering::Relaxed);
    // SAFETY: commit — promised by the caller.
    let waits = unsafe { commit(g, data) };
    drop(no_preempt);
    if waits {
        // PAIR thread-waits: publishes what the thread waits for, a timer's channel perhaps.
        activity::WAITING.fetch_add(1, Ordering::Release);
        match goroutine {
            Some(_) => {
                decrement_active();
                sleep(g, upcalls);
            }
            None => {
                (upcalls.recheck_virtual_time)();
                // Of this frame, which is there until the thread goes on.
                let mut place = WaitingPlace { registers: MaybeUninit::uninit(), thread };
                frame::capture_registers(&mut place.registers);
                g.set_stopped_registers(if probe::ENABLED {
                    place.registers.as_ptr()
                } else {
                    ptr::null()
                });
                sleep(g, upcalls);
                g.set_stopped_registers(ptr::null());
            }
        }
    }
    activity::THREADS_WITH_DEADLINE.fetch_sub(limited, Ordering::Relaxed);
    if goroutine.is_some() {
        g.transition(GState::Waiting, GState::Runnable);
        g.transition(GState::Runnable, GState::Running);
    }
}

/// Until when a thread sleeps, and what it does then: it takes itself out of where it waits. True: it was
/// there, and nobody will make it ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadDeadline {
    pub(crate) when: u64,
    /// May be called with `data` by the thread that set the limit, until it sets another.
    pub(crate) cancel_wait: unsafe fn(*const ()) -> bool,
    pub(crate) data: *const (),
}

thread_local! {
    static DEADLINE: Cell<Option<ThreadDeadline>> = const { Cell::new(None) };
}

/// For the calling thread's next sleep.
pub(crate) fn set_thread_deadline(limit: Option<ThreadDeadline>) {
    DEADLINE.set(limit);
}

fn sleep(g: &'static G, upcalls: &Upcalls) {
    if let Some(limit) = DEADLINE.get() {
        return sleep_until(g, limit, upcalls);
    }
    // If all goroutines slept already, nobody else looks. Code inside `host` is on an M that is awake for
    // those who count: it would find nothing, and may be stopped with the lock that it looks under.
    if !current::is_m()
        && g.sleep_word.get() == 0
        && !g.sleep_word.wait(0, Some(activity::DEADLOCK_CHECK_DELAY))
    {
        check_for_deadlock(upcalls);
    }
    while g.sleep_word.get() == 0 {
        g.sleep_word.wait(0, None);
    }
}

fn sleep_until(g: &'static G, limit: ThreadDeadline, upcalls: &Upcalls) {
    while g.sleep_word.get() == 0 {
        let left = limit.when.saturating_sub(clock::now());
        if left == 0 {
            // SAFETY: set by this thread, and not changed since: it waits.
            if unsafe { (limit.cancel_wait)(limit.data) } {
                activity::WAITING.fetch_sub(1, Ordering::Relaxed);
                return;
            }
            // Somebody else was first, and is about to say so.
            DEADLINE.set(None);
            return sleep(g, upcalls);
        }
        g.sleep_word.wait(0, Some(Duration::from_nanos(left)));
    }
}

/// Lets a thread go on that waits in [`park`]. From here on it counts as one that can do something,
/// whenever the system lets it run.
/// Go: goready.
pub(crate) fn ready(g: &'static G) {
    if g.is_prepared() {
        // Making a thread takes memory and time: whoever calls this may hold a lock.
        activity::ACTIVE.fetch_add(1, Ordering::Relaxed);
        NoPreemptLockGuard::new(&activity::PREPARED).push_back(g);
        return timer_heap::wake();
    }
    activity::WAITING.fetch_sub(1, Ordering::Relaxed);
    if g.id() != 0 {
        activity::ACTIVE.fetch_add(1, Ordering::Relaxed);
    }
    g.sleep_word.set(1);
    g.sleep_word.wake();
}

/// One less. In virtual time, the last one lets time pass.
pub(super) fn decrement_active() {
    if activity::ACTIVE.fetch_sub(1, Ordering::Relaxed) == 1 && clock::is_virtual() {
        timer_heap::wake();
    }
}

/// All goroutines wait, and have for a while: in virtual time that is the end, if there is no timer.
/// Go: checkdead.
pub(super) fn check_for_deadlock(upcalls: &Upcalls) {
    let ends = activity::DEADLOCK_IS_FATAL.load(Ordering::Relaxed)
        && activity::ACTIVE.load(Ordering::Relaxed) == 0;
    if ends && !timer_heap::can_wake() && activity::ACTIVE.load(Ordering::Relaxed) == 0 {
        report::begin();
        let mut out = Stderr::new();
        let _ = writeln!(out, "fatal error: all goroutines are asleep - deadlock!");
        report::report(report::ExitReason::Fatal);
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(2) }
    }
    (upcalls.check_for_deadlock)();
}
