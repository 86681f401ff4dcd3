//! Tests of the parts together, on threads. This file is never part of a program.

use crate::Alloc;
use crate::span::CHUNK;
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

/// Serializes tests that check state shared by all threads.
pub(crate) fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|broken| broken.into_inner())
}

/// Adds a chunk to the pool, as the allocator does when the pool is empty.
pub(crate) fn add_chunk() {
    let layout = Layout::from_size_align(CHUNK, CHUNK).unwrap();
    // SAFETY: its size is not 0.
    let chunk = NonNull::new(unsafe { System.alloc(layout) }).unwrap();
    // SAFETY: chunk — it is new, and never freed.
    unsafe { crate::pool::add(chunk, 1) };
}

static ALLOC: Alloc = Alloc::new();

#[test]
fn a_thread_gets_back_the_block_that_it_freed() {
    let _one = one_at_a_time();
    let layout = Layout::from_size_align(100, 8).unwrap();
    // SAFETY: its size is not 0.
    let first = unsafe { ALLOC.alloc(layout) };
    // SAFETY: allocated above.
    unsafe { ALLOC.dealloc(first, layout) };
    // SAFETY: as above.
    let second = unsafe { ALLOC.alloc(layout) };
    assert_eq!(first, second);
    // SAFETY: allocated above.
    unsafe { ALLOC.dealloc(second, layout) };
}
