//! What a debug build checks: where the allocator is entered, that nobody writes past the end of a block,
//! and that nobody writes to one that was freed, or frees it twice.
//!
//! ```text
//! in use   | value …            | canary |     rest      |
//! free     |  poison poison poison poison        | links |
//! ```
//!
//! So lists link blocks by their ends here, which no value reaches: what is written to a block after it
//! was freed does not harm them, and is found.

use crate::classes::Class;
use gosched_fiber::fatal;
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Bytes behind a value.
const CANARY: usize = 16;

/// In every byte of a free block, but for its links.
const POISON: u8 = 0xdf;

/// The last bytes of a free block are its lists'.
const LINKS: usize = 16;

/// Where a free block's links are.
pub(crate) fn links_of(block: *mut u8, class: Class) -> *mut u8 {
    block.wrapping_add(class.size() - LINKS)
}

/// The block whose links are there; null for null.
pub(crate) fn block_of(links: *mut u8, class: Class) -> *mut u8 {
    if links.is_null() { links } else { links.wrapping_sub(class.size() - LINKS) }
}

/// Set by a runtime that has rules.
static CHECK: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// What is called, with debug assertions, each time the allocator is entered.
pub fn set_check(check: fn()) {
    CHECK.store(check as *mut (), Ordering::Relaxed);
}

/// The allocator is entered.
pub(crate) fn run_entry_check() {
    let check = CHECK.load(Ordering::Relaxed);
    if !check.is_null() {
        // SAFETY: `set_check` stored a function of this type.
        let check = unsafe { std::mem::transmute::<*mut (), fn()>(check) };
        check();
    }
}

/// The layout of a value with its canary and room for links; `None`: there is no such thing.
pub(crate) fn padded(layout: Layout) -> Option<Layout> {
    let size = layout.size().checked_add(CANARY + LINKS)?;
    Layout::from_size_align(size, layout.align()).ok()
}

fn canary(value: *mut u8) -> [u8; CANARY] {
    let word = (value.addr() as u64).rotate_left(23) ^ 0xc0de_feed_5ca1_ab1e;
    u128::from(word).wrapping_mul(0x0001_0000_0000_0000_0001).to_ne_bytes()
}

/// Puts the canary behind a value.
///
/// # Safety
/// - **value**: null, or so large and a canary more.
pub(crate) unsafe fn write_canary(value: *mut u8, size: usize) {
    if !value.is_null() {
        // SAFETY: value — promised by the caller.
        let place = unsafe { value.add(size) };
        // SAFETY: as above.
        unsafe { place.cast::<[u8; CANARY]>().write_unaligned(canary(value)) };
    }
}

/// Looks at the canary behind a value that is about to be freed or moved.
///
/// # Safety
/// - **value**: as for [`write_canary`], which was called.
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

/// Fills a block that is to be free.
///
/// # Safety
/// - **block**: of that class, and nobody uses it.
pub(crate) unsafe fn poison(block: *mut u8, class: Class) {
    // SAFETY: block — promised by the caller.
    unsafe { block.write_bytes(POISON, class.size()) };
}

/// A block that was never used.
pub(crate) fn fresh(block: NonNull<u8>, class: Class) {
    // SAFETY: block — the caller has just taken it from a span.
    unsafe { poison(block.as_ptr(), class) };
}

/// Looks at a block that is about to be used.
///
/// # Safety
/// - **block**: null, or of that class, and nobody uses it.
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
            "{block:?}: byte {at} of a block of {size} was written after it was freed"
        ));
    }
}
