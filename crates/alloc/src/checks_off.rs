//! Stand-in for `checks` in builds without debug assertions: nothing is checked. The function
//! passed to `set_check` is never called.

use crate::classes::Class;
use std::alloc::Layout;
use std::ptr::NonNull;

/// Sets a function that is called on each entry into the allocator, in builds with debug
/// assertions. In this build the function is never called.
pub fn set_check(_check: &'static fn()) {}

#[inline(always)]
pub(crate) fn links_of(block: *mut u8, _class: Class) -> *mut u8 {
    block
}

#[inline(always)]
pub(crate) fn block_of(links: *mut u8, _class: Class) -> *mut u8 {
    links
}

#[inline(always)]
pub(crate) fn run_entry_check() {}

#[inline(always)]
pub(crate) fn padded(layout: Layout) -> Option<Layout> {
    Some(layout)
}

/// # Safety
/// - **value**: any pointer.
#[inline(always)]
pub(crate) unsafe fn write_canary(_value: *mut u8, _size: usize) {}

/// # Safety
/// - **value**: any pointer.
#[inline(always)]
pub(crate) unsafe fn check_canary(_value: *mut u8, _size: usize) {}

/// # Safety
/// - **block**: any pointer.
#[inline(always)]
pub(crate) unsafe fn poison(_block: *mut u8, _class: Class) {}

#[inline(always)]
pub(crate) fn fresh(_block: NonNull<u8>, _class: Class) {}

/// # Safety
/// - **block**: any pointer.
#[inline(always)]
pub(crate) unsafe fn check_poison(_block: *mut u8, _class: Class) {}
