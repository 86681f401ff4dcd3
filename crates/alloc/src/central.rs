//! Blocks of one class for all threads: whole batches on a central list, and the spans behind.
//!
//! A batch comes and goes in one piece: one link is written, whatever its length. Where more batches lie
//! than a class may keep, some go back to their spans, block by block, and a span of which nothing is used
//! goes to the pool. How many that is depends on what the class has in use: each block on a central list may
//! keep a whole span from the others.

use crate::block::{Batches, FreeBlock, FreeList};
use crate::classes::{CLASS_COUNT, Class};
use crate::pool;
use crate::span::{Span, Spans};
use gosched_fiber::lock::{Lock, NoPreemptLockGuard};

static CENTRAL_LISTS: [Lock<CentralList>; CLASS_COUNT] =
    [const { Lock::new(CentralList::new()) }; CLASS_COUNT];

/// What one class has. On cache lines of its own.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct CentralList {
    batches: Batches,
    /// Fewer than a batch.
    partial_batch: FreeList,
    /// Those that have something to hand out.
    spans: Spans,
    /// Of these, one of which nothing is used. There is one at most.
    unused: Option<&'static Span>,
    /// Blocks that spans have handed out: in use, in magazines, or lying here.
    handed_out: usize,
    /// Another thread was changing it when this process was forked: spans of that time are not to be trusted,
    /// and no block goes back to its span.
    poisoned_by_fork: bool,
}

// SAFETY: blocks and spans are never freed, and those of a central list are used with its lock held only.
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

    /// Starts over, in a forked child.
    pub(crate) fn reset_after_fork(&mut self) {
        *self = CentralList { poisoned_by_fork: true, ..CentralList::new() };
    }

    /// A block to its span. True if a span went to the pool.
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
        // One stays: the next batch may be wanted right away.
        if self.unused.is_none() && self.spans.len() == 1 {
            self.unused = Some(span);
            return false;
        }
        self.spans.remove(span);
        pool::put(span);
        true
    }

    /// How many batches may lie here.
    fn max_batches(&self, class: Class) -> u32 {
        let share = self.handed_out / BLOCKS_IN_USE_PER_KEPT / class.batch() as usize;
        (share as u32).clamp(2, class.max_central_batches())
    }

    /// A whole batch: kept, and what is too much then goes back. True if a span went to the pool.
    fn put(&mut self, class: Class, batch: FreeList) -> bool {
        self.batches.push(batch);
        let mut any = false;
        // Two for one, so that it gets less.
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

/// One block may lie here for so many that are in use.
const BLOCKS_IN_USE_PER_KEPT: usize = 8;

pub(crate) fn all() -> &'static [Lock<CentralList>; CLASS_COUNT] {
    &CENTRAL_LISTS
}

fn central(class: Class) -> NoPreemptLockGuard<'static, CentralList> {
    NoPreemptLockGuard::new(&CENTRAL_LISTS[class.index()])
}

/// A batch, or fewer. `None`: a chunk is needed.
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

/// A single block, if one lies there.
pub(crate) fn take_one(class: Class) -> Option<FreeBlock> {
    let mut central = central(class);
    if central.partial_batch.is_empty() {
        central.partial_batch = central.batches.pop(class.batch())?;
    }
    central.partial_batch.pop()
}

/// A whole batch.
pub(crate) fn put(class: Class, batch: FreeList) {
    debug_assert_eq!(batch.len(), class.batch());
    let cool = central(class).put(class, batch);
    if cool {
        pool::scavenge();
    }
}

/// Any number of blocks.
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

/// All blocks to their spans, a batch at a time.
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

    /// The largest class: no other test of this crate's touches it.
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
    fn blocks_that_are_back_make_their_span_anyone_s() {
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
    fn a_shelf_keeps_a_share_of_what_is_in_use() {
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
