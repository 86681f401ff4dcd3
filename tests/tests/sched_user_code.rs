//! Places where the runtime runs user code: wakers, destructors, and thread-locals at the end of a
//! goroutine.

use gosched::{go, goexit, park, run, yield_now};
use gosched_tests as _;
use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

/// A value that calls its function when it is dropped.
struct AtEnd<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn a_destructor_of_a_thread_local_may_wait_after_goexit() {
    thread_local! {
        static WAITS: AtEnd<fn()> = const { AtEnd(|| {
            yield_now();
            assert_eq!(go(|| 1).join().unwrap(), 1);
        }) };
    }
    let handle = go(|| -> () {
        WAITS.with(|_| ());
        goexit()
    });
    assert!(handle.join().unwrap_err().is_goexit());
}

/// A waker that calls a function when it is dropped.
struct WakerWithDrop(fn());

impl Wake for WakerWithDrop {
    fn wake(self: Arc<Self>) {}
}

impl Drop for WakerWithDrop {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn polls_with(surprise: fn()) -> std::thread::Result<()> {
    let handle = go(park);
    let goroutine = handle.goroutine().clone();
    let mut future = handle.into_future();
    {
        let waker = Waker::from(Arc::new(WakerWithDrop(surprise)));
        assert!(pin!(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    let second = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        // This poll drops the first waker.
        let polled = pin!(&mut future).poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
    }));
    goroutine.unpark();
    run(|| pin!(&mut future).poll(&mut Context::from_waker(Waker::noop())).is_ready());
    drop(future);
    second
}

#[test]
fn a_waker_that_panics_when_dropped_leaves_the_join_state_intact() {
    assert!(polls_with(|| panic!("on purpose: dropped")).is_err());
}

#[test]
fn a_waker_may_yield_when_it_is_dropped() {
    run(|| polls_with(yield_now).unwrap());
}

// If goroutines are threads, the result already belongs to the handle at this point.
#[cfg(not(feature = "threads"))]
#[test]
fn a_result_whose_handle_is_dropped_at_the_last_moment_is_dropped_in_a_goroutine() {
    use gosched_tests::wait::until;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
    static IN_DESTRUCTOR: AtomicBool = AtomicBool::new(false);
    static GO_ON: AtomicBool = AtomicBool::new(false);
    static DROPPED_IN: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SLOW: AtEnd<fn()> = const { AtEnd(|| {
            IN_DESTRUCTOR.store(true, SeqCst);
            while !GO_ON.load(SeqCst) {
                yield_now();
            }
        }) };
    }
    let handle = go(|| {
        SLOW.with(|_| ());
        AtEnd(|| {
            // The destructor may block like any goroutine.
            assert_eq!(go(|| 7).join().unwrap(), 7);
            DROPPED_IN.store(if gosched::id().is_some() { 1 } else { 2 }, SeqCst);
        })
    });
    until("its destructors run", || IN_DESTRUCTOR.load(SeqCst));
    drop(handle);
    GO_ON.store(true, SeqCst);
    until("the result is dropped", || DROPPED_IN.load(SeqCst) != 0);
    assert_eq!(DROPPED_IN.load(SeqCst), 1, "as a goroutine");
}

#[test]
fn the_number_of_ps_can_be_changed_inside_host() {
    run(|| {
        let before = gosched::host(|| gosched::runtime::set_procs(3));
        assert_eq!(gosched::host(|| gosched::runtime::set_procs(before)), 3);
    });
}
