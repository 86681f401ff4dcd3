//! How many goroutines run at the same time, observed by an ordinary thread.

use crate::harness::{self, Heartbeat, MILLI, burn, hogs, is_over, spawn_group};
use gosched::runtime;
use std::arch::x86_64::_rdtsc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex};
use std::time::Instant;

const HOGS: usize = 6;

/// A counter with its own cache line.
#[repr(align(128))]
struct Beat(AtomicU64);

static BEATS: [Beat; HOGS] = [const { Beat(AtomicU64::new(0)) }; HOGS];

fn clock() -> u64 {
    // SAFETY: every x86-64 CPU has this instruction.
    unsafe { _rdtsc() }
}

/// Reads the beats twice within a short interval. Returns how many advanced, or `None` if the
/// interval became too long.
fn count_advancing() -> Option<usize> {
    const MOMENT: u64 = 10_000;
    let start = clock();
    let before: [u64; HOGS] = std::array::from_fn(|at| BEATS[at].0.load(Relaxed));
    while clock() - start < MOMENT {
        std::hint::spin_loop();
    }
    let count = (0..HOGS).filter(|&at| BEATS[at].0.load(Relaxed) != before[at]).count();
    (clock() - start < 3 * MOMENT).then_some(count)
}

/// Number of samples that count.
static SAMPLES: AtomicU64 = AtomicU64::new(0);

/// Waits for `count` samples. On a busy machine the sampler rarely gets a CPU.
fn wait_for_samples_and_stop(count: u64) {
    harness::wait_for_and_stop(|counts| {
        harness::is_moved_if_allowed(counts) && SAMPLES.load(Relaxed) >= count
    });
}

/// Restricts a thread to the CPUs of `set`; 0 is the calling thread.
fn restrict(thread: libc::pid_t, set: &libc::cpu_set_t) {
    // SAFETY: the set is valid for reads. A thread that has ended is an error, which is ignored.
    unsafe { libc::sched_setaffinity(thread, size_of_val(set), set) };
}

/// Keeps all threads of the process off one CPU, and returns that CPU for the sampler. On a busy
/// machine the kernel may run the sampler and the hogs in turn on one CPU, and the sampler would
/// see no hog run.
fn reserve_cpu() -> libc::cpu_set_t {
    // SAFETY: all-zero is an empty set.
    let mut rest: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let mut reserved = rest;
    // SAFETY: the set is valid for writes.
    assert_eq!(unsafe { libc::sched_getaffinity(0, size_of_val(&rest), &mut rest) }, 0);
    let allowed = |cpu: &usize| {
        // SAFETY: the number is less than `CPU_SETSIZE`.
        unsafe { libc::CPU_ISSET(*cpu, &rest) }
    };
    let first = (0..libc::CPU_SETSIZE as usize).find(allowed).expect("a CPU");
    // SAFETY: as above.
    unsafe { libc::CPU_CLR(first, &mut rest) };
    // SAFETY: as above.
    unsafe { libc::CPU_SET(first, &mut reserved) };
    // New threads inherit the set of the thread that makes them.
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        restrict(task.file_name().to_str().unwrap().parse().unwrap(), &rest);
    }
    reserved
}

/// One P: at most one hog advances within an interval, except in intervals with a preemption.
pub(crate) fn beats() {
    let reserved = reserve_cpu();
    let hogs = spawn_group("a hog with a beat", HOGS, |number, lane: &Heartbeat| {
        while !is_over() {
            for _ in 0..2000 {
                BEATS[number].0.store(clock(), Relaxed);
            }
            lane.step();
        }
    });
    let sampler = std::thread::spawn(move || {
        restrict(0, &reserved);
        let mut seen = [0u64; HOGS + 1];
        while !is_over() {
            if let Some(count) = count_advancing() {
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

/// Returns the number of threads that the kernel reports as runnable, without the sampler and
/// sysmon.
fn count_runnable_threads(own: i32) -> usize {
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

/// An OS thread that counts, every millisecond until the program is over, the threads of the
/// process that want a CPU.
struct Sampler(std::thread::JoinHandle<(u64, u64)>);

/// Number of samples in which at most one thread more than there are Ps wanted a CPU: one thread
/// may be on its way from one P to another.
static FEW: AtomicU64 = AtomicU64::new(0);

impl Sampler {
    fn start() -> Sampler {
        Sampler(std::thread::spawn(|| {
            // SAFETY: has no precondition.
            let own = unsafe { libc::gettid() };
            let (mut samples, mut more) = (0u64, 0u64);
            while !is_over() {
                let are_few = count_runnable_threads(own) <= runtime::procs() + 1;
                samples += 1;
                more += u64::from(!are_few);
                SAMPLES.store(samples, Relaxed);
                FEW.store(samples - more, Relaxed);
                std::thread::sleep(MILLI);
            }
            (samples, more)
        }))
    }

    fn print(self) {
        let (samples, more) = self.0.join().unwrap();
        println!("samples {samples} more {more} few {}", samples - more);
    }
}

/// Prints in how many samples more threads than there are Ps wanted a CPU. Runs until [`FEW`] is
/// fifty.
pub(crate) fn threads() {
    static BEGUN: AtomicU64 = AtomicU64::new(0);
    let count = 4 * runtime::procs() + 2;
    let hogs = spawn_group("a hog", count, |_, lane: &Heartbeat| {
        BEGUN.fetch_add(1, Relaxed);
        while !is_over() {
            burn(2000);
            lane.step();
        }
    });
    harness::wait_until("all hogs to begin", || BEGUN.load(Relaxed) == count as u64);
    let sampler = Sampler::start();
    harness::wait_for_and_stop(|counts| {
        harness::is_moved_if_allowed(counts) && FEW.load(Relaxed) >= 50
    });
    hogs.join();
    sampler.print();
}

/// Does the same with OS threads: each thread waits for one of as many permits as there are Ps, and
/// returns it after 10 ms.
pub(crate) fn threads_of_std() {
    static PERMITS: Mutex<usize> = Mutex::new(0);
    static RETURNED: Condvar = Condvar::new();
    *PERMITS.lock().unwrap() = runtime::procs();
    let hog = || {
        while !is_over() {
            let mut permits = PERMITS.lock().unwrap();
            while *permits == 0 {
                permits = RETURNED.wait(permits).unwrap();
            }
            *permits -= 1;
            drop(permits);
            harness::burn_micros(10_000);
            *PERMITS.lock().unwrap() += 1;
            RETURNED.notify_one();
        }
        RETURNED.notify_all();
    };
    let hogs: Vec<_> = (0..4 * runtime::procs() + 2).map(|_| std::thread::spawn(hog)).collect();
    let sampler = Sampler::start();
    std::thread::sleep(harness::case_duration());
    harness::wait_until("a hundred samples", || SAMPLES.load(Relaxed) >= 100);
    harness::stop();
    gosched::blocking(|| hogs.into_iter().for_each(|hog| hog.join().unwrap()));
    sampler.print();
}

/// Goroutines return from unmarked calls and compute, beside a goroutine that keeps the only P
/// busy. Prints the CPU use of all of them, in thousandths of a CPU.
pub(crate) fn back() {
    let hog = hogs(1);
    let others = spawn_group("a goroutine that blocks and computes", 3, |_, lane: &Heartbeat| {
        while !is_over() || lane.steps() == 0 {
            std::thread::sleep(2 * MILLI);
            harness::burn_micros(8000);
            lane.step();
        }
        lane.steps()
    });
    let used = || harness::cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID);
    let (before, start) = (used(), Instant::now());
    gosched::time::sleep(harness::case_duration());
    let (cpu, time) = (used() - before, start.elapsed());
    harness::stop();
    let least = [hog, others].map(|all| all.join().into_iter().min().unwrap());
    let share = cpu.as_micros() * 1000 / time.as_micros();
    println!("share {share} least {}", least.into_iter().min().unwrap());
}
