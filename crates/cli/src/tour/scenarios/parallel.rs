//! Scenarios on several Ps. What happens first differs from run to run, so a program is repeated
//! until the rule had something to decide; all its events must keep the rule. This module never
//! waits for a certain order of threads.

use super::{record, until_seen};
use crate::tour::replay::World;
use crate::tour::show::{Act, Failure, Names, Show};
use crate::tour::stage::Stage;
use gosched::debug::events::{Event, EventKind, EventThread, GlobalReason};
use gosched::{chan, go};
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

/// Computes for a while.
fn compute(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        black_box(());
    }
}

/// Repeats `attempt` until its events contain what `has_it` looks for.
fn show_of(
    procs: usize,
    attempt: impl Fn() -> (Vec<Event>, Names),
    has_it: impl Fn(&[Event]) -> bool,
) -> Show {
    let (events, names) = until_seen(attempt, |(events, _)| has_it(events));
    Show::new(events, names, procs)
}

/// G1 starts `count` goroutines that compute for `each`, on `procs` Ps.
fn many(procs: usize, count: usize, each: Duration) -> (Vec<Event>, Names) {
    let (events, ids) = record(procs, || {
        let first = go(move || {
            let children: Vec<_> = (0..count).map(|_| go(move || compute(each))).collect();
            let ids: Vec<u64> = children.iter().map(|child| child.id().get()).collect();
            children.into_iter().for_each(|child| child.join().expect("it only computes"));
            ids
        });
        let mut ids = vec![first.id().get()];
        ids.extend(first.join().expect("G1 does not panic"));
        ids
    });
    (events, Names::new(&ids))
}

pub(super) fn wake(_: &Stage) -> Result<Act, Failure> {
    let attempt = || {
        // The other thread goes to sleep.
        gosched::time::sleep(Duration::from_millis(1));
        many(2, 3, Duration::from_micros(300))
    };
    let mut show = show_of(2, attempt, |events| woken_by_spawn(events).is_some());
    let Some((started, m, p)) = woken_by_spawn(show.events()) else {
        show.step("A new goroutine wakes a thread.", |_| false)?;
        return Ok(show.end());
    };
    let name = show.name(started);
    show.step(
        format!("{name} starts. A P is idle, and no thread searches for work."),
        |event| matches!(event.kind, EventKind::Spawn { g, .. } if g == started),
    )?;
    show.step(
        format!("So M{m} is woken, and is given P{p}."),
        |event| matches!(event.kind, EventKind::Wake { m: woken, spins: true, .. } if woken == m),
    )?;
    let is_idle = show.world().ms.iter().all(|(&other, view)| other == m || view.p != Some(p));
    show.step(format!("M{m} acquires P{p}, and searches for work."), |event| {
        event.thread == EventThread::M(m) && event.kind == EventKind::AcquireP { p }
    })?;
    show.check(format!("P{p} was idle: no other thread had it."), is_idle)?;
    Ok(show.end())
}

/// Returns a new goroutine that caused an M to be woken, that M, and the P that the M acquired.
fn woken_by_spawn(events: &[Event]) -> Option<(u64, u32, u32)> {
    let found = events.iter().enumerate().find_map(|(index, event)| {
        let EventKind::Wake { m, p, spins: true } = event.kind else { return None };
        let before = events[..index].iter().rev().find(|before| before.thread == event.thread);
        let EventKind::Spawn { g, .. } = before?.kind else { return None };
        Some((index, g, m, p))
    });
    let (index, g, m, p) = found?;
    let acquires = |event: &Event| {
        event.thread == EventThread::M(m) && event.kind == EventKind::AcquireP { p }
    };
    events[index..].iter().any(acquires).then_some((g, m, p))
}

pub(super) fn share(_: &Stage) -> Result<Act, Failure> {
    const PROCS: usize = 4;
    const STARTED: usize = 40;
    let attempt = || {
        let (events, ids) = record(PROCS, || {
            let (send, receive) = chan(1);
            // A thread that is no M puts what it starts into the global queue.
            let starter = thread::Builder::new().spawn(move || {
                let compute_a_while = || compute(Duration::from_micros(200));
                let children: Vec<_> = (0..STARTED).map(|_| go(compute_a_while)).collect();
                send.send(children).expect("the receiver waits");
            });
            if starter.is_err() {
                return Vec::new();
            }
            let children = receive.recv().expect("the thread sends");
            let ids: Vec<u64> = children.iter().map(|child| child.id().get()).collect();
            children.into_iter().for_each(|child| child.join().expect("it only computes"));
            ids
        });
        (events, Names::new(&ids))
    };
    let taken = |event: &Event| match event.kind {
        EventKind::TakeGlobal { why: GlobalReason::Empty, others, len, .. } => {
            Some((others.count as usize + 1, len as usize))
        }
        _ => None,
    };
    let is_large = |event: &Event| taken(event).is_some_and(|(_, len)| len >= PROCS);
    let mut show = show_of(PROCS, attempt, |events| events.iter().any(is_large));
    let all: Vec<(usize, usize)> = show.events().iter().filter_map(taken).collect();
    show.step_before("Goroutines wait in the global queue, and a P has none.", is_large)?;
    let event = show.step("The P takes its share.", is_large)?;
    let (count, len) = taken(&event).unwrap_or_default();
    show.check(
        format!("It takes {count} of {len} goroutines: min({len} / {PROCS} + 1, 128)."),
        count == (len / PROCS + 1).min(len).min(128),
    )?;
    show.check(
        format!("Ps took their share {} times, and the rule held each time.", all.len()),
        all.into_iter().all(|(count, len)| count == (len / PROCS + 1).min(len).min(128)),
    )?;
    Ok(show.end())
}

pub(super) fn steal(_: &Stage) -> Result<Act, Failure> {
    let stolen = |event: &Event| match event.kind {
        EventKind::Steal { victim, taken, len, .. } if taken.count > 0 => {
            Some((victim, taken.count, len))
        }
        _ => None,
    };
    let attempt = || many(2, 60, Duration::from_micros(100));
    let mut show = show_of(2, attempt, |events| clear_theft(events).is_some());
    let all: Vec<_> = show.events().iter().filter_map(stolen).collect();
    let theft = clear_theft(show.events());
    let is_it = |event: &Event| Some(*event) == theft;
    show.step_before("One P has many goroutines in its queue; the other has none.", is_it)?;
    let before = show.world().clone();
    let event = show.step("The other P steals.", is_it)?;
    let (victim, count, len) = stolen(&event).unwrap_or_default();
    let queue: Vec<u64> = before.ps[&victim].queue.iter().map(|place| place.1).collect();
    let (taken, left) = queue.split_at(queue.len().min(count as usize));
    let now =
        |p: u32| -> Vec<u64> { show.world().ps[&p].queue.iter().map(|place| place.1).collect() };
    let (thief, is_head) = (event.p.unwrap_or(0), now(victim) == left);
    let is_queued = taken.split_last().is_some_and(|(_, others)| now(thief) == *others);
    show.check("It takes them from the head of the queue.", is_head)?;
    show.check("All but the last of them are in its own queue now, in their order.", is_queued)?;
    let last = taken.last().copied().unwrap_or_default();
    show.step(format!("It runs the last: {}.", show.name(last)), |next| {
        next.thread == event.thread && matches!(next.kind, EventKind::Run { g, .. } if g == last)
    })?;
    show.check(
        format!("It takes {count} of the {len} goroutines in the queue of P{victim}."),
        count == len - len / 2,
    )?;
    show.check(
        format!("Each of the {} thefts took half, rounded up.", all.len()),
        all.into_iter().all(|(_, count, len)| count == len - len / 2),
    )?;
    Ok(show.end())
}

/// Returns a theft of several goroutines before which the victim's queue was drawn as it was: a
/// goroutine that is being queued at the same moment may be drawn a moment too early.
fn clear_theft(events: &[Event]) -> Option<Event> {
    let mut world = World::new(2);
    for event in events {
        if let EventKind::Steal { victim, taken, len, .. } = event.kind {
            let queue = &world.ps[&victim].queue;
            let is_drawn = queue.len() == len as usize
                && queue.front().is_some_and(|place| place.0 == taken.position);
            if is_drawn && taken.count > 1 && world.on_the_way.is_empty() {
                return Some(*event);
            }
        }
        world.apply(event);
    }
    None
}

pub(super) fn search(_: &Stage) -> Result<Act, Failure> {
    const PROCS: usize = 4;
    const BUSY: usize = 2;
    let attempt = || many(PROCS, BUSY, Duration::from_millis(2));
    let mut show = show_of(PROCS, attempt, |events| searches_in_vain(events).is_some());
    let searcher = searches_in_vain(show.events());
    let is_by = |event: &Event| Some(event.thread) == searcher.map(EventThread::M);
    let is_search = |event: &Event| {
        matches!(event.kind, EventKind::Spin {} | EventKind::AcquireP { .. }) && is_by(event)
    };
    let search = show.step("A thread has a P, but no goroutine to run: it searches.", is_search)?;
    let release = show.step("It has found nothing, and gives its P up.", |event| {
        matches!(event.kind, EventKind::ReleaseP { .. }) && is_by(event)
    })?;
    show.step("It ends its search, and looks at all queues once more.", |event| {
        event.kind == EventKind::StopSpinning { found: false } && is_by(event)
    })?;
    show.step("It sleeps.", |event| matches!(event.kind, EventKind::Sleep { .. }) && is_by(event))?;
    show.check("The P that it gave up is the P with which it searched.", search.p == release.p)?;
    Ok(show.end())
}

/// Returns an M whose first search finds nothing, so that the M sleeps.
fn searches_in_vain(events: &[Event]) -> Option<u32> {
    let of = |m| events.iter().filter(move |event| event.thread == EventThread::M(m));
    let is_search =
        |event: &&Event| matches!(event.kind, EventKind::Spin {} | EventKind::AcquireP { .. });
    let ms = events.iter().filter(is_search).filter_map(|event| match event.thread {
        EventThread::M(m) => Some(m),
        _ => None,
    });
    ms.into_iter().find(|&m| {
        let mut after = of(m).skip_while(|event| !is_search(event)).skip(1).map(|event| event.kind);
        matches!(after.next(), Some(EventKind::ReleaseP { .. }))
            && after.next() == Some(EventKind::StopSpinning { found: false })
            && matches!(after.next(), Some(EventKind::Sleep { .. }))
    })
}
