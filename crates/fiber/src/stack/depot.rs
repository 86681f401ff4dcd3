//! All stacks of the process: where owners' caches get them and bring them back.
//!
//! A resting stack is *warm* (its identity and first pages are kept; the class's chain holds the
//! latest on top) or *bare* (address space and guard only; the slab's chain). Warm ones go first.
//! [`Depot::trim`] makes warm ones that nobody wanted for long bare again, and unmaps a slab of
//! which nothing else is left.
//!
//! One lock. Under it only table words and memory calls: no allocation, no user code.

use super::error::StackError;
use super::linux;
use super::size::{CLASSES, Size};
use super::slab::{
    CarveError, FIRST_SLAB_BYTES, MAX_SLAB_BYTES, MAX_SLABS, MAX_SLOTS, SLOTS_PER_CARVE, Slab,
};
use super::{Stack, StackInfo};
use crate::lock::{Lock, NoPreemptLockGuard};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Depot {
    slabs: [AtomicPtr<Slab>; MAX_SLABS],
    chains: Lock<Chains>,
}

/// Heads of the chains; 0 ends one, `n + 1` names slot or slab `n`.
#[derive(Debug)]
struct Chains {
    warm: [u32; CLASSES],
    /// Slabs that have bare slots.
    bare: [u32; CLASSES],
    /// The one slab that slots can still be carved from.
    uncarved: [u32; CLASSES],
    /// How large the class's next slab is to be.
    next_slots: [u32; CLASSES],
    slabs: usize,
    mappings: Mappings,
    counts: Counts,
    /// Another thread was in the middle of something when this process was forked: nothing here is used.
    poisoned_by_fork: bool,
}

/// Mappings that guards take, where they take any, and all others of the process.
#[derive(Debug)]
pub(super) struct Mappings {
    pub(super) ours: usize,
    others: usize,
    /// How many were ours when the others were last counted.
    counted_at: usize,
}

/// So many slots of any spacing are a multiple of 2 MiB.
const SLAB_SLOT_MULTIPLE: u32 = 512;

/// How many more mappings of ours until the others are counted again: it takes milliseconds.
const MAPPINGS_BETWEEN_COUNTS: usize = 1024;

impl Mappings {
    const NONE: Mappings = Mappings { ours: 0, others: 0, counted_at: 0 };

    /// Whether `more` leave room for the program.
    pub(super) fn allow(&mut self, more: usize) -> bool {
        let fits =
            |mappings: &Mappings| mappings.ours + mappings.others + more <= linux::mapping_limit();
        let due =
            self.others == 0 || self.ours.abs_diff(self.counted_at) >= MAPPINGS_BETWEEN_COUNTS;
        if due || !fits(self) {
            self.others = linux::count_mappings().saturating_sub(self.ours);
            self.counted_at = self.ours;
        }
        fits(self)
    }
}

/// How much the stacks of a process take: [`stats`](super::stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Stacks in use, in owners' caches too.
    pub out: usize,
    /// Resting with identity and first pages.
    pub warm: usize,
    /// Resting without memory.
    pub bare: usize,
    /// Reservations.
    pub slabs: usize,
    /// Bytes of address space reserved.
    pub reserved: usize,
}

impl Depot {
    pub(crate) const fn new() -> Depot {
        Depot {
            slabs: [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_SLABS],
            chains: Lock::new(Chains {
                warm: [0; CLASSES],
                bare: [0; CLASSES],
                uncarved: [0; CLASSES],
                next_slots: [0; CLASSES],
                slabs: 0,
                mappings: Mappings::NONE,
                counts: Counts { out: 0, warm: 0, bare: 0, slabs: 0, reserved: 0 },
                poisoned_by_fork: false,
            }),
        }
    }

    /// One stack: warm if there is one.
    pub(crate) fn take(&'static self, size: Size) -> Result<Stack, StackError> {
        let mut chains = NoPreemptLockGuard::new(&self.chains);
        if chains.poisoned_by_fork {
            let (doing, bytes) = ("making a stack in a forked child", size.usable());
            return Err(StackError::Memory { doing, bytes, errno: libc::ENOMEM });
        }
        if let Some(stack) = self.pop_warm(&mut chains, size.class()) {
            return Ok(stack);
        }
        let class = size.class();
        if chains.bare[class] == 0 {
            self.carve(&mut chains, size)?;
        }
        let Some(slab) = self.slab(chains.bare[class]) else { unreachable!("carved above") };
        let Some(index) = slab.pop_bare() else { unreachable!("it is in the chain of bare ones") };
        if !slab.has_bare() {
            chains.bare[class] = slab.next.load(Ordering::Relaxed);
        }
        chains.counts.bare -= 1;
        chains.counts.out += 1;
        Ok(Stack { depot: self, slab, index })
    }

    /// Makes some slots usable; the class has none that rests.
    fn carve(&self, chains: &mut Chains, size: Size) -> Result<(), StackError> {
        let class = size.class();
        let slab = match self.slab(chains.uncarved[class]) {
            Some(slab) => slab,
            None => self.new_slab(chains, size)?,
        };
        let before = slab.carved.load(Ordering::Relaxed);
        let carved = slab.carve(&mut chains.mappings);
        if slab.is_carved() {
            chains.uncarved[class] = 0;
        }
        carved.map_err(|why| self.carve_failed(chains, slab, why))?;
        self.chain_bare(chains, slab);
        chains.counts.bare += (slab.carved.load(Ordering::Relaxed) - before) as usize;
        Ok(())
    }

    /// Puts a slab that had no bare slot, and has one now, into its class's chain.
    fn chain_bare(&self, chains: &mut Chains, slab: &'static Slab) {
        let class = slab.class.load(Ordering::Relaxed) as usize;
        slab.next.store(chains.bare[class], Ordering::Relaxed);
        chains.bare[class] = slab.number.load(Ordering::Relaxed) + 1;
    }

    /// Up to `into.len()` warm stacks; returns how many. For an owner's cache that ran dry.
    pub(crate) fn take_warm(&'static self, size: Size, into: &mut [Option<Stack>]) -> usize {
        let mut chains = NoPreemptLockGuard::new(&self.chains);
        if chains.poisoned_by_fork {
            return 0;
        }
        for (taken, place) in into.iter_mut().enumerate() {
            match self.pop_warm(&mut chains, size.class()) {
                Some(stack) => *place = Some(stack),
                None => return taken,
            }
        }
        into.len()
    }

    /// Brings stacks back: gives back the pages beyond the first ones, then chains them.
    pub(super) fn put(&'static self, stacks: &mut [Option<Stack>]) {
        let mut ranges = [(0, 0); SLOTS_PER_CARVE as usize];
        for batch in stacks.chunks_mut(SLOTS_PER_CARVE as usize) {
            let mut used = 0;
            for stack in batch.iter().flatten() {
                ranges[used] = stack.discardable_range();
                used += 1;
            }
            // A refusal costs memory, nothing else: an identity is kept, and where there is none its
            // place was never used, or only by an attempt that the next one writes over.
            // SAFETY: ours, unused — the owner gave these stacks up; nothing runs on them.
            unsafe { linux::discard(&ranges[..used]) };
            let mut chains = NoPreemptLockGuard::new(&self.chains);
            // Under the lock, so that dates in a chain are in order.
            let now = linux::milliseconds();
            for stack in batch.iter_mut().filter_map(Option::take) {
                self.put_one(&mut chains, stack, now);
            }
        }
    }

    fn put_one(&self, chains: &mut Chains, stack: Stack, now: u64) {
        let stack = std::mem::ManuallyDrop::new(stack);
        if chains.poisoned_by_fork {
            return;
        }
        chains.counts.out -= 1;
        if !stack.has_identity() {
            self.put_bare(chains, stack.slab, stack.index);
            return;
        }
        let class = stack.slab.class.load(Ordering::Relaxed) as usize;
        let slot = stack.slab.slot(stack.index);
        slot.owner.store(now, Ordering::Relaxed);
        slot.next.store(chains.warm[class], Ordering::Relaxed);
        chains.warm[class] = stack.number() + 1;
        chains.counts.warm += 1;
    }

    fn put_bare(&self, chains: &mut Chains, slab: &'static Slab, index: u32) {
        let chained = slab.has_bare();
        slab.push_bare(index);
        if !chained {
            self.chain_bare(chains, slab);
        }
        chains.counts.bare += 1;
    }

    /// Makes stacks bare that have rested for `unused` or longer: `bare` tears their identity down,
    /// then their pages go back. Slabs left with nothing are unmapped. Returns how many.
    pub(crate) fn trim(&'static self, unused: Duration, mut bare: impl FnMut(&Stack)) -> usize {
        if NoPreemptLockGuard::new(&self.chains).poisoned_by_fork {
            return 0;
        }
        let mut trimmed = 0;
        for class in 0..CLASSES {
            let mut chain = self.detach_old(class, unused);
            let mut batch = [const { None }; SLOTS_PER_CARVE as usize];
            loop {
                let mut ranges = [(0, 0); SLOTS_PER_CARVE as usize];
                let mut count = 0;
                while count < batch.len()
                    && let Some(stack) = self.stack(chain)
                {
                    chain = stack.slab.slot(stack.index).next.load(Ordering::Relaxed);
                    bare(&stack);
                    ranges[count] = stack.slab.beyond_guard(stack.index);
                    batch[count] = Some(stack);
                    count += 1;
                }
                if count == 0 {
                    break;
                }
                // SAFETY: ours, unused — cut out of the warm chain, so nobody else has them.
                if !unsafe { linux::discard(&ranges[..count]) } {
                    // Whoever builds an identity there counts on zeros.
                    batch.iter().flatten().for_each(Stack::zero_identity);
                }
                let mut chains = NoPreemptLockGuard::new(&self.chains);
                for stack in batch.iter_mut().filter_map(Option::take) {
                    chains.counts.out -= 1;
                    let stack = std::mem::ManuallyDrop::new(stack);
                    self.put_bare(&mut chains, stack.slab, stack.index);
                }
                trimmed += count;
            }
        }
        self.unmap_bare_slabs();
        trimmed
    }

    /// Cuts the part of the warm chain that is old enough, and returns its head. The latest are on
    /// top and dates never go back, so all that is old hangs together at the end.
    fn detach_old(&'static self, class: usize, unused: Duration) -> u32 {
        let mut chains = NoPreemptLockGuard::new(&self.chains);
        let now = linux::milliseconds();
        let old = |stack: &Stack| {
            let since = stack.slab.slot(stack.index).owner.load(Ordering::Relaxed);
            u128::from(now.saturating_sub(since)) >= unused.as_millis()
        };
        let mut link = None;
        let mut head = chains.warm[class];
        while let Some(stack) = self.stack(head) {
            let stack = std::mem::ManuallyDrop::new(stack);
            if old(&stack) {
                break;
            }
            let slot = stack.slab.slot(stack.index);
            head = slot.next.load(Ordering::Relaxed);
            link = Some(slot);
        }
        match link {
            Some(slot) => slot.next.store(0, Ordering::Relaxed),
            None => chains.warm[class] = 0,
        }
        let mut at = head;
        while let Some(stack) = self.stack(at) {
            let stack = std::mem::ManuallyDrop::new(stack);
            chains.counts.warm -= 1;
            chains.counts.out += 1;
            at = stack.slab.slot(stack.index).next.load(Ordering::Relaxed);
        }
        head
    }

    fn unmap_bare_slabs(&'static self) {
        let mut chains = NoPreemptLockGuard::new(&self.chains);
        for class in 0..CLASSES {
            // The chain is taken apart and put together again, in order.
            let mut last: Option<&'static Slab> = None;
            let mut at = std::mem::take(&mut chains.bare[class]);
            while let Some(slab) = self.slab(at) {
                let number = at;
                at = slab.next.load(Ordering::Relaxed);
                if slab.is_bare() && self.unmap(&mut chains, slab) {
                    continue;
                }
                slab.next.store(0, Ordering::Relaxed);
                match last {
                    Some(last) => last.next.store(number, Ordering::Relaxed),
                    None => chains.bare[class] = number,
                }
                last = Some(slab);
            }
            if chains.bare[class] == 0 && chains.warm[class] == 0 && chains.uncarved[class] == 0 {
                chains.next_slots[class] = 0;
            }
        }
    }

    /// The caller takes `slab`, all bare, out of the chain if this says true; false: it stays.
    fn unmap(&self, chains: &mut Chains, slab: &'static Slab) -> bool {
        // SAFETY: unused — all carved slots rest in its bare chain.
        let Some(mappings) = (unsafe { slab.release() }) else { return false };
        let class = slab.class.load(Ordering::Relaxed) as usize;
        if chains.uncarved[class] == slab.number.load(Ordering::Relaxed) + 1 {
            chains.uncarved[class] = 0;
        }
        chains.mappings.ours -= mappings;
        chains.counts.bare -= slab.carved.load(Ordering::Relaxed) as usize;
        chains.counts.reserved -= slab.spacing() * slab.slots.load(Ordering::Relaxed) as usize;
        chains.counts.slabs -= 1;
        true
    }

    /// A slab that can give no slot is an error; a slab that never gave one is unmapped.
    fn carve_failed(
        &self,
        chains: &mut Chains,
        slab: &'static Slab,
        why: CarveError,
    ) -> StackError {
        let used = chains.mappings.ours + chains.mappings.others;
        if slab.carved.load(Ordering::Relaxed) == 0 {
            self.unmap(chains, slab);
        }
        let memory = |doing, bytes, errno| StackError::Memory { doing, bytes, errno };
        match why {
            CarveError::Commit(bytes, errno) => {
                memory("making stack memory writable", bytes, errno)
            }
            CarveError::Guard(bytes, errno) => memory("guarding stacks", bytes, errno),
            CarveError::Mappings => StackError::Mappings { used, limit: linux::mapping_limit() },
        }
    }

    /// A new slab: the class's one to carve from.
    fn new_slab(&self, chains: &mut Chains, size: Size) -> Result<&'static Slab, StackError> {
        let memory = |doing, bytes, errno| StackError::Memory { doing, bytes, errno };
        let most = (MAX_SLAB_BYTES / size.spacing()).clamp(1, MAX_SLOTS) as u32;
        // Whole huge pages: the system then puts one slab right beside the other, in one mapping.
        let most = if most > SLAB_SLOT_MULTIPLE {
            most / SLAB_SLOT_MULTIPLE * SLAB_SLOT_MULTIPLE
        } else {
            most
        };
        let first = (FIRST_SLAB_BYTES / size.spacing()).max(1) as u32;
        let wanted = chains.next_slots[size.class()].clamp(first.min(most), most);
        let slab = self.vacant_record(chains, size)?;
        slab.reserve(size, wanted)
            .map_err(|errno| memory("reserving address space for stacks", size.spacing(), errno))?;
        let slots = slab.slots.load(Ordering::Relaxed);
        chains.next_slots[size.class()] = slots.saturating_mul(2);
        chains.counts.slabs += 1;
        chains.counts.reserved += slots as usize * size.spacing();
        chains.uncarved[size.class()] = slab.number.load(Ordering::Relaxed) + 1;
        Ok(slab)
    }

    fn vacant_record(&self, chains: &mut Chains, size: Size) -> Result<&'static Slab, StackError> {
        let known = (0..chains.slabs as u32).filter_map(|number| self.slab(number + 1));
        if let Some(slab) = known.into_iter().find(|slab| slab.is_vacant()) {
            return Ok(slab);
        }
        let number = chains.slabs;
        if number == MAX_SLABS {
            return Err(StackError::Slabs { slabs: number });
        }
        let slab = Slab::record().map_err(|errno| StackError::Memory {
            doing: "making the table of a slab of stacks",
            bytes: size.spacing(),
            errno,
        })?;
        slab.number.store(number as u32, Ordering::Relaxed);
        // PAIR slab-record: publishes the record's number to readers without the lock.
        self.slabs[number].store(std::ptr::from_ref(slab).cast_mut(), Ordering::Release);
        chains.slabs += 1;
        Ok(slab)
    }

    fn pop_warm(&'static self, chains: &mut Chains, class: usize) -> Option<Stack> {
        let stack = self.stack(chains.warm[class])?;
        chains.warm[class] = stack.slab.slot(stack.index).next.load(Ordering::Relaxed);
        chains.counts.warm -= 1;
        chains.counts.out += 1;
        Some(stack)
    }

    fn slab(&self, number_plus_one: u32) -> Option<&'static Slab> {
        let number = number_plus_one.checked_sub(1)? as usize;
        // PAIR slab-record: the record is complete.
        let slab = self.slabs.get(number)?.load(Ordering::Acquire);
        // SAFETY: records are never freed.
        unsafe { slab.as_ref() }
    }

    /// The handle of slot `number_plus_one - 1`; the caller sees to it that there is only one.
    fn stack(&'static self, number_plus_one: u32) -> Option<Stack> {
        let number = number_plus_one.checked_sub(1)?;
        let slab = self.slab(number / MAX_SLOTS as u32 + 1)?;
        Some(Stack { depot: self, slab, index: number % MAX_SLOTS as u32 })
    }

    fn all_slabs(&self) -> impl Iterator<Item = &'static Slab> + '_ {
        (1..=MAX_SLABS as u32).map_while(|number| self.slab(number))
    }

    /// The stack an address belongs to. Takes no lock: for the fault handler.
    pub(crate) fn find(&self, address: usize) -> Option<StackInfo> {
        self.all_slabs().find_map(|slab| slab.find(address))
    }

    /// As [`Depot::find`], first in the slab of this number; which is afterwards that of the one found.
    pub(crate) fn find_near(&self, near: &mut u32, address: usize) -> Option<StackInfo> {
        let last = self.slab(*near).and_then(|slab| slab.find(address));
        last.or_else(|| {
            let mut slabs = self.all_slabs().zip(1..);
            let (found, number) =
                slabs.find_map(|(slab, number)| Some((slab.find(address)?, number)))?;
            *near = number;
            Some(found)
        })
    }

    /// Thread pointers of all identities there are, resting ones too. The caller holds off their
    /// making and tearing down.
    pub(crate) fn identities(&self) -> impl Iterator<Item = usize> + '_ {
        self.all_slabs().filter(|slab| !slab.is_vacant()).flat_map(|slab| {
            let carved = 0..slab.carved.load(Ordering::Relaxed);
            carved
                .filter(|&index| slab.slot(index).identity.load(Ordering::Relaxed) == 1)
                .map(|index| slab.thread_pointer(index))
        })
    }

    pub(crate) fn counts(&self) -> Counts {
        NoPreemptLockGuard::new(&self.chains).counts
    }

    /// # Safety
    /// - **child**: as for [`Lock::repair_in_child`].
    pub(crate) unsafe fn repair_in_child(&self) {
        // SAFETY: child — promised by the caller.
        unsafe { self.chains.repair_in_child(|chains| chains.poisoned_by_fork = true) };
    }
}

#[cfg(test)]
#[path = "depot_tests.rs"]
mod tests;
