//! Whole programs for the suite `sched_hostile`; the first argument selects the program. Each
//! program prints its outcome. An alarm ends a process that hangs.

use gosched::runtime::{self, metrics};
use gosched::{chan, go, time, yield_now};
use gosched_tests::wait::CHILD_LIMIT;
use std::cell::Cell;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[gosched::main(alloc = off)]
fn main() {
    // SAFETY: installs no handler; the signal ends the process.
    unsafe { libc::alarm(CHILD_LIMIT.as_secs() as u32) };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["hand over", what, rounds] => hand_over(what, rounds.parse().expect("a number")),
        ["late sleeps", millis] => {
            late_sleeps(Duration::from_millis(millis.parse().expect("a number")))
        }
        ["deaf"] => unstoppable(),
        ["idle io"] => idle_io(),
        ["some of everything"] => some_of_everything(),
        ["loops"] => loops(),
        ["turns"] => turns(),
        ["turns until the input ends"] => turns_until_the_input_ends(),
        ["beside a thread", messages] => beside_a_thread(messages.parse().expect("a number")),
        ["loops, filter, loops"] => loops_filter_loops(),
        ref other => panic!("no program {other:?}"),
    }
    println!("done");
}

fn spin(micros: u64) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_micros(micros) {
        std::hint::spin_loop();
    }
}

/// Ps are handed off all the time beside a goroutine that waits for I/O, so that an M sometimes
/// sleeps in the poller.
fn hand_over(what: &str, rounds: u64) {
    static ROUNDS: AtomicU64 = AtomicU64::new(0);
    let (reader, writer) = gosched::net::UnixStream::pair().expect("a pair");
    go(move || (&reader).read(&mut [0]));
    let actors: Vec<_> = (0..4u64)
        .map(|number| {
            let what = what.to_owned();
            go(move || {
                let mut seed = number;
                while ROUNDS.fetch_add(1, Ordering::Relaxed) < rounds {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let micros = (seed >> 33) % 500;
                    spin(micros * 2);
                    let nap = Duration::from_micros(micros);
                    match what.as_str() {
                        "procs" if number == 0 => _ = runtime::set_procs(1 + micros as usize % 4),
                        "procs" | "unmarked" => std::thread::sleep(nap),
                        "marked" => gosched::blocking(|| std::thread::sleep(nap)),
                        "sleeps" => time::sleep(nap),
                        other => panic!("no way {other}"),
                    }
                }
            })
        })
        .collect();
    actors.into_iter().for_each(|actor| actor.join().expect("no panic"));
    drop(writer);
    let lost = metrics();
    println!("lost {:?}", lost.get("/gosched/hand-offs/lost:events"));
}

/// Prints how late sleeps of 1 ms end in a goroutine and, as the control, in a thread. Meanwhile
/// the blocking calls of other goroutines cause hand-offs all the time, and a goroutine waits for
/// I/O.
fn late_sleeps(how_long: Duration) {
    let (reader, writer) = gosched::net::UnixStream::pair().expect("a pair");
    go(move || (&reader).read(&mut [0]));
    let end = Instant::now() + how_long;
    let call = move || {
        while Instant::now() < end {
            spin(300);
            gosched::blocking(|| std::thread::sleep(Duration::from_micros(300)));
        }
    };
    let callers: Vec<_> = (0..3).map(|_| go(call)).collect();
    let control = std::thread::spawn(move || late_percentile(end, std::thread::sleep));
    let ours = go(move || late_percentile(end, time::sleep)).join().expect("no panic");
    callers.into_iter().for_each(|caller| caller.join().expect("no panic"));
    drop(writer);
    println!("late {ours} control {}", control.join().expect("no panic"));
}

/// Returns the 99th percentile of how late sleeps of 1 ms end, in microseconds.
fn late_percentile(end: Instant, sleep: fn(Duration)) -> u128 {
    const MILLI: Duration = Duration::from_millis(1);
    let mut late = Vec::new();
    while Instant::now() < end {
        let start = Instant::now();
        sleep(MILLI);
        late.push(start.elapsed().saturating_sub(MILLI).as_micros());
    }
    late.sort_unstable();
    late[late.len() * 99 / 100]
}

/// Sets the flag when standard input ends.
fn stop_when_the_input_ends(stop: &'static AtomicBool) {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        stop.store(true, Ordering::Relaxed);
    });
}

/// A goroutine ignores requests to stop the world until standard input ends. Other goroutines run
/// meanwhile.
fn unstoppable() {
    static STOP: AtomicBool = AtomicBool::new(false);
    static TICKS: AtomicU64 = AtomicU64::new(0);
    runtime::set_procs(3);
    stop_when_the_input_ends(&STOP);
    let ticker = go(|| {
        while !STOP.load(Ordering::Relaxed) {
            time::sleep(Duration::from_millis(1));
            TICKS.fetch_add(1, Ordering::Relaxed);
        }
    });
    // A goroutine whose thread the system blocked for a moment may have lost its P, and then delays
    // nothing: retry.
    while !STOP.load(Ordering::Relaxed) {
        runtime::set_procs(3);
        resize_beside_unstoppable(&STOP);
    }
    ticker.join().expect("no panic");
    println!("{} procs, {} ticks", runtime::procs(), TICKS.load(Ordering::Relaxed));
}

/// Changes the number of Ps beside a goroutine that blocks SIGURG. Returns when the change is done.
fn resize_beside_unstoppable(stop: &'static AtomicBool) {
    let begun = Arc::new(AtomicBool::new(false));
    let over = Arc::new(AtomicBool::new(false));
    let its = (begun.clone(), over.clone());
    let deaf = go(move || {
        // SAFETY: all-zero is a valid set, to which a valid signal is added.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        unsafe { libc::sigaddset(&mut set, libc::SIGURG) };
        // SAFETY: the thread's own mask.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
        its.0.store(true, Ordering::Relaxed);
        while !stop.load(Ordering::Relaxed) && !its.1.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        // SAFETY: as above.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut()) };
    });
    while !begun.load(Ordering::Relaxed) {
        yield_now();
    }
    runtime::set_procs(2);
    over.store(true, Ordering::Relaxed);
    deaf.join().expect("no panic");
}

/// Waits for I/O that arrives when all other goroutines and threads are idle.
fn idle_io() {
    let (mut reader, mut writer) = gosched::net::UnixStream::pair().expect("a pair");
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        writer.write_all(b"x").expect("a write");
        // The socket stays open.
        std::thread::sleep(CHILD_LIMIT);
    });
    reader.read_exact(&mut [0]).expect("a read");
}

/// More goroutines that never yield than there are Ps, and a main that must make progress.
fn loops() {
    let stop = Arc::new(AtomicBool::new(false));
    let loops: Vec<_> = (0..2 * runtime::procs())
        .map(|_| {
            let stop = stop.clone();
            go(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    time::sleep(Duration::from_millis(30));
    stop.store(true, Ordering::Relaxed);
    loops.into_iter().for_each(|handle| handle.join().expect("no panic"));
}

/// A thread that was started before the runtime sends to main from time to time. That is no
/// deadlock, although main is the only goroutine. If the system refuses threads, the runtime
/// requests them again and again.
fn beside_a_thread(messages: u64) {
    let (sender, receiver) = chan::<u64>(1);
    let ask = SENDERS.lock().unwrap().take().expect("a thread before main");
    ask.send(sender).expect("the thread");
    for _ in 0..messages {
        receiver.recv().expect("a message");
    }
}

static SENDERS: std::sync::Mutex<Option<std::sync::mpsc::Sender<chan::Sender<u64>>>> =
    std::sync::Mutex::new(None);

/// Starts the thread of [`beside_a_thread`] before the runtime starts, since the system may refuse
/// threads later.
extern "C" fn start_early() {
    if std::env::args().nth(1).is_none_or(|name| name != "beside a thread") {
        return;
    }
    let (ask, asked) = std::sync::mpsc::channel::<chan::Sender<u64>>();
    *SENDERS.lock().unwrap() = Some(ask);
    std::thread::spawn(move || {
        let sender = asked.recv().expect("main");
        // Longer than the runtime waits before it checks for a deadlock.
        let pause = |number: u64| Duration::from_micros(11_000 + number % 40 * 100);
        for number in 0.. {
            std::thread::sleep(pause(number));
            if sender.send(number).is_err() {
                return;
            }
        }
    });
}

#[used]
#[unsafe(link_section = ".init_array")]
static START_EARLY: extern "C" fn() = start_early;

/// One thread filters its own system calls so that it cannot send signals; other threads still can.
fn loops_filter_loops() {
    loops();
    let filtered = go(|| {
        gosched::lock_os_thread();
        refuse_signals_here();
        let procs = runtime::procs();
        let busy = go(|| spin(300_000));
        runtime::set_procs(procs + 1);
        runtime::set_procs(procs);
        busy.join().expect("no panic");
    });
    filtered.join().expect("no panic");
    loops();
}

/// Forbids the calling thread to send signals to threads from here on.
fn refuse_signals_here() {
    let calls = [libc::SYS_rt_tgsigqueueinfo, libc::SYS_tgkill];
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for call in calls {
        let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        filter.push(libc::sock_filter { code, jt: 0, jf: 1, k: call as u32 });
        let refusal = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        filter.push(statement(libc::BPF_RET | libc::BPF_K, refusal));
    }
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: has no precondition.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: `program` points to `len` statements.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) }, 0);
}

/// Computes until the calling thread has used `time` of CPU time, however busy the machine is. For
/// runs in which goroutines cannot be moved to another thread meanwhile.
fn burn(time: Duration) {
    let cpu_time = || {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `now` is ours to write.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    };
    let end = cpu_time() + time;
    while cpu_time() < end {
        std::hint::spin_loop();
    }
}

/// Goroutines compute for longer than a slice of CPU time, and yield. For runs in which no signal
/// can be sent.
fn turns() {
    let compute = |_| {
        go(|| {
            for _ in 0..20 {
                burn(Duration::from_millis(30));
                yield_now();
            }
        })
    };
    let handles: Vec<_> = (0..2 * runtime::procs()).map(compute).collect();
    handles.into_iter().for_each(|handle| handle.join().expect("no panic"));
}

/// Repeats [`turns`] until standard input ends.
fn turns_until_the_input_ends() {
    static STOP: AtomicBool = AtomicBool::new(false);
    stop_when_the_input_ends(&STOP);
    while !STOP.load(Ordering::Relaxed) {
        turns();
    }
}

thread_local! {
    static OWN: Cell<u64> = const { Cell::new(0) };
}

/// Uses goroutines, thread-locals, channels, loops, blocking calls, timers, sockets, locked
/// threads, changes of the number of Ps, a dump, and panics.
fn some_of_everything() {
    let own = |number| {
        go(move || {
            OWN.set(number);
            yield_now();
            assert_eq!(OWN.get(), number);
        })
    };
    let handles: Vec<_> = (0..1000).map(own).collect();
    handles.into_iter().for_each(|handle| handle.join().expect("no panic"));
    let (sender, receiver) = chan::<u64>(0);
    go(move || (0..100).for_each(|value| sender.send(value).expect("a receiver")));
    assert_eq!(receiver.iter().sum::<u64>(), 4950);
    loops();
    let unmarked = (0..4).map(|_| go(|| std::thread::sleep(Duration::from_millis(20))));
    let handles: Vec<_> = unmarked.collect();
    handles.into_iter().for_each(|handle| handle.join().expect("no panic"));
    let marked = || gosched::blocking(|| std::thread::sleep(Duration::from_millis(20)));
    let handles: Vec<_> = (0..4).map(|_| go(marked)).collect();
    handles.into_iter().for_each(|handle| handle.join().expect("no panic"));
    assert!(chan::<u64>(0).1.recv_timeout(Duration::from_millis(3)).is_err());
    echo();
    go(|| {
        gosched::lock_os_thread();
        yield_now();
        time::sleep(Duration::from_millis(1));
        // A goroutine that ends locked takes its thread with it, which may be the only thread.
        gosched::unlock_os_thread();
    })
    .join()
    .expect("no panic");
    for procs in 1..5 {
        runtime::set_procs(procs);
    }
    assert!(runtime::dump().contains("goroutine 1 [running]"));
    std::panic::set_hook(Box::new(|_| {}));
    assert!(go(|| panic!()).join().is_err());
}

fn echo() {
    let listener = gosched::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    go(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut bytes = [0; 5];
        stream.read_exact(&mut bytes).expect("a read");
        stream.write_all(&bytes).expect("a write");
    });
    let mut stream = gosched::net::TcpStream::connect(address).expect("a connection");
    stream.write_all(b"hello").expect("a write");
    let mut bytes = [0; 5];
    stream.read_exact(&mut bytes).expect("a read");
    assert_eq!(&bytes, b"hello");
}
