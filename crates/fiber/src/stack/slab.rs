//! A run of equal slots in one reservation, and the table of what each slot is doing.
//!
//! Every field is an atomic, so that the fault handler may look a slab up at any time; all but the
//! look-up happens under the depot's lock. A slab's record lives for ever (records are numbered and
//! used again), so a reference to it is `'static`. `base` is 0 while the record stands for nothing.
//!
//! A look-up may meet a record that is changing. Changer: 1. makes `generation` odd; 2. changes the
//! fields; 3. makes it even. Reader: 1. reads `generation`, even; 2. reads the fields; 3. reads
//! `generation` again, the same: else the record is not the one it looks for, since the slab of a
//! stack in use does not change.

use super::linux::{self, Errno};
use super::size::{GUARD, PAGE, Size};
use super::{Mappings, StackInfo};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Slots of the largest slab; with [`MAX_SLABS`] it bounds the number of a slot.
pub(super) const MAX_SLOTS: usize = 4096;

/// How many slabs there can be: 16 TiB of default stacks in slabs of [`MAX_SLAB_BYTES`].
pub(super) const MAX_SLABS: usize = 16384;

/// Address space of a class's first slab; each further one is twice as large, up to [`MAX_SLAB_BYTES`].
pub(super) const FIRST_SLAB_BYTES: usize = 16 << 20;
pub(super) const MAX_SLAB_BYTES: usize = 2 << 30;

/// Slots made usable at a time: guards are installed in one call for all of them.
pub(super) const SLOTS_PER_CARVE: u32 = 64;

/// Pages from the top that a resting slot keeps: the identity's, and one more of frames.
const KEEP: usize = 2;

/// One slot: 16 bytes for each stack.
#[derive(Debug)]
pub(super) struct Slot {
    /// Whose stack it is while it is out; when it was put away (milliseconds) while it rests.
    pub(super) owner: AtomicU64,
    /// Next slot of the chain it rests in, plus one; 0 ends the chain.
    pub(super) next: AtomicU32,
    /// 1 once an identity has been built in it.
    pub(super) identity: AtomicU32,
}

/// A record of the table: see the top of this file.
#[derive(Debug)]
pub(super) struct Slab {
    pub(super) number: AtomicU32,
    /// Odd while the fields below change.
    generation: AtomicU32,
    base: AtomicUsize,
    spacing: AtomicUsize,
    identity_offset: AtomicUsize,
    top_offset: AtomicUsize,
    pub(super) class: AtomicU32,
    pub(super) slots: AtomicU32,
    /// Slots handed to the depot so far; the rest is still a bare reservation.
    pub(super) carved: AtomicU32,
    /// Chain of slots without identity and pages, and its length.
    pub(super) bare: AtomicU32,
    pub(super) bare_len: AtomicU32,
    /// Next slab of its class that has bare slots, plus one.
    pub(super) next: AtomicU32,
    /// Mappings that guards of this slab take.
    mappings: AtomicUsize,
    table: [Slot; MAX_SLOTS],
}

impl Slab {
    /// A new record, all zero: it stands for nothing yet.
    pub(super) fn record() -> Result<&'static Slab, Errno> {
        let at = linux::map_forever(size_of::<Slab>())?;
        // SAFETY: zeroed, page-aligned, never unmapped; all-zero atomics are valid.
        Ok(unsafe { &*at.cast::<Slab>() })
    }

    /// Makes the record stand for a new reservation of slots of `size`: as many as `wanted`, or
    /// fewer where the system has no such room in one piece.
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

    /// Steps 1 to 3 of a change: see the top of this file.
    fn change(&self, fields: impl FnOnce()) {
        self.generation.fetch_add(1, Ordering::Relaxed);
        // PAIR slab-generation: a reader of a new field sees the odd generation.
        fence(Ordering::Release);
        fields();
        // PAIR slab-generation: a reader of the even generation sees the new fields.
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Gives the whole reservation back; the record stands for nothing again. Returns how many
    /// mappings that frees; `None` if the system refuses: the slab is as before.
    ///
    /// # Safety
    /// - **unused**: every carved slot rests in the bare chain.
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

    /// Makes the next slots usable, guards in place, and chains them as bare. At most [`SLOTS_PER_CARVE`];
    /// fewer where memory is short.
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

    /// Returns how many mappings the guards took.
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
            // SAFETY: ours, unused — committed one line above, not yet handed out.
            let guarded = unsafe { linux::guard(guards) };
            if guarded.is_ok() {
                return Ok(0);
            }
            // SAFETY: ours, unused — as above.
            let undone = unsafe { linux::decommit(whole) };
            // Out of memory is final. Else it is an older kernel, or locked memory: guards by
            // mapping instead, if what was done is undone.
            let refused = guarded.err().filter(|&errno| errno == libc::ENOMEM).or(undone.err());
            if let Some(errno) = refused {
                return Err(CarveError::Guard(GUARD * guards.len(), errno));
            }
        }
        // Each slot splits the reservation in two: its guard stays inaccessible.
        let taken = 2 * count as usize;
        if !mappings.allow(taken) {
            return Err(CarveError::Mappings);
        }
        for &(low, _) in guards.iter() {
            let usable = (low + GUARD, spacing - GUARD);
            // SAFETY: ours — the next part of this slab's reservation.
            if let Err(errno) = unsafe { linux::commit(usable) } {
                // Should this fail, some slots stay writable, guards not: they are carved again.
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

    /// Nothing of it is out or warm: it can be given back whole.
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

    /// What a goroutine may have touched beyond the first pages.
    pub(super) fn beyond_first_pages(&self, index: u32) -> linux::Range {
        let usable = self.usable(index);
        let keep = (usable.end - 1) / PAGE * PAGE - (KEEP - 1) * PAGE;
        (usable.start, keep.saturating_sub(usable.start))
    }

    /// All that can be touched: frames and identity.
    pub(super) fn beyond_guard(&self, index: u32) -> linux::Range {
        (self.low(index) + GUARD, self.spacing() - GUARD)
    }

    /// The stack an address belongs to, guard included. For the fault handler: may be called any
    /// time.
    pub(super) fn find(&self, address: usize) -> Option<StackInfo> {
        // PAIR slab-generation: the fields are as new as this.
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
        // PAIR slab-generation: the fields are no newer than what is read next.
        fence(Ordering::Acquire);
        let same = self.generation.load(Ordering::Relaxed) == generation;
        (same && generation.is_multiple_of(2)).then_some(found)
    }
}

/// Why no slot could be carved.
#[derive(Clone, Copy, Debug)]
pub(super) enum CarveError {
    Commit(usize, Errno),
    Guard(usize, Errno),
    Mappings,
}
