//! Seeded random programs in which goroutines and threads use every blocking operation at once.
//! Each party draws its steps at random. No value is lost or duplicated, and every program ends.
//!
//! `GOSCHED_STRESS_SECONDS` sets how long programs are run, and `GOSCHED_STRESS_SEED` sets the
//! first seed. A failure prints its seed. The seed does not determine the order in which parties
//! run.

use gosched::chan::{Receiver, Sender};
use gosched::context::{self, Context};
use gosched::sync::{
    Barrier, Condvar, Mutex, Once, Pool, RwLock, Semaphore, SingleFlight, WaitGroup,
};
use gosched::time::{self, after_func, sleep};
use gosched::{block_on, chan, go, runtime, select};
use gosched_tests::actors::{Ledger, Token, join_all, kind_for};
use gosched_tests::wait::until;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Number of parties of a program.
const ACTORS: usize = 12;
/// Number of steps of each party.
const STEPS: usize = 120;
/// Maximum number of values that a program sends.
const TOKENS: usize = ACTORS * STEPS;
const PERMITS: usize = 3;

#[derive(Clone)]
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }

    fn micros(&mut self, most: usize) -> Duration {
        Duration::from_micros(self.below(most) as u64)
    }
}

/// State shared by the parties of a program.
struct World {
    channels: Vec<(Sender<Token>, Receiver<Token>)>,
    ledger: Ledger,
    next: AtomicUsize,
    counter: Mutex<u64>,
    count: AtomicU64,
    pair: RwLock<(u64, u64)>,
    permits: Semaphore,
    held: AtomicUsize,
    queue: Mutex<VecDeque<u64>>,
    filled: Condvar,
    put: AtomicUsize,
    got: AtomicUsize,
    pool: Pool<Vec<u8>>,
    flights: SingleFlight<usize, usize>,
    once: Once,
    inits: AtomicUsize,
    root: Context,
    functions: WaitGroup,
}

impl World {
    fn new(random: &mut Random, root: Context) -> Arc<World> {
        Arc::new(World {
            channels: (0..4).map(|_| chan(random.below(3))).collect(),
            ledger: Ledger::new(TOKENS),
            next: AtomicUsize::new(0),
            counter: Mutex::new(0),
            count: AtomicU64::new(0),
            pair: RwLock::new((0, 0)),
            permits: Semaphore::new(PERMITS),
            held: AtomicUsize::new(0),
            queue: Mutex::new(VecDeque::new()),
            filled: Condvar::new(),
            put: AtomicUsize::new(0),
            got: AtomicUsize::new(0),
            pool: Pool::new(Vec::new),
            flights: SingleFlight::new(),
            once: Once::new(),
            inits: AtomicUsize::new(0),
            root,
            functions: WaitGroup::new(),
        })
    }

    fn token(&self) -> Token {
        self.ledger.token(self.next.fetch_add(1, SeqCst))
    }

    /// Runs one random step of a party. Every step ends: its waits have a time limit, or end when
    /// the holder of a lock or of permits releases them.
    fn step(self: &Arc<World>, random: &mut Random) {
        let (one, other) = (random.below(4), random.below(4));
        let (tx, rx) = &self.channels[one];
        let (other_tx, other_rx) = &self.channels[other];
        let limit = random.micros(300);
        match random.below(22) {
            0 => drop(tx.try_send(self.token())),
            1 => drop(tx.send_timeout(self.token(), limit)),
            2 => drop(rx.try_recv()),
            3 => drop(rx.recv_timeout(limit)),
            4 => select! {
                recv(rx) -> value => drop(value),
                send(other_tx, self.token()) -> sent => drop(sent),
                default(limit) => {}
            },
            5 => select! {
                recv(rx) -> value => drop(value),
                recv(other_rx) -> value => drop(value),
                recv(self.root.done()) -> _ => {}
                recv(time::after(limit)) -> time => assert!(time.is_ok()),
            },
            6 => {
                let mut slot = Some(self.token());
                select! {
                    send(tx, take slot) -> sent => assert!(sent.is_ok()),
                    default => assert!(slot.is_some()),
                }
            }
            7 => block_on(async {
                // Polls once, and drops the future while its waiter may be queued.
                let mut future = std::pin::pin!(rx.recv_async());
                let waker = std::task::Waker::noop();
                let _ = future.as_mut().poll(&mut std::task::Context::from_waker(waker));
            }),
            8 => self.add(),
            9 => {
                if let Some(mut guard) = self.counter.try_lock_for(limit) {
                    *guard += 1;
                    self.count.fetch_add(1, SeqCst);
                }
            }
            10 => {
                let mut pair = self.pair.write();
                pair.0 += 1;
                gosched::yield_now();
                pair.1 += 1;
            }
            11 => {
                let pair = self.pair.read();
                assert_eq!(pair.0, pair.1, "seen half written");
            }
            12 => {
                let count = 1 + random.below(PERMITS);
                let permit = self.permits.acquire(count);
                assert!(self.held.fetch_add(count, SeqCst) + count <= PERMITS, "too many permits");
                gosched::yield_now();
                self.held.fetch_sub(count, SeqCst);
                drop(permit);
            }
            13 => drop(self.permits.acquire_timeout(PERMITS, limit)),
            14 => {
                self.queue.lock().push_back(1);
                self.put.fetch_add(1, SeqCst);
                match random.below(2) {
                    0 => self.filled.notify_one(),
                    _ => self.filled.notify_all(),
                }
            }
            15 => {
                let (mut queue, _) = self.filled.wait_timeout(self.queue.lock(), limit);
                self.got.fetch_add(usize::from(queue.pop_front().is_some()), SeqCst);
            }
            16 => self.functions(random, limit),
            17 => self.contexts(random, limit),
            18 => {
                let mut buffer = self.pool.lend();
                assert!(buffer.is_empty(), "somebody else has it too");
                buffer.push(1);
                gosched::yield_now();
                buffer.clear();
            }
            19 => {
                let (value, _) = self.flights.run(one, || {
                    sleep(limit);
                    one * 10
                });
                assert_eq!(value, one * 10);
            }
            20 => self.once.call_once(|| {
                sleep(limit);
                self.inits.fetch_add(1, SeqCst);
            }),
            _ => sleep(limit),
        }
    }

    fn add(&self) {
        *self.counter.lock() += 1;
        self.count.fetch_add(1, SeqCst);
    }

    /// Starts a function with `after_func`. The function either runs or is stopped.
    fn functions(self: &Arc<World>, random: &mut Random, limit: Duration) {
        let world = self.clone();
        self.functions.add(1);
        let timer = after_func(limit, move || {
            world.add();
            world.functions.done();
        });
        sleep(random.micros(300));
        let again = random.below(2) == 0;
        let is_stopped = timer.stop();
        if is_stopped && again {
            timer.reset(limit);
        } else if is_stopped {
            self.functions.done();
        }
    }

    fn contexts(self: &Arc<World>, random: &mut Random, limit: Duration) {
        let (ctx, guard) = self.root.with_timeout(limit);
        let (below, _other) = ctx.with_cancel();
        let world = self.clone();
        self.functions.add(1);
        let stop = below.after_func(move || world.functions.done());
        if random.below(2) == 0 {
            guard.cancel();
        }
        sleep(random.micros(300));
        if stop.stop() {
            self.functions.done();
        }
        drop(guard);
        assert!(below.err().is_some() && below.done().try_recv().is_err());
    }
}

/// Runs one random program, and checks that it ends and that all counts match.
fn program(seed: u64) {
    let mut random = Random::new(seed);
    let (root, guard) = context::background().with_cancel();
    let world = World::new(&mut random, root);
    let start = Arc::new(Barrier::new(ACTORS));
    let parties: Vec<_> = (0..ACTORS)
        .map(|number| {
            let (world, start) = (world.clone(), start.clone());
            let mut random = Random::new(seed ^ (number as u64 + 1) << 32);
            kind_for(number).start(move || {
                start.wait();
                (0..STEPS).for_each(|_| world.step(&mut random));
            })
        })
        .collect();
    join_all(parties);
    world.functions.wait();
    drop(guard);
    assert_eq!(*world.counter.lock(), world.count.load(SeqCst), "seed {seed}: a lost addition");
    assert_eq!(world.permits.available(), PERMITS, "seed {seed}: lost permits");
    let left = world.queue.lock().len();
    assert_eq!(world.put.load(SeqCst), world.got.load(SeqCst) + left, "seed {seed}");
    assert!(world.inits.load(SeqCst) <= 1, "seed {seed}: two firsts");
    let sent = world.next.load(SeqCst);
    let ledger = world.ledger.clone();
    // Closures of parties and functions that are about to end hold references.
    until("the world is ours", || Arc::strong_count(&world) == 1);
    drop(world);
    let drops = ledger.drops();
    let wrong = drops.iter().enumerate().filter(|&(i, &n)| n != usize::from(i < sent)).count();
    assert_eq!(wrong, 0, "seed {seed}: of {sent} values, so many not dropped once");
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Returns how long random programs are run.
fn duration() -> Duration {
    Duration::from_secs(number("GOSCHED_STRESS_SECONDS", 1))
}

#[test]
fn random_blocking_programs_end_and_lose_nothing() {
    let first = number("GOSCHED_STRESS_SEED", u64::from(std::process::id()));
    let start = Instant::now();
    let mut seed = first;
    while seed == first || start.elapsed() < duration() {
        println!("seed {seed}");
        if let Err(payload) = std::panic::catch_unwind(|| program(seed)) {
            eprintln!("GOSCHED_STRESS_SEED={seed}");
            std::panic::resume_unwind(payload);
        }
        seed += 1;
    }
    println!("{} programs in {:?}", seed - first, start.elapsed());
    // This also waits for the goroutines of the other test of this suite.
    until("no goroutine is left", || runtime::num_goroutines() == 0);
    drop(go(|| ()).join());
}

/// A goroutine that waits with a timeout may continue, and leave its stack frame, before the M that
/// parked it has released the lock. Threads that burn the CPUs sometimes stop the M at this point.
#[test]
fn a_timeout_that_expires_while_the_goroutine_is_being_parked_does_no_harm() {
    static OVER: AtomicBool = AtomicBool::new(false);
    let burners: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(|| {
                while !OVER.load(SeqCst) {
                    std::hint::black_box(())
                }
            })
        })
        .collect();
    let waiters: Vec<_> = (0..16)
        .map(|number: u32| {
            go(move || {
                let (mutex, permits, group) = (Mutex::new(0), Semaphore::new(1), WaitGroup::new());
                let (_held, _taken) = (mutex.lock(), permits.acquire(1));
                group.add(1);
                let mut round = number;
                while !OVER.load(SeqCst) {
                    round += 1;
                    let limit = Duration::from_micros(u64::from(round % 30));
                    assert!(mutex.try_lock_for(limit).is_none());
                    assert!(permits.acquire_timeout(1, limit).is_none());
                    assert!(!group.wait_timeout(limit));
                }
                group.done();
            })
        })
        .collect();
    let start = Instant::now();
    while start.elapsed() < duration().min(Duration::from_secs(3)) {
        std::hint::black_box(runtime::dump_folded());
        sleep(Duration::from_millis(1));
    }
    OVER.store(true, SeqCst);
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    burners.into_iter().for_each(|burner| burner.join().unwrap());
}
