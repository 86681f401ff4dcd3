//! An owner's own stacks: taken and put back without a lock.

use super::error::StackError;
use super::size::Size;
use super::{DEPOT, Stack};

/// How many stacks an owner keeps. Half of them move at a time, so a burst costs one trip to the
/// depot for every [`HALF`] stacks.
const CAPACITY: usize = 64;
const HALF: usize = CAPACITY / 2;

/// Warm stacks of one size, for one owner (a P). Other sizes go straight to the depot.
#[derive(Debug)]
pub struct Cache {
    size: Size,
    stacks: [Option<Stack>; CAPACITY],
    len: usize,
    puts: u32,
}

/// One in so many stacks gives back, when it is put here, what it touched beyond its first pages:
/// asking the kernel each time costs more than the whole reuse.
const PUTS_PER_DISCARD: u32 = 256;

impl Cache {
    /// An empty cache of stacks of `size`.
    pub const fn new(size: Size) -> Cache {
        Cache { size, stacks: [const { None }; CAPACITY], len: 0, puts: 0 }
    }

    /// The stack last put here, else one of the depot's.
    ///
    /// # Errors
    /// As [`Stack::new`].
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

    /// The stack last put here, with its identity, if there is one: no lock, no system call.
    #[inline]
    pub fn take_cached(&mut self) -> Option<Stack> {
        let last = self.len.checked_sub(1)?;
        let stack = self.stacks[last].take();
        self.len = last;
        stack
    }

    /// As [`Cache::put`], and gives back what the stack touched beyond its first pages: a system call.
    pub fn put_trimmed(&mut self, stack: Stack) {
        stack.discard_unused_pages();
        self.put(stack);
    }

    /// The size of its stacks.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Keeps a stack for the next [`Cache::take`]. Nothing may run on it any more.
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
            // The coldest go; what they touched beyond their first pages is given back.
            DEPOT.put(&mut self.stacks[..HALF]);
            self.stacks.rotate_left(HALF);
            self.len -= HALF;
        }
        self.stacks[self.len] = Some(stack);
        self.len += 1;
    }

    /// Brings all its stacks to the depot, for an owner that has nothing to run: what they touched
    /// beyond their first pages is given back, and [`trim`](super::trim) reaches the rest.
    pub fn clear(&mut self) {
        DEPOT.put(&mut self.stacks[..self.len]);
        self.len = 0;
    }

    /// How many stacks it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.clear();
    }
}
