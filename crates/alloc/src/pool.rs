//! The pool of spans that have no class. Any class can take one.
//!
//! A number of spans stay warm: they keep their memory, for the next class that needs a span. The
//! memory of further spans is returned to the system once they have been unused for a while; their
//! addresses stay reserved. (Returning memory at once would cost a program whose memory use goes up
//! and down two system calls and sixteen page faults each time.)
//!
//! The pool never requests memory: `alloc` adds chunks when the pool is empty.

use crate::span::{CHUNK, SPAN, Span, Spans};
use crate::{clock, system};
use gosched_fiber::lock::{Lock, NoPreemptLockGuard};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of spans that [`scavenge`] leaves warm in any case: 4 MiB.
const MIN_WARM_SPANS: usize = 64;

/// [`scavenge`] leaves one span warm for this many spans in use, if that makes more than the
/// minimum.
const SPANS_IN_USE_PER_KEPT: usize = 8;

/// How long [`scavenge`] leaves an unused span warm in any case, in milliseconds.
const WARM_MILLIS: u32 = 1000;

/// Maximum number of spans whose memory one call of [`scavenge`] returns: its caller only wants to
/// free a block.
const MAX_SCAVENGED_PER_CALL: usize = 8;

pub(crate) static POOL: Lock<Pool> = Lock::new(Pool::new());

#[derive(Debug)]
pub(crate) struct Pool {
    /// Spans that have their memory. The span that was put back last is the first.
    warm: Spans,
    /// Spans without memory: new, or returned to the system.
    cold: Spans,
    in_use: usize,
    chunks: usize,
}

// SAFETY: spans are never freed, and spans without a class are used only with the lock held.
unsafe impl Send for Pool {}

impl Pool {
    pub(crate) const fn new() -> Pool {
        Pool { warm: Spans::new(), cold: Spans::new(), in_use: 0, chunks: 0 }
    }

    /// Empties the pool, in a forked child whose parent had another thread that was changing the
    /// pool. The counts stay: classes that were not being changed have spans that they may put
    /// back, and each of those is counted in `in_use`.
    pub(crate) fn reset_after_fork(&mut self) {
        *self = Pool { warm: Spans::new(), cold: Spans::new(), ..*self };
    }

    /// Returns how many spans may stay warm.
    fn max_warm_spans(&self) -> usize {
        MIN_WARM_SPANS.max(self.in_use / SPANS_IN_USE_PER_KEPT)
    }
}

/// Takes a span for a class. Returns `None` if the pool is empty.
pub(crate) fn take() -> Option<&'static Span> {
    let mut pool = NoPreemptLockGuard::new(&POOL);
    let span = pool.warm.pop_front().or_else(|| pool.cold.pop_front())?;
    pool.in_use += 1;
    Some(span)
}

/// Puts back a span that its class no longer needs. Call [`scavenge`] afterwards, with no lock
/// held.
pub(crate) fn put(span: &'static Span) {
    span.unassign(clock::millis());
    let mut pool = NoPreemptLockGuard::new(&POOL);
    pool.in_use -= 1;
    pool.warm.push_front(span);
}

/// Number of chunks that a thread requests, unless another thread is requesting chunks too.
pub(crate) const CHUNKS_PER_GROWTH: usize = 8;

/// Whether a thread is requesting [`CHUNKS_PER_GROWTH`] chunks. Set with the pool's lock held, and
/// cleared by the thread that set it.
static GROWING: AtomicBool = AtomicBool::new(false);

/// A thread's request for memory, made while the pool is empty.
///
/// Threads that find the pool empty at the same time do not wait for each other, because the
/// allocator behind may be waiting for one of them. Each thread makes a request, and only the first
/// thread requests several chunks. So the reserved memory exceeds the largest amount ever in use by
/// at most [`CHUNKS_PER_GROWTH`] chunks plus one chunk per thread.
#[derive(Debug)]
pub(crate) struct Growth {
    is_first: bool,
}

impl Growth {
    /// Begins a request. Returns `None` if the pool has spans.
    pub(crate) fn begin() -> Option<Growth> {
        let pool = NoPreemptLockGuard::new(&POOL);
        if pool.warm.len() + pool.cold.len() > 0 {
            return None;
        }
        Some(Growth { is_first: !GROWING.swap(true, Ordering::Relaxed) })
    }

    /// Returns how many chunks the thread may request.
    pub(crate) fn chunks(&self) -> usize {
        if self.is_first { CHUNKS_PER_GROWTH } else { 1 }
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        if self.is_first {
            GROWING.store(false, Ordering::Relaxed);
        }
    }
}

/// Forgets a request in a forked child: the thread that made it exists only in the parent.
pub(crate) fn forget_growth() {
    GROWING.store(false, Ordering::Relaxed);
}

/// Adds the spans of `count` consecutive chunks.
///
/// # Safety
/// - **chunk**: as for [`Span::all_of`], for each of `count` consecutive chunks.
pub(crate) unsafe fn add(first: NonNull<u8>, count: usize) {
    for index in 0..count {
        // SAFETY: chunk — promised by the caller.
        let chunk = unsafe { first.add(index * CHUNK) };
        // SAFETY: chunk — promised by the caller. Called without the lock, because it touches the
        // memory.
        let spans = unsafe { Span::all_of(chunk) };
        let mut new = Spans::new();
        spans.for_each(|span| new.push_front(span));
        let mut pool = NoPreemptLockGuard::new(&POOL);
        pool.chunks += 1;
        while let Some(span) = new.pop_front() {
            pool.cold.push_front(span);
        }
    }
}

/// Returns the memory of some spans that have been unused for a while to the system.
pub(crate) fn scavenge() {
    let now = clock::millis();
    let old = |pool: &Pool| {
        let has_cooled_down = |span: &Span| now.wrapping_sub(span.left_at()) >= WARM_MILLIS;
        pool.warm.len() > pool.max_warm_spans() && pool.warm.last().is_some_and(has_cooled_down)
    };
    for _ in 0..MAX_SCAVENGED_PER_CALL {
        if !scavenge_one(old) {
            return;
        }
    }
}

/// Returns the memory of all spans in the pool to the system.
pub(crate) fn scavenge_all() {
    while scavenge_one(|_| true) {}
}

fn scavenge_one(wanted: impl Fn(&Pool) -> bool) -> bool {
    let span = {
        let mut pool = NoPreemptLockGuard::new(&POOL);
        if !wanted(&pool) {
            return false;
        }
        pool.warm.pop_back()
    };
    let Some(span) = span else { return false };
    // SAFETY: unused — the span has no class, and is in no list.
    unsafe { system::discard(span.memory()) };
    NoPreemptLockGuard::new(&POOL).cold.push_front(span);
    true
}

/// Memory for small blocks, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Memory obtained from the allocator behind the cache. It is never returned to that allocator.
    pub reserved: usize,
    /// Memory divided into blocks: blocks in use, and free blocks beside them.
    pub in_use: usize,
    /// Memory that is not in use and has not been returned to the system.
    pub warm: usize,
}

/// Returns how much memory the cache has for small blocks.
pub fn stats() -> Stats {
    let pool = NoPreemptLockGuard::new(&POOL);
    let [in_use, warm] = [pool.in_use, pool.warm.len()].map(|spans| spans * SPAN);
    Stats { reserved: pool.chunks * CHUNK, in_use, warm }
}
