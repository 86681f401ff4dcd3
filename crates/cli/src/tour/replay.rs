//! The state of the scheduler, rebuilt from recorded events: which P has which queue, which M has
//! which P, where each goroutine is. This module never looks at the running scheduler.

use gosched::debug::events::{CallEnd, Event, EventKind, EventThread, Place, Source, Span, Waker};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What an M does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MState {
    /// It looks for the next goroutine, or switches to it.
    #[default]
    Scheduling,
    /// It runs a goroutine.
    Running(u64),
    /// It has a P, and searches the other Ps for work.
    Spinning,
    /// It is in a call of a goroutine.
    InCall(u64),
    /// It was given a P, and wakes.
    Waking,
    /// It sleeps, without a P.
    Sleeping,
}

/// An M.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MView {
    /// What it does.
    pub(crate) state: MState,
    /// The P that it has.
    pub(crate) p: Option<u32>,
    /// Whether it was woken to search for work, and has not acquired its P yet.
    is_woken_to_spin: bool,
}

/// A P and its queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PView {
    /// The goroutine in `run_next`.
    pub(crate) run_next: Option<u64>,
    /// The goroutines in the ring, with their positions.
    pub(crate) queue: VecDeque<(u32, u64)>,
}

/// The scheduler after some events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct World {
    /// The Ps that were seen.
    pub(crate) ps: BTreeMap<u32, PView>,
    /// The Ms that were seen.
    pub(crate) ms: BTreeMap<u32, MView>,
    /// The global queue.
    pub(crate) global: VecDeque<u64>,
    /// Goroutines that have left a queue or an M, and are not in the next one yet.
    pub(crate) on_the_way: BTreeSet<u64>,
}

impl World {
    /// The state before the first event: all Ps are idle, and all queues are empty.
    pub(crate) fn new(procs: usize) -> World {
        let ps = (0..procs as u32).map(|p| (p, PView::default())).collect();
        World { ps, ..World::default() }
    }

    /// Changes the state as the event says. What happened before the first event is unknown, so a
    /// goroutine may leave a queue that it is not in.
    pub(crate) fn apply(&mut self, event: &Event) {
        if let (EventThread::M(m), Some(p)) = (event.thread, event.p) {
            self.ms.entry(m).or_default().p = Some(p);
            self.ps.entry(p).or_default();
        }
        let p = event.p.unwrap_or(0);
        match event.kind {
            EventKind::Spawn { g, to, parent } => {
                self.runs(event, parent);
                self.put(p, g, to);
            }
            EventKind::Ready { g, to, by } => {
                if let Waker::Goroutine(by) = by {
                    self.runs(event, by);
                }
                self.put(p, g, to);
            }
            EventKind::Enqueue { g, to } | EventKind::Displace { g, to, .. } => self.put(p, g, to),
            EventKind::Spill { g, moved, .. } => {
                let moved = self.take(p, moved);
                self.global.extend(moved);
                self.global.push_back(g);
                self.on_the_way.remove(&g);
            }
            EventKind::TakeGlobal { g, others, .. } => {
                self.global.retain(|&other| other != g);
                self.on_the_way.insert(g);
                for offset in 0..others.count {
                    let Some(other) = self.global.pop_front() else { break };
                    let position = others.position.wrapping_add(offset);
                    self.ps.entry(p).or_default().queue.push_back((position, other));
                }
            }
            EventKind::Steal { g, victim, taken, to, .. } => {
                let stolen = self.take(victim, taken);
                for (offset, other) in (0..).zip(stolen.into_iter().filter(|&other| other != g)) {
                    let position = to.wrapping_add(offset);
                    self.ps.entry(p).or_default().queue.push_back((position, other));
                }
                self.forget(g);
                self.on_the_way.insert(g);
            }
            EventKind::Run { g, from, .. } => {
                match from {
                    Source::Queue(position) => drop(self.take(p, Span { position, count: 1 })),
                    _ => self.forget(g),
                }
                self.on_the_way.remove(&g);
                self.set(event, MState::Running(g));
            }
            EventKind::Park { .. } | EventKind::Exit { .. } | EventKind::NoStack { .. } => {
                self.set(event, MState::Scheduling);
            }
            EventKind::Preempt { g, .. }
            | EventKind::Yield { g, continues: false }
            | EventKind::LeaveCall { g, end: CallEnd::Queued | CallEnd::Waits } => {
                self.on_the_way.insert(g);
                self.set(event, MState::Scheduling);
            }
            EventKind::EnterCall { g, .. } => self.set(event, MState::InCall(g)),
            EventKind::LeaveCall { g, .. } => self.set(event, MState::Running(g)),
            EventKind::Retake { m, g, .. } => {
                let m = self.ms.entry(m).or_default();
                (m.state, m.p) = (MState::InCall(g), None);
            }
            EventKind::Wake { m, p, spins } => {
                *self.ms.entry(m).or_default() =
                    MView { state: MState::Waking, p: Some(p), is_woken_to_spin: spins };
            }
            EventKind::AcquireP { .. } => {
                if let EventThread::M(m) = event.thread {
                    let m = self.ms.entry(m).or_default();
                    if std::mem::take(&mut m.is_woken_to_spin) {
                        m.state = MState::Spinning;
                    }
                }
            }
            EventKind::Spin {} => self.set(event, MState::Spinning),
            EventKind::StopSpinning { .. } | EventKind::Awake {} => {
                self.set(event, MState::Scheduling);
            }
            EventKind::Sleep { .. } => self.set(event, MState::Sleeping),
            EventKind::ReleaseP { .. } => {
                if let EventThread::M(m) = event.thread {
                    *self.ms.entry(m).or_default() = MView::default();
                }
            }
            EventKind::EndThread {} => {
                if let EventThread::M(m) = event.thread {
                    self.ms.remove(&m);
                }
            }
            _ => {}
        }
    }

    /// Notes that the goroutine `g` runs on the thread of this event, even if the recording began
    /// later than the goroutine.
    fn runs(&mut self, event: &Event, g: u64) {
        if g != 0 {
            self.set(event, MState::Running(g));
        }
    }

    fn set(&mut self, event: &Event, state: MState) {
        if let EventThread::M(m) = event.thread {
            self.ms.entry(m).or_default().state = state;
        }
    }

    /// Puts a goroutine into a queue of the P `p`, or into the global queue.
    fn put(&mut self, p: u32, g: u64, to: Place) {
        let queues = self.ps.entry(p).or_default();
        self.on_the_way.remove(&g);
        match to {
            Place::RunNext => {
                let displaced = queues.run_next.replace(g);
                self.on_the_way.extend(displaced.filter(|&other| other != g));
            }
            Place::Queue(position) => queues.queue.push_back((position, g)),
            Place::Global => self.global.push_back(g),
            Place::GlobalFirst => self.global.push_front(g),
            _ => drop(self.on_the_way.insert(g)),
        }
    }

    /// Takes the goroutines at these positions out of the ring of `p`.
    fn take(&mut self, p: u32, span: Span) -> Vec<u64> {
        let queue = &mut self.ps.entry(p).or_default().queue;
        let is_in = |position: u32| position.wrapping_sub(span.position) < span.count;
        let taken = queue.iter().filter(|place| is_in(place.0)).map(|place| place.1).collect();
        queue.retain(|place| !is_in(place.0));
        taken
    }

    /// Takes a goroutine out of every queue.
    fn forget(&mut self, g: u64) {
        self.on_the_way.remove(&g);
        self.global.retain(|&other| other != g);
        for p in self.ps.values_mut() {
            p.run_next = p.run_next.filter(|&other| other != g);
            p.queue.retain(|place| place.1 != g);
        }
    }
}
