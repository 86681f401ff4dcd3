//! The waiting goroutines, what each of them waits for, and which of them are stuck: their wait
//! never ends, as far as can be seen. This module never searches stacks for channel ends: `holders`
//! does.

use super::holders::Holders;
use crate::block::wait_record::{ChanEnd, WaitsFor, is_waiting, read_waits_for};
use crate::gmp::g::G;
use crate::gmp::slab;
use crate::gmp::state::{GState, StateVersion};
use crate::probe::wait_reason::WaitReason;
use crate::sched::inspector::MemoryReader;
use std::collections::{HashMap, HashSet};
use std::panic::Location;

/// A waiting goroutine.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) g: &'static G,
    pub(super) id: u64,
    /// Where the goroutine was started. Read together with the other fields, because the G may be
    /// reused for another goroutine later.
    pub(super) site: Option<&'static Location<'static>>,
    /// The state version of the G when it was recorded. A later comparison shows whether the G has
    /// waited all the time.
    moment: StateVersion,
    pub(super) reason: WaitReason,
    /// When the wait began, approximately, in nanoseconds of the real clock.
    pub(super) since: u64,
    pub(super) waits_for: WaitsFor,
}

/// A waiting goroutine, or a group that goroutines wait for: the holders of a channel end, or the
/// waiting writers that come before the readers of a lock.
#[derive(Debug, Default)]
struct Node {
    /// The node is stuck if at least this many of the nodes in `waits_on` are stuck.
    stuck_needed: usize,
    /// The nodes that can end the wait of this node.
    waits_on: Vec<usize>,
    /// The nodes that have this node in their `waits_on`.
    awaited_by: Vec<usize>,
    /// The number of nodes in `waits_on` that are stuck.
    stuck_count: usize,
    is_stuck: bool,
}

/// All waiting goroutines, and which of them are stuck. A goroutine is identified by its place,
/// which is its index in `waiting`.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) waiting: Vec<Waiting>,
    /// One node for each goroutine in `waiting`, at the same index, and then the nodes of groups.
    nodes: Vec<Node>,
    /// For each goroutine that waits for a lock whose holder has ended without releasing it: the id
    /// of that holder, by the place of the waiting goroutine.
    ended: HashMap<usize, u64>,
}

impl Waiting {
    /// Records a waiting goroutine. `waits_for` is filled in later. Returns `None` if the goroutine
    /// does not wait.
    fn of(g: &'static G) -> Option<Waiting> {
        let (id, moment) = (g.id(), g.state_version());
        let (reason, since, site) = (g.reason(), g.since(), g.site());
        let waiting = Waiting { g, id, site, moment, reason, since, waits_for: WaitsFor::Unknown };
        (moment.state() == GState::Waiting).then_some(waiting)
    }

    /// Returns whether the goroutine has waited all the time since it was recorded, and nothing has
    /// ended its wait.
    fn is_still_waiting(&self) -> bool {
        is_waiting(self.g, self.reason, &mut MemoryReader::default())
            && self.g.is_unchanged(self.moment)
            && self.g.id() == self.id
    }

    /// Returns whether the goroutine with the id `number` still holds the lock that this goroutine
    /// waits for.
    fn is_lock_held_by(&self, number: u64) -> bool {
        match read_waits_for(self.g, self.reason, &mut MemoryReader::default()) {
            WaitsFor::Mutex(holder) | WaitsFor::Read(_, holder) => holder == number,
            WaitsFor::Write(_, holders) => holders.contains(&number),
            _ => false,
        }
    }

    fn ends(&self) -> &[ChanEnd] {
        match &self.waits_for {
            WaitsFor::Ends(ends) => ends,
            _ => &[],
        }
    }
}

/// Returns all waiting goroutines.
///
/// First records which goroutines wait, then reads what they wait for. So a goroutine that is found
/// to hold a lock, and that has waited all the time, has held the lock all the time.
pub(super) fn all() -> Vec<Waiting> {
    let mut waiting: Vec<Waiting> = slab::live().filter_map(Waiting::of).collect();
    for one in &mut waiting {
        one.waits_for = read_waits_for(one.g, one.reason, &mut MemoryReader::default());
    }
    waiting.retain(Waiting::is_still_waiting);
    waiting
}

/// Returns the channel ends that these goroutines wait for.
pub(super) fn ends_of<'a>(waiting: impl Iterator<Item = &'a Waiting>) -> HashSet<usize> {
    waiting.flat_map(Waiting::ends).map(|end| end.address).collect()
}

/// A [`Graph`] under construction.
struct GraphBuilder<'a> {
    holders: &'a Holders,
    /// The places of the waiting goroutines, by id.
    places: HashMap<u64, usize>,
    /// The ids of the goroutines that exist. Read after the holders of the locks: a holder that is
    /// not in this set has ended.
    alive: HashSet<u64>,
    /// The places of the goroutines that wait for a write lock, by lock.
    writers: HashMap<usize, Vec<usize>>,
    joined: JoinTargets,
    nodes: Vec<Node>,
    /// The nodes of channel ends, by address and count.
    end_nodes: HashMap<(usize, usize), usize>,
    /// The nodes of the waiting writers of a lock, by lock.
    lock_nodes: HashMap<usize, usize>,
    ended: HashMap<usize, u64>,
}

impl<'a> GraphBuilder<'a> {
    fn new(waiting: &[Waiting], holders: &'a Holders) -> GraphBuilder<'a> {
        let mut writers = HashMap::<usize, Vec<usize>>::new();
        for (place, one) in waiting.iter().enumerate() {
            if let WaitsFor::Write(lock, _) = one.waits_for {
                writers.entry(lock).or_default().push(place);
            }
        }
        GraphBuilder {
            holders,
            places: waiting.iter().enumerate().map(|(place, one)| (one.id, place)).collect(),
            alive: slab::live().map(G::id).collect(),
            writers,
            joined: JoinTargets::new(waiting),
            nodes: waiting.iter().map(|_| Node::default()).collect(),
            end_nodes: HashMap::new(),
            lock_nodes: HashMap::new(),
            ended: HashMap::new(),
        }
    }

    /// Returns the edges of a goroutine: how many of which nodes must be stuck for the goroutine to
    /// be stuck.
    fn edges_of(&mut self, place: usize, one: &Waiting) -> (usize, Vec<usize>) {
        match &one.waits_for {
            WaitsFor::Unknown | WaitsFor::Time => NEVER_STUCK,
            WaitsFor::Never => (0, Vec::new()),
            WaitsFor::Mutex(holder) => self.any_of(place, one, &[*holder]),
            WaitsFor::Read(lock, 0) => (1, vec![self.lock_node(*lock)]),
            WaitsFor::Read(_, writer) => self.any_of(place, one, &[*writer]),
            WaitsFor::Write(_, holders) => self.any_of(place, one, holders),
            WaitsFor::Goroutines(with) => {
                let of = self.joined.0.get(with).into_iter().flatten();
                (1, of.filter_map(|id| self.places.get(id).copied()).collect())
            }
            WaitsFor::Ends(ends) => {
                (ends.len(), ends.iter().map(|end| self.end_node(end)).collect())
            }
        }
    }

    /// Returns the edges of a goroutine that is stuck if one of these lock holders is stuck, or has
    /// ended without releasing the lock.
    fn any_of(&mut self, place: usize, one: &Waiting, holders: &[u64]) -> (usize, Vec<usize>) {
        let holders = holders.iter().filter(|&&id| id != 0);
        // A holder that has ended may have released the lock first, so the lock is read again.
        let gone = holders.clone().find(|&id| !self.alive.contains(id) && one.is_lock_held_by(*id));
        if let Some(&gone) = gone {
            self.ended.insert(place, gone);
            return (0, Vec::new());
        }
        (1, holders.filter_map(|id| self.places.get(id).copied()).collect())
    }

    /// Returns the node of the waiting writers that come before the readers of a lock. It is stuck
    /// if one of them is stuck.
    fn lock_node(&mut self, lock: usize) -> usize {
        *self.lock_nodes.entry(lock).or_insert_with(|| {
            let waits_on = self.writers.remove(&lock).unwrap_or_default();
            self.nodes.push(Node { stuck_needed: 1, waits_on, ..Node::default() });
            self.nodes.len() - 1
        })
    }

    /// Returns the node of a channel end. It is stuck if all goroutines that hold the end are
    /// stuck.
    fn end_node(&mut self, end: &ChanEnd) -> usize {
        *self.end_nodes.entry((end.address, end.count)).or_insert_with(|| {
            let by = self.holders.started_with(end.address);
            let waits_on = by.filter_map(|id| self.places.get(&id).copied()).collect();
            // An end that the runtime holds has count 0, and is never stuck.
            let stuck_needed = if end.count == 0 { usize::MAX } else { end.count };
            self.nodes.push(Node { stuck_needed, waits_on, ..Node::default() });
            self.nodes.len() - 1
        })
    }
}

impl Graph {
    /// Builds the graph. A goroutine that waits at a channel can be stuck only if `counts` returns
    /// `true` for it.
    pub(super) fn new(
        waiting: Vec<Waiting>,
        holders: &Holders,
        counts: impl Fn(&Waiting) -> bool,
    ) -> Graph {
        let mut builder = GraphBuilder::new(&waiting, holders);
        for (place, one) in waiting.iter().enumerate() {
            let (stuck_needed, waits_on) = match &one.waits_for {
                WaitsFor::Ends(_) if !counts(one) => NEVER_STUCK,
                _ => builder.edges_of(place, one),
            };
            let node = &mut builder.nodes[place];
            (node.stuck_needed, node.waits_on) = (stuck_needed, waits_on);
        }
        let GraphBuilder { nodes, ended, .. } = builder;
        let mut graph = Graph { waiting, nodes, ended };
        graph.remove_freed();
        graph
    }

    /// Clears `is_stuck` of every node that can be freed by a node that is not stuck.
    ///
    /// The remaining goroutines are checked again: each must have waited all the time. Then the
    /// whole result was true at one moment, when all waiting goroutines had been recorded. (A
    /// waiting goroutine neither acquires nor releases a lock, and a goroutine that was handed a
    /// lock no longer waits.)
    fn remove_freed(&mut self) {
        for at in 0..self.nodes.len() {
            (self.nodes[at].stuck_count, self.nodes[at].is_stuck) =
                (self.nodes[at].waits_on.len(), true);
            for nth in 0..self.nodes[at].waits_on.len() {
                let other = self.nodes[at].waits_on[nth];
                self.nodes[other].awaited_by.push(at);
            }
        }
        let mut over: Vec<usize> = (0..self.nodes.len()).filter(|&at| self.is_freed(at)).collect();
        loop {
            while let Some(at) = over.pop() {
                if !std::mem::take(&mut self.nodes[at].is_stuck) {
                    continue;
                }
                for nth in 0..self.nodes[at].awaited_by.len() {
                    let other = self.nodes[at].awaited_by[nth];
                    self.nodes[other].stuck_count -= 1;
                    over.extend(self.is_freed(other).then_some(other));
                }
            }
            for (place, one) in self.waiting.iter().enumerate() {
                let is_stuck = self.nodes[place].is_stuck;
                if is_stuck && !(one.is_still_waiting() && has_same_end_counts(one)) {
                    over.push(place);
                }
            }
            if over.is_empty() {
                return;
            }
        }
    }

    fn is_freed(&self, at: usize) -> bool {
        self.nodes[at].stuck_count < self.nodes[at].stuck_needed
    }

    pub(super) fn is_stuck(&self, place: usize) -> bool {
        self.nodes[place].is_stuck
    }

    /// Returns the goroutine that held the lock this goroutine waits for, and has ended without
    /// releasing it.
    pub(super) fn ended_holder(&self, place: usize) -> Option<u64> {
        self.ended.get(&place).copied()
    }

    /// Returns a stuck goroutine that this stuck goroutine waits for: itself if that is possible.
    /// Returns `None` if this goroutine is not stuck, or waits for no stuck goroutine.
    pub(super) fn next(&self, place: usize) -> Option<usize> {
        let stuck_of =
            |at: usize| self.nodes[at].waits_on.iter().copied().filter(|&at| self.is_stuck(at));
        let first = stuck_of(place).next().filter(|_| self.is_stuck(place))?;
        if first < self.waiting.len() {
            Some(first)
        } else {
            stuck_of(first).find(|&other| other == place).or(stuck_of(first).next())
        }
    }
}

/// The edges of a goroutine that cannot be stuck: its wait can end by time, or in a way that is not
/// known.
const NEVER_STUCK: (usize, Vec<usize>) = (usize::MAX, Vec::new());

/// Returns whether the channel ends that the goroutine waits for have the same counts as before:
/// none was cloned or dropped meanwhile.
fn has_same_end_counts(one: &Waiting) -> bool {
    let mut reader = MemoryReader::default();
    one.ends().iter().all(|end| reader.word(end.address) == Some(end.count))
}

/// The waiting goroutines that others may join, by the address that a joining goroutine parks with:
/// the state in the task of the joined goroutine, or its scope.
struct JoinTargets(HashMap<usize, Vec<u64>>);

impl JoinTargets {
    fn new(waiting: &[Waiting]) -> JoinTargets {
        let is_waited = |one: &Waiting| matches!(one.waits_for, WaitsFor::Goroutines(_));
        let mut joined = HashMap::<_, Vec<_>>::new();
        if !waiting.iter().any(is_waited) {
            return JoinTargets(joined);
        }
        for one in waiting {
            let task = one.g.task() as usize;
            if task == 0 {
                continue;
            }
            let Some(places) = one.g.kind().and_then(|kind| kind.offsets.as_ref()) else {
                continue;
            };
            joined.entry(task + places.state).or_default().push(one.id);
            if let Some(scope @ 1..) = MemoryReader::default().word(task + places.scope) {
                joined.entry(scope).or_default().push(one.id);
            }
        }
        JoinTargets(joined)
    }
}

/// Returns whether all channel ends that the goroutine waits for are held by no other goroutine, as
/// far as can be seen.
pub(super) fn is_sole_holder(one: &Waiting, holders: &Holders) -> bool {
    let has_no_other_holder = |end: &ChanEnd| {
        end.count > 0 && holders.of(end.address).is_some_and(|mut by| by.all(|id| id == one.id))
    };
    !one.ends().is_empty() && one.ends().iter().all(has_no_other_holder)
}
