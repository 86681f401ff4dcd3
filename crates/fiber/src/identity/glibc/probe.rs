//! Finds out how this libc lays out a thread control block, on a real thread.
//!
//! Nothing here is taken from a header: each field is found by what it must hold. The few offsets
//! that are written down are the x86-64 ABI's own (self pointer, stack guard). A plain new thread's
//! block is copied as the pattern of every identity, so fields this crate knows nothing of start as
//! they do on a thread.
//!
//! The probing thread is not alone with its block. An allocator or a sanitizer may set pthread keys
//! of its own there before [`probe_this_thread`] runs, or in any call that allocates. So no look is compared with
//! an earlier one, the probing thread allocates nothing itself, and the pattern has no key set.

use super::symbols::Symbols;
use crate::arch;
use crate::base::unsupported::Unsupported;
use std::mem::MaybeUninit;

/// Keys of `pthread_setspecific` in the block itself; the rest hang off it in tables.
pub(super) const KEYS_IN_BLOCK: usize = 32;

/// Offsets from the thread pointer, and the pattern of a fresh control block.
#[derive(Debug, Default)]
pub(super) struct ProbedBlock {
    /// Size of the control block.
    pub(super) size: usize,
    pub(super) tid: usize,
    /// Node of libc's list of threads.
    pub(super) list: usize,
    /// Head of the robust-mutex list (two words that point at the second).
    pub(super) robust: usize,
    /// First key's sequence and value.
    pub(super) keys: usize,
    /// Byte that says some key was set.
    pub(super) keys_used: usize,
    /// Table of further keys' tables.
    pub(super) key_tables: usize,
    /// Resolver state.
    pub(super) resolver: usize,
    pub(super) pattern: Vec<u8>,
}

/// What the probing thread reports: found, or what it looked for in vain.
type Report = Result<ProbedBlock, &'static str>;

struct ProbeRequest {
    symbols: *const Symbols,
    keys: (libc::pthread_key_t, libc::pthread_key_t),
    /// Empty, with room for the largest block: the probing thread does not allocate.
    pattern: Vec<u8>,
    answer: Report,
}

pub(super) fn probe(symbols: &Symbols) -> Result<ProbedBlock, Unsupported> {
    let keys = Keys::new()?;
    let mut question = ProbeRequest {
        symbols,
        keys: keys.near_and_far()?,
        pattern: Vec::with_capacity(MAX_BLOCK),
        answer: Err("an answer of the thread"),
    };
    let mut thread = MaybeUninit::uninit();
    // SAFETY: `question` outlives the thread, which is joined below. A bare pthread, not a std
    // thread: its block must be as libc made it.
    let failed = unsafe {
        libc::pthread_create(
            thread.as_mut_ptr(),
            std::ptr::null(),
            probe_this_thread,
            (&raw mut question).cast(),
        )
    };
    if failed != 0 {
        let error = std::io::Error::from_raw_os_error(failed);
        return Err(Unsupported::transient("a thread to look at", error.to_string()));
    }
    // SAFETY: filled by pthread_create, which succeeded.
    let thread = unsafe { thread.assume_init() };
    // SAFETY: created above, joined once.
    unsafe { libc::pthread_join(thread, std::ptr::null_mut()) };
    question.answer.map_err(|wanted| Unsupported::new(wanted, "a thread block without it"))
}

/// Some keys, deleted when dropped: at least one beyond those in the block.
struct Keys(Vec<libc::pthread_key_t>);

impl Keys {
    fn new() -> Result<Keys, Unsupported> {
        let mut keys = Keys(Vec::new());
        while keys.0.last().is_none_or(|&key| (key as usize) < KEYS_IN_BLOCK) {
            let mut key = 0;
            // SAFETY: `key` is valid for writes; no destructor.
            if unsafe { libc::pthread_key_create(&mut key, None) } != 0 {
                return Err(Unsupported::new("a free pthread key", "none"));
            }
            keys.0.push(key);
        }
        Ok(keys)
    }

    /// One key in the block and one beyond.
    fn near_and_far(&self) -> Result<(libc::pthread_key_t, libc::pthread_key_t), Unsupported> {
        let near = self.0.iter().find(|&&key| (key as usize) < KEYS_IN_BLOCK);
        let far = self.0.iter().find(|&&key| key as usize >= KEYS_IN_BLOCK);
        match (near, far) {
            (Some(&near), Some(&far)) => Ok((near, far)),
            _ => Err(Unsupported::new("a free pthread key below 32", "none")),
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        for &key in &self.0 {
            // SAFETY: created by `new`, deleted once.
            unsafe { libc::pthread_key_delete(key) };
        }
    }
}

extern "C" fn probe_this_thread(question: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: `probe` passes its `ProbeRequest` and waits; it is this thread's alone.
    let question = unsafe { &mut *question.cast::<ProbeRequest>() };
    // SAFETY: as above.
    let symbols = unsafe { &*question.symbols };
    // Nothing in here may unwind: each look-up answers with what it missed.
    question.answer = find_fields(symbols, question.keys, std::mem::take(&mut question.pattern));
    std::ptr::null_mut()
}

fn find_fields(
    symbols: &Symbols,
    (near, far): (libc::pthread_key_t, libc::pthread_key_t),
    mut pattern: Vec<u8>,
) -> Report {
    let block = Block::of_this_thread()?;
    block.copy_to(&mut pattern);
    let mut found = ProbedBlock { size: block.size, ..ProbedBlock::default() };

    // SAFETY: gettid has no precondition.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    (found.tid, found.robust) =
        find_tid(&pattern, block.at, tid).ok_or("the thread's id in its block, among lists")?;
    found.list = found.tid - 16;

    (found.keys, found.keys_used, found.key_tables) = find_keys(&block, near, far)?;
    // Keys that are set on this thread are not set on a new one.
    let tables_end = found.key_tables + 8 * KEYS_IN_BLOCK;
    pattern.get_mut(found.keys..tables_end).ok_or("a block with its keys inside")?.fill(0);
    *pattern.get_mut(found.keys_used).ok_or("a block with its keys inside")? = 0;

    let resolver = block.at.wrapping_add_signed(symbols.resolver_offset);
    // SAFETY: a static thread-local word of libc, at the same offset on every thread.
    let resolver = unsafe { *(resolver as *const usize) };
    found.resolver = resolver.wrapping_sub(block.at);
    if found.resolver >= block.size {
        return Err("the resolver's state in the block");
    }
    found.pattern = pattern;
    Ok(found)
}

/// Where the thread's id is in its block, and the head of its robust list: between the node of a list
/// and an empty list. The number alone would not do: any half of a pointer may be the same.
fn find_tid(block: &[u8], block_at: usize, tid: u32) -> Option<(usize, usize)> {
    let word = |at: usize| {
        let bytes = block.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, usize::from_ne_bytes)
    };
    let is_linked = |at: usize| word(at) > 0x10000 && word(at).is_multiple_of(8);
    let is_empty_list = |&at: &usize| [word(at), word(at + 8)] == [block_at + at + 8; 2];
    let is_id = |&at: &usize| block[at..at + 4] == tid.to_ne_bytes();
    let ids = (16..block.len() - 4).step_by(4).filter(is_id);
    ids.filter(|&at| is_linked(at - 16) && is_linked(at - 8)).find_map(|at| {
        let robust = (at / 8 * 8..at + 64).step_by(8).find(is_empty_list)?;
        Some((at, robust))
    })
}

fn find_keys(
    block: &Block,
    near: libc::pthread_key_t,
    far: libc::pthread_key_t,
) -> Result<(usize, usize, usize), &'static str> {
    const MARK: usize = 0x5ca1_ab1e_0b5e_55ed;
    let set = |key, value: usize| {
        // SAFETY: the key was created by `probe`; it has no destructor.
        unsafe { libc::pthread_setspecific(key, value as *const libc::c_void) };
    };
    set(near, MARK);
    let value = (0..block.size).step_by(8).find(|&at| block.word(at) == MARK);
    let value = value.ok_or("the value of a pthread key in the block")?;
    let keys = value.checked_sub(8 + 16 * near as usize).ok_or("a table of keys in the block")?;

    set(far, MARK);
    let tables = keys + 16 * KEYS_IN_BLOCK;
    let table = block.word(tables + 8 * (far as usize / KEYS_IN_BLOCK));
    let place = 16 * (far as usize % KEYS_IN_BLOCK) + 8;
    // SAFETY: if the guess is right this is the key's value in libc's table; a null or small word
    // is not followed.
    let right = table > 0x10000 && unsafe { *((table + place) as *const usize) } == MARK;
    if !right {
        return Err("a table of further keys behind the first");
    }

    // The flag is 1 now. Of the bytes behind the tables that are 1, only the flag becomes 1 again
    // when a key is set.
    let flag = (tables + 8 * KEYS_IN_BLOCK..block.size).find(|&at| {
        let is_set = block.byte(at) == 1;
        is_set && block.test_flag_byte(at, || set(near, MARK))
    });
    let flag = flag.ok_or("a flag that keys were used")?;
    set(near, 0);
    set(far, 0);
    Ok((keys, flag, tables))
}

/// No libc has a larger control block.
const MAX_BLOCK: usize = 0x4000;

/// The control block of the calling thread.
struct Block {
    at: usize,
    size: usize,
}

/// Reads outside the block give 0: what is looked for is then not found.
impl Block {
    fn of_this_thread() -> Result<Block, &'static str> {
        let at = arch::thread_pointer();
        // SAFETY: pthread_self has no precondition.
        let myself = unsafe { libc::pthread_self() };
        if myself as usize != at {
            return Err("pthread_self() equal to the thread pointer");
        }
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: this thread's own handle; `attributes` is valid for writes.
        if unsafe { libc::pthread_getattr_np(myself, attributes.as_mut_ptr()) } != 0 {
            return Err("pthread_getattr_np of a thread");
        }
        let (mut stack, mut bytes) = (std::ptr::null_mut(), 0);
        // SAFETY: filled by the call above.
        unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &mut stack, &mut bytes) };
        // SAFETY: filled above, destroyed once.
        unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
        // The block ends the thread's memory.
        let size = (stack as usize + bytes).wrapping_sub(at);
        if !(0x300..=MAX_BLOCK).contains(&size) || !size.is_multiple_of(8) {
            return Err("the thread's block at the end of its stack");
        }
        Ok(Block { at, size })
    }

    /// `pattern` has room for [`MAX_BLOCK`] bytes, so it does not grow.
    fn copy_to(&self, pattern: &mut Vec<u8>) {
        // SAFETY: the block is readable over its whole size, and this thread's own.
        let block = unsafe { std::slice::from_raw_parts(self.at as *const u8, self.size) };
        pattern.extend_from_slice(block);
    }

    /// Whether `change` makes a byte 1 that was made 0 before. A byte that stays 0 gets its 1 back.
    fn test_flag_byte(&self, at: usize, change: impl FnOnce()) -> bool {
        let byte = (self.at + at) as *mut u8;
        // SAFETY: inside the block of this thread, which runs nothing but `change` until the byte
        // has its value back. Volatile: libc changes it behind the compiler's back.
        unsafe { std::ptr::write_volatile(byte, 0) };
        change();
        let is_set = self.byte(at) == 1;
        // SAFETY: as above.
        unsafe { std::ptr::write_volatile(byte, 1) };
        is_set
    }

    fn word(&self, at: usize) -> usize {
        if at + 8 > self.size {
            return 0;
        }
        // SAFETY: inside the block. Volatile: libc changes it behind the compiler's back.
        unsafe { std::ptr::read_volatile((self.at + at) as *const usize) }
    }

    fn byte(&self, at: usize) -> u8 {
        if at >= self.size {
            return 0;
        }
        // SAFETY: as in `word`.
        unsafe { std::ptr::read_volatile((self.at + at) as *const u8) }
    }
}

#[cfg(test)]
mod tests {
    use super::find_tid;

    /// A block as a thread has it: pointers to itself, a list node, the id, an empty robust list.
    fn block(at: usize, tid: u32) -> Vec<u8> {
        let mut block = vec![0; 0x900];
        let mut put = |place: usize, word: usize| {
            block[place..place + 8].copy_from_slice(&word.to_ne_bytes());
        };
        put(0x00, at);
        put(0x08, at + 0x1000);
        put(0x10, at);
        put(0x2c0, at - 0x8000);
        put(0x2c8, at + 0x8000);
        put(0x2d0, tid as usize);
        put(0x2e0, at + 0x2e8);
        put(0x2e8, at + 0x2e8);
        block
    }

    #[test]
    fn an_id_that_equals_half_a_pointer_is_found_where_it_is() {
        let at = 0x7fff_1234_5000;
        // Half of the pointer to the block itself, of the other, and of those in the list node.
        for tid in [1, 0x7fff, 0x1234_5000, 0x1234_6000, 0x1233_d000, 0x1234_d000] {
            assert_eq!(find_tid(&block(at, tid), at, tid), Some((0x2d0, 0x2e0)), "{tid:#x}");
        }
    }

    #[test]
    fn a_block_without_the_lists_around_the_id_is_none() {
        let at = 0x7fff_1234_5000;
        assert_eq!(find_tid(&block(at, 7), at, 8), None);
        for missing in [0x2c0, 0x2c8, 0x2e0, 0x2e8] {
            let mut block = block(at, 7);
            block[missing..missing + 8].fill(0);
            assert_eq!(find_tid(&block, at, 7), None, "{missing:#x}");
        }
    }
}
