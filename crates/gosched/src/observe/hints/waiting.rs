//! The goroutines that wait, what for, and who of them can end whose wait.

use super::holders::Holders;
use crate::block::wait_record::{ChanEnd, WaitsFor, is_waiting, read_waits_for};
use crate::gmp::g::G;
use crate::gmp::reason::WaitReason;
use crate::gmp::slab;
use crate::gmp::state::{GState, StateVersion};
use crate::sched::inspector::MemoryReader;
use std::collections::{HashMap, HashSet};
use std::panic::Location;

/// One that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) g: &'static G,
    pub(super) id: u64,
    /// Where it was started. Read with the rest: later the record may be another's.
    pub(super) site: Option<&'static Location<'static>>,
    moment: StateVersion,
    pub(super) reason: WaitReason,
    /// When it began, about.
    pub(super) since: u64,
    pub(super) waits_for: WaitsFor,
}

/// A goroutine that waits; or what several of those wait for: the ends of a channel, and who comes first at a lock.
#[derive(Debug, Default)]
struct Node {
    /// It is for ever if so many of those do.
    stuck_needed: usize,
    waits_on: Vec<usize>,
    /// Those that it is one of.
    awaited_by: Vec<usize>,
    /// How many of those it waits for are for ever.
    stuck_count: usize,
    is_stuck: bool,
}

/// All that wait, and who among them waits for ever as far as it can be seen.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) waiting: Vec<Waiting>,
    /// One for each of them, then the others.
    nodes: Vec<Node>,
    /// Locks whose holder has ended: whose, by who waits for it.
    ended: HashMap<usize, u64>,
}

impl Waiting {
    /// `None`: it does not wait. What for is not known yet.
    fn of(g: &'static G) -> Option<Waiting> {
        let (id, moment) = (g.id(), g.state_version());
        let (reason, since, site) = (g.reason(), g.since(), g.site());
        let waiting = Waiting { g, id, site, moment, reason, since, waits_for: WaitsFor::Unknown };
        (moment.state() == GState::Waiting).then_some(waiting)
    }

    /// It has waited all the time, and nobody has ended that.
    fn is_still_waiting(&self) -> bool {
        is_waiting(self.g, self.reason, &mut MemoryReader::default())
            && self.g.is_unchanged(self.moment)
            && self.g.id() == self.id
    }

    /// Whether one with this number has the lock still that it waits for.
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

/// All that wait now.
///
/// First who waits, then what for: whoever is found to hold something, and has waited all the time, held it all the
/// time.
pub(super) fn all() -> Vec<Waiting> {
    let mut waiting: Vec<Waiting> = slab::live().filter_map(Waiting::of).collect();
    for one in &mut waiting {
        one.waits_for = read_waits_for(one.g, one.reason, &mut MemoryReader::default());
    }
    waiting.retain(Waiting::is_still_waiting);
    waiting
}

/// The ends that they wait for.
pub(super) fn ends_of<'a>(waiting: impl Iterator<Item = &'a Waiting>) -> HashSet<usize> {
    waiting.flat_map(Waiting::ends).map(|end| end.address).collect()
}

/// A [`Graph`] in the making. The first nodes are the goroutines that wait, each at its place among them.
struct GraphBuilder<'a> {
    holders: &'a Holders,
    places: HashMap<u64, usize>,
    /// The goroutines that exist. Read after their locks: one that held a lock then and is not here has ended.
    alive: HashSet<u64>,
    /// The places of those that wait to write, by lock.
    writers: HashMap<usize, Vec<usize>>,
    joined: JoinTargets,
    nodes: Vec<Node>,
    /// The nodes that stand for ends of channels, by address and count.
    end_nodes: HashMap<(usize, usize), usize>,
    /// The nodes that stand for the writers that come first at a lock, by lock.
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

    /// How many of which nodes must be stuck for this goroutine to be stuck.
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

    /// One of these holders must be stuck.
    fn any_of(&mut self, place: usize, one: &Waiting, holders: &[u64]) -> (usize, Vec<usize>) {
        let holders = holders.iter().filter(|&&id| id != 0);
        // A holder that has ended may have given the lock back before.
        let gone = holders.clone().find(|&id| !self.alive.contains(id) && one.is_lock_held_by(*id));
        if let Some(&gone) = gone {
            self.ended.insert(place, gone);
            return (0, Vec::new());
        }
        (1, holders.filter_map(|id| self.places.get(id).copied()).collect())
    }

    /// The node of the writers that come before the readers of a lock.
    fn lock_node(&mut self, lock: usize) -> usize {
        *self.lock_nodes.entry(lock).or_insert_with(|| {
            let waits_on = self.writers.remove(&lock).unwrap_or_default();
            self.nodes.push(Node { stuck_needed: 1, waits_on, ..Node::default() });
            self.nodes.len() - 1
        })
    }

    /// The node of a channel's end: stuck when all goroutines that hold it are.
    fn end_node(&mut self, end: &ChanEnd) -> usize {
        *self.end_nodes.entry((end.address, end.count)).or_insert_with(|| {
            let by = self.holders.started_with(end.address);
            let waits_on = by.filter_map(|id| self.places.get(&id).copied()).collect();
            // The runtime's own end is never stuck.
            let stuck_needed = if end.count == 0 { usize::MAX } else { end.count };
            self.nodes.push(Node { stuck_needed, waits_on, ..Node::default() });
            self.nodes.len() - 1
        })
    }
}

impl Graph {
    /// Those that wait, with who holds the ends that they wait for. Only goroutines that `counts` says are taken
    /// for ones that wait for ever because of what is seen of channels.
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

    /// Whoever can be freed by somebody who does not wait for ever does not either. What is left is believed if
    /// it has waited all the time: then all of it was true at one moment, when the first look was over. (Who waits
    /// takes no lock and gives none back; who was handed one does not wait any more.)
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

    /// The holder of its lock, which has ended.
    pub(super) fn ended_holder(&self, place: usize) -> Option<u64> {
        self.ended.get(&place).copied()
    }

    /// One that it waits for, if it waits for ever: itself rather than another.
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

/// Others can end it, or the time.
const NEVER_STUCK: (usize, Vec<usize>) = (usize::MAX, Vec::new());

/// Nobody has made another end meanwhile.
fn has_same_end_counts(one: &Waiting) -> bool {
    let mut reader = MemoryReader::default();
    one.ends().iter().all(|end| reader.word(end.address) == Some(end.count))
}

/// Goroutines by what those park with who wait for their end.
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

/// Whether an end that somebody waits for is held by nobody else, as far as it can be seen.
pub(super) fn is_sole_holder(one: &Waiting, holders: &Holders) -> bool {
    let nobody_else = |end: &ChanEnd| {
        end.count > 0 && holders.of(end.address).is_some_and(|mut by| by.all(|id| id == one.id))
    };
    !one.ends().is_empty() && one.ends().iter().all(nobody_else)
}
