//! Stacks of goroutines: slabs of address space, guards, reuse, and memory that goes back to the
//! system.
//!
//! Address space is reserved in slabs and costs no memory; the kernel commits a page when it is
//! first touched. [`size`] shows how one page holds all that a parked goroutine needs. A stack that
//! returns to the depot keeps its identity and its first pages (those at its top) for the next
//! owner. See the book's chapter `stacks`.
//!
//! A [`Stack`] never knows what runs on it: code that switches to a stack keeps the handle until
//! nothing runs there.

mod cache;
mod depot;
mod error;
mod size;
mod slab;

#[cfg(target_os = "linux")]
mod linux;

pub use cache::Cache;
pub use depot::Counts;
pub use error::StackError;
pub use size::{DEFAULT_SPACING, GUARD, MAX_USABLE, MIN_USABLE, Size};

use depot::Mappings;

pub(crate) use depot::Depot;
pub(crate) use size::{Extent, PAGE};

use slab::{MAX_SLOTS, Slab};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The stacks of this process.
pub(crate) static DEPOT: Depot = Depot::new();

/// A stack with its guard and the space for its owner's identity. Dropping it returns the stack to
/// the depot.
///
/// The handle does not track what runs on the stack. Code that switches to the stack must keep the
/// handle until nothing runs there.
pub struct Stack {
    depot: &'static Depot,
    slab: &'static Slab,
    index: u32,
}

impl Stack {
    /// Takes a stack of this size from the depot.
    ///
    /// # Errors
    /// The system has no memory, no address space or no guard for another stack.
    pub fn new(size: Size) -> Result<Stack, StackError> {
        DEPOT.take(size)
    }

    /// Returns the upper end of the stack, from which frames grow down.
    pub fn top(&self) -> *mut u8 {
        self.slab.usable(self.index).end as *mut u8
    }

    /// Returns the addresses that frames may use.
    pub fn usable(&self) -> Range<usize> {
        self.slab.usable(self.index)
    }

    /// Returns the addresses below [`Stack::usable`] that fault on access.
    pub fn guard(&self) -> Range<usize> {
        self.slab.guard(self.index)
    }

    /// Returns the size of the stack's slot, in bytes of address space.
    pub fn spacing(&self) -> usize {
        self.slab.spacing()
    }

    /// Records the id of the goroutine that owns the stack. Overflow reports name this goroutine.
    pub fn set_owner(&self, owner: u64) {
        self.slab.slot(self.index).owner.store(owner, Ordering::Relaxed);
    }

    /// Returns the thread pointer of the owner's identity. The identity itself exists only if
    /// [`Stack::has_identity`] returns `true`.
    pub(crate) fn thread_pointer(&self) -> usize {
        self.slab.thread_pointer(self.index)
    }

    /// Returns whether an identity has been built in this stack, by its owner or an earlier one.
    pub fn has_identity(&self) -> bool {
        self.slab.slot(self.index).identity.load(Ordering::Relaxed) == 1
    }

    pub(crate) fn set_has_identity(&self, built: bool) {
        self.slab.slot(self.index).identity.store(u32::from(built), Ordering::Relaxed);
    }

    /// Returns a number that is unique among all existing stacks.
    pub(crate) fn number(&self) -> u32 {
        self.slab.number.load(Ordering::Relaxed) * MAX_SLOTS as u32 + self.index
    }
}

impl Stack {
    /// Returns the memory that goes back to the system when the stack is put away: all pages
    /// between the guard and the first pages or, if there is no identity to keep, everything above
    /// the guard.
    fn discardable_range(&self) -> linux::Range {
        if self.has_identity() {
            self.slab.beyond_first_pages(self.index)
        } else {
            self.slab.beyond_guard(self.index)
        }
    }

    /// Gives the pages beyond the first pages back to the system. Nothing may run on the stack.
    fn discard_unused_pages(&self) {
        // SAFETY: ours, unused — this is the only handle, and its owner no longer runs on the
        // stack.
        unsafe { linux::discard(&[self.discardable_range()]) };
    }

    /// Zeroes the space of the identity. Needed if the system refuses to discard the pages.
    fn zero_identity(&self) {
        let top = self.top() as usize;
        let bytes = self.guard().start + self.spacing() - top;
        // SAFETY: ours, unused — nothing runs on the stack; the range ends where its slot ends.
        unsafe { std::ptr::write_bytes(top as *mut u8, 0, bytes) };
    }
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Stack");
        debug.field("number", &self.number()).field("usable", &self.usable());
        debug.field("has_identity", &self.has_identity()).finish()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let stack = Stack { depot: self.depot, slab: self.slab, index: self.index };
        self.depot.put(&mut [Some(stack)]);
    }
}

/// Upper bound of [`Stack::number`], exclusive.
pub(crate) const MAX_NUMBER: usize = MAX_SLOTS * slab::MAX_SLABS;

/// A stack that was found by an address in it.
#[derive(Clone, Debug)]
pub(crate) struct StackInfo {
    pub(crate) owner: u64,
    pub(crate) guard: Range<usize>,
    pub(crate) usable: Range<usize>,
    pub(crate) thread_pointer: usize,
}

/// Releases all memory of stacks that have been unused for at least `unused`, and the address space
/// of slabs that then hold no other stacks. Returns the number of stacks released. Stacks that the
/// calling thread caches for its routines go to the depot first, so they count as unused from now
/// on.
///
/// This frees memory with the system's allocator. Do not call it with preemption off.
pub fn trim(unused: Duration) -> usize {
    crate::routine::flush_stack_cache();
    DEPOT.trim(unused, crate::identity::destroy)
}

/// Returns the owner of the stack that `address` belongs to, as recorded by [`Stack::set_owner`].
/// Returns a meaningless number if the stack is not in use. Takes no lock, see [`usable_range`].
pub fn owner(address: usize) -> Option<u64> {
    DEPOT.find(address).map(|found| found.owner)
}

/// Returns the usable addresses of the stack that `address` belongs to, or `None` if it belongs to
/// no stack. An address in the guard or in the identity belongs to its stack. Takes no lock: any
/// thread may call this, also in a signal handler. The stack may have another owner when this
/// returns.
pub fn usable_range(address: usize) -> Option<Range<usize>> {
    DEPOT.find(address).map(|found| found.usable)
}

/// Finds the stacks of many addresses. Faster than [`usable_range`] for addresses that lie close
/// together.
#[derive(Debug, Default)]
pub struct Finder {
    /// Slab in which the last stack was found: its number plus one, or 0.
    near: u32,
}

impl Finder {
    /// Returns the same range as [`usable_range`], and the thread pointer of the stack's identity.
    pub fn find(&mut self, address: usize) -> Option<(Range<usize>, usize)> {
        let found = DEPOT.find_near(&mut self.near, address);
        found.map(|found| (found.usable, found.thread_pointer))
    }
}

/// Returns the number of stacks in this process and the address space that they take.
pub fn stats() -> Counts {
    DEPOT.counts()
}

/// Reads in advance what later calls need from files and from the environment.
pub(crate) fn init() {
    linux::uses_mprotect_guards();
    linux::mapping_limit();
}
