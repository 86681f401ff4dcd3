//! A goroutine continues on another thread, with all that makes it a thread to the code inside it.
//! This module never uses an unsafe function: that is the point.

use super::{is_run, record, until_seen};
use crate::tour::show::{Act, Failure, Names, Show};
use crate::tour::stage::Stage;
use gosched::debug::events::{Event, EventKind};
use gosched::{GoId, chan, go};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

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

/// A run of the program: its events, its goroutines, and what each goroutine saw.
#[derive(Debug)]
struct Run {
    events: Vec<Event>,
    ids: [u64; 2],
    before: Seen,
    after: Seen,
    /// What G2 saw.
    other: Seen,
}

/// On one P: G1 makes a call that ends while G2 computes on another thread. So G1 waits, and
/// continues on the thread that has the P.
fn moves() -> Run {
    let (events, (ids, before, after, other)) = record(1, || {
        let (send, receive) = chan(1);
        let first = go(move || {
            let [has_run, is_back] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
            let other = go({
                let (has_run, is_back) = (Arc::clone(&has_run), Arc::clone(&is_back));
                move || {
                    has_run.store(true, Ordering::Relaxed);
                    while !is_back.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                    look()
                }
            });
            COUNT.set(42);
            // No such file: this sets errno.
            let _ = std::fs::metadata("/no/such/file");
            let before = look();
            gosched::blocking(|| {
                while !has_run.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                }
                let _ = std::fs::metadata("/no/such/file");
            });
            let after = look();
            is_back.store(true, Ordering::Relaxed);
            let ids = [gosched::id().map_or(0, GoId::get), other.id().get()];
            send.send((ids, before, after, other.join().expect("G2 only computes")))
                .expect("the receiver waits");
        });
        let result = receive.recv().expect("G1 sends");
        first.join().expect("G1 does not panic");
        result
    });
    Run { events, ids, before, after, other }
}

/// Returns whether `g` ran on two threads.
fn has_moved(events: &[Event], wanted: u64) -> bool {
    let mut threads = events.iter().filter(|event| is_run(event, wanted)).map(|event| event.thread);
    let first = threads.next();
    threads.any(|thread| Some(thread) != first)
}

pub(super) fn identity(_: &Stage) -> Result<Act, Failure> {
    let run = until_seen(moves, |run| has_moved(&run.events, run.ids[0]));
    let Run { events, ids: [g1, g2], before, after, other } = run;
    let mut show = Show::new(events, Names::new(&[g1, g2]));
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
