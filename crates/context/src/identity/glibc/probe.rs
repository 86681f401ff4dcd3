//! Finds out how this libc lays out a thread control block, on a real thread.
//!
//! Nothing here is taken from a header: each field is found by what it must hold. The few offsets
//! that are written down are the x86-64 ABI's own (self pointer, stack guard). A plain new thread's
//! block is copied as the pattern of every identity, so fields this crate knows nothing of start as
//! they do on a thread.

use super::symbols::Symbols;
use crate::arch;
use crate::unsupported::Unsupported;
use std::mem::MaybeUninit;

/// Keys of `pthread_setspecific` in the block itself; the rest hang off it in tables.
pub(super) const KEYS_IN_BLOCK: usize = 32;

/// Offsets from the thread pointer, and the pattern of a fresh control block.
#[derive(Debug, Default)]
pub(super) struct Found {
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
type Report = Result<Found, &'static str>;

struct Question {
    symbols: *const Symbols,
    keys: (libc::pthread_key_t, libc::pthread_key_t),
    answer: Report,
}

pub(super) fn probe(symbols: &Symbols) -> Result<Found, Unsupported> {
    let keys = Keys::new()?;
    let mut question =
        Question { symbols, keys: keys.near_and_far()?, answer: Err("an answer of the thread") };
    let mut thread = MaybeUninit::uninit();
    // SAFETY: `question` outlives the thread, which is joined below. A bare pthread, not a std
    // thread: its block must be as libc made it.
    let failed = unsafe {
        libc::pthread_create(
            thread.as_mut_ptr(),
            std::ptr::null(),
            look,
            (&raw mut question).cast(),
        )
    };
    if failed != 0 {
        let error = std::io::Error::from_raw_os_error(failed);
        return Err(Unsupported::passing("a thread to look at", error.to_string()));
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

extern "C" fn look(question: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: `probe` passes its `Question` and waits; it is this thread's alone.
    let question = unsafe { &mut *question.cast::<Question>() };
    // SAFETY: as above.
    let symbols = unsafe { &*question.symbols };
    // Nothing in here may unwind: each look-up answers with what it missed.
    question.answer = look_at(symbols, question.keys);
    std::ptr::null_mut()
}

fn look_at(symbols: &Symbols, (near, far): (libc::pthread_key_t, libc::pthread_key_t)) -> Report {
    let block = Block::of_this_thread()?;
    let pattern = block.copy();
    let mut found = Found { size: block.size, ..Found::default() };

    // SAFETY: gettid has no precondition.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    (found.tid, found.robust) =
        look_for_id(&pattern, block.at, tid).ok_or("the thread's id in its block, among lists")?;
    found.list = found.tid - 16;

    (found.keys, found.keys_used, found.key_tables) = look_for_keys(&block, &pattern, near, far)?;

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
fn look_for_id(block: &[u8], block_at: usize, tid: u32) -> Option<(usize, usize)> {
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

fn look_for_keys(
    block: &Block,
    before: &[u8],
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
    // What else changed from 0 to 1 is the flag. (The key's own record lies before.)
    let flag = (value + 8..block.size).find(|&at| before[at] == 0 && block.byte(at) == 1);
    let flag = flag.ok_or("a flag that keys were used")?;

    set(far, MARK);
    let tables = keys + 16 * KEYS_IN_BLOCK;
    let table = block.word(tables + 8 * (far as usize / KEYS_IN_BLOCK));
    let place = 16 * (far as usize % KEYS_IN_BLOCK) + 8;
    // SAFETY: if the guess is right this is the key's value in libc's table; a null or small word
    // is not followed.
    let right = table > 0x10000 && unsafe { *((table + place) as *const usize) } == MARK;
    set(near, 0);
    set(far, 0);
    if right { Ok((keys, flag, tables)) } else { Err("a table of further keys behind the first") }
}

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
        if !(0x300..0x4000).contains(&size) || !size.is_multiple_of(8) {
            return Err("the thread's block at the end of its stack");
        }
        Ok(Block { at, size })
    }

    fn copy(&self) -> Vec<u8> {
        // SAFETY: the block is readable over its whole size, and this thread's own.
        unsafe { std::slice::from_raw_parts(self.at as *const u8, self.size) }.to_vec()
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
    use super::look_for_id;

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
            assert_eq!(look_for_id(&block(at, tid), at, tid), Some((0x2d0, 0x2e0)), "{tid:#x}");
        }
    }

    #[test]
    fn a_block_without_the_lists_around_the_id_is_none() {
        let at = 0x7fff_1234_5000;
        assert_eq!(look_for_id(&block(at, 7), at, 8), None);
        for missing in [0x2c0, 0x2c8, 0x2e0, 0x2e8] {
            let mut block = block(at, 7);
            block[missing..missing + 8].fill(0);
            assert_eq!(look_for_id(&block, at, 7), None, "{missing:#x}");
        }
    }
}
