//! Where blocks come from: a chunk of a mebibyte, cut into spans, cut into blocks of one class.
//!
//! ```text
//! chunk   | records of its spans | span | span | … | span |      16 × 64 KiB, aligned to its size
//! span    | block | block | block | … | rest |                   blocks of one class
//! ```
//!
//! A chunk is never given back to the allocator it came from; what nobody uses is given back to the
//! system, span by span (see `pool`). So records are never freed either, and a block leads to its
//! span's by its address.
//!
//! Who owns a span's record: the lock of its class, or the pool's lock while it has none.

use crate::block::{FreeBlock, FreeList};
use crate::checks;
use crate::classes::Class;
use std::cell::Cell;
use std::ptr::{self, NonNull};

/// The bytes of a chunk, and its alignment.
pub(crate) const CHUNK: usize = 1 << 20;

/// The bytes of a span.
pub(crate) const SPAN: usize = 64 << 10;

/// Spans in a chunk. The first one's place is taken by the records.
const SPANS: usize = CHUNK / SPAN;

/// The beginning of a chunk.
#[repr(C)]
struct Chunk {
    spans: [Span; SPANS],
}

const _: () = assert!(size_of::<Chunk>() <= SPAN);

/// The record of a span.
pub(crate) struct Span {
    start: *mut u8,
    /// How many blocks fit; 0 while it has no class.
    total: Cell<u32>,
    /// How many were ever handed out: those behind have never been used.
    carved: Cell<u32>,
    /// How many are handed out.
    out: Cell<u32>,
    /// Handed out once, and back.
    returned: Cell<FreeList>,
    class: Cell<Option<Class>>,
    /// When it was left without a class, in milliseconds.
    idle_since_millis: Cell<u32>,
    before: Cell<Option<&'static Span>>,
    after: Cell<Option<&'static Span>>,
}

/// Blocks that lie one behind the other, never used: handed out, still to be linked.
#[derive(Debug)]
pub(crate) struct Fresh {
    first: *mut u8,
    class: Class,
    count: u32,
}

/// What a span hands out.
#[derive(Debug)]
pub(crate) enum Handed {
    Used(FreeList),
    Fresh(Fresh),
}

impl Handed {
    /// How many blocks it is.
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
    /// Makes the spans of a new chunk.
    ///
    /// # Safety
    /// - **chunk**: of [`CHUNK`] bytes, so aligned, ours for ever.
    pub(crate) unsafe fn all_of(chunk: NonNull<u8>) -> impl Iterator<Item = &'static Span> {
        // Blocks come back as addresses: see `of`.
        chunk.expose_provenance();
        let spans = chunk.as_ptr().cast::<Span>();
        (1..SPANS).map(move |index| {
            // SAFETY: chunk — its bytes are ours: the index is in it.
            let start = unsafe { chunk.as_ptr().add(index * SPAN) };
            // SAFETY: as above: the records are at the beginning.
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
            // SAFETY: as above.
            unsafe { place.write(span) };
            // SAFETY: written above, and never freed.
            unsafe { &*place }
        })
    }

    /// The span a block came from.
    pub(crate) fn of(block: &FreeBlock) -> &'static Span {
        let address = block.address().addr();
        let chunk = ptr::with_exposed_provenance::<Chunk>(address & !(CHUNK - 1));
        let index = address % CHUNK / SPAN;
        // SAFETY: every free block is one of a chunk's, whose records are at its beginning and are
        // never freed.
        unsafe { &(*chunk).spans[index] }
    }

    /// From now on it holds blocks of `class`.
    pub(crate) fn assign(&self, class: Class) {
        self.class.set(Some(class));
        self.total.set((SPAN / class.size()) as u32);
        self.carved.set(0);
        self.returned.set(FreeList::new());
    }

    /// It has no class any more. Nothing of it is handed out.
    pub(crate) fn unassign(&self, now: u32) {
        debug_assert!(self.is_unused());
        self.idle_since_millis.set(now);
        self.class.set(None);
        self.total.set(0);
        self.returned.set(FreeList::new());
    }

    /// When it was left.
    pub(crate) fn left_at(&self) -> u32 {
        self.idle_since_millis.get()
    }

    /// Whether it has nothing to hand out.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.out.get() == self.total.get()
    }

    /// Whether nothing of it is handed out.
    pub(crate) fn is_unused(&self) -> bool {
        self.out.get() == 0
    }

    /// Hands out up to `most` blocks.
    pub(crate) fn hand_out(&self, class: Class, most: u32) -> Handed {
        let mut back = self.returned.take();
        if back.is_empty() {
            let carved = self.carved.get();
            let count = most.min(self.total.get() - carved);
            self.carved.set(carved + count);
            self.out.set(self.out.get() + count);
            // SAFETY: in the span: fewer than `total`.
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

    /// Its bytes.
    pub(crate) fn memory(&self) -> *mut [u8] {
        ptr::slice_from_raw_parts_mut(self.start, SPAN)
    }
}

impl Handed {
    /// Without any lock: fresh blocks are touched for the first time here.
    pub(crate) fn linked(self) -> FreeList {
        let fresh = match self {
            Handed::Used(list) => return list,
            Handed::Fresh(fresh) => fresh,
        };
        let mut list = FreeList::new();
        // From the end, so that they are used from the beginning.
        for index in (0..fresh.count as usize).rev() {
            // SAFETY: one of the blocks that were handed out.
            let block = unsafe { fresh.first.add(index * fresh.class.size()) };
            // SAFETY: as above: not null.
            let block = unsafe { NonNull::new_unchecked(block) };
            checks::fresh(block, fresh.class);
            let links = checks::links_of(block.as_ptr(), fresh.class);
            // SAFETY: as above: not null.
            let links = unsafe { NonNull::new_unchecked(links) };
            // SAFETY: block — nobody has it yet.
            list.push(unsafe { FreeBlock::new(links) });
        }
        list
    }
}

/// Spans in a row; each is in one list at most.
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

    /// The one that has been here longest.
    pub(crate) fn pop_back(&mut self) -> Option<&'static Span> {
        self.last.inspect(|span| self.remove(span))
    }
}
