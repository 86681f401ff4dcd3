//! Where a thread keeps free blocks of memory, so that goroutines on it find them too.
//!
//! A magazine is a stack of blocks of one size, linked through their first words. A thread has one for
//! each size, in a row. The row belongs to the *thread*: its own code finds it in a thread-local, a
//! goroutine finds that of the thread that carries it through the carrier. Only one of them runs at a
//! time, and a goroutine is never moved in the middle of [`take`] or [`give`] (see `arch`), so nothing
//! here is atomic.
//!
//! A thread that was given no row has [`EMPTY_ROW`]: there is nothing in it, and no room.

use crate::thread::current;
use std::cell::Cell;
use std::ptr;

/// How many sizes there are.
pub const CLASS_COUNT: usize = 36;

/// Free blocks of one size. The layout is used in assembly.
#[repr(C)]
#[derive(Debug)]
pub struct Magazine {
    /// The first block, whose first word is the address of the next.
    first: Cell<*mut u8>,
    /// How many more may be put here.
    room: Cell<u32>,
}

// These are used in assembly.
const _: () = assert!(std::mem::offset_of!(Magazine, first) == 0);
const _: () = assert!(std::mem::offset_of!(Magazine, room) == 8);
const _: () = assert!(size_of::<Magazine>() == 16);

/// One magazine for each size.
pub type Row = [Magazine; CLASS_COUNT];

/// The row of a thread that has none.
pub static EMPTY_ROW: EmptyRow = EmptyRow([const { Magazine::new(0) }; CLASS_COUNT]);

/// A row that nobody writes to: it is empty and has no room.
#[derive(Debug)]
pub struct EmptyRow(Row);

// SAFETY: never written, as above.
unsafe impl Sync for EmptyRow {}

thread_local! {
    /// The calling thread's row. A goroutine's own is never used.
    static ROW: Cell<*const Magazine> = const { Cell::new(EMPTY_ROW.0.as_ptr()) };
}

impl Magazine {
    /// An empty one.
    pub const fn new(room: u32) -> Magazine {
        Magazine { first: Cell::new(ptr::null_mut()), room: Cell::new(room) }
    }

    /// How many more may be put here.
    pub fn room(&self) -> u32 {
        self.room.get()
    }

    /// Takes out all blocks: the first one, which leads to the others.
    pub fn take_all(&self, room: u32) -> *mut u8 {
        self.room.set(room);
        self.first.replace(ptr::null_mut())
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.first.get().is_null()
    }

    /// Puts `first`, and all it leads to, into an empty magazine that then has `room`.
    pub fn fill(&self, first: *mut u8, room: u32) {
        debug_assert!(self.is_empty(), "what was in it would be lost");
        self.first.set(first);
        self.room.set(room);
    }

    /// The last block that was put here, or null.
    ///
    /// # Safety
    /// - **blocks**: what is in the magazine are blocks that nobody else uses.
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

    /// Puts `block` here. False if there is no room.
    ///
    /// # Safety
    /// - **block**: it has room for a pointer, and nobody else uses it.
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

/// The calling thread's row. A goroutine that asks has no thread to ask for it, since it forked: it goes
/// on with the row of the thread that carried it.
pub fn row() -> *const Magazine {
    if current::is_goroutine() { current::row() } else { ROW.get() }
}

/// Gives the calling thread a row, or takes it away ([`EMPTY_ROW`]).
///
/// # Safety
/// - **alive**: the row stays where it is until another one is set; only this thread, and goroutines
///   that it carries, use it.
pub unsafe fn set_row(row: &Row) {
    ROW.set(row.as_ptr());
    // SAFETY: alive — promised by the caller.
    unsafe { current::set_row(row.as_ptr()) };
}

/// As [`set_row`], back to the row of a thread that has none.
///
/// # Safety
/// - **spilled**: what the row keeps has been taken out, or is somebody else's.
pub unsafe fn clear_row() {
    // SAFETY: alive — a static; nobody writes to it.
    unsafe { set_row(&EMPTY_ROW.0) };
}

/// Whether `row` is that of a thread that has none.
pub fn is_empty_row(row: *const Magazine) -> bool {
    ptr::eq(row, EMPTY_ROW.0.as_ptr())
}

/// The calling thread's magazine for a size.
///
/// # Safety
/// - **size**: below [`CLASS_COUNT`].
#[inline(always)]
unsafe fn magazine(size: usize) -> &'static Magazine {
    // SAFETY: size — promised by the caller; a row has that many.
    let magazine = unsafe { ROW.get().add(size) };
    // SAFETY: alive — whoever set the row promised so. The caller does not keep it.
    unsafe { &*magazine }
}

/// A free block of size number `size` from the row of the thread that the caller runs on; null if there
/// is none.
///
/// # Safety
/// - **size**: below [`CLASS_COUNT`].
#[inline(always)]
pub unsafe fn take(size: usize) -> *mut u8 {
    if current::is_goroutine() {
        // SAFETY: goroutine — it is; size — promised by the caller.
        return unsafe { current::take(size) };
    }
    // SAFETY: size — promised by the caller.
    let magazine = unsafe { magazine(size) };
    // SAFETY: blocks — whoever set the row promised so.
    unsafe { magazine.take() }
}

/// Puts a block of size number `size` into the row of the thread that the caller runs on. False if
/// there is no room.
///
/// # Safety
/// - **size**: below [`CLASS_COUNT`].
/// - **block**: of that size, from a row, and nobody else uses it.
#[inline(always)]
pub unsafe fn give(size: usize, block: *mut u8) -> bool {
    if current::is_goroutine() {
        // SAFETY: goroutine — it is; size, block — promised by the caller.
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
    fn a_thread_without_a_row_has_nothing_and_no_room() {
        let mut block = [0usize; 2];
        for size in [0, CLASS_COUNT - 1] {
            // SAFETY: size — below SIZES.
            assert!(unsafe { take(size) }.is_null());
            // SAFETY: size — below SIZES; block — ours.
            assert!(!unsafe { give(size, block.as_mut_ptr().cast()) });
        }
        assert!(is_empty_row(row()));
    }

    #[test]
    fn what_was_put_last_comes_first_and_room_is_counted() {
        let mut blocks = [[0usize; 2]; 3];
        let magazine = Magazine::new(2);
        let [a, b, c] = blocks.each_mut().map(|block| block.as_mut_ptr().cast::<u8>());
        // SAFETY: block — ours.
        assert_eq!([a, b, c].map(|block| unsafe { magazine.give(block) }), [true, true, false]);
        assert_eq!(magazine.room(), 0);
        // SAFETY: blocks — ours.
        assert_eq!([(); 3].map(|()| unsafe { magazine.take() }), [b, a, ptr::null_mut()]);
        assert_eq!(magazine.room(), 2);
    }
}
