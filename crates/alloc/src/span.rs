//! The source of blocks: a chunk of 1 MiB is cut into spans, and a span into blocks of one class.
//!
//! ```text
//! chunk   | records of its spans | span | span | … | span |      16 × 64 KiB, aligned to its size
//! span    | block | block | block | … | rest |                   blocks of one class
//! ```
//!
//! A chunk is never returned to the allocator it came from. The memory of unused spans is returned
//! to the system, span by span (see `pool`). So the records are never freed either, and the address
//! of a block leads to the record of its span.
//!
//! A span's record is guarded by the lock of its class, or by the pool's lock while it has no
//! class. This module never takes either lock: its callers hold the one that guards the span.

use crate::block::{FreeBlock, FreeList};
use crate::checks;
use crate::classes::Class;
use std::cell::Cell;
use std::ptr::{self, NonNull};

/// Size of a chunk in bytes, and its alignment.
pub(crate) const CHUNK: usize = 1 << 20;

/// Size of a span in bytes.
pub(crate) const SPAN: usize = 64 << 10;

/// Number of spans in a chunk. The records take the place of the first span.
const SPANS: usize = CHUNK / SPAN;

/// The start of a chunk: the records of its spans.
#[repr(C)]
struct Chunk {
    spans: [Span; SPANS],
}

const _: () = assert!(size_of::<Chunk>() <= SPAN);

/// The record of a span.
pub(crate) struct Span {
    start: *mut u8,
    /// Number of blocks that fit; 0 while the span has no class.
    total: Cell<u32>,
    /// Number of blocks that were ever handed out since the span got its class. The blocks after
    /// them have not been used.
    carved: Cell<u32>,
    /// Number of blocks that are handed out at the moment.
    out: Cell<u32>,
    /// Blocks that were handed out and have been returned.
    returned: Cell<FreeList>,
    class: Cell<Option<Class>>,
    /// When the span lost its class, in milliseconds of `clock::millis`.
    idle_since_millis: Cell<u32>,
    before: Cell<Option<&'static Span>>,
    after: Cell<Option<&'static Span>>,
}

/// Consecutive blocks that have not been used before: handed out, but not yet linked.
#[derive(Debug)]
pub(crate) struct Fresh {
    first: *mut u8,
    class: Class,
    count: u32,
}

/// Blocks handed out by a span.
#[derive(Debug)]
pub(crate) enum Handed {
    Used(FreeList),
    Fresh(Fresh),
}

impl Handed {
    /// Returns the number of blocks.
    pub(crate) fn count(&self) -> u32 {
        match self {
            Handed::Used(list) => list.len(),
            Handed::Fresh(fresh) => fresh.count,
        }
    }
}

impl std::fmt::Debug for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counts = (self.out.get(), self.carved.get(), self.total.get());
        f.debug_tuple("Span").field(&self.start).field(&self.class.get()).field(&counts).finish()
    }
}

impl Span {
    /// Creates the spans of a new chunk.
    ///
    /// # Safety
    /// - **chunk**: has [`CHUNK`] bytes, is aligned to that size, and is never freed or used by
    ///   other code.
    pub(crate) unsafe fn all_of(chunk: NonNull<u8>) -> impl Iterator<Item = &'static Span> {
        // `of` finds the chunk from the address of a block.
        chunk.expose_provenance();
        let spans = chunk.as_ptr().cast::<Span>();
        (1..SPANS).map(move |index| {
            // SAFETY: chunk — the span with this index lies in it.
            let start = unsafe { chunk.as_ptr().add(index * SPAN) };
            // SAFETY: chunk — the records lie at its start.
            let place = unsafe { spans.add(index) };
            let span = Span {
                start,
                total: Cell::new(0),
                carved: Cell::new(0),
                out: Cell::new(0),
                returned: Cell::new(FreeList::new()),
                class: Cell::new(None),
                idle_since_millis: Cell::new(0),
                before: Cell::new(None),
                after: Cell::new(None),
            };
            // SAFETY: chunk — as above.
            unsafe { place.write(span) };
            // SAFETY: written above, and never freed.
            unsafe { &*place }
        })
    }

    /// Returns the span that a block came from.
    pub(crate) fn of(block: &FreeBlock) -> &'static Span {
        let address = block.address().addr();
        let chunk = ptr::with_exposed_provenance::<Chunk>(address & !(CHUNK - 1));
        let index = address % CHUNK / SPAN;
        // SAFETY: every free block lies in a chunk, whose records are at its start and are never
        // freed.
        unsafe { &(*chunk).spans[index] }
    }

    /// Gives the span to `class`.
    pub(crate) fn assign(&self, class: Class) {
        self.class.set(Some(class));
        self.total.set((SPAN / class.size()) as u32);
        self.carved.set(0);
        self.returned.set(FreeList::new());
    }

    /// Takes the span from its class. None of its blocks may be handed out.
    pub(crate) fn unassign(&self, now: u32) {
        debug_assert!(self.is_unused());
        self.idle_since_millis.set(now);
        self.class.set(None);
        self.total.set(0);
        self.returned.set(FreeList::new());
    }

    /// Returns when the span lost its class, in milliseconds.
    pub(crate) fn left_at(&self) -> u32 {
        self.idle_since_millis.get()
    }

    /// Returns whether the span has no block to hand out.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.out.get() == self.total.get()
    }

    /// Returns whether no block of the span is handed out.
    pub(crate) fn is_unused(&self) -> bool {
        self.out.get() == 0
    }

    /// Hands out at most `most` blocks: returned ones if there are any, otherwise unused ones.
    pub(crate) fn hand_out(&self, class: Class, most: u32) -> Handed {
        let mut back = self.returned.take();
        if back.is_empty() {
            let carved = self.carved.get();
            let count = most.min(self.total.get() - carved);
            self.carved.set(carved + count);
            self.out.set(self.out.get() + count);
            // SAFETY: `carved` is at most `total`, so the address is in the span or at its end.
            let first = unsafe { self.start.add(carved as usize * class.size()) };
            return Handed::Fresh(Fresh { first, class, count });
        }
        let mut list = FreeList::new();
        while list.len() < most
            && let Some(block) = back.pop()
        {
            list.push(block);
        }
        self.returned.set(back);
        self.out.set(self.out.get() + list.len());
        Handed::Used(list)
    }

    /// Takes a block back.
    pub(crate) fn take_back(&self, block: FreeBlock) {
        let mut back = self.returned.take();
        back.push(block);
        self.returned.set(back);
        self.out.set(self.out.get() - 1);
    }

    /// Returns the memory of the span.
    pub(crate) fn memory(&self) -> *mut [u8] {
        ptr::slice_from_raw_parts_mut(self.start, SPAN)
    }
}

impl Handed {
    /// Links the blocks into a list. Called without a lock, because it is the first to touch fresh
    /// blocks.
    pub(crate) fn linked(self) -> FreeList {
        let fresh = match self {
            Handed::Used(list) => return list,
            Handed::Fresh(fresh) => fresh,
        };
        let mut list = FreeList::new();
        // From the last to the first, so that the first block is used first.
        for index in (0..fresh.count as usize).rev() {
            // SAFETY: the block is one of those handed out.
            let block = unsafe { fresh.first.add(index * fresh.class.size()) };
            // SAFETY: the block is not null.
            let block = unsafe { NonNull::new_unchecked(block) };
            checks::fresh(block, fresh.class);
            let links = checks::links_of(block.as_ptr(), fresh.class);
            // SAFETY: the links are in the block, so not null.
            let links = unsafe { NonNull::new_unchecked(links) };
            // SAFETY: block — it has just been handed out, and no other code uses it.
            list.push(unsafe { FreeBlock::new(links) });
        }
        list
    }
}

/// A doubly linked list of spans. A span is in at most one list.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    first: Option<&'static Span>,
    last: Option<&'static Span>,
    len: usize,
}

impl Spans {
    pub(crate) const fn new() -> Spans {
        Spans { first: None, last: None, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn first(&self) -> Option<&'static Span> {
        self.first
    }

    pub(crate) fn last(&self) -> Option<&'static Span> {
        self.last
    }

    pub(crate) fn push_front(&mut self, span: &'static Span) {
        span.before.set(None);
        span.after.set(self.first);
        match self.first {
            Some(first) => first.before.set(Some(span)),
            None => self.last = Some(span),
        }
        self.first = Some(span);
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, span: &'static Span) {
        let (before, after) = (span.before.take(), span.after.take());
        match before {
            Some(before) => before.after.set(after),
            None => self.first = after,
        }
        match after {
            Some(after) => after.before.set(before),
            None => self.last = before,
        }
        self.len -= 1;
    }

    pub(crate) fn pop_front(&mut self) -> Option<&'static Span> {
        self.first.inspect(|span| self.remove(span))
    }

    /// Removes the span that has been in the list longest.
    pub(crate) fn pop_back(&mut self) -> Option<&'static Span> {
        self.last.inspect(|span| self.remove(span))
    }
}
