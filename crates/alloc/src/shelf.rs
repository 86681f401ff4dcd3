//! Blocks of one class for all threads: whole batches on a shelf, and the spans behind.
//!
//! A batch comes and goes in one piece: one link is written, whatever its length. Where more batches lie
//! than a class may keep, some go back to their spans, block by block, and a span of which nothing is used
//! goes to the pool. How many that is depends on what the class has in use: each block on a shelf may
//! keep a whole span from the others.

use crate::block::{Batches, Free, List};
use crate::classes::{COUNT, Class};
use crate::pool;
use crate::span::{Span, Spans};
use gosched_context::lock::{Guarded, Lock};

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
    /// Of these, one of which nothing is used. There is one at most.
    unused: Option<&'static Span>,
    /// Blocks that spans have handed out: in use, in magazines, or lying here.
    out: usize,
    /// Another thread was changing it when this process was forked: spans of that time are not to be trusted,
    /// and no block goes back to its span.
    lost: bool,
}

// SAFETY: blocks and spans are never freed, and those of a shelf are used with its lock held only.
unsafe impl Send for Shelf {}

impl Shelf {
    const fn new() -> Shelf {
        Shelf {
            batches: Batches::new(),
            loose: List::new(),
            spans: Spans::new(),
            unused: None,
            out: 0,
            lost: false,
        }
    }

    /// Starts over, in a forked child.
    pub(crate) fn lose(&mut self) {
        *self = Shelf { lost: true, ..Shelf::new() };
    }

    /// A block to its span. True if a span went to the pool.
    fn give_back(&mut self, block: Free) -> bool {
        if self.lost {
            return false;
        }
        let span = Span::of(&block);
        if span.is_exhausted() {
            self.spans.push_front(span);
        }
        span.take_back(block);
        self.out -= 1;
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
    fn most(&self, class: Class) -> u32 {
        let share = self.out / SHARE / class.batch() as usize;
        (share as u32).clamp(2, class.kept())
    }

    /// A whole batch: kept, and what is too much then goes back. True if a span went to the pool.
    fn put(&mut self, class: Class, batch: List) -> bool {
        self.batches.push(batch);
        let mut any = false;
        // Two for one, so that it gets less.
        for _ in 0..2 {
            if self.batches.count() <= self.most(class) {
                break;
            }
            if let Some(batch) = self.batches.pop(class.batch()) {
                any |= self.give_back_all(batch);
            }
        }
        any
    }

    fn give_back_all(&mut self, mut blocks: List) -> bool {
        let mut any = false;
        while let Some(block) = blocks.pop() {
            any |= self.give_back(block);
        }
        any
    }
}

/// One block may lie here for so many that are in use.
const SHARE: usize = 8;

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
    shelf.out += handed.count() as usize;
    shelf.unused = shelf.unused.filter(|unused| !std::ptr::eq(*unused, span));
    if span.is_exhausted() {
        shelf.spans.remove(span);
    }
    drop(shelf);
    Some(handed.linked())
}

/// A single block, if one lies there.
pub(crate) fn take_one(class: Class) -> Option<Free> {
    let mut shelf = shelf(class);
    if shelf.loose.is_empty() {
        shelf.loose = shelf.batches.pop(class.batch())?;
    }
    shelf.loose.pop()
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
        if let Some(span) = shelf.unused.take().filter(|_| !shelf.lost) {
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
    fn a_shelf_keeps_a_share_of_what_is_in_use() {
        let _one = crate::tests::one_at_a_time();
        clear(class());
        let mut lists = Vec::new();
        while lists.len() < 300 {
            let list = refill();
            match list.len() == class().batch() {
                true => lists.push(list),
                false => put_some(class(), list),
            }
        }
        let batches = || shelf(class()).batches.count();
        lists.drain(150..).for_each(|batch| put(class(), batch));
        assert!((15..=20).contains(&batches()), "{} for 150 in use", batches());
        lists.drain(..).for_each(|batch| put(class(), batch));
        assert!(batches() <= 2, "{} for none", batches());
        clear(class());
        assert_eq!(batches(), 0);
    }
}
