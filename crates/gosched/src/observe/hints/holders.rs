//! Who holds which ends of channels, as far as it can be seen: an end is one word, and goroutines are searched for it.
//!
//! A word on a stack may be a copy that was moved out of and left behind. Such copies lie with who had the end before:
//! the one who made it, as a rule, and gave it to a goroutine that was started with it. So an end is taken for that of
//! a goroutine that was *born with it*, and still has it on its stack. Ends in other places, in the heap and on the
//! stacks of ordinary threads, are not seen.

use crate::gmp::g::G;
use crate::gmp::slab;
use crate::sched::inspector::{self, BATCH_STACKS, CallerFrame, Inspector, InterruptPolicy};
use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

/// See the top of this file. Goroutines by the address that an end is.
#[derive(Debug, Default)]
pub(super) struct Holders {
    seen: HashMap<usize, Vec<u64>>,
    started_with: HashMap<usize, Vec<u64>>,
    /// Somebody could not be looked at: it may hold any.
    is_incomplete: bool,
}

pub(super) type Holds<'a> = std::iter::Copied<std::slice::Iter<'a, u64>>;

impl Holders {
    /// Of these ends.
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
        // What it was given is of interest where it has some of it still; or has not begun, and has all of it.
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

    /// Who has it. `None`: that is not known of all.
    pub(super) fn of(&self, end: usize) -> Option<Holds<'_>> {
        (!self.is_incomplete).then(|| get(&self.seen, end))
    }

    /// Who was born with it, and has it still.
    pub(super) fn started_with(&self, end: usize) -> Holds<'_> {
        get(&self.started_with, end)
    }
}

fn get(map: &HashMap<usize, Vec<u64>>, end: usize) -> Holds<'_> {
    map.get(&end).map_or(&[][..], Vec::as_slice).iter().copied()
}

/// Ends that are looked for, and where they all are: most words are nowhere near.
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
