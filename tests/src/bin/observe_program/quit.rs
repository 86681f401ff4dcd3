//! Programs that get SIGQUIT after they have printed `ready`.

use gosched::runtime::leak_hints;
use gosched::signal::{self, Signal};
use gosched::{chan, go};
use gosched_tests::wait::until;
use std::hint::black_box;
use std::io::{Read, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

static SINK: AtomicU64 = AtomicU64::new(0);
static STARTED: AtomicUsize = AtomicUsize::new(0);
static HANDLED: AtomicBool = AtomicBool::new(false);

pub(crate) fn program(name: &str) -> ExitCode {
    match name {
        "waits" => waits(),
        "busy" => busy(),
        "handled" => {
            handle();
            until_handled()
        }
        "ignored" => {
            // SAFETY: ignoring is always valid.
            unsafe { libc::signal(libc::SIGQUIT, libc::SIG_IGN) };
            until_input_ends()
        }
        "ignored inside" => ignored_inside(),
        "notified" => notified(),
        "no longer notified" => no_longer_notified(),
        "to itself" => to_itself(),
        "children" => children(),
        "locks" => super::locks::program(),
        "in run" => {
            gosched::run(wait_forever);
            ExitCode::SUCCESS
        }
        other => panic!("no program {other}"),
    }
}

fn say_ready() {
    println!("ready");
    std::io::stdout().flush().unwrap();
}

/// Waits until a goroutine waits in a channel receive.
pub(crate) fn until_one_receives() {
    until("a goroutine receives", || {
        leak_hints(Duration::ZERO).leaks.iter().any(|leak| leak.what == "chan receive")
    });
}

/// Reads from an input that does not end, so there is no deadlock.
fn wait_forever() {
    go(bystander);
    until_one_receives();
    say_ready();
    let _ = gosched::io::stdin().read(&mut [0]);
}

#[inline(never)]
fn bystander() {
    let (_sender, receiver) = chan::<u64>(0);
    black_box(receiver.recv()).unwrap();
}

#[inline(never)]
fn spins() {
    STARTED.fetch_add(1, SeqCst);
    loop {
        SINK.fetch_add(1, SeqCst);
    }
}

#[gosched::main(alloc = off)]
fn waits() {
    wait_forever();
}

/// Runs on another M than main, because main is locked to its own.
#[inline(never)]
fn raises_quit() {
    gosched::lock_os_thread();
    gosched::blocking(|| {
        // SAFETY: has no precondition.
        unsafe { libc::raise(libc::SIGQUIT) };
        loop {
            std::thread::park();
        }
    });
}

#[gosched::main(alloc = off)]
fn to_itself() {
    gosched::lock_os_thread();
    go(raises_quit);
    let _ = gosched::io::stdin().read(&mut [0]);
}

/// Prints the blocked and ignored signals of a child of std's `Command`, and of a child of
/// gosched's.
#[gosched::main(alloc = off)]
fn children() {
    let arguments = ["SigIgn\\|SigBlk", "/proc/self/status"];
    let by_std = std::process::Command::new("grep").args(arguments).output().unwrap();
    let by_us = gosched::process::Command::new("grep").args(arguments).output().unwrap();
    std::io::stdout().write_all(&by_std.stdout).unwrap();
    std::io::stdout().write_all(&by_us.stdout).unwrap();
}

/// Goroutines keep all Ps busy.
#[gosched::main(alloc = off)]
fn busy() {
    (0..4).for_each(|_| drop(go(spins)));
    while STARTED.load(SeqCst) < 4 {
        gosched::yield_now();
    }
    say_ready();
    spins();
}

extern "C" fn note(_: i32) {
    HANDLED.store(true, SeqCst);
}

fn handle() {
    // SAFETY: all-zero is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = note as *const () as usize;
    action.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the handler stores to an atomic only.
    let installed = unsafe { libc::sigaction(libc::SIGQUIT, &action, std::ptr::null_mut()) };
    assert_eq!(installed, 0);
}

#[gosched::main(alloc = off)]
fn until_handled() {
    say_ready();
    while !HANDLED.load(SeqCst) {
        gosched::yield_now();
    }
    println!("handled by the program");
}

#[gosched::main(alloc = off)]
fn until_input_ends() {
    read_to_the_end();
}

#[gosched::main(alloc = off)]
fn ignored_inside() {
    // SAFETY: ignoring is always valid.
    unsafe { libc::signal(libc::SIGQUIT, libc::SIG_IGN) };
    read_to_the_end();
}

fn read_to_the_end() {
    say_ready();
    let mut input = String::new();
    gosched::io::stdin().read_to_string(&mut input).unwrap();
    println!("ignored");
}

#[gosched::main(alloc = off)]
fn notified() {
    let signals = signal::notify(&[Signal::QUIT]);
    say_ready();
    println!("got {:?}", signals.recv().unwrap());
}

#[gosched::main(alloc = off)]
fn no_longer_notified() {
    drop(signal::notify(&[Signal::QUIT]));
    wait_forever();
}
