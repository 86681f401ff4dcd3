//! Pools and groups: Go's `sync.Pool` and `errgroup`.

use gosched::context::{self, ContextError};
use gosched::sync::{Group, Pool};
use gosched::{chan, go, goexit, run, runtime, time, yield_now};
use gosched_tests::actors::{
    Ledger, Token, in_goroutine_and_thread, join_all, kind_for, should_yield,
};
use gosched_tests::wait::{LIMIT, eventually, retry_until_eq, settle};
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

const MILLI: Duration = Duration::from_millis(1);

/// Returns the text of a panic.
fn panic_of<T>(f: impl FnOnce() -> T) -> String {
    let payload: Box<dyn Any + Send> = match catch_unwind(AssertUnwindSafe(f)) {
        Ok(_) => panic!("it did not panic"),
        Err(payload) => payload,
    };
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().unwrap()).to_string(),
    }
}

/// A value made by a pool; counts its creation and drop, and records whether it is in use.
struct Made {
    counts: Arc<Counts>,
    taken: AtomicBool,
}

#[derive(Default)]
struct Counts {
    made: AtomicUsize,
    dropped: AtomicUsize,
}

impl Counts {
    fn make(self: &Arc<Counts>) -> Made {
        self.made.fetch_add(1, SeqCst);
        Made { counts: self.clone(), taken: AtomicBool::new(false) }
    }

    fn made(&self) -> usize {
        self.made.load(SeqCst)
    }

    fn dropped(&self) -> usize {
        self.dropped.load(SeqCst)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        assert!(!*self.taken.get_mut() || std::thread::panicking());
        self.counts.dropped.fetch_add(1, SeqCst);
    }
}

fn counted() -> (Arc<Counts>, Arc<Pool<Made, impl Fn() -> Made + Send + Sync + 'static>>) {
    let counts = Arc::new(Counts::default());
    let makes = counts.clone();
    (counts, Arc::new(Pool::new(move || makes.make())))
}

#[test]
fn a_pool_returns_values_put_by_any_goroutine_or_thread() {
    in_goroutine_and_thread(|| {
        let (counts, pool) = counted();
        pool.put(pool.get());
        for _ in 0..50 {
            pool.put(pool.get());
        }
        assert_eq!(counts.made(), 1);
        // Another goroutine or thread gets the same value.
        for i in 0..50 {
            let moved = pool.clone();
            match i % 2 {
                0 => go(move || moved.put(moved.get())).join().unwrap(),
                _ => std::thread::spawn(move || moved.put(moved.get())).join().unwrap(),
            }
        }
        assert_eq!((counts.made(), counts.dropped()), (1, 0));
        drop(pool);
        eventually(|| counts.dropped() == 1);
    });
}

#[test]
fn a_pool_keeps_its_values_when_the_number_of_ps_changes() {
    let procs = runtime::procs();
    let (counts, pool) = counted();
    for n in [1, 7, 2, 12, 3] {
        runtime::set_procs(n);
        let users = (0..24).map(|i| {
            let pool = pool.clone();
            kind_for(i).start(move || {
                for round in 0..40 {
                    let held = [pool.get(), pool.get()];
                    if should_yield(i, round) {
                        yield_now();
                    }
                    held.into_iter().for_each(|made| pool.put(made));
                }
            })
        });
        join_all(users.collect::<Vec<_>>());
    }
    runtime::set_procs(1);
    // All values in the pool can be taken from here.
    let kept = counts.made() - counts.dropped();
    let before = counts.made();
    let found: Vec<_> = (0..kept).map(|_| pool.get()).collect();
    assert_eq!(counts.made(), before, "of {kept}");
    runtime::set_procs(procs);
    drop((found, pool));
    eventually(|| counts.dropped() == counts.made());
}

#[test]
fn a_pool_never_gives_one_value_to_two_users() {
    let (counts, pool) = counted();
    let users = (0..16).map(|i| {
        let pool = pool.clone();
        kind_for(i).start(move || {
            for round in 0..500 {
                let made = pool.get();
                assert!(!made.taken.swap(true, SeqCst), "somebody has it");
                if round % 7 == i % 7 && should_yield(i, round) {
                    yield_now();
                }
                assert!(made.taken.swap(false, SeqCst));
                if round % 50 != 0 {
                    pool.put(made);
                }
            }
        })
    });
    join_all(users.collect::<Vec<_>>());
    assert!(counts.made() < 16 * 500 / 4, "made {}, so few were used again", counts.made());
    pool.clear();
    assert_eq!(counts.made(), counts.dropped());
}

static SHARED: Pool<Vec<Cell<u32>>> = Pool::new(|| {
    MADE.fetch_add(1, SeqCst);
    Vec::new()
});
static MADE: AtomicUsize = AtomicUsize::new(0);

#[test]
fn a_static_pool_serves_goroutines_and_threads() {
    let users = (0..12u32).map(|i| {
        kind_for(i as usize).start(move || {
            for round in 0..200 {
                let mut buffer = SHARED.lend();
                assert!(buffer.is_empty());
                buffer.extend([i, round].map(Cell::new));
                if should_yield(i as usize, round as usize) {
                    yield_now();
                }
                assert_eq!(buffer.iter().map(Cell::get).collect::<Vec<_>>(), [i, round]);
                buffer.clear();
            }
        })
    });
    join_all(users.collect::<Vec<_>>());
    assert!((1..2400 / 4).contains(&MADE.load(SeqCst)), "{MADE:?}");
}

#[test]
fn a_lent_value_returns_to_the_pool_unless_it_is_kept() {
    in_goroutine_and_thread(|| {
        let (counts, pool) = counted();
        drop(pool.lend());
        let panics = pool.clone();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _lent = panics.lend();
            resume_unwind(Box::new(()));
        }));
        assert!(caught.is_err());
        let ends = pool.clone();
        let ended = go(move || {
            let _lent = ends.lend();
            goexit();
        });
        assert!(ended.join().unwrap_err().is_goexit());
        assert_eq!((counts.made(), counts.dropped()), (1, 0));
        let kept = pool.lend().keep();
        assert_eq!(counts.made(), 1);
        pool.clear();
        assert_eq!(counts.dropped(), 0, "it did not go back");
        drop(pool.lend());
        assert_eq!(counts.made(), 2);
        pool.clear();
        assert_eq!(counts.dropped(), 1);
        drop(kept);
        assert_eq!(counts.dropped(), 2);
    });
}

#[test]
fn every_value_put_into_a_full_pool_is_kept_or_dropped() {
    in_goroutine_and_thread(|| {
        let (counts, pool) = counted();
        (0..20_000).for_each(|_| pool.put(counts.make()));
        let kept = counts.made() - counts.dropped();
        assert!(kept > 0);
        let found: Vec<_> = (0..kept).map(|_| pool.get()).collect();
        assert_eq!(counts.made(), 20_000, "{kept} were kept");
        found.into_iter().for_each(|made| pool.put(made));
        pool.clear();
        assert_eq!(counts.dropped(), 20_000);
        pool.clear();
        pool.put(pool.get());
        assert_eq!((counts.made(), counts.dropped()), (20_001, 20_000));
    });
    // Values of size zero work too.
    #[derive(Debug)]
    struct Nothing;
    let made = AtomicUsize::new(0);
    let nothings = Pool::new(|| {
        made.fetch_add(1, SeqCst);
        Nothing
    });
    (0..1000).for_each(|_| nothings.put(nothings.get()));
    assert!((1..1000).contains(&made.load(SeqCst)), "{made:?}");
}

/// A value that uses its pool when it is dropped.
struct Again;

static AGAIN: Pool<Again> = Pool::new(|| Again);
static AGAINS: AtomicUsize = AtomicUsize::new(0);

impl Drop for Again {
    fn drop(&mut self) {
        if AGAINS.fetch_add(1, SeqCst) & 1 == 0 {
            std::mem::forget(AGAIN.get());
            AGAIN.put(Again);
        }
    }
}

#[test]
fn destructors_and_constructors_of_values_may_use_the_pool() {
    in_goroutine_and_thread(|| {
        (0..10_000).for_each(|_| AGAIN.put(Again));
        AGAIN.clear();
        assert!(AGAINS.load(SeqCst) > 0);
        static NESTED: Pool<u32> = Pool::new(|| {
            static DEPTH: AtomicUsize = AtomicUsize::new(0);
            if DEPTH.fetch_add(1, SeqCst) % 5 < 4 { NESTED.get() + 1 } else { 0 }
        });
        assert_eq!(NESTED.get(), 4);
        let tries = AtomicUsize::new(0);
        let fails = Pool::new(|| {
            time::sleep(MILLI);
            assert!(tries.fetch_add(1, SeqCst) > 0, "the first fails");
            7
        });
        assert_eq!(panic_of(|| fails.get()), "the first fails");
        assert_eq!(fails.get(), 7);
    });
}

#[test]
fn a_group_waits_for_all_goroutines_and_returns_the_first_error() {
    in_goroutine_and_thread(|| {
        let group = Group::<u32>::new();
        assert_eq!(group.wait(), Ok(()));
        // A test cannot observe that a goroutine has returned: on a busy machine others may return
        // before goroutine 7.
        retry_until_eq(Err(7), || {
            let ended = Arc::new(AtomicUsize::new(0));
            let (failed, next) = chan::<()>(0);
            for i in 0..20 {
                let (ended, next, failed) = (ended.clone(), next.clone(), failed.clone());
                group.go(move || {
                    if i != 7 {
                        let _ = next.recv();
                        settle();
                    }
                    ended.fetch_add(1, SeqCst);
                    failed.close();
                    if i % 2 == 1 { Err(i) } else { Ok(()) }
                });
            }
            let outcome = group.wait();
            assert_eq!(ended.load(SeqCst), 20);
            outcome
        });
        // An error is returned once; then the group can be used again.
        assert_eq!(group.wait(), Ok(()));
        group.go(|| Err(1));
        assert_eq!(group.clone().wait(), Err(1));
    });
}

#[test]
fn a_group_drops_every_closure_and_error_once() {
    let ledger = Ledger::new(60);
    let group = Group::<Token>::new();
    for i in 0..20 {
        let [mine, error, exit] = [i, i + 20, i + 40].map(|number| ledger.token(number));
        group.go(move || {
            let _mine = mine;
            drop(exit);
            yield_now();
            Err(error)
        });
    }
    let first = group.wait().unwrap_err();
    assert_eq!(ledger.total(), 59);
    assert!((20..40).contains(&first.number));
    drop(first);
    ledger.assert_each_dropped_once();
}

#[test]
fn the_context_of_a_group_is_canceled_at_the_first_error() {
    in_goroutine_and_thread(|| {
        let (group, ctx) = Group::<&str>::with_context(&context::background());
        for i in 0..8 {
            let ctx = ctx.clone();
            group.go(move || {
                let over = ctx.done().recv_timeout(LIMIT);
                assert!(over.is_err() && ctx.err() == Some(ContextError::Canceled), "{i}");
                Err("told")
            });
        }
        settle();
        assert_eq!(ctx.err(), None);
        group.go(|| Err("first"));
        assert_eq!(group.wait(), Err("first"));
        assert_eq!(ctx.err(), Some(ContextError::Canceled));
    });
}

#[test]
fn the_context_of_a_group_is_canceled_after_the_wait_and_with_its_parent() {
    let (parent, guard) = context::background().with_cancel();
    let (group, ctx) = Group::<ContextError>::with_context(&parent);
    let seen = ctx.clone();
    group.go(move || {
        yield_now();
        seen.err().map_or(Ok(()), Err)
    });
    assert_eq!(group.wait(), Ok(()));
    assert_eq!((ctx.err(), parent.err()), (Some(ContextError::Canceled), None));
    let (group, ctx) = Group::<ContextError>::with_context(&parent);
    group.go(move || {
        let _ = ctx.done().recv();
        Err(ctx.err().unwrap())
    });
    guard.cancel();
    assert_eq!(group.wait(), Err(ContextError::Canceled));
    // A panic cancels the context too.
    let (group, ctx) = Group::<()>::with_context(&context::background());
    let told = ctx.clone();
    group.go(move || {
        let _ = told.done().recv();
        Ok(())
    });
    group.go(|| resume_unwind(Box::new("a panic")));
    assert!(catch_unwind(AssertUnwindSafe(|| group.wait())).is_err());
    assert_eq!(ctx.err(), Some(ContextError::Canceled));
}

#[test]
fn a_group_never_runs_more_goroutines_than_its_limit() {
    for most in [1, 3, 10] {
        let group = Group::<u32>::new().limit(most);
        let (running, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let starters = (0..4).map(|starter| {
            let (group, running, peak) = (group.clone(), running.clone(), peak.clone());
            kind_for(starter).start(move || {
                for i in 0..50 {
                    let (running, peak) = (running.clone(), peak.clone());
                    group.go(move || {
                        peak.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                        match i % 3 {
                            0 => time::sleep(MILLI / 10),
                            _ => yield_now(),
                        }
                        running.fetch_sub(1, SeqCst);
                        match i % 10 {
                            0 => goexit(),
                            1 => Err(i),
                            _ => Ok(()),
                        }
                    });
                }
            })
        });
        join_all(starters.collect::<Vec<_>>());
        assert_eq!(group.wait().map_err(|i| i % 10), Err(1));
        assert!((1..=most).contains(&peak.load(SeqCst)), "{peak:?} of {most}");
        assert_eq!(running.load(SeqCst), 0);
    }
}

#[test]
fn try_go_starts_nothing_when_the_limit_is_reached() {
    in_goroutine_and_thread(|| {
        for _ in 0..30 {
            let group = Group::<()>::new().limit(2);
            let (tx, rx) = chan::<()>(0);
            let wait = |rx: &gosched::chan::Receiver<()>| {
                let rx = rx.clone();
                move || rx.recv().map_err(drop)
            };
            assert!(group.try_go(wait(&rx)));
            assert!(group.try_go(wait(&rx)));
            let ledger = Ledger::new(1);
            let token = ledger.token(0);
            assert!(!group.try_go(move || panic!("{token:?}")));
            ledger.assert_each_dropped_once();
            tx.send(()).unwrap();
            eventually(|| group.try_go(wait(&rx)));
            assert!(!group.try_go(|| Ok(())));
            tx.send(()).unwrap();
            tx.send(()).unwrap();
            assert_eq!(group.wait(), Ok(()));
            // After the wait the whole limit is available again.
            assert!(group.try_go(wait(&rx)) && group.try_go(wait(&rx)));
            drop(tx);
            assert_eq!(group.wait(), Err(()));
        }
        let group = Group::<()>::new();
        assert!((0..100).all(|_| group.try_go(|| Ok(()))));
        group.wait().unwrap();
    });
}

#[test]
fn a_panic_in_a_group_is_raised_by_wait() {
    in_goroutine_and_thread(|| {
        let group = Group::<&str>::new().limit(1);
        let ended = Arc::new(AtomicBool::new(false));
        group.go(|| resume_unwind(Box::new(String::from("mine"))));
        let late = ended.clone();
        group.go(move || {
            time::sleep(MILLI);
            late.store(true, SeqCst);
            Err("late")
        });
        assert_eq!(panic_of(|| group.wait()), "mine");
        assert!(ended.load(SeqCst), "all had ended");
        assert_eq!(group.wait(), Ok(()));
        // `wait` returns an error that came before the panic.
        group.go(|| Err("first"));
        group.go(|| resume_unwind(Box::new(String::from("second"))));
        assert_eq!(group.wait(), Err("first"));
    });
}

#[test]
fn goexit_in_a_group_is_not_an_error() {
    let group = Group::<u32>::new().limit(2);
    let ledger = Ledger::new(10);
    for i in 0..10 {
        let token = ledger.token(i);
        group.go(move || {
            let _token = token;
            goexit()
        });
    }
    assert_eq!(group.wait(), Ok(()));
    ledger.assert_each_dropped_once();
}

#[test]
fn a_group_may_grow_during_wait() {
    fn tree(group: &Group<u32>, depth: u32, count: &Arc<AtomicUsize>) {
        count.fetch_add(1, SeqCst);
        for _ in 0..depth.min(2) {
            let (inner, count) = (group.clone(), count.clone());
            group.go(move || {
                tree(&inner, depth - 1, &count);
                Ok(())
            });
        }
    }
    run(|| {
        let (group, count) = (Group::new(), Arc::new(AtomicUsize::new(0)));
        tree(&group, if cfg!(feature = "threads") { 5 } else { 9 }, &count);
        group.wait().unwrap();
        let expected = if cfg!(feature = "threads") { 47 } else { 767 };
        assert_eq!(count.load(SeqCst), expected);
    });
}

#[test]
fn misuse_of_a_group_names_the_remedy() {
    let text = panic_of(|| Group::<()>::new().limit(0));
    assert!(text.contains("limit(0)") && text.contains("1 or more"), "{text}");
    let group = Group::<()>::new();
    let (tx, rx) = chan::<()>(0);
    group.go(move || rx.recv().map_err(drop));
    let text = panic_of(|| group.limit(3));
    assert!(text.contains("are running") && text.contains("before"), "{text}");
    tx.send(()).unwrap();
}

#[test]
fn an_idle_group_accepts_a_new_limit() {
    for _ in 0..300 {
        let group = Group::<()>::new().limit(1);
        (0..3).for_each(|_| group.go(|| Ok(())));
        group.wait().unwrap();
        // As with Go's `SetLimit`, no goroutine of the group may be active.
        let group = group.limit(2);
        let (tx, rx) = chan::<()>(0);
        for _ in 0..2 {
            let rx = rx.clone();
            assert!(group.try_go(move || rx.recv().map_err(drop)));
        }
        drop(tx);
        assert_eq!(group.wait(), Err(()));
    }
}
