//! Contexts in large numbers, in deep and wide trees, and in races between goroutines and threads;
//! all of them are freed. The bench `limits` checks that the cost grows only linearly.

use gosched::context::{CancelGuard, Context, ContextError, StopFunc, background};
use gosched::sync::Barrier;
use gosched::{go, run, time, yield_now};
use gosched_tests::actors::{run_alternating, should_yield};
use gosched_tests::wait::{LIMIT, eventually};
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const MILLI: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(3600);
/// Number of contexts. Lower in debug builds, which fill and check all memory; a chain of this
/// length is still too deep for a recursive destructor.
const MANY: usize = if cfg!(debug_assertions) { 15_000 } else { 100_000 };

/// Returns how many goroutines may exist at once; fewer where goroutines are threads.
const fn goroutines(many: usize) -> usize {
    if cfg!(feature = "threads") { many / 100 } else { many }
}

/// A value that is counted as long as it lives.
#[derive(Debug)]
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Alive {
        count.fetch_add(1, SeqCst);
        Alive(count.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl fmt::Display for Alive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("alive")
    }
}

impl Error for Alive {}

fn children(parent: &Context, count: usize) -> Vec<(Context, CancelGuard)> {
    (0..count).map(|_| parent.with_cancel()).collect()
}

/// Returns the guards of a chain of contexts, from the first to the last, and the last context.
fn chain(depth: usize) -> (Vec<CancelGuard>, Context) {
    let mut last = background();
    let mut guards = Vec::with_capacity(depth);
    for i in 0..depth {
        let (next, guard) = match i % 3 {
            0 => last.with_value(i).with_cancel(),
            _ => last.with_cancel(),
        };
        guards.push(guard);
        last = next;
    }
    (guards, last)
}

/// Reorders `all` with a large step that has no factor in common with the lengths used in these
/// tests.
fn scattered<T>(all: Vec<T>) -> Vec<T> {
    let count = all.len();
    let mut slots: Vec<Option<T>> = all.into_iter().map(Some).collect();
    (0..count).map(|i| slots[i * 7919 % count].take().expect("taken once")).collect()
}

#[test]
fn a_wide_tree_is_cancelled_whole() {
    let cancel = || {
        let (root, guard) = background().with_cancel();
        let all = children(&root, MANY);
        guard.cancel();
        assert!(all.iter().all(|(ctx, _)| ctx.err() == Some(ContextError::Cancelled)));
    };
    cancel();
    go(cancel).join().unwrap();
}

#[test]
fn children_leave_a_wide_tree_in_any_order() {
    type Order = fn(Vec<(Context, CancelGuard)>) -> Vec<(Context, CancelGuard)>;
    let orders: [Order; 3] = [|all| all, |all| all.into_iter().rev().collect(), scattered];
    for order in orders {
        let alive = Arc::new(AtomicUsize::new(0));
        let (root, _guard) = background().with_cancel();
        let carries = |_| root.with_value(Alive::new(&alive)).with_cancel();
        let all = order((0..MANY / 3).map(carries).collect());
        let left = all.len();
        for (gone, (ctx, guard)) in all.into_iter().enumerate() {
            drop(guard);
            assert_eq!(ctx.err(), Some(ContextError::Cancelled));
            drop(ctx);
            assert_eq!(alive.load(SeqCst), left - gone - 1, "the parent keeps no child");
        }
        assert_eq!(root.err(), None);
    }
}

#[test]
fn after_funcs_can_be_stopped_in_any_order() {
    let alive = Arc::new(AtomicUsize::new(0));
    let (root, _guard) = background().with_cancel();
    let holds = |_| {
        let held = Alive::new(&alive);
        root.after_func(move || drop(held))
    };
    let stops: Vec<StopFunc> = (0..MANY).map(holds).collect();
    assert!(scattered(stops).iter().all(StopFunc::stop));
    assert_eq!(alive.load(SeqCst), 0, "each function is dropped by its stop");
}

#[test]
fn a_deep_chain_is_cancelled_whole() {
    let cancel = || {
        let (guards, last) = chain(MANY);
        guards[0].cancel();
        assert_eq!(last.err(), Some(ContextError::Cancelled));
    };
    cancel();
    go(cancel).join().unwrap();
}

#[test]
fn a_deep_chain_is_dropped_from_either_end_without_a_deep_stack() {
    let ends = |depth| {
        let (guards, last) = chain(depth);
        drop(guards); // the first guard cancels all contexts
        drop(last);
        let (mut guards, last) = chain(depth);
        while let Some(guard) = guards.pop() {
            drop(guard); // from the last to the first
        }
        drop(last);
        let (guards, last) = chain(depth);
        guards.into_iter().for_each(CancelGuard::detach);
        assert_eq!(last.err(), None);
        drop(last); // frees the whole chain
        let (guards, last) = chain(depth);
        drop(last);
        drop(scattered(guards));
    };
    go(move || ends(MANY)).join().unwrap();
    // About 12 bytes of stack for each context, less than any stack frame.
    let small = std::thread::Builder::new().stack_size(192 << 10);
    small.spawn(move || ends(MANY.min(16 << 10))).unwrap().join().unwrap();
}

#[test]
fn values_deadlines_and_causes_reach_the_end_of_a_deep_chain() {
    let asks = || {
        let alive = Arc::new(AtomicUsize::new(0));
        let (root, guard) = background().with_value("root").with_timeout(LONG);
        let mut last = root.clone();
        let mut guards = Vec::new();
        for i in 0..MANY {
            last = last.with_value(i);
            if i % 2 == 0 {
                let (next, guard) = last.with_cancel();
                last = next;
                guards.push(guard);
            }
            if i == MANY / 2 {
                last = last.with_value(Alive::new(&alive));
            }
        }
        assert_eq!(last.value::<&str>(), Some(&"root"));
        assert_eq!(last.value::<usize>(), Some(&(MANY - 1)));
        assert_eq!(last.value::<u8>(), None);
        assert_eq!(last.deadline(), root.deadline());
        assert!(root.deadline().is_some() && last.err().is_none());
        assert!(format!("{last:?}").len() < 1 << 20, "a text of some length");
        let free = last.without_cancel();
        guard.cancel_cause("deep");
        assert_eq!(last.cause().unwrap().to_string(), "deep");
        assert!(last.done().recv().is_err());
        drop((guards, last, root));
        assert_eq!((alive.load(SeqCst), free.err()), (1, None));
        drop(free);
        assert_eq!(alive.load(SeqCst), 0, "the values are gone with the last that carries them");
    };
    asks();
    go(asks).join().unwrap();
}

#[test]
fn deep_chains_of_values_and_without_cancel_contexts_are_dropped_without_a_deep_stack() {
    let ends = || {
        let alive = Arc::new(AtomicUsize::new(0));
        let mut last = background();
        for i in 0..MANY {
            last = last.with_value(Alive::new(&alive));
            if i % 3 == 0 {
                last = last.without_cancel();
            }
        }
        assert_eq!(alive.load(SeqCst), MANY);
        let other = last.clone();
        drop(last);
        assert_eq!(alive.load(SeqCst), MANY, "a clone holds all");
        drop(other);
        assert_eq!(alive.load(SeqCst), 0);
    };
    ends();
    go(ends).join().unwrap();
}

#[test]
fn a_long_chain_of_deadlines_ends_at_the_first() {
    let ends = || {
        let count = MANY / 10;
        let (first, _guard) = background().with_timeout(5 * MILLI);
        let mut last = first.clone();
        let mut guards = Vec::new();
        for _ in 0..count {
            let (next, guard) = last.with_timeout(LONG);
            guards.push(guard);
            last = next;
        }
        assert!(last.done().recv().is_err());
        assert_eq!(last.err(), Some(ContextError::DeadlineExceeded));
        assert_eq!(last.deadline(), first.deadline());
    };
    ends();
    go(ends).join().unwrap();
}

#[test]
fn many_deadlines_are_cancelled_and_many_expire() {
    let given_up: Vec<_> = (0..MANY).map(|_| background().with_timeout(LONG)).collect();
    let (contexts, guards): (Vec<_>, Vec<_>) = given_up.into_iter().unzip();
    drop(guards);
    assert!(contexts.iter().all(|ctx| ctx.err() == Some(ContextError::Cancelled)));
    let at = time::now() + 30 * MILLI;
    let coming: Vec<_> = (0..MANY / 10).map(|_| background().with_deadline(at)).collect();
    for (ctx, _guard) in &coming {
        assert!(ctx.done().recv().is_err());
        assert_eq!(ctx.err(), Some(ContextError::DeadlineExceeded));
    }
    assert!(time::now() >= at);
}

#[test]
fn each_of_many_after_funcs_runs_once() {
    let count = goroutines(MANY);
    let ran: Arc<Vec<AtomicUsize>> = Arc::new((0..count).map(|_| AtomicUsize::new(0)).collect());
    let alive = Arc::new(AtomicUsize::new(0));
    let (root, guard) = background().with_cancel();
    for i in 0..count {
        let (ran, alive) = (ran.clone(), Alive::new(&alive));
        drop(root.after_func(move || {
            let _alive = alive;
            ran[i].fetch_add(1, SeqCst);
        }));
    }
    guard.cancel();
    eventually(|| alive.load(SeqCst) == 0);
    assert!(ran.iter().all(|ran| ran.load(SeqCst) == 1));
}

#[test]
fn children_made_during_a_cancel_are_cancelled_too() {
    for round in 0..40 {
        let (root, guard) = background().with_cancel();
        let start = Arc::new(Barrier::new(5));
        let gate = start.clone();
        let cancels = go(move || {
            gate.wait();
            (0..round).for_each(|_| yield_now());
            guard.cancel_cause("raced");
            guard.detach();
        });
        run_alternating(4, move |_| {
            start.wait();
            let mut made = Vec::new();
            let mut last = root.clone();
            // Each party makes one more child after it has seen the cancel.
            let mut over = false;
            while !over {
                over = root.err().is_some();
                let (child, guard) = match made.len() % 3 {
                    0 => root.with_cancel(),
                    1 => last.with_timeout(LONG),
                    _ => last.with_value(1u8).with_cancel(),
                };
                last = if made.len() % 64 == 63 { root.clone() } else { child.clone() };
                guard.detach();
                made.push(child);
                if made.len() > 200 {
                    time::sleep(MILLI / 20);
                }
            }
            for child in &made {
                assert!(child.done().recv_timeout(LIMIT).is_err());
                assert_eq!(child.err(), Some(ContextError::Cancelled));
                assert_eq!(child.cause().unwrap().to_string(), "raced");
            }
        });
        cancels.join().unwrap();
    }
}

#[test]
fn an_after_func_either_runs_or_is_stopped() {
    let [ran, stopped, both_ways] = [0; 3].map(|_| Arc::new(AtomicUsize::new(0)));
    let alive = Arc::new(AtomicUsize::new(0));
    let rounds = 50;
    let each = 40;
    for _ in 0..rounds {
        let (root, guard) = background().with_timeout(300 * Duration::from_micros(1));
        let guard = Arc::new(guard);
        let start = Arc::new(Barrier::new(6));
        let (ran, stopped, alive) = (ran.clone(), stopped.clone(), alive.clone());
        let both_ways = both_ways.clone();
        run_alternating(6, move |me| {
            start.wait();
            if me >= 4 {
                (0..me).filter(|&i| should_yield(me, i)).for_each(|_| yield_now());
                return guard.cancel();
            }
            for i in 0..each {
                let (here, alive) = (Arc::new(AtomicUsize::new(0)), Alive::new(&alive));
                let (inside, ran) = (here.clone(), ran.clone());
                let stop = Arc::new(root.after_func(move || {
                    let _alive = alive;
                    inside.fetch_add(1, SeqCst);
                    ran.fetch_add(1, SeqCst);
                }));
                if i % 2 == 0 && should_yield(me, i) {
                    yield_now();
                }
                let other = stop.clone();
                let tries = (i % 4 == 0).then(|| go(move || other.stop()));
                let mut stops = usize::from(stop.stop());
                stops += usize::from(tries.is_some_and(|tries| tries.join().unwrap()));
                stopped.fetch_add(stops, SeqCst);
                if stops > 1 || (stops == 1 && here.load(SeqCst) != 0) {
                    both_ways.fetch_add(1, SeqCst);
                }
            }
        });
    }
    let total = rounds * each * 4;
    eventually(|| ran.load(SeqCst) + stopped.load(SeqCst) == total && alive.load(SeqCst) == 0);
    time::sleep(5 * MILLI);
    assert_eq!(ran.load(SeqCst) + stopped.load(SeqCst), total);
    assert_eq!(both_ways.load(SeqCst), 0);
}

#[test]
fn every_concurrent_cancel_returns_after_all_descendants_have_ended() {
    // This holds for every caller, not only for the first: `cancel` returns after all descendants
    // have ended.
    for round in 0..10 {
        let (root, guard) = background().with_cancel();
        let all: Vec<_> = children(&root, 5000 + round);
        let shared = Arc::new((root, guard, all));
        let start = Arc::new(Barrier::new(4));
        run_alternating(4, move |_| {
            let (root, guard, all) = &*shared;
            start.wait();
            guard.cancel();
            assert_eq!(root.err(), Some(ContextError::Cancelled));
            let open = all.iter().filter(|(ctx, _)| ctx.err().is_none()).count();
            assert_eq!(open, 0, "of {}", all.len());
        });
    }
}

#[test]
fn concurrent_cancels_at_all_places_of_one_tree_end() {
    for _ in 0..20 {
        let (root, guard) = background().with_cancel();
        let mut guards = vec![guard];
        let mut contexts = vec![root];
        for i in 1..300 {
            let parent = contexts[i / 2].clone();
            let (ctx, guard) = match i % 3 {
                0 => parent.with_timeout(Duration::from_micros(i as u64 * 3)),
                _ => parent.with_cancel(),
            };
            contexts.push(ctx);
            guards.push(guard);
        }
        let (contexts, guards) = (Arc::new(contexts), Arc::new(scattered(guards)));
        let (all, start) = (contexts.clone(), Arc::new(Barrier::new(6)));
        run_alternating(6, move |me| {
            start.wait();
            for guard in guards.iter().skip(me).step_by(6) {
                guard.cancel_cause(format!("by {me}"));
            }
        });
        for ctx in all.iter() {
            let (err, cause) = (ctx.err().unwrap(), ctx.cause().unwrap().to_string());
            match err {
                ContextError::Cancelled => assert!(cause.starts_with("by "), "{cause}"),
                _ => assert_eq!(cause, "context deadline exceeded"),
            }
            assert!(ctx.done().is_closed());
        }
        drop(contexts);
    }
}

#[test]
fn a_context_has_one_cause_after_a_race_of_deadline_and_cancel() {
    run_alternating(4, |me| {
        for i in 0..200u64 {
            let wait = Duration::from_micros(i * 13 % 200);
            let (ctx, guard) = background().with_timeout(wait);
            let (child, _child) = ctx.with_cancel();
            let until = Instant::now() + Duration::from_micros((i + me as u64 * 5) * 13 % 200);
            while Instant::now() < until {
                if should_yield(me, i as usize) {
                    yield_now();
                }
            }
            guard.cancel_cause("cancelled");
            let first = (ctx.err().unwrap(), ctx.cause().unwrap().to_string());
            assert_eq!((child.err().unwrap(), child.cause().unwrap().to_string()), first);
            let by_hand = first == (ContextError::Cancelled, "cancelled".to_owned());
            assert!(by_hand || first.1 == "context deadline exceeded", "{first:?}");
            if should_yield(me, i as usize) {
                yield_now();
            }
            assert_eq!((ctx.err().unwrap(), ctx.cause().unwrap().to_string()), first);
        }
    });
}

#[test]
fn ended_contexts_free_their_values_and_functions() {
    let body = || {
        let alive = Arc::new(AtomicUsize::new(0));
        let (root, of_root) = background().with_value(Alive::new(&alive)).with_cancel();
        for i in 0..2000 {
            let carries = root.with_value(Alive::new(&alive));
            let (child, guard) = match i % 2 {
                0 => carries.with_cancel(),
                _ => carries.with_timeout(LONG),
            };
            let (last, of_last) = child.with_value(Alive::new(&alive)).with_cancel();
            let held = Alive::new(&alive);
            let stop = last.after_func(move || drop(held));
            of_last.detach();
            match i % 4 / 2 {
                0 => assert!(stop.stop()),
                _ => guard.cancel_cause(Alive::new(&alive)),
            }
        }
        // The guards have cancelled the contexts. Functions that run are freed by their goroutines.
        eventually(|| alive.load(SeqCst) == 1);
        drop((root, of_root));
        assert_eq!(alive.load(SeqCst), 0);
    };
    body();
    run(body);
}

#[test]
fn contexts_that_can_no_longer_be_cancelled_free_their_values_and_functions() {
    let alive = Arc::new(AtomicUsize::new(0));
    let (parent, _parent) = background().with_cancel();
    for i in 0..100 {
        let above = if i % 2 == 0 { background() } else { parent.clone() };
        let (ctx, guard) = above.with_value(Alive::new(&alive)).with_cancel();
        guard.detach();
        drop(ctx);
    }
    eventually(|| alive.load(SeqCst) == 0);
    for ctx in [background(), background().with_cancel().0.without_cancel()] {
        let held = Alive::new(&alive);
        drop(ctx.after_func(move || drop(held))); // the function never runs
    }
    let (ctx, guard) = background().with_cancel();
    guard.detach();
    let held = Alive::new(&alive);
    let stop = ctx.after_func(move || drop(held));
    drop((ctx, stop));
    eventually(|| alive.load(SeqCst) == 0);
}

/// A value whose destructor uses a context in every possible way.
struct Busy(Context, Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        assert!(self.0.err().is_none() || self.0.done().is_closed());
        let (child, guard) = self.0.with_cancel();
        let stop = child.after_func(|| ());
        stop.stop();
        guard.cancel();
        self.1.fetch_add(1, SeqCst);
    }
}

impl fmt::Debug for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Busy")
    }
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("busy")
    }
}

impl Error for Busy {}

#[test]
fn destructors_may_use_contexts() {
    let body = || {
        let (ctx, guard) = background().with_cancel();
        let drops = Arc::new(AtomicUsize::new(0));
        let (one, two) = (Busy(ctx.clone(), drops.clone()), Busy(ctx.clone(), drops.clone()));
        let stop = ctx.after_func(move || drop(one));
        assert!(stop.stop()); // drops the closure, without holding a lock
        eventually(|| drops.load(SeqCst) == 1);
        drop(ctx.after_func(move || drop(two)));
        drop(ctx.with_value(Busy(ctx.clone(), drops.clone())));
        assert_eq!(drops.load(SeqCst), 2);
        guard.cancel_cause("first");
        guard.cancel_cause(Busy(ctx.clone(), drops.clone())); // too late: the cause is dropped
        eventually(|| drops.load(SeqCst) == 4);
        assert_eq!(ctx.cause().unwrap().to_string(), "first");
    };
    body();
    go(body).join().unwrap();
}
