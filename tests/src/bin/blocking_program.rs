//! Programs that block threads, for the suite `blocking`: each a process of its own, since it is about the
//! whole process's Ps and threads.

use gosched::sync::WaitGroup;
use gosched::{
    __rules as rules, blocking, blocking_now, chan, go, goexit, lock_os_thread, run, runtime,
    unlock_os_thread, yield_now,
};
use gosched_tests as _;
use std::ffi::CString;
use std::io::{PipeReader, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

const MILLI: Duration = Duration::from_millis(1);

fn main() {
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
        "timer" => run(timer),
        "naps" => run(naps),
        "trace" => run(|| spin_for(400 * MILLI)),
        "watcher" => run(watcher),
        "fork" => run(fork),
        other => panic!("no program {other}"),
    }
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

/// Lets others run, for so long.
fn spin_for(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        yield_now();
    }
}

/// Blocks its thread until there is something to read, for ten seconds at most.
fn wait_for_byte(mut reader: &PipeReader) {
    let mut wanted = libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor, which is open.
    if unsafe { libc::poll(&raw mut wanted, 1, 10_000) } == 1 {
        reader.read_exact(&mut [0]).unwrap();
    }
}

/// One goroutine blocks again and again; the other must go on during each call, which lasts until it did.
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
        // Not before the call has begun, for sure.
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

/// A thousand block at once; others go on; all come back. `gone`: and their threads go.
fn thousand(kind: &str, mode: Mode, gone: bool) {
    const COUNT: usize = 1000;
    let kind = kind.to_owned();
    run(move || {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let mutex = Arc::new(Mutex::new(()));
        let path = std::env::temp_dir().join(format!("gosched-fifo-{}", std::process::id()));
        let name = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a path that ends in a zero byte.
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
        // All are blocked, or about to be; channels and timers go on beside them.
        let (tx, rx) = chan::<u32>(0);
        while begun.load(SeqCst) < COUNT {
            gosched::time::sleep(MILLI);
        }
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
        let start = Instant::now();
        while runtime::num_threads() > 8 && start.elapsed() < Duration::from_secs(20) {
            sleep(100 * MILLI);
        }
        println!("gone {}", runtime::num_threads());
    }
    println!("all back");
}

/// A lock of std's, held across blocking and across yields, with many who block on it.
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

/// Calls while the number of Ps changes and the world stops.
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
    for round in 0..200 {
        runtime::set_procs(1 + round % 5);
        rules::with_world_stopped(|| ());
        gosched::time::sleep(MILLI);
    }
    stop.store(true, SeqCst);
    all.wait();
    assert!(calls.load(SeqCst) > 100);
    // Those that have said that they are done are about to end.
    let start = Instant::now();
    while runtime::num_goroutines() > 1 && start.elapsed() < Duration::from_secs(10) {
        yield_now();
    }
    println!("goroutines {}", runtime::num_goroutines());
}

/// Calls that end in every way.
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
    // What comes into the runtime inside is not in a call any more.
    let (tx, rx) = chan::<u32>(0);
    let inside = go(move || blocking_now(|| blocking(|| rx.iter().sum::<u32>())));
    (0..10).for_each(|number| tx.send(number).unwrap());
    drop(tx);
    assert_eq!(inside.join().unwrap(), 45);
    // A thread that is the goroutine's own stays so.
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
    println!("goroutines {}", runtime::num_goroutines());
}

/// Short calls keep their P, and their thread.
fn quick() {
    const CALLS: u64 = 100_000;
    let other = go(|| spin_for(MILLI));
    let thread = || gosched::host(|| std::thread::current().id());
    let before = thread();
    for _ in 0..CALLS {
        blocking(|| std::hint::black_box(1));
    }
    assert!(runtime::num_threads() < 20, "threads come and go with each call");
    other.join().unwrap();
    let (marked, _) = rules::hand_offs();
    println!("taken {marked} of {CALLS}, same thread {}", before == thread());
}

/// After a call a goroutine goes on at once if there is a P, and not before there is one.
fn comes_back() {
    let back = Arc::new(AtomicBool::new(false));
    let its_back = back.clone();
    let caller = go(move || {
        blocking_now(|| sleep(5 * MILLI));
        its_back.store(true, SeqCst);
    });
    yield_now();
    // The only P is busy, and its goroutine does not give it away.
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
    // On a busy machine its thread may have had no CPU yet.
    for _ in 0..50 {
        if back.load(SeqCst) {
            break;
        }
        early |= is_early();
        yield_now();
    }
    let then = back.load(SeqCst);
    caller.join().unwrap();
    // Nobody else: an idle P is there when the call is over.
    let alone = in_time(500 * MILLI, || blocking_now(|| sleep(MILLI)));
    println!("early {early} then {then} alone {alone}");
}

/// Whether it ends within this time; it may be late a few times, for the machine may be busy.
fn in_time(limit: Duration, f: impl Fn()) -> bool {
    (0..5).any(|_| {
        let start = Instant::now();
        f();
        start.elapsed() < limit
    })
}

/// More threads than allowed.
fn limit() {
    assert_eq!(runtime::set_max_threads(20), 10_000);
    run(|| {
        for _ in 0..100 {
            go(|| blocking_now(|| sleep(60_000 * MILLI)));
        }
        gosched::time::sleep(30_000 * MILLI);
    });
}

/// Goroutines that compute are never taken for blocked, however seldom they get a CPU.
fn load() {
    let all = WaitGroup::new();
    for _ in 0..runtime::procs() {
        all.go(|| {
            let start = Instant::now();
            while start.elapsed() < 2000 * MILLI {
                (0..10_000).for_each(|number| _ = std::hint::black_box(number));
            }
        });
    }
    all.wait();
    println!("unmarked {}", rules::hand_offs().1);
}

/// The number of Ps follows the CPUs that the process may use.
fn affinity() {
    fn allow(cpus: &[usize]) {
        // SAFETY: a set of no CPUs.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: small numbers.
        cpus.iter().for_each(|&cpu| unsafe { libc::CPU_SET(cpu, &mut set) });
        for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
            let id: i32 = task.file_name().to_str().unwrap().parse().unwrap();
            // SAFETY: a valid set.
            unsafe { libc::sched_setaffinity(id, size_of_val(&set), &set) };
        }
    }
    let becomes = |procs: usize| {
        let start = Instant::now();
        while runtime::procs() != procs && start.elapsed() < Duration::from_secs(10) {
            yield_now();
        }
        runtime::procs()
    };
    let before = runtime::procs();
    allow(&[0]);
    let one = becomes(1);
    allow(&(0..before).collect::<Vec<_>>());
    println!("before {before} one {one} again {}", becomes(before));
}

/// Goroutines that never come into the runtime, and sleep for some microseconds at a time: how long another waits.
fn naps() {
    static OVER: AtomicBool = AtomicBool::new(false);
    let napping: Vec<_> = (0..20)
        .map(|_| {
            go(|| {
                while !OVER.load(SeqCst) {
                    sleep(MILLI / 20);
                }
            })
        })
        .collect();
    let (start, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
    while start.elapsed() < 2000 * MILLI {
        yield_now();
        longest = longest.max(last.elapsed());
        last = Instant::now();
    }
    OVER.store(true, SeqCst);
    napping.into_iter().for_each(|nap| nap.join().unwrap());
    println!("longest {} ms", longest.as_millis());
}

/// A timer is on time beside a goroutine that blocks the only P.
fn timer() {
    let is_on_time = in_time(200 * MILLI, || {
        let (reader, mut writer) = std::io::pipe().unwrap();
        go(move || wait_for_byte(&reader));
        yield_now();
        gosched::time::sleep(5 * MILLI);
        writer.write_all(&[0]).unwrap();
    });
    println!("on time {is_on_time}");
}

/// What a thread of that name has used: CPU time in nanoseconds, and how often it was given a CPU.
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

/// How often the watcher looks in a second, beside goroutines that yield; and what a look costs, in thousandths of
/// what it costs a thread to sleep and do nothing.
fn watcher() {
    static OVER: AtomicBool = AtomicBool::new(false);
    let sleeper = std::thread::Builder::new().name("sleeper".into()).spawn(|| {
        // SAFETY: it only changes how this thread is woken.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
        while !OVER.load(SeqCst) {
            sleep(MILLI);
        }
    });
    let others: Vec<_> = (0..4).map(|_| go(|| spin_for(2200 * MILLI))).collect();
    spin_for(200 * MILLI);
    let used = || ["gosched-sysmon", "sleeper"].map(used_by);
    let (before, start) = (used(), Instant::now());
    spin_for(2000 * MILLI);
    let ([watcher, sleeper_used], seconds) = (used(), start.elapsed().as_secs_f64());
    let since = |now: [u64; 2], before: [u64; 2]| [now[0] - before[0], now[1] - before[1]];
    let [time, looks] = since(watcher, before[0]);
    let [sleeper_time, sleeps] = since(sleeper_used, before[1]);
    let cost = |time: u64, times: u64| time as f64 / times as f64;
    let ratio = 1000.0 * cost(time, looks) / cost(sleeper_time, sleeps);
    println!(
        "looks {:.0} cost {ratio:.0} of {:.0} ns",
        looks as f64 / seconds,
        cost(sleeper_time, sleeps)
    );
    OVER.store(true, SeqCst);
    sleeper.unwrap().join().unwrap();
    others.into_iter().for_each(|other| other.join().unwrap());
}

/// Forks in calls whose P is gone: the child goes on.
fn fork() {
    /// The child's number in the parent; 0 in the child.
    fn forked() -> i32 {
        // SAFETY: the child only does what it may, and exits.
        unsafe { libc::fork() }
    }
    let stop = Arc::new(AtomicBool::new(false));
    let its_stop = stop.clone();
    let other = go(move || {
        while !its_stop.load(SeqCst) {
            yield_now();
        }
    });
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
            let (tx, rx) = chan::<u32>(1);
            let ok = tx.try_send(1).is_ok() && rx.try_recv() == Ok(1);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(if ok { 7 } else { 8 }) };
        }
        let mut status = 0;
        // SAFETY: a child of ours.
        blocking(|| unsafe { libc::waitpid(child, &raw mut status, 0) });
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status}");
    }
    stop.store(true, SeqCst);
    other.join().unwrap();
    println!("all children came back");
}
