//! User code that panics or ends its goroutine in the middle of an operation that others wait for:
//! no operation may stay half done.

use gosched::sync::{Mutex, SingleFlight};
use gosched::time::{after_func, sleep};
use gosched::{chan, context, go, goexit, runtime, yield_now};
use gosched_tests::wait::{LIMIT, retry_until_eq, settle, until};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// A goroutine that caught its own goexit cancels the root while another goroutine cancels the
/// children.
#[test]
fn a_cancellation_by_an_exiting_goroutine_is_complete() {
    let count = if cfg!(debug_assertions) { 20_000 } else { 100_000 };
    let (root, guard) = context::background().with_cancel();
    let (child, child_guard) = root.with_cancel();
    let below: Vec<_> = (0..count).map(|_| child.with_cancel()).collect();
    let guard = Arc::new(guard);
    let first = go(move || child_guard.cancel());
    while child.err().is_none() {
        yield_now();
    }
    let its_guard = guard.clone();
    let exits = go(move || {
        let _ = catch_unwind(|| goexit());
        its_guard.cancel();
    });
    let _ = exits.join_timeout(LIMIT).expect("it does not hang");
    first.join_timeout(LIMIT).expect("it does not hang").unwrap();
    let last = go(move || guard.cancel());
    last.join_timeout(LIMIT).expect("it does not hang").unwrap();
    assert!(root.err().is_some());
    assert!(below.iter().all(|(context, _)| context.err().is_some()));
}

/// A key that panics when it is compared or dropped, if the corresponding flag is set.
#[derive(Clone)]
struct Key {
    number: u32,
    compare: Arc<AtomicBool>,
    drop: Arc<AtomicBool>,
}

impl Key {
    fn new() -> Key {
        Key { number: 1, compare: Arc::default(), drop: Arc::default() }
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        assert!(!self.compare.load(SeqCst), "on purpose: compared");
        self.number == other.number
    }
}

impl Eq for Key {}

impl Drop for Key {
    fn drop(&mut self) {
        if self.drop.swap(false, SeqCst) {
            panic!("on purpose: dropped");
        }
    }
}

/// Asserts that a waiter of a call returns, whatever the key does at the end of the call.
fn assert_waiter_released(trouble: fn(&Key)) {
    // On a busy machine the waiter may hit the panic before it waits, instead of the leader.
    retry_until_eq(true, || leader_panics(trouble));
}

/// Returns whether the leader panicked.
fn leader_panics(trouble: fn(&Key)) -> bool {
    let flights = SingleFlight::<Key, u32>::new();
    let key = Key::new();
    let (release, released) = chan::<()>(0);
    let (leads, key_of_lead) = (flights.clone(), key.clone());
    let lead = go(move || {
        catch_unwind(AssertUnwindSafe(|| {
            leads.run(key_of_lead, move || {
                let _ = released.recv();
                7
            })
        }))
        .is_err()
    });
    until("it leads", || format!("{flights:?}").contains("1 under way"));
    let began = Arc::new(AtomicBool::new(false));
    let (waits, key_of_other, its_began) = (flights.clone(), key.clone(), began.clone());
    let waiter = go(move || {
        its_began.store(true, SeqCst);
        let _ = catch_unwind(AssertUnwindSafe(|| waits.run(key_of_other, || 8)));
    });
    until("it waits", || began.load(SeqCst));
    settle();
    trouble(&key);
    release.send(()).unwrap();
    let panicked = lead.join_timeout(LIMIT).expect("the lead ends").unwrap();
    key.compare.store(false, SeqCst);
    key.drop.store(false, SeqCst);
    waiter.join_timeout(LIMIT).expect("the waiter is told").unwrap();
    panicked
}

#[test]
fn a_key_that_panics_when_compared_leaves_no_waiter_blocked() {
    assert_waiter_released(|key| key.compare.store(true, SeqCst));
}

#[test]
fn a_key_that_panics_when_dropped_leaves_no_waiter_blocked() {
    assert_waiter_released(|key| key.drop.store(true, SeqCst));
}

/// A payload that panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("on purpose: the payload");
    }
}

#[test]
fn a_function_may_panic_with_a_payload_that_panics() {
    let (tx, rx) = chan::<u32>(1);
    let timer = after_func(Duration::from_millis(1), move || {
        tx.send(1).unwrap();
        panic_any(Bomb);
    });
    assert_eq!(rx.recv(), Ok(1));
    timer.reset(Duration::from_millis(1));
    assert_eq!(rx.recv_timeout(LIMIT), Ok(1), "it runs again");
    timer.stop();
}

/// A waker that counts its calls and panics.
struct PanickingWaker(AtomicUsize);

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
        panic_any(Bomb);
    }
}

#[test]
fn a_waker_may_panic_with_a_payload_that_panics() {
    let alarm = Arc::new(PanickingWaker(AtomicUsize::new(0)));
    let waker = Waker::from(alarm.clone());
    let (tx, rx) = chan::<u32>(1);
    // One goroutine left behind per round would be more than the other tests have.
    for round in 1..=100 {
        let mut future = Box::pin(rx.recv_async());
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        tx.send(round).unwrap();
        until("it is woken", || alarm.0.load(SeqCst) == round as usize);
        let value = future.as_mut().poll(&mut Context::from_waker(&waker));
        assert_eq!(value, Poll::Ready(Ok(round)));
    }
    until("all have ended", || runtime::num_goroutines() < 50);
}

/// A goroutine that is exiting does not take a lock that it finds held.
#[test]
fn a_caught_goexit_resumes_at_a_held_lock_and_does_not_take_it() {
    let mutex = Arc::new(Mutex::new(0));
    let held = mutex.lock();
    let its_mutex = mutex.clone();
    let exits = go(move || {
        let _ = catch_unwind(|| goexit());
        *its_mutex.lock() += 1;
    });
    let error = exits.join_timeout(LIMIT).expect("it goes on with its exit").unwrap_err();
    assert!(error.is_goexit());
    drop(held);
    sleep(Duration::from_millis(1));
    assert_eq!(*mutex.try_lock().expect("it is free"), 0);
}
