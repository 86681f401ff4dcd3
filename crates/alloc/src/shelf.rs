//! Blocks of one class for all threads: whole batches on a shelf, and the spans behind.
//!
//! A batch comes and goes in one piece: one link is written, whatever its length. Where more batches lie
//! than a class may keep, the next one's blocks go back to their spans one by one, and a span of which
//! nothing is used goes to the pool.

use crate::block::{Batches, Free, List};
use crate::classes::{COUNT, Class};
use crate::locked::Guarded;
use crate::pool;
use crate::span::{Span, Spans};
use gosched_context::lock::Lock;

static SHELVES: [Lock<Shelf>; COUNT] = [const { Lock::new(Shelf::new()) }; COUNT];

/// What one class has. On cache lines of its own.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct Shelf {
    batches: Batches,
    /// Fewer than a batch.
    loose: List,
    /// Those that have something to hand out.
    spans: Spans,
}

// SAFETY: blocks and spans are never freed, and those of a shelf are used with its lock held only.
unsafe impl Send for Shelf {}

impl Shelf {
    const fn new() -> Shelf {
        Shelf { batches: Batches::new(), loose: List::new(), spans: Spans::new() }
    }

    /// A block to its span. True if a span went to the pool.
    fn give_back(&mut self, block: Free) -> bool {
        let span = Span::of(&block);
        if span.is_exhausted() {
            self.spans.push_front(span);
        }
        span.take_back(block);
        // One stays: the next batch may be wanted right away.
        let unused = span.is_unused() && self.spans.len() > 1;
        if unused {
            self.spans.remove(span);
            pool::put(span);
        }
        unused
    }

    /// A whole batch: kept, or its blocks to their spans. True if a span went to the pool.
    fn put(&mut self, class: Class, batch: List) -> bool {
        if self.batches.count() < class.kept() {
            self.batches.push(batch);
            return false;
        }
        self.give_back_all(batch)
    }

    fn give_back_all(&mut self, mut blocks: List) -> bool {
        let mut any = false;
        while let Some(block) = blocks.pop() {
            any |= self.give_back(block);
        }
        any
    }
}

pub(crate) fn all() -> &'static [Lock<Shelf>; COUNT] {
    &SHELVES
}

fn shelf(class: Class) -> Guarded<'static, Shelf> {
    Guarded::new(&SHELVES[class.index()])
}

/// A batch, or fewer. `None`: a chunk is needed.
pub(crate) fn take(class: Class) -> Option<List> {
    let mut shelf = shelf(class);
    if let Some(batch) = shelf.batches.pop(class.batch()) {
        return Some(batch);
    }
    if !shelf.loose.is_empty() {
        return Some(std::mem::take(&mut shelf.loose));
    }
    let span = match shelf.spans.first() {
        Some(span) => span,
        None => {
            let span = pool::take()?;
            span.begin(class);
            shelf.spans.push_front(span);
            span
        }
    };
    let handed = span.hand_out(class, class.batch());
    if span.is_exhausted() {
        shelf.spans.remove(span);
    }
    drop(shelf);
    Some(handed.linked())
}

/// A whole batch.
pub(crate) fn put(class: Class, batch: List) {
    debug_assert_eq!(batch.len(), class.batch());
    let cool = shelf(class).put(class, batch);
    if cool {
        pool::cool();
    }
}

/// Any number of blocks.
pub(crate) fn put_some(class: Class, mut blocks: List) {
    let mut shelf = shelf(class);
    let mut cool = false;
    while let Some(block) = blocks.pop() {
        shelf.loose.push(block);
        if shelf.loose.len() == class.batch() {
            let batch = std::mem::take(&mut shelf.loose);
            cool |= shelf.put(class, batch);
        }
    }
    drop(shelf);
    if cool {
        pool::cool();
    }
}

/// All blocks to their spans, a batch at a time.
pub(crate) fn clear(class: Class) {
    loop {
        let mut shelf = shelf(class);
        if let Some(batch) = shelf.batches.pop(class.batch()) {
            shelf.give_back_all(batch);
            continue;
        }
        let loose = std::mem::take(&mut shelf.loose);
        shelf.give_back_all(loose);
        let unused = shelf.spans.iter().find(|span| span.is_unused());
        if let Some(span) = unused {
            shelf.spans.remove(span);
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

    fn refill() -> List {
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
        clear(class());
        let before = pool::stats();
        let mut lists: Vec<List> = (0..8).map(|_| refill()).collect();
        let blocks: u32 = lists.iter().map(List::len).sum();
        let spans = (blocks as usize * class().size()).div_ceil(SPAN);
        assert_eq!(pool::stats().in_use, before.in_use + spans * SPAN);
        lists.drain(..).for_each(|list| put_some(class(), list));
        clear(class());
        assert_eq!(pool::stats().in_use, before.in_use);
    }

    #[test]
    fn a_shelf_keeps_so_many_batches_and_no_more() {
        let _one = crate::tests::one_at_a_time();
        clear(class());
        let most = class().kept();
        let mut lists = Vec::new();
        while (lists.len() as u32) < most + 5 {
            let list = refill();
            match list.len() == class().batch() {
                true => lists.push(list),
                false => put_some(class(), list),
            }
        }
        lists.drain(..).for_each(|batch| put(class(), batch));
        assert_eq!(shelf(class()).batches.count(), most);
        clear(class());
        assert_eq!(shelf(class()).batches.count(), 0);
    }
}
