//! A thread's cache of free blocks: two magazines per class, for the thread and the goroutines on
//! it.
//!
//! Blocks are taken from the first magazine and put into it. The second magazine is full or empty.
//! An empty first magazine is refilled from the second, or with a batch from the central list. A
//! full first magazine becomes the second, and the blocks of the old second go to the central list.
//! So a thread uses the central list at most once per batch of calls, in whatever order it
//! allocates and frees.
//!
//! This code runs as the thread, with the thread's own thread-locals, and is not moved to another
//! thread. (In a child forked by a goroutine it runs as that goroutine.) It is called when a fast
//! path has found no block, or no room.
//!
//! A thread never takes blocks from another thread's cache: threads exchange blocks through the
//! central lists.

use crate::block::{FreeBlock, FreeList};
use crate::central;
use crate::checks;
use crate::classes::{CLASS_COUNT, Class};
use crate::fork;
use gosched_fiber::magazine::{self, Magazine, Row};
use std::cell::Cell;
use std::ptr::{self, NonNull};

/// The cache of a thread. Fast paths use only the row.
#[repr(C)]
#[derive(Debug)]
struct Cache {
    row: Row,
    /// The second magazines: the first block of each, or null if the magazine is empty.
    full: [Cell<*mut u8>; CLASS_COUNT],
}

/// A function that adds memory of the allocator behind to the pool. Returns `false` if there is
/// none.
pub(crate) type GrowPool<'a> = &'a dyn Fn() -> bool;

/// State of a thread's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CacheState {
    Absent,
    /// The cache is being created. Blocks that are needed meanwhile come from the central list.
    Creating,
    Ready,
    /// The thread is ending and has given up its cache. Other destructors may still run.
    ThreadEnding,
}

thread_local! {
    static CACHE_STATE: Cell<CacheState> = const { Cell::new(CacheState::Absent) };
    static FLUSH_ON_THREAD_EXIT: FlushOnThreadExit = const { FlushOnThreadExit };
}

/// Empties and frees the cache when the thread ends.
#[derive(Debug)]
struct FlushOnThreadExit;

impl Drop for FlushOnThreadExit {
    fn drop(&mut self) {
        CACHE_STATE.set(CacheState::ThreadEnding);
        if let Some(cache) = current() {
            flush(cache);
            // SAFETY: spilled — flushed above.
            unsafe { magazine::clear_row() };
            let (block, class) = (NonNull::from(cache).cast::<u8>(), class_of_a_cache());
            // SAFETY: block — it came from a central list of that class, and is no longer used.
            unsafe { checks::poison(block.as_ptr(), class) };
            let links = checks::links_of(block.as_ptr(), class);
            let Some(links) = NonNull::new(links) else { return };
            // SAFETY: block — as above.
            put_one(class, unsafe { FreeBlock::new(links) });
        }
    }
}

/// Allocates a block on the calling thread after a fast path has found an empty magazine. This
/// thread's magazine may have blocks all the same: a goroutine that found another thread's magazine
/// empty may have been moved to this thread. Returns null if there is no memory.
pub(crate) fn take(class: Class, grow_pool: GrowPool<'_>) -> *mut u8 {
    let Some(cache) = current().or_else(|| create(grow_pool)) else {
        return take_one(class, grow_pool).map_or(ptr::null_mut(), |block| block.address());
    };
    let first = &cache.row[class.index()];
    if !first.is_empty() {
        // SAFETY: blocks — they belong to this thread.
        return unsafe { first.take() };
    }
    let full = cache.full[class.index()].replace(ptr::null_mut());
    if !full.is_null() {
        first.fill(full, 0);
    } else {
        let Some(list) = refill(class, grow_pool) else { return ptr::null_mut() };
        // The allocator behind may have allocated and freed through this cache meanwhile.
        if first.is_empty() {
            let room = class.batch() - list.len();
            first.fill(list.into_raw(), room);
        } else {
            central::put_some(class, list);
        }
    }
    // SAFETY: blocks — they belong to this thread.
    unsafe { first.take() }
}

/// Frees a block on the calling thread after a fast path has found a full magazine.
pub(crate) fn put(class: Class, block: FreeBlock, grow_pool: GrowPool<'_>) {
    let Some(cache) = current().or_else(|| create(grow_pool)) else { return put_one(class, block) };
    let first = &cache.row[class.index()];
    if first.room() == 0 {
        let list = first.take_all(class.batch());
        let full = cache.full[class.index()].replace(list);
        if !full.is_null() {
            // SAFETY: blocks — a second magazine has a whole batch.
            central::put(class, unsafe { FreeList::from_raw(full, class.batch()) });
        }
    }
    // SAFETY: block — it is free.
    unsafe { first.give(block.address()) };
}

/// Moves all blocks of the calling thread's cache to the central lists. The cache stays in use.
pub(crate) fn flush_current() {
    if let Some(cache) = current() {
        flush(cache);
    }
}

fn flush(cache: &Cache) {
    for class in Class::all() {
        let first = &cache.row[class.index()];
        let len = class.batch() - first.room();
        if len > 0 {
            let blocks = first.take_all(class.batch());
            // SAFETY: blocks — the magazine held `len` blocks: a batch less its room.
            central::put_some(class, unsafe { FreeList::from_raw(blocks, len) });
        }
        let full = cache.full[class.index()].replace(ptr::null_mut());
        if !full.is_null() {
            // SAFETY: blocks — a second magazine has a whole batch.
            central::put(class, unsafe { FreeList::from_raw(full, class.batch()) });
        }
    }
}

/// Returns the calling thread's cache, if it has one.
fn current() -> Option<&'static Cache> {
    let row = magazine::row();
    // SAFETY: a row that is not the empty one is the first field of a cache, set by `create`.
    (!magazine::is_empty_row(row)).then(|| unsafe { &*row.cast::<Cache>() })
}

/// Creates the calling thread's cache. Returns `None` if the thread is ending, if the cache is
/// being created, or if there is no memory.
#[cold]
fn create(grow_pool: GrowPool<'_>) -> Option<&'static Cache> {
    if CACHE_STATE.get() != CacheState::Absent {
        return None;
    }
    CACHE_STATE.set(CacheState::Creating);
    fork::install();
    // Registers the destructor. May allocate.
    if FLUSH_ON_THREAD_EXIT.try_with(|_| ()).is_err() {
        CACHE_STATE.set(CacheState::ThreadEnding);
        return None;
    }
    let Some(block) = take_one(class_of_a_cache(), grow_pool) else {
        CACHE_STATE.set(CacheState::Absent);
        return None;
    };
    let place = checks::block_of(block.address(), class_of_a_cache()).cast::<Cache>();
    let mut classes = Class::all();
    let row = std::array::from_fn(|_| Magazine::new(classes.next().map_or(0, Class::batch)));
    let cache = Cache { row, full: [const { Cell::new(ptr::null_mut()) }; CLASS_COUNT] };
    // SAFETY: the block is free, and large and aligned enough.
    unsafe { place.write(cache) };
    // SAFETY: written above. It is freed when the thread ends, after its row is cleared.
    let cache: &'static Cache = unsafe { &*place };
    // SAFETY: alive — as above.
    unsafe { magazine::set_row(&cache.row) };
    CACHE_STATE.set(CacheState::Ready);
    Some(cache)
}

fn class_of_a_cache() -> Class {
    match Class::of(size_of::<Cache>(), align_of::<Cache>()) {
        Some(class) => class,
        None => unreachable!("a `Cache` fits in a size class"),
    }
}

fn refill(class: Class, grow_pool: GrowPool<'_>) -> Option<FreeList> {
    loop {
        if let Some(list) = central::take(class) {
            return Some(list);
        }
        if !grow_pool() {
            // Spans that other classes no longer use can serve this class.
            crate::flush_central_lists();
            return central::take(class);
        }
    }
}

/// Takes a block for a thread without a cache.
fn take_one(class: Class, grow_pool: GrowPool<'_>) -> Option<FreeBlock> {
    loop {
        if let Some(block) = central::take_one(class) {
            return Some(block);
        }
        let list = refill(class, grow_pool)?;
        central::put_some(class, list);
    }
}

fn put_one(class: Class, block: FreeBlock) {
    let mut list = FreeList::new();
    list.push(block);
    central::put_some(class, list);
}
