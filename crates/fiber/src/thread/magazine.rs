//! Free blocks of memory that a thread keeps, for itself and for the goroutines that run on it.
//!
//! A magazine is a stack of free blocks of one size class, linked through their first words. A
//! thread has one magazine per class, in a row. The row belongs to the *thread*: the thread's own
//! code finds the row in a thread-local, and a goroutine finds the row of its thread through the
//! carrier. Only one of them runs at a time, and a goroutine is never moved in the middle of
//! [`take`] or [`give`] (see `arch`), so nothing here is atomic.
//!
//! A thread without a row of its own uses [`EMPTY_ROW`], which holds no blocks and has no room.
//!
//! This module never allocates or frees memory: [`take`] returns null if there is no block, and the
//! allocator refills the magazine.

use crate::thread::current;
use std::cell::Cell;
use std::ptr;

/// Number of size classes.
pub const CLASS_COUNT: usize = 36;

/// A stack of free blocks of one size class. Assembly uses this layout.
#[repr(C)]
#[derive(Debug)]
pub struct Magazine {
    /// The first block, or null. The first word of a block is the address of the next block.
    first: Cell<*mut u8>,
    /// How many more blocks fit.
    room: Cell<u32>,
}

// Assembly uses these offsets and this size.
const _: () = assert!(std::mem::offset_of!(Magazine, first) == 0);
const _: () = assert!(std::mem::offset_of!(Magazine, room) == 8);
const _: () = assert!(size_of::<Magazine>() == 16);

/// One magazine per size class.
pub type Row = [Magazine; CLASS_COUNT];

/// The row of a thread that has no row of its own.
pub static EMPTY_ROW: EmptyRow = EmptyRow([const { Magazine::new(0) }; CLASS_COUNT]);

/// A row that is never written: it holds no blocks and has no room.
#[derive(Debug)]
pub struct EmptyRow(Row);

// SAFETY: the row is never written.
unsafe impl Sync for EmptyRow {}

thread_local! {
    /// The calling thread's row. A goroutine does not use its own copy of this thread-local.
    static ROW: Cell<*const Magazine> = const { Cell::new(EMPTY_ROW.0.as_ptr()) };
}

impl Magazine {
    /// Creates an empty magazine with room for `room` blocks.
    pub const fn new(room: u32) -> Magazine {
        Magazine { first: Cell::new(ptr::null_mut()), room: Cell::new(room) }
    }

    /// Returns how many more blocks fit.
    pub fn room(&self) -> u32 {
        self.room.get()
    }

    /// Takes all blocks out and sets the room to `room`. Returns the first block, which links to
    /// the rest, or null.
    pub fn take_all(&self, room: u32) -> *mut u8 {
        self.room.set(room);
        self.first.replace(ptr::null_mut())
    }

    /// Returns whether the magazine holds no blocks.
    pub fn is_empty(&self) -> bool {
        self.first.get().is_null()
    }

    /// Puts `first`, and all blocks it links to, into the empty magazine, and sets the room to
    /// `room`.
    pub fn fill(&self, first: *mut u8, room: u32) {
        debug_assert!(
            self.is_empty(),
            "`fill` was called on a magazine that holds blocks: they would be lost"
        );
        self.first.set(first);
        self.room.set(room);
    }

    /// Takes out the block that was put in last. Returns null if the magazine is empty.
    ///
    /// # Safety
    /// - **blocks**: no other code uses the blocks in the magazine.
    #[inline(always)]
    pub unsafe fn take(&self) -> *mut u8 {
        let block = self.first.get();
        if !block.is_null() {
            // SAFETY: blocks — promised by the caller.
            self.first.set(unsafe { block.cast::<*mut u8>().read() });
            self.room.set(self.room.get() + 1);
        }
        block
    }

    /// Puts `block` in. Returns `false` if there is no room.
    ///
    /// # Safety
    /// - **block**: it is large enough for a pointer, and no other code uses it.
    #[inline(always)]
    pub unsafe fn give(&self, block: *mut u8) -> bool {
        let room = self.room.get();
        if room == 0 {
            return false;
        }
        // SAFETY: block — promised by the caller.
        unsafe { block.cast::<*mut u8>().write(self.first.get()) };
        self.first.set(block);
        self.room.set(room - 1);
        true
    }
}

/// Returns the calling thread's row. A goroutine calls this only in a forked child, where `host`
/// cannot leave the goroutine: it gets the row of the thread that carried it.
pub fn row() -> *const Magazine {
    if current::is_goroutine() { current::row() } else { ROW.get() }
}

/// Sets the calling thread's row, also for the goroutines that the thread carries.
///
/// # Safety
/// - **alive**: the row is neither moved nor freed until another row is set, and only this thread
///   and the goroutines that it carries use the row.
pub unsafe fn set_row(row: &Row) {
    ROW.set(row.as_ptr());
    // SAFETY: alive — promised by the caller.
    unsafe { current::set_row(row.as_ptr()) };
}

/// Sets the calling thread's row back to [`EMPTY_ROW`].
///
/// # Safety
/// - **spilled**: the blocks of the old row have been taken out, or have another owner.
pub unsafe fn clear_row() {
    // SAFETY: alive — the row is a static that is never written.
    unsafe { set_row(&EMPTY_ROW.0) };
}

/// Returns whether `row` is [`EMPTY_ROW`].
pub fn is_empty_row(row: *const Magazine) -> bool {
    ptr::eq(row, EMPTY_ROW.0.as_ptr())
}

/// Returns the calling thread's magazine for a size class.
///
/// # Safety
/// - **size**: below [`CLASS_COUNT`].
#[inline(always)]
unsafe fn magazine(size: usize) -> &'static Magazine {
    // SAFETY: size — promised by the caller; a row has `CLASS_COUNT` magazines.
    let magazine = unsafe { ROW.get().add(size) };
    // SAFETY: alive — promised to `set_row`. The caller does not keep the reference.
    unsafe { &*magazine }
}

/// Takes a free block of size class `size` from the row of the thread that runs the caller. Returns
/// null if there is none.
///
/// # Safety
/// - **size**: below [`CLASS_COUNT`].
#[inline(always)]
pub unsafe fn take(size: usize) -> *mut u8 {
    if current::is_goroutine() {
        // SAFETY: goroutine — checked above; size — promised by the caller.
        return unsafe { current::take(size) };
    }
    // SAFETY: size — promised by the caller.
    let magazine = unsafe { magazine(size) };
    // SAFETY: blocks — only this thread and its goroutines use the row, as promised to `set_row`.
    unsafe { magazine.take() }
}

/// Puts a block of size class `size` into the row of the thread that runs the caller. Returns
/// `false` if there is no room.
///
/// # Safety
/// - **size**: below [`CLASS_COUNT`].
/// - **block**: a free block of that size class, which no other code uses.
#[inline(always)]
pub unsafe fn give(size: usize, block: *mut u8) -> bool {
    if current::is_goroutine() {
        // SAFETY: goroutine — checked above; size, block — promised by the caller.
        return unsafe { current::give(size, block) };
    }
    // SAFETY: size — promised by the caller.
    let magazine = unsafe { magazine(size) };
    // SAFETY: block — promised by the caller.
    unsafe { magazine.give(block) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_without_a_row_has_no_blocks_and_no_room() {
        let mut block = [0usize; 2];
        for size in [0, CLASS_COUNT - 1] {
            // SAFETY: size — below `CLASS_COUNT`.
            assert!(unsafe { take(size) }.is_null());
            // SAFETY: size — below `CLASS_COUNT`; block — a local of this test.
            assert!(!unsafe { give(size, block.as_mut_ptr().cast()) });
        }
        assert!(is_empty_row(row()));
    }

    #[test]
    fn a_magazine_returns_the_last_block_first_and_counts_its_room() {
        let mut blocks = [[0usize; 2]; 3];
        let magazine = Magazine::new(2);
        let [a, b, c] = blocks.each_mut().map(|block| block.as_mut_ptr().cast::<u8>());
        // SAFETY: block — a local of this test.
        assert_eq!([a, b, c].map(|block| unsafe { magazine.give(block) }), [true, true, false]);
        assert_eq!(magazine.room(), 0);
        // SAFETY: blocks — locals of this test.
        assert_eq!([(); 3].map(|()| unsafe { magazine.take() }), [b, a, ptr::null_mut()]);
        assert_eq!(magazine.room(), 2);
    }
}
