//! The allocator that programs see.

use crate::block::FreeBlock;
use crate::cache;
use crate::checks;
use crate::classes::Class;
use crate::pool::{self, Growth};
use crate::span::CHUNK;
use gosched_fiber::{host, magazine};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::{self, NonNull};

/// The allocation cache, in front of the allocator `A`. `#[gosched::main]` installs one; without it:
///
/// ```
/// use gosched_alloc::Alloc;
///
/// #[global_allocator]
/// static ALLOC: Alloc = Alloc::new();
///
/// assert_eq!(vec![1, 2, 3].len(), 3);
/// ```
///
/// Blocks of up to 16 KiB are kept by the threads that free them, 1.2 MB each at most. Larger ones are
/// `A`'s, which is only ever entered as an ordinary thread, not as a goroutine.
///
/// What small blocks are cut from is never given back to `A`: whoever installs one installs it for ever.
#[derive(Debug)]
pub struct Alloc<A = System> {
    behind: A,
}

impl Alloc {
    /// In front of the system's allocator.
    pub const fn new() -> Alloc {
        Alloc { behind: System }
    }
}

impl Default for Alloc {
    fn default() -> Alloc {
        Alloc::new()
    }
}

impl<A: 'static> Alloc<A> {
    /// In front of another allocator, a type without fields, such as `MiMalloc`. (Whatever state it has
    /// is then in statics, and its memory lives as long as the process.)
    pub const fn in_front_of(behind: A) -> Alloc<A> {
        const { assert!(size_of::<A>() == 0, "the allocator has fields: see `in_front_of_any`") };
        Alloc { behind }
    }

    /// In front of any allocator.
    ///
    /// # Safety
    /// - **memory**: what `behind` has allocated stays good for as long as the process lives, wherever
    ///   the `Alloc` goes and even if it is dropped.
    pub const unsafe fn in_front_of_any(behind: A) -> Alloc<A> {
        Alloc { behind }
    }
}

/// A pointer that may go to the thread that carries this goroutine and back.
struct Sent(*mut u8);

// SAFETY: whoever has a block's address may use it on any thread.
unsafe impl Send for Sent {}

impl<A: GlobalAlloc + Sync> Alloc<A> {
    /// A block for `layout`, which is padded.
    ///
    /// # Safety
    /// - **layout**: as [`GlobalAlloc::alloc`] wants it.
    #[inline(always)]
    unsafe fn take(&self, layout: Layout) -> *mut u8 {
        let Some(class) = Class::of(layout.size(), layout.align()) else {
            // SAFETY: layout — promised by the caller.
            return host(|| Sent(unsafe { self.behind.alloc(layout) })).0;
        };
        // SAFETY: size — a class's number.
        let mut links = unsafe { magazine::take(class.index()) };
        if links.is_null() {
            links = self.refill(class);
        }
        let block = checks::block_of(links, class);
        // SAFETY: block — just taken.
        unsafe { checks::check_poison(block, class) };
        block
    }

    /// Frees what [`Alloc::take`] gave.
    ///
    /// # Safety
    /// - **block**: of that layout, padded, and nobody uses it.
    #[inline(always)]
    unsafe fn put(&self, block: *mut u8, layout: Layout) {
        let Some(class) = Class::of(layout.size(), layout.align()) else {
            let sent = Sent(block);
            // SAFETY: block — promised by the caller.
            return host(move || unsafe { self.behind.dealloc({ sent }.0, layout) });
        };
        // SAFETY: block — promised by the caller.
        unsafe { checks::poison(block, class) };
        let links = checks::links_of(block, class);
        // SAFETY: size — a class's number; block — promised by the caller.
        if !unsafe { magazine::give(class.index(), links) } {
            self.flush(class, links);
        }
    }

    /// The thread has no block of this class.
    #[cold]
    #[inline(never)]
    fn refill(&self, class: Class) -> *mut u8 {
        host(|| Sent(cache::take(class, &|| self.grow_pool()))).0
    }

    /// The thread has no room for a block of this class.
    #[cold]
    #[inline(never)]
    fn flush(&self, class: Class, block: *mut u8) {
        let sent = Sent(block);
        host(move || {
            let Some(block) = NonNull::new({ sent }.0) else { return };
            // SAFETY: block — `put` was promised so.
            cache::put(class, unsafe { FreeBlock::new(block) }, &|| self.grow_pool());
        });
    }

    /// Memory to cut blocks from, for ever: several chunks, so that little is lost for their alignment;
    /// or as many as can be had. Nothing, if another thread was faster and the pool has spans by now.
    /// False: there is no memory.
    fn grow_pool(&self) -> bool {
        let Some(growth) = Growth::begin() else { return true };
        let mut chunks = growth.chunks();
        while chunks > 0 {
            let Ok(layout) = Layout::from_size_align(chunks * CHUNK, CHUNK) else { return false };
            // SAFETY: layout — its size is not 0.
            if let Some(memory) = NonNull::new(unsafe { self.behind.alloc(layout) }) {
                // SAFETY: chunk — just allocated, and never freed.
                unsafe { pool::add(memory, chunks) };
                return true;
            }
            chunks /= 2;
        }
        false
    }

    /// As [`GlobalAlloc::realloc`], for a block that does not fit any more.
    ///
    /// # Safety
    /// As there.
    #[cold]
    #[inline(never)]
    unsafe fn realloc_by_copy(&self, value: *mut u8, layout: Layout, new: Layout) -> *mut u8 {
        // SAFETY: layout — promised by the caller.
        let moved = unsafe { self.alloc(new) };
        if !moved.is_null() {
            let size = layout.size().min(new.size());
            // SAFETY: both hold so many bytes, and are not one block.
            unsafe { ptr::copy_nonoverlapping(value, moved, size) };
            // SAFETY: promised by the caller; nobody uses it any more.
            unsafe { self.dealloc(value, layout) };
        }
        moved
    }
}

// SAFETY: a block is given to one caller at a time, and lies in memory of `A`'s that is never freed, or
// is `A`'s own; its size and alignment are those of a class that holds the layout.
unsafe impl<A: GlobalAlloc + Sync> GlobalAlloc for Alloc<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        checks::run_entry_check();
        let Some(padded) = checks::padded(layout) else { return ptr::null_mut() };
        // SAFETY: layout — promised by the caller.
        let value = unsafe { self.take(padded) };
        // SAFETY: value — it is padded.
        unsafe { checks::write_canary(value, layout.size()) };
        value
    }

    #[inline]
    unsafe fn dealloc(&self, value: *mut u8, layout: Layout) {
        checks::run_entry_check();
        // SAFETY: value — armed when it was allocated.
        unsafe { checks::check_canary(value, layout.size()) };
        if let Some(padded) = checks::padded(layout) {
            // SAFETY: block — promised by the caller.
            unsafe { self.put(value, padded) };
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        checks::run_entry_check();
        let Some(padded) = checks::padded(layout) else { return ptr::null_mut() };
        let value = if Class::of(padded.size(), padded.align()).is_some() {
            // SAFETY: layout — promised by the caller.
            let value = unsafe { self.take(padded) };
            if !value.is_null() {
                // SAFETY: it is so large.
                unsafe { value.write_bytes(0, layout.size()) };
            }
            value
        } else {
            // SAFETY: layout — promised by the caller.
            host(|| Sent(unsafe { self.behind.alloc_zeroed(padded) })).0
        };
        // SAFETY: value — it is padded.
        unsafe { checks::write_canary(value, layout.size()) };
        value
    }

    #[inline]
    unsafe fn realloc(&self, value: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: promised by the caller.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let (Some(from), Some(to)) = (checks::padded(layout), checks::padded(new)) else {
            return ptr::null_mut();
        };
        let classes = (Class::of(from.size(), from.align()), Class::of(to.size(), to.align()));
        let same = match classes {
            (Some(from), Some(to)) => from == to,
            (None, None) => true,
            _ => false,
        };
        if !same {
            // SAFETY: as promised by the caller.
            return unsafe { self.realloc_by_copy(value, layout, new) };
        }
        checks::run_entry_check();
        // SAFETY: value — armed when it was allocated.
        unsafe { checks::check_canary(value, layout.size()) };
        let mut moved = value;
        if classes.0.is_none() {
            let sent = Sent(value);
            // SAFETY: promised by the caller: the block is `A`'s.
            moved =
                host(move || Sent(unsafe { self.behind.realloc({ sent }.0, from, to.size()) })).0;
        }
        if moved.is_null() {
            // The old one is still in use.
            // SAFETY: value — as it was.
            unsafe { checks::write_canary(value, layout.size()) };
        } else {
            // SAFETY: value — it is padded.
            unsafe { checks::write_canary(moved, size) };
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::Span;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const THREADS: usize = 20;

    /// An allocator that serves [`THREADS`] requests for chunks at the same moment, or one.
    struct Together {
        barrier: Option<Barrier>,
        chunks: AtomicUsize,
    }

    impl Together {
        fn new(barrier: Option<Barrier>) -> Together {
            Together { barrier, chunks: AtomicUsize::new(0) }
        }
    }

    // SAFETY: memory is the system's.
    unsafe impl GlobalAlloc for Together {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            self.barrier.as_ref().map(Barrier::wait);
            self.chunks.fetch_add(layout.size() / CHUNK, Ordering::Relaxed);
            // SAFETY: layout — promised by the caller.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            // SAFETY: block — promised by the caller.
            unsafe { System.dealloc(block, layout) }
        }
    }

    /// All spans of the pool, until they are dropped: the pool is empty meanwhile.
    struct Drained(Vec<&'static Span>);

    impl Drained {
        fn new() -> Drained {
            Drained(std::iter::from_fn(pool::take).collect())
        }
    }

    impl Drop for Drained {
        fn drop(&mut self) {
            self.0.drain(..).for_each(pool::put);
        }
    }

    #[test]
    fn one_of_the_threads_that_need_memory_at_once_gets_more_than_a_chunk() {
        let _one = crate::tests::one_at_a_time();
        for round in 0..3 {
            let _drained = Drained::new();
            let barrier = Barrier::new(THREADS);
            let alloc = Alloc { behind: Together::new(Some(barrier)) };
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| assert!(alloc.grow_pool()));
                }
            });
            let chunks = alloc.behind.chunks.into_inner();
            assert_eq!(chunks, pool::CHUNKS_PER_GROWTH + THREADS - 1, "round {round}");
        }
    }

    #[test]
    fn a_thread_that_finds_spans_of_another_thread_s_chunks_asks_for_none() {
        let _one = crate::tests::one_at_a_time();
        let _drained = Drained::new();
        let alloc = Alloc { behind: Together::new(None) };
        assert!(alloc.grow_pool() && alloc.grow_pool());
        assert_eq!(alloc.behind.chunks.load(Ordering::Relaxed), pool::CHUNKS_PER_GROWTH);
    }
}
