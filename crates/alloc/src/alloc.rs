//! The allocator that programs install. The allocator behind it (`A`) is never called while a lock
//! of this crate is held: `A` may wait, or call this allocator.

use crate::block::FreeBlock;
use crate::cache;
use crate::checks;
use crate::classes::Class;
use crate::pool::{self, Growth};
use crate::span::CHUNK;
use gosched_fiber::{host, magazine};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::{self, NonNull};

/// An allocation cache per thread, in front of the allocator `A`.
///
/// `#[gosched::main]` installs one. A program without that attribute installs its own:
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
/// A thread caches blocks of up to 16 KiB that are freed on it, at most 1.2 MB in total. Larger
/// blocks come directly from `A`. `A` is called only with the thread-locals of an ordinary thread,
/// never with those of a goroutine.
///
/// The memory from which small blocks are cut is never returned to `A`. On Linux, its unused parts
/// are returned to the system after a while, or by [`release_memory`](crate::release_memory).
#[derive(Debug)]
pub struct Alloc<A = System> {
    behind: A,
}

impl Alloc {
    /// Creates a cache in front of the system's allocator.
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
    /// Creates a cache in front of `behind`, whose type has no fields, such as `MiMalloc`. (The
    /// state of such an allocator is in statics, so its memory lives as long as the process.) For
    /// other allocators, see [`Alloc::in_front_of_any`].
    pub const fn in_front_of(behind: A) -> Alloc<A> {
        const { assert!(size_of::<A>() == 0, "the allocator's type has fields: use `in_front_of_any`") };
        Alloc { behind }
    }

    /// Creates a cache in front of any allocator.
    ///
    /// # Safety
    /// - **memory**: what `behind` has allocated stays valid as long as the process lives, even if
    ///   the `Alloc` is moved or dropped.
    pub const unsafe fn in_front_of_any(behind: A) -> Alloc<A> {
        Alloc { behind }
    }
}

/// A pointer that may be sent to the thread that carries this goroutine, and back.
struct Sent(*mut u8);

// SAFETY: a block may be used on any thread.
unsafe impl Send for Sent {}

impl<A: GlobalAlloc + Sync> Alloc<A> {
    /// Allocates a block for `layout`, which is already padded.
    ///
    /// # Safety
    /// - **layout**: as for [`GlobalAlloc::alloc`].
    #[inline(always)]
    unsafe fn take(&self, layout: Layout) -> *mut u8 {
        let Some(class) = Class::of(layout.size(), layout.align()) else {
            // SAFETY: layout — promised by the caller.
            return host(|| Sent(unsafe { self.behind.alloc(layout) })).0;
        };
        // SAFETY: size — the index of a class.
        let mut links = unsafe { magazine::take(class.index()) };
        if links.is_null() {
            links = self.refill(class);
        }
        let block = checks::block_of(links, class);
        // SAFETY: block — null, or taken above.
        unsafe { checks::check_poison(block, class) };
        block
    }

    /// Frees a block that [`Alloc::take`] returned.
    ///
    /// # Safety
    /// - **block**: allocated with this layout, which is padded, and no longer used.
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
        // SAFETY: size — the index of a class; block — promised by the caller.
        if !unsafe { magazine::give(class.index(), links) } {
            self.flush(class, links);
        }
    }

    /// Allocates a block when the thread's magazine has none. Returns null if there is no memory.
    #[cold]
    #[inline(never)]
    fn refill(&self, class: Class) -> *mut u8 {
        host(|| Sent(cache::take(class, &|| self.grow_pool()))).0
    }

    /// Frees a block when the thread's magazine has no room.
    #[cold]
    #[inline(never)]
    fn flush(&self, class: Class, block: *mut u8) {
        let sent = Sent(block);
        host(move || {
            let Some(block) = NonNull::new({ sent }.0) else { return };
            // SAFETY: block — promised by the caller of `put`.
            cache::put(class, unsafe { FreeBlock::new(block) }, &|| self.grow_pool());
        });
    }

    /// Adds chunks from `A` to the pool, for the rest of the process. Requests several at once, so
    /// that little is lost to their alignment, and fewer if `A` refuses. Requests none if the pool
    /// has spans, because another thread was faster. Returns `false` if there is no memory.
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

    /// Like [`GlobalAlloc::realloc`], for a new size that needs another block.
    ///
    /// # Safety
    /// As for [`GlobalAlloc::realloc`].
    #[cold]
    #[inline(never)]
    unsafe fn realloc_by_copy(&self, value: *mut u8, layout: Layout, new: Layout) -> *mut u8 {
        // SAFETY: layout — promised by the caller.
        let moved = unsafe { self.alloc(new) };
        if !moved.is_null() {
            let size = layout.size().min(new.size());
            // SAFETY: both blocks have at least `size` bytes, and they are different blocks.
            unsafe { ptr::copy_nonoverlapping(value, moved, size) };
            // SAFETY: promised by the caller; the old block is no longer used.
            unsafe { self.dealloc(value, layout) };
        }
        moved
    }
}

// SAFETY: a block is given to one caller at a time. A small block lies in memory of `A` that is
// never freed, and its class holds the layout's size and alignment. A large block comes from `A`.
unsafe impl<A: GlobalAlloc + Sync> GlobalAlloc for Alloc<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        checks::run_entry_check();
        let Some(padded) = checks::padded(layout) else { return ptr::null_mut() };
        // SAFETY: layout — promised by the caller.
        let value = unsafe { self.take(padded) };
        // SAFETY: value — its layout is padded.
        unsafe { checks::write_canary(value, layout.size()) };
        value
    }

    #[inline]
    unsafe fn dealloc(&self, value: *mut u8, layout: Layout) {
        checks::run_entry_check();
        // SAFETY: value — its canary was written when it was allocated.
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
                // SAFETY: the block has at least `layout.size()` bytes.
                unsafe { value.write_bytes(0, layout.size()) };
            }
            value
        } else {
            // SAFETY: layout — promised by the caller.
            host(|| Sent(unsafe { self.behind.alloc_zeroed(padded) })).0
        };
        // SAFETY: value — its layout is padded.
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
            // SAFETY: promised by the caller.
            return unsafe { self.realloc_by_copy(value, layout, new) };
        }
        checks::run_entry_check();
        // SAFETY: value — its canary was written when it was allocated.
        unsafe { checks::check_canary(value, layout.size()) };
        let mut moved = value;
        if classes.0.is_none() {
            let sent = Sent(value);
            // SAFETY: promised by the caller; a block without a class comes from `A`.
            moved =
                host(move || Sent(unsafe { self.behind.realloc({ sent }.0, from, to.size()) })).0;
        }
        if moved.is_null() {
            // The old block stays in use.
            // SAFETY: value — its layout is padded.
            unsafe { checks::write_canary(value, layout.size()) };
        } else {
            // SAFETY: value — its layout is padded.
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

    /// An allocator that counts chunks. With a barrier, it serves [`THREADS`] requests at the same
    /// time.
    struct Together {
        barrier: Option<Barrier>,
        chunks: AtomicUsize,
    }

    impl Together {
        fn new(barrier: Option<Barrier>) -> Together {
            Together { barrier, chunks: AtomicUsize::new(0) }
        }
    }

    // SAFETY: the memory comes from the system's allocator.
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

    /// Holds all spans of the pool until it is dropped: the pool is empty meanwhile.
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
    fn one_of_several_threads_that_grow_the_pool_at_once_adds_more_than_a_chunk() {
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
    fn a_thread_allocates_no_chunk_if_another_thread_has_grown_the_pool() {
        let _one = crate::tests::one_at_a_time();
        let _drained = Drained::new();
        let alloc = Alloc { behind: Together::new(None) };
        assert!(alloc.grow_pool() && alloc.grow_pool());
        assert_eq!(alloc.behind.chunks.load(Ordering::Relaxed), pool::CHUNKS_PER_GROWTH);
    }
}
