//! Helpers of the programs: their duration, computation without calls, and a watchdog that ends a
//! program in which a goroutine or thread makes no progress.

use gosched::{__rules as rules, JoinHandle, go, runtime, time};
use gosched_tests::preempt_runs::CAN_MOVE;
use gosched_tests::wait::{CHILD_LIMIT, LIMIT};
use std::io::{Cursor, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Exit status of a process that the watchdog ends.
const HANG_STATUS: i32 = 70;

pub(crate) const MILLI: Duration = Duration::from_millis(1);

/// How long a program runs if `GOSCHED_PREEMPT_SECONDS` is not set, in seconds.
const DEFAULT_SECONDS: f64 = if cfg!(debug_assertions) { 0.1 } else { 0.4 };

/// Returns how long a program runs.
pub(crate) fn case_duration() -> Duration {
    static LENGTH: OnceLock<Duration> = OnceLock::new();
    *LENGTH.get_or_init(|| {
        let text = std::env::var("GOSCHED_PREEMPT_SECONDS").ok();
        let seconds = text.map_or(DEFAULT_SECONDS, |text| text.parse().expect("seconds"));
        Duration::from_secs_f64(seconds)
    })
}

/// Returns whether this is a long run, as in `ci/soak`.
pub(crate) fn is_long() -> bool {
    case_duration() >= Duration::from_secs(5)
}

static OVER: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_over() -> bool {
    OVER.load(Relaxed)
}

pub(crate) fn stop() {
    OVER.store(true, Relaxed);
}

/// Main's part in most programs: lets the other goroutines run for the case's duration, or longer
/// until a goroutine was preempted, then stops them. The extra time is needed because a busy
/// machine may run sysmon late. Main's sleeps are part of the test, since all Ps are busy.
pub(crate) fn wait_and_stop() {
    wait_for_and_stop(|_| true);
}

/// Waits as [`wait_and_stop`] does, and until a goroutine was moved, if that is allowed. The first
/// signals may interrupt goroutines only where they cannot be moved.
pub(crate) fn wait_for_moves_and_stop() {
    wait_for_and_stop(is_moved_if_allowed);
}

/// Waits as [`wait_and_stop`] does, and until `is_enough` holds.
pub(crate) fn wait_for_and_stop(is_enough: impl Fn(&rules::Preemptions) -> bool) {
    wait_for_case_duration();
    wait_for_preemptions(is_enough);
    stop();
}

/// Waits until a goroutine was moved, if that is allowed.
pub(crate) fn wait_for_moves() {
    wait_for_preemptions(is_moved_if_allowed);
}

/// Waits until goroutines were preempted and `is_enough` holds. Gives up after [`LIMIT`]: the tests
/// report what is missing.
pub(crate) fn wait_for_preemptions(is_enough: impl Fn(&rules::Preemptions) -> bool) {
    let lane = Heartbeat::new("main");
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        let counts = rules::preemptions();
        if was_preempted(&counts) && is_enough(&counts) {
            break;
        }
        time::sleep(5 * MILLI);
        lane.step();
    }
}

/// Returns whether a goroutine was moved, or moving is not allowed.
pub(crate) fn is_moved_if_allowed(counts: &rules::Preemptions) -> bool {
    let allowed = forced_mode() != Some("in-place") && CAN_MOVE;
    !allowed || counts.moved > 0
}

/// Returns the value of `GOSCHED_PREEMPT`, the only allowed way of preemption, if it is set.
fn forced_mode() -> Option<&'static str> {
    static WAY: OnceLock<Option<String>> = OnceLock::new();
    WAY.get_or_init(|| std::env::var("GOSCHED_PREEMPT").ok()).as_deref()
}

/// Returns whether a goroutine was preempted in an allowed way.
fn was_preempted(counts: &rules::Preemptions) -> bool {
    match forced_mode() {
        Some("in-place") => counts.in_place > 0,
        Some("moving") => counts.moved > 0,
        _ => counts.moved + counts.in_place > 0,
    }
}

fn wait_for_case_duration() {
    let lane = Heartbeat::new("main");
    let start = Instant::now();
    while start.elapsed() < case_duration() {
        time::sleep((case_duration() - start.elapsed()).min(100 * MILLI));
        lane.step();
    }
}

const MAX_HEARTBEATS: usize = 2048;
/// Progress of each heartbeat; 0 if the slot is not in use.
static STEPS: [AtomicU64; MAX_HEARTBEATS] = [const { AtomicU64::new(0) }; MAX_HEARTBEATS];
static NAMES: [OnceLock<&str>; MAX_HEARTBEATS] = [const { OnceLock::new() }; MAX_HEARTBEATS];
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// A goroutine or thread that must make progress as long as this value exists.
pub(crate) struct Heartbeat(usize);

impl Heartbeat {
    pub(crate) fn new(name: &'static str) -> Heartbeat {
        let at = TAKEN.fetch_add(1, Relaxed);
        let _ = NAMES[at].set(name);
        STEPS[at].store(1, Relaxed);
        Heartbeat(at)
    }

    pub(crate) fn step(&self) {
        STEPS[self.0].store(STEPS[self.0].load(Relaxed) + 2, Relaxed);
    }

    /// Returns the number of steps so far.
    pub(crate) fn steps(&self) -> u64 {
        STEPS[self.0].load(Relaxed) / 2
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        STEPS[self.0].store(0, Relaxed);
    }
}

/// Starts the watchdog: an ordinary thread that waits for nothing that a program could hold.
pub(crate) fn start_watchdog() {
    std::thread::spawn(|| {
        let start = Instant::now();
        let limit = CHILD_LIMIT + 10 * case_duration();
        let mut last: Vec<(u64, Instant)> = vec![(0, start); MAX_HEARTBEATS];
        loop {
            std::thread::sleep(100 * MILLI);
            for (at, (steps, since)) in last.iter_mut().enumerate() {
                let now = STEPS[at].load(Relaxed);
                if now != *steps || now == 0 {
                    (*steps, *since) = (now, Instant::now());
                } else if since.elapsed() > LIMIT {
                    give_up(NAMES[at].get().unwrap_or(&"?"), at);
                }
            }
            if start.elapsed() > limit {
                give_up("the program", MAX_HEARTBEATS);
            }
        }
    });
}

/// Prints what hangs, without memory or locks, and ends the process.
pub(crate) fn give_up(who: &str, lane: usize) -> ! {
    let mut text = Cursor::new([0u8; 512]);
    let running = STEPS.iter().filter(|steps| steps.load(Relaxed) > 0).count();
    let _ = writeln!(
        text,
        "hangs: {who} (lane {lane}; {running} lanes; {:?}; {} goroutines, {} threads, {} Ps)",
        rules::preemptions(),
        runtime::num_goroutines(),
        runtime::num_threads(),
        runtime::procs(),
    );
    let length = text.position() as usize;
    // SAFETY: the buffer has `length` bytes.
    unsafe { libc::write(2, text.get_ref().as_ptr().cast(), length) };
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(HANG_STATUS) }
}

/// Computes without calls and without memory.
#[inline(never)]
pub(crate) fn burn(rounds: u64) -> u64 {
    let (mut x, mut left) = (rounds | 1, rounds);
    while left > 0 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        left -= 1;
    }
    std::hint::black_box(x)
}

static ROUNDS_PER_MILLI: AtomicU64 = AtomicU64::new(100_000);

/// Determines how many rounds take a millisecond while all CPUs compute.
pub(crate) fn calibrate() {
    const ROUNDS: u64 = if cfg!(debug_assertions) { 100_000 } else { 500_000 };
    let measure = || (0..5).map(|_| cost_of(ROUNDS)).min().unwrap_or(MILLI);
    let others: Vec<_> = (1..runtime::num_cpu()).map(|_| std::thread::spawn(measure)).collect();
    let best = others.into_iter().map(|other| other.join().unwrap()).fold(measure(), Duration::min);
    let per_milli = u128::from(ROUNDS) * 1_000_000 / best.as_nanos().max(1);
    ROUNDS_PER_MILLI.store(per_milli as u64, Relaxed);
}

/// Returns the CPU time of `rounds` rounds on the calling thread.
fn cost_of(rounds: u64) -> Duration {
    let before = cpu_time(libc::CLOCK_THREAD_CPUTIME_ID);
    burn(rounds);
    cpu_time(libc::CLOCK_THREAD_CPUTIME_ID) - before
}

pub(crate) fn cpu_time(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is ours to write.
    unsafe { libc::clock_gettime(clock, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Computes for about `micros` microseconds of CPU time.
pub(crate) fn burn_micros(micros: u64) -> u64 {
    burn(ROUNDS_PER_MILLI.load(Relaxed) * micros / 1000)
}

/// Goroutines that were started together.
pub(crate) struct GoroutineGroup<T>(Vec<JoinHandle<T>>);

/// Starts `count` goroutines, each with its number and its own heartbeat.
pub(crate) fn spawn_group<T: Send + 'static>(
    name: &'static str,
    count: usize,
    f: impl Fn(usize, &Heartbeat) -> T + Send + Sync + 'static,
) -> GoroutineGroup<T> {
    let f = Arc::new(f);
    let start = |number| {
        let f = f.clone();
        let lane = Heartbeat::new(name);
        go(move || f(number, &lane))
    };
    GoroutineGroup((0..count).map(start).collect())
}

impl<T> GoroutineGroup<T> {
    /// Waits for all goroutines and returns their results.
    pub(crate) fn join(self) -> Vec<T> {
        self.0.into_iter().map(|handle| handle.join().unwrap()).collect()
    }
}

/// Starts goroutines that compute without calls until the program is over. Each returns its number
/// of steps.
pub(crate) fn hogs(count: usize) -> GoroutineGroup<u64> {
    spawn_group("hog", count, |_, lane| {
        while !is_over() || lane.steps() == 0 {
            burn(2000);
            lane.step();
        }
        lane.steps()
    })
}

/// Waits in a goroutine until the condition holds. Ends the process after [`LIMIT`].
pub(crate) fn wait_until(what: &'static str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        if start.elapsed() > LIMIT {
            give_up(what, MAX_HEARTBEATS);
        }
        time::sleep(MILLI / 5);
    }
}

/// Prints the last line of each program.
pub(crate) fn report() {
    let counts = rules::preemptions();
    println!(
        "moved {} in-place {} outside {} deferred {}",
        counts.moved, counts.in_place, counts.outside, counts.deferred
    );
}

/// Returns how often goroutines were preempted.
pub(crate) fn preemptions() -> u64 {
    let counts = rules::preemptions();
    counts.moved + counts.in_place
}
