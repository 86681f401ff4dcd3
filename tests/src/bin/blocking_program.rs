//! Programs that block threads, for the suites `blocking_calls` and `sched_idle` and the bench
//! `limits`. Each program is a separate process, because it tests the Ps and threads of a whole
//! process. An alarm ends a program that hangs.

use gosched::sync::WaitGroup;
use gosched::{
    __rules as rules, blocking, blocking_now, chan, go, goexit, lock_os_thread, run, runtime,
    unlock_os_thread, yield_now,
};
use gosched_tests::refuse;
use gosched_tests::wait::{CHILD_LIMIT, LIMIT, until};
use std::ffi::CString;
use std::io::{self, ErrorKind, PipeReader, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

const MILLI: Duration = Duration::from_millis(1);

fn main() {
    end_if_it_hangs();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize| arguments.get(at).map_or("", String::as_str);
    match argument(0) {
        "share" => run(|| share(Mode::of(argument(1)))),
        "thousand" => thousand(argument(1), Mode::of(argument(2)), argument(3) == "gone"),
        "std mutex" => run(std_mutex),
        "resize" => run(resize),
        "ends" => run(ends),
        "quick" => run(quick),
        "comes back" => run(comes_back),
        "limit" => limit(),
        "load" => run(load),
        "affinity" => run(affinity),
        "timer" => run(|| {
            timer_beside_a_call();
            println!("fired");
        }),
        "lateness" => run(lateness),
        "naps" => run(naps),
        "longest wait" => run(longest_wait),
        "trace" => run(until_input_ends),
        "watcher" => run(|| sysmon_cost(argument(1).parse().unwrap())),
        "fork" => run(fork),
        "no threads for locked ones" => run(no_threads_for_locked_ones),
        "no thread for a timer" => run(no_thread_for_a_timer),
        other => panic!("no program {other}"),
    }
}

/// Ends the process if it hangs. A child of `fork` does not inherit its parent's alarm, so each
/// process calls this.
fn end_if_it_hangs() {
    // SAFETY: installs no handler; the signal ends the process.
    unsafe { libc::alarm(CHILD_LIMIT.as_secs() as u32) };
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Raw,
    Marked,
    Now,
}

impl Mode {
    fn of(name: &str) -> Mode {
        match name {
            "marked" => Mode::Marked,
            "now" => Mode::Now,
            _ => Mode::Raw,
        }
    }

    fn call<R>(self, f: impl FnOnce() -> R) -> R {
        match self {
            Mode::Raw => f(),
            Mode::Marked => blocking(f),
            Mode::Now => blocking_now(f),
        }
    }
}

/// Yields repeatedly for `time`.
fn spin_for(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        yield_now();
    }
}

/// Blocks its thread until a byte arrives. A goroutine that runs during the call sends the byte: if
/// none arrives within the limit, no goroutine could run. A signal that preempts the caller just
/// before the call interrupts the call, because `poll` is a system call that is not restarted.
fn wait_for_byte(mut reader: &PipeReader) {
    let mut wanted = libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut ready = -1;
    for _ in 0..3 {
        // SAFETY: one open descriptor.
        ready = unsafe { libc::poll(&raw mut wanted, 1, LIMIT.as_millis() as i32) };
        if ready != -1 || io::Error::last_os_error().kind() != ErrorKind::Interrupted {
            break;
        }
    }
    assert_eq!(ready, 1, "no other goroutine ran during the call");
    reader.read_exact(&mut [0]).unwrap();
}

/// A goroutine blocks repeatedly. Main must run during each call, which lasts until main writes a
/// byte.
fn share(mode: Mode) {
    const CALLS: usize = 10;
    let call = Arc::new(AtomicUsize::new(0));
    let its_call = call.clone();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let blocker = go(move || {
        for number in 1..=CALLS {
            its_call.store(number, SeqCst);
            mode.call(|| wait_for_byte(&reader));
            its_call.store(0, SeqCst);
            yield_now();
        }
    });
    let mut seen = [0u64; CALLS + 1];
    let (mut last, mut since) = (0, Instant::now());
    while !blocker.is_finished() {
        let number = call.load(SeqCst);
        seen[number] += 1;
        if number > last && seen[number] == 1 {
            since = Instant::now();
        }
        // By now the call has certainly begun.
        if number > last && since.elapsed() >= 30 * MILLI {
            writer.write_all(&[0]).unwrap();
            last = number;
        }
        yield_now();
    }
    blocker.join().unwrap();
    let least = seen[1..].iter().min().unwrap();
    println!("least {least} hand-offs {:?}", rules::hand_offs());
}

/// A thousand goroutines block at once, other goroutines make progress, and all calls return. With
/// `gone`, waits until their threads have exited.
fn thousand(kind: &str, mode: Mode, gone: bool) {
    const COUNT: usize = 1000;
    let kind = kind.to_owned();
    run(move || {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let mutex = Arc::new(Mutex::new(()));
        let path = std::env::temp_dir().join(format!("gosched-fifo-{}", std::process::id()));
        let name = CString::new(path.to_str().unwrap()).unwrap();
        // Left by a process with the same id that was killed.
        let _ = std::fs::remove_file(&path);
        // SAFETY: a C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let lock = std::env::temp_dir().join(format!("gosched-lock-{}", std::process::id()));
        let holder = std::fs::File::create(&lock).unwrap();
        holder.lock().unwrap();
        let held = mutex.lock().unwrap();
        let (begun, over) = (Arc::new(AtomicUsize::new(0)), WaitGroup::new());
        for _ in 0..COUNT {
            let (kind, begun, mutex) = (kind.clone(), begun.clone(), mutex.clone());
            let (path, lock) = (path.clone(), lock.clone());
            let descriptor = reader.as_raw_fd();
            over.go(move || {
                begun.fetch_add(1, SeqCst);
                mode.call(|| match kind.as_str() {
                    "pipe" => {
                        let mut byte = 0u8;
                        // SAFETY: one byte; the pipe outlives all readers.
                        let read = unsafe { libc::read(descriptor, (&raw mut byte).cast(), 1) };
                        assert_eq!(read, 1);
                    }
                    "futex" => drop(mutex.lock().unwrap()),
                    "flock" => {
                        let file = std::fs::File::open(&lock).unwrap();
                        file.lock().unwrap();
                    }
                    "fifo" => drop(std::fs::File::open(&path).unwrap()),
                    other => panic!("no kind {other}"),
                });
            });
        }
        // Timers make progress beside the blocked goroutines, then channels do.
        let (tx, rx) = chan::<u32>(0);
        while begun.load(SeqCst) < COUNT {
            gosched::time::sleep(MILLI);
        }
        until("each of them has a thread", || runtime::num_threads() >= COUNT);
        let echo = go(move || rx.iter().sum::<u32>());
        (0..1000).for_each(|_| tx.send(1).unwrap());
        drop(tx);
        assert_eq!(echo.join().unwrap(), 1000);
        println!("blocked {}", runtime::num_threads());
        drop(held);
        drop(holder);
        writer.write_all(&[0; COUNT]).unwrap();
        let opener = (kind == "fifo").then(|| std::fs::File::create(&path).unwrap());
        over.wait();
        drop((opener, writer));
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        let _ = (std::fs::remove_file(&path), std::fs::remove_file(&lock));
    });
    if gone {
        until("the threads are gone", || runtime::num_threads() <= 8);
        println!("gone");
    }
    println!("all back");
}

/// A mutex of std's, held across blocking calls and yields, with many goroutines that block on it.
fn std_mutex() {
    let mutex = Arc::new(Mutex::new(0));
    let all = WaitGroup::new();
    for number in 0..65 {
        let mutex = mutex.clone();
        all.go(move || {
            for _ in 0..3 {
                let mut guard = mutex.lock().unwrap();
                *guard += 1;
                match number % 4 {
                    0 => sleep(MILLI),
                    1 => yield_now(),
                    2 => gosched::time::sleep(MILLI / 2),
                    _ => {}
                }
            }
        });
    }
    all.wait();
    println!("total {}", mutex.lock().unwrap());
}

/// Blocking calls while the number of Ps changes and the world stops.
fn resize() {
    let stop = Arc::new(AtomicBool::new(false));
    let calls = Arc::new(AtomicU64::new(0));
    let all = WaitGroup::new();
    for number in 0..12u32 {
        let (stop, calls) = (stop.clone(), calls.clone());
        all.go(move || {
            while !stop.load(SeqCst) {
                match number % 3 {
                    0 => sleep(MILLI / 2),
                    1 => blocking(|| sleep(MILLI / 2)),
                    _ => blocking_now(|| sleep(MILLI / 2)),
                }
                calls.fetch_add(1, SeqCst);
                yield_now();
            }
        });
    }
    let mut round = 0;
    until("there were many rounds and calls", || {
        runtime::set_procs(1 + round % 5);
        rules::with_world_stopped(|| ());
        round += 1;
        round >= 200 && calls.load(SeqCst) > 100
    });
    stop.store(true, SeqCst);
    all.wait();
    all_others_end();
}

/// Waits until all other goroutines have ended: a goroutine that was joined, or reported that it is
/// done, may have a few instructions left.
fn all_others_end() {
    until("all others have ended", || runtime::num_goroutines() == 1);
    println!("all ended");
}

/// Blocking calls that end in every possible way.
fn ends() {
    let panics = go(|| blocking(|| -> () { panic!("on purpose: in a call") }));
    assert!(panics.join().unwrap_err().is_panic());
    let panics = go(|| blocking_now(|| -> () { panic!("on purpose: in a long call") }));
    assert!(panics.join().unwrap_err().is_panic());
    let exits = go(|| {
        blocking(|| {
            sleep(5 * MILLI);
            goexit();
        })
    });
    assert!(exits.join().unwrap_err().is_goexit());
    let exits = go(|| blocking_now(|| goexit()));
    assert!(exits.join().unwrap_err().is_goexit());
    // A goroutine that enters the runtime inside a blocking call leaves the call.
    let (tx, rx) = chan::<u32>(0);
    let inside = go(move || blocking_now(|| blocking(|| rx.iter().sum::<u32>())));
    (0..10).for_each(|number| tx.send(number).unwrap());
    drop(tx);
    assert_eq!(inside.join().unwrap(), 45);
    // A locked goroutine keeps its thread.
    let locked: Vec<_> = (0..4)
        .map(|number| {
            go(move || {
                lock_os_thread();
                let thread = gosched::host(|| std::thread::current().id());
                for _ in 0..20 {
                    match number % 3 {
                        0 => sleep(MILLI),
                        1 => blocking(|| sleep(MILLI)),
                        _ => blocking_now(|| sleep(MILLI)),
                    }
                    yield_now();
                    assert_eq!(gosched::host(|| std::thread::current().id()), thread);
                }
                unlock_os_thread();
            })
        })
        .collect();
    locked.into_iter().for_each(|locked| locked.join().unwrap());
    let inside_host = go(|| blocking(|| gosched::host(|| sleep(5 * MILLI))));
    inside_host.join().unwrap();
    all_others_end();
}

/// Short calls keep their P and their thread.
fn quick() {
    const CALLS: u64 = 100_000;
    let other = go(|| spin_for(MILLI));
    let thread = || gosched::host(|| std::thread::current().id());
    let before = thread();
    for _ in 0..CALLS {
        blocking(|| std::hint::black_box(1));
    }
    let threads = runtime::num_threads();
    other.join().unwrap();
    let (marked, _) = rules::hand_offs();
    println!("taken {marked} of {CALLS} threads {threads} same {}", before == thread());
}

/// A goroutine that returns from a call continues at once if a P is idle, and otherwise not before
/// it gets a P.
fn comes_back() {
    let back = Arc::new(AtomicBool::new(false));
    let its_back = back.clone();
    let caller = go(move || {
        blocking_now(|| sleep(5 * MILLI));
        its_back.store(true, SeqCst);
    });
    yield_now();
    // The only P is busy, and its goroutine cannot be preempted.
    let is_early = || {
        runtime::no_preempt(|| {
            let (start, before) = (Instant::now(), back.load(SeqCst));
            while start.elapsed() < 60 * MILLI {
                std::hint::spin_loop();
            }
            back.load(SeqCst) != before
        })
    };
    let mut early = is_early();
    yield_now();
    // On a busy machine the thread of the call may not have had a CPU yet.
    let deadline = Instant::now() + LIMIT;
    while !back.load(SeqCst) && Instant::now() < deadline {
        early |= is_early();
        yield_now();
    }
    let then = back.load(SeqCst);
    caller.join().unwrap();
    // Without competing goroutines, an idle P is available when the call returns.
    blocking_now(|| sleep(MILLI));
    println!("early {early} then {then}");
}

/// Blocking calls need more threads than allowed.
fn limit() {
    assert_eq!(runtime::set_max_threads(20), 10_000);
    run(|| {
        for _ in 0..100 {
            go(|| blocking_now(|| sleep(CHILD_LIMIT)));
        }
        gosched::time::sleep(LIMIT);
    });
}

/// The runtime never takes goroutines that compute for blocked, however rarely they get a CPU.
fn load() {
    let all = WaitGroup::new();
    for _ in 0..runtime::procs() {
        all.go(|| {
            let start = Instant::now();
            while start.elapsed() < 1000 * MILLI {
                (0..10_000).for_each(|number| _ = std::hint::black_box(number));
            }
        });
    }
    all.wait();
    println!("unmarked {}", rules::hand_offs().1);
}

/// The number of Ps follows the CPUs that the process may use.
fn affinity() {
    fn allow(set: &libc::cpu_set_t) {
        for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
            let id: i32 = task.file_name().to_str().unwrap().parse().unwrap();
            // SAFETY: a valid set.
            unsafe { libc::sched_setaffinity(id, size_of_val(set), set) };
        }
    }
    let becomes = |procs: usize| {
        // Threads that start meanwhile inherit the CPU set of the thread that starts them.
        until("the number of Ps follows", || runtime::procs() == procs);
        runtime::procs()
    };
    // SAFETY: all-zero sets contain no CPUs.
    let (mut all, mut first): (libc::cpu_set_t, libc::cpu_set_t) = unsafe { std::mem::zeroed() };
    // SAFETY: valid for writes.
    assert_eq!(unsafe { libc::sched_getaffinity(0, size_of_val(&all), &mut all) }, 0);
    // SAFETY: numbers inside the set.
    let cpu = (0..libc::CPU_SETSIZE as usize).find(|&cpu| unsafe { libc::CPU_ISSET(cpu, &all) });
    // SAFETY: as above.
    unsafe { libc::CPU_SET(cpu.unwrap(), &mut first) };
    let before = runtime::procs();
    allow(&first);
    let one = becomes(1);
    allow(&all);
    println!("before {before} one {one} again {}", becomes(before));
}

static OVER: AtomicBool = AtomicBool::new(false);

/// Sleeps for 50 µs repeatedly, without entering the runtime, until the program is over.
fn nap() {
    while !OVER.load(SeqCst) {
        sleep(MILLI / 20);
    }
}

const NAPPING: usize = 20;

/// A goroutine makes progress beside goroutines that nap.
fn naps() {
    let napping: Vec<_> = (0..NAPPING).map(|_| go(nap)).collect();
    (0..100).for_each(|_| yield_now());
    OVER.store(true, SeqCst);
    napping.into_iter().for_each(|nap| nap.join().unwrap());
    println!("went on");
}

/// Returns the longest time between two turns of a caller that yields for 1.5 s, in microseconds.
fn longest_gap(yields: fn()) -> u128 {
    let (start, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
    while start.elapsed() < 1500 * MILLI {
        yields();
        longest = longest.max(last.elapsed());
        last = Instant::now();
    }
    longest.as_micros()
}

/// Prints the longest wait of a goroutine beside goroutines that nap, and of a thread beside
/// threads that nap.
fn longest_wait() {
    let threads: Vec<_> = (0..NAPPING).map(|_| std::thread::spawn(nap)).collect();
    let control = std::thread::spawn(|| longest_gap(std::thread::yield_now));
    let napping: Vec<_> = (0..NAPPING).map(|_| go(nap)).collect();
    let ours = longest_gap(yield_now);
    let control = gosched::host(|| control.join().unwrap());
    OVER.store(true, SeqCst);
    napping.into_iter().for_each(|nap| nap.join().unwrap());
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    println!("ours {ours} control {control}");
}

/// A timer fires while a goroutine blocks the only P; the call ends after that. Returns how long
/// the timer took.
fn timer_beside_a_call() -> Duration {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let blocked = go(move || wait_for_byte(&reader));
    yield_now();
    let start = Instant::now();
    gosched::time::sleep(5 * MILLI);
    let took = start.elapsed();
    writer.write_all(&[0]).unwrap();
    blocked.join().unwrap();
    took
}

/// Returns the third longest of 60 measurements, in microseconds.
fn longest_but_two(f: impl Fn() -> Duration) -> u128 {
    let mut all: Vec<Duration> = (0..60).map(|_| f()).collect();
    all.sort_unstable();
    all[all.len() - 3].as_micros()
}

fn time_of(f: impl FnOnce()) -> Duration {
    let start = Instant::now();
    f();
    start.elapsed()
}

/// Prints how long timers of 5 ms take beside a call that blocks the only P, and how long calls
/// that sleep for 1 ms take. The controls are sleeps of threads at the same time.
fn lateness() {
    let control = std::thread::spawn(|| {
        [5, 1].map(|millis| longest_but_two(|| time_of(|| sleep(millis * MILLI))))
    });
    let timer = longest_but_two(timer_beside_a_call);
    let call = longest_but_two(|| time_of(|| blocking_now(|| sleep(MILLI))));
    let [timer_of_threads, call_of_threads] = gosched::host(|| control.join().unwrap());
    println!("timer {timer} control {timer_of_threads} call {call} control {call_of_threads}");
}

/// Goroutines yield until the parent process closes standard input.
fn until_input_ends() {
    go(|| {
        while !OVER.load(SeqCst) {
            yield_now();
        }
    });
    assert_eq!(blocking(|| io::stdin().read(&mut [0])).unwrap(), 0);
    OVER.store(true, SeqCst);
}

/// Returns what the thread with this name has used: CPU time in nanoseconds, and how often it was
/// scheduled.
fn used_by(name: &str) -> [u64; 2] {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let found = tasks.into_iter().find_map(|task| {
        let its_name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let stat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        let mut numbers = stat.split_whitespace().map(|number| number.parse().unwrap());
        (its_name.trim() == name).then(|| [numbers.next().unwrap(), numbers.nth(1).unwrap()])
    });
    found.unwrap_or_else(|| panic!("no thread {name}"))
}

/// Prints how often per second sysmon wakes up beside goroutines that yield, and the CPU time per
/// wake-up in nanoseconds. The control is a thread that sleeps for a millisecond each time.
fn sysmon_cost(millis: u32) {
    let sleeper = std::thread::Builder::new().name("sleeper".into()).spawn(|| {
        // SAFETY: only changes the timer slack of this thread.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
        while !OVER.load(SeqCst) {
            sleep(MILLI);
        }
    });
    let others: Vec<_> = (0..4)
        .map(|_| {
            go(|| {
                while !OVER.load(SeqCst) {
                    yield_now();
                }
            })
        })
        .collect();
    spin_for(200 * MILLI);
    let used = || ["gosched-sysmon", "sleeper"].map(used_by);
    let (before, start) = (used(), Instant::now());
    spin_for(millis * MILLI);
    let (after, seconds) = (used(), start.elapsed().as_secs_f64());
    let [(looks, cost), (sleeps, sleep_cost)] = [0, 1].map(|at| {
        let [time, times] = [0, 1].map(|part| (after[at][part] - before[at][part]) as f64);
        (times / seconds, time / times.max(1.0))
    });
    println!("looks {looks:.0} control {sleeps:.0} cost {cost:.0} control {sleep_cost:.0}");
    OVER.store(true, SeqCst);
    sleeper.unwrap().join().unwrap();
    others.into_iter().for_each(|other| other.join().unwrap());
}

/// Goroutines fork in calls that have lost their P, and the children continue.
fn fork() {
    /// Returns the child's id in the parent, and 0 in the child.
    fn forked() -> i32 {
        // SAFETY: the child only uses a channel and a mutex without blocking, and exits.
        unsafe { libc::fork() }
    }
    let stop = Arc::new(AtomicBool::new(false));
    let its_stop = stop.clone();
    let other = go(move || {
        while !its_stop.load(SeqCst) {
            yield_now();
        }
    });
    let shared = Arc::new(gosched::sync::Mutex::new(()));
    let held = shared.lock();
    let its_shared = shared.clone();
    let waiter = go(move || drop(its_shared.lock()));
    let calls: [fn() -> i32; 3] = [
        || {
            blocking_now(|| {
                sleep(20 * MILLI);
                forked()
            })
        },
        || {
            blocking(|| {
                sleep(20 * MILLI);
                forked()
            })
        },
        || {
            sleep(50 * MILLI);
            forked()
        },
    ];
    for call in calls {
        let child = call();
        if child == 0 {
            end_if_it_hangs();
            let (tx, rx) = chan::<u32>(1);
            let ok = tx.try_send(1).is_ok() && rx.try_recv() == Ok(1);
            drop(held); // the waiter exists only in the parent
            let ok = ok && (0..3).all(|_| shared.try_lock().is_some());
            drop(shared.lock());
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(if ok { 7 } else { 8 }) };
        }
        let mut status = 0;
        // SAFETY: a child of this process.
        blocking(|| unsafe { libc::waitpid(child, &raw mut status, 0) });
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status}");
    }
    drop(held);
    waiter.join().unwrap();
    stop.store(true, SeqCst);
    other.join().unwrap();
    println!("all children came back");
}

/// More goroutines are locked to threads than the system allows threads, while the lock of standard
/// error is held.
fn no_threads_for_locked_ones() {
    static START: AtomicBool = AtomicBool::new(false);
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    let locked: Vec<_> = (0..20)
        .map(|_| {
            go(|| {
                BEGUN.fetch_add(1, SeqCst);
                while !START.load(SeqCst) {
                    yield_now();
                }
                lock_os_thread();
                (0..20).for_each(|_| yield_now());
                unlock_os_thread();
            })
        })
        .collect();
    // No goroutine waits for its first turn: when threads are refused, each calls `lock_os_thread`
    // at once.
    while BEGUN.load(SeqCst) < 20 {
        yield_now();
    }
    let mut held = std::io::stderr().lock();
    refuse::more_threads();
    assert!(std::thread::Builder::new().spawn(|| ()).is_err(), "the limit is in force");
    START.store(true, SeqCst);
    locked.into_iter().for_each(|handle| handle.join().unwrap());
    writeln!(held, "all joined").unwrap();
}

/// Returns how many threads run goroutines.
fn num_ms() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
    names.filter(|name| name.as_ref().is_ok_and(|name| name.starts_with("gosched-m"))).count()
}

/// A timer is due while a P is idle, but every thread that could take the P is locked to a
/// goroutine that waits, except the thread of main, which computes. The system refuses more
/// threads.
fn no_thread_for_a_timer() {
    sleep(50 * MILLI);
    refuse::more_threads();
    let lockers = num_ms() - 1;
    let locked = Arc::new(AtomicUsize::new(0));
    let (end, ended) = chan::<()>(0);
    for _ in 0..lockers {
        let (locked, ended) = (locked.clone(), ended.clone());
        go(move || {
            lock_os_thread();
            locked.fetch_add(1, SeqCst);
            let _ = ended.recv();
        });
    }
    while locked.load(SeqCst) < lockers {
        yield_now();
    }
    let fired = Arc::new(AtomicBool::new(false));
    let its_fired = fired.clone();
    go(move || {
        gosched::time::sleep(20 * MILLI);
        its_fired.store(true, SeqCst);
    });
    (0..1000).for_each(|_| yield_now());
    while !fired.load(SeqCst) {
        std::hint::spin_loop();
    }
    println!("the timer fired");
    drop(end);
}
