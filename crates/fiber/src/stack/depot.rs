//! The depot: all stacks of the process. Caches of owners take stacks from it and return them.
//!
//! A stack at rest is *warm* or *bare*. A warm stack keeps its identity and first pages; it is in
//! the chain of its class, the most recent stack first. A bare stack has only address space and a
//! guard; it is in the chain of its slab. Warm stacks are handed out first. [`Depot::trim`] makes
//! stacks bare that have been warm for a long time, and unmaps slabs in which all stacks are bare.
//!
//! One lock protects the chains. Under the lock there are only accesses to table words and system
//! calls: no user code, and no allocation once `stack::init` has run.
//!
//! The depot never builds or destroys an identity itself: owners build them, and the function
//! passed to [`Depot::trim`] destroys them.

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

/// The stacks of a process; see the top of this file.
#[derive(Debug)]
pub(crate) struct Depot {
    slabs: [AtomicPtr<Slab>; MAX_SLABS],
    chains: Lock<Chains>,
}

/// Heads of the chains of each size class. 0 ends a chain; `n + 1` stands for slot or slab `n`.
#[derive(Debug)]
struct Chains {
    warm: [u32; CLASSES],
    /// Slabs that have bare slots.
    bare: [u32; CLASSES],
    /// The only slab of the class that has slots left to carve.
    uncarved: [u32; CLASSES],
    /// Number of slots of the class's next slab, before it is limited to the allowed range.
    next_slots: [u32; CLASSES],
    slabs: usize,
    mappings: Mappings,
    counts: Counts,
    /// Whether another thread held the lock when this process was forked. If so, the chains may be
    /// inconsistent and are not used.
    poisoned_by_fork: bool,
}

/// Numbers of mappings of the process: those that guards take (none on newer kernels), and all
/// others.
#[derive(Debug)]
pub(super) struct Mappings {
    pub(super) ours: usize,
    others: usize,
    /// Value of `ours` when `others` was last counted.
    counted_at: usize,
}

/// Number of slots whose total size is a multiple of 2 MiB, whatever their spacing.
const SLAB_SLOT_MULTIPLE: u32 = 512;

/// How far `ours` may change before `others` is counted again. Counting takes milliseconds.
const MAPPINGS_BETWEEN_COUNTS: usize = 1024;

impl Mappings {
    const NONE: Mappings = Mappings { ours: 0, others: 0, counted_at: 0 };

    /// Returns whether the process can take `more` mappings and still leave room for the program's
    /// own.
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

/// Numbers of stacks and address space of a process, returned by [`stats`](super::stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Stacks in use, including stacks in the caches of owners.
    pub out: usize,
    /// Stacks at rest that keep their identity and first pages.
    pub warm: usize,
    /// Stacks at rest that hold no memory.
    pub bare: usize,
    /// Slabs: reservations of address space.
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

    /// Takes one stack, preferably a warm one.
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
        let Some(slab) = self.slab(chains.bare[class]) else {
            unreachable!("`carve` adds a slab to the chain")
        };
        let Some(index) = slab.pop_bare() else {
            unreachable!("a slab in the chain has a bare slot")
        };
        if !slab.has_bare() {
            chains.bare[class] = slab.next.load(Ordering::Relaxed);
        }
        chains.counts.bare -= 1;
        chains.counts.out += 1;
        Ok(Stack { depot: self, slab, index })
    }

    /// Makes more slots of a class usable. Called if the class has no stack at rest.
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

    /// Adds a slab to its class's chain when the slab gets its first bare slot.
    fn chain_bare(&self, chains: &mut Chains, slab: &'static Slab) {
        let class = slab.class.load(Ordering::Relaxed) as usize;
        slab.next.store(chains.bare[class], Ordering::Relaxed);
        chains.bare[class] = slab.number.load(Ordering::Relaxed) + 1;
    }

    /// Takes up to `into.len()` warm stacks, for an owner whose cache is empty. Returns how many.
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

    /// Returns stacks to the depot: discards the pages beyond their first pages, then adds them to
    /// chains.
    pub(super) fn put(&'static self, stacks: &mut [Option<Stack>]) {
        let mut ranges = [(0, 0); SLOTS_PER_CARVE as usize];
        for batch in stacks.chunks_mut(SLOTS_PER_CARVE as usize) {
            let mut used = 0;
            for stack in batch.iter().flatten() {
                ranges[used] = stack.discardable_range();
                used += 1;
            }
            // A refusal costs memory and has no other effect. If the stack has an identity, the
            // identity is kept anyway. If not, the space for one was never used, or holds the rest
            // of a failed attempt, which the next attempt overwrites.
            // SAFETY: ours, unused — the owner returned these stacks; nothing runs on them.
            unsafe { linux::discard(&ranges[..used]) };
            let mut chains = NoPreemptLockGuard::new(&self.chains);
            // Read under the lock, so that the times in a chain are in order.
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

    /// Makes stacks bare that have rested for at least `unused`: `bare` destroys their identity,
    /// then their pages go back to the system. Unmaps slabs in which all stacks are bare. Returns
    /// the number of stacks made bare.
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
                // SAFETY: ours, unused — removed from the warm chain, so no other thread can take
                // them.
                if !unsafe { linux::discard(&ranges[..count]) } {
                    // Building an identity requires zeroed memory.
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

    /// Cuts off the part of the warm chain that is old enough, and returns its head. The most
    /// recent stacks come first and the clock never goes back, so all old stacks are at the end.
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
            // Rebuilds the chain in the same order, without the slabs that are unmapped.
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

    /// Unmaps `slab`, whose carved slots are all bare. Returns `false` if the system refuses. If it
    /// returns `true`, the caller must not put the slab back into the chain.
    fn unmap(&self, chains: &mut Chains, slab: &'static Slab) -> bool {
        // SAFETY: unused — all carved slots are in the slab's chain of bare slots.
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

    /// Returns the error for a slab from which no slot can be carved. Unmaps the slab if no slot of
    /// it has ever been carved.
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

    /// Creates a slab and makes it the slab that its class carves from.
    fn new_slab(&self, chains: &mut Chains, size: Size) -> Result<&'static Slab, StackError> {
        let memory = |doing, bytes, errno| StackError::Memory { doing, bytes, errno };
        let most = (MAX_SLAB_BYTES / size.spacing()).clamp(1, MAX_SLOTS) as u32;
        // The size is a multiple of 2 MiB (a huge page), so that the system places slabs side by
        // side, in one mapping.
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
        // PAIR slab-record: publishes the record and its number to readers that do not hold the
        // lock.
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
        // SAFETY: the pointer is null or a record, and records are never freed.
        unsafe { slab.as_ref() }
    }

    /// Returns a handle of the stack with number `number_plus_one - 1`. The caller must ensure that
    /// only one handle of it exists, or that further handles are not dropped.
    fn stack(&'static self, number_plus_one: u32) -> Option<Stack> {
        let number = number_plus_one.checked_sub(1)?;
        let slab = self.slab(number / MAX_SLOTS as u32 + 1)?;
        Some(Stack { depot: self, slab, index: number % MAX_SLOTS as u32 })
    }

    fn all_slabs(&self) -> impl Iterator<Item = &'static Slab> + '_ {
        (1..=MAX_SLABS as u32).map_while(|number| self.slab(number))
    }

    /// Returns the stack that `address` belongs to. Takes no lock, so that the fault handler can
    /// call it.
    pub(crate) fn find(&self, address: usize) -> Option<StackInfo> {
        self.all_slabs().find_map(|slab| slab.find(address))
    }

    /// Same as [`Depot::find`], but searches the slab `near` first and sets `near` to the slab of
    /// the stack that it finds. `near` is a slab's number plus one, or 0.
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

    /// Returns the thread pointers of all identities, including those of stacks at rest. The caller
    /// must prevent identities from being created or destroyed meanwhile.
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

    /// Releases the lock in a forked child. If another thread held it, the chains are no longer
    /// used.
    ///
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
