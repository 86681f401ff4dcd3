//! Spans without a class: any class may have them.
//!
//! Some stay as they were left, for the next class that wants one. What is more than that, and nobody has
//! wanted for a while, goes back to the system: the address space stays ours, the memory does not. (At
//! once would cost a program whose memory goes up and down two system calls and sixteen page faults
//! each time.)

use crate::span::{CHUNK, SPAN, Span, Spans};
use crate::{clock, system};
use gosched_fiber::lock::{Lock, NoPreemptLockGuard};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// So many spans always stay: 4 MiB.
const MIN_WARM_SPANS: usize = 64;

/// Beyond that, one for so many that are in use.
const SPANS_IN_USE_PER_KEPT: usize = 8;

/// And all that were left less than so many milliseconds ago.
const WARM_MILLIS: u32 = 1000;

/// No more than so many are given back at a time: somebody waits who only wanted to free a block.
const MAX_SCAVENGED_PER_CALL: usize = 8;

pub(crate) static POOL: Lock<Pool> = Lock::new(Pool::new());

#[derive(Debug)]
pub(crate) struct Pool {
    /// As they were left; the last one left is the first.
    warm: Spans,
    /// Their memory is the system's.
    cold: Spans,
    in_use: usize,
    chunks: usize,
}

// SAFETY: spans are never freed, and those without a class are used with the lock held only.
unsafe impl Send for Pool {}

impl Pool {
    pub(crate) const fn new() -> Pool {
        Pool { warm: Spans::new(), cold: Spans::new(), in_use: 0, chunks: 0 }
    }

    /// How many may stay warm.
    fn max_warm_spans(&self) -> usize {
        MIN_WARM_SPANS.max(self.in_use / SPANS_IN_USE_PER_KEPT)
    }
}

/// A span for a class; `None`: a chunk is needed.
pub(crate) fn take() -> Option<&'static Span> {
    let mut pool = NoPreemptLockGuard::new(&POOL);
    let span = pool.warm.pop_front().or_else(|| pool.cold.pop_front())?;
    pool.in_use += 1;
    Some(span)
}

/// A span whose class does not need it. To be followed by [`scavenge`], without a lock.
pub(crate) fn put(span: &'static Span) {
    span.unassign(clock::millis());
    let mut pool = NoPreemptLockGuard::new(&POOL);
    pool.in_use -= 1;
    pool.warm.push_front(span);
}

/// How many chunks a thread asks for, unless another one does so at that moment.
pub(crate) const CHUNKS_PER_GROWTH: usize = 8;

/// Whether a thread is asking for [`CHUNKS_PER_GROWTH`] chunks. Set with the pool's lock held, and
/// cleared by the thread that set it.
static GROWING: AtomicBool = AtomicBool::new(false);

/// A thread's request for memory, made while the pool is empty.
///
/// Threads that find the pool empty at the same moment do not wait for each other: the allocator
/// behind may be waiting for one of them. Each thread asks, and only the first one asks for several
/// chunks. So the reserved memory exceeds the largest amount that was ever in use by at most
/// [`CHUNKS_PER_GROWTH`] chunks and one chunk for each thread.
#[derive(Debug)]
pub(crate) struct Growth {
    is_first: bool,
}

impl Growth {
    /// `None`: the pool has spans.
    pub(crate) fn begin() -> Option<Growth> {
        let pool = NoPreemptLockGuard::new(&POOL);
        if pool.warm.len() + pool.cold.len() > 0 {
            return None;
        }
        Some(Growth { is_first: !GROWING.swap(true, Ordering::Relaxed) })
    }

    /// How many chunks the thread may ask for.
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

/// In a forked child: the thread that asked for chunks is in the parent.
pub(crate) fn forget_growth() {
    GROWING.store(false, Ordering::Relaxed);
}

/// Adds the spans of some chunks.
///
/// # Safety
/// - **chunk**: as for [`Span::all_of`], `count` times, one behind the other.
pub(crate) unsafe fn add(first: NonNull<u8>, count: usize) {
    for index in 0..count {
        // SAFETY: chunk — promised by the caller.
        let chunk = unsafe { first.add(index * CHUNK) };
        // SAFETY: chunk — promised by the caller. Not under the lock: it touches the memory.
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

/// Gives back some of what nobody has wanted for a while.
pub(crate) fn scavenge() {
    let now = clock::millis();
    let old = |pool: &Pool| {
        let long_ago = |span: &Span| now.wrapping_sub(span.left_at()) >= WARM_MILLIS;
        pool.warm.len() > pool.max_warm_spans() && pool.warm.last().is_some_and(long_ago)
    };
    for _ in 0..MAX_SCAVENGED_PER_CALL {
        if !scavenge_one(old) {
            return;
        }
    }
}

/// All the memory that no block is in, to the system.
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
    // SAFETY: unused — it has no class, and is in no list.
    unsafe { system::discard(span.memory()) };
    NoPreemptLockGuard::new(&POOL).cold.push_front(span);
    true
}

/// Memory that small blocks are cut from, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Got from the allocator behind, for ever.
    pub reserved: usize,
    /// In spans that have a class: blocks that are in use, and free ones beside them.
    pub in_use: usize,
    /// Not in use, and not yet given back to the system.
    pub warm: usize,
}

/// How much memory there is for small blocks.
pub fn stats() -> Stats {
    let pool = NoPreemptLockGuard::new(&POOL);
    let [in_use, warm] = [pool.in_use, pool.warm.len()].map(|spans| spans * SPAN);
    Stats { reserved: pool.chunks * CHUNK, in_use, warm }
}
