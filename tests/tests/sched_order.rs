//! Which goroutine runs next on one P: the exact orders that Go 1.27 produces. Each case is a child
//! process with one P, where the order is deterministic.

use gosched::{Goroutine, current, go, park, run, runtime, yield_now};
use gosched_tests::children;
use gosched_tests::wait::LIMIT;
use std::panic::{catch_unwind, resume_unwind};
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Go's fairness interval: at every 61st tick the scheduler takes from the global queue first.
const INTERVAL: usize = 61;

/// A log of entries, in the order in which goroutines added them.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<usize>>>);

impl Log {
    fn push(&self, entry: usize) {
        self.0.lock().unwrap().push(entry);
    }

    fn entries(&self) -> Vec<usize> {
        self.0.lock().unwrap().clone()
    }
}

/// Lets one goroutine wait until `n` other goroutines have called `done`.
#[derive(Clone, Debug)]
struct Countdown {
    left: Arc<AtomicUsize>,
    waiter: Goroutine,
}

impl Countdown {
    fn new(n: usize) -> Countdown {
        Countdown { left: Arc::new(AtomicUsize::new(n)), waiter: current().unwrap() }
    }

    fn done(&self) {
        if self.left.fetch_sub(1, SeqCst) == 1 {
            self.waiter.unpark();
        }
    }

    fn wait(&self) {
        while self.left.load(SeqCst) != 0 {
            park();
        }
    }
}

/// Starts `n` goroutines, then waits. Returns the order in which they ran.
fn spawned(n: usize) -> Vec<usize> {
    let log = Log::default();
    let countdown = Countdown::new(n);
    for i in 0..n {
        let (log, countdown) = (log.clone(), countdown.clone());
        go(move || {
            log.push(i);
            countdown.done();
        });
    }
    assert!(log.entries().is_empty(), "nobody runs before the only P is given up");
    countdown.wait();
    log.entries()
}

/// Returns the indices of the entries in `order` for which `singles` returns true.
fn positions(order: &[usize], singles: impl Fn(usize) -> bool) -> Vec<usize> {
    (0..order.len()).filter(|&at| singles(order[at])).collect()
}

/// Checks the order of a spill: `last` is first (run_next; only a G of a 61st tick may come before
/// it), then `local` in order with one G of the global queue at each 61st tick, then the rest of
/// the global queue in order.
fn check_spill(order: &[usize], last: usize, local: &[usize], global: &[usize]) {
    assert_eq!(order.len(), 1 + local.len() + global.len());
    let first = order.iter().position(|&g| g == last).unwrap();
    assert!(first == 0 || (first == 1 && order[0] == global[0]), "run_next is first: {order:?}");
    let order: Vec<usize> = order.iter().copied().filter(|&g| g != last).collect();
    let end = order.iter().rposition(|g| local.contains(g)).unwrap() + 1;
    let run = &order[..end];
    let is_local = |g: usize| local.contains(&g);
    let locals: Vec<usize> = run.iter().copied().filter(|&g| is_local(g)).collect();
    assert_eq!(locals, local, "the local queue is first in, first out: {order:?}");
    let globals: Vec<usize> = order.iter().copied().filter(|&g| !is_local(g)).collect();
    assert_eq!(globals, global, "the global queue is first in, first out: {order:?}");
    let singles = positions(run, |g| !is_local(g));
    assert!((2..=3).contains(&singles.len()), "one G at each 61st tick: {singles:?} {order:?}");
    assert!(singles[0] < INTERVAL, "the first within 61 ticks: {singles:?}");
    for pair in singles.windows(2) {
        assert_eq!(pair[1] - pair[0], INTERVAL, "{singles:?} {order:?}");
    }
}

#[test]
fn child() {
    let Some(scenario) = children::scenario() else { return };
    let result = catch_unwind(|| run_scenario(&scenario));
    if let Err(payload) = result {
        let (marked, unmarked) = gosched::__rules::hand_offs();
        if marked + unmarked > 0 {
            eprintln!("{HANDED_OFF}");
        }
        resume_unwind(payload);
    }
}

/// Printed by a child that fails after its only P was handed off: the thread was stopped in the
/// kernel, for example in a page fault, and the P continued with other goroutines.
const HANDED_OFF: &str = "the P was handed off";

fn run_scenario(scenario: &str) {
    run(|| {
        assert_eq!(runtime::procs(), 1);
        match scenario {
            "ten" => assert_eq!(spawned(10), [9, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
            "257" => {
                let expected: Vec<usize> = std::iter::once(256).chain(0..256).collect();
                assert_eq!(spawned(257), expected);
            }
            "258" => {
                let local: Vec<usize> = (128..256).collect();
                let global: Vec<usize> = (0..128).chain([256]).collect();
                check_spill(&spawned(258), 257, &local, &global);
            }
            "259" => {
                let local: Vec<usize> = (128..256).chain([257]).collect();
                let global: Vec<usize> = (0..128).chain([256]).collect();
                check_spill(&spawned(259), 258, &local, &global);
            }
            "258 again" => {
                let local: Vec<usize> = (128..256).collect();
                let global: Vec<usize> = (0..128).chain([256]).collect();
                for _ in 0..200 {
                    check_spill(&spawned(258), 257, &local, &global);
                }
            }
            "yield" => yields(),
            "yield with children" => yields_with_children(),
            "two yield" => two_yield(),
            "readied" => readied(),
            "unparked in order" => unparked_in_order(),
            "spawner goes on" => spawner_goes_on(),
            "respawn" => respawn(),
            "ping-pong" => ping_pong(),
            "end" => ends(),
            other => panic!("no scenario {other}"),
        }
    });
}

/// A caller that yields among 200 local Gs runs again at every 61st tick. One more G is in run_next
/// and runs in the caller's slice.
fn yields() {
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..200 {
        let ran = ran.clone();
        go(move || ran.fetch_add(1, SeqCst));
    }
    go(|| ());
    let mut resumed = vec![];
    while ran.load(SeqCst) < 200 {
        yield_now();
        resumed.push(ran.load(SeqCst));
    }
    assert!(resumed[0] < INTERVAL, "up to 60 of the queue: {resumed:?}");
    for pair in resumed.windows(2).filter(|pair| pair[1] < 200) {
        assert_eq!(pair[1] - pair[0], INTERVAL - 1, "its own turn is a tick too: {resumed:?}");
    }
    assert!((4..=5).contains(&resumed.len()), "{resumed:?}");
}

/// As `yields`, but each of the 200 starts a child, which inherits its slice and does not count as
/// a tick.
fn yields_with_children() {
    let ran = Arc::new(AtomicUsize::new(0));
    let heirs = Arc::new(AtomicUsize::new(0));
    for _ in 0..200 {
        let (ran, heirs) = (ran.clone(), heirs.clone());
        go(move || {
            let before = ran.fetch_add(1, SeqCst);
            let ran = ran.clone();
            go(move || {
                assert_eq!(ran.load(SeqCst), before + 1, "the heir is next");
                heirs.fetch_add(1, SeqCst);
            });
        });
    }
    go(|| ());
    let mut resumed = vec![];
    while ran.load(SeqCst) < 200 {
        yield_now();
        resumed.push(ran.load(SeqCst));
        let heirs = heirs.load(SeqCst);
        let missing = resumed.last().unwrap() - heirs;
        assert!(missing <= 1, "an heir waits for a 61st tick at most: {missing}");
    }
    for pair in resumed.windows(2).filter(|pair| pair[1] < 200) {
        assert_eq!(pair[1] - pair[0], INTERVAL - 1, "heirs are no ticks: {resumed:?}");
    }
    assert!((4..=5).contains(&resumed.len()), "{resumed:?}");
}

/// Two goroutines that yield take turns, because each goes to the tail of the global queue.
fn two_yield() {
    let log = Log::default();
    let countdown = Countdown::new(2);
    for me in 0..2 {
        let (log, countdown) = (log.clone(), countdown.clone());
        go(move || {
            for _ in 0..500 {
                log.push(me);
                yield_now();
            }
            countdown.done();
        });
    }
    countdown.wait();
    let expected: Vec<usize> = [1, 0].into_iter().cycle().take(1000).collect();
    assert_eq!(log.entries(), expected);
}

fn spawn_logger(log: &Log, countdown: &Countdown, entry: usize) {
    let (log, countdown) = (log.clone(), countdown.clone());
    go(move || {
        log.push(entry);
        countdown.done();
    });
}

/// R is parked and two Gs are queued. R, made ready last, runs before them.
fn readied() {
    const R: usize = 0;
    let log = Log::default();
    let countdown = Countdown::new(3);
    let parked = Arc::new(AtomicBool::new(false));
    let r = go({
        let (log, countdown, parked) = (log.clone(), countdown.clone(), parked.clone());
        move || {
            parked.store(true, SeqCst);
            park();
            log.push(R);
            countdown.done();
        }
    });
    while !parked.load(SeqCst) {
        yield_now();
    }
    yield_now();
    spawn_logger(&log, &countdown, 1);
    spawn_logger(&log, &countdown, 2);
    r.goroutine().unpark();
    countdown.wait();
    assert_eq!(log.entries(), [R, 1, 2]);
}

/// Each G that is made ready displaces the previous one from run_next: the last runs first, the
/// rest follow in order.
fn unparked_in_order() {
    let log = Log::default();
    let countdown = Countdown::new(5);
    let parked = Arc::new(AtomicUsize::new(0));
    let handles: Vec<_> = (0..5)
        .map(|i| {
            let (log, countdown, parked) = (log.clone(), countdown.clone(), parked.clone());
            go(move || {
                parked.fetch_add(1, SeqCst);
                park();
                log.push(i);
                countdown.done();
            })
        })
        .collect();
    while parked.load(SeqCst) < 5 {
        yield_now();
    }
    yield_now();
    for handle in &handles {
        handle.goroutine().unpark();
    }
    countdown.wait();
    assert_eq!(log.entries(), [4, 0, 1, 2, 3]);
}

/// Starting or unparking a goroutine does not switch: the caller runs until it gives up the P
/// itself.
fn spawner_goes_on() {
    let ran = Arc::new(AtomicBool::new(false));
    let handle = go({
        let ran = ran.clone();
        move || {
            park();
            ran.store(true, SeqCst);
        }
    });
    yield_now();
    handle.goroutine().unpark();
    for _ in 0..1000 {
        go(|| ());
    }
    assert!(!ran.load(SeqCst));
    handle.join().unwrap();
    assert!(ran.load(SeqCst));
}

/// Keeps the local queue from being empty: starts its successor, and a filler that displaces the
/// successor from run_next.
fn successor(generations: Arc<AtomicUsize>, stop: Arc<AtomicBool>) {
    generations.fetch_add(1, SeqCst);
    if stop.load(SeqCst) {
        return;
    }
    go(move || successor(generations, stop));
    go(|| ());
}

/// Two chains of goroutines that start their successors do not starve a goroutine in the global
/// queue.
fn respawn() {
    let generations = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..2 {
        let (generations, stop) = (generations.clone(), stop.clone());
        go(move || successor(generations, stop));
    }
    let mut last = None;
    for _ in 0..100 {
        let before = generations.load(SeqCst);
        yield_now();
        let waited = generations.load(SeqCst) - before;
        assert!(waited <= INTERVAL, "{waited} ran before the third");
        if let Some(last) = last.replace(waited) {
            let _: usize = last;
            assert_eq!(waited, INTERVAL - 1, "exactly one interval");
        }
    }
    stop.store(true, SeqCst);
}

/// Two goroutines that unpark each other share a slice. A third goroutine runs when the slice is
/// over.
fn ping_pong() {
    let stop = Arc::new(AtomicBool::new(false));
    let partner: Arc<Mutex<Option<Goroutine>>> = Arc::default();
    let first = go({
        let (stop, partner) = (stop.clone(), partner.clone());
        move || {
            while !stop.load(SeqCst) {
                let other = partner.lock().unwrap().clone();
                if let Some(other) = other {
                    other.unpark();
                    park();
                } else {
                    yield_now();
                }
            }
        }
    });
    let second = go({
        let (stop, partner) = (stop.clone(), partner.clone());
        let first = first.goroutine().clone();
        move || {
            *partner.lock().unwrap() = current();
            while !stop.load(SeqCst) {
                first.unpark();
                park();
            }
        }
    });
    for _ in 0..20 {
        yield_now();
    }
    stop.store(true, SeqCst);
    first.goroutine().unpark();
    second.goroutine().unpark();
    first.join().unwrap();
    second.goroutine().unpark();
    second.join().unwrap();
}

/// When a G ends, its M runs the next G: after 100,000 ends there are no more threads than before.
/// (One M runs and one is spare; the thread maker and sysmon have a thread each. Which of them
/// exist at the start varies.)
fn ends() {
    // SAFETY: gettid has no precondition.
    let thread = || unsafe { libc::gettid() };
    let here = thread();
    for _ in 0..100_000 {
        let there = go(thread).join().unwrap();
        assert_eq!(there, here, "the same M goes on");
    }
    assert_eq!(thread(), here);
    let threads = runtime::num_threads();
    assert!(threads <= 4, "{threads}");
}

/// Runs the scenario in a child. Retries if the P was handed off, which happens on a busy machine
/// and changes the order.
fn passes(scenario: &str) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let output = attempt(scenario);
        let text = children::stderr(&output);
        let is_over = output.status.success();
        let may_retry = text.contains(HANDED_OFF) && Instant::now() < deadline;
        assert!(is_over || may_retry, "{scenario}: {:?}: {text}", output.status);
        if is_over {
            return;
        }
    }
}

fn attempt(scenario: &str) -> Output {
    let mut command = children::command(scenario);
    command.env("GOMAXPROCS", "1").env_remove("GOSCHED_SEED");
    // On a slow machine a slice may end anywhere, and a preempted goroutine loses its place in the
    // queue.
    command.env("GODEBUG", "asyncpreemptoff=1");
    command.output().unwrap()
}

// A.16.1, S67, S71, S72, S21, S170
#[test]
fn the_last_of_ten_started_goroutines_runs_first_and_the_rest_follow_in_order() {
    passes("ten");
}

// A.16.2, S65
#[test]
fn a_p_holds_256_goroutines_in_its_queue_and_one_in_run_next() {
    passes("257");
}

// A.16.3, S75, S76, S78, S79, S92, S93, S172, S173
#[test]
fn the_258th_goroutine_spills_the_oldest_half_and_the_displaced_goroutine_in_order() {
    passes("258");
}

// A.16.3, S75, S174
#[test]
fn the_259th_goroutine_fits_into_the_local_queue_again() {
    passes("259");
}

// A.16.3, S66, S92, S94
#[test]
fn the_order_of_a_spill_is_the_same_at_every_phase_and_place_in_the_ring() {
    passes("258 again");
}

// A.16.4, S81, S92
#[test]
fn a_goroutine_that_yields_among_200_runs_again_at_the_next_61st_tick() {
    passes("yield");
}

// S74, S70, S92
#[test]
fn a_goroutine_from_run_next_inherits_the_slice_and_is_not_counted_as_a_tick() {
    passes("yield with children");
}

// S81, S80
#[test]
fn two_goroutines_that_yield_take_turns() {
    passes("two yield");
}

// A.16.5, S23
#[test]
fn a_readied_goroutine_runs_before_queued_goroutines() {
    passes("readied");
}

// S23, S69, S71
#[test]
fn the_last_of_several_readied_goroutines_runs_first_and_the_rest_follow_in_order() {
    passes("unparked in order");
}

// S21, S23
#[test]
fn starting_or_unparking_a_goroutine_does_not_switch_to_it() {
    passes("spawner goes on");
}

// S95, S92
#[test]
fn goroutines_that_keep_starting_successors_let_another_run_within_61_ticks() {
    passes("respawn");
}

// S74, S95
#[test]
fn two_goroutines_that_unpark_each_other_do_not_starve_a_third() {
    passes("ping-pong");
}

// S24, S52, S171
#[test]
fn the_thread_of_an_ended_goroutine_runs_the_next_goroutine() {
    passes("end");
}
