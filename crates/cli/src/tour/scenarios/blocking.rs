//! Scenarios on one P, whose goroutine does not give the P up by itself. This module never takes a
//! P: the library's sysmon does.

use super::{is_run, is_spawn, record};
use crate::tour::show::{Act, Failure, Names, Show};
use gosched::debug::events::{CallEnd, EventKind, EventThread};
use gosched::{GoId, chan, go};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// On one P: G1 starts G2, then calls `wait` until G2 has run. Only then does G1 end.
fn waits_for_the_other(wait: fn(&AtomicBool)) -> (Show, u64, u64) {
    let (events, (g1, g2)) = record(1, || {
        let (send, receive) = chan(1);
        let first = go(move || {
            let has_run = Arc::new(AtomicBool::new(false));
            let other = go({
                let has_run = Arc::clone(&has_run);
                move || has_run.store(true, Ordering::Relaxed)
            });
            wait(&has_run);
            let ids = (gosched::id().map_or(0, GoId::get), other.id().get());
            send.send(ids).expect("the receiver waits");
        });
        let ids = receive.recv().expect("G1 sends");
        first.join().expect("G1 does not panic");
        ids
    });
    let mut names = Names::default();
    names.add(1, [g1, g2]);
    (Show::new(events, names), g1, g2)
}

/// Blocks the thread until `has_run` is set.
fn block(has_run: &AtomicBool) {
    while !has_run.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(super) fn marked() -> Result<Act, Failure> {
    let (mut show, g1, g2) = waits_for_the_other(|has_run| gosched::blocking(|| block(has_run)));
    show.pass("G1 starts G2", |event| is_spawn(event, g2))?;
    let enter = show.step(
        "G1 enters a call that may block. Its thread keeps the P for now.",
        |event| matches!(event.kind, EventKind::EnterCall { g, .. } if g == g1),
    )?;
    blocked(show, g1, g2, enter.thread, true)
}

pub(super) fn unmarked() -> Result<Act, Failure> {
    let (mut show, g1, g2) = waits_for_the_other(block);
    let spawn = show
        .step("G1 starts G2, and then sleeps in a call that blocks its thread.", |event| {
            is_spawn(event, g2)
        })?;
    blocked(show, g1, g2, spawn.thread, false)
}

/// The steps from the moment in which `thread` is blocked in a call of G1.
fn blocked(
    mut show: Show,
    g1: u64,
    g2: u64,
    thread: EventThread,
    is_marked: bool,
) -> Result<Act, Failure> {
    let retake = show.step("Sysmon takes the P from the blocked thread.", |event| {
        matches!(event.kind, EventKind::Retake { g, marked, .. } if g == g1 && marked == is_marked)
    })?;
    let run = show.step("Another thread has the P and runs G2.", |event| is_run(event, g2))?;
    show.check("G2 runs on another thread.", run.thread != thread)?;
    let p = match retake.kind {
        EventKind::Retake { p, .. } => Some(p),
        _ => None,
    };
    show.check("G2 runs on the P that was taken.", run.p == p)?;
    let back = show.step(
        "The call ends. G1 continues with a P, or waits for one.",
        |event| matches!(event.kind, EventKind::LeaveCall { g, .. } if g == g1),
    )?;
    let is_known = matches!(
        back.kind,
        EventKind::LeaveCall {
            end: CallEnd::OldP | CallEnd::IdleP | CallEnd::Queued | CallEnd::Waits,
            ..
        }
    );
    show.check("G1 takes its old P, or another idle P, or waits in the global queue.", is_known)?;
    Ok(show.end())
}

pub(super) fn preempted() -> Result<Act, Failure> {
    let (mut show, g1, g2) = waits_for_the_other(|has_run| {
        while !has_run.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    });
    show.step("G1 starts G2 and computes in an endless loop.", |event| is_spawn(event, g2))?;
    show.step("Sysmon requests that G1 stop.", |event| {
        let is_it = |g| g == g1 && event.thread == EventThread::Sysmon;
        matches!(event.kind, EventKind::RequestPreempt { g, .. } if is_it(g))
    })?;
    show.step(
        "A signal interrupts G1 in the middle of its loop.",
        |event| matches!(event.kind, EventKind::Preempt { g, .. } if g == g1),
    )?;
    show.step("G2 runs.", |event| is_run(event, g2))?;
    show.step("G1 continues.", |event| is_run(event, g1))?;
    Ok(show.end())
}
