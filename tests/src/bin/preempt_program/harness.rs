//! What the programs share: time to run for, computation without calls, and a watchdog that ends a program
//! in which somebody does not get on.

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

/// How long a program goes on where `GOSCHED_PREEMPT_SECONDS` is not set, in seconds.
const DEFAULT_SECONDS: f64 = if cfg!(debug_assertions) { 0.1 } else { 0.4 };

/// How long a program goes on, in all its parts.
pub(crate) fn case_duration() -> Duration {
    static LENGTH: OnceLock<Duration> = OnceLock::new();
    *LENGTH.get_or_init(|| {
        let text = std::env::var("GOSCHED_PREEMPT_SECONDS").ok();
        let seconds = text.map_or(DEFAULT_SECONDS, |text| text.parse().expect("seconds"));
        Duration::from_secs_f64(seconds)
    })
}

/// Whether it is a run of `ci/long`.
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

/// Main's part in most programs: it lets others go on for the length, and longer where nobody was preempted
/// yet, since nothing says how soon a busy machine lets sysmon look; then ends them. Its sleeps are part
/// of the test, since all Ps are busy.
pub(crate) fn wait_and_stop() {
    wait_for_and_stop(|_| true);
}

/// As [`wait_and_stop`], until somebody was moved, if that is allowed: goroutines may have been interrupted
/// only where they cannot be.
pub(crate) fn wait_for_moves_and_stop() {
    wait_for_and_stop(is_moved_if_allowed);
}

/// As [`wait_and_stop`], until this is so too.
pub(crate) fn wait_for_and_stop(is_enough: impl Fn(&rules::Preemptions) -> bool) {
    wait_for_case_duration();
    wait_for_preemptions(is_enough);
    stop();
}

/// Waits until somebody was moved, if that is allowed.
pub(crate) fn wait_for_moves() {
    wait_for_preemptions(is_moved_if_allowed);
}

/// Waits until goroutines were preempted and `is_enough` holds. Gives up after [`LIMIT`]: tests say what is
/// missing.
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

/// Whether somebody was moved, if that is allowed.
pub(crate) fn is_moved_if_allowed(counts: &rules::Preemptions) -> bool {
    let allowed = forced_mode() != Some("in-place") && CAN_MOVE;
    !allowed || counts.moved > 0
}

/// The only way in which goroutines may be preempted, if there is one.
fn forced_mode() -> Option<&'static str> {
    static WAY: OnceLock<Option<String>> = OnceLock::new();
    WAY.get_or_init(|| std::env::var("GOSCHED_PREEMPT").ok()).as_deref()
}

/// Whether some were, in a way that is allowed.
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
/// How far each has got; 0 if nobody is there.
static STEPS: [AtomicU64; MAX_HEARTBEATS] = [const { AtomicU64::new(0) }; MAX_HEARTBEATS];
static NAMES: [OnceLock<&str>; MAX_HEARTBEATS] = [const { OnceLock::new() }; MAX_HEARTBEATS];
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Something that has to get on, again and again, while this exists.
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

    /// How often it got on.
    pub(crate) fn steps(&self) -> u64 {
        STEPS[self.0].load(Relaxed) / 2
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        STEPS[self.0].store(0, Relaxed);
    }
}

/// Starts the watchdog: an ordinary thread that waits for nothing a program could hold.
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

/// Says who hangs, without memory or locks, and ends the process.
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
    // SAFETY: so many bytes are there.
    unsafe { libc::write(2, text.get_ref().as_ptr().cast(), length) };
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(HANG_STATUS) }
}

/// Computes: no calls, no memory.
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

/// Finds how much computation a millisecond is, while all CPUs compute.
pub(crate) fn calibrate() {
    const ROUNDS: u64 = if cfg!(debug_assertions) { 100_000 } else { 500_000 };
    let measure = || (0..5).map(|_| cost_of(ROUNDS)).min().unwrap_or(MILLI);
    let others: Vec<_> = (1..runtime::num_cpu()).map(|_| std::thread::spawn(measure)).collect();
    let best = others.into_iter().map(|other| other.join().unwrap()).fold(measure(), Duration::min);
    let per_milli = u128::from(ROUNDS) * 1_000_000 / best.as_nanos().max(1);
    ROUNDS_PER_MILLI.store(per_milli as u64, Relaxed);
}

/// What so much computation costs the calling thread.
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

/// Computes for about so many microseconds of CPU time.
pub(crate) fn burn_micros(micros: u64) -> u64 {
    burn(ROUNDS_PER_MILLI.load(Relaxed) * micros / 1000)
}

/// Goroutines that were started together.
pub(crate) struct GoroutineGroup<T>(Vec<JoinHandle<T>>);

/// Starts `count` goroutines, each with its number and a lane of its own.
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
    /// Their results.
    pub(crate) fn join(self) -> Vec<T> {
        self.0.into_iter().map(|handle| handle.join().unwrap()).collect()
    }
}

/// Goroutines that compute without a call until it is over; how far each got.
pub(crate) fn hogs(count: usize) -> GoroutineGroup<u64> {
    spawn_group("hog", count, |_, lane| {
        while !is_over() || lane.steps() == 0 {
            burn(2000);
            lane.step();
        }
        lane.steps()
    })
}

/// Waits, as a goroutine, until the condition holds, or ends the process after [`LIMIT`].
pub(crate) fn wait_until(what: &'static str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        if start.elapsed() > LIMIT {
            give_up(what, MAX_HEARTBEATS);
        }
        time::sleep(MILLI / 5);
    }
}

/// The last line of each program.
pub(crate) fn report() {
    let counts = rules::preemptions();
    println!(
        "moved {} in-place {} outside {} deferred {}",
        counts.moved, counts.in_place, counts.outside, counts.deferred
    );
}

/// How often goroutines were preempted.
pub(crate) fn preemptions() -> u64 {
    let counts = rules::preemptions();
    counts.moved + counts.in_place
}
