//! Leak hints: which goroutines wait for each other, and which have waited for long. Goroutines
//! that are only busy or slow are not reported.
//!
//! Goroutines that wait forever stay in the process, so each test checks only its own goroutines.

use gosched::runtime::{Deadlock, Leak, LeakHints, leak_hints};
use gosched::sync::{Mutex, RwLock, WaitGroup};
use gosched::{GoId, JoinHandle, chan, go, select};
use gosched_tests::dumps;
use gosched_tests::golang::clean_command;
use gosched_tests::wait::{self, LIMIT};
use gosched_tests::watched_child::WatchedChild;
use std::collections::HashMap;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_millis(30);
const LONG: Duration = Duration::from_secs(3600);

/// Returns whether goroutines are threads. The runtime then does not record what a goroutine waits
/// for.
fn are_threads() -> bool {
    cfg!(feature = "threads")
}

/// Returns the number of the line of this file that ends with `mark`.
fn line_of(mark: &str) -> u32 {
    let lines = include_str!("observe_leak_hints.rs").lines().zip(1..);
    lines.into_iter().find(|(line, _)| line.ends_with(mark)).unwrap().1
}

/// Calls `leak_hints` until `found` returns a value, and returns that value.
fn wait_for<T>(older_than: Duration, what: &str, found: impl Fn(&LeakHints) -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        let hints = leak_hints(older_than);
        if let Some(found) = found(&hints) {
            return found;
        }
        assert!(start.elapsed() < LIMIT, "{what} is not told of: {hints}");
        gosched::time::sleep(Duration::from_millis(5));
    }
}

fn ids(deadlock: &Deadlock) -> Vec<GoId> {
    deadlock.goroutines.iter().map(|stuck| stuck.id).collect()
}

/// Rotates a cycle of goroutines to the order of a hint, which starts with the smallest id. The
/// first goroutine started need not have the smallest id: a P takes ids in batches, and the
/// goroutine that starts the cycle may move to another P in between.
fn circle(ids_of: &[GoId]) -> Vec<GoId> {
    let mut ids_of = ids_of.to_vec();
    let least = (0..ids_of.len()).min_by_key(|&nth| ids_of[nth]).unwrap_or(0);
    ids_of.rotate_left(least);
    ids_of
}

/// Returns the deadlock that contains this goroutine.
fn deadlock_with(hints: &LeakHints, id: GoId) -> Option<Deadlock> {
    hints.deadlocks.iter().find(|deadlock| ids(deadlock).contains(&id)).cloned()
}

/// How long a test checks that goroutines are not reported: `GOSCHED_STRESS_SECONDS`, or `usual`.
fn looking_time(usual: Duration) -> Duration {
    let seconds = std::env::var("GOSCHED_STRESS_SECONDS").ok();
    seconds.map_or(usual, |seconds| Duration::from_secs_f64(seconds.parse().expect("seconds")))
}

/// Asserts that none of these goroutines is in a deadlock, certain or not, as long as `f` returns
/// `true`.
fn check_no_deadlock_among(ids_of: &[GoId], older_than: Duration, f: impl Fn() -> bool) {
    while f() {
        let hints = leak_hints(older_than);
        for id in ids_of {
            assert!(
                deadlock_with(&hints, *id).is_none(),
                "goroutine {id} does not wait for ever: {hints}"
            );
        }
        gosched::time::sleep(Duration::from_millis(1));
    }
}

/// Starts `count` goroutines that each hold one mutex and lock the mutex of the next goroutine.
fn ring_of_mutexes(count: usize) -> (Vec<JoinHandle<()>>, Vec<Arc<Mutex<()>>>) {
    let locks: Vec<_> = (0..count).map(|_| Arc::new(Mutex::new(()))).collect();
    let all_have_one = WaitGroup::new();
    all_have_one.add(count);
    let start = |at: usize| {
        let (own, next) = (locks[at].clone(), locks[(at + 1) % count].clone());
        let all_have_one = all_have_one.clone();
        go(move || {
            let _own = own.lock();
            all_have_one.done();
            all_have_one.wait();
            drop(next.lock());
        })
    };
    ((0..count).map(start).collect(), locks)
}

#[gosched::test(leaks = allow)]
fn a_cycle_of_mutexes_is_reported() {
    if are_threads() {
        return;
    }
    for count in [1, 2, 3, 7] {
        let (handles, _) = ring_of_mutexes(count);
        let ids_of: Vec<_> = handles.iter().map(JoinHandle::id).collect();
        let first = handles[0].id();
        // A cycle of locks is reported at once, however long the goroutines have waited.
        let deadlock = wait_for(LONG, "a circle of mutexes", |hints| deadlock_with(hints, first));
        let circle = circle(&ids_of);
        assert_eq!(ids(&deadlock), circle);
        assert!(deadlock.is_certain && deadlock.followers == 0, "{deadlock}");
        for (at, stuck) in deadlock.goroutines.iter().enumerate() {
            assert_eq!(stuck.waits_for, Some(circle[(at + 1) % count]));
            assert_eq!(stuck.what, "sync.Mutex.Lock");
            assert!(stuck.created_at.unwrap().file().ends_with("observe_leak_hints.rs"));
        }
        let text = deadlock.to_string();
        let (head, _) = text.split_once(":\n\tgoroutine ").unwrap();
        match count {
            1 => assert_eq!(head, "1 goroutine waits for itself"),
            count => assert_eq!(head, format!("{count} goroutines wait for each other")),
        }
        assert_eq!(
            text.matches(" [sync.Mutex.Lock] waits for goroutine ").count(),
            count,
            "{text}"
        );
    }
}

#[gosched::test(leaks = allow)]
fn goroutines_that_wait_for_a_deadlock_are_counted_as_followers() {
    if are_threads() {
        return;
    }
    let (mut handles, locks) = ring_of_mutexes(2);
    let both = [handles[0].id(), handles[1].id()];
    let one = handles.remove(0);
    wait_for(LONG, "the circle", |hints| deadlock_with(hints, both[0]));
    for _ in 0..5 {
        let lock = locks[0].clone();
        go(move || drop(lock.lock()));
    }
    // `joins` waits for a goroutine of the cycle, and `last` waits for `joins`.
    let joins = go(move || one.join());
    let last = go(move || joins.join().unwrap().unwrap());
    let found =
        |hints: &LeakHints| deadlock_with(hints, both[0]).filter(|found| found.followers == 7);
    let deadlock = wait_for(LONG, "seven that wait for the two", found);
    assert_eq!(ids(&deadlock), circle(&both));
    assert!(
        deadlock.to_string().ends_with("\t7 more goroutines wait for the above\n"),
        "{deadlock}"
    );
    drop((handles, last));
}

#[gosched::test(leaks = allow)]
fn a_lock_whose_holder_ended_without_releasing_it_is_reported() {
    if are_threads() {
        return;
    }
    let lock = Arc::new(Mutex::new(()));
    let own = lock.clone();
    let forgets = go(move || std::mem::forget(own.lock()));
    let gone = forgets.id();
    forgets.join().unwrap();
    let waits = go(move || drop(lock.lock()));
    let deadlock =
        wait_for(LONG, "a lock without a holder", |hints| deadlock_with(hints, waits.id()));
    assert_eq!(deadlock.goroutines[0].held_by_ended, Some(gone));
    assert!(deadlock.is_certain && deadlock.goroutines.len() == 1);
    let text = deadlock.to_string();
    assert!(text.starts_with("1 goroutine waits forever:\n"), "{text}");
    let words =
        format!(" waits for a lock that goroutine {gone} still held when it ended, created at ");
    assert!(text.contains(&words), "{text}");
}

#[gosched::test(leaks = allow)]
fn a_cycle_of_readers_and_writers_is_reported() {
    if are_threads() {
        return;
    }
    // A reader reads again, behind a writer that waits for the first read lock.
    let lock = Arc::new(RwLock::new(()));
    let (ready, is_ready) = chan(0);
    let (go_on, may_go_on) = chan::<()>(0);
    let own = lock.clone();
    let reader = go(move || {
        let _first = own.read();
        ready.send(()).unwrap();
        may_go_on.recv().unwrap();
        drop(own.read());
    });
    is_ready.recv().unwrap();
    let own = lock.clone();
    let writer = go(move || drop(own.write()));
    // Once `try_read` fails, the writer is in the queue.
    while lock.try_read().is_some() {
        gosched::yield_now();
    }
    go_on.send(()).unwrap();
    let deadlock =
        wait_for(LONG, "a reader behind a writer", |hints| deadlock_with(hints, reader.id()));
    assert_eq!(ids(&deadlock), circle(&[reader.id(), writer.id()]));
    assert!(deadlock.is_certain);
    for stuck in &deadlock.goroutines {
        let reads = stuck.id == reader.id();
        assert_eq!(stuck.what, if reads { "sync.RWMutex.RLock" } else { "sync.RWMutex.Lock" });
    }

    // The holder of a write lock wants a mutex whose holder wants to read.
    let (lock, mutex) = (Arc::new(RwLock::new(())), Arc::new(Mutex::new(())));
    let both = WaitGroup::new();
    both.add(2);
    let (own, wanted, all) = (lock.clone(), mutex.clone(), both.clone());
    let one = go(move || {
        let _own = own.write();
        all.done();
        all.wait();
        drop(wanted.lock());
    });
    let two = go(move || {
        let _own = mutex.lock();
        both.done();
        both.wait();
        drop(lock.read());
    });
    let deadlock = wait_for(LONG, "a writer and a reader", |hints| deadlock_with(hints, one.id()));
    assert_eq!(ids(&deadlock), circle(&[one.id(), two.id()]));
}

#[gosched::test(leaks = allow)]
fn a_cycle_of_joins_and_locks_is_reported() {
    if are_threads() {
        return;
    }
    // A goroutine joins a child that wants the parent's lock.
    let lock = Arc::new(Mutex::new(()));
    let (own, wanted) = (lock.clone(), lock);
    let (tell, told) = chan(1);
    let joins = go(move || {
        let _own = own.lock();
        let child = go(move || drop(wanted.lock()));
        tell.send(child.id()).unwrap();
        child.join().unwrap();
    });
    let child = told.recv().unwrap();
    let deadlock = wait_for(LONG, "one that joins", |hints| deadlock_with(hints, child));
    assert_eq!(ids(&deadlock), circle(&[joins.id(), child]));
    assert!(deadlock.is_certain);

    // A scope waits for a child that wants the parent's lock.
    let (tell, told) = chan(1);
    let parent = go(move || {
        let lock = Mutex::new(());
        let _own = lock.lock();
        gosched::scope(|scope| {
            scope.go(|| ());
            let child = scope.go(|| drop(lock.lock()));
            tell.send(child.id()).unwrap();
        });
    });
    let child = told.recv().unwrap();
    let deadlock = wait_for(LONG, "a scope", |hints| deadlock_with(hints, child));
    assert_eq!(ids(&deadlock), circle(&[parent.id(), child]));
}

#[gosched::test(leaks = allow)]
fn a_cycle_of_channels_is_reported_as_uncertain() {
    if are_threads() {
        return;
    }
    let (to_a, a) = chan::<u32>(0);
    let (to_b, b) = chan::<u32>(0);
    let one = go(move || {
        let value = a.recv().unwrap();
        to_b.send(value).unwrap();
    });
    let two = go(move || {
        let value = b.recv().unwrap();
        to_a.send(value).unwrap();
    });
    let both = [one.id(), two.id()];
    let deadlock = wait_for(SOON, "a circle of channels", |hints| deadlock_with(hints, both[0]));
    assert_eq!(ids(&deadlock), circle(&both));
    assert!(!deadlock.is_certain);
    assert!(deadlock.to_string().starts_with("2 goroutines may wait for each other:\n"));
    // Uncertain deadlocks are reported only for goroutines that have waited for the given time.
    assert!(deadlock_with(&leak_hints(LONG), both[0]).is_none());
}

#[gosched::test(leaks = allow)]
fn a_cycle_of_locks_channels_and_selects_is_reported() {
    if are_threads() {
        return;
    }
    // `one` holds the lock and selects from x and y. Their senders belong to `two`, which sends to
    // z. The receiver of z belongs to `three`, which waits for the lock.
    let (to_x, x) = chan::<u32>(0);
    let (to_y, y) = chan::<u32>(0);
    let (to_z, z) = chan::<u32>(0);
    let lock = Arc::new(Mutex::new(()));
    let (ready, is_ready) = chan(0);
    let own = lock.clone();
    let one = go(move || {
        let _own = own.lock();
        ready.send(()).unwrap();
        select! { recv(x) -> v => v, recv(y) -> v => v }.unwrap()
    });
    is_ready.recv().unwrap();
    let two = go(move || {
        to_z.send(1).unwrap();
        to_x.send(2).unwrap();
        to_y.send(3).unwrap();
    });
    let three = go(move || {
        drop(lock.lock());
        z.recv().unwrap()
    });
    let deadlock =
        wait_for(SOON, "a circle of three kinds", |hints| deadlock_with(hints, one.id()));
    assert_eq!(ids(&deadlock), circle(&[one.id(), two.id(), three.id()]));
    assert!(!deadlock.is_certain);
}

#[gosched::test(leaks = allow)]
fn a_goroutine_that_can_continue_is_in_no_deadlock() {
    // `asks` waits for a goroutine that computes. A stale copy of the sender that `asks` gave away
    // may remain on its stack.
    let stop = Arc::new(AtomicBool::new(false));
    let (seen, is_over) = (stop.clone(), looking_time(Duration::from_millis(300)));
    let asks = go(move || {
        let (tx, rx) = chan::<u32>(0);
        go(move || {
            while !seen.load(Ordering::Relaxed) {
                black_box(0);
            }
            tx.send(1).unwrap();
        });
        rx.recv().unwrap()
    });
    // `locks` waits for a lock whose holder sleeps.
    let lock = Arc::new(Mutex::new(()));
    let (own, seen) = (lock.clone(), stop.clone());
    let (ready, is_ready) = chan(0);
    let sleeps = go(move || {
        let _own = own.lock();
        ready.send(()).unwrap();
        while !seen.load(Ordering::Relaxed) {
            gosched::time::sleep(Duration::from_millis(1));
        }
    });
    is_ready.recv().unwrap();
    let locks = go(move || drop(lock.lock()));
    // `one` and `two` wait for each other, but `two` waits with a timeout.
    let (to_a, a) = chan::<u32>(0);
    let (to_b, b) = chan::<u32>(0);
    let one = go(move || {
        let _ = a.recv();
        let _ = to_b.send(1);
    });
    let seen = stop.clone();
    let two = go(move || {
        while !seen.load(Ordering::Relaxed) {
            let _ = b.recv_timeout(Duration::from_millis(50));
        }
        drop(to_a);
    });
    // `three` and `four` wait for each other, but this goroutine holds a second sender to `three`.
    let (to_c, c) = chan::<u32>(0);
    let (to_d, d) = chan::<u32>(0);
    let kept = to_c.clone();
    let three = go(move || {
        let _ = c.recv();
        let _ = to_d.send(1);
    });
    let four = go(move || {
        let _ = d.recv();
        let _ = to_c.send(1);
    });
    // An ordinary thread holds the lock that `of_a_thread` waits for.
    let lock = Arc::new(Mutex::new(()));
    let (own, seen) = (lock.clone(), stop.clone());
    let (ready, is_ready) = chan(0);
    let thread = std::thread::spawn(move || {
        let _own = own.lock();
        ready.send(()).unwrap();
        while !seen.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    is_ready.recv().unwrap();
    let of_a_thread = go(move || drop(lock.lock()));
    let ids_of = [&locks, &sleeps, &one, &two, &three, &four, &of_a_thread].map(JoinHandle::id);
    let start = Instant::now();
    check_no_deadlock_among(&ids_of, Duration::ZERO, || start.elapsed() < is_over);
    check_no_deadlock_among(&[asks.id()], Duration::ZERO, || start.elapsed() < 2 * is_over);
    stop.store(true, Ordering::Relaxed);
    kept.send(1).unwrap();
    assert_eq!(asks.join().unwrap(), 1);
    for handle in [locks, sleeps, one, two, three, four, of_a_thread] {
        handle.join().unwrap();
    }
    thread.join().unwrap();
}

#[gosched::test(leaks = allow)]
fn busy_goroutines_are_in_no_deadlock() {
    let stop = Arc::new(AtomicBool::new(false));
    let locks: Arc<Vec<_>> = Arc::new((0..4).map(|_| (Mutex::new(0), RwLock::new(0))).collect());
    // Each goroutine sends before it receives, so no receiver waits forever.
    let (tx, rx) = chan::<usize>(24);
    let mut handles = Vec::new();
    for me in 0..24 {
        let (locks, stop, tx, rx) = (locks.clone(), stop.clone(), tx.clone(), rx.clone());
        handles.push(go(move || {
            let mut turn = 4 * me;
            while !stop.load(Ordering::Relaxed) {
                turn += 1;
                // Locks are always taken in the same order, so no cycle is possible.
                let (low, high) = (turn % 3, 3);
                let mut first = locks[low].0.lock();
                let mut second = locks[high].0.lock();
                (*first, *second) = (*first + 1, *second + 1);
                drop((first, second));
                match turn % 4 {
                    0 => *locks[low].1.write() += 1,
                    1 => drop(black_box((locks[low].1.read(), locks[high].1.read()))),
                    2 => drop(tx.send(turn)),
                    _ => drop(rx.recv()),
                }
            }
            // Closing the channel ends the waits of the other goroutines.
            tx.close();
        }));
    }
    drop((tx, rx));
    let ids_of: Vec<_> = handles.iter().map(JoinHandle::id).collect();
    let start = Instant::now();
    let time = looking_time(Duration::from_secs(1));
    check_no_deadlock_among(&ids_of, LONG, || start.elapsed() < time);
    stop.store(true, Ordering::Relaxed);
    handles.into_iter().for_each(|handle| handle.join().unwrap());
}

#[gosched::test(leaks = allow)]
fn a_lock_released_before_its_holder_ends_is_not_reported() {
    let stop = Arc::new(AtomicBool::new(false));
    let lock = Arc::new((RwLock::new(0), Mutex::new(0)));
    let mut handles = Vec::new();
    for _ in 0..4 {
        let (lock, stop) = (lock.clone(), stop.clone());
        handles.push(go(move || {
            while !stop.load(Ordering::Relaxed) {
                let children: [_; 8] = std::array::from_fn(|child| {
                    let lock = lock.clone();
                    let work = move || match child {
                        0 => *lock.0.write() += 1,
                        1 => *lock.1.lock() += 1,
                        _ => drop(black_box((lock.0.read(), gosched::yield_now()))),
                    };
                    go(work) // CHILD
                });
                children.into_iter().for_each(|child| child.join().unwrap());
            }
        }));
    }
    let (start, time) = (Instant::now(), looking_time(Duration::from_secs(1)));
    while start.elapsed() < time {
        // The deadlocks of other tests are real. A child could only be reported as waiting for a
        // lock whose holder ended without releasing it.
        let hints = leak_hints(LONG);
        for stuck in hints.deadlocks.iter().flat_map(|deadlock| &deadlock.goroutines) {
            let is_ours = stuck.created_at.is_some_and(|site| site.line() == line_of("// CHILD"));
            assert!(!is_ours, "{hints}");
        }
    }
    stop.store(true, Ordering::Relaxed);
    handles.into_iter().for_each(|handle| handle.join().unwrap());
}

struct WantsALock(Arc<Mutex<()>>);

impl Drop for WantsALock {
    fn drop(&mut self) {
        drop(self.0.lock());
    }
}

thread_local! {
    static AT_THE_END: std::cell::RefCell<Option<WantsALock>> = const { std::cell::RefCell::new(None) };
}

#[gosched::test(leaks = allow)]
fn a_scope_is_in_no_deadlock_with_a_goroutine_that_has_left_it() {
    // The goroutine of the first scope has ended except for the destructors of its thread-locals,
    // which wait for the lock. This goroutine holds the lock while it waits in the second scope,
    // which has the same address as the first.
    let lock = Arc::new(Mutex::new(()));
    let held = lock.lock();
    let in_the_second = AtomicBool::new(false);
    let seen = AtomicBool::new(false);
    let scopes = |f: &(dyn Fn() + Sync)| {
        gosched::scope(|scope| drop(scope.go(f)));
    };
    let id = gosched::id().unwrap();
    for turn in 0..2 {
        scopes(&|| match turn {
            0 => AT_THE_END.set(Some(WantsALock(lock.clone()))),
            _ => {
                in_the_second.store(true, Ordering::Relaxed);
                let start = Instant::now();
                while start.elapsed() < Duration::from_millis(300) {
                    let hints = leak_hints(LONG);
                    let is_told = deadlock_with(&hints, id).is_some();
                    seen.fetch_or(is_told, Ordering::Relaxed);
                }
            }
        });
    }
    assert!(in_the_second.load(Ordering::Relaxed) && !seen.load(Ordering::Relaxed));
    drop(held);
}

// Runs in a process of its own, since the test measures the memory of the whole process.
// `benches/limits` measures how the time grows with the number of goroutines.
#[test]
fn leak_hints_take_little_memory_for_a_crowd_at_one_lock() {
    let program = Path::new(env!("CARGO_BIN_EXE_observe_program"));
    let output = clean_command(program, &["crowd", "4000"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", gosched_tests::children::stderr(&output));
    let (_, grew) = text.trim_end().split_once(" grew ").unwrap_or_else(|| panic!("{text}"));
    let grew: u64 = grew.parse().unwrap();
    assert!(grew < 100 << 10, "{grew} KiB");
}

/// Returns the leaks that contain one of these goroutines.
fn leaks_of(hints: &LeakHints, ids_of: &[GoId]) -> Vec<Leak> {
    let is_of = |leak: &&Leak| leak.goroutines.iter().any(|id| ids_of.contains(id));
    hints.leaks.iter().filter(is_of).cloned().collect()
}

#[gosched::test(leaks = allow)]
fn leak_hints_group_long_waits_by_creation_site() {
    let start = Instant::now();
    let (tx, rx) = chan::<u32>(0);
    let mut waiting = Vec::new();
    for _ in 0..30 {
        let rx = rx.clone();
        waiting.push(go(move || rx.recv())); // HERE
    }
    let lock = Arc::new(Mutex::new(()));
    let held = lock.lock();
    let wants = lock.clone();
    let other = go(move || drop(wants.lock()));
    // A wait with a time limit is not a leak.
    let sleeps = go(|| gosched::time::sleep(LONG));
    let limited = rx.clone();
    let limited = go(move || limited.recv_timeout(LONG));
    let mut ids_of: Vec<_> = waiting.iter().map(JoinHandle::id).collect();
    // A P takes ids in batches, so ids need not follow the order of `go`.
    ids_of.sort();
    let leak = wait_for(SOON, "thirty that wait", |hints| {
        leaks_of(hints, &ids_of).pop().filter(|leak| leak.goroutines.len() == 30)
    });
    assert_eq!(leak.goroutines, ids_of);
    assert_eq!(leak.what, "chan receive");
    // Sysmon's clock records the start of a wait, and lags if sysmon gets no CPU.
    assert!(leak.longest >= SOON && leak.longest < start.elapsed() + LIMIT, "{leak:?}");
    assert_eq!(leak.created_at.unwrap().line(), line_of("// HERE"));
    assert_eq!(leak.stuck, 0, "{leak}");
    let text = leak.to_string();
    assert!(text.starts_with("30 goroutines have waited for up to "), "{text}");
    assert!(text.contains(" [chan receive], created at ") && text.contains(" ...\n"), "{text}");
    let leak = wait_for(SOON, "one at a lock", |hints| leaks_of(hints, &[other.id()]).pop());
    assert_eq!((leak.goroutines.len(), leak.what), (1, "sync.Mutex.Lock"));
    let hints = leak_hints(SOON);
    assert!(leaks_of(&hints, &[sleeps.id(), limited.id()]).is_empty() || are_threads(), "{hints}");
    // The largest groups come first.
    assert!(hints.leaks.is_sorted_by_key(|leak| usize::MAX - leak.goroutines.len()), "{hints}");
    // No goroutine has waited for an hour.
    assert!(leaks_of(&leak_hints(LONG), &ids_of).is_empty());
    drop((tx, held));
    waiting.into_iter().for_each(|handle| _ = handle.join().unwrap());
    other.join().unwrap();
    limited.join().unwrap().unwrap_err();
    assert!(leaks_of(&leak_hints(Duration::ZERO), &ids_of).is_empty());
}

#[gosched::test(leaks = allow)]
fn a_goroutine_that_holds_the_other_end_of_its_channel_itself_is_reported() {
    if are_threads() {
        return;
    }
    // The first case runs in a process of its own: in this process, a reused stack of another
    // goroutine may contain a stale copy of an end of the channel.
    let program = Path::new(env!("CARGO_BIN_EXE_observe_program"));
    let output = clean_command(program, &["knot", "alone"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.starts_with("1 goroutine has waited for up to "), "{text}");
    let words =
        "\t1 of these wait on a channel whose opposite end no other goroutine seems to hold\n";
    assert!(text.contains(" [chan receive], created at ") && text.ends_with(words), "{text}");

    // Another goroutine holds the sender.
    let (tx, rx) = chan::<u32>(0);
    let (stop, is_over) = chan::<()>(0);
    let waits = go(move || rx.recv());
    let (ready, is_ready) = chan(0);
    let has = go(move || {
        ready.send(()).unwrap();
        let _ = is_over.recv();
        drop(black_box(tx));
    });
    is_ready.recv().unwrap();
    let leak =
        wait_for(SOON, "one that waits for another", |hints| leaks_of(hints, &[waits.id()]).pop());
    assert_eq!((leak.alone, leak.stuck), (0, 0), "{leak}");
    drop(stop);
    has.join().unwrap();
    waits.join().unwrap().unwrap_err();
}

#[gosched::test(leaks = allow)]
fn a_goroutine_blocked_forever_is_a_deadlock_once_another_goroutine_waits_for_it() {
    if are_threads() {
        return;
    }
    let lock = Arc::new(Mutex::new(()));
    let own = lock.clone();
    let (ready, is_ready) = chan(0);
    let never = go(move || {
        let _own = own.lock();
        ready.send(()).unwrap();
        chan::never::<u32>().recv()
    });
    is_ready.recv().unwrap();
    let by_itself = go(|| select! {});
    let leak = wait_for(SOON, "one that waits for nobody", |hints| {
        leaks_of(hints, &[by_itself.id()]).pop()
    });
    assert_eq!((leak.stuck, leak.what), (1, "select (no cases)"));
    let hints = leak_hints(SOON);
    assert!(
        deadlock_with(&hints, by_itself.id()).is_none()
            && deadlock_with(&hints, never.id()).is_none(),
        "{hints}"
    );
    let waits = go(move || drop(lock.lock()));
    let deadlock =
        wait_for(SOON, "one that others wait for", |hints| deadlock_with(hints, never.id()));
    assert_eq!((deadlock.followers, deadlock.goroutines[0].waits_for), (1, None));
    drop(waits);
}

/// Returns the report that a program writes when it ends.
fn final_report(name: &str) -> String {
    wait::retry(|| {
        let text = final_report_once(name);
        dumps::ensure_complete(&text).map(|()| text)
    })
}

fn final_report_once(name: &str) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_observe_program"));
    let mut command = clean_command(program, &["knot", name]);
    command.env("GODEBUG", "leakhints=1");
    let program = WatchedChild::start(command);
    if name == "quit" {
        let mut program = program;
        program.wait_for("ready", |said| said.out.contains("ready\n"));
        program.signal(libc::SIGQUIT);
        let (status, said) = program.wait_for_exit();
        assert_eq!(status.code(), Some(2), "{}", said.err);
        return said.err;
    }
    let (status, said) = program.wait_for_exit();
    assert_eq!(status.code(), Some(2), "{}", said.err);
    said.err
}

#[test]
fn the_final_report_shows_which_goroutines_wait_for_each_other() {
    if are_threads() {
        return;
    }
    for name in ["asleep", "quit"] {
        let text = final_report(name);
        let (_, knot) = text.rsplit_once("\n\n").unwrap();
        let lines: Vec<_> = knot.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(lines[0], "2 goroutines wait for each other:");
        for line in &lines[1..] {
            let is_right = line.starts_with("\tgoroutine ")
                && line.contains(" [sync.Mutex.Lock] waits for goroutine ")
                && line.contains(", created at ");
            assert!(is_right, "{text}");
        }
    }
}

/// The test runs while many goroutines start and end, each in a G whose previous goroutine was
/// created at the other line.
#[gosched::test(leaks = allow)]
fn a_leak_hint_lists_each_goroutine_under_its_own_creation_site() {
    const ENOUGH: usize = 2000;
    if are_threads() {
        return;
    }
    let (places, stop) = ([line_of("// FIRST"), line_of("// SECOND")], AtomicBool::new(false));
    let (born, stop) = (Arc::new(Mutex::new(HashMap::<GoId, u32>::new())), Arc::new(stop));
    let start = |nth: usize| {
        let (stop, born) = (stop.clone(), born.clone());
        go(move || {
            for place in (nth..).map(|round| round % 2) {
                let start = |_| match place {
                    0 => go(gosched::park), // FIRST
                    _ => go(gosched::park), // SECOND
                };
                let some: Vec<JoinHandle<()>> = (0..50).map(start).collect();
                born.lock().extend(some.iter().map(|one| (one.id(), places[place])));
                gosched::yield_now();
                for one in some {
                    one.goroutine().unpark();
                    one.join().unwrap();
                }
                if stop.load(Ordering::SeqCst) {
                    return;
                }
            }
        })
    };
    let spawners: Vec<JoinHandle<()>> = (0..4).map(start).collect();
    let (start, time) = (Instant::now(), looking_time(Duration::from_secs(1)));
    let mut told = Vec::new();
    while start.elapsed() < time || (told.len() < ENOUGH && start.elapsed() < LIMIT) {
        for leak in leak_hints(Duration::ZERO).leaks {
            let line = leak.created_at.map_or(0, |site| site.line());
            told.extend(leak.goroutines.iter().map(|id| (*id, line)));
        }
    }
    stop.store(true, Ordering::SeqCst);
    spawners.into_iter().for_each(|spawner| spawner.join().unwrap());
    let born = born.lock();
    told.retain(|(id, _)| born.contains_key(id));
    let wrong = told.iter().filter(|(id, line)| born[id] != *line).count();
    assert!(wrong == 0 && !told.is_empty(), "{wrong} of {}", told.len());
}
