//! The timer thread of the threads backend: it fires the timers of one heap, and sleeps until the
//! first is due. The timer thread never runs a goroutine: each prepared goroutine gets its own
//! thread.

use crate::gmp::list::GList;
use crate::gmp::poll_desc;
use crate::gmp::timer::{NEVER, PlacedTimer};
use crate::sched::threads::activity::{self, Upcalls};
use crate::sched::threads::{goroutine, poll_thread, timer_heap, wait};
use crate::sys::clock;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Maximum number of timers fired before their waiters are woken.
const FIRE_BATCH: usize = 64;

/// See [`start_timer`](crate::sched::start_timer).
pub(crate) fn start_timer(mut timer: PlacedTimer<'_>, when: u64, upcalls: &'static Upcalls) {
    start(upcalls);
    while let Err(same) = timer_heap::HEAP.insert(timer, when) {
        timer = same;
        timer_heap::HEAP.grow();
    }
    timer_heap::wake();
}

/// Starts the timer thread, if it does not run yet.
pub(crate) fn start(upcalls: &'static Upcalls) {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        let thread = std::thread::Builder::new().name("gosched-timers".into());
        if let Err(why) = thread.spawn(|| run_loop(upcalls)) {
            panic!("cannot start the timer thread: {why}");
        }
    });
}

fn run_loop(upcalls: &Upcalls) {
    loop {
        timer_heap::WAKE_WORD.set(0);
        // The timer thread counts as active until the goroutines that it makes ready are counted.
        activity::ACTIVE.fetch_add(1, Ordering::Relaxed);
        fire_all();
        goroutine::start_all_prepared();
        let alone = activity::ACTIVE.fetch_sub(1, Ordering::Relaxed) == 1;
        let next = timer_heap::HEAP.next();
        if clock::is_virtual() {
            if alone && poll_desc::has_waiters() && poll_thread::wait_for_io() {
                continue;
            }
            let next = timer_heap::HEAP.next_waking();
            match (alone, next != NEVER) {
                (true, true) => clock::advance_to(next),
                // Another thread may still make a goroutine ready within this time.
                (true, false)
                    if !timer_heap::WAKE_WORD.wait(0, Some(activity::DEADLOCK_CHECK_DELAY)) =>
                {
                    wait::check_for_deadlock(upcalls);
                    timer_heap::WAKE_WORD.wait(0, None);
                }
                (true, false) => {}
                (false, _) => drop(timer_heap::WAKE_WORD.wait(0, None)),
            }
            continue;
        }
        let left = Duration::from_nanos(next.saturating_sub(clock::now()));
        timer_heap::WAKE_WORD.wait(0, (next != NEVER).then_some(left));
    }
}

fn fire_all() {
    loop {
        let mut ready = GList::new();
        let fired = timer_heap::HEAP.fire_due(clock::now(), FIRE_BATCH, &mut ready);
        while let Some(g) = ready.pop_front() {
            wait::ready(g);
        }
        if fired < FIRE_BATCH {
            return;
        }
    }
}
