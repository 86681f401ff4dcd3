//! Tests of the running scheduler that need access to its internals.

use super::state::counts;
use super::state::global::SCHED;
use super::state::stopping;
use super::switch::boundary::enter;
use super::switch::{park, syscall};
use super::wake;
use super::world::{try_with_world_stopped, with_world_stopped};
use crate::gmp::current;
use crate::gmp::m::M;
use crate::gmp::p::PStatus;
use crate::probe::field::StopReason;
use crate::probe::times;
// The public function: it also stops the runtime from following the number of CPUs.
use crate::runtime::set_procs;
use crate::sys::forked;
use crate::{go, run, yield_now};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Held by tests that stop the world, or run a goroutine that does not stop: two of them at once
/// would wait for each other.
static ALONE: Mutex<()> = Mutex::new(());

/// How long a test waits for a condition before it fails.
const LIMIT: Duration = Duration::from_secs(120);

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Stores the M that the calling goroutine runs on, for other threads.
fn publish_m(place: &AtomicPtr<M>) {
    let m = enter().on_m().m();
    place.store(std::ptr::from_ref(m).cast_mut(), Ordering::Release);
}

// S116 to S125, for an unmarked call.
#[test]
fn a_p_is_retaken_from_a_blocked_m_and_its_goroutine_continues_when_it_has_a_p_again() {
    for _ in 0..20 {
        let place = Arc::new(AtomicPtr::new(std::ptr::null_mut()));
        let free = Arc::new(AtomicBool::new(false));
        let (its_place, its_free) = (place.clone(), free.clone());
        let blocked = go(move || {
            publish_m(&its_place);
            // Blocks the thread, not the goroutine, and does not enter the runtime.
            while !its_free.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_micros(500));
            }
            yield_now();
            current::goroutine().unwrap().id()
        });
        let m = || place.load(Ordering::Acquire);
        wait_until("it runs", || !m().is_null());
        // SAFETY: Ms are never freed.
        let m: &'static M = unsafe { &*m() };
        // Retaken by this thread, or by sysmon.
        wait_until("its P is taken", || syscall::retake_unmarked(m) || m.p().is_none());
        assert!(m.p().is_none());
        // All Ps are available to other goroutines.
        let others: Vec<_> = (0..8).map(|i| go(move || i)).collect();
        assert_eq!(others.into_iter().map(|h| h.join().unwrap()).sum::<i32>(), 28);
        free.store(true, Ordering::Release);
        assert!(blocked.join().unwrap() > 0);
    }
}

#[test]
fn a_p_is_not_taken_from_an_m_inside_the_runtime() {
    run(|| {
        let mut inside = enter();
        let m = inside.on_m().m();
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| syscall::retake_unmarked(m));
            assert!(!taken.join().unwrap());
        });
        assert!(m.p().is_some());
        drop(inside);
    });
}

#[test]
fn no_other_goroutine_runs_while_the_world_is_stopped() {
    let _alone = ALONE.lock();
    run(|| {
        let count = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let busy: Vec<_> = (0..8)
            .map(|_| {
                let (count, stop) = (count.clone(), stop.clone());
                go(move || {
                    while !stop.load(Ordering::Relaxed) {
                        count.fetch_add(1, Ordering::Relaxed);
                        yield_now();
                    }
                })
            })
            .collect();
        for _ in 0..100 {
            with_world_stopped(StopReason::Test, |stopped| {
                let own = stopped.stopper.and_then(|on| on.p()).map(|p| p.id);
                for p in SCHED.used_ps().filter(|p| Some(p.id) != own) {
                    assert_eq!(p.status(), PStatus::Stopped);
                }
                let before = count.load(Ordering::Relaxed);
                for _ in 0..1000 {
                    std::hint::spin_loop();
                }
                assert_eq!(count.load(Ordering::Relaxed), before);
            });
            yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        busy.into_iter().for_each(|handle| handle.join().unwrap());
    });
}

#[test]
fn an_ordinary_thread_can_stop_the_world_too() {
    let _alone = ALONE.lock();
    run(yield_now);
    for _ in 0..100 {
        with_world_stopped(StopReason::Test, |stopped| {
            assert!(stopped.stopper.is_none());
            assert!(SCHED.used_ps().all(|p| p.status() == PStatus::Stopped));
        });
    }
    run(yield_now);
}

/// Blocks the preemption signal and does not enter the runtime, until `stop` is set.
fn ignore_stops_until(stop: &AtomicBool, deaf: &AtomicBool) {
    let mask = |how, signal| {
        // SAFETY: all-zero is a valid `sigset_t`; `sigemptyset` initializes it below.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is valid for writes.
        unsafe { libc::sigemptyset(&mut set) };
        // SAFETY: as above.
        unsafe { libc::sigaddset(&mut set, signal) };
        // SAFETY: as above; changes only the mask of the calling thread.
        assert_eq!(unsafe { libc::pthread_sigmask(how, &set, std::ptr::null_mut()) }, 0);
    };
    mask(libc::SIG_BLOCK, libc::SIGURG);
    deaf.store(true, Ordering::Relaxed);
    while !stop.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
    mask(libc::SIG_UNBLOCK, libc::SIGURG);
}

/// Returns how often the world was stopped, and for how long: until all Ps had stopped, and until
/// they continued.
fn pauses() -> [(u64, u64); 2] {
    let times = times::times();
    [times.stopping, times.stopped].map(|pauses| (pauses.counts.iter().sum(), pauses.sum_nanos))
}

#[test]
fn a_stop_is_taken_back_if_a_goroutine_does_not_stop() {
    let _alone = ALONE.lock();
    run(|| {
        // The goroutine that does not stop occupies one P all the time.
        set_procs(SCHED.procs().max(2));
        let (stop, deaf) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let its = (stop.clone(), deaf.clone());
        let other = go(move || ignore_stops_until(&its.0, &its.1));
        while !deaf.load(Ordering::Relaxed) {
            yield_now();
        }
        let ran = Arc::new(AtomicUsize::new(0));
        let patience = Duration::from_millis(20);
        let (begin, mut counted_whole) = (Instant::now(), 0);
        for round in 1.. {
            let its = ran.clone();
            let before = go(move || its.fetch_add(1, Ordering::Relaxed));
            let pauses = pauses();
            let result = try_with_world_stopped(StopReason::Test, patience, |_| ());
            assert!(result.is_err());
            // The failed stop counts as a pause. It lasts for the whole patience, less the time
            // before the stop began.
            let now = self::pauses();
            for (before, now) in pauses.iter().zip(&now) {
                assert!(now.0 > before.0 && now.1 > before.1, "{now:?} after {before:?}");
            }
            let is_whole = |i: usize| now[i].1 >= pauses[i].1 + patience.as_nanos() as u64;
            counted_whole += usize::from(is_whole(0) && is_whole(1));
            // The other goroutines continue as before.
            let its = ran.clone();
            let after = go(move || its.fetch_add(1, Ordering::Relaxed));
            before.join().unwrap();
            after.join().unwrap();
            assert_eq!(ran.load(Ordering::Relaxed), 2 * round);
            if round >= 20 && counted_whole > 0 {
                break;
            }
            assert!(begin.elapsed() < LIMIT, "no pause of {round} was as long as its patience");
        }
        stop.store(true, Ordering::Relaxed);
        other.join().unwrap();
        assert!(matches!(try_with_world_stopped(StopReason::Test, LIMIT, |_| 7), Ok(7)));
        assert!(SCHED.used_ps().all(|p| p.status() != PStatus::Stopped));
    });
}

#[test]
fn goroutines_continue_when_a_stop_is_taken_back_while_they_stop() {
    let _alone = ALONE.lock();
    run(|| {
        // One P for the stopper, one for a goroutine that does not stop, and two that stop.
        set_procs(SCHED.procs().max(4));
        let stop = Arc::new(AtomicBool::new(false));
        let work = |number: usize| {
            let stop = stop.clone();
            go(move || {
                while !stop.load(Ordering::Relaxed) {
                    match number % 4 {
                        0 => yield_now(),
                        1 => crate::time::sleep(Duration::from_micros(10)),
                        2 => crate::blocking(|| std::thread::sleep(Duration::from_micros(50))),
                        _ => (0..10_000).for_each(|_| std::hint::spin_loop()),
                    }
                }
            })
        };
        let others: Vec<_> = (0..8).map(work).collect();
        let limits = [Duration::ZERO, Duration::from_micros(50), Duration::from_millis(1)];
        for round in 0..90 {
            let limit = limits[round % limits.len()];
            // Two stops in three must be taken back, because a goroutine does not stop. The other
            // one may be taken back too, if the goroutines do not stop in time.
            if round % 3 < 2 {
                let flags = Arc::new((AtomicBool::new(false), AtomicBool::new(false)));
                let its = flags.clone();
                let deaf = go(move || ignore_stops_until(&its.0, &its.1));
                while !flags.1.load(Ordering::Relaxed) {
                    yield_now();
                }
                assert!(try_with_world_stopped(StopReason::Test, limit, |_| ()).is_err());
                flags.0.store(true, Ordering::Relaxed);
                deaf.join().unwrap();
            } else {
                let _ = try_with_world_stopped(StopReason::Test, limit, |_| ());
            }
            // Goroutines run again, and all of them can be stopped.
            go(yield_now).join().unwrap();
            let stopped = try_with_world_stopped(StopReason::Test, LIMIT, |_| ());
            assert!(stopped.is_ok(), "in round {round} a goroutine does not stop");
        }
        stop.store(true, Ordering::Relaxed);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!(SCHED.used_ps().all(|p| p.status() != PStatus::Stopped));
    });
}

#[test]
fn a_p_is_acquired_even_if_the_wake_up_of_its_receiver_is_lost() {
    let _alone = ALONE.lock();
    run(yield_now);
    let before = counts::lost();
    wait_until("a wake-up is lost and made good", || {
        let mut given = None;
        wait_until("a P is idle, and an M", || {
            let mut locked = SCHED.lock.lock();
            if !locked.idle_ms.is_empty()
                && let Some(p) = locked.pop_idle_p()
            {
                given = locked.pop_idle_m().map(|m| (p, m));
            }
            given.is_some()
        });
        let Some((p, m)) = given else { unreachable!() };
        m.spinning.set_counted(false);
        m.wake_with_p(p, |m| m.note.set());
        wait_until("the M acquires the P", || p.flight.current().is_none());
        // An M that was not asleep yet sees its note without a wake-up.
        counts::lost() > before
    });
    run(yield_now);
}

#[test]
fn a_forked_child_drops_the_preemption_request_that_its_parent_had() {
    let _alone = ALONE.lock();
    run(|| {
        let inside = enter();
        let stopper = std::thread::spawn(|| with_world_stopped(StopReason::Test, |_| ()));
        wait_until("the world is about to stop", stopping::is_stopping);
        let child = fork();
        drop(inside);
        if child == 0 {
            end_child(true);
        }
        stopper.join().unwrap();
        assert_ended_well(child);
    });
}

#[test]
fn a_forked_child_wakes_no_m_and_runs_no_other_goroutine() {
    let _alone = ALONE.lock();
    run(|| {
        for _ in 0..20 {
            // Queued on this P, unless another M steals it.
            let other = go(|| {
                if forked::is_child() {
                    end_child(false);
                }
            });
            let child = fork();
            if child == 0 {
                let inside = enter();
                let idle = SCHED.counts.idle_ps();
                wake::start_spinner();
                let is_same = SCHED.counts.idle_ps() == idle;
                drop(inside);
                park::yield_locally(current::goroutine().unwrap());
                end_child(is_same);
            }
            other.join().unwrap();
            assert_ended_well(child);
        }
    });
}

/// Forks. Returns the child's id in the parent, and 0 in the child, which ends if it hangs.
fn fork() -> i32 {
    // SAFETY: the child uses only the runtime, as a child may, and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: no handler is installed; the signal ends the child.
        unsafe { libc::alarm(LIMIT.as_secs() as u32) };
    }
    child
}

/// Ends a child of [`fork`] at once. `well` is what [`assert_ended_well`] checks.
fn end_child(well: bool) -> ! {
    // SAFETY: `_exit` has no precondition.
    unsafe { libc::_exit(if well { 9 } else { 1 }) }
}

fn assert_ended_well(child: i32) {
    let mut status = 0;
    // SAFETY: a child of this process; `status` is valid for writes.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 9, "{status:#x}");
}

// S137: `goyield`.
#[test]
fn a_local_yield_lets_the_gs_of_its_own_p_run() {
    run(|| {
        for _ in 0..100 {
            let ran = Arc::new(AtomicUsize::new(0));
            let its = ran.clone();
            let other = go(move || its.fetch_add(1, Ordering::Relaxed));
            while ran.load(Ordering::Relaxed) == 0 {
                park::yield_locally(current::goroutine().unwrap());
            }
            other.join().unwrap();
        }
    });
}

#[test]
fn spinning_ms_are_at_most_about_half_the_ps() {
    // Several Ms may read the count before one of them changes it, but not again and again.
    run(|| {
        wait_until("spinners are about half the Ps", || most_spinners() <= SCHED.procs() / 2 + 2)
    });
}

/// Returns the largest number of Ms that spun at once while goroutines were started and ended.
fn most_spinners() -> usize {
    let most = Arc::new(AtomicUsize::new(0));
    let handles: Vec<_> = (0..2000)
        .map(|_| {
            let most = most.clone();
            go(move || {
                most.fetch_max(SCHED.counts.spinning() as usize, Ordering::Relaxed);
                yield_now();
            })
        })
        .collect();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    most.load(Ordering::Relaxed)
}
