//! The checks of debug builds: where the allocator is called, writes past the end of a block,
//! writes to a freed block, and blocks that are freed twice.
//!
//! ```text
//! in use   | value …            | canary |     rest      |
//! free     |  poison poison poison poison        | links |
//! ```
//!
//! In debug builds, the links of free blocks are at their ends, which no value reaches. So a write
//! to a freed block does not damage the lists, and is detected.
//!
//! A failed check never returns to the program: it ends the process.

use crate::classes::Class;
use gosched_fiber::fatal;
use gosched_fiber::hook::Hook;
use std::alloc::Layout;
use std::ptr::NonNull;

/// Size of the canary behind a value, in bytes.
const CANARY: usize = 16;

/// The value of every byte of a free block, except its links.
const POISON: u8 = 0xdf;

/// Size of the links at the end of a free block, in bytes.
const LINKS: usize = 16;

/// Returns the address of a free block's links.
pub(crate) fn links_of(block: *mut u8, class: Class) -> *mut u8 {
    block.wrapping_add(class.size() - LINKS)
}

/// Returns the block whose links are at `links`, or null for null.
pub(crate) fn block_of(links: *mut u8, class: Class) -> *mut u8 {
    if links.is_null() { links } else { links.wrapping_sub(class.size() - LINKS) }
}

/// The function passed to [`set_check`].
static CHECK: Hook<fn()> = Hook::new();

/// Sets a function that is called on each entry into the allocator, in builds with debug
/// assertions.
pub fn set_check(check: &'static fn()) {
    CHECK.set(check);
}

/// Calls the function passed to [`set_check`].
pub(crate) fn run_entry_check() {
    if let Some(check) = CHECK.get() {
        check();
    }
}

/// Returns the layout of a value with its canary and room for links, or `None` if it is too large.
pub(crate) fn padded(layout: Layout) -> Option<Layout> {
    let size = layout.size().checked_add(CANARY + LINKS)?;
    Layout::from_size_align(size, layout.align()).ok()
}

fn canary(value: *mut u8) -> [u8; CANARY] {
    let word = (value.addr() as u64).rotate_left(23) ^ 0xc0de_feed_5ca1_ab1e;
    u128::from(word).wrapping_mul(0x0001_0000_0000_0000_0001).to_ne_bytes()
}

/// Writes the canary behind a value.
///
/// # Safety
/// - **value**: null, or valid for writes of `size` bytes and a canary.
pub(crate) unsafe fn write_canary(value: *mut u8, size: usize) {
    if !value.is_null() {
        // SAFETY: value — promised by the caller.
        let place = unsafe { value.add(size) };
        // SAFETY: as above.
        unsafe { place.cast::<[u8; CANARY]>().write_unaligned(canary(value)) };
    }
}

/// Checks the canary behind a value that is about to be freed or moved.
///
/// # Safety
/// - **value**: not null, and [`write_canary`] was called for it with this size.
pub(crate) unsafe fn check_canary(value: *mut u8, size: usize) {
    // SAFETY: value — promised by the caller.
    let place = unsafe { value.add(size) };
    // SAFETY: as above.
    let found = unsafe { place.cast::<[u8; CANARY]>().read_unaligned() };
    if found == [POISON; CANARY] {
        fatal::throw(format_args!("{value:?} ({size} bytes) was freed twice"));
    }
    if found != canary(value) {
        fatal::throw(format_args!(
            "{value:?}: written past the end of its {size} bytes, or freed with another size"
        ));
    }
}

/// Fills a block that is about to be free.
///
/// # Safety
/// - **block**: a block of `class`, which no code uses.
pub(crate) unsafe fn poison(block: *mut u8, class: Class) {
    // SAFETY: block — promised by the caller.
    unsafe { block.write_bytes(POISON, class.size()) };
}

/// Fills a block that comes fresh from a span.
pub(crate) fn fresh(block: NonNull<u8>, class: Class) {
    // SAFETY: block — the caller has just taken it from a span.
    unsafe { poison(block.as_ptr(), class) };
}

/// Checks that a free block, which is about to be used, was not written to.
///
/// # Safety
/// - **block**: null, or a block of `class`, which no code uses.
pub(crate) unsafe fn check_poison(block: *mut u8, class: Class) {
    if block.is_null() {
        return;
    }
    // SAFETY: block — promised by the caller.
    let bytes = unsafe { std::slice::from_raw_parts(block, class.size()) };
    let poisoned = &bytes[..class.size() - LINKS];
    if let Some(at) = poisoned.iter().position(|&byte| byte != POISON) {
        let size = class.size();
        fatal::throw(format_args!(
            "{block:?}: byte {at} of this block of {size} bytes was written after the block was freed"
        ));
    }
}
