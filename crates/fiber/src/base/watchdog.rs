//! A watchdog for the report of a fatal error: ends the process if the report hangs.
//!
//! A timer fires once per second (SIGALRM). Its handler reads how much CPU time the reporting
//! thread has used. A report hangs if the thread has used [`REPORT_CPU_BUDGET`] since the last
//! [`restart`] (it loops), or if the thread has used no CPU time for [`SILENCE`] and for
//! [`MIN_IDLE_ALARMS`] alarms (it waits for a lock that is never released). The alarms are counted
//! too, because time passes while the whole process is stopped. The handler then calls the function
//! passed to [`start`], which ends the process. The budget is CPU time, not wall-clock time: a
//! report that gets a small share of a busy machine is slow, but not hung. The kernel may run the
//! handler on the reporting thread itself; the CPU time that the handler and the delivery of the
//! alarm use there does not count.
//!
//! The same holds for the thread that holds the lock. If the kernel keeps preempting the threads of
//! this process, they get a small share too: the report is not hung until the process has used
//! [`REPORT_CPU_BUDGET`] of CPU time since the reporting thread last ran. And if many threads
//! compete for each CPU, handing over the lock takes proportionally longer, so the limit on the
//! time without progress is multiplied by [`load_factor`]. A report that has made no progress for
//! [`MAX_SILENCE`] is hung in any case.
//!
//! A signal handler that only asks another thread to report has no reporting thread yet
//! ([`start_without_reporter`]). The interrupted thread goes on with other work, which is no
//! progress of the report.
//!
//! The handler can run on any thread, concurrently with the reporter. [`GENERATION`] is even while
//! the watchdog runs, and odd while it is paused or being restarted. Reporter: 1. makes the
//! generation odd; 2. changes the other variables, or writes its output; 3. makes the generation
//! even. Handler: 1. reads the generation, and returns if it is odd; 2. decides whether the report
//! hangs; 3. acts only if the generation is unchanged. So a late alarm neither judges a report by
//! half of its numbers nor restarts a paused watchdog.
//!
//! The handler itself never allocates and never takes a lock: it may interrupt any code.

use super::hook::Hook;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Time without progress after which a report hangs. Multiplied by [`load_factor`].
const SILENCE: Duration = Duration::from_secs(10);
/// Number of alarms without progress before which a report does not hang.
const MIN_IDLE_ALARMS: u32 = 10;
/// The load factor is the load average per CPU, divided by this.
const LOAD_PER_FACTOR: u64 = 2;
/// Maximum of the load factor.
const MAX_LOAD_FACTOR: u32 = 12;
/// Time without progress after which a report hangs on the busiest machine.
const MAX_SILENCE: Duration = Duration::from_secs(180);
/// CPU time that a report may use between two calls of [`restart`].
pub const REPORT_CPU_BUDGET: Duration = Duration::from_secs(10);
/// Minimum CPU time that counts as progress of the report.
const MIN_PROGRESS_NANOS: u64 = 2_000_000;
/// CPU time that does not count as progress, for each alarm since the last progress. The kernel
/// uses some on the reporting thread to deliver an alarm and to resume the interrupted wait.
const MAX_DELIVERY_NANOS: u64 = 200_000;
/// The process is short of CPU time if the kernel preempts its threads at least this often between
/// two alarms.
const LOST_CPUS_PER_ALARM: u64 = 5;

/// Even while the watchdog runs. See the top of this file.
static GENERATION: AtomicU32 = AtomicU32::new(1);
/// Thread id of the reporting thread; 0 if there is none yet.
static REPORTER: AtomicI32 = AtomicI32::new(0);
/// The fields of [`Progress`], each in an atomic.
static CPU_DEADLINE_NANOS: AtomicU64 = AtomicU64::new(0);
static LAST_CPU_NANOS: AtomicU64 = AtomicU64::new(0);
static IDLE_ALARMS: AtomicU32 = AtomicU32::new(0);
static PROGRESS_AT_NANOS: AtomicU64 = AtomicU64::new(0);
static PROCESS_RAN: AtomicU64 = AtomicU64::new(0);
static PROCESS_LOST_CPUS: AtomicU64 = AtomicU64::new(0);
/// CPU time that the handler has used on the reporting thread since the last [`restart`].
static HANDLER_NANOS: AtomicU64 = AtomicU64::new(0);
/// The function passed to [`start`].
static ON_HANG: Hook<OnHang> = Hook::new();

/// A function that ends the process. See [`start`].
pub type OnHang = fn() -> !;

/// Starts the watchdog. The calling thread is the reporter. `on_hang` must end the process; it is
/// called in a signal handler, on any thread.
pub fn start(on_hang: &'static OnHang) {
    install(on_hang);
    restart(REPORT_CPU_BUDGET);
}

/// Like [`start`], for a caller that asks another thread to report: that thread calls [`start`] or
/// [`restart`].
pub fn start_without_reporter(on_hang: &'static OnHang) {
    install(on_hang);
    restart_for(0, REPORT_CPU_BUDGET);
}

fn install(on_hang: &'static OnHang) {
    pause();
    ON_HANG.set(on_hang);
    // SAFETY: all-zero is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_alarm as extern "C" fn(i32) as usize;
    action.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: `on_alarm` follows the rules for signal handlers. Another handler may be replaced,
    // because the process is about to end.
    unsafe { libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()) };
    unblock_alarm();
}

/// Unblocks SIGALRM on the calling thread.
fn unblock_alarm() {
    // SAFETY: all-zero is a valid set.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: a valid set and signal.
    unsafe { libc::sigaddset(&raw mut set, libc::SIGALRM) };
    // SAFETY: a valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut()) };
}

/// Restarts the watchdog: the calling thread is the reporter, and may use `budget` of CPU time
/// before the next restart.
pub fn restart(budget: Duration) {
    // SAFETY: gettid has no precondition.
    restart_for(unsafe { libc::gettid() }, budget);
}

fn restart_for(reporter: libc::pid_t, budget: Duration) {
    pause();
    let used = thread_cpu_nanos(reporter).unwrap_or(0);
    REPORTER.store(reporter, Ordering::Relaxed);
    CPU_DEADLINE_NANOS.store(used.saturating_add(budget.as_nanos() as u64), Ordering::Relaxed);
    LAST_CPU_NANOS.store(used, Ordering::Relaxed);
    IDLE_ALARMS.store(0, Ordering::Relaxed);
    PROGRESS_AT_NANOS.store(now_nanos(), Ordering::Relaxed);
    HANDLER_NANOS.store(0, Ordering::Relaxed);
    let process = Process::now();
    PROCESS_RAN.store(process.ran, Ordering::Relaxed);
    PROCESS_LOST_CPUS.store(process.lost_cpus, Ordering::Relaxed);
    // PAIR watchdog-generation: publishes the variables above.
    GENERATION.fetch_add(1, Ordering::SeqCst);
    alarm(1);
}

/// Pauses the watchdog, for a write of the report: the process that reads the output may be slow.
pub fn pause() {
    // PAIR watchdog-generation: a handler that read another generation does nothing.
    GENERATION.fetch_or(1, Ordering::SeqCst);
    alarm(0);
}

fn alarm(seconds: u32) {
    // SAFETY: alarm has no precondition.
    unsafe { libc::alarm(seconds) };
}

/// Returns the CPU time that a thread of this process has used, in nanoseconds. Returns `None` if
/// the thread has ended, or if `thread` is 0.
pub fn thread_cpu_nanos(thread: libc::pid_t) -> Option<u64> {
    // The kernel's id of a thread's CPU-time clock: 4 selects the clock of one thread, 2 selects
    // the scheduler's measurement.
    let clock = (!thread << 3) | 6;
    clock_nanos(clock).filter(|_| thread != 0)
}

/// Returns the time of the clock that does not jump, in nanoseconds.
fn now_nanos() -> u64 {
    clock_nanos(libc::CLOCK_MONOTONIC).unwrap_or(0)
}

fn clock_nanos(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    let done = unsafe { libc::clock_gettime(clock, &raw mut time) } == 0;
    done.then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

extern "C" fn on_alarm(_signal: i32) {
    // SAFETY: errno always has an address.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: errno of the interrupted code.
    let before = unsafe { *errno };
    check_progress();
    // SAFETY: as above.
    unsafe { *errno = before };
}

fn check_progress() {
    // PAIR watchdog-generation: sees the variables of this generation.
    let generation = GENERATION.load(Ordering::SeqCst);
    if generation & 1 != 0 {
        return;
    }
    let reporter = REPORTER.load(Ordering::Relaxed);
    let began = thread_cpu_nanos(reporter).unwrap_or(0);
    let used = began.saturating_sub(HANDLER_NANOS.load(Ordering::Relaxed));
    let observed = Observed { at: now_nanos(), used, process: Process::now() };
    let load_factor = load_factor();
    let before = Progress {
        cpu_deadline_nanos: CPU_DEADLINE_NANOS.load(Ordering::Relaxed),
        last_cpu_nanos: LAST_CPU_NANOS.load(Ordering::Relaxed),
        idle_alarms: IDLE_ALARMS.load(Ordering::Relaxed),
        at: PROGRESS_AT_NANOS.load(Ordering::Relaxed),
        process: Process {
            ran: PROCESS_RAN.load(Ordering::Relaxed),
            lost_cpus: PROCESS_LOST_CPUS.load(Ordering::Relaxed),
        },
    };
    let now = before.after_alarm(observed);
    // PAIR watchdog-generation: all variables were read in one generation.
    if GENERATION.load(Ordering::SeqCst) != generation {
        return;
    }
    if let Some(on_hang) = ON_HANG.get().filter(|_| now.is_hung(observed, load_factor)) {
        on_hang();
    }
    LAST_CPU_NANOS.store(now.last_cpu_nanos, Ordering::Relaxed);
    IDLE_ALARMS.store(now.idle_alarms, Ordering::Relaxed);
    PROGRESS_AT_NANOS.store(now.at, Ordering::Relaxed);
    PROCESS_RAN.store(now.process.ran, Ordering::Relaxed);
    PROCESS_LOST_CPUS.store(now.process.lost_cpus, Ordering::Relaxed);
    alarm(1);
    // SAFETY: gettid has no precondition.
    if unsafe { libc::gettid() } == reporter {
        let ended = thread_cpu_nanos(reporter).unwrap_or(0);
        HANDLER_NANOS.fetch_add(ended.saturating_sub(began), Ordering::Relaxed);
    }
}

/// Returns the factor by which a busy machine extends [`SILENCE`], from 1 to
/// [`MAX_LOAD_FACTOR`]: the one-minute load average, divided by the number of CPUs that this thread
/// may use and by [`LOAD_PER_FACTOR`]. The load average is that of the whole machine, even in a
/// container.
fn load_factor() -> u32 {
    // SAFETY: all-zero is a valid record.
    let mut system: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: all-zero is a valid set.
    let mut cpus: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `system` is valid for writes.
    let is_known = unsafe { libc::sysinfo(&raw mut system) } == 0;
    // SAFETY: `cpus` is valid for writes of that size.
    let has_cpus = unsafe { libc::sched_getaffinity(0, size_of_val(&cpus), &raw mut cpus) } == 0;
    if !is_known || !has_cpus {
        return 1;
    }
    // SAFETY: a valid set.
    let cpus = unsafe { libc::CPU_COUNT(&cpus) }.max(1) as u64;
    let load = system.loads[0] >> libc::SI_LOAD_SHIFT;
    (load / (LOAD_PER_FACTOR * cpus)).clamp(1, u64::from(MAX_LOAD_FACTOR)) as u32
}

/// Resources that all threads of the process have used so far.
#[derive(Clone, Copy, Debug, Default)]
struct Process {
    /// CPU time, in nanoseconds.
    ran: u64,
    /// How often the kernel preempted a thread that could have continued.
    lost_cpus: u64,
}

impl Process {
    fn now() -> Process {
        // SAFETY: all-zero is a valid record.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is valid for writes.
        unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
        let nanos = |time: libc::timeval| {
            time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_usec.cast_unsigned() * 1000
        };
        let ran = nanos(usage.ru_utime) + nanos(usage.ru_stime);
        Process { ran, lost_cpus: usage.ru_nivcsw.cast_unsigned() }
    }
}

/// What the handler observes at an alarm. Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Observed {
    /// The time of the alarm.
    at: u64,
    /// CPU time that the report has used.
    used: u64,
    process: Process,
}

/// Progress of a report. Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// CPU time of the report at which the report hangs.
    cpu_deadline_nanos: u64,
    /// CPU time of the report at the last alarm that found progress.
    last_cpu_nanos: u64,
    /// The time of that alarm.
    at: u64,
    /// Resources that the process had used by that alarm.
    process: Process,
    /// Number of consecutive alarms without progress.
    idle_alarms: u32,
}

impl Progress {
    fn after_alarm(self, now: Observed) -> Progress {
        let delivered = u64::from(self.idle_alarms) * MAX_DELIVERY_NANOS;
        if now.used.saturating_sub(self.last_cpu_nanos) >= MIN_PROGRESS_NANOS + delivered {
            let Observed { at, used, process } = now;
            Progress { last_cpu_nanos: used, at, process, idle_alarms: 0, ..self }
        } else {
            Progress { idle_alarms: self.idle_alarms + 1, ..self }
        }
    }

    fn is_hung(self, now: Observed, load_factor: u32) -> bool {
        let silence = Duration::from_nanos(now.at.saturating_sub(self.at));
        let is_silent = self.idle_alarms >= MIN_IDLE_ALARMS && silence >= SILENCE * load_factor;
        let lost_cpus = now.process.lost_cpus.saturating_sub(self.process.lost_cpus);
        let is_starved = lost_cpus >= u64::from(self.idle_alarms) * LOST_CPUS_PER_ALARM;
        let ran = Duration::from_nanos(now.process.ran.saturating_sub(self.process.ran));
        let may_wait_longer = is_starved && ran < REPORT_CPU_BUDGET && silence < MAX_SILENCE;
        now.used >= self.cpu_deadline_nanos || (is_silent && !may_wait_longer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: u64 = 1_000_000;

    /// Returns the second in which a report hangs that gets `nanos` of CPU time per second, in a
    /// process that uses `process` per second. Returns `None` if the report does not hang within
    /// `seconds`. An alarm arrives each second.
    fn hangs_at(seconds: u64, nanos: u64, process: Process) -> Option<u64> {
        hangs_at_load(1, seconds, nanos, process)
    }

    fn hangs_at_load(load: u32, seconds: u64, nanos: u64, process: Process) -> Option<u64> {
        hangs_with_alarms(1..=seconds, load, nanos, process)
    }

    /// Like [`hangs_at`], with alarms in these seconds only.
    fn hangs_with_alarms(
        mut alarms: impl Iterator<Item = u64>,
        load_factor: u32,
        nanos: u64,
        process: Process,
    ) -> Option<u64> {
        let mut progress = Progress {
            cpu_deadline_nanos: REPORT_CPU_BUDGET.as_nanos() as u64,
            last_cpu_nanos: 0,
            at: 0,
            process: Process::default(),
            idle_alarms: 0,
        };
        alarms.find(|second| {
            let lost_cpus = second * process.lost_cpus;
            let now = Observed {
                at: second * 1000 * MILLI,
                used: second * nanos,
                process: Process { ran: second * process.ran, lost_cpus },
            };
            progress = progress.after_alarm(now);
            progress.is_hung(now, load_factor)
        })
    }

    const IDLE: Process = Process { ran: MILLI, lost_cpus: 0 };

    #[test]
    fn a_report_that_gets_a_small_share_of_the_machine_is_not_cut_short() {
        assert_eq!(hangs_at(300, 20 * MILLI, IDLE), None);
        assert_eq!(hangs_at(300, MILLI, IDLE), None, "2 ms in two seconds");
    }

    #[test]
    fn a_report_that_does_not_run_hangs() {
        assert_eq!(hangs_at(300, 0, IDLE), Some(SILENCE.as_secs()));
        let only_the_alarms = hangs_at(300, 50_000, IDLE);
        assert_eq!(only_the_alarms, Some(SILENCE.as_secs()));
        // On a busy machine there are more alarms before the report hangs. The time that their
        // delivery takes does not add up to progress.
        let only_the_alarms = hangs_at_load(MAX_LOAD_FACTOR, 300, 100_000, IDLE);
        assert_eq!(only_the_alarms, Some(u64::from(MAX_LOAD_FACTOR) * SILENCE.as_secs()));
        // The other threads run and are rarely preempted: there is a CPU for the thread that holds
        // the lock.
        let busy = Process { ran: 1000 * MILLI, lost_cpus: 1 };
        assert_eq!(hangs_at(300, 0, busy), Some(SILENCE.as_secs()));
    }

    #[test]
    fn a_report_on_a_busy_machine_has_more_time_to_get_a_lock() {
        assert_eq!(hangs_at_load(3, 300, 0, IDLE), Some(3 * SILENCE.as_secs()));
        // On a busy machine alarms arrive late. That does not extend the time once more.
        let every_fourth_second = (4..300).step_by(4);
        let hangs_at = hangs_with_alarms(every_fourth_second, 6, 0, IDLE);
        assert_eq!(hangs_at, Some(6 * SILENCE.as_secs()));
        assert!((1..=MAX_LOAD_FACTOR).contains(&load_factor()));
    }

    #[test]
    fn a_report_is_not_cut_short_because_the_whole_process_was_stopped() {
        let stopped_for_an_hour = (1..=5).chain(3600..3700);
        let hangs_at = hangs_with_alarms(stopped_for_an_hour, 1, 0, IDLE);
        assert_eq!(hangs_at, Some(3600 + u64::from(MIN_IDLE_ALARMS) - 5 - 1));
    }

    #[test]
    fn a_report_has_more_time_if_the_other_threads_get_a_small_share_of_the_machine() {
        let starved = Process { ran: 100 * MILLI, lost_cpus: 20 };
        assert_eq!(hangs_at(1000, 0, starved), Some(100));
        let gets_nearly_nothing = Process { ran: MILLI, lost_cpus: 20 };
        assert_eq!(hangs_at(1000, 0, gets_nearly_nothing), Some(MAX_SILENCE.as_secs()));
        let crowded = Process { ran: 2000 * MILLI, lost_cpus: 500 };
        assert_eq!(hangs_at(1000, 0, crowded), Some(SILENCE.as_secs()));
    }

    /// The handler runs on the reporting thread, which does nothing else. 1500 alarms together use
    /// more CPU time than [`MIN_PROGRESS_NANOS`].
    #[test]
    fn an_alarm_on_the_reporting_thread_is_not_progress_of_the_report() {
        const ALARMS: u32 = 1500;
        start(&((|| unreachable!("`ON_HANG` is empty")) as OnHang));
        ON_HANG.take();
        // The test calls the handler itself. An alarm of the timer would run it on another thread.
        // SAFETY: an ignored signal calls no handler.
        unsafe { libc::signal(libc::SIGALRM, libc::SIG_IGN) };
        let before = thread_cpu_nanos(REPORTER.load(Ordering::Relaxed)).unwrap();
        (0..ALARMS).for_each(|_| on_alarm(libc::SIGALRM));
        let used = thread_cpu_nanos(REPORTER.load(Ordering::Relaxed)).unwrap() - before;
        let idle_alarms = IDLE_ALARMS.load(Ordering::Relaxed);
        pause();
        assert!(used > MIN_PROGRESS_NANOS, "{used} ns");
        assert_eq!(idle_alarms, ALARMS, "no alarm found progress");
    }

    #[test]
    fn a_report_that_uses_its_cpu_budget_without_output_hangs() {
        assert_eq!(hangs_at(300, 1000 * MILLI, IDLE), Some(REPORT_CPU_BUDGET.as_secs()));
    }
}
