//! Scenarios on one P, whose order is always the same. This module never uses a second P.

use super::{is_run, is_spawn, is_undisturbed, own_id, record, until_seen};
use crate::tour::show::{Act, Failure, Names, Show};
use crate::tour::stage::Stage;
use gosched::debug::events::{Event, EventKind, GlobalReason, Place, Source};
use gosched::{chan, go};

/// On one P: G1 starts G2 and ends. G2 starts `children` goroutines, from G3 on, and ends. Returns
/// the program's numbers of all of them, in their order.
fn family(children: usize) -> (Show, Vec<u64>) {
    let attempt = || {
        record(1, || {
            let (send, receive) = chan(1);
            let first = go(move || {
                go(move || {
                    let own = own_id();
                    let children: Vec<_> = (0..children).map(|_| go(|| ())).collect();
                    send.send((own, children)).expect("the receiver waits");
                });
            });
            let (g2, children) = receive.recv().expect("G2 sends");
            let mut all = vec![first.id().get(), g2];
            all.extend(children.iter().map(|child| child.id().get()));
            children.into_iter().for_each(|child| child.join().expect("an empty function"));
            all
        })
    };
    let (events, all) = until_seen(attempt, |(events, all)| is_undisturbed(events, all));
    (Show::new(events, Names::new(&all), 1), all)
}

pub(super) fn locality(_: &Stage) -> Result<Act, Failure> {
    let (mut show, ids) = family(0);
    let (g1, g2) = (ids[0], ids[1]);
    let runs = show.step("G1 runs.", |event| is_run(event, g1))?;
    let next = Place::RunNext;
    let spawn = show.step("G1 starts G2, which goes into run_next of G1's P.", |event| {
        matches!(event.kind, EventKind::Spawn { g, parent, to } if g == g2 && parent == g1 && to == next)
    })?;
    show.check("The P of G1 is the P whose run_next holds G2.", runs.p == spawn.p)?;
    Ok(show.end())
}

pub(super) fn reuse(_: &Stage) -> Result<Act, Failure> {
    let (mut show, ids) = family(0);
    let (g1, g2) = (ids[0], ids[1]);
    show.pass("G1 starts G2", |event| is_spawn(event, g2))?;
    let exit = show.step("G1 ends. Its thread looks for the next goroutine.", |event| {
        event.kind == EventKind::Exit { g: g1 }
    })?;
    let run = show.step(
        "The same thread takes G2 from run_next and runs it.",
        |event| matches!(event.kind, EventKind::Run { g, from: Source::RunNext, .. } if g == g2),
    )?;
    let same = exit.thread == run.thread && exit.p == run.p;
    show.check("G2 runs on the thread and on the P on which G1 ended.", same)?;
    Ok(show.end())
}

/// How many goroutines fit: 256 in the queue, and one in `run_next`.
const FIT: usize = 257;

pub(super) fn fill(_: &Stage) -> Result<Act, Failure> {
    let (mut show, ids) = family(FIT);
    show.pass("G2 runs", |event| is_run(event, ids[1]))?;
    show.step("G2 starts G3, which is the next to run.", |event| is_spawn(event, ids[2]))?;
    displaced(&mut show, &ids, 3, "")?;
    let last = displaced(&mut show, &ids, 1 + FIT, "And so on. ")?;
    let queue = show.world().ps.get(&last.p.unwrap_or(0)).map(|p| p.queue.clone());
    let queued: Vec<u64> = queue.into_iter().flatten().map(|place| place.1).collect();
    show.check(
        "The queue holds 256 goroutines, in the order in which they were started.",
        queued == ids[2..2 + 256],
    )?;
    Ok(show.end())
}

/// Goes on to the event in which the goroutine at `index` displaces the one before.
fn displaced(show: &mut Show, ids: &[u64], index: usize, before: &str) -> Result<Event, Failure> {
    let (new, old) = (ids[index], ids[index - 1]);
    let caption = format!(
        "{before}G2 starts {}, which displaces {}: that one goes to the tail of the queue.",
        show.name(new),
        show.name(old)
    );
    show.step(caption, |event| {
        let is_it = |g, by, to| g == old && by == new && matches!(to, Place::Queue(_));
        matches!(event.kind, EventKind::Displace { g, by, to } if is_it(g, by, to))
    })
}

/// Returns whether an event is the spill of the older half of a full queue: of the goroutines from
/// G3 on, and `last`.
fn is_spill(event: &Event, ids: &[u64], wanted: u64) -> bool {
    let half = (ids[2], ids[2 + 127]);
    matches!(event.kind, EventKind::Spill { g, moved, first, last, .. }
        if g == wanted && moved.count == 128 && (first, last) == half)
}

pub(super) fn spill(_: &Stage) -> Result<Act, Failure> {
    let (mut show, ids) = family(FIT + 1);
    let (last, new) = (ids[1 + FIT], ids[2 + FIT]);
    let (last_name, name) = (show.name(last), show.name(new));
    show.step_before(
        &format!("The queue of P0 is full, and {last_name} is in run_next. G2 starts {name}."),
        |event| is_spawn(event, new),
    )?;
    show.step(
        format!("{name} takes run_next. The older half of the queue, and {last_name}, go to the global queue."),
        |event| is_spill(event, &ids, last),
    )?;
    let mut expected = ids[2..2 + 128].to_vec();
    expected.push(last);
    let global: Vec<u64> = show.world().global.iter().copied().collect();
    show.check(
        format!("The global queue holds the older half in its order, and {last_name} behind it."),
        global == expected,
    )?;
    Ok(show.end())
}

pub(super) fn room_again(_: &Stage) -> Result<Act, Failure> {
    let (mut show, ids) = family(FIT + 2);
    let last = ids[1 + FIT];
    show.step("The full queue has spilled: 128 places are free.", |event| {
        is_spill(event, &ids, last)
    })?;
    let after = displaced(&mut show, &ids, 3 + FIT, "")?;
    let queue = show.world().ps.get(&after.p.unwrap_or(0)).map_or(0, |p| p.queue.len());
    show.check("The queue holds the newer half and one more: 129.", queue == 129)?;
    Ok(show.end())
}

pub(super) fn tick(_: &Stage) -> Result<Act, Failure> {
    const STARTED: usize = 300;
    let (mut show, _) = family(STARTED);
    let is_tick =
        |event: &Event| matches!(event.kind, EventKind::TakeGlobal { why: GlobalReason::Tick, .. });
    let is_any_run = |event: &Event| matches!(event.kind, EventKind::Run { .. });
    let slice = |event: Event| match event.kind {
        EventKind::Run { slice, .. } => slice,
        _ => 0,
    };
    show.step("The P's own queue is not empty, but the P takes from the global queue.", is_tick)?;
    let is_busy = show.world().ps.values().any(|p| !p.queue.is_empty());
    show.check("The P's own queue was not empty.", is_busy)?;
    let first = slice(show.pass("that goroutine runs", is_any_run)?);
    show.step("61 slices later, the P does so again.", is_tick)?;
    let second = slice(show.pass("that goroutine runs", is_any_run)?);
    show.check(
        format!("Slice {first} and slice {second} are 61 apart."),
        second.wrapping_sub(first) == 61,
    )?;
    Ok(show.end())
}
