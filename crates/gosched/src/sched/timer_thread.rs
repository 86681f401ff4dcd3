//! Timers where goroutines are threads: one heap, and one thread that sleeps until the first is due.

use crate::gmp::list::GList;
use crate::gmp::poll_desc;
use crate::gmp::timer::{NEVER, Timer, TimerHeap};
use crate::sched::{moving, poll_thread, threads};
use crate::sys::clock;
use crate::sys::sleep_word::SleepWord;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

static HEAP: TimerHeap = TimerHeap::new();

/// So many are fired before their waiters are woken.
const AT_A_TIME: usize = 64;

/// Not 0: a timer was added.
static ADDED: SleepWord = SleepWord::new();

/// See [`start_timer`](super::start_timer).
///
/// # Safety
/// - **alive**: as there.
pub(crate) unsafe fn start_timer(timer: &Timer, when: u64) {
    start();
    // SAFETY: alive — promised by the caller.
    while !unsafe { HEAP.insert(timer, when) } {
        HEAP.grow();
    }
    look();
}

/// Starts the thread, if that was not done.
pub(super) fn start() {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        let thread = std::thread::Builder::new().name("gosched-timers".into());
        if let Err(why) = thread.spawn(keep) {
            panic!("no thread for timers: {why}");
        }
    });
}

/// The thread looks what there is to do.
pub(super) fn look() {
    ADDED.set(1);
    ADDED.wake();
}

/// Whether there is one that can make a thread ready.
pub(super) fn can_wake() -> bool {
    HEAP.has_waking()
}

/// How many there are.
pub(super) fn timers() -> usize {
    HEAP.len()
}

fn keep() {
    loop {
        ADDED.set(0);
        // Those it lets go on are counted before it is not any more.
        threads::ACTIVE.fetch_add(1, Ordering::Relaxed);
        fire_all();
        threads::start_all_prepared();
        let alone = threads::ACTIVE.fetch_sub(1, Ordering::Relaxed) == 1;
        let next = HEAP.next();
        if clock::is_virtual() {
            if alone && poll_desc::is_waited_for() && poll_thread::is_patience_rewarded() {
                continue;
            }
            let next = HEAP.next_waking();
            match (alone, next != NEVER) {
                (true, true) => clock::jump_to(next),
                // After a short time in which somebody may still come.
                (true, false) if !ADDED.wait(0, Some(moving::PATIENCE)) => {
                    threads::look_for_deadlock();
                    ADDED.wait(0, None);
                }
                (true, false) => {}
                (false, _) => drop(ADDED.wait(0, None)),
            }
            continue;
        }
        let left = Duration::from_nanos(next.saturating_sub(clock::now()));
        ADDED.wait(0, (next != NEVER).then_some(left));
    }
}

fn fire_all() {
    loop {
        let mut ready = GList::new();
        let fired = HEAP.fire_due(clock::now(), AT_A_TIME, &mut ready);
        while let Some(g) = ready.pop_front() {
            threads::ready(g);
        }
        if fired < AT_A_TIME {
            return;
        }
    }
}
