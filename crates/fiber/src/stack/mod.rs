//! Memory a goroutine runs on: slabs, guards, reuse, give-back.
//!
//! Address space is reserved in slabs and costs nothing; the kernel commits a page when it is first
//! touched, and [`size`] shows how one page carries a whole parked goroutine. A stack that is put
//! away keeps its identity and first pages for the next owner. How: book 03.

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

/// The process's stacks.
pub(crate) static DEPOT: Depot = Depot::new();

/// A stack with its guard and the place of its owner's identity; back to the depot when dropped.
///
/// The handle says nothing of what runs there: whoever switches to the stack keeps the handle until
/// nothing does.
pub struct Stack {
    depot: &'static Depot,
    slab: &'static Slab,
    index: u32,
}

impl Stack {
    /// A stack from the depot.
    ///
    /// # Errors
    /// The system has no memory, no address space, or no guard for one more.
    pub fn new(size: Size) -> Result<Stack, StackError> {
        DEPOT.take(size)
    }

    /// Where frames start: they grow down from here.
    pub fn top(&self) -> *mut u8 {
        self.slab.usable(self.index).end as *mut u8
    }

    /// Addresses that frames may use.
    pub fn usable(&self) -> Range<usize> {
        self.slab.usable(self.index)
    }

    /// Addresses below them that fault.
    pub fn guard(&self) -> Range<usize> {
        self.slab.guard(self.index)
    }

    /// Bytes of address space.
    pub fn spacing(&self) -> usize {
        self.slab.spacing()
    }

    /// Says whose stack it is: what a report of an overflow names.
    pub fn set_owner(&self, owner: u64) {
        self.slab.slot(self.index).owner.store(owner, Ordering::Relaxed);
    }

    /// Where the owner's thread pointer points; whether there is an identity yet, says
    /// [`Stack::has_identity`].
    pub(crate) fn thread_pointer(&self) -> usize {
        self.slab.thread_pointer(self.index)
    }

    /// Whether an identity was built here, by this owner or an earlier one.
    pub fn has_identity(&self) -> bool {
        self.slab.slot(self.index).identity.load(Ordering::Relaxed) == 1
    }

    pub(crate) fn set_has_identity(&self, built: bool) {
        self.slab.slot(self.index).identity.store(u32::from(built), Ordering::Relaxed);
    }

    /// Unique among all stacks there are.
    pub(crate) fn number(&self) -> u32 {
        self.slab.number.load(Ordering::Relaxed) * MAX_SLOTS as u32 + self.index
    }
}

impl Stack {
    /// What may be given back when it is put away: all that lies beyond the first pages, or beyond
    /// the guard where no identity has to be kept.
    fn discardable_range(&self) -> linux::Range {
        if self.has_identity() {
            self.slab.beyond_first_pages(self.index)
        } else {
            self.slab.beyond_guard(self.index)
        }
    }

    /// Gives back what was touched beyond the first pages. Nothing may run on it.
    fn discard_unused_pages(&self) {
        // SAFETY: ours, unused — the handle is the only one, and its owner says so.
        unsafe { linux::discard(&[self.discardable_range()]) };
    }

    /// Zeroes the place of the identity, where the system would not.
    fn zero_identity(&self) {
        let top = self.top() as usize;
        let bytes = self.guard().start + self.spacing() - top;
        // SAFETY: ours, unused — a resting stack, from its frames' end to its own.
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

/// The largest [`Stack::number`] there can be.
pub(crate) const MAX_NUMBER: usize = MAX_SLOTS * slab::MAX_SLABS;

/// What a look-up by address tells.
#[derive(Clone, Debug)]
pub(crate) struct StackInfo {
    pub(crate) owner: u64,
    pub(crate) guard: Range<usize>,
    pub(crate) usable: Range<usize>,
    pub(crate) thread_pointer: usize,
}

/// Gives back all memory of stacks that have rested for `unused` or longer, and the address space
/// of slabs left without any other. Returns how many stacks it was. Stacks that the calling thread
/// keeps for its routines rest from now on.
///
/// Frees memory with the system's allocator: not to be called with preemption off.
pub fn trim(unused: Duration) -> usize {
    crate::routine::flush_stack_cache();
    DEPOT.trim(unused, crate::identity::destroy)
}

/// Whose stack an address belongs to ([`Stack::set_owner`]). As [`usable_range`].
pub fn owner(address: usize) -> Option<u64> {
    DEPOT.find(address).map(|found| found.owner)
}

/// What can be used of the stack that an address belongs to. Takes no lock: any thread may ask, in a signal
/// handler too. The stack may be another's by the time this returns.
pub fn usable_range(address: usize) -> Option<Range<usize>> {
    DEPOT.find(address).map(|found| found.usable)
}

/// Finds the stacks of many addresses, quicker than [`usable_range`] where one is near the last.
#[derive(Debug, Default)]
pub struct Finder {
    /// The number of the slab that had the last one.
    near: u32,
}

impl Finder {
    /// As [`usable_range`], and the thread pointer of the identity that belongs to the stack.
    pub fn find(&mut self, address: usize) -> Option<(Range<usize>, usize)> {
        let found = DEPOT.find_near(&mut self.near, address);
        found.map(|found| (found.usable, found.thread_pointer))
    }
}

/// How much the stacks of this process take.
pub fn stats() -> Counts {
    DEPOT.counts()
}

/// Reads, once and early, what later calls need from files and the environment.
pub(crate) fn init() {
    linux::uses_mprotect_guards();
    linux::mapping_limit();
}
