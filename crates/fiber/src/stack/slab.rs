//! A slab: a row of equal slots in one reservation, with a table of the state of each slot.
//!
//! Every field is an atomic, because the fault handler may look up a slab at any time. Fields of
//! the slab change under the depot's lock; a slot's owner and its mark for an identity are changed
//! by the owner of the stack, without the lock. The record of a slab is never freed (records are
//! numbered and reused), so references to it are `'static`. `base` is 0 while the record describes
//! no slab.
//!
//! A look-up may read a record while it changes. Writer: 1. makes `generation` odd; 2. changes the
//! fields; 3. makes `generation` even. Reader: 1. reads `generation`, which must be even; 2. reads
//! the fields; 3. reads `generation` again, which must be unchanged. If a check fails, the reader
//! skips the record. That is correct because the slab of a stack in use does not change, so the
//! record does not describe the slab that the reader looks for.
//!
//! This module never chooses the slot of a stack: the depot does.

use super::linux::{self, Errno};
use super::size::{GUARD, PAGE, Size};
use super::{Mappings, StackInfo};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Largest number of slots in a slab. Together with [`MAX_SLABS`], it bounds the numbers of stacks.
pub(super) const MAX_SLOTS: usize = 4096;

/// Largest number of slabs: 16 TiB of default stacks in slabs of [`MAX_SLOTS`] slots.
pub(super) const MAX_SLABS: usize = 16384;

/// Address space of a class's first slab, in bytes. Each further slab is twice as large, up to
/// [`MAX_SLAB_BYTES`] and [`MAX_SLOTS`].
pub(super) const FIRST_SLAB_BYTES: usize = 16 << 20;
pub(super) const MAX_SLAB_BYTES: usize = 2 << 30;

/// Number of slots made usable at a time. One call installs the guards of all of them.
pub(super) const SLOTS_PER_CARVE: u32 = 64;

/// Number of pages at the top that a slot at rest keeps: the page shared by the identity and the
/// first frames, and the page of frames below it.
const KEEP: usize = 2;

/// State of one slot: 16 bytes per stack.
#[derive(Debug)]
pub(super) struct Slot {
    /// The owner's id while the stack is in use. The time when the stack was put away, in
    /// milliseconds, while it rests.
    pub(super) owner: AtomicU64,
    /// Next slot of the chain that the slot rests in, plus one; 0 ends the chain. A slot index in
    /// the chain of a slab, a stack number in the chain of a class.
    pub(super) next: AtomicU32,
    /// 1 once an identity has been built in the slot, otherwise 0.
    pub(super) identity: AtomicU32,
}

/// Record of a slab; see the top of this file.
#[derive(Debug)]
pub(super) struct Slab {
    pub(super) number: AtomicU32,
    /// Odd while [`Slab::change`] runs.
    generation: AtomicU32,
    base: AtomicUsize,
    spacing: AtomicUsize,
    identity_offset: AtomicUsize,
    top_offset: AtomicUsize,
    pub(super) class: AtomicU32,
    pub(super) slots: AtomicU32,
    /// Number of slots made usable so far. The rest is reserved address space that cannot be
    /// accessed.
    pub(super) carved: AtomicU32,
    /// First slot of the chain of slots that have neither identity nor pages: its index plus one,
    /// or 0.
    pub(super) bare: AtomicU32,
    /// Length of that chain.
    pub(super) bare_len: AtomicU32,
    /// Next slab of its class that has bare slots: its number plus one, or 0.
    pub(super) next: AtomicU32,
    /// Number of mappings that the guards of this slab take.
    mappings: AtomicUsize,
    table: [Slot; MAX_SLOTS],
}

impl Slab {
    /// Creates a record of zeros, which describes no slab yet.
    pub(super) fn record() -> Result<&'static Slab, Errno> {
        let at = linux::map_forever(size_of::<Slab>())?;
        // SAFETY: zeroed, page-aligned, never unmapped; atomics of zeros are valid.
        Ok(unsafe { &*at.cast::<Slab>() })
    }

    /// Reserves address space for `wanted` slots of `size` and makes the record describe it.
    /// Reserves fewer slots if the system has no contiguous address space for all of them.
    pub(super) fn reserve(&self, size: Size, wanted: u32) -> Result<(), Errno> {
        let mut slots = wanted;
        let base = loop {
            match linux::reserve(slots as usize * size.spacing()) {
                Ok(base) => break base,
                Err(_) if slots > 1 => slots /= 2,
                Err(errno) => return Err(errno),
            }
        };
        self.change(|| {
            self.base.store(base, Ordering::Relaxed);
            self.spacing.store(size.spacing(), Ordering::Relaxed);
            self.identity_offset.store(size.identity_offset(), Ordering::Relaxed);
            self.top_offset.store(size.top_offset(), Ordering::Relaxed);
            self.class.store(size.class() as u32, Ordering::Relaxed);
            self.slots.store(slots, Ordering::Relaxed);
            self.carved.store(0, Ordering::Relaxed);
            self.bare.store(0, Ordering::Relaxed);
            self.bare_len.store(0, Ordering::Relaxed);
            self.mappings.store(0, Ordering::Relaxed);
        });
        Ok(())
    }

    /// Changes fields in the steps 1 to 3 of a writer; see the top of this file.
    fn change(&self, fields: impl FnOnce()) {
        self.generation.fetch_add(1, Ordering::Relaxed);
        // PAIR slab-generation: a reader that sees a new field also sees the odd generation.
        fence(Ordering::Release);
        fields();
        // PAIR slab-generation: a reader that sees the even generation also sees the new fields.
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Releases the whole reservation; the record then describes no slab. Returns the number of
    /// mappings that this frees. Returns `None` if the system refuses; the slab is then unchanged.
    ///
    /// # Safety
    /// - **unused**: every carved slot is in the chain of bare slots.
    pub(super) unsafe fn release(&self) -> Option<usize> {
        let bytes = self.spacing() * self.slots.load(Ordering::Relaxed) as usize;
        let base = self.base.load(Ordering::Relaxed);
        // SAFETY: unused — promised by the caller.
        if !unsafe { linux::release((base, bytes)) } {
            return None;
        }
        self.change(|| self.base.store(0, Ordering::Relaxed));
        Some(self.mappings.swap(0, Ordering::Relaxed))
    }

    /// Makes the next slots usable, with their guards in place, and adds them to the chain of bare
    /// slots. Carves at most [`SLOTS_PER_CARVE`] slots, fewer if memory is short.
    pub(super) fn carve(&self, mappings: &mut Mappings) -> Result<(), CarveError> {
        let first = self.carved.load(Ordering::Relaxed);
        let mut count = SLOTS_PER_CARVE.min(self.slots.load(Ordering::Relaxed) - first);
        let taken = loop {
            match self.carve_slots(first, count, mappings) {
                Ok(taken) => break taken,
                Err(_) if count > 1 => count /= 4,
                Err(why) => return Err(why),
            }
            count = count.max(1);
        };
        mappings.ours += taken;
        self.mappings.fetch_add(taken, Ordering::Relaxed);
        self.carved.store(first + count, Ordering::Relaxed);
        for index in (first..first + count).rev() {
            self.push_bare(index);
        }
        Ok(())
    }

    /// Makes `count` slots usable, beginning with slot `first`. Returns the number of mappings that
    /// their guards take.
    fn carve_slots(
        &self,
        first: u32,
        count: u32,
        mappings: &mut Mappings,
    ) -> Result<usize, CarveError> {
        let spacing = self.spacing();
        let whole = (self.low(first), spacing * count as usize);
        let mut guards = [(0, 0); SLOTS_PER_CARVE as usize];
        let guards = &mut guards[..count as usize];
        for (guard, index) in guards.iter_mut().zip(first..) {
            *guard = (self.low(index), GUARD);
        }
        if !linux::uses_mprotect_guards() {
            // SAFETY: ours — `whole` is the next part of this slab's reservation.
            unsafe { linux::commit(whole) }.map_err(|errno| CarveError::Commit(whole.1, errno))?;
            // SAFETY: ours, unused — committed above, not yet handed out.
            let guarded = unsafe { linux::guard(guards) };
            if guarded.is_ok() {
                return Ok(0);
            }
            // SAFETY: ours, unused — as above.
            let undone = unsafe { linux::decommit(whole) };
            // Running out of memory is final. Any other error means an older kernel or locked
            // memory: then guards are made by mapping, provided that the commit was undone.
            let refused = guarded.err().filter(|&errno| errno == libc::ENOMEM).or(undone.err());
            if let Some(errno) = refused {
                return Err(CarveError::Guard(GUARD * guards.len(), errno));
            }
        }
        // Each guard stays inaccessible and so splits the mapping: two mappings per slot.
        let taken = 2 * count as usize;
        if !mappings.allow(taken) {
            return Err(CarveError::Mappings);
        }
        for &(low, _) in guards.iter() {
            let usable = (low + GUARD, spacing - GUARD);
            // SAFETY: ours — `usable` is in the next part of this slab's reservation.
            if let Err(errno) = unsafe { linux::commit(usable) } {
                // If this fails, some slots stay writable, but no guard does. These slots are
                // carved again later.
                // SAFETY: ours, unused — not yet handed out.
                let _ = unsafe { linux::decommit(whole) };
                return Err(CarveError::Commit(spacing - GUARD, errno));
            }
        }
        Ok(taken)
    }

    pub(super) fn push_bare(&self, index: u32) {
        let slot = self.slot(index);
        slot.next.store(self.bare.load(Ordering::Relaxed), Ordering::Relaxed);
        self.bare.store(index + 1, Ordering::Relaxed);
        self.bare_len.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn pop_bare(&self) -> Option<u32> {
        let index = self.bare.load(Ordering::Relaxed).checked_sub(1)?;
        let next = self.slot(index).next.load(Ordering::Relaxed);
        self.bare.store(next, Ordering::Relaxed);
        self.bare_len.fetch_sub(1, Ordering::Relaxed);
        Some(index)
    }

    /// Returns whether all carved slots are bare, so that the slab can be released as a whole.
    pub(super) fn is_bare(&self) -> bool {
        self.bare_len.load(Ordering::Relaxed) == self.carved.load(Ordering::Relaxed)
    }

    pub(super) fn has_bare(&self) -> bool {
        self.bare.load(Ordering::Relaxed) != 0
    }

    pub(super) fn is_carved(&self) -> bool {
        self.carved.load(Ordering::Relaxed) == self.slots.load(Ordering::Relaxed)
    }

    pub(super) fn slot(&self, index: u32) -> &Slot {
        &self.table[index as usize]
    }

    pub(super) fn spacing(&self) -> usize {
        self.spacing.load(Ordering::Relaxed)
    }

    pub(super) fn is_vacant(&self) -> bool {
        self.base.load(Ordering::Relaxed) == 0
    }

    fn low(&self, index: u32) -> usize {
        self.base.load(Ordering::Relaxed) + self.spacing() * index as usize
    }

    pub(super) fn guard(&self, index: u32) -> Range<usize> {
        let low = self.low(index);
        low..low + GUARD
    }

    pub(super) fn usable(&self, index: u32) -> Range<usize> {
        let low = self.low(index);
        low + GUARD..low + self.top_offset.load(Ordering::Relaxed)
    }

    pub(super) fn thread_pointer(&self, index: u32) -> usize {
        self.low(index) + self.identity_offset.load(Ordering::Relaxed)
    }

    /// Returns the usable range without the pages that a slot at rest keeps.
    pub(super) fn beyond_first_pages(&self, index: u32) -> linux::Range {
        let usable = self.usable(index);
        let keep = (usable.end - 1) / PAGE * PAGE - (KEEP - 1) * PAGE;
        (usable.start, keep.saturating_sub(usable.start))
    }

    /// Returns everything that can be touched: frames and identity.
    pub(super) fn beyond_guard(&self, index: u32) -> linux::Range {
        (self.low(index) + GUARD, self.spacing() - GUARD)
    }

    /// Returns the stack that `address` belongs to, guard included. May be called at any time, also
    /// by the fault handler.
    pub(super) fn find(&self, address: usize) -> Option<StackInfo> {
        // PAIR slab-generation: the fields read below are at least as new as this generation.
        let generation = self.generation.load(Ordering::Acquire);
        let base = self.base.load(Ordering::Relaxed);
        let index = address.checked_sub(base)? / self.spacing().max(1);
        if base == 0 || index >= self.carved.load(Ordering::Relaxed) as usize {
            return None;
        }
        let index = index as u32;
        let found = StackInfo {
            owner: self.slot(index).owner.load(Ordering::Relaxed),
            guard: self.guard(index),
            usable: self.usable(index),
            thread_pointer: self.thread_pointer(index),
        };
        // PAIR slab-generation: the fields read above are no newer than the generation read next.
        fence(Ordering::Acquire);
        let same = self.generation.load(Ordering::Relaxed) == generation;
        (same && generation.is_multiple_of(2)).then_some(found)
    }
}

/// The reason why no slot could be carved.
#[derive(Clone, Copy, Debug)]
pub(super) enum CarveError {
    Commit(usize, Errno),
    Guard(usize, Errno),
    Mappings,
}
