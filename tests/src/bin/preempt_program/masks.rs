//! Signal masks of goroutines, and the program's own handlers of SIGURG.

use crate::calls;
use crate::harness::{self, Heartbeat, MILLI, burn_micros, hogs, is_over, spawn_group, wait_until};
use gosched::{blocking, chan, go, goexit, lock_os_thread, runtime, time, yield_now};
use gosched_tests::preempt_runs::repetitions;
use gosched_tests::wait::LIMIT;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The signals that goroutines block in these programs.
const BLOCKED: [i32; 3] = [libc::SIGURG, libc::SIGUSR2, libc::SIGWINCH];

fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: an all-zero set is the empty set.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    for &signal in signals {
        // SAFETY: the set is ours, the signal exists.
        unsafe { libc::sigaddset(&mut set, signal) };
    }
    set
}

fn block(signals: &[i32]) {
    // SAFETY: a valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set_of(signals), std::ptr::null_mut()) };
}

/// Returns how many of [`BLOCKED`] are blocked in the calling thread.
fn blocked() -> usize {
    let mut mask = set_of(&[]);
    // SAFETY: only reads the mask.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask) };
    // SAFETY: a valid set.
    BLOCKED.iter().filter(|&&signal| unsafe { libc::sigismember(&mask, signal) } == 1).count()
}

/// Many goroutines read the mask of their current thread. Returns how many found it changed.
fn changed() -> usize {
    let looks = spawn_group("a goroutine that looks at the mask", 60, |number, _: &Heartbeat| {
        let before = blocked();
        if number.is_multiple_of(2) {
            yield_now();
        }
        burn_micros(20);
        before + blocked()
    });
    looks.join().into_iter().filter(|&count| count > 0).count()
}

/// Goroutines change their signal mask and then leave their thread in the given way.
pub(crate) fn mask(way: &str) {
    let way: &'static str = way.to_owned().leak();
    let mut found = 0;
    for _ in 0..repetitions(2, 4) {
        let (tx, rx) = chan::<()>(0);
        let there = Arc::new(AtomicUsize::new(0));
        let leaving: Vec<_> = (0..20)
            .map(|_| {
                let (rx, there) = (rx.clone(), there.clone());
                go(move || {
                    let signals = if way == "preempted" { &BLOCKED[1..] } else { &BLOCKED[..] };
                    block(signals);
                    there.fetch_add(1, SeqCst);
                    leave(way, &rx);
                })
            })
            .collect();
        wait_until("all to block signals", || there.load(SeqCst) == 20);
        found += changed();
        drop(tx);
        for handle in leaving {
            let outcome = handle.join();
            assert_eq!(outcome.is_err(), ["panic", "goexit"].contains(&way), "{outcome:?}");
        }
        found += changed();
    }
    println!("changed {found}");
}

fn leave(way: &str, rx: &chan::Receiver<()>) {
    match way {
        "sleep" => time::sleep(20 * MILLI),
        "receive" => assert!(rx.recv().is_err()),
        "yield" => (0..200).for_each(|_| yield_now()),
        "preempted" => drop(burn_micros(3000)),
        "panic" => std::panic::resume_unwind(Box::new("on purpose")),
        "goexit" => goexit(),
        "call" => blocking(|| std::thread::sleep(5 * MILLI)),
        "locked" => lock_os_thread(),
        "end" => {}
        other => panic!("no way {other}"),
    }
}

/// A goroutine that blocks SIGURG is preempted when it enters the runtime, and not before.
pub(crate) fn blocks_sigurg() {
    let count = Arc::new(AtomicU64::new(0));
    let its_count = count.clone();
    let beside = spawn_group("beside one that is deaf", 2, move |_, lane: &Heartbeat| {
        while !is_over() {
            burn_micros(50);
            its_count.fetch_add(1, SeqCst);
            lane.step();
        }
    });
    let its_count = count.clone();
    let deaf = go(move || {
        block(&[libc::SIGURG]);
        let before = its_count.load(SeqCst);
        burn_micros(30_000);
        let silent = its_count.load(SeqCst) - before;
        // Nothing here waits: the channel has room.
        let (tx, rx) = chan::<u8>(1);
        let before = its_count.load(SeqCst);
        let entering = || its_count.load(SeqCst) - before;
        let start = Instant::now();
        // On a busy machine sysmon may run late.
        while entering() == 0 && start.elapsed() < LIMIT {
            burn_micros(1000);
            tx.send(1).unwrap();
            rx.recv().unwrap();
        }
        (silent, entering())
    });
    let (silent, entering) = deaf.join().unwrap();
    harness::stop();
    beside.join();
    println!("silent {silent} entering {entering}");
}

static CALLED: AtomicU64 = AtomicU64::new(0);
static FROM_US: AtomicBool = AtomicBool::new(true);

extern "C" fn with_info(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: a handler with SA_SIGINFO gets a valid `siginfo_t`.
    let info = unsafe { &*info };
    // SAFETY: signals sent by a process have this field.
    let sender = unsafe { info.si_pid() };
    FROM_US.fetch_and(sender as u32 == std::process::id(), SeqCst);
    CALLED.fetch_add(1, SeqCst);
}

extern "C" fn plain(_: i32) {
    CALLED.fetch_add(1, SeqCst);
}

/// Installs the action that is in place before the runtime starts. Returns whether it calls a
/// handler.
fn install(kind: &str) -> bool {
    // SAFETY: all zero is a valid action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    (action.sa_sigaction, action.sa_flags) = match kind {
        "info" => (with_info as *const () as usize, libc::SA_SIGINFO | libc::SA_RESTART),
        "plain" => (plain as *const () as usize, libc::SA_RESTART),
        "ignored" => (libc::SIG_IGN, 0),
        _ => (libc::SIG_DFL, 0),
    };
    // SAFETY: the handlers only count.
    let result = unsafe { libc::sigaction(libc::SIGURG, &action, std::ptr::null_mut()) };
    assert_eq!(result, 0);
    ["info", "plain"].contains(&kind)
}

fn send(way: u64) {
    match way {
        // SAFETY: a signal that is handled.
        0 => _ = unsafe { libc::raise(libc::SIGURG) },
        // SAFETY: a signal that is handled.
        1 => _ = unsafe { libc::kill(std::process::id() as i32, libc::SIGURG) },
        _ => _ = std::thread::spawn(|| send(0)).join(),
    }
}

/// The runtime calls the handler that the program installed before the runtime started for signals
/// of other senders, and for no others.
///
/// A thread has at most one pending SIGURG. A signal that is sent while the runtime's own is
/// pending is lost, and is sent again.
pub(crate) fn chain(kind: &str) {
    const SENT: u64 = 60;
    // On a slow machine, a signal that is delivered later than this counts as lost and is sent
    // twice.
    const SEND_AGAIN_AFTER: Duration = Duration::from_secs(1);
    let is_called = install(kind);
    gosched::run(move || {
        let all = hogs(2 * runtime::procs() + 1);
        time::sleep(harness::case_duration() / 2);
        let early = CALLED.load(SeqCst);
        let mut sent = 0;
        for number in 1..=SENT {
            send(number % 3);
            sent += 1;
            if is_called {
                let mut since = Instant::now();
                wait_until("the handler to be called", || {
                    let is_called = CALLED.load(SeqCst) >= number;
                    if !is_called && since.elapsed() > SEND_AGAIN_AFTER {
                        send(number % 3);
                        sent += 1;
                        since = Instant::now();
                    }
                    is_called
                });
            }
        }
        time::sleep(20 * MILLI);
        let called = CALLED.load(SeqCst);
        // Many signals at a time do not end the program.
        let many: u64 = (0..20).map(|_| calls::send_to_all(libc::SIGURG)).sum();
        assert!(many > 0);
        harness::wait_for_moves();
        harness::stop();
        all.join();
        assert!(FROM_US.load(SeqCst), "somebody else is said to have sent it");
        println!("early {early} called {called} sent {sent}");
        harness::report();
    });
}

/// A goroutine blocks SIGURG and computes on one P; timers make progress on the second P.
pub(crate) fn one_blocks_sigurg() {
    let deaf = spawn_group("a goroutine that holds the signal back", 1, |_, lane: &Heartbeat| {
        block(&[libc::SIGURG]);
        while !is_over() {
            harness::burn(2000);
            lane.step();
        }
    });
    time::sleep(20 * MILLI);
    let hog = hogs(1);
    let lane = Heartbeat::new("a timer");
    for _ in 0..20 {
        time::sleep(2 * MILLI);
        lane.step();
    }
    harness::stop();
    deaf.join();
    hog.join();
    println!("ticks {}", lane.steps());
}
