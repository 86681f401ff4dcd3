//! A goroutine continues on another thread, with all that makes it a thread to the code inside it.
//! This module never uses an unsafe function: that is the point.

use super::{calls_beside_a_loop, is_run, until_seen};
use crate::tour::show::{Act, Failure, Names, Show};
use crate::tour::stage::Stage;
use gosched::debug::events::{Event, EventKind};
use std::cell::Cell;
use std::thread::{self, ThreadId};

thread_local! {
    static COUNT: Cell<u32> = const { Cell::new(0) };
}

/// What is the same on every thread that runs the goroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    count: u32,
    address: usize,
    thread: ThreadId,
    errno: Option<i32>,
}

#[inline(never)]
fn look() -> Seen {
    let errno = std::io::Error::last_os_error().raw_os_error();
    let address = COUNT.with(|count| std::ptr::from_ref(count).addr());
    Seen { count: COUNT.get(), address, thread: thread::current().id(), errno }
}

/// Sets errno: there is no such file.
fn set_errno() {
    let _ = std::fs::metadata("/no/such/file");
}

/// Returns whether `g` ran on two threads.
fn has_moved(events: &[Event], wanted: u64) -> bool {
    let mut threads = events.iter().filter(|event| is_run(event, wanted)).map(|event| event.thread);
    let first = threads.next();
    threads.any(|thread| Some(thread) != first)
}

pub(super) fn identity(_: &Stage) -> Result<Act, Failure> {
    let moves = || {
        calls_beside_a_loop(
            |long_call| {
                COUNT.set(42);
                set_errno();
                let before = look();
                long_call();
                set_errno();
                (before, look())
            },
            look,
        )
    };
    let (events, [g1, g2], (before, after), other) =
        until_seen(moves, |(events, [g1, _], ..)| has_moved(events, *g1));
    let mut show = Show::new(events, Names::new(&[g1, g2]), 1);
    let first = show.step("G1 runs. It sets a thread-local to 42.", |event| is_run(event, g1))?;
    show.step(
        "G1 blocks in a call. Sysmon takes the P.",
        |event| matches!(event.kind, EventKind::Retake { g, .. } if g == g1),
    )?;
    show.step("Another thread runs G2, for which the thread-local is 0.", |event| {
        is_run(event, g2)
    })?;
    show.step("G1 continues on that thread.", |event| {
        is_run(event, g1) && event.thread != first.thread
    })?;
    show.check(
        format!("G1 has run on two threads, and its thread-local is {} on both.", after.count),
        before.count == 42 && after.count == 42,
    )?;
    show.check("It has the same address on both threads.", before.address == after.address)?;
    show.check(
        format!("thread::current().id() is {:?} on both.", after.thread),
        before.thread == after.thread,
    )?;
    show.check("errno is that of G1's last call.", after.errno == before.errno)?;
    show.check(
        format!(
            "G2 has a thread-local ({}) and an id ({:?}) of its own.",
            other.count, other.thread
        ),
        other.count == 0 && other.thread != after.thread && other.address != after.address,
    )?;
    Ok(show.end())
}
