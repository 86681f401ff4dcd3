//! Scenarios of blocking calls, on one P. This module never takes a P: the library's sysmon does.

use super::{calls_beside_a_loop, is_run, is_spawn, until_seen, waits_for_the_other};
use crate::tour::show::{Act, Failure, Names, Show};
use crate::tour::stage::Stage;
use gosched::debug::events::{CallEnd, Event, EventKind, EventThread, Place, Source};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Blocks the thread until `is_over` is set.
fn block(is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(super) fn marked(_: &Stage) -> Result<Act, Failure> {
    let (mut show, [g1, g2]) = waits_for_the_other(|has_run| gosched::blocking(|| block(has_run)));
    show.pass("G1 starts G2", |event| is_spawn(event, g2))?;
    let enter = show.step(
        "G1 enters a call that may block. Its thread keeps the P for now.",
        |event| matches!(event.kind, EventKind::EnterCall { g, .. } if g == g1),
    )?;
    blocked(show, g1, g2, enter.thread, true)
}

pub(super) fn unmarked(_: &Stage) -> Result<Act, Failure> {
    let (mut show, [g1, g2]) = waits_for_the_other(block);
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
    show.step("Sysmon takes the P from the blocked thread.", |event| {
        matches!(event.kind, EventKind::Retake { g, marked, .. } if g == g1 && marked == is_marked)
    })?;
    let run = show.step("Another thread has the P and runs G2.", |event| is_run(event, g2))?;
    show.check("G2 runs on another thread.", run.thread != thread)?;
    let is_back = |event: &Event| match event.kind {
        EventKind::LeaveCall { g, end } if g == g1 => Some(end),
        _ => None,
    };
    let end = show.events().iter().find_map(is_back);
    let caption = match end {
        Some(CallEnd::OldP) => "The call ends. The P is idle again, and G1 takes it back.",
        Some(CallEnd::IdleP) => "The call ends. G1 takes an idle P.",
        _ => "The call ends. No P is idle: G1 goes into the global queue.",
    };
    show.step(caption, |event| is_back(event).is_some_and(|end| end != CallEnd::Kept))?;
    Ok(show.end())
}

pub(super) fn end_of_call(_: &Stage) -> Result<Act, Failure> {
    let leaves = |event: &Event, wanted: u64, as_wanted: CallEnd| matches!(event.kind, EventKind::LeaveCall { g, end } if g == wanted && end == as_wanted);
    let two_calls = || {
        calls_beside_a_loop(
            |long_call| {
                gosched::blocking(|| ());
                long_call();
            },
            || (),
        )
    };
    let (events, [g1, g2], (), ()) = until_seen(two_calls, |(events, [g1, _], (), ())| {
        let has = |end| events.iter().any(|event| leaves(event, *g1, end));
        has(CallEnd::Kept) && has(CallEnd::Queued)
    });
    let mut show = Show::new(events, Names::new(&[g1, g2]), 1);
    let enter = show.step(
        "G1 enters a call that may block.",
        |event| matches!(event.kind, EventKind::EnterCall { g, .. } if g == g1),
    )?;
    let leave = show.step("The call was short: G1 still has its P.", |event| {
        leaves(event, g1, CallEnd::Kept)
    })?;
    show.check("The thread of G1 had the same P before and after the short call.", {
        enter.thread == leave.thread && enter.p == leave.p
    })?;
    show.step(
        "The second call is long: sysmon takes the P.",
        |event| matches!(event.kind, EventKind::Retake { g, .. } if g == g1),
    )?;
    show.step("Another thread runs G2.", |event| is_run(event, g2))?;
    let leave = show.pass("the long call ends, and G1 finds no P", |event| {
        leaves(event, g1, CallEnd::Queued)
    })?;
    show.step("The long call ends. G2 has the only P: G1 goes into the global queue.", |event| {
        event.kind == EventKind::Enqueue { g: g1, to: Place::Global }
    })?;
    show.step("The thread of G1 sleeps.", |event| {
        event.thread == leave.thread && matches!(event.kind, EventKind::Sleep { .. })
    })?;
    let run = show.step("G1 gets its turn.", |event| is_run(event, g1))?;
    show.check("G1 comes from the global queue.", {
        matches!(run.kind, EventKind::Run { from: Source::Global, .. })
    })?;
    Ok(show.end())
}
