//! A cache of stacks for one owner, used without a lock. A stack of another size never enters the
//! cache.

use super::error::StackError;
use super::size::Size;
use super::{DEPOT, Stack};

/// Largest number of stacks in a cache. [`HALF`] of them move to or from the depot at a time, so a
/// burst costs one trip to the depot per [`HALF`] stacks.
const CAPACITY: usize = 64;
const HALF: usize = CAPACITY / 2;

/// Warm stacks of one size, for one owner (a P). Stacks of other sizes bypass the cache.
#[derive(Debug)]
pub struct Cache {
    size: Size,
    stacks: [Option<Stack>; CAPACITY],
    len: usize,
    puts: u32,
}

/// Number of [`Cache::put`] calls after which one stack gives the pages beyond its first pages back
/// to the system. A system call for every stack would cost more than the whole reuse.
const PUTS_PER_DISCARD: u32 = 256;

impl Cache {
    /// Returns an empty cache for stacks of `size`.
    pub const fn new(size: Size) -> Cache {
        Cache { size, stacks: [const { None }; CAPACITY], len: 0, puts: 0 }
    }

    /// Takes the stack that was put here last. If the cache is empty or has another size, takes a
    /// stack from the depot.
    ///
    /// # Errors
    /// Same as [`Stack::new`].
    pub fn take(&mut self, size: Size) -> Result<Stack, StackError> {
        if size != self.size {
            return Stack::new(size);
        }
        if self.len == 0 {
            self.len = DEPOT.take_warm(size, &mut self.stacks[..HALF]);
            if self.len == 0 {
                return Stack::new(size);
            }
        }
        self.len -= 1;
        match self.stacks[self.len].take() {
            Some(stack) => Ok(stack),
            None => Stack::new(size),
        }
    }

    /// Takes the stack that was put here last, together with its identity. Returns `None` if the
    /// cache is empty. Takes no lock and makes no system call.
    #[inline]
    pub fn take_cached(&mut self) -> Option<Stack> {
        let last = self.len.checked_sub(1)?;
        let stack = self.stacks[last].take();
        self.len = last;
        stack
    }

    /// Same as [`Cache::put`], but first gives the pages beyond the stack's first pages back to the
    /// system. This takes a system call.
    pub fn put_trimmed(&mut self, stack: Stack) {
        stack.discard_unused_pages();
        self.put(stack);
    }

    /// Returns the size of the stacks in this cache.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Keeps a stack for the next [`Cache::take`]. Nothing may run on it. A stack of another size
    /// goes to the depot.
    pub fn put(&mut self, stack: Stack) {
        if stack.spacing() != self.size.spacing() {
            drop(stack);
            return;
        }
        self.puts = self.puts.wrapping_add(1);
        if self.puts.is_multiple_of(PUTS_PER_DISCARD) {
            stack.discard_unused_pages();
        }
        if self.len == CAPACITY {
            // The least recently used half moves to the depot, which discards the pages beyond
            // their first pages.
            DEPOT.put(&mut self.stacks[..HALF]);
            self.stacks.rotate_left(HALF);
            self.len -= HALF;
        }
        self.stacks[self.len] = Some(stack);
        self.len += 1;
    }

    /// Moves all stacks to the depot, for an owner that has nothing to run. The depot gives the
    /// pages beyond their first pages back to the system, and [`trim`](super::trim) can release the
    /// rest.
    pub fn clear(&mut self) {
        DEPOT.put(&mut self.stacks[..self.len]);
        self.len = 0;
    }

    /// Returns the number of stacks in this cache.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether this cache holds no stacks.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.clear();
    }
}
