//! What one thread keeps: two magazines of each class, its own and those goroutines' that run on it.
//!
//! The first magazine is where blocks are taken and put; the second is full or empty. An empty first one
//! is filled by the second, or by a batch from the central list; a full first one becomes the second, whose
//! blocks go to the central list. So a thread goes to the central list at most once in a batch of calls, whatever
//! their order.
//!
//! All of this runs as the thread, never as a goroutine: with the thread's own thread-locals, and not
//! moved. Whoever comes here came from a fast path that found nothing, or no room.

use crate::block::{FreeBlock, FreeList};
use crate::central;
use crate::checks;
use crate::classes::{CLASS_COUNT, Class};
use crate::fork;
use gosched_fiber::magazine::{self, Magazine, Row};
use std::cell::Cell;
use std::ptr::{self, NonNull};

/// What a thread keeps. The row is what fast paths see of it.
#[repr(C)]
#[derive(Debug)]
struct Cache {
    row: Row,
    /// Full second magazines: the first block of each; null: there is none.
    full: [Cell<*mut u8>; CLASS_COUNT],
}

/// Gets memory from the allocator behind, for the pool; false if it has none.
pub(crate) type GrowPool<'a> = &'a dyn Fn() -> bool;

/// How far a thread is with its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CacheState {
    Absent,
    /// It is being made: what is needed meanwhile comes from the central list.
    Creating,
    Ready,
    /// The thread has ended, as far as its destructors tell; some may still run.
    ThreadEnding,
}

thread_local! {
    static CACHE_STATE: Cell<CacheState> = const { Cell::new(CacheState::Absent) };
    static FLUSH_ON_THREAD_EXIT: FlushOnThreadExit = const { FlushOnThreadExit };
}

/// Gives everything back when the thread ends.
#[derive(Debug)]
struct FlushOnThreadExit;

impl Drop for FlushOnThreadExit {
    fn drop(&mut self) {
        CACHE_STATE.set(CacheState::ThreadEnding);
        if let Some(cache) = current() {
            flush(cache);
            // SAFETY: spilled — above.
            unsafe { magazine::clear_row() };
            let (block, class) = (NonNull::from(cache).cast::<u8>(), class_of_a_cache());
            // SAFETY: block — it came from a central list of that class; nobody sees it any more.
            unsafe { checks::poison(block.as_ptr(), class) };
            let links = checks::links_of(block.as_ptr(), class);
            let Some(links) = NonNull::new(links) else { return };
            // SAFETY: block — as above.
            put_one(class, unsafe { FreeBlock::new(links) });
        }
    }
}

/// A block for the calling thread, whose magazine is empty; or was that of another one, from which a
/// goroutine has been moved since it looked. Null: there is no memory.
pub(crate) fn take(class: Class, new_chunk: GrowPool<'_>) -> *mut u8 {
    let Some(cache) = current().or_else(|| create(new_chunk)) else {
        return take_one(class, new_chunk).map_or(ptr::null_mut(), |block| block.address());
    };
    let first = &cache.row[class.index()];
    if !first.is_empty() {
        // SAFETY: blocks — the thread's own.
        return unsafe { first.take() };
    }
    let full = cache.full[class.index()].replace(ptr::null_mut());
    if !full.is_null() {
        first.fill(full, 0);
    } else {
        let Some(list) = refill(class, new_chunk) else { return ptr::null_mut() };
        // The allocator behind may itself have allocated and freed here meanwhile.
        if first.is_empty() {
            let room = class.batch() - list.len();
            first.fill(list.into_raw(), room);
        } else {
            central::put_some(class, list);
        }
    }
    // SAFETY: blocks — the thread's own.
    unsafe { first.take() }
}

/// A block of the calling thread, whose magazine is full.
pub(crate) fn put(class: Class, block: FreeBlock, new_chunk: GrowPool<'_>) {
    let Some(cache) = current().or_else(|| create(new_chunk)) else { return put_one(class, block) };
    let first = &cache.row[class.index()];
    if first.room() == 0 {
        let list = first.take_all(class.batch());
        let full = cache.full[class.index()].replace(list);
        if !full.is_null() {
            // SAFETY: blocks — a second magazine is full.
            central::put(class, unsafe { FreeList::from_raw(full, class.batch()) });
        }
    }
    // SAFETY: block — free.
    unsafe { first.give(block.address()) };
}

/// All that the calling thread keeps, to the shelves. It goes on.
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
            // SAFETY: blocks — as many as the room that they took.
            central::put_some(class, unsafe { FreeList::from_raw(blocks, len) });
        }
        let full = cache.full[class.index()].replace(ptr::null_mut());
        if !full.is_null() {
            // SAFETY: blocks — a second magazine is full.
            central::put(class, unsafe { FreeList::from_raw(full, class.batch()) });
        }
    }
}

/// The calling thread's cache.
fn current() -> Option<&'static Cache> {
    let row = magazine::row();
    // SAFETY: a row that is not nobody's is the first field of a cache, by `make`.
    (!magazine::is_empty_row(row)).then(|| unsafe { &*row.cast::<Cache>() })
}

/// Makes the calling thread's cache, unless it is too late, or there is no memory.
#[cold]
fn create(new_chunk: GrowPool<'_>) -> Option<&'static Cache> {
    if CACHE_STATE.get() != CacheState::Absent {
        return None;
    }
    CACHE_STATE.set(CacheState::Creating);
    fork::install();
    // Says that the destructor is to run. May allocate.
    if FLUSH_ON_THREAD_EXIT.try_with(|_| ()).is_err() {
        CACHE_STATE.set(CacheState::ThreadEnding);
        return None;
    }
    let Some(block) = take_one(class_of_a_cache(), new_chunk) else {
        CACHE_STATE.set(CacheState::Absent);
        return None;
    };
    let place = checks::block_of(block.address(), class_of_a_cache()).cast::<Cache>();
    let mut classes = Class::all();
    let row = std::array::from_fn(|_| Magazine::new(classes.next().map_or(0, Class::batch)));
    let cache = Cache { row, full: [const { Cell::new(ptr::null_mut()) }; CLASS_COUNT] };
    // SAFETY: a free block, large and aligned enough.
    unsafe { place.write(cache) };
    // SAFETY: written above; it is freed when the thread ends, and its row forgotten before.
    let cache: &'static Cache = unsafe { &*place };
    // SAFETY: alive — as above.
    unsafe { magazine::set_row(&cache.row) };
    CACHE_STATE.set(CacheState::Ready);
    Some(cache)
}

fn class_of_a_cache() -> Class {
    match Class::of(size_of::<Cache>(), align_of::<Cache>()) {
        Some(class) => class,
        None => unreachable!("a cache is small"),
    }
}

fn refill(class: Class, new_chunk: GrowPool<'_>) -> Option<FreeList> {
    loop {
        if let Some(list) = central::take(class) {
            return Some(list);
        }
        if !new_chunk() {
            // What other classes do not use may be had.
            crate::flush_central_lists();
            return central::take(class);
        }
    }
}

/// A block, for a thread without a cache.
fn take_one(class: Class, new_chunk: GrowPool<'_>) -> Option<FreeBlock> {
    loop {
        if let Some(block) = central::take_one(class) {
            return Some(block);
        }
        let list = refill(class, new_chunk)?;
        central::put_some(class, list);
    }
}

fn put_one(class: Class, block: FreeBlock) {
    let mut list = FreeList::new();
    list.push(block);
    central::put_some(class, list);
}
