//! Regression tests: use of the runtime inside `host`, signal handlers in the middle of a
//! goroutine's code, and threads that have yet to be created.

use crate::calls;
use crate::harness::{self, Heartbeat, MILLI, burn, hogs, is_over, spawn_group};
use gosched::{go, host, time};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// Goroutines start and wake goroutines and use channels inside `host`.
pub(crate) fn inside_host() {
    let ran = Arc::new(AtomicU64::new(0));
    let its_ran = ran.clone();
    let hosted =
        spawn_group("a goroutine that runs as its thread", 4, move |_, lane: &Heartbeat| {
            let ran = its_ran.clone();
            host(move || {
                while !is_over() || lane.steps() < 100 {
                    let ran = ran.clone();
                    let (tx, rx) = gosched::chan::<u64>(1);
                    drop(go(move || tx.send(ran.fetch_add(1, SeqCst))));
                    if lane.steps().is_multiple_of(8) {
                        rx.recv().unwrap();
                    }
                    lane.step();
                }
            });
            lane.steps()
        });
    let woken = spawn_group("a goroutine that sleeps", 2, |_, lane: &Heartbeat| {
        while !is_over() {
            time::sleep(MILLI / 2);
            lane.step();
        }
    });
    harness::wait_for_and_stop(|counts| counts.in_place > 0);
    let started: u64 = hosted.join().iter().sum();
    woken.join();
    harness::wait_until("all that were started to run", || ran.load(SeqCst) == started);
    println!("ran {started}");
}

extern "C" fn takes_its_time(_signal: i32) {
    burn(20_000);
}

/// Signal handlers that run on goroutines' own stacks and take longer than a slice.
pub(crate) fn handlers() {
    // SAFETY: all zero is a valid action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = takes_its_time as *const () as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler only computes.
    unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) };
    let all = [hogs(8), allocating(4)];
    let sender = std::thread::spawn(|| {
        let mut sent = 0;
        while !is_over() || sent < 100 {
            for _ in 0..16 {
                sent += calls::send_to_all(libc::SIGUSR1);
                std::thread::sleep(Duration::from_micros(400));
            }
            // Leaves time in which goroutines are interrupted outside handlers.
            std::thread::sleep(3 * MILLI);
        }
        sent
    });
    harness::wait_for_moves_and_stop();
    println!("sent {}", sender.join().unwrap());
    all.into_iter().for_each(|all| drop(all.join()));
}

/// Starts goroutines that use C's allocator.
fn allocating(count: usize) -> harness::GoroutineGroup<u64> {
    spawn_group("a goroutine in malloc", count, |number, lane: &Heartbeat| {
        while !is_over() || lane.steps() == 0 {
            take_memory(1100 + (lane.steps() as usize % 50) * 64 + number);
            lane.step();
        }
        lane.steps()
    })
}

fn take_memory(size: usize) {
    // SAFETY: has no precondition.
    let block = unsafe { libc::malloc(size) }.cast::<u8>();
    assert!(!block.is_null());
    // SAFETY: the block has room for a byte.
    unsafe { block.write_volatile(1) };
    // SAFETY: from `malloc`, and not used again.
    unsafe { libc::free(block.cast()) };
}

/// Goroutines are interrupted in malloc in favor of goroutines that timers make ready. Those
/// goroutines allocate too, and so does the thread that creates threads.
pub(crate) fn made_threads() {
    let all = allocating(4);
    let woken =
        spawn_group("a goroutine that sleeps and takes memory", 6, |number, lane: &Heartbeat| {
            while !is_over() || lane.steps() == 0 {
                time::sleep(MILLI / 5);
                take_memory(2000 + number);
                lane.step();
            }
            lane.steps()
        });
    harness::wait_and_stop();
    all.join();
    println!("least {}", woken.join().into_iter().min().unwrap());
}
