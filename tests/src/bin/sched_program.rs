//! Whole programs for the suites `sched_*` and the bench `limits`; the first argument selects the
//! program. The program has the process to itself, without the threads of a test harness. An alarm
//! ends a process that hangs.

use gosched::{
    __rules as rules, Builder, JoinHandle, current, go, goexit, lock_os_thread, park, run, runtime,
    yield_now,
};
use std::hint::black_box;
use std::io::Read;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Seconds after which the program counts as hung. Equals `gosched_tests::wait::CHILD_LIMIT`, which
/// is not used because that crate installs a global allocator.
const LIMIT_SECONDS: u32 = 300;

/// How long a program runs in which no deadlock must be reported.
const A_WHILE: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    // SAFETY: installs no handler; the signal ends the process.
    unsafe { libc::alarm(LIMIT_SECONDS) };
    let name = std::env::args().nth(1).expect("the name of a program");
    match name.as_str() {
        "unit" => unit(),
        "ok" => ok(),
        "error" => error(),
        "code" => code(),
        "panics" => panics(),
        "leaves others" => leaves_others(),
        "leaves a tail" => leaves_a_tail(),
        "five procs" => five_procs(),
        "big stack" => big_stack(),
        "is one" => is_one(),
        "main thread" => main_thread(),
        "message" => message(),
        "message of main" => panics(),
        "abort" => abort(),
        "result that panics when dropped" => bad_drop(),
        "main exits" => main_exits(),
        "main exits first" => main_exits_first(),
        "main exits in run" => main_exits_in_run(),
        "park" => parks(),
        "park locked" => parks_locked(),
        "park in run" => succeed(|| run(park)),
        "join a parked one" => succeed(|| {
            let _ = go(park).join();
        }),
        "join late" => succeed(|| {
            let parked = go(park);
            std::thread::sleep(Duration::from_millis(100));
            let _ = parked.join();
        }),
        "main exits locked" => main_exits_locked(),
        "join cycle" => join_cycle(),
        "scope waits" => scope_waits(),
        "many asleep" => many_asleep(),
        "a thread will unpark" => a_thread_will_unpark(),
        "a thread ends" => a_thread_ends(),
        "computes" => computes(),
        "nothing to do" => succeed(|| {
            run(|| ());
            std::thread::sleep(A_WHILE);
        }),
        "parked, main goes on" => succeed(|| {
            run(|| drop(go(park)));
            std::thread::sleep(A_WHILE);
        }),
        "threads end" => threads_end(),
        "report hangs" => succeed(report_hangs),
        "overflows" => overflows(),
        "thread limit" => thread_limit(),
        "broken rule" => broken_rule(),
        "quits" => quits(),
        "idle" => idle(),
        "idle in run" => succeed(|| {
            run(busy_for_a_while);
            announce_and_wait();
        }),
        "surplus" => surplus(),
        "many" => many(),
        "no threads" => succeed(no_threads),
        other => panic!("no program {other}"),
    }
}

fn succeed(f: impl FnOnce()) -> ExitCode {
    f();
    ExitCode::SUCCESS
}

#[gosched::main(alloc = off)]
fn unit() {
    println!("in main");
}

#[gosched::main(alloc = off)]
fn ok() -> Result<(), Box<dyn std::error::Error>> {
    Ok(())
}

#[gosched::main(alloc = off)]
fn error() -> Result<(), Box<dyn std::error::Error>> {
    let number: i32 = "twelve".parse()?;
    println!("{number}");
    Ok(())
}

#[gosched::main(alloc = off)]
fn code() -> ExitCode {
    ExitCode::from(7)
}

#[gosched::main(alloc = off)]
fn panics() {
    panic!("main is over");
}

#[gosched::main(alloc = off)]
fn leaves_others() {
    let started = Arc::new(AtomicUsize::new(0));
    for i in 0..10 {
        let started = started.clone();
        go(move || {
            started.fetch_add(1, SeqCst);
            if i % 2 == 0 {
                park();
            }
            loop {
                yield_now();
            }
        });
    }
    while started.load(SeqCst) < 10 {
        yield_now();
    }
    println!("leaving");
}

#[gosched::main(alloc = off)]
fn leaves_a_tail() {
    print!("no end of line");
}

#[gosched::main(procs = 5, alloc = off)]
fn five_procs() {
    println!("procs {}", runtime::procs());
}

#[inline(never)]
fn deep(left: usize) -> usize {
    let frame = black_box([left; 128]);
    if left == 0 { 0 } else { black_box(deep(left - 1) + usize::from(frame[5] == left)) }
}

#[gosched::main(stack = 64 << 20, alloc = off)]
fn big_stack() {
    println!("depth {}", deep(20_000));
}

#[gosched::main(alloc = off)]
fn is_one() {
    println!("id {}", gosched::id().unwrap());
    println!("parent {:?}", current().unwrap().parent());
    println!(
        "child's parent {:?}",
        go(|| current().unwrap().parent().unwrap().get()).join().unwrap()
    );
}

#[gosched::main(alloc = off)]
fn main_thread() {
    // SAFETY: gettid has no precondition.
    let thread = unsafe { libc::gettid() };
    println!("first on the main thread {}", thread == std::process::id() as i32);
}

#[gosched::main(alloc = off)]
fn message() {
    let worker = Builder::new().name("worker").go(|| panic!("boom {}", 1)).unwrap();
    let id = worker.id();
    let result: Result<(), _> = worker.join();
    let error = result.unwrap_err();
    println!("worker {id} {}", error.is_panic());
    println!("error {error}");
    let plain = go(|| panic!("bang"));
    let id = plain.id();
    let result: Result<(), _> = plain.join();
    println!("plain {id} {}", result.unwrap_err().is_panic());
    let _ =
        std::thread::Builder::new().name("std's".into()).spawn(|| panic!("clang")).unwrap().join();
}

struct PrintsOnDrop(&'static str);

impl Drop for PrintsOnDrop {
    fn drop(&mut self) {
        println!("{}", self.0);
    }
}

#[gosched::main(alloc = off)]
fn abort() {
    let before = runtime::set_panic_policy(runtime::PanicPolicy::Abort);
    println!("before {before:?}");
    let handle = go(|| {
        let _says = PrintsOnDrop("destructor");
        panic!("the last word");
    });
    let result: Result<(), _> = handle.join();
    println!("not reached {result:?}");
}

struct PanicsInDrop(Arc<AtomicUsize>);

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
        panic!("a bad destructor");
    }
}

/// Results and closures whose destructors panic: joined, detached before the end, detached after
/// the end.
#[gosched::main(alloc = off)]
fn bad_drop() {
    let drops = Arc::new(AtomicUsize::new(0));
    let bad = |drops: &Arc<AtomicUsize>| PanicsInDrop(drops.clone());
    let result = bad(&drops);
    let joined = go(move || result).join();
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || drop(joined)));
    println!("joined: {} {}", caught.is_err(), drops.load(SeqCst));

    let result = bad(&drops);
    let gate = Arc::new(AtomicBool::new(false));
    let opened = gate.clone();
    drop(go(move || {
        while !opened.load(SeqCst) {
            yield_now();
        }
        result
    }));
    gate.store(true, SeqCst);
    while drops.load(SeqCst) < 2 {
        yield_now();
    }
    println!("detached before: {}", drops.load(SeqCst));

    let result = bad(&drops);
    let handle = go(move || result);
    while !handle.is_finished() {
        yield_now();
    }
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || drop(handle)));
    println!("detached after: {}", drops.load(SeqCst));

    let captured = bad(&drops);
    let ended = go(move || {
        let _captured = &captured;
    })
    .join();
    println!("captured: {} {}", ended.is_err(), drops.load(SeqCst));
    while runtime::num_goroutines() > 1 {
        yield_now();
    }
    println!("all over");
}

#[gosched::main(alloc = off)]
fn main_exits() {
    let _says = PrintsOnDrop("destructor of main");
    goexit();
}

#[gosched::main(alloc = off)]
fn main_exits_first() {
    static HAS_EXITED: AtomicBool = AtomicBool::new(false);
    struct Exits;
    impl Drop for Exits {
        fn drop(&mut self) {
            HAS_EXITED.store(true, SeqCst);
        }
    }
    // Dropped last, because it is declared first.
    let _exits = Exits;
    go(|| {
        while !HAS_EXITED.load(SeqCst) {
            yield_now();
        }
        for _ in 0..1000 {
            yield_now();
        }
        println!("the other went on");
    });
    let _says = PrintsOnDrop("destructor of main");
    goexit();
}

fn main_exits_in_run() -> ExitCode {
    let result = std::panic::catch_unwind(|| run(|| goexit()));
    println!("run has no result: {}", result.is_err());
    ExitCode::SUCCESS
}

#[gosched::main(alloc = off)]
fn parks() {
    park();
}

#[gosched::main(alloc = off)]
fn parks_locked() {
    lock_os_thread();
    park();
}

#[gosched::main(alloc = off)]
fn join_cycle() {
    type Slot = Arc<Mutex<Option<JoinHandle<()>>>>;
    fn join(slot: &Slot) {
        loop {
            let handle = slot.lock().unwrap().take();
            match handle {
                Some(handle) => return drop(handle.join()),
                None => yield_now(),
            }
        }
    }
    let (a, b) = (Slot::default(), Slot::default());
    let first = go({
        let b = b.clone();
        move || join(&b)
    });
    let second = go({
        let a = a.clone();
        move || join(&a)
    });
    *a.lock().unwrap() = Some(first);
    *b.lock().unwrap() = Some(second);
    park();
}

#[gosched::main(alloc = off)]
fn scope_waits() {
    gosched::scope(|s| {
        s.go(park);
    });
}

#[gosched::main(alloc = off)]
fn many_asleep() {
    let others: Vec<_> = (0..3).map(|_| Builder::new().name("sleeper").go(park).unwrap()).collect();
    for other in others {
        let _ = other.join();
    }
}

#[gosched::main(alloc = off)]
fn a_thread_will_unpark() {
    let me = current().unwrap();
    std::thread::spawn(move || {
        std::thread::sleep(A_WHILE);
        me.unpark();
    });
    park();
    println!("unparked");
}

#[gosched::main(alloc = off)]
fn a_thread_ends() {
    std::thread::spawn(|| std::thread::sleep(Duration::from_millis(500)));
    park();
}

/// The control for deadlocks: a thread ends, and the process prints one line and exits with a
/// status.
fn threads_end() -> ExitCode {
    std::thread::spawn(|| ()).join().unwrap();
    eprintln!("the thread has ended");
    ExitCode::from(2)
}

/// The report of a stack overflow hangs.
fn report_hangs() {
    use gosched_fiber::{Routine, Size, fault};
    static HANG: fault::OwnerName = |_, _| {
        loop {
            std::hint::spin_loop();
        }
    };
    // SAFETY: handler — it only loops.
    unsafe { fault::set_owner_name(&HANG) };
    let mut routine = Routine::new(Size::from_environment().unwrap(), || deep(usize::MAX));
    let _ = routine.resume();
}

#[gosched::main(alloc = off)]
fn overflows() {
    let _ = go(|| black_box(deep(usize::MAX))).join();
}

#[gosched::main(alloc = off)]
fn thread_limit() {
    // The limit is exceeded once the runtime has its second thread.
    loop {
        runtime::set_max_threads(1);
        yield_now();
    }
}

/// The runtime's reaction to a violation of one of its own rules.
#[gosched::main(alloc = off)]
fn broken_rule() {
    gosched_fiber::fatal::throw(format_args!("a rule was broken, as asked"));
}

#[gosched::main(alloc = off)]
fn quits() {
    let own = std::process::id() as i32;
    // SAFETY: a signal to this process.
    unsafe { libc::kill(own, libc::SIGQUIT) };
    loop {
        gosched::time::sleep(A_WHILE);
    }
}

#[gosched::main(alloc = off)]
fn computes() {
    let me = current().unwrap();
    go(move || {
        let start = Instant::now();
        while start.elapsed() < A_WHILE {
            black_box(deep(10));
        }
        me.unpark();
    });
    park();
    println!("unparked");
}

fn busy_for_a_while() {
    let handles: Vec<_> = (0..200)
        .map(|i| {
            go(move || {
                for _ in 0..20 {
                    yield_now();
                    black_box(deep(i % 50));
                }
            })
        })
        .collect();
    for handle in handles {
        handle.join().unwrap();
    }
}

/// Reports to the parent process that this process is idle, and waits until the parent ends the
/// wait.
fn announce_and_wait() {
    println!("idle");
    let _ = std::io::stdin().read(&mut [0]);
}

#[gosched::main(alloc = off)]
fn idle() {
    busy_for_a_while();
    let me = current().unwrap();
    std::thread::spawn(move || {
        announce_and_wait();
        me.unpark();
    });
    park();
}

fn tasks() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Goroutines locked to their threads need many threads at once; then no goroutine needs them.
#[gosched::main(alloc = off)]
fn surplus() {
    let me = current().unwrap();
    let listener = gosched::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = go(move || listener.accept().map(drop));
    let locked = Arc::new(AtomicUsize::new(0));
    let handles: Vec<_> = (0..40)
        .map(|_| {
            let (me, locked) = (me.clone(), locked.clone());
            go(move || {
                lock_os_thread();
                if locked.fetch_add(1, SeqCst) == 39 {
                    me.unpark();
                }
                park();
                gosched::unlock_os_thread();
            })
        })
        .collect();
    while locked.load(SeqCst) < 40 {
        park();
    }
    println!("at most {} {}", runtime::num_threads(), tasks());
    for handle in handles {
        handle.goroutine().unpark();
        handle.join().unwrap();
    }
    std::thread::spawn(move || {
        let few = runtime::procs() + 3;
        // A thread disappears from the system some time after it has left the runtime.
        let last = loop {
            let last = (runtime::num_threads(), tasks());
            if last.0 <= few && last.1 <= few + 3 {
                break last;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        println!("at last {} {}", last.0, last.1);
        me.unpark();
    });
    park();
    // The M that polled may be one of the Ms that have exited.
    let client = std::net::TcpStream::connect(address).unwrap();
    accepted.join().unwrap().unwrap();
    drop(client);
    busy_for_a_while();
    println!("works");
}

#[gosched::main(alloc = off)]
fn many() {
    const COUNT: usize = 100_000;
    let started = Arc::new(AtomicUsize::new(0));
    let handles: Vec<_> = (0..COUNT)
        .map(|_| {
            let started = started.clone();
            go(move || {
                started.fetch_add(1, SeqCst);
                park();
            })
        })
        .collect();
    let mut most = 0;
    while started.load(SeqCst) < COUNT {
        yield_now();
        most = most.max(tasks());
    }
    println!("goroutines {}", runtime::num_goroutines());
    let (marked, unmarked) = rules::hand_offs();
    let in_place = rules::preemptions().in_place;
    println!("stopped {}", marked + unmarked + in_place);
    println!("threads {} {}", most.max(tasks()), runtime::num_threads());
    for handle in &handles {
        handle.goroutine().unpark();
    }
    for handle in handles {
        handle.join().unwrap();
    }
    // A goroutine that was joined may have a few instructions left.
    while runtime::num_goroutines() > 1 {
        yield_now();
    }
    println!("all ended");
}

/// Runs as a user who may have only a few threads, so that the system refuses more.
fn no_threads() {
    let limit = libc::rlimit { rlim_cur: 3, rlim_max: 3 };
    // SAFETY: a valid limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &limit) }, 0);
    // A user without other processes, not even of the same test in another run.
    let user = 20_000 + std::process::id() % 40_000;
    // SAFETY: there is one thread.
    assert_eq!(unsafe { libc::setuid(user) }, 0);
    assert_eq!(run(runtime::procs), 8);
    let total = run(|| {
        let handles: Vec<_> = (0..1000).map(|i| go(move || deep(i % 100))).collect();
        handles.into_iter().filter_map(|handle| handle.join().ok()).count()
    });
    println!("total {total}");
    run(|| {
        let handles: Vec<_> = (0..1000).map(|_| go(yield_now)).collect();
        handles.into_iter().for_each(|handle| handle.join().unwrap());
    });
    assert!(std::thread::Builder::new().spawn(|| ()).is_err(), "the limit is in force");
}

#[gosched::main(alloc = off)]
fn main_exits_locked() {
    lock_os_thread();
    goexit();
}
