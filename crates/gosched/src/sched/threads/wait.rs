//! How a thread waits, and how it is made ready. This module never creates a thread: the timer
//! thread starts prepared goroutines.

use crate::gmp::commit::Commit;
use crate::gmp::current;
use crate::gmp::frame;
use crate::gmp::frame::Registers;
use crate::gmp::g::G;
use crate::gmp::list::GList;
use crate::gmp::slab;
use crate::gmp::state::GState;
use crate::probe;
use crate::probe::wait_reason::WaitReason;
use crate::sched::state::report;
use crate::sched::threads::activity::{self, Upcalls};
use crate::sched::threads::timer_heap;
use crate::sys::Lock;
use crate::sys::clock;
use crate::sys::fatal::fatal;
use crate::sys::forked;
use crate::sys::thread_status;
use gosched_fiber::NoPreempt;
use gosched_fiber::exit_guard;
use gosched_fiber::fatal::Stderr;
use gosched_fiber::lock::NoPreemptLockGuard;
use std::cell::Cell;
use std::fmt::Write;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Dead Gs of threads, for reuse.
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

/// The G with which an ordinary thread waits. Goes back to [`FREE`] when the thread ends.
struct ThreadG {
    g: &'static G,
    /// The thread's id in the system.
    id: i32,
}

impl ThreadG {
    fn new() -> ThreadG {
        let g = take_g();
        g.begin_thread();
        ThreadG { g, id: thread_status::id() }
    }
}

/// Registers and id of an ordinary thread that waits, for dumps. [`G::set_stopped_registers`]
/// publishes the address of the first field.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct WaitingPlace {
    pub(crate) registers: MaybeUninit<Registers>,
    /// The thread's id in the system.
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

/// Gives the calling thread the G that [`park`] needs. Allocates on the first call of a thread.
pub(crate) fn ensure_thread_g() {
    // A thread that is ending gets a temporary G in `park`.
    let _ = THREAD_G.try_with(|_| ());
}

/// Blocks the calling thread until the G that `commit` publishes is made ready. Drops `no_preempt`
/// once `commit` has returned.
/// Go: gopark.
pub(crate) fn park(
    reason: WaitReason,
    commit: Commit,
    no_preempt: Option<NoPreempt>,
    upcalls: &Upcalls,
) {
    forked::refuse_in_child("a wait");
    // A goroutine of this backend has its own G. A thread that is ending has no thread-local G
    // left.
    let goroutine = current::goroutine();
    let mine = THREAD_G.try_with(|mine| (mine.g, mine.id)).ok();
    let own = goroutine.map(|g| (g, 0)).or(mine);
    let temporary = own.is_none().then(ThreadG::new);
    let temporary = temporary.as_ref().map(|mine| (mine.g, mine.id));
    let Some((g, thread)) = own.or(temporary) else { return };
    g.sleep_word.set(0);
    g.begin_wait(reason, commit.data());
    if goroutine.is_some() {
        g.transition(GState::Running, GState::Waiting);
    }
    let limited = usize::from(DEADLINE.get().is_some());
    activity::THREADS_WITH_DEADLINE.fetch_add(limited, Ordering::Relaxed);
    let waits = commit.run(g);
    drop(no_preempt);
    if waits {
        // PAIR thread-waits: publishes what the thread waits for, such as a timer's channel.
        activity::WAITING.fetch_add(1, Ordering::Release);
        match goroutine {
            Some(_) => {
                decrement_active();
                sleep(g, upcalls);
            }
            None => {
                (upcalls.recheck_virtual_time)();
                // The registers of this frame, which exists until the thread continues.
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

/// When a thread stops waiting, and how it cancels its wait then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadDeadline {
    pub(crate) when: u64,
    /// Takes the thread out of the queue in which it waits. Returns whether it was there: no other
    /// thread makes it ready then. May be called with `data` by the thread that set the deadline,
    /// until that thread sets another.
    pub(crate) cancel_wait: unsafe fn(*const ()) -> bool,
    pub(crate) data: *const (),
}

thread_local! {
    static DEADLINE: Cell<Option<ThreadDeadline>> = const { Cell::new(None) };
}

/// Sets the deadline of the calling thread's next wait, or removes it.
pub(crate) fn set_thread_deadline(limit: Option<ThreadDeadline>) {
    DEADLINE.set(limit);
}

fn sleep(g: &'static G, upcalls: &Upcalls) {
    if let Some(limit) = DEADLINE.get() {
        return sleep_until(g, limit, upcalls);
    }
    // If all goroutines are already asleep, no M checks for a deadlock, so this thread does. Code
    // inside `host` does not: its M counts as awake, so a check would find nothing, and the code
    // may be preempted while it holds the lock that the check takes.
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
            // SAFETY: this thread set the deadline and has not changed it since, because it waits.
            if unsafe { (limit.cancel_wait)(limit.data) } {
                return count_as_ready(g);
            }
            // Another thread has taken this thread out of the queue, and is about to make it ready.
            DEADLINE.set(None);
            return sleep(g, upcalls);
        }
        g.sleep_word.wait(0, Some(Duration::from_nanos(left)));
    }
}

/// Makes a thread ready that waits in [`park`]. A goroutine counts as active from here on, even if
/// its thread runs later.
/// Go: goready.
pub(crate) fn ready(g: &'static G) {
    if g.is_prepared() {
        // Creating a thread allocates and takes time, and the caller may hold a lock: the timer
        // thread does it.
        activity::ACTIVE.fetch_add(1, Ordering::Relaxed);
        NoPreemptLockGuard::new(&activity::PREPARED).push_back(g);
        return timer_heap::wake();
    }
    if g.sleep_word.get() != 0 {
        fatal!("a thread that does not wait is made ready");
    }
    count_as_ready(g);
    g.sleep_word.set(1);
    g.sleep_word.wake();
}

/// Counts a thread that waits in [`park`] as ready. Ordinary threads have no id and are not active
/// goroutines.
fn count_as_ready(g: &'static G) {
    activity::WAITING.fetch_sub(1, Ordering::Relaxed);
    if g.id() != 0 {
        activity::ACTIVE.fetch_add(1, Ordering::Relaxed);
    }
}

/// Decrements the number of active goroutines. In virtual time, wakes the timer thread when it
/// reaches 0, so that time advances.
pub(super) fn decrement_active() {
    if activity::ACTIVE.fetch_sub(1, Ordering::Relaxed) == 1 && clock::is_virtual() {
        timer_heap::wake();
    }
}

/// Ends the process if all goroutines are asleep, no timer can wake one, and
/// [`activity::DEADLOCK_IS_FATAL`] is set. Otherwise has the M:N scheduler check its own
/// goroutines.
/// Go: checkdead.
pub(super) fn check_for_deadlock(upcalls: &Upcalls) {
    let ends = activity::DEADLOCK_IS_FATAL.load(Ordering::Relaxed)
        && activity::ACTIVE.load(Ordering::Relaxed) == 0;
    if ends && !timer_heap::can_wake() && activity::ACTIVE.load(Ordering::Relaxed) == 0 {
        report::begin();
        let mut out = Stderr::new();
        let _ = writeln!(out, "fatal error: all goroutines are asleep - deadlock!");
        report::report(report::ExitReason::Fatal);
        exit_guard::end_process();
    }
    (upcalls.check_for_deadlock)();
}
