//! Signals as values of a channel. Each test that changes the disposition of a signal runs in a
//! process of its own.

use gosched::signal::{self, CAPACITY, Signal};
use gosched::{go, run};
use gosched_tests::actors::run_alternating;
use gosched_tests::children;
use gosched_tests::wait::{LIMIT, until};
use std::os::unix::process::ExitStatusExt;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

#[test]
fn child() {
    match children::scenario().as_deref() {
        None => {}
        Some("several") => several(),
        Some("restored") => restored(),
        Some("kept") => kept(),
        Some("busy") => busy(),
        Some("storm") => storm(),
        Some("full") => full(),
        Some("foreign") => foreign(),
        Some("again") => again(),
        Some("deadlock") => deadlock(),
        Some("spawning") => spawning(),
        Some(other) => panic!("{other}"),
    }
}

fn passes(scenario: &str) {
    let output = children::run(scenario);
    assert!(output.status.success(), "{}", children::stderr(&output));
}

/// Returns the handler of a signal.
fn disposition(signal: Signal) -> usize {
    let mut found = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a null pointer installs no handler; `found` has room for the current disposition.
    let told = unsafe { libc::sigaction(signal.as_raw(), std::ptr::null(), found.as_mut_ptr()) };
    assert_eq!(told, 0);
    // SAFETY: `sigaction` succeeded and has filled `found`.
    unsafe { found.assume_init() }.sa_sigaction
}

#[test]
fn signals_have_names_and_numbers() {
    assert_eq!(Signal::INT.to_string(), "SIGINT");
    assert_eq!(format!("{:?}", Signal::from_raw(libc::SIGWINCH)), "SIGWINCH");
    assert_eq!(Signal::from_raw(40).to_string(), "signal 40");
    assert_eq!(Signal::TERM.as_raw(), 15);
    assert_eq!(Signal::from_raw(15), Signal::TERM);
    assert!(Signal::from_raw(-1).raise().is_err());
}

#[test]
fn notify_refuses_signals_that_cannot_be_received() {
    let refused = [
        (Signal::KILL, "cannot be caught"),
        (Signal::STOP, "cannot be caught"),
        (Signal::SEGV, "fault"),
        (Signal::BUS, "fault"),
        (Signal::FPE, "fault"),
        (Signal::ILL, "fault"),
        (Signal::URG, "runtime"),
        (Signal::from_raw(0), "number"),
        (Signal::from_raw(65), "number"),
        (Signal::from_raw(32), "signal 32"),
    ];
    for (signal, why) in refused {
        let before = disposition(Signal::USR2);
        let panic = catch_unwind(|| signal::notify(&[Signal::USR2, signal])).unwrap_err();
        let text = panic.downcast::<String>().unwrap();
        assert!(text.contains(why), "{text}");
        assert_eq!(disposition(Signal::USR2), before, "{signal}");
    }
}

#[test]
fn every_subscriber_receives_every_signal() {
    passes("several");
}

fn several() {
    let both = signal::notify(&[Signal::USR1, Signal::USR2]);
    let one: Vec<_> = (0..5).map(|_| signal::notify(&[Signal::USR1])).collect();
    let none = signal::notify(&[]);
    let waiting = go(move || {
        let first = both.recv_timeout(LIMIT).unwrap();
        let second = both.recv_timeout(LIMIT).unwrap();
        (first, second, both.try_recv().is_err())
    });
    Signal::USR1.raise().unwrap();
    for one in &one {
        assert_eq!(one.recv_timeout(LIMIT), Ok(Signal::USR1));
    }
    Signal::USR2.raise().unwrap();
    assert_eq!(waiting.join().unwrap(), (Signal::USR1, Signal::USR2, true));
    assert!(none.is_empty() && one.iter().all(|one| one.is_empty()));
}

#[test]
fn dropping_the_last_receiver_restores_the_previous_disposition() {
    let output = children::run("restored");
    assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{}", children::stderr(&output));
}

fn restored() {
    let before = disposition(Signal::TERM);
    let first = signal::notify(&[Signal::TERM]);
    let second = signal::notify(&[Signal::TERM, Signal::HUP]);
    let clone = first.clone();
    drop(first);
    drop(second);
    assert_ne!(disposition(Signal::TERM), before, "a clone is left");
    Signal::TERM.raise().unwrap();
    assert_eq!(clone.recv_timeout(LIMIT), Ok(Signal::TERM));
    drop(clone);
    // The signal thread may hold a reference to the channel for a moment longer.
    until("it is as it was", || disposition(Signal::TERM) == before);
    Signal::TERM.raise().unwrap();
    std::thread::sleep(LIMIT);
}

#[test]
fn a_handler_installed_by_other_code_is_kept() {
    passes("foreign");
}

static FOREIGN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn foreign_handler(_: i32) {
    FOREIGN.fetch_add(1, SeqCst);
}

fn foreign() {
    let handler = foreign_handler as extern "C" fn(i32) as usize;
    // SAFETY: the handler only increments an atomic.
    unsafe { libc::signal(libc::SIGUSR1, handler) };
    let signals = signal::notify(&[Signal::USR1]);
    Signal::USR1.raise().unwrap();
    assert_eq!(signals.recv_timeout(LIMIT), Ok(Signal::USR1));
    assert_eq!(FOREIGN.load(SeqCst), 0, "ours is in its place");
    drop(signals);
    until("it is back", || disposition(Signal::USR1) == handler);
    Signal::USR1.raise().unwrap();
    until("it is called", || FOREIGN.load(SeqCst) == 1);

    let signals = signal::notify(&[Signal::USR2]);
    // SAFETY: the handler only increments an atomic.
    unsafe { libc::signal(libc::SIGUSR2, handler) };
    drop(signals);
    assert_eq!(disposition(Signal::USR2), handler);
}

#[test]
fn signals_are_kept_for_a_late_receiver() {
    passes("kept");
}

fn kept() {
    let signals = signal::notify(&[Signal::HUP, Signal::WINCH]);
    Signal::HUP.raise().unwrap();
    until("one has come", || signals.len() == 1);
    Signal::WINCH.raise().unwrap();
    until("two have come", || signals.len() == 2);
    let all = run(move || signals.try_iter().collect::<Vec<_>>());
    assert_eq!(all, [Signal::HUP, Signal::WINCH]);
}

#[test]
fn endless_loops_do_not_delay_signals() {
    passes("busy");
}

fn busy() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let signals = signal::notify(&[Signal::USR1]);
    let loops: Vec<_> = (0..gosched::runtime::procs() * 2)
        .map(|_| {
            go(|| {
                while !STOP.load(SeqCst) {
                    std::hint::spin_loop()
                }
            })
        })
        .collect();
    for _ in 0..20 {
        Signal::USR1.raise().unwrap();
        assert_eq!(signals.recv_timeout(LIMIT), Ok(Signal::USR1));
    }
    let receiver = go(move || {
        Signal::USR1.raise().unwrap();
        signals.recv_timeout(LIMIT)
    });
    assert_eq!(receiver.join().unwrap(), Ok(Signal::USR1));
    STOP.store(true, SeqCst);
    loops.into_iter().for_each(|one| one.join().unwrap());
}

#[test]
fn a_storm_of_signals_breaks_nothing() {
    passes("storm");
}

fn storm() {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let all = [Signal::USR1, Signal::USR2, Signal::HUP, Signal::ALRM];
    let signals = signal::notify(&all);
    // The goroutine runs until the process ends.
    drop(go(move || {
        for _ in &signals {
            COUNT.fetch_add(1, SeqCst);
        }
    }));
    let last = signal::notify(&[Signal::TERM]);
    // Subscribers are added and dropped while goroutines allocate and signals reach all
    // subscribers.
    run_alternating(8, move |i| {
        for round in 0..100 {
            all[(i + round) % all.len()].raise().unwrap();
            let mine = signal::notify(&[all[i % all.len()], Signal::CONT]);
            let text: String = (0..20).map(|n| n.to_string()).collect();
            assert_eq!(text.len(), 30);
            gosched::yield_now();
            drop(mine);
        }
    });
    until("some have come", || COUNT.load(SeqCst) > 0);
    Signal::TERM.raise().unwrap();
    assert_eq!(last.recv_timeout(LIMIT), Ok(Signal::TERM));
}

#[test]
fn a_full_receiver_misses_further_signals() {
    passes("full");
}

fn full() {
    let lazy = signal::notify(&[Signal::USR1]);
    let eager = signal::notify(&[Signal::USR1]);
    for _ in 0..CAPACITY + 10 {
        Signal::USR1.raise().unwrap();
        assert_eq!(eager.recv_timeout(LIMIT), Ok(Signal::USR1));
    }
    assert_eq!(lazy.len(), CAPACITY);
    assert_eq!(lazy.try_iter().count(), CAPACITY);
    Signal::USR1.raise().unwrap();
    assert_eq!(lazy.recv_timeout(LIMIT), Ok(Signal::USR1));
}

#[test]
fn subscribing_works_again_and_again() {
    passes("again");
}

fn signal_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|name| name.trim() == "gosched-signals").count()
}

fn again() {
    let before = disposition(Signal::USR1);
    for round in 0..200 {
        let signals = signal::notify(&[Signal::USR1]);
        Signal::USR1.raise().unwrap();
        assert_eq!(signals.recv_timeout(LIMIT), Ok(Signal::USR1), "round {round}");
        drop(signals);
        until("it is as it was", || disposition(Signal::USR1) == before);
    }
    until("the thread has ended", || signal_threads() == 0);
}

#[test]
fn no_deadlock_is_reported_while_a_goroutine_waits_for_a_signal() {
    let output = children::run("deadlock");
    let text = children::stderr(&output);
    assert!(output.status.success() && text.contains("received"), "{text}");
}

fn deadlock() {
    // All goroutines wait, one of them for a signal from another process.
    let signals = signal::notify(&[Signal::USR1]);
    let id = std::process::id().to_string();
    let mut killer = std::process::Command::new("/bin/sh");
    killer.args(["-c", "sleep 0.2; kill -USR1 $0", &id]);
    let mut killer = killer.spawn().unwrap();
    run(move || assert_eq!(signals.recv(), Ok(Signal::USR1)));
    eprintln!("received");
    assert!(killer.wait().unwrap().success());
}

#[test]
fn children_start_with_the_original_signal_dispositions() {
    passes("spawning");
}

fn spawning() {
    let signals = signal::notify(&[Signal::TERM, Signal::CHLD]);
    let child = gosched::process::Command::new("sleep").arg("1000").spawn().unwrap();
    child.send_signal(Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
    assert_eq!(signals.recv_timeout(LIMIT), Ok(Signal::CHLD));
}
