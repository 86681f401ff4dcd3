//! How many goroutines run at the same time, as an ordinary thread sees it.

use crate::kit::{self, Lane, MILLI, burn, crowd, hogs, is_over};
use gosched::{runtime, time};
use std::arch::x86_64::_rdtsc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

const HOGS: usize = 6;

/// A line of the cache for each.
#[repr(align(128))]
struct Beat(AtomicU64);

static BEATS: [Beat; HOGS] = [const { Beat(AtomicU64::new(0)) }; HOGS];

fn clock() -> u64 {
    // SAFETY: every x86-64 has it.
    unsafe { _rdtsc() }
}

/// Looks at the beats twice within a moment: how many went on, unless the moment became a long one.
fn went_on() -> Option<usize> {
    const MOMENT: u64 = 10_000;
    let start = clock();
    let before: [u64; HOGS] = std::array::from_fn(|at| BEATS[at].0.load(Relaxed));
    while clock() - start < MOMENT {
        std::hint::spin_loop();
    }
    let count = (0..HOGS).filter(|&at| BEATS[at].0.load(Relaxed) != before[at]).count();
    (clock() - start < 3 * MOMENT).then_some(count)
}

/// How often a sampler looked, where that counts.
static SAMPLES: AtomicU64 = AtomicU64::new(0);

/// On a busy machine the sampler seldom gets a CPU.
fn wait_for_samples_and_stop(count: u64) {
    kit::wait_for_and_stop(|counts| {
        kit::is_moved_if_allowed(counts) && SAMPLES.load(Relaxed) >= count
    });
}

/// One P: hogs never go on within the same moment, but for moments in which one was preempted.
pub(crate) fn beats() {
    let hogs = crowd("a hog with a beat", HOGS, |number, lane: &Lane| {
        while !is_over() {
            for _ in 0..2000 {
                BEATS[number].0.store(clock(), Relaxed);
            }
            lane.step();
        }
    });
    let sampler = std::thread::spawn(|| {
        let mut seen = [0u64; HOGS + 1];
        while !is_over() {
            if let Some(count) = went_on() {
                seen[count] += 1;
                SAMPLES.store(seen[1], Relaxed);
            }
        }
        seen
    });
    wait_for_samples_and_stop(2000);
    hogs.join();
    let seen = sampler.join().unwrap();
    let several: u64 = seen[2..].iter().sum();
    println!("one {} several {several} none {}", seen[1], seen[0]);
}

/// Threads that the kernel says run or want to run: those of the sampler and of the watcher are not
/// counted.
fn running(own: i32) -> usize {
    let mut count = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let is_own = task.file_name().to_str() == Some(&own.to_string());
        let Ok(stat) = std::fs::read_to_string(task.path().join("stat")) else { continue };
        let (name, rest) = stat.rsplit_once(") ").unwrap();
        let runs = rest.starts_with('R');
        count += usize::from(runs && !is_own && !name.contains("sysmon"));
    }
    count
}

/// How often more threads than there are Ps wanted a CPU.
pub(crate) fn threads() {
    let hogs = crowd("a hog", 4 * runtime::procs() + 2, |_, lane: &Lane| {
        while !is_over() {
            burn(2000);
            lane.step();
        }
    });
    let sampler = std::thread::spawn(|| {
        // SAFETY: it has no precondition.
        let own = unsafe { libc::gettid() };
        let (mut samples, mut more) = (0u64, 0u64);
        while !is_over() {
            samples += 1;
            SAMPLES.store(samples, Relaxed);
            // One more may be on its way from a P to the next who gets it.
            more += u64::from(running(own) > runtime::procs() + 1);
            std::thread::sleep(MILLI);
        }
        (samples, more)
    });
    time::sleep(20 * MILLI);
    wait_for_samples_and_stop(100);
    hogs.join();
    let (samples, more) = sampler.join().unwrap();
    println!("samples {samples} more {more}");
}

/// Goroutines that come back from calls nobody marked, and compute, beside one that keeps the only P busy: how much
/// CPU all of them use.
pub(crate) fn back() {
    let hog = hogs(1);
    let others = crowd("a goroutine that blocks and computes", 3, |_, lane: &Lane| {
        while !is_over() {
            std::thread::sleep(2 * MILLI);
            kit::burn_micros(8000);
            lane.step();
        }
    });
    let used = || kit::cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID);
    let (before, start) = (used(), Instant::now());
    gosched::time::sleep(kit::length().max(400 * MILLI));
    let (cpu, time) = (used() - before, start.elapsed());
    kit::stop();
    hog.join();
    others.join();
    println!("share {}", cpu.as_micros() * 1000 / time.as_micros());
}
