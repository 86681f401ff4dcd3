//! Checks recorded scheduler events against the scheduler's rules: the history of each goroutine,
//! what each M and P does, and what comes out of the queues.
//!
//! A recording may begin at any moment, so what happened before is unknown and not checked.

use gosched::debug::events::{
    CallEnd, Event, EventKind, EventThread, GlobalReason, Place, PreemptMethod, Source, Span,
};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// The length of a full local queue.
const CAPACITY: u32 = 256;
/// The P takes from the global queue first in each slice of which the number before is a multiple.
const INTERVAL: u32 = 61;

/// What a goroutine does, as its events tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Runnable,
    Running(EventThread),
    Waiting,
    InCall(EventThread),
    Ended,
}

/// How many events of some kinds were checked: a check that saw none proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Goroutines that an M began or continued to run.
    pub runs: usize,
    /// Goroutines that came from a known position of a local queue.
    pub from_queues: usize,
    /// Goroutines that came from a known place of the global queue.
    pub from_global: usize,
    /// Thefts from the ring of a P.
    pub steals: usize,
    /// Spills of a full queue.
    pub spills: usize,
    /// Slices before which the global queue was due.
    pub due_ticks: usize,
}

/// Checks all rules except [`every_61st_slice_takes_from_the_global_queue`].
///
/// # Errors
/// The first event that breaks a rule, the rule, and the events before.
pub fn check(events: &[Event]) -> Result<Checked, String> {
    let mut rules = Rules::default();
    rules.place_all(events);
    for (index, event) in events.iter().enumerate() {
        if let Err(rule) = rules.check(event) {
            let from = index.saturating_sub(30);
            let before: Vec<String> = events[from..=index].iter().map(Event::to_string).collect();
            return Err(format!("{rule}\n{}", before.join("\n")));
        }
    }
    rules.check_taken_positions()?;
    Ok(rules.checked)
}

/// Checks, for a program with one P and without timers and I/O, that the P took from the global
/// queue in every 61st slice. Returns how often.
///
/// # Errors
/// A slice in which it did not.
pub fn every_61st_slice_takes_from_the_global_queue(events: &[Event]) -> Result<usize, String> {
    let mut taken = 0;
    for (index, event) in events.iter().enumerate() {
        match event.kind {
            EventKind::TakeGlobal { why: GlobalReason::Tick, .. } => taken += 1,
            EventKind::Run { from, slice, inherits, global, .. } => {
                // The tick before this slice: a goroutine that inherits the slice adds no tick.
                let tick = slice.wrapping_sub(u32::from(!inherits));
                let is_due = tick.is_multiple_of(INTERVAL) && global > 0;
                if is_due && matches!(from, Source::RunNext | Source::Queue(_)) {
                    return Err(format!(
                        "event {index}, {event}: it is the 61st slice and {global} goroutines are \
                         in the global queue, but the P took from its own queue"
                    ));
                }
            }
            _ => {}
        }
    }
    Ok(taken)
}

/// A position in the ring of a P.
type Position = (u32, u32);

#[derive(Debug, Default)]
struct Rules {
    states: HashMap<u64, State>,
    /// The goroutine that each M runs.
    running: HashMap<EventThread, u64>,
    /// The M that has each P, if it is known.
    owners: HashMap<u32, Option<EventThread>>,
    /// The goroutine at a position.
    at: HashMap<Position, u64>,
    /// Where a stolen goroutine was before.
    from: HashMap<Position, Position>,
    /// The positions that were taken, by P.
    taken: BTreeMap<u32, Vec<Span>>,
    /// The global queue, while all of it is known.
    global: Option<VecDeque<Option<u64>>>,
    checked: Checked,
}

fn at(p: Option<u32>, position: u32) -> Position {
    (p.unwrap_or(u32::MAX), position)
}

fn positions(span: Span) -> impl Iterator<Item = u32> {
    (0..span.count).map(move |offset| span.position.wrapping_add(offset))
}

impl Rules {
    /// Notes which goroutine was put at which position. Positions are never used twice, so the
    /// order of the events does not matter.
    fn place_all(&mut self, events: &[Event]) {
        for event in events {
            match event.kind {
                EventKind::Spawn { g, to: Place::Queue(position), .. }
                | EventKind::Ready { g, to: Place::Queue(position), .. }
                | EventKind::Enqueue { g, to: Place::Queue(position) }
                | EventKind::Displace { g, to: Place::Queue(position), .. } => {
                    self.at.insert(at(event.p, position), g);
                }
                EventKind::Steal { victim, taken, to, .. } => {
                    for (offset, position) in positions(taken).enumerate() {
                        let to = at(event.p, to.wrapping_add(offset as u32));
                        // The last one runs at once, and its position is used again.
                        if offset as u32 + 1 < taken.count {
                            self.from.insert(to, (victim, position));
                        }
                    }
                }
                _ => {}
            }
        }
        // The global queue is known if it is empty at first, and only the usual ways lead into it.
        let is_special = |event: &Event| match event.kind {
            EventKind::Enqueue { to: Place::GlobalFirst, .. }
            | EventKind::Ready { to: Place::GlobalFirst, .. }
            | EventKind::Preempt { how: PreemptMethod::InPlace, .. }
            | EventKind::LeaveCall { end: CallEnd::Waits, .. }
            | EventKind::StopWorld { .. }
            | EventKind::NoStack { .. } => true,
            EventKind::TakeGlobal { why, .. } => {
                matches!(why, GlobalReason::First | GlobalReason::Pinned)
            }
            _ => false,
        };
        let first = events.iter().find_map(|event| match event.kind {
            EventKind::Run { global, .. } => Some(global),
            EventKind::TakeGlobal { len, .. } => Some(len),
            _ => None,
        });
        if !events.iter().any(is_special) && first == Some(0) {
            self.global = Some(VecDeque::new());
        }
    }

    /// Returns the goroutine at a position, if it is known.
    fn goroutine_at(&self, mut position: Position) -> Option<u64> {
        loop {
            if let Some(&g) = self.at.get(&position) {
                return Some(g);
            }
            position = *self.from.get(&position)?;
        }
    }

    fn take(&mut self, p: u32, span: Span) {
        if span.count > 0 {
            self.taken.entry(p).or_default().push(span);
        }
    }

    fn check(&mut self, event: &Event) -> Result<(), String> {
        self.check_owner(event)?;
        self.check_state(event)?;
        self.check_queues(event)
    }

    /// An M that has a P got it before, and no other M has it.
    fn check_owner(&mut self, event: &Event) -> Result<(), String> {
        let is_m = matches!(event.thread, EventThread::M(_));
        match event.kind {
            EventKind::AcquireP { p } => {
                if let Some(Some(owner)) = self.owners.insert(p, Some(event.thread)) {
                    return Err(format!("{} acquires P{p}, which {owner} has", event.thread));
                }
            }
            EventKind::ReleaseP { p } => {
                self.owners.insert(p, None);
            }
            EventKind::Retake { p, .. } => {
                self.owners.insert(p, None);
            }
            _ => {
                if let Some(p) = event.p.filter(|_| is_m) {
                    let owner = *self.owners.entry(p).or_insert(Some(event.thread));
                    if owner != Some(event.thread) {
                        return Err(format!("{} has P{p}, but {owner:?} does", event.thread));
                    }
                }
            }
        }
        Ok(())
    }

    fn set(&mut self, g: u64, to: State, from: &[State]) -> Result<(), String> {
        match self.states.insert(g, to) {
            Some(state) if !from.contains(&state) => {
                Err(format!("G{g}, which is {state:?}, becomes {to:?}"))
            }
            _ => Ok(()),
        }
    }

    /// A goroutine leaves its M.
    fn leave(&mut self, thread: EventThread, g: u64) -> Result<(), String> {
        match self.running.remove(&thread) {
            Some(running) if running != g => {
                Err(format!("G{g} leaves {thread}, which runs G{running}"))
            }
            _ => Ok(()),
        }
    }

    fn check_state(&mut self, event: &Event) -> Result<(), String> {
        let thread = event.thread;
        let running = [State::Running(thread), State::InCall(thread)];
        match event.kind {
            EventKind::Spawn { g, .. } => {
                if let Some(state) = self.states.insert(g, State::Runnable) {
                    return Err(format!("G{g} starts, but it is {state:?}"));
                }
                Ok(())
            }
            EventKind::Ready { g, .. } => self.set(g, State::Runnable, &[State::Waiting]),
            EventKind::Enqueue { g, .. }
            | EventKind::Displace { g, .. }
            | EventKind::Spill { g, .. }
            | EventKind::TakeGlobal { g, .. }
            | EventKind::Steal { g, .. } => self.set(g, State::Runnable, &[State::Runnable]),
            EventKind::Run { g, .. } => {
                self.checked.runs += 1;
                if let Some(other) = self.running.insert(thread, g) {
                    return Err(format!("{thread} runs G{g}, but it already runs G{other}"));
                }
                self.set(g, State::Running(thread), &[State::Runnable])
            }
            EventKind::Park { g, .. } => {
                self.leave(thread, g)?;
                self.set(g, State::Waiting, &running[..1])
            }
            EventKind::Yield { g, continues: true } => {
                self.set(g, State::Running(thread), &running[..1])
            }
            EventKind::Yield { g, continues: false }
            | EventKind::Preempt { g, .. }
            | EventKind::NoStack { g } => {
                self.leave(thread, g)?;
                self.set(g, State::Runnable, &running[..1])
            }
            EventKind::Exit { g } => {
                self.leave(thread, g)?;
                self.set(g, State::Ended, &running[..1])
            }
            EventKind::EnterCall { g, .. } => self.set(g, State::InCall(thread), &running[..1]),
            EventKind::LeaveCall { g, end: CallEnd::Queued | CallEnd::Waits } => {
                self.leave(thread, g)?;
                self.set(g, State::Runnable, &running)
            }
            EventKind::LeaveCall { g, .. } => self.set(g, State::Running(thread), &running),
            _ => Ok(()),
        }
    }

    fn check_queues(&mut self, event: &Event) -> Result<(), String> {
        match event.kind {
            EventKind::Run { g, from: Source::Queue(position), .. } => {
                self.take(event.p.unwrap_or(u32::MAX), Span { position, count: 1 });
                if let Some(known) = self.goroutine_at(at(event.p, position)) {
                    self.checked.from_queues += 1;
                    if known != g {
                        return Err(format!("G{known} is at position {position}, not G{g}"));
                    }
                }
                Ok(())
            }
            EventKind::Steal { g, victim, taken, len, .. } if taken.count > 0 => {
                self.checked.steals += 1;
                self.take(victim, taken);
                if taken.count != len - len / 2 {
                    return Err(format!("a thief takes half of {len}, rounded up"));
                }
                let last = taken.position.wrapping_add(taken.count - 1);
                match self.goroutine_at((victim, last)) {
                    Some(known) if known != g => Err(format!("G{known} is the last, not G{g}")),
                    _ => Ok(()),
                }
            }
            EventKind::Spill { g, moved, first, last, len } => {
                self.checked.spills += 1;
                self.take(event.p.unwrap_or(u32::MAX), moved);
                if len != CAPACITY || moved.count != CAPACITY / 2 {
                    return Err(format!("{} of {len} spill, not half of {CAPACITY}", moved.count));
                }
                let known: Vec<Option<u64>> =
                    positions(moved).map(|place| self.goroutine_at(at(event.p, place))).collect();
                for (known, said) in [(known[0], first), (known[known.len() - 1], last)] {
                    if known.is_some_and(|known| known != said) {
                        return Err(format!("{known:?} spills, not G{said}"));
                    }
                }
                if let Some(global) = &mut self.global {
                    global.extend(known);
                    global.push_back(Some(g));
                }
                Ok(())
            }
            EventKind::Spawn { g, to: Place::Global, .. }
            | EventKind::Ready { g, to: Place::Global, .. }
            | EventKind::Enqueue { g, to: Place::Global } => {
                if let Some(global) = &mut self.global {
                    global.push_back(Some(g));
                }
                Ok(())
            }
            EventKind::TakeGlobal { g, others, len, why } => {
                let Some(global) = &mut self.global else { return Ok(()) };
                if global.len() != len as usize {
                    let expected = global.len();
                    return Err(format!("the global queue holds {expected}, not {len}"));
                }
                let first = global.pop_front().flatten();
                if first.is_some_and(|first| first != g) {
                    return Err(format!("{first:?} is the first of the global queue, not G{g}"));
                }
                self.checked.from_global += usize::from(first.is_some());
                self.checked.due_ticks += usize::from(why == GlobalReason::Tick);
                let moved: Vec<Option<u64>> = global.drain(..others.count as usize).collect();
                for (g, position) in moved.into_iter().zip(positions(others)) {
                    self.at.extend(g.map(|g| (at(event.p, position), g)));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Goroutines are taken from a local queue in the order in which they were put in: each
    /// position once, and none is left out.
    fn check_taken_positions(&mut self) -> Result<(), String> {
        for (p, spans) in &mut self.taken {
            // A recording is short compared to the range of positions, which wrap.
            let first = spans[0].position.wrapping_sub(1 << 31);
            spans.sort_by_key(|span| span.position.wrapping_sub(first));
            for pair in spans.windows(2) {
                let next = pair[0].position.wrapping_add(pair[0].count);
                if pair[1].position != next {
                    return Err(format!(
                        "P{p}: after position {next} the next to be taken is {}",
                        pair[1].position
                    ));
                }
            }
        }
        Ok(())
    }
}
