//! Blocks whose contents tell whose they are, an allocator to stand behind the allocation cache, and
//! a place where threads or goroutines exchange blocks: for the suites `alloc` and `alloc_edge_cases`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock};

/// What small blocks are cut from: of this size, and aligned to it.
pub const CHUNK: usize = 1 << 20;

/// The largest block that is cut from a chunk.
pub const SMALL: usize = if cfg!(debug_assertions) { (16 << 10) - 32 } else { 16 << 10 };

const LARGEST: usize = 128 << 10;
const PATTERN_STARTS: usize = 1 << 16;

/// The layout of `size` bytes as malloc aligns them.
///
/// # Panics
/// There is no such layout.
pub fn layout_of(size: usize) -> Layout {
    Layout::from_size_align(size, 16).expect("a size that can be")
}

/// Numbers from a seed, by xorshift.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Random {
        Random((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// The next number, less than `end`.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % end
    }

    /// 1 to 40000 bytes, most often few.
    pub fn size(&mut self) -> usize {
        let largest = [64, 512, 4096, SMALL + 64, 40_000][self.below(5)];
        1 + self.below(largest)
    }

    /// Such a size, aligned to 1 to 65536 bytes, most often few.
    ///
    /// # Panics
    /// Never.
    pub fn layout(&mut self) -> Layout {
        let powers = [5, 5, 5, 13, 17][self.below(5)];
        Layout::from_size_align(self.size(), 1 << self.below(powers)).expect("both are small")
    }
}

/// What blocks hold: each a part of this, at a place of its own.
fn fill_pattern() -> &'static [u8] {
    static TABLE: OnceLock<Vec<u8>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut random = Random::new(0);
        (0..PATTERN_STARTS + LARGEST).map(|_| random.below(256) as u8).collect()
    })
}

/// A block that knows what it must contain.
#[derive(Debug)]
pub struct Block {
    start: NonNull<u8>,
    layout: Layout,
    pattern_start: usize,
}

// SAFETY: the memory is this block's alone, and any thread may free it.
unsafe impl Send for Block {}

impl Block {
    /// A block of `alloc`'s, if there is one, filled.
    ///
    /// # Panics
    /// It is not aligned.
    pub fn new(alloc: &impl GlobalAlloc, layout: Layout) -> Option<Block> {
        // SAFETY: the size is not 0.
        let start = unsafe { alloc.alloc(layout) };
        Some(Block::at(NonNull::new(start)?, layout))
    }

    /// The same, of memory that has to be zero.
    ///
    /// # Panics
    /// It is not aligned, or not zero.
    pub fn zeroed(alloc: &impl GlobalAlloc, layout: Layout) -> Option<Block> {
        static ZEROS: [u8; LARGEST] = [0; LARGEST];
        // SAFETY: the size is not 0.
        let start = NonNull::new(unsafe { alloc.alloc_zeroed(layout) })?;
        // SAFETY: the block is ours, and alloc_zeroed wrote it.
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

    /// Where it begins.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// What it was asked for with.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    fn expected(&self) -> &'static [u8] {
        &fill_pattern()[self.pattern_start..][..self.layout.size()]
    }

    fn fill(&self) {
        let from = self.expected();
        // SAFETY: both are of this length; the block is ours alone.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.start(), from.len()) }
    }

    /// Fails unless it contains what was last written to it.
    ///
    /// # Panics
    /// It does not.
    pub fn check(&self) {
        self.check_first(self.layout.size());
    }

    fn check_first(&self, count: usize) {
        // SAFETY: the block is ours, and filled.
        let contents = unsafe { std::slice::from_raw_parts(self.start(), count) };
        let wrong = || contents.iter().zip(self.expected()).position(|(a, b)| a != b);
        assert!(contents == &self.expected()[..count], "{self:?} differs from {:?} on", wrong());
    }

    /// Makes it larger or smaller; false if there is no memory, and then it is as before.
    ///
    /// # Panics
    /// Its contents did not survive.
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

    /// Gives it back, after a last look.
    ///
    /// # Panics
    /// Its contents are wrong.
    pub fn free(self, alloc: &impl GlobalAlloc) {
        self.check();
        // SAFETY: the block is `alloc`'s, of this layout, and not used any more.
        unsafe { alloc.dealloc(self.start(), self.layout) }
    }
}

thread_local! {
    /// Whose thread-locals these are: 0 until somebody says so.
    pub static CALLER_ID: Cell<usize> = const { Cell::new(0) };
    static SEEN: Cell<bool> = const { Cell::new(false) };
}

/// Goroutines call themselves less than this in [`CALLER_ID`], threads this or more.
pub const FIRST_THREAD_ID: usize = 1 << 20;

/// The system's allocator, with a count of what it was asked for; it can refuse.
#[derive(Debug, Default)]
pub struct BackingAlloc {
    /// How often memory was asked for.
    pub calls: AtomicUsize,
    /// Of those, how often it was refused.
    pub refused: AtomicUsize,
    /// How many chunks were taken.
    pub chunks: AtomicUsize,
    /// How many chunks were given back.
    pub chunks_back: AtomicUsize,
    /// Bytes of other blocks, taken and not given back.
    pub large: AtomicUsize,
    /// Entered by a goroutine, or with its thread-locals.
    pub as_goroutine: AtomicUsize,
    /// How many sets of thread-locals it was entered with.
    pub heaps: AtomicUsize,
    refuse: AtomicUsize,
}

impl BackingAlloc {
    /// One that refuses nothing.
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

    /// From now on each `nth` request is refused; with 1 all are, with 0 none.
    pub fn refuse_every(&self, nth: usize) {
        self.refuse.store(nth, SeqCst);
    }

    /// Whether it has entered with the caller's thread-locals.
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

// SAFETY: memory is the system's; a refusal is a null pointer.
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
        // SAFETY: the caller's promise is ours.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        self.enter();
        if is_chunk(layout) {
            self.chunks_back.fetch_add(1, SeqCst);
        } else {
            self.large.fetch_sub(layout.size(), SeqCst);
        }
        // SAFETY: the caller's promise is ours.
        unsafe { System.dealloc(start, layout) }
    }
}

/// Where threads or goroutines exchange blocks. It knows who has which addresses.
#[derive(Debug)]
pub struct Exchange<A: 'static> {
    alloc: &'static A,
    taken: Mutex<BTreeMap<usize, usize>>,
    table: Vec<Mutex<Option<Block>>>,
    refused: AtomicUsize,
}

impl<A: GlobalAlloc + Sync> Exchange<A> {
    /// With nothing in it.
    pub fn new(alloc: &'static A) -> Exchange<A> {
        let table = (0..64).map(|_| Mutex::new(None)).collect();
        Exchange { alloc, taken: Mutex::default(), table, refused: AtomicUsize::new(0) }
    }

    /// How often there was no memory.
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

    /// One thing that a program may do with memory.
    ///
    /// # Panics
    /// A rule is broken.
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

    /// Blocks of one layout, of which nobody else hears, so that no lock is in the way.
    fn burst(&self, random: &mut Random) {
        let layout = random.layout();
        let count = random.below(32);
        let mut own: Vec<_> = (0..count).filter_map(|_| Block::new(self.alloc, layout)).collect();
        self.refused.fetch_add(count - own.len(), SeqCst);
        while !own.is_empty() {
            own.swap_remove(random.below(own.len())).free(self.alloc);
        }
    }

    /// Frees these.
    ///
    /// # Panics
    /// A rule is broken.
    pub fn free_blocks(&self, mut own: Vec<Block>) {
        while !own.is_empty() {
            self.unregister(&mut own, 0).free(self.alloc);
        }
    }

    /// Frees what is still here, after which nothing may be in use.
    ///
    /// # Panics
    /// A rule is broken.
    pub fn close(&self) {
        let left = self.table.iter().filter_map(|slot| slot.lock().unwrap().take());
        self.free_blocks(left.collect());
        assert!(self.taken.lock().unwrap().is_empty());
    }
}
