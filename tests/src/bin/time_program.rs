//! Whole programs for the suite `time_timeout`, in which main waits for an event that comes or
//! never comes. The first argument selects the program, which has the process to itself.

use gosched::context::background;
use gosched::io::pipe;
use gosched::time::{after_func, sleep, timeout};
use gosched::{chan, go, run};
use gosched_tests::wait::CHILD_LIMIT;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longer than it takes to detect a deadlock, unless the machine is busy.
const WAIT: Duration = Duration::from_millis(150);
const LONG: Duration = Duration::from_secs(3600);

fn main() {
    // SAFETY: installs no handler; the signal ends the process.
    unsafe { libc::alarm(CHILD_LIMIT.as_secs() as u32) };
    let name = std::env::args().nth(1).expect("the name of a program");
    if name == "sleep beside a reader" {
        sleep_beside_reader();
    } else {
        run(move || waits(&name));
    }
    println!("it came");
}

/// Runs a goroutine that computes, after it has read from a pipe, until the sleep of another
/// goroutine is over. When the pipe becomes readable, the timekeeper, which sleeps in the poller,
/// takes a P and runs the reader.
fn sleep_beside_reader() {
    gosched::runtime::set_procs(4);
    run(|| {
        let (mut reader, mut writer) = pipe().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = is_over.clone();
        let computes = go(move || {
            reader.read_exact(&mut [0]).unwrap();
            while !seen.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let sleeps = go(move || {
            sleep(2 * WAIT);
            is_over.store(true, Ordering::Relaxed);
        });
        let writes = std::thread::spawn(move || {
            std::thread::sleep(WAIT);
            writer.write_all(&[1]).unwrap();
        });
        computes.join().unwrap();
        sleeps.join().unwrap();
        writes.join().unwrap();
    });
}

fn waits(name: &str) {
    let (tx, rx) = chan::<()>(1);
    let keeps = tx.clone(); // Keeps the channel open.
    let f = move || tx.send(()).unwrap();
    match name {
        "function" => {
            let _timer = after_func(WAIT, f);
            rx.recv().unwrap();
        }
        "function without a timer" => {
            drop(after_func(WAIT, f));
            rx.recv().unwrap();
        }
        "function that was reset" => {
            let timer = after_func(LONG, f);
            assert!(timer.stop());
            timer.reset(WAIT);
            rx.recv().unwrap();
        }
        "function that was stopped" => {
            let timer = after_func(LONG, f);
            assert!(timer.stop());
            rx.recv().unwrap();
        }
        "deadline" => {
            let (ctx, _guard) = background().with_timeout(WAIT);
            assert!(ctx.done().recv().is_err());
        }
        "deadline given up" => {
            let (ctx, guard) = background().with_timeout(LONG);
            guard.cancel();
            assert!(ctx.done().recv().is_err());
            rx.recv().unwrap();
        }
        "function of a deadline" => {
            let (ctx, _guard) = background().with_timeout(WAIT);
            drop(ctx.after_func(f));
            rx.recv().unwrap();
        }
        "nobody cancels" => {
            let (ctx, _guard) = background().with_cancel();
            drop(ctx.after_func(f));
            assert!(ctx.done().recv().is_err());
        }
        "work with a limit" => {
            let late = timeout(WAIT, move |_ctx| rx.recv());
            assert!(late.is_err());
        }
        other => panic!("no program {other}"),
    }
    drop(keeps);
}
