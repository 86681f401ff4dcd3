//! Finds the layout of this libc's thread control block by examining a real thread.
//!
//! Each field is found by the value that it must hold, not by an offset from a header. The only
//! offsets that are not found this way are those of the x86-64 ABI (self pointer, DTV). The block
//! of a plain new thread is copied as the pattern of every identity, so fields that this crate does
//! not know start as they do on a thread.
//!
//! Other code also writes to the block of the probing thread. An allocator or a sanitizer may set
//! pthread keys of its own there before [`probe_this_thread`] runs, or in any call that allocates.
//! So no two copies of the block are compared, the probing thread does not allocate, and all keys
//! in the pattern are cleared.
//!
//! The probe never changes the block of a thread that it has not started.

use super::symbols::Symbols;
use crate::arch;
use crate::base::unsupported::Unsupported;
use std::mem::MaybeUninit;

/// Number of pthread keys that are stored in the block itself. Further keys are in tables that the
/// block points to.
pub(super) const KEYS_IN_BLOCK: usize = 32;

/// The layout of a control block, and the pattern of a fresh one. All fields except `size` and
/// `pattern` are offsets in bytes from the thread pointer.
#[derive(Debug, Default)]
pub(super) struct ProbedBlock {
    /// Size of the control block in bytes.
    pub(super) size: usize,
    pub(super) tid: usize,
    /// Node of libc's list of threads.
    pub(super) list: usize,
    /// Head of the robust-mutex list: two words that both point at the second word while the list
    /// is empty.
    pub(super) robust: usize,
    /// Record of the first pthread key: sequence and value.
    pub(super) keys: usize,
    /// Byte that libc sets to 1 when a key is set.
    pub(super) keys_used: usize,
    /// Array of pointers to the tables of further keys.
    pub(super) key_tables: usize,
    /// State of the resolver.
    pub(super) resolver: usize,
    pub(super) pattern: Vec<u8>,
}

/// The result of the probing thread: the layout, or what it could not find.
type Report = Result<ProbedBlock, &'static str>;

struct ProbeRequest {
    symbols: *const Symbols,
    keys: (libc::pthread_key_t, libc::pthread_key_t),
    /// Empty, with capacity for the largest block, so that the probing thread does not allocate.
    pattern: Vec<u8>,
    answer: Report,
}

/// Starts a thread, and returns the layout of its control block.
pub(super) fn probe(symbols: &Symbols) -> Result<ProbedBlock, Unsupported> {
    let keys = Keys::new()?;
    let mut question = ProbeRequest {
        symbols,
        keys: keys.near_and_far()?,
        pattern: Vec::with_capacity(MAX_BLOCK),
        answer: Err("a result from the probing thread"),
    };
    let mut thread = MaybeUninit::uninit();
    // SAFETY: `question` outlives the thread, which is joined below. A plain pthread, not a std
    // thread, because the block must be as libc created it.
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
        return Err(Unsupported::transient("a thread to probe", error.to_string()));
    }
    // SAFETY: filled by pthread_create, which succeeded.
    let thread = unsafe { thread.assume_init() };
    // SAFETY: created above, joined once.
    unsafe { libc::pthread_join(thread, std::ptr::null_mut()) };
    question.answer.map_err(|wanted| Unsupported::new(wanted, "a control block without it"))
}

/// Pthread keys, deleted when dropped. The last one is not stored in the block.
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

    /// Returns one key that is stored in the block and one that is not.
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
    // SAFETY: `probe` passes its `ProbeRequest` and waits; only this thread uses it.
    let question = unsafe { &mut *question.cast::<ProbeRequest>() };
    // SAFETY: as above.
    let symbols = unsafe { &*question.symbols };
    // This function must not unwind into libc: a search that fails returns what it could not find.
    question.answer = find_fields(symbols, question.keys, std::mem::take(&mut question.pattern));
    std::ptr::null_mut()
}

/// Finds all fields in the calling thread's block. Does not allocate: `pattern` has the capacity it
/// needs.
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
    (found.tid, found.robust) = find_tid(&pattern, block.at, tid)
        .ok_or("the thread id in the control block, between two lists")?;
    found.list = found.tid - 16;

    (found.keys, found.keys_used, found.key_tables) = find_keys(&block, near, far)?;
    // A new thread has no key set, but an allocator may have set some on this thread.
    let tables_end = found.key_tables + 8 * KEYS_IN_BLOCK;
    pattern
        .get_mut(found.keys..tables_end)
        .ok_or("a control block that contains its pthread keys")?
        .fill(0);
    *pattern.get_mut(found.keys_used).ok_or("a control block that contains its pthread keys")? = 0;

    let resolver = block.at.wrapping_add_signed(symbols.resolver_offset);
    // SAFETY: a static thread-local of libc, at the same offset on every thread.
    let resolver = unsafe { *(resolver as *const usize) };
    found.resolver = resolver.wrapping_sub(block.at);
    if found.resolver >= block.size {
        return Err("the resolver's state in the block");
    }
    found.pattern = pattern;
    Ok(found)
}

/// Returns the offsets of the thread's id and of the head of its robust list. The id lies between a
/// list node and an empty list. Its value alone is not enough: half of a pointer may have the same
/// value. The upper half of a pointer to a mapping is such a number (`0x7f…`), but the id starts at
/// a multiple of 8, because it follows a list node. A lower half of the node's own pointers starts
/// there too, so the last match counts.
fn find_tid(block: &[u8], block_at: usize, tid: u32) -> Option<(usize, usize)> {
    let word = |at: usize| {
        let bytes = block.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, usize::from_ne_bytes)
    };
    let is_linked = |at: usize| word(at) > 0x10000 && word(at).is_multiple_of(8);
    let is_empty_list = |&at: &usize| [word(at), word(at + 8)] == [block_at + at + 8; 2];
    let is_id = |&at: &usize| block[at..at + 4] == tid.to_ne_bytes();
    let ids = (16..block.len() - 4).step_by(8).rev().filter(is_id);
    ids.filter(|&at| is_linked(at - 16) && is_linked(at - 8)).find_map(|at| {
        let robust = (at..at + 64).step_by(8).find(is_empty_list)?;
        Some((at, robust))
    })
}

/// Returns the offsets `keys`, `keys_used` and `key_tables` of [`ProbedBlock`].
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
    // SAFETY: if the assumed layout is right, this is the key's value in libc's table. A null or
    // small word is not dereferenced.
    let right = table > 0x10000 && unsafe { *((table + place) as *const usize) } == MARK;
    if !right {
        return Err("a table of further pthread keys after the first");
    }

    // At this point the flag is 1. Of all bytes after the tables that are 1, only the flag becomes
    // 1 again when it is cleared and a key is set.
    let flag = (tables + 8 * KEYS_IN_BLOCK..block.size).find(|&at| {
        let is_set = block.byte(at) == 1;
        is_set && block.test_flag_byte(at, || set(near, MARK))
    });
    let flag = flag.ok_or("a flag that is set with a pthread key")?;
    set(near, 0);
    set(far, 0);
    Ok((keys, flag, tables))
}

/// Upper limit for the size of a control block in bytes: no libc has a larger one.
const MAX_BLOCK: usize = 0x4000;

/// The control block of the calling thread.
struct Block {
    at: usize,
    size: usize,
}

/// Reads outside the block return 0, so that a search there finds nothing.
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
        // The block is at the end of the thread's memory.
        let size = (stack as usize + bytes).wrapping_sub(at);
        if !(0x300..=MAX_BLOCK).contains(&size) || !size.is_multiple_of(8) {
            return Err("the control block at the end of the thread's stack");
        }
        Ok(Block { at, size })
    }

    /// Copies the block to `pattern`, which has capacity for [`MAX_BLOCK`] bytes and so does not
    /// grow.
    fn copy_to(&self, pattern: &mut Vec<u8>) {
        // SAFETY: the block of this thread, readable over its whole size.
        let block = unsafe { std::slice::from_raw_parts(self.at as *const u8, self.size) };
        pattern.extend_from_slice(block);
    }

    /// Clears the byte at `at`, calls `change`, and returns whether that set the byte to 1. The
    /// byte is 1 afterwards.
    fn test_flag_byte(&self, at: usize, change: impl FnOnce()) -> bool {
        let byte = (self.at + at) as *mut u8;
        // SAFETY: inside the block of this thread, which runs only `change` until the byte has its
        // value again. Volatile, because libc changes the byte unseen by the compiler.
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
        // SAFETY: inside the block. Volatile, because libc changes it unseen by the compiler.
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

    /// Returns a block like a thread's: pointers to itself, a list node, the id, and an empty
    /// robust list.
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
    fn an_id_that_equals_half_of_a_pointer_is_found_at_its_own_offset() {
        // Except for 1, each id equals half of a pointer in the block: of the self pointer, of the
        // DTV pointer, or of a pointer in the list node. An upper half may look like a part of a
        // list node if it is a multiple of 8.
        for high in [0x7fff, 0x7fb0, 0x7f00] {
            let at = high << 32 | 0x1234_5000;
            for tid in [1, high as u32, 0x1234_5000, 0x1234_6000, 0x1233_d000, 0x1234_d000] {
                let mut block = block(at, tid);
                // What precedes the list node differs between versions of libc.
                for before in [0, at, at + 8, usize::MAX] {
                    block[0x2b8..0x2c0].copy_from_slice(&before.to_ne_bytes());
                    let found = find_tid(&block, at, tid);
                    assert_eq!(found, Some((0x2d0, 0x2e0)), "{tid:#x}, {at:#x}, {before:#x}");
                }
            }
        }
    }

    #[test]
    fn an_id_without_the_lists_around_it_is_not_found() {
        let at = 0x7fff_1234_5000;
        assert_eq!(find_tid(&block(at, 7), at, 8), None);
        for missing in [0x2c0, 0x2c8, 0x2e0, 0x2e8] {
            let mut block = block(at, 7);
            block[missing..missing + 8].fill(0);
            assert_eq!(find_tid(&block, at, 7), None, "{missing:#x}");
        }
    }
}
