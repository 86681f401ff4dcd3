//! Helpers for the suites `alloc` and `alloc_edge_cases`: blocks with verifiable contents, a
//! backing allocator for the allocation cache, and an exchange of blocks between threads or
//! goroutines.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock};

/// Size and alignment of the chunks from which small blocks are cut.
pub const CHUNK: usize = 1 << 20;

/// Size of the largest block that is cut from a chunk.
pub const SMALL: usize = if cfg!(debug_assertions) { (16 << 10) - 32 } else { 16 << 10 };

const LARGEST: usize = 128 << 10;
const PATTERN_STARTS: usize = 1 << 16;

/// Returns the layout of `size` bytes with malloc's alignment.
///
/// # Panics
/// The size is too large for a layout.
pub fn layout_of(size: usize) -> Layout {
    Layout::from_size_align(size, 16).expect("a size that can be")
}

/// A generator of pseudo-random numbers (xorshift).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Creates the generator with this seed.
    pub fn new(seed: u64) -> Random {
        Random((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Returns the next number, less than `end`.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % end
    }

    /// Returns a size from 1 to 40000 bytes; small sizes are more likely.
    pub fn size(&mut self) -> usize {
        let largest = [64, 512, 4096, SMALL + 64, 40_000][self.below(5)];
        1 + self.below(largest)
    }

    /// Returns such a size with an alignment from 1 to 65536; small alignments are more likely.
    ///
    /// # Panics
    /// Never.
    pub fn layout(&mut self) -> Layout {
        let powers = [5, 5, 5, 13, 17][self.below(5)];
        Layout::from_size_align(self.size(), 1 << self.below(powers)).expect("both are small")
    }
}

/// Returns the bytes that blocks are filled with. Each block holds a part that begins at its own
/// offset.
fn fill_pattern() -> &'static [u8] {
    static TABLE: OnceLock<Vec<u8>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut random = Random::new(0);
        (0..PATTERN_STARTS + LARGEST).map(|_| random.below(256) as u8).collect()
    })
}

/// A block of memory with known contents.
#[derive(Debug)]
pub struct Block {
    start: NonNull<u8>,
    layout: Layout,
    pattern_start: usize,
}

// SAFETY: the block owns its memory, and any thread may free it.
unsafe impl Send for Block {}

impl Block {
    /// Allocates a block from `alloc` and fills it. Returns `None` if the allocator refuses.
    ///
    /// # Panics
    /// The block is not aligned.
    pub fn new(alloc: &impl GlobalAlloc, layout: Layout) -> Option<Block> {
        // SAFETY: the size is not 0.
        let start = unsafe { alloc.alloc(layout) };
        Some(Block::at(NonNull::new(start)?, layout))
    }

    /// Allocates a block of zeroed memory from `alloc`, checks it, and fills it. Returns `None` if
    /// the allocator refuses.
    ///
    /// # Panics
    /// The block is not aligned, or not zero.
    pub fn zeroed(alloc: &impl GlobalAlloc, layout: Layout) -> Option<Block> {
        static ZEROS: [u8; LARGEST] = [0; LARGEST];
        // SAFETY: the size is not 0.
        let start = NonNull::new(unsafe { alloc.alloc_zeroed(layout) })?;
        // SAFETY: the block is ours, and `alloc_zeroed` initialized it.
        let contents = unsafe { std::slice::from_raw_parts(start.as_ptr(), layout.size()) };
        assert!(contents == &ZEROS[..layout.size()], "{start:?} {layout:?} is not zero");
        Some(Block::at(start, layout))
    }

    fn at(start: NonNull<u8>, layout: Layout) -> Block {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let mark = NEXT.fetch_add(1, SeqCst).wrapping_mul(7919) % PATTERN_STARTS;
        assert!(start.addr().get().is_multiple_of(layout.align()), "{start:?} {layout:?}");
        let block = Block { start, layout, pattern_start: mark };
        block.fill();
        block
    }

    /// Returns the address of the block.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns the layout that the block was allocated with.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    fn expected(&self) -> &'static [u8] {
        &fill_pattern()[self.pattern_start..][..self.layout.size()]
    }

    fn fill(&self) {
        let from = self.expected();
        // SAFETY: both have this length, and the block is ours alone.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.start(), from.len()) }
    }

    /// Checks that the block contains the bytes it was filled with.
    ///
    /// # Panics
    /// The contents differ.
    pub fn check(&self) {
        self.check_first(self.layout.size());
    }

    fn check_first(&self, count: usize) {
        // SAFETY: the block is ours, and filled.
        let contents = unsafe { std::slice::from_raw_parts(self.start(), count) };
        let wrong = || contents.iter().zip(self.expected()).position(|(a, b)| a != b);
        assert!(contents == &self.expected()[..count], "{self:?} differs from {:?} on", wrong());
    }

    /// Resizes the block and fills it again. Returns false if the allocator refuses; the block is
    /// then unchanged.
    ///
    /// # Panics
    /// The contents did not survive.
    pub fn resize(&mut self, alloc: &impl GlobalAlloc, size: usize) -> bool {
        // SAFETY: the block is `alloc`'s, of this layout; the size is not 0.
        let moved = unsafe { alloc.realloc(self.start(), self.layout, size) };
        let Some(moved) = NonNull::new(moved) else {
            self.check();
            return false;
        };
        self.start = moved;
        self.check_first(size.min(self.layout.size()));
        let layout = Layout::from_size_align(size, self.layout.align()).expect("it was done");
        *self = Block::at(moved, layout);
        true
    }

    /// Checks the contents and frees the block.
    ///
    /// # Panics
    /// The contents are wrong.
    pub fn free(self, alloc: &impl GlobalAlloc) {
        self.check();
        // SAFETY: `alloc` returned the block for this layout, and the block is not used again.
        unsafe { alloc.dealloc(self.start(), self.layout) }
    }
}

thread_local! {
    /// Number of the goroutine or thread that owns these thread-locals; 0 until a test sets it.
    pub static CALLER_ID: Cell<usize> = const { Cell::new(0) };
    static SEEN: Cell<bool> = const { Cell::new(false) };
}

/// First [`CALLER_ID`] of threads. Goroutines have smaller numbers.
pub const FIRST_THREAD_ID: usize = 1 << 20;

/// The system's allocator with counters. It can be set to refuse requests.
#[derive(Debug, Default)]
pub struct BackingAlloc {
    /// Number of allocations requested.
    pub calls: AtomicUsize,
    /// Number of requests that were refused.
    pub refused: AtomicUsize,
    /// Number of chunks allocated.
    pub chunks: AtomicUsize,
    /// Number of chunks freed.
    pub chunks_back: AtomicUsize,
    /// Bytes in use by blocks that are not chunks.
    pub large: AtomicUsize,
    /// Number of calls made by a goroutine or with a goroutine's thread-locals.
    pub as_goroutine: AtomicUsize,
    /// Number of different sets of thread-locals that calls were made with.
    pub heaps: AtomicUsize,
    refuse: AtomicUsize,
}

impl BackingAlloc {
    /// Creates an allocator that refuses nothing.
    pub const fn new() -> BackingAlloc {
        BackingAlloc {
            calls: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            chunks: AtomicUsize::new(0),
            chunks_back: AtomicUsize::new(0),
            large: AtomicUsize::new(0),
            as_goroutine: AtomicUsize::new(0),
            heaps: AtomicUsize::new(0),
            refuse: AtomicUsize::new(0),
        }
    }

    /// Refuses every `nth` request from here on: all requests if `nth` is 1, none if it is 0.
    pub fn refuse_every(&self, nth: usize) {
        self.refuse.store(nth, SeqCst);
    }

    /// Returns whether a call was made with the caller's thread-locals.
    pub fn was_entered_by_caller() -> bool {
        SEEN.get()
    }

    fn enter(&self) {
        if gosched::current().is_some() || (1..FIRST_THREAD_ID).contains(&CALLER_ID.get()) {
            self.as_goroutine.fetch_add(1, SeqCst);
        }
        if !SEEN.replace(true) {
            self.heaps.fetch_add(1, SeqCst);
        }
    }
}

fn is_chunk(layout: Layout) -> bool {
    layout.align() == CHUNK && layout.size().is_multiple_of(CHUNK)
}

// SAFETY: memory comes from the system's allocator; a refusal returns null.
unsafe impl GlobalAlloc for &'static BackingAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.enter();
        let nth = self.refuse.load(SeqCst);
        let call = self.calls.fetch_add(1, SeqCst);
        if nth > 0 && call.is_multiple_of(nth) {
            self.refused.fetch_add(1, SeqCst);
            return std::ptr::null_mut();
        }
        if is_chunk(layout) {
            self.chunks.fetch_add(1, SeqCst);
        } else {
            self.large.fetch_add(layout.size(), SeqCst);
        }
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        self.enter();
        if is_chunk(layout) {
            self.chunks_back.fetch_add(1, SeqCst);
        } else {
            self.large.fetch_sub(layout.size(), SeqCst);
        }
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(start, layout) }
    }
}

/// A table through which threads or goroutines exchange blocks. It records the address ranges in
/// use and detects overlaps.
#[derive(Debug)]
pub struct Exchange<A: 'static> {
    alloc: &'static A,
    taken: Mutex<BTreeMap<usize, usize>>,
    table: Vec<Mutex<Option<Block>>>,
    refused: AtomicUsize,
}

impl<A: GlobalAlloc + Sync> Exchange<A> {
    /// Creates an empty exchange.
    pub fn new(alloc: &'static A) -> Exchange<A> {
        let table = (0..64).map(|_| Mutex::new(None)).collect();
        Exchange { alloc, taken: Mutex::default(), table, refused: AtomicUsize::new(0) }
    }

    /// Returns how often an allocation was refused.
    pub fn refused(&self) -> usize {
        self.refused.load(SeqCst)
    }

    fn register(&self, block: Option<Block>, own: &mut Vec<Block>) {
        let Some(block) = block else {
            self.refused.fetch_add(1, SeqCst);
            return;
        };
        let start = block.start().addr();
        let end = start + block.layout().size();
        let mut taken = self.taken.lock().unwrap();
        if let Some((&before, &until)) = taken.range(..end).next_back() {
            assert!(until <= start, "{block:?} and {before:#x}..{until:#x} are both in use");
        }
        taken.insert(start, end);
        own.push(block);
    }

    fn unregister(&self, own: &mut Vec<Block>, at: usize) -> Block {
        let block = own.swap_remove(at);
        let end = self.taken.lock().unwrap().remove(&block.start().addr());
        assert_eq!(end, Some(block.start().addr() + block.layout().size()));
        block
    }

    /// Performs a random operation: allocates, resizes, exchanges or frees a block.
    ///
    /// # Panics
    /// A block overlaps another, is misaligned, or has wrong contents.
    pub fn step(&self, random: &mut Random, own: &mut Vec<Block>) {
        let any = random.below(own.len().max(1));
        match random.below(12) {
            0..=2 if own.len() < 48 => self.register(Block::new(self.alloc, random.layout()), own),
            3 if own.len() < 48 => self.register(Block::zeroed(self.alloc, random.layout()), own),
            4..=5 if !own.is_empty() => {
                let mut block = self.unregister(own, any);
                if !block.resize(self.alloc, random.size()) {
                    self.refused.fetch_add(1, SeqCst);
                }
                self.register(Some(block), own);
            }
            6..=7 if !own.is_empty() => {
                let slot = &self.table[random.below(self.table.len())];
                let before = slot.lock().unwrap().replace(own.swap_remove(any));
                own.extend(before.inspect(Block::check));
            }
            8 => self.burst(random),
            _ if !own.is_empty() => self.unregister(own, any).free(self.alloc),
            _ => {}
        }
    }

    /// Allocates and frees blocks of one layout without registering them, so that no lock slows it
    /// down.
    fn burst(&self, random: &mut Random) {
        let layout = random.layout();
        let count = random.below(32);
        let mut own: Vec<_> = (0..count).filter_map(|_| Block::new(self.alloc, layout)).collect();
        self.refused.fetch_add(count - own.len(), SeqCst);
        while !own.is_empty() {
            own.swap_remove(random.below(own.len())).free(self.alloc);
        }
    }

    /// Frees these blocks.
    ///
    /// # Panics
    /// A block has wrong contents or is not registered.
    pub fn free_blocks(&self, mut own: Vec<Block>) {
        while !own.is_empty() {
            self.unregister(&mut own, 0).free(self.alloc);
        }
    }

    /// Frees the blocks left in the table and checks that no block is in use.
    ///
    /// # Panics
    /// A block has wrong contents, or a block is still in use.
    pub fn close(&self) {
        let left = self.table.iter().filter_map(|slot| slot.lock().unwrap().take());
        self.free_blocks(left.collect());
        assert!(self.taken.lock().unwrap().is_empty());
    }
}
