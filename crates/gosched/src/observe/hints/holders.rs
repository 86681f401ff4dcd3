//! Finds which goroutines hold which channel ends, as far as that can be seen. A channel end is one
//! word, and the stacks of all goroutines are searched for that word.
//!
//! A word on a stack may be a stale copy that a move left behind. Stale copies are usually on the
//! stack of a previous holder: the goroutine that created the end and passed it to a goroutine that
//! it started. So a goroutine is taken for the holder of an end if it was *started with* the end
//! and still has the end on its stack ([`Holders::started_with`]). Goroutines that merely have the
//! word are recorded too ([`Holders::of`]). Ends in other places, such as the heap and the stacks
//! of ordinary threads, are not seen.
//!
//! A word that may be an end is never dereferenced: it is only compared.

use crate::gmp::g::G;
use crate::gmp::slab;
use crate::sched::inspector::{self, BATCH_STACKS, CallerFrame, Inspector, InterruptPolicy};
use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

/// The ids of the goroutines that hold each end, by the word of the end, which is an address.
#[derive(Debug, Default)]
pub(super) struct Holders {
    /// Goroutines that have the end on their stack, or in their closure if they have not begun to
    /// run.
    seen: HashMap<usize, Vec<u64>>,
    /// Goroutines that were started with the end and still have it on their stack.
    started_with: HashMap<usize, Vec<u64>>,
    /// Whether the stack of some goroutine could not be read completely. That goroutine may hold
    /// any end.
    is_incomplete: bool,
}

pub(super) type Holds<'a> = std::iter::Copied<std::slice::Iter<'a, u64>>;

impl Holders {
    /// Searches all goroutines for these ends.
    pub(super) fn of_ends(
        ends: &HashSet<usize>,
        here: &CallerFrame,
        policy: InterruptPolicy,
    ) -> Holders {
        let mut holders = Holders::default();
        if ends.is_empty() {
            return holders;
        }
        let ends = Ends::new(ends);
        let mut inspector = Inspector::new(policy);
        let all: Vec<&'static G> = slab::live().collect();
        for some in all.chunks(BATCH_STACKS) {
            inspector.prefetch(some.iter().copied());
            for &g in some {
                holders.look_at(&mut inspector, g, &ends, here);
            }
        }
        holders
    }

    fn look_at(
        &mut self,
        inspector: &mut Inspector,
        g: &'static G,
        ends: &Ends<'_>,
        here: &CallerFrame,
    ) {
        let id = g.id();
        let mut has = HashSet::new();
        let is_known = inspector.words(g, here, |word| _ = ends.has(word) && has.insert(word));
        let Some(is_known) = is_known else { return };
        let has_begun = g.has_stack();
        let mut given = HashSet::new();
        let task = g.task() as usize;
        let places = g.kind().and_then(|kind| kind.offsets.as_ref());
        // The closure matters if the goroutine still has an end on its stack, or if it has not
        // begun to run and so still has everything that it was started with.
        let is_needed = task != 0 && (!has_begun || !has.is_empty());
        if let Some(places) = places.filter(|_| is_needed) {
            let closure = task + places.closure.start..task + places.closure.end;
            inspector::read_words(closure, |word| _ = ends.has(word) && given.insert(word));
        }
        if g.id() != id {
            return;
        }
        self.is_incomplete |= !is_known;
        for end in if has_begun { &has } else { &given } {
            self.seen.entry(*end).or_default().push(id);
        }
        for end in given.intersection(&has) {
            self.started_with.entry(*end).or_default().push(id);
        }
    }

    /// Returns the goroutines that have the end. Returns `None` if a goroutine could not be
    /// searched.
    pub(super) fn of(&self, end: usize) -> Option<Holds<'_>> {
        (!self.is_incomplete).then(|| get(&self.seen, end))
    }

    /// Returns the goroutines that were started with the end and still have it.
    pub(super) fn started_with(&self, end: usize) -> Holds<'_> {
        get(&self.started_with, end)
    }
}

fn get(map: &HashMap<usize, Vec<u64>>, end: usize) -> Holds<'_> {
    map.get(&end).map_or(&[][..], Vec::as_slice).iter().copied()
}

/// The ends to search for, and the address range that contains all of them. Most words are outside
/// of that range and are rejected quickly.
struct Ends<'a> {
    all: &'a HashSet<usize>,
    range: RangeInclusive<usize>,
}

impl Ends<'_> {
    fn new(all: &HashSet<usize>) -> Ends<'_> {
        let (least, most) = (all.iter().min(), all.iter().max());
        Ends { all, range: least.copied().unwrap_or(1)..=most.copied().unwrap_or(0) }
    }

    fn has(&self, word: usize) -> bool {
        self.range.contains(&word) && self.all.contains(&word)
    }
}
