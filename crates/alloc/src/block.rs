//! Free blocks, and lists of them that are linked through the blocks themselves. A list never
//! allocates: its links lie in the free blocks.

use std::ptr::{self, NonNull};

/// A free block, which no code uses. Holds the address of the block's links: the start of the block
/// or, in debug builds, near its end.
#[derive(Debug)]
pub(crate) struct FreeBlock(NonNull<Links>);

/// The links of a free block, stored in the block itself.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Links {
    /// The next block of the list, or null. The first word, because magazines use it too.
    next: *mut Links,
    /// In the first block of a batch: the first block of the next batch, or null.
    batch: *mut Links,
}

impl FreeBlock {
    /// # Safety
    /// - **block**: `links` is the address of the links of a block of some class, which no other
    ///   code uses.
    pub(crate) unsafe fn new(links: NonNull<u8>) -> FreeBlock {
        FreeBlock(links.cast())
    }

    /// Returns the address of the block's links.
    pub(crate) fn address(&self) -> *mut u8 {
        self.0.as_ptr().cast()
    }

    fn links(&mut self) -> &mut Links {
        // SAFETY: no other code uses a free block, and it is aligned and large enough.
        unsafe { self.0.as_mut() }
    }
}

/// A list of free blocks of one class.
#[derive(Debug)]
pub(crate) struct FreeList {
    first: *mut Links,
    len: u32,
}

impl FreeList {
    pub(crate) const fn new() -> FreeList {
        FreeList { first: ptr::null_mut(), len: 0 }
    }

    /// # Safety
    /// - **blocks**: `first` is the first of `len` linked free blocks, and the link of the last
    ///   block is null.
    pub(crate) unsafe fn from_raw(first: *mut u8, len: u32) -> FreeList {
        FreeList { first: first.cast(), len }
    }

    /// Returns the first block, which links to the rest, or null.
    pub(crate) fn into_raw(self) -> *mut u8 {
        self.first.cast()
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn push(&mut self, mut block: FreeBlock) {
        block.links().next = self.first;
        self.first = block.0.as_ptr();
        self.len += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<FreeBlock> {
        let mut block = FreeBlock(NonNull::new(self.first)?);
        self.first = block.links().next;
        self.len -= 1;
        Some(block)
    }
}

impl Default for FreeList {
    fn default() -> FreeList {
        FreeList::new()
    }
}

/// A list of whole batches of one class. Each is a list of `Class::batch` blocks.
#[derive(Debug)]
pub(crate) struct Batches {
    first: *mut Links,
    count: u32,
}

impl Batches {
    pub(crate) const fn new() -> Batches {
        Batches { first: ptr::null_mut(), count: 0 }
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Adds a whole batch.
    pub(crate) fn push(&mut self, batch: FreeList) {
        let Some(first) = NonNull::new(batch.first) else { return };
        FreeBlock(first).links().batch = self.first;
        self.first = first.as_ptr();
        self.count += 1;
    }

    /// Removes the batch that was added last, which has `len` blocks.
    pub(crate) fn pop(&mut self, len: u32) -> Option<FreeList> {
        let first = NonNull::new(self.first)?;
        self.first = FreeBlock(first).links().batch;
        self.count -= 1;
        Some(FreeList { first: first.as_ptr(), len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(memory: &mut [[u128; 1]]) -> impl Iterator<Item = FreeBlock> {
        // SAFETY: block — sixteen bytes each, locals of the test.
        memory.iter_mut().map(|block| unsafe { FreeBlock::new(NonNull::from(block).cast()) })
    }

    #[test]
    fn a_free_list_pops_the_block_that_was_pushed_last() {
        let mut memory = [[0u128; 1]; 3];
        let addresses = memory.each_ref().map(|block| ptr::from_ref(block).cast_mut().cast::<u8>());
        let mut list = FreeList::new();
        blocks(&mut memory).for_each(|block| list.push(block));
        assert_eq!(list.len(), 3);
        let out: Vec<_> = std::iter::from_fn(|| list.pop()).map(|block| block.address()).collect();
        assert_eq!(out, [addresses[2], addresses[1], addresses[0]]);
        assert!(list.is_empty() && list.into_raw().is_null());
    }

    #[test]
    fn batches_keep_their_blocks_together() {
        let mut memory = [[0u128; 1]; 6];
        let mut all = blocks(&mut memory);
        let mut batches = Batches::new();
        for _ in 0..3 {
            let mut batch = FreeList::new();
            all.by_ref().take(2).for_each(|block| batch.push(block));
            batches.push(batch);
        }
        assert_eq!(batches.count(), 3);
        for _ in 0..3 {
            let mut batch = batches.pop(2).unwrap();
            let [a, b] = [batch.pop(), batch.pop()].map(|block| block.unwrap().address() as usize);
            assert_eq!(a - b, 16, "two neighbours, the last one first");
            assert!(batch.pop().is_none());
        }
        assert!(batches.pop(2).is_none());
    }
}
