//! The thread control block of an identity: written when the identity is created, partly rewritten
//! after each owner. This module never calls a destructor: `take_keys` passes the values of keys to
//! its caller.

use super::probe::{KEYS_IN_BLOCK, ProbedBlock};
use crate::base::unsupported::Unsupported;
use crate::stack::{Extent, MAX_NUMBER, PAGE};
use std::ffi::c_int;

/// Number of pthread keys in the hot part of the block. std uses one or two, and so do most
/// programs.
const HOT_KEYS: usize = 3;

/// First thread id of identities, above all thread ids of Linux (PID_MAX_LIMIT).
const FIRST_TID: u32 = 1 << 22;

/// Mask of the bits that a thread id may use in a futex word. The kernel uses the other bits.
const FUTEX_TID_MASK: usize = 0x3fff_ffff;

const _: () = assert!(FIRST_TID as usize + MAX_NUMBER < FUTEX_TID_MASK);

/// `rseq.cpu_id` of a thread that is not registered with the kernel
/// (`RSEQ_CPU_ID_REGISTRATION_FAILED`).
const RSEQ_NOT_REGISTERED: u32 = -2i32 as u32;

/// Offset of the pointer to the dynamic thread vector (DTV), as defined by the x86-64 thread-local
/// ABI.
const DTV: usize = 8;

/// The layout of a control block, and the contents of a fresh one. Offsets are in bytes, from the
/// thread pointer.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) extent: Extent,
    /// Alignment of the thread pointer.
    pub(super) align: usize,
    /// Contents of the hot part of a fresh block. A word that points into the block is stored as an
    /// offset.
    pattern: Vec<u8>,
    /// Offsets of those words, in ascending order.
    pointers: Vec<usize>,
    tid: usize,
    /// Offset from which the hot part is rewritten after each owner.
    reset_from: usize,
    /// Index in `pointers` of the first word in that part.
    first_reset_pointer: usize,
    keys: usize,
    keys_used: usize,
    key_tables: usize,
    resolver: usize,
    resolver_pointer: isize,
    rseq: Option<isize>,
}

impl Layout {
    pub(super) fn new(
        found: ProbedBlock,
        below: usize,
        align: usize,
        resolver_pointer: isize,
        rseq: Option<isize>,
    ) -> Result<Layout, Unsupported> {
        let hot = [found.tid + 4, found.robust + 32, found.keys + 16 * HOT_KEYS];
        let hot = hot.into_iter().max().unwrap_or(0).next_multiple_of(align);
        let cold = found.size.saturating_sub(hot).next_multiple_of(PAGE);
        if found.keys_used >= found.size || hot > found.size {
            return Err(Unsupported::new(
                "a control block that contains its pthread keys",
                format!("{found:?}"),
            ));
        }
        let mut layout = Layout {
            extent: Extent { below, hot, cold },
            align,
            pattern: found.pattern[..hot].to_vec(),
            pointers: Vec::new(),
            tid: found.tid,
            reset_from: found.list,
            first_reset_pointer: 0,
            keys: found.keys,
            keys_used: found.keys_used,
            key_tables: found.key_tables,
            resolver: found.resolver,
            resolver_pointer,
            rseq,
        };
        layout.relocate(&found);
        layout.first_reset_pointer = layout.pointers.partition_point(|&at| at < layout.reset_from);
        Ok(layout)
    }

    /// Replaces the words that point into the probed block by offsets.
    fn relocate(&mut self, found: &ProbedBlock) {
        let word = |pattern: &[u8], at: usize| {
            let bytes = pattern[at..at + 8].try_into().unwrap_or_default();
            usize::from_ne_bytes(bytes)
        };
        // Word 0 of a block is its own address.
        let probed = word(&self.pattern, 0);
        for at in (0..self.pattern.len() - 7).step_by(8) {
            let offset = word(&self.pattern, at).wrapping_sub(probed);
            // A list node that is linked to itself is a list of one: fork and exit unlink it
            // without touching another node.
            let list = at == found.list || at == found.list + 8;
            let offset = if list { found.list } else { offset };
            if offset < found.size || list {
                self.pattern[at..at + 8].copy_from_slice(&offset.to_ne_bytes());
                self.pointers.push(at);
            }
        }
    }

    /// Writes the hot part of the block, starting at offset `from`: all of it when the block is
    /// created, later only the part that owners change.
    ///
    /// # Safety
    /// - **quiet**: the identity at `tp` is mapped, and no code runs with it.
    #[inline]
    unsafe fn write_hot(&self, tp: usize, number: u32, from: usize) {
        let pattern = &self.pattern[from..];
        // SAFETY: quiet — promised by the caller.
        unsafe {
            std::ptr::copy_nonoverlapping(pattern.as_ptr(), (tp + from) as *mut u8, pattern.len());
        }
        let first = if from == 0 { 0 } else { self.first_reset_pointer };
        for &at in &self.pointers[first..] {
            let word = (tp + at) as *mut usize;
            // SAFETY: quiet — as above; the word holds the offset from the pattern.
            unsafe { *word += tp };
        }
        // SAFETY: quiet — as above.
        unsafe { *((tp + self.tid) as *mut u32) = FIRST_TID + number };
    }

    /// Writes a fresh block. The caller then has ld.so allocate its DTV.
    ///
    /// # Safety
    /// - **quiet**: as for `write_hot`; the cold part is zero.
    pub(super) unsafe fn create(&self, tp: usize, number: u32, rseq_readers: bool) {
        // SAFETY: quiet — promised by the caller.
        unsafe { self.write_hot(tp, number, 0) };
        if self.rseq_is_cheap() || rseq_readers {
            // SAFETY: quiet — promised by the caller.
            unsafe { self.disown_rseq(tp) };
        }
    }

    /// Sets libc's thread-local pointer to the resolver state of this block. Call it after libc's
    /// thread-locals have received their initial values.
    ///
    /// # Safety
    /// - **quiet**: as for `write_hot`; the thread-locals are mapped.
    pub(super) unsafe fn set_resolver_pointer(&self, tp: usize) {
        let word = tp.wrapping_add_signed(self.resolver_pointer) as *mut usize;
        // SAFETY: quiet — promised by the caller.
        unsafe { *word = tp + self.resolver };
    }

    /// Undoes the changes that an owner made to its block.
    ///
    /// # Safety
    /// - **quiet**: as for `write_hot`.
    #[inline]
    pub(super) unsafe fn wipe(&self, tp: usize, number: u32) {
        // SAFETY: quiet — promised by the caller.
        unsafe { self.write_hot(tp, number, self.reset_from) };
    }

    /// Marks the restartable-sequence area as not registered. The kernel writes CPU numbers to the
    /// carrier's area, never to this one; code that trusts an unmarked area would always read CPU
    /// 0.
    ///
    /// # Safety
    /// - **mapped**: `tp` is the thread pointer of an identity.
    pub(super) unsafe fn disown_rseq(&self, tp: usize) {
        if let Some(offset) = self.rseq {
            let cpu_id = tp.wrapping_add_signed(offset + 4) as *mut u32;
            // SAFETY: mapped — promised by the caller; the area is at the offset that libc
            // published.
            unsafe { std::ptr::write_volatile(cpu_id, RSEQ_NOT_REGISTERED) };
        }
    }

    /// Returns whether the restartable-sequence area lies in the hot part, which is written anyway.
    fn rseq_is_cheap(&self) -> bool {
        self.rseq.is_some_and(|offset| offset < self.extent.hot as isize)
    }

    /// Returns whether a pthread key was set since the last [`take_keys`](Self::take_keys).
    ///
    /// # Safety
    /// - **own**: the caller runs with this identity.
    pub(super) unsafe fn has_keys(&self, tp: usize) -> bool {
        let used = (tp + self.keys_used) as *const u8;
        // SAFETY: own — a byte of this identity's block. Volatile, because libc sets it.
        unsafe { std::ptr::read_volatile(used) != 0 }
    }

    /// Clears all pthread keys, and calls `each` with the number, sequence and value of each key
    /// that was set. Returns whether any key was set.
    ///
    /// # Safety
    /// - **own**: the caller runs with this identity.
    pub(super) unsafe fn take_keys(
        &self,
        tp: usize,
        mut each: impl FnMut(usize, usize, *mut libc::c_void),
    ) -> bool {
        // SAFETY: own — promised by the caller.
        if !unsafe { self.has_keys(tp) } {
            return false;
        }
        let used = (tp + self.keys_used) as *mut u8;
        // SAFETY: own — a byte of this identity's block. Volatile, because libc sets it.
        unsafe { std::ptr::write_volatile(used, 0) };
        let mut any = false;
        for table in 0..KEYS_IN_BLOCK {
            let records = match table {
                0 => tp + self.keys,
                // SAFETY: own — libc's pointer to a table of further keys, or null.
                _ => unsafe { *((tp + self.key_tables + 8 * table) as *const usize) },
            };
            if records == 0 {
                continue;
            }
            for key in 0..KEYS_IN_BLOCK {
                let record = (records + 16 * key) as *mut KeyValue;
                // SAFETY: own — a record of this identity's keys. Volatile, because destructors set
                // keys.
                let KeyValue { sequence, value } = unsafe { std::ptr::read_volatile(record) };
                if !value.is_null() {
                    let unset = KeyValue { sequence: 0, value: std::ptr::null_mut() };
                    // SAFETY: own — as above.
                    unsafe { std::ptr::write_volatile(record, unset) };
                    any = true;
                    each(table * KEYS_IN_BLOCK + key, sequence, value);
                }
            }
        }
        any
    }

    /// Releases what the resolver holds for this identity, and resets the resolver's state to that
    /// of a new thread. Does nothing if the owner did not use the resolver.
    ///
    /// # Safety
    /// - **own**: the caller runs with this identity.
    pub(super) unsafe fn close_resolver(&self, tp: usize) {
        unsafe extern "C" {
            fn __res_nclose(state: *mut libc::c_void);
        }
        let state = (tp + self.resolver) as *mut ResolverState;
        // SAFETY: own — a part of this identity's block. Volatile, because libc writes it.
        let ResolverState { servers, .. } = unsafe { std::ptr::read_volatile(state) };
        if servers != 0 {
            // SAFETY: own — a state that libc has initialized.
            unsafe { __res_nclose(state.cast()) };
            // SAFETY: own — as above; all zero is the state of a new thread.
            unsafe { std::ptr::write_bytes(state.cast::<u8>(), 0, RESOLVER_STATE) };
        }
    }

    /// Frees the tables of further keys.
    ///
    /// # Safety
    /// - **quiet**: as for `write_hot`; the block is not used again.
    pub(super) unsafe fn free_key_tables(&self, tp: usize) {
        for table in 1..KEYS_IN_BLOCK {
            let place = (tp + self.key_tables + 8 * table) as *mut *mut libc::c_void;
            // SAFETY: quiet — libc's pointer to a table it allocated, or null.
            let records = unsafe { *place };
            if !records.is_null() {
                // SAFETY: quiet — as above.
                unsafe { *place = std::ptr::null_mut() };
                // SAFETY: quiet — as above; no code uses the table after this.
                unsafe { libc::free(records) };
            }
        }
    }
}

/// libc's record of the value of one key on one thread.
#[repr(C)]
struct KeyValue {
    sequence: usize,
    value: *mut libc::c_void,
}

/// The first fields of `struct __res_state`. The struct is visible to programs, so glibc cannot
/// change its layout.
#[repr(C)]
struct ResolverState {
    times: [c_int; 2],
    options: libc::c_ulong,
    servers: c_int,
}

/// Size of `struct __res_state` in bytes.
const RESOLVER_STATE: usize = 568;

/// A thread's dynamic thread vector (DTV), which holds the address of each module's thread-locals.
/// Its layout is defined by the x86-64 thread-local ABI and by ld.so.
pub(super) struct DynamicVector {
    entries: *mut Entry,
}

#[repr(C)]
struct Entry {
    value: usize,
    to_free: *mut libc::c_void,
}

/// ld.so's value for a module whose thread-locals are not allocated yet.
const UNALLOCATED: usize = usize::MAX;

impl DynamicVector {
    /// # Safety
    /// - **own**: the caller runs with the identity at `tp`, or no code does.
    pub(super) unsafe fn of(tp: usize) -> DynamicVector {
        // SAFETY: own — the pointer to the vector is where the ABI defines it.
        DynamicVector { entries: unsafe { *((tp + DTV) as *const *mut Entry) } }
    }

    /// Returns the largest module number that the vector has room for.
    pub(super) fn len(&self) -> usize {
        let before = self.entries.wrapping_sub(1);
        // SAFETY: own — the entry before the first one holds the length.
        unsafe { before.read() }.value
    }

    /// Returns the address of a module's thread-locals, or `None` if they are not allocated.
    pub(super) fn address(&self, module: usize) -> Option<usize> {
        if module == 0 || module > self.len() {
            return None;
        }
        let entry = self.entries.wrapping_add(module);
        // SAFETY: own — inside the vector.
        let value = unsafe { entry.read() }.value;
        (value != UNALLOCATED && value != 0).then_some(value)
    }

    /// Frees the thread-locals of dynamic modules. ld.so allocates them again when the next owner
    /// first uses them.
    pub(super) fn free(&self) {
        // Most goroutines have nothing to free. ORing all pointers finds that out without a branch
        // per module.
        let any = (1..=self.len()).fold(0, |any, module| {
            // SAFETY: own — inside the vector.
            any | unsafe { (*self.entries.wrapping_add(module)).to_free } as usize
        });
        if any == 0 {
            return;
        }
        for module in 1..=self.len() {
            let at = self.entries.wrapping_add(module);
            // SAFETY: own — inside the vector.
            let entry = unsafe { at.read() };
            if !entry.to_free.is_null() && entry.value != UNALLOCATED {
                let unallocated = Entry { value: UNALLOCATED, to_free: std::ptr::null_mut() };
                // SAFETY: own — as above.
                unsafe { at.write(unallocated) };
                // SAFETY: own — ld.so allocated it with malloc, and no pointer to it is left.
                unsafe { libc::free(entry.to_free) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch;
    use crate::stack::{Size, Stack};

    fn word(at: usize) -> usize {
        // SAFETY: a word of a control block that the test owns, or of this thread's own.
        unsafe { *(at as *const usize) }
    }

    #[test]
    fn a_new_control_block_is_initialized_like_that_of_a_thread() {
        let layout = &super::super::probe_once().unwrap().layout;
        let stack = Stack::new(Size::new(1).unwrap()).unwrap();
        // SAFETY: quiet — the test's own stack; `create` is called only if the stack has no
        // identity yet.
        let built = stack.has_identity() || unsafe { crate::identity::create(&stack) }.is_ok();
        assert!(built);
        let (tp, me) = (stack.thread_pointer(), arch::thread_pointer());
        assert_eq!((word(tp), word(tp + 16)), (tp, tp), "self pointers");
        assert_eq!(word(tp + 0x28), word(me + 0x28), "the stack guard is the process's");
        assert_eq!(word(tp + 0x30), word(me + 0x30), "the pointer guard is the process's");
        let list = tp + layout.reset_from;
        assert_eq!((word(list), word(list + 8)), (list, list), "a list of one");
        assert_eq!(word(tp + layout.tid) as u32, FIRST_TID + stack.number());
        assert!(word(tp + layout.tid) as u32 > 1 << 22, "no thread of Linux has this id");
        let resolver = word(tp.wrapping_add_signed(layout.resolver_pointer));
        assert_eq!(resolver, tp + layout.resolver, "a resolver state of its own");
    }

    #[test]
    fn a_disowned_rseq_area_is_marked_as_not_registered() {
        let layout = &super::super::probe_once().unwrap().layout;
        let Some(offset) = layout.rseq else { return };
        let stack = Stack::new(Size::new(1).unwrap()).unwrap();
        // SAFETY: mapped — the test's own stack.
        unsafe { layout.disown_rseq(stack.thread_pointer()) };
        let area = stack.thread_pointer().wrapping_add_signed(offset);
        // SAFETY: as above.
        let cpu_id = unsafe { *((area + 4) as *const u32) };
        assert_eq!(cpu_id, RSEQ_NOT_REGISTERED);
        // The area must be zero again: the depot relies on zeros in a slot without an identity.
        // SAFETY: as above.
        unsafe { *((area + 4) as *mut u32) = 0 };
    }
}
