//! The two programs of the documents that end only with preemption, on one P. This module never
//! interrupts a goroutine: the library does.

use super::{is_run, is_spawn, record, until_seen, waits_for_the_other};
use crate::tour::show::{Act, Failure, Names, Show};
use crate::tour::stage::Stage;
use gosched::debug::events::{
    Event, EventKind, EventThread, Place, PreemptReason, WaitReason, Waker,
};
use gosched::{go, time};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a goroutine runs at least before its slice is over: 10 ms of CPU time, which is never
/// more than the time of the clock, but for the precision of both.
const SLICE: Duration = Duration::from_micros(9_900);

/// Returns whether an event is a preemption of `wanted` for this reason.
fn is_preempt(event: &Event, wanted: u64, why: PreemptReason) -> bool {
    matches!(event.kind, EventKind::Preempt { g, reason, .. } if g == wanted && reason == why)
}

fn is_request(event: &Event, wanted: u64, why: PreemptReason) -> bool {
    matches!(event.kind, EventKind::RequestPreempt { g, reason, .. } if g == wanted && reason == why)
}

pub(super) fn endless_loop(_: &Stage) -> Result<Act, Failure> {
    let (mut show, [g1, g2]) = waits_for_the_other(|has_run| {
        while !has_run.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    });
    let slice = PreemptReason::Slice;
    let begin = show.pass("G1 begins a slice", |event| {
        event.kind == EventKind::Yield { g: g1, continues: true }
    })?;
    show.step("G1 starts G2 and computes in an endless loop.", |event| is_spawn(event, g2))?;
    let request = show.step("Sysmon requests that G1 stop: its slice is over.", |event| {
        is_request(event, g1, slice)
    })?;
    show.check("The request came from sysmon.", request.thread == EventThread::Sysmon)?;
    let ran = request.time.saturating_sub(begin.time);
    show.check(format!("G1 had run for {ran:.1?} when the request came."), ran >= SLICE)?;
    let stop = show.pass("a signal interrupts G1", |event| is_preempt(event, g1, slice))?;
    show.step("A signal interrupts G1, which goes to the tail of the global queue.", |event| {
        event.kind == EventKind::Enqueue { g: g1, to: Place::Global }
    })?;
    show.step("G2 runs.", |event| is_run(event, g2))?;
    show.step("G1 continues.", |event| is_run(event, g1))?;
    show.note(format!(
        "G1 stopped {:.0?} after the request.",
        stop.time.saturating_sub(request.time)
    ));
    Ok(show.end())
}

/// How long the timer runs.
const TIMER: Duration = Duration::from_millis(5);

/// On one P: G1 waits for a timer while G2 computes until G1 has continued.
fn waits_beside_a_loop() -> (Vec<Event>, (u64, u64)) {
    record(1, || {
        let is_over = Arc::new(AtomicBool::new(false));
        let waits = go({
            let is_over = Arc::clone(&is_over);
            move || {
                time::after(TIMER).recv().expect("a timer sends once");
                is_over.store(true, Ordering::Relaxed);
            }
        });
        let computes = go(move || {
            let mut u = 0u32;
            while !is_over.load(Ordering::Relaxed) {
                u = black_box(u).wrapping_sub(2);
                if u == 1 {
                    break;
                }
            }
        });
        let ids = (waits.id().get(), computes.id().get());
        waits.join().expect("G1 does not panic");
        computes.join().expect("G2 does not panic");
        ids
    })
}

pub(super) fn timer(_: &Stage) -> Result<Act, Failure> {
    let why = PreemptReason::MakeRoom;
    // On a busy machine G1 may begin to wait so late that the slice of G2 is over first.
    let (events, (g1, g2)) = until_seen(waits_beside_a_loop, |(events, (_, g2))| {
        events.iter().any(|event| is_preempt(event, *g2, why))
    });
    let mut show = Show::new(events, Names::new(&[g1, g2]), 1);
    let begin = show.pass("G1 runs", |event| is_run(event, g1))?;
    let wait = show.step(
        "G1 waits for a timer of 5 ms.",
        |event| matches!(event.kind, EventKind::Park { g, reason: WaitReason::ChanReceive } if g == g1),
    )?;
    show.step("G2 computes in an endless loop.", |event| is_run(event, g2))?;
    show.step("The timer is due: sysmon requests that G2 make room.", |event| {
        is_request(event, g2, why)
    })?;
    show.pass("a signal interrupts G2", |event| is_preempt(event, g2, why))?;
    show.step(
        "A signal interrupts G2 in the middle of its loop.",
        |event| matches!(event.kind, EventKind::Enqueue { g, .. } if g == g2),
    )?;
    let ready = show.step(
        "The timer makes G1 ready.",
        |event| matches!(event.kind, EventKind::Ready { g, by: Waker::Timer, .. } if g == g1),
    )?;
    let run = show.step("G1 runs.", |event| is_run(event, g1))?;
    show.step("G2 continues.", |event| is_run(event, g2))?;
    show.check("The timer did not fire too early.", {
        ready.time.saturating_sub(begin.time) >= TIMER
    })?;
    show.note(format!("G1 ran {:.2?} after it had begun to wait.", run.time - wait.time));
    Ok(show.end())
}
