//! Free blocks of one class, shared by all threads: whole batches on a central list, and the spans
//! that blocks come from.
//!
//! A batch is added or removed as a whole: only one link is written, whatever its length. If a list
//! has more batches than it may keep, some go back to their spans, block by block, and a span with
//! no block handed out goes to the pool. How many batches a list may keep depends on how many
//! blocks are handed out: each block on a central list may withhold a whole span from other
//! classes.
//!
//! This module never calls the allocator behind the cache: if `take` needs a span and the pool has
//! none, it returns `None`.

use crate::block::{Batches, FreeBlock, FreeList};
use crate::classes::{CLASS_COUNT, Class};
use crate::pool;
use crate::span::{Span, Spans};
use gosched_fiber::lock::{Lock, NoPreemptLockGuard};

static CENTRAL_LISTS: [Lock<CentralList>; CLASS_COUNT] =
    [const { Lock::new(CentralList::new()) }; CLASS_COUNT];

/// The central list of one class, on its own cache lines.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct CentralList {
    batches: Batches,
    /// Loose blocks, fewer than a batch.
    partial_batch: FreeList,
    /// Spans that have blocks to hand out.
    spans: Spans,
    /// One of `spans` that has no block handed out, if there is one. At most one such span is kept.
    unused: Option<&'static Span>,
    /// Number of blocks that spans have handed out: in use, in magazines, or on this list.
    handed_out: usize,
    /// Whether another thread was changing this list when the process was forked. The spans from
    /// before the fork may be inconsistent, so no block goes back to its span.
    poisoned_by_fork: bool,
}

// SAFETY: blocks and spans are never freed, and those of a list are used only with its lock held.
unsafe impl Send for CentralList {}

impl CentralList {
    const fn new() -> CentralList {
        CentralList {
            batches: Batches::new(),
            partial_batch: FreeList::new(),
            spans: Spans::new(),
            unused: None,
            handed_out: 0,
            poisoned_by_fork: false,
        }
    }

    /// Empties the list, in a forked child.
    pub(crate) fn reset_after_fork(&mut self) {
        *self = CentralList { poisoned_by_fork: true, ..CentralList::new() };
    }

    /// Returns a block to its span. Returns whether a span went to the pool.
    fn return_to_span(&mut self, block: FreeBlock) -> bool {
        if self.poisoned_by_fork {
            return false;
        }
        let span = Span::of(&block);
        if span.is_exhausted() {
            self.spans.push_front(span);
        }
        span.take_back(block);
        self.handed_out -= 1;
        if !span.is_unused() {
            return false;
        }
        // One unused span stays, because the next batch may be needed soon.
        if self.unused.is_none() && self.spans.len() == 1 {
            self.unused = Some(span);
            return false;
        }
        self.spans.remove(span);
        pool::put(span);
        true
    }

    /// Returns how many batches the list may keep.
    fn max_batches(&self, class: Class) -> u32 {
        let share = self.handed_out / BLOCKS_IN_USE_PER_KEPT / class.batch() as usize;
        (share as u32).clamp(2, class.max_central_batches())
    }

    /// Adds a whole batch, then returns batches above the limit to their spans. Returns whether a
    /// span went to the pool.
    fn put(&mut self, class: Class, batch: FreeList) -> bool {
        self.batches.push(batch);
        let mut any = false;
        // Returns up to two batches for the batch received, so that the list shrinks.
        for _ in 0..2 {
            if self.batches.count() <= self.max_batches(class) {
                break;
            }
            if let Some(batch) = self.batches.pop(class.batch()) {
                any |= self.return_all_to_spans(batch);
            }
        }
        any
    }

    fn return_all_to_spans(&mut self, mut blocks: FreeList) -> bool {
        let mut any = false;
        while let Some(block) = blocks.pop() {
            any |= self.return_to_span(block);
        }
        any
    }
}

/// A list may keep one block for this many blocks that are handed out.
const BLOCKS_IN_USE_PER_KEPT: usize = 8;

pub(crate) fn all() -> &'static [Lock<CentralList>; CLASS_COUNT] {
    &CENTRAL_LISTS
}

fn central(class: Class) -> NoPreemptLockGuard<'static, CentralList> {
    NoPreemptLockGuard::new(&CENTRAL_LISTS[class.index()])
}

/// Takes a batch, or fewer blocks. Returns `None` if the pool is empty.
pub(crate) fn take(class: Class) -> Option<FreeList> {
    let mut central = central(class);
    if let Some(batch) = central.batches.pop(class.batch()) {
        return Some(batch);
    }
    if !central.partial_batch.is_empty() {
        return Some(std::mem::take(&mut central.partial_batch));
    }
    let span = match central.spans.first() {
        Some(span) => span,
        None => {
            let span = pool::take()?;
            span.assign(class);
            central.spans.push_front(span);
            span
        }
    };
    let handed = span.hand_out(class, class.batch());
    central.handed_out += handed.count() as usize;
    central.unused = central.unused.filter(|unused| !std::ptr::eq(*unused, span));
    if span.is_exhausted() {
        central.spans.remove(span);
    }
    drop(central);
    Some(handed.linked())
}

/// Takes a single block from the list, if there is one.
pub(crate) fn take_one(class: Class) -> Option<FreeBlock> {
    let mut central = central(class);
    if central.partial_batch.is_empty() {
        central.partial_batch = central.batches.pop(class.batch())?;
    }
    central.partial_batch.pop()
}

/// Adds a whole batch.
pub(crate) fn put(class: Class, batch: FreeList) {
    debug_assert_eq!(batch.len(), class.batch());
    let cool = central(class).put(class, batch);
    if cool {
        pool::scavenge();
    }
}

/// Adds any number of blocks.
pub(crate) fn put_some(class: Class, mut blocks: FreeList) {
    let mut central = central(class);
    let mut cool = false;
    while let Some(block) = blocks.pop() {
        central.partial_batch.push(block);
        if central.partial_batch.len() == class.batch() {
            let batch = std::mem::take(&mut central.partial_batch);
            cool |= central.put(class, batch);
        }
    }
    drop(central);
    if cool {
        pool::scavenge();
    }
}

/// Returns all blocks to their spans. Releases the lock after each batch.
pub(crate) fn flush(class: Class) {
    loop {
        let mut central = central(class);
        if let Some(batch) = central.batches.pop(class.batch()) {
            central.return_all_to_spans(batch);
            continue;
        }
        let loose = std::mem::take(&mut central.partial_batch);
        central.return_all_to_spans(loose);
        if let Some(span) = central.unused.take().filter(|_| !central.poisoned_by_fork) {
            central.spans.remove(span);
            pool::put(span);
        }
        return;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::SPAN;

    /// The largest class, which no other test of this crate uses.
    fn class() -> Class {
        Class::all().last().unwrap()
    }

    fn refill() -> FreeList {
        loop {
            if let Some(list) = take(class()) {
                return list;
            }
            crate::tests::add_chunk();
        }
    }

    #[test]
    fn a_span_whose_blocks_have_all_returned_goes_to_the_pool() {
        let _one = crate::tests::one_at_a_time();
        flush(class());
        let before = pool::stats();
        let mut lists: Vec<FreeList> = (0..8).map(|_| refill()).collect();
        let blocks: u32 = lists.iter().map(FreeList::len).sum();
        let spans = (blocks as usize * class().size()).div_ceil(SPAN);
        assert_eq!(pool::stats().in_use, before.in_use + spans * SPAN);
        lists.drain(..).for_each(|list| put_some(class(), list));
        flush(class());
        assert_eq!(pool::stats().in_use, before.in_use);
    }

    #[test]
    fn a_central_list_keeps_a_share_of_the_blocks_in_use() {
        let _one = crate::tests::one_at_a_time();
        flush(class());
        let mut lists = Vec::new();
        while lists.len() < 300 {
            let list = refill();
            if list.len() == class().batch() { lists.push(list) } else { put_some(class(), list) }
        }
        let batches = || central(class()).batches.count();
        lists.drain(150..).for_each(|batch| put(class(), batch));
        assert!((15..=20).contains(&batches()), "{} for 150 in use", batches());
        lists.drain(..).for_each(|batch| put(class(), batch));
        assert!(batches() <= 2, "{} for none", batches());
        flush(class());
        assert_eq!(batches(), 0);
    }
}
