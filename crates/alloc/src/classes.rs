//! The size classes of blocks: 16 bytes apart up to 128, then four per doubling, up to 16 KiB.
//! Above 128 bytes, a block wastes at most a fifth of its size, unless the program asks for an
//! alignment above 16 bytes. This module only computes: it never
//! touches the memory of a block.

use gosched_fiber::magazine;

/// Number of classes.
pub(crate) const CLASS_COUNT: usize = magazine::CLASS_COUNT;

/// Size of the largest block in bytes. Larger blocks come from the allocator behind.
pub(crate) const LARGEST: usize = 16 << 10;

/// Minimum alignment of a block in bytes. A block whose size is a multiple of a larger power of two
/// is aligned to that power.
pub(crate) const ALIGN: usize = 16;

/// A size class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(u8);

/// Number of classes that are 16 bytes apart. The classes after them come in groups of four.
const EVEN: usize = 8;

const SIZES: [u16; CLASS_COUNT] = {
    let mut sizes = [0; CLASS_COUNT];
    let mut i = 0;
    while i < CLASS_COUNT {
        sizes[i] = if i < EVEN {
            (i as u16 + 1) * 16
        } else {
            let base = 128 << ((i - EVEN) / 4);
            base + base / 4 * ((i - EVEN) as u16 % 4 + 1)
        };
        i += 1;
    }
    sizes
};

const _: () = assert!(SIZES[CLASS_COUNT - 1] as usize == LARGEST);

/// Up to this size, classes are looked up in a table with steps of [`FINE`] bytes; above it, in one
/// with steps of [`COARSE`] bytes.
const FINE_UP_TO: usize = 1024;
const FINE: usize = 16;
const COARSE: usize = 128;

static BY_FINE: [u8; FINE_UP_TO / FINE + 1] = table(FINE);
static BY_COARSE: [u8; LARGEST / COARSE + 1] = table(COARSE);

/// Returns, for each multiple of `step`, the first class that holds it.
const fn table<const N: usize>(step: usize) -> [u8; N] {
    let mut table = [0; N];
    let (mut i, mut class) = (0, 0);
    while i < N {
        while (SIZES[class] as usize) < i * step {
            class += 1;
        }
        table[i] = class as u8;
        i += 1;
    }
    table
}

impl Class {
    /// Returns the class for a value of `size` and `align`, or `None` if the value is too large.
    #[inline(always)]
    pub(crate) fn of(size: usize, align: usize) -> Option<Class> {
        if size <= FINE_UP_TO && align <= ALIGN {
            return Some(Class(BY_FINE[size.div_ceil(FINE)]));
        }
        Class::of_others(size, align)
    }

    fn of_others(size: usize, align: usize) -> Option<Class> {
        let size = size.max(1).checked_next_multiple_of(align).filter(|&size| size <= LARGEST)?;
        let class = if size <= FINE_UP_TO {
            BY_FINE[size.div_ceil(FINE)]
        } else {
            BY_COARSE[size.div_ceil(COARSE)]
        };
        // Blocks lie at multiples of their size, in a span that is aligned to more than any block
        // size.
        (class..CLASS_COUNT as u8).map(Class).find(|class| class.size().is_multiple_of(align))
    }

    /// Returns all classes, from the smallest.
    pub(crate) fn all() -> impl Iterator<Item = Class> {
        (0..CLASS_COUNT as u8).map(Class)
    }

    /// Returns the number of the class, which is below [`CLASS_COUNT`].
    #[inline(always)]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the size of a block in bytes.
    pub(crate) const fn size(self) -> usize {
        SIZES[self.index()] as usize
    }

    /// Returns the number of blocks in a batch: what a magazine holds, and what a thread exchanges
    /// with a central list at a time. As many as fit in 16 KiB, but at least 2 and at most 128.
    pub(crate) const fn batch(self) -> u32 {
        let count = (16 << 10) / self.size();
        (if count < 2 {
            2
        } else if count > 128 {
            128
        } else {
            count
        }) as u32
    }

    /// Returns the maximum number of batches on a central list, before blocks go back to their
    /// spans: as many as fit in 512 KiB.
    pub(crate) const fn max_central_batches(self) -> u32 {
        ((512 << 10) / (self.batch() as usize * self.size())) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_sizes_grow_by_at_most_a_quarter_or_16_bytes() {
        let sizes: Vec<usize> = Class::all().map(Class::size).collect();
        assert_eq!(&sizes[..14], [16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384]);
        assert_eq!(sizes.last(), Some(&LARGEST));
        for pair in sizes.windows(2) {
            assert!(pair[0] < pair[1] && pair[1] - pair[0] <= (pair[0] / 4).max(16), "{pair:?}");
        }
    }

    #[test]
    fn every_size_gets_the_smallest_block_that_holds_it() {
        for size in 0..=LARGEST {
            let expected = Class::all().find(|class| class.size() >= size);
            for align in [1, 2, 4, 8, 16] {
                assert_eq!(Class::of(size, align), expected, "{size}, {align}");
            }
        }
        for size in [LARGEST + 1, 1 << 20, isize::MAX as usize, usize::MAX] {
            assert_eq!(Class::of(size, 1), None);
        }
    }

    #[test]
    fn blocks_for_large_alignments_are_multiples_of_them() {
        for align in (5..=16).map(|bits| 1usize << bits) {
            for size in [0, 1, align - 1, align, align + 1, 3 * align, 1000, LARGEST] {
                let Some(class) = Class::of(size, align) else {
                    assert!(size.max(align) * 2 > LARGEST, "{size}, {align}");
                    continue;
                };
                assert!(
                    class.size() >= size && class.size().is_multiple_of(align),
                    "{size}, {align}"
                );
                assert!(class.size() <= 2 * size.max(align), "{size}, {align}: {class:?}");
            }
        }
        assert_eq!(Class::of(1, 1 << 63), None);
    }

    #[test]
    fn the_memory_that_a_thread_may_cache_is_bounded() {
        let most = |class: Class| 2 * class.batch() as usize * class.size();
        let all: usize = Class::all().map(most).sum();
        assert!(all <= 1200 << 10, "{all}");
        assert!(Class::all().all(|class| class.batch() >= 2 && class.max_central_batches() >= 16));
    }
}
