//! Tests of the running scheduler that need to look inside.

use super::state::counts;
use super::state::global::SCHED;
use super::switch::boundary::{enter, leave};
use super::switch::{park, syscall};
use super::world::procs::set_procs;
use super::world::{StopReason, try_with_world_stopped, with_world_stopped};
use crate::gmp::current;
use crate::gmp::m::M;
use crate::gmp::p::PStatus;
use crate::probe::times;
use crate::{go, run, yield_now};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// One who does not stop is there for one test only: others would wait for it, and it for them.
static ALONE: Mutex<()> = Mutex::new(());

/// What has not happened after this time never will.
const LIMIT: Duration = Duration::from_secs(120);

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// The M that the calling goroutine runs on, for others to look at.
fn tell_m(place: &AtomicPtr<M>) {
    let m = enter();
    place.store(std::ptr::from_ref(m).cast_mut(), Ordering::Release);
    leave();
}

// S116 to S125 for a call nobody marked.
#[test]
fn a_p_can_be_taken_from_a_blocked_m_and_the_goroutine_goes_on_when_it_has_one_again() {
    for _ in 0..20 {
        let place = Arc::new(AtomicPtr::new(std::ptr::null_mut()));
        let free = Arc::new(AtomicBool::new(false));
        let (its_place, its_free) = (place.clone(), free.clone());
        let blocked = go(move || {
            tell_m(&its_place);
            // Blocks the thread, not the goroutine; never comes into the runtime.
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
        // By this thread, or by sysmon, which looks too.
        wait_until("its P is taken", || syscall::retake_unmarked(m) || m.p().is_none());
        assert!(m.p().is_none());
        // All Ps are to be had without it.
        let others: Vec<_> = (0..8).map(|i| go(move || i)).collect();
        assert_eq!(others.into_iter().map(|h| h.join().unwrap()).sum::<i32>(), 28);
        free.store(true, Ordering::Release);
        assert!(blocked.join().unwrap() > 0);
    }
}

#[test]
fn a_p_is_not_taken_from_an_m_inside_the_runtime() {
    run(|| {
        let m = enter();
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| syscall::retake_unmarked(m));
            assert!(!taken.join().unwrap());
        });
        assert!(m.p().is_some());
        leave();
    });
}

#[test]
fn when_the_world_is_stopped_nobody_else_runs() {
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
                let own = stopped.m.and_then(M::p).map(|p| p.id);
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
            assert!(stopped.m.is_none());
            assert!(SCHED.used_ps().all(|p| p.status() == PStatus::Stopped));
        });
    }
    run(yield_now);
}

/// Does not hear when it is asked to stop, and does not come into the runtime.
fn is_deaf_until(stop: &AtomicBool, deaf: &AtomicBool) {
    let mask = |how, signal| {
        // SAFETY: all-zero is a set without signals, or is made one below.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: a set.
        unsafe { libc::sigemptyset(&mut set) };
        // SAFETY: as above.
        unsafe { libc::sigaddset(&mut set, signal) };
        // SAFETY: as above; the thread's own mask.
        assert_eq!(unsafe { libc::pthread_sigmask(how, &set, std::ptr::null_mut()) }, 0);
    };
    mask(libc::SIG_BLOCK, libc::SIGURG);
    deaf.store(true, Ordering::Relaxed);
    while !stop.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
    mask(libc::SIG_UNBLOCK, libc::SIGURG);
}

/// How often the world stopped, and how long that took: until it had, and until it went on.
fn pauses() -> [(u64, u64); 2] {
    let times = times::times();
    [times.stopping, times.stopped].map(|pauses| (pauses.counts.iter().sum(), pauses.sum_nanos))
}

#[test]
fn a_stop_that_somebody_does_not_hear_is_taken_back() {
    let _alone = ALONE.lock();
    run(|| {
        // One P is the other's, all the time.
        set_procs(SCHED.procs().max(2));
        let (stop, deaf) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let its = (stop.clone(), deaf.clone());
        let other = go(move || is_deaf_until(&its.0, &its.1));
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
            // It was a pause. Its length is the whole patience, less the time before the world was asked to stop.
            let now = self::pauses();
            for (before, now) in pauses.iter().zip(&now) {
                assert!(now.0 > before.0 && now.1 > before.1, "{now:?} after {before:?}");
            }
            let is_whole = |i: usize| now[i].1 >= pauses[i].1 + patience.as_nanos() as u64;
            counted_whole += usize::from(is_whole(0) && is_whole(1));
            // The others go on as before.
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
fn whoever_stops_while_that_is_taken_back_goes_on() {
    let _alone = ALONE.lock();
    run(|| {
        set_procs(SCHED.procs().max(2));
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
        const ROUNDS: usize = 120;
        let (mut taken_back, mut start) = (0, Instant::now());
        // A stop may be so quick that there is nothing to take back.
        for round in 0.. {
            if round >= ROUNDS && taken_back > 20 {
                break;
            }
            assert!(start.elapsed() < LIMIT, "{taken_back} of {round} were taken back");
            // The limit is for one round, and for all those beyond: a busy machine needs a second for each.
            if round <= ROUNDS {
                start = Instant::now();
            }
            let patience = [Duration::ZERO, Duration::from_micros(50), LIMIT][round % 3];
            let stopped = try_with_world_stopped(StopReason::Test, patience, |_| ());
            assert!(patience < LIMIT || stopped.is_ok(), "in round {round} somebody does not stop");
            taken_back += usize::from(stopped.is_err());
            // Whoever was asked to stop finds that nobody wants it any more.
            go(yield_now).join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!(SCHED.used_ps().all(|p| p.status() != PStatus::Stopped));
    });
}

#[test]
fn a_p_whose_receiver_was_not_woken_is_acquired_all_the_same() {
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
        m.spinning.store(false, Ordering::Relaxed);
        m.wake_with_p(p, |m| m.note.set_unheard());
        wait_until("the M acquires the P", || p.flight().is_none());
        // An M that was not asleep yet has seen its note without a wake-up.
        counts::lost() > before
    });
    run(yield_now);
}

// S137: `goyield`.
#[test]
fn a_local_yield_lets_the_own_queue_run() {
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
fn spinners_stay_about_half_the_ps() {
    // Any number of Ms may look at the count before one of them changes it, but not again and again.
    run(|| {
        wait_until("spinners are about half the Ps", || most_spinners() <= SCHED.procs() / 2 + 2)
    });
}

/// How many Ms spun at once while goroutines came and went.
fn most_spinners() -> usize {
    let most = Arc::new(AtomicUsize::new(0));
    let handles: Vec<_> = (0..2000)
        .map(|_| {
            let most = most.clone();
            go(move || {
                most.fetch_max(SCHED.spinning.load(Ordering::Relaxed) as usize, Ordering::Relaxed);
                yield_now();
            })
        })
        .collect();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    most.load(Ordering::Relaxed)
}
