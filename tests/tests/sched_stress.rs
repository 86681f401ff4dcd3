//! Random trees of goroutines that join, panic, exit, yield and park while the number of Ps
//! changes: each goroutine starts once, runs once and ends once. In children with a seed the
//! scheduler's own choices are random too; a failure names the seed.
//!
//! `GOSCHED_STRESS` is the number of goroutines of each child, `GOSCHED_SEEDS` the number of seeds.

use gosched::{
    Builder, JoinHandle, current, go, goexit, lock_os_thread, park, run, runtime, yield_now,
};
use gosched_tests::children;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::SeqCst};

/// Xorshift generator for the shape of the tree.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// How a goroutine ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Return,
    Panic,
    Exit,
}

/// All goroutines of a run, with how often each has run and ended.
#[derive(Debug)]
struct Forest {
    next: AtomicUsize,
    ran: Vec<AtomicU8>,
    ended: Vec<AtomicU8>,
    all_ended: AtomicUsize,
    dropped: AtomicUsize,
}

impl Forest {
    fn new(size: usize) -> Arc<Forest> {
        let zeros = || (0..size).map(|_| AtomicU8::new(0)).collect();
        Arc::new(Forest {
            next: AtomicUsize::new(0),
            ran: zeros(),
            ended: zeros(),
            all_ended: AtomicUsize::new(0),
            dropped: AtomicUsize::new(0),
        })
    }

    fn size(&self) -> usize {
        self.ran.len()
    }

    /// Reserves an index for one more goroutine. Returns `None` if the forest is full.
    fn place(&self) -> Option<usize> {
        let place = self.next.fetch_add(1, SeqCst);
        (place < self.size()).then_some(place)
    }
}

/// Counts the end of its goroutine when dropped, however the goroutine ends.
struct EndGuard {
    forest: Arc<Forest>,
    place: usize,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.forest.ended[self.place].fetch_add(1, SeqCst);
        self.forest.all_ended.fetch_add(1, SeqCst);
    }
}

/// The result of a goroutine; counts its drop.
struct NodeResult {
    forest: Arc<Forest>,
    place: usize,
}

impl Drop for NodeResult {
    fn drop(&mut self) {
        self.forest.dropped.fetch_add(1, SeqCst);
    }
}

struct SpawnedNode {
    handle: JoinHandle<NodeResult>,
    place: usize,
    end: End,
}

impl SpawnedNode {
    fn join(self) {
        match self.handle.join() {
            Ok(fruit) => assert_eq!((fruit.place, End::Return), (self.place, self.end)),
            Err(error) if error.is_goexit() => assert_eq!(self.end, End::Exit),
            Err(error) => {
                assert_eq!(self.end, End::Panic);
                assert_eq!(*error.into_panic().downcast::<usize>().unwrap(), self.place);
            }
        }
    }
}

fn spawn_node(
    forest: &Arc<Forest>,
    random: &mut Random,
    wake: Option<gosched::Goroutine>,
) -> Option<SpawnedNode> {
    let place = forest.place()?;
    let end = match random.below(8) {
        0 => End::Panic,
        1 => End::Exit,
        _ => End::Return,
    };
    let mut own = Random::new(random.below(u64::MAX) ^ place as u64);
    let life = EndGuard { forest: forest.clone(), place };
    let body = move || {
        let life = life;
        life.forest.ran[place].fetch_add(1, SeqCst);
        if let Some(wake) = wake {
            if own.below(2) == 0 {
                yield_now();
            }
            wake.unpark();
        }
        run_node(&life.forest, &mut own);
        match end {
            End::Return => NodeResult { forest: life.forest.clone(), place },
            End::Panic => std::panic::panic_any(place),
            End::Exit => goexit(),
        }
    };
    let handle = match random.below(20) {
        0 => Builder::new().name("named").stack_size(2 << 20).go(body).unwrap(),
        _ => go(body),
    };
    Some(SpawnedNode { handle, place, end })
}

/// Runs random operations; the body of each goroutine.
fn run_node(forest: &Arc<Forest>, random: &mut Random) {
    let mut children = vec![];
    for _ in 0..random.below(8) {
        match random.below(10) {
            0..=3 => children.extend(spawn_node(forest, random, None)),
            4 => drop(spawn_node(forest, random, None)),
            5 => yield_now(),
            6 => {
                // An unpark by another child may make `park` return early, which is harmless.
                if let Some(child) = spawn_node(forest, random, current()) {
                    park();
                    children.push(child);
                }
            }
            7 if !children.is_empty() => {
                let which = random.below(children.len() as u64) as usize;
                children.swap_remove(which).join();
            }
            8 if random.below(50) == 0 => drop(runtime::set_procs(1 + random.below(8) as usize)),
            9 if random.below(20) == 0 => tied(),
            _ => {}
        }
    }
    for child in children {
        if random.below(2) == 0 {
            child.join();
        }
    }
}

/// Yields while locked to the thread, and checks that the thread stays the same.
fn tied() {
    // SAFETY: gettid has no precondition.
    let thread = || unsafe { libc::gettid() };
    lock_os_thread();
    let here = thread();
    yield_now();
    assert_eq!(thread(), here);
    gosched::unlock_os_thread();
}

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// Runs a forest and checks its counters.
fn forest(seed: u64) {
    let size = number("GOSCHED_STRESS", 3000);
    let forest = Forest::new(size);
    let stop = Arc::new(AtomicBool::new(false));
    let resizer = std::thread::spawn({
        let stop = stop.clone();
        let mut random = Random::new(seed ^ 0xfeed);
        move || {
            while !stop.load(SeqCst) {
                runtime::set_procs(1 + random.below(8) as usize);
                for _ in 0..random.below(200) {
                    std::thread::yield_now();
                }
            }
        }
    });
    let gardeners: Vec<_> = (0..2)
        .map(|i| {
            let forest = forest.clone();
            std::thread::spawn(move || {
                let mut random = Random::new(seed + i);
                while let Some(root) = spawn_node(&forest, &mut random, None) {
                    if random.below(4) > 0 {
                        root.join();
                    }
                }
            })
        })
        .collect();
    run(|| {
        let mut random = Random::new(seed + 7);
        while let Some(root) = spawn_node(&forest, &mut random, None) {
            root.join();
        }
        while forest.all_ended.load(SeqCst) < size {
            yield_now();
        }
    });
    gardeners.into_iter().for_each(|gardener| gardener.join().unwrap());
    stop.store(true, SeqCst);
    resizer.join().unwrap();
    while runtime::num_goroutines() > 0 {
        std::thread::yield_now();
    }
    let once = |what: &str, counts: &[AtomicU8]| {
        let wrong = counts.iter().position(|count| count.load(SeqCst) != 1);
        assert_eq!(wrong, None, "{what} {:?} times", wrong.map(|at| counts[at].load(SeqCst)));
    };
    once("ran", &forest.ran);
    once("ended", &forest.ended);
    assert_eq!(forest.all_ended.load(SeqCst), size);
    let dropped = forest.dropped.load(SeqCst);
    assert!(dropped <= size && dropped > size / 2, "{dropped} of {size} results");
    assert_eq!(Arc::strong_count(&forest), 1, "no closure and no result is left");
}

#[test]
fn child() {
    let Some(scenario) = children::scenario() else { return };
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        // The panics of the trees have a number as payload and are not reported.
        if !info.payload().is::<usize>() {
            report(info);
        }
    }));
    forest(scenario.parse().unwrap());
}

fn grows(seed: usize, procs: usize, seeded: bool) {
    let mut command = children::command(&seed.to_string());
    command.env("GOMAXPROCS", procs.to_string());
    if seeded {
        command.env("GOSCHED_SEED", seed.to_string());
    }
    let output = command.output().unwrap();
    let text = children::stderr(&output);
    let seed_text = if seeded { format!("GOSCHED_SEED={seed}") } else { format!("tree {seed}") };
    assert!(
        output.status.success(),
        "{seed_text}, GOMAXPROCS={procs}: {:?}: {text}",
        output.status
    );
}

// S16, S25, S36, S56, S191
#[test]
fn no_goroutine_is_lost_or_runs_twice_on_one_to_eight_ps() {
    for procs in [1, 2, 3, 8] {
        grows(100 + procs, procs, false);
    }
}

// S73, S16, S25, S36, S56, S191
#[test]
fn no_goroutine_is_lost_or_runs_twice_when_the_scheduler_s_choices_are_random() {
    for seed in 1..=number("GOSCHED_SEEDS", 10) {
        grows(seed, 1 + seed % 8, true);
    }
}
