//! Whole programs for the suite `chan_programs`. The first argument selects the program, which has
//! the process to itself. An alarm ends a process that hangs.

use gosched::chan::{Receiver, RecvTimeoutError, never};
use gosched::{Select, chan, go, select, time};
use gosched_tests::wait::CHILD_LIMIT;
use std::time::Duration;

fn main() {
    // SAFETY: installs no handler; the signal ends the process.
    unsafe { libc::alarm(CHILD_LIMIT.as_secs() as u32) };
    let name = std::env::args().nth(1).expect("the name of a program");
    if name == "thread receives" {
        return thread_receives();
    }
    gosched::run(move || program(&name));
}

fn program(name: &str) {
    let (tx, rx) = chan::<u8>(0);
    match name {
        "receive" => drop(rx.recv()),
        "send" => drop(tx.send(1)),
        "never" => drop(never::<u8>().recv()),
        "all arms off" => {
            let off: Option<&Receiver<u8>> = None;
            select! {
                recv(off) -> _ => (),
                recv(never::<u8>()) -> _ => (),
            }
        }
        "empty slot" => {
            let mut slot = None;
            select! { send(tx, take slot) -> _ => () }
        }
        "no arms" => select! {},
        "empty list" => Select::new().wait(),
        "two selects" => two_selects(),
        "sleeper sends" => {
            let tx = tx.clone();
            go(move || {
                time::sleep(Duration::from_millis(200));
                tx.send(1)
            });
            assert_eq!(rx.recv(), Ok(1));
        }
        "limits" => {
            let short = Duration::from_millis(100);
            assert_eq!(rx.recv_timeout(short), Err(RecvTimeoutError::Timeout));
            select! {
                recv(rx) -> _ => unreachable!(),
                default(short) => (),
            }
            gosched::park_timeout(short);
        }
        other => panic!("no program {other}"),
    }
    drop((tx, rx));
}

/// Two goroutines wait for each other in a select.
fn two_selects() {
    let [(tx_a, a), (tx_b, b)] = [chan::<u8>(0), chan::<u8>(0)];
    go(move || {
        select! { recv(a) -> value => drop(tx_b.send(value.unwrap())) }
    });
    select! { recv(b) -> value => drop(tx_a.send(value.unwrap())) }
}

/// The main thread waits for a goroutine that waits for the main thread.
fn thread_receives() {
    let [(tx_a, a), (tx_b, b)] = [chan::<u8>(0), chan::<u8>(0)];
    go(move || {
        let _ = a.recv();
        tx_b.send(1)
    });
    let _ = b.recv();
    drop(tx_a);
}
