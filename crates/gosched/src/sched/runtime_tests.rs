//! Tests of the running scheduler that need to look inside.

use super::entry::{enter, leave};
use super::state::SCHED;
use super::world::{StopReason, with_world_stopped};
use super::{calls, moving};
use crate::gmp::current;
use crate::gmp::m::M;
use crate::gmp::p::PStatus;
use crate::{go, run, yield_now};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

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
        // By this thread, or by the watcher, which looks too.
        wait_until("its P is taken", || calls::take_p_of(m) || m.p().is_none());
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
            let taken = scope.spawn(|| calls::take_p_of(m));
            assert!(!taken.join().unwrap());
        });
        assert!(m.p().is_some());
        leave();
    });
}

#[test]
fn when_the_world_is_stopped_nobody_else_runs() {
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
    run(yield_now);
    for _ in 0..100 {
        with_world_stopped(StopReason::Test, |stopped| {
            assert!(stopped.m.is_none());
            assert!(SCHED.used_ps().all(|p| p.status() == PStatus::Stopped));
        });
    }
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
                moving::yield_locally(current::goroutine().unwrap());
            }
            other.join().unwrap();
        }
    });
}

#[test]
fn spinners_stay_about_half_the_ps() {
    run(|| {
        let most = Arc::new(AtomicUsize::new(0));
        let handles: Vec<_> = (0..2000)
            .map(|_| {
                let most = most.clone();
                go(move || {
                    most.fetch_max(
                        SCHED.spinning.load(Ordering::Relaxed) as usize,
                        Ordering::Relaxed,
                    );
                    yield_now();
                })
            })
            .collect();
        handles.into_iter().for_each(|handle| handle.join().unwrap());
        // Two may look at the count at once, and a submitter may wake one more.
        assert!(most.load(Ordering::Relaxed) <= SCHED.procs() / 2 + 2);
    });
}
