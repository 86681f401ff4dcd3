//! Whole programs for the suite `sched_deadlock`; the first argument selects the program. The
//! program has the process to itself, without the threads of a test harness. An alarm ends a
//! process that hangs.

use gosched::time::{self, Ticker, Timer, after_func};
use gosched::{block_on, chan, go, park, run, select};
use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

/// Seconds after which the program counts as hung. Equals `gosched_tests::wait::CHILD_LIMIT`, which
/// is not used because that crate installs a global allocator.
const LIMIT_SECONDS: u32 = 300;

const HOUR: Duration = Duration::from_secs(3600);
const MILLI: Duration = Duration::from_millis(1);
/// Longer than the 10 ms that it takes to detect a deadlock.
const LONG: Duration = Duration::from_millis(60);

fn main() -> ExitCode {
    // SAFETY: installs no handler; the signal ends the process.
    unsafe { libc::alarm(LIMIT_SECONDS) };
    let name = std::env::args().nth(1).expect("the name of a program");
    match name.as_str() {
        "parks" => run(park),
        "a thread will unpark" => run(|| {
            let main = gosched::current().unwrap();
            std::thread::spawn(move || {
                std::thread::sleep(LONG);
                main.unpark();
            });
            park();
        }),
        "threads cannot be counted" => {
            forbid_tgkill();
            // The program ends when its input does, and must not be ended before.
            std::thread::spawn(|| {
                std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
                println!("over");
                std::process::exit(0);
            });
            run(park);
        }
        "a thread receives" => receives_forever(),
        "a thread panics" => {
            run(|| {});
            panic!("on purpose");
        }
        "a ticker nobody hears" => run(|| {
            let _ticker = Ticker::new(MILLI);
            park();
        }),
        "a slow ticker nobody hears" => run(|| {
            let _ticker = Ticker::new(HOUR);
            park();
        }),
        "a timer nobody hears" => run(|| {
            let _timer = Timer::new(HOUR);
            park();
        }),
        "a ticker nobody hears any more" => run(|| {
            let ticks = time::tick(MILLI);
            ticks.recv().unwrap();
            let (_tx, rx) = chan::<u32>(0);
            select! {
                recv(ticks) -> _ => {},
                recv(rx) -> _ => unreachable!(),
            }
            let _ = rx.recv();
        }),
        "ticks are received" => run(|| {
            let ticker = Ticker::new(LONG);
            assert_eq!(ticker.chan().iter().take(2).count(), 2);
        }),
        "a tick is selected" => run(|| {
            let (ticker, (_tx, rx)) = (Ticker::new(LONG), chan::<u32>(0));
            select! {
                recv(ticker.chan()) -> _ => {},
                recv(rx) -> _ => unreachable!(),
            }
        }),
        "a tick or a limit" => run(|| {
            let ticker = Ticker::new(HOUR);
            assert!(ticker.chan().recv_timeout(LONG).is_err());
        }),
        "a thread receives ticks" => {
            go(park);
            let ticker = Ticker::new(LONG);
            assert_eq!(ticker.chan().iter().take(2).count(), 2);
        }
        "async code receives a tick" => run(|| {
            let ticker = Ticker::new(LONG);
            block_on(async { ticker.chan().recv_async().await }).unwrap();
        }),
        "a function will run" => run(|| {
            let main = gosched::current().unwrap();
            after_func(LONG, move || main.unpark());
            park();
        }),
        "a tick that nobody waited for is there" => run(|| {
            let ticker = Ticker::new(MILLI);
            time::sleep(LONG);
            ticker.chan().try_recv().unwrap();
        }),
        other => panic!("no program {other}"),
    }
    println!("over");
    ExitCode::SUCCESS
}

/// A thread that is not a goroutine waits for a value, beside a parked goroutine.
#[inline(never)]
fn receives_forever() {
    let (_tx, rx) = chan::<u32>(0);
    go(park);
    let _ = std::hint::black_box(rx.recv());
}

/// Makes the kernel refuse `tgkill` from here on, as a sandbox may.
fn forbid_tgkill() {
    let instruction = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let load = instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0);
    let compare = instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_tgkill as u32);
    let mut filter = [
        load,
        libc::sock_filter { jf: 1, ..compare },
        instruction(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        instruction(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: no memory is involved.
    let done = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(done, 0);
    // SAFETY: `program` points to `len` instructions.
    let done =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}
