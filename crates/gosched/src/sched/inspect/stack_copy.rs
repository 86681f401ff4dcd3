//! A copy of a goroutine's registers and stack: the whole stack, or a piece that moves.
//!
//! A stack may be larger than the buffer. It is then read piece by piece, as long as it does not
//! change: after each copy, the caller's `is_still` must confirm that. A stack that was cut and
//! cannot be read further is never taken for the whole.

use crate::gmp::g::G;
use gosched_fiber::arch::Registers;
use gosched_fiber::{memory, stack};
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of bytes of a stack that are copied at once.
pub(super) const COPY_BYTES: usize = 256 << 10;
/// Maximum number of bytes copied of a running goroutine, whose stack cannot be read piece by
/// piece.
const MAX_COPY_BYTES: usize = 16 << 20;
/// Number of bytes copied of a goroutine's own stack, if the goroutine runs on another stack.
const OWN_STACK_BYTES: usize = 32 << 10;
/// Upper bound for the size of a thread's stack.
const MAX_SYSTEM_STACK_BYTES: usize = 64 << 20;
/// A piece begins this many bytes before the requested address: a walk reads a frame from its end.
const READ_BACK_BYTES: usize = 4 << 10;

const WORD: usize = size_of::<usize>();

/// See the top of this file.
#[derive(Debug)]
pub(super) struct StackCopy {
    pub(super) registers: Registers,
    /// A piece of the stack that the goroutine runs on, and a piece of its own stack if that is
    /// another.
    parts: [Piece; 2],
    /// The buffer for the first piece, followed by the buffer for the second.
    bytes: Vec<u8>,
}

/// A piece of a stack, held in the buffer.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    /// The bounds of the stack. `from` and `len` are the part that was copied.
    start: usize,
    end: usize,
    from: usize,
    len: usize,
}

impl StackCopy {
    pub(super) fn new() -> StackCopy {
        StackCopy {
            registers: Registers::default(),
            parts: [Piece::default(); 2],
            bytes: room(COPY_BYTES),
        }
    }

    /// Sets the copy to `bytes`, a whole stack from the stack pointer `sp` on. No other register is
    /// known.
    pub(super) fn set(&mut self, sp: usize, bytes: &[u8]) {
        self.registers = Registers { sp, ..Registers::default() };
        self.bytes[..bytes.len()].copy_from_slice(bytes);
        let (end, len) = (sp + bytes.len(), bytes.len());
        self.parts = [Piece { start: sp, end, from: sp, len }, Piece::default()];
    }

    /// Copies the stack above the registers' stack pointer. If that is not the own stack of the
    /// goroutine, also copies the end of its own stack. May be called in a signal handler.
    pub(super) fn fill(&mut self, registers: Registers, of: Option<&'static G>) {
        self.registers = registers;
        self.parts = [Piece::default(); 2];
        let sp = registers.sp;
        let found = stack::usable_range(sp).filter(|stack| stack.contains(&sp));
        // The end of a thread's stack is unknown: the kernel copies as much as there is.
        let end = found.map_or(sp.saturating_add(MAX_SYSTEM_STACK_BYTES), |stack| stack.end);
        self.copy(0, sp..end, sp);
        let own = of
            .and_then(|g| stack::usable_range(thread_pointer(g)))
            .filter(|own| !own.contains(&sp));
        if let Some(own) = own {
            let from = own.end - own.len().min(OWN_STACK_BYTES);
            self.copy(1, own, from);
        }
    }

    /// Copies as much of the stack `of` as fits into the buffer, from the address `from` on.
    fn copy(&mut self, nth: usize, of: Range<usize>, from: usize) {
        let border = self.bytes.len() - OWN_STACK_BYTES;
        let (first, second) = self.bytes.split_at_mut(border);
        let room = if nth == 0 { first } else { second };
        let wanted = (of.end - from).min(room.len());
        let len = memory::copy(from, &mut room[..wanted]);
        // The kernel copied less: the stack ends here.
        let end = if len < wanted { from + len } else { of.end };
        self.parts[nth] = Piece { start: of.start, end, from, len };
    }

    /// Returns the bytes of a piece.
    fn bytes(&self, nth: usize) -> &[u8] {
        let at = if nth == 0 { 0 } else { self.bytes.len() - OWN_STACK_BYTES };
        &self.bytes[at..at + self.parts[nth].len]
    }

    /// Enlarges the buffer, for a stack that its own M copies. Discards the copy. Returns false if
    /// the buffer was large enough, or cannot be larger.
    pub(super) fn grow(&mut self) -> bool {
        let had = self.bytes.len() - OWN_STACK_BYTES;
        let grows = !self.parts[0].is_whole() && had < MAX_COPY_BYTES;
        if grows {
            (self.parts, self.bytes) = ([Piece::default(); 2], room(MAX_COPY_BYTES.min(8 * had)));
        }
        grows
    }

    /// Gives up a buffer that is larger than usual.
    pub(super) fn shrink(&mut self) {
        if self.bytes.len() > COPY_BYTES + OWN_STACK_BYTES {
            (self.parts, self.bytes) = ([Piece::default(); 2], room(COPY_BYTES));
        }
    }

    /// Calls `each` with every word of the stack. Returns false if words are missing.
    pub(super) fn words(
        &mut self,
        mut each: impl FnMut(usize),
        is_still: impl Fn() -> bool,
    ) -> bool {
        for nth in 0..self.parts.len() {
            self.words_of_piece(nth, &mut each);
            let Piece { start, end, from, len } = self.parts[nth];
            for missing in [start..from, from + len..end] {
                let mut at = missing.start;
                while at < missing.end {
                    self.copy(nth, start..missing.end, at);
                    if !is_still() {
                        return false;
                    }
                    self.words_of_piece(nth, &mut each);
                    // Pieces begin at word boundaries, so no word is split.
                    let next = (at + self.parts[nth].len) & !(WORD - 1);
                    if next <= at {
                        break;
                    }
                    at = next;
                }
            }
        }
        true
    }

    fn words_of_piece(&self, nth: usize, mut each: impl FnMut(usize)) {
        // Only aligned words count; the copy may begin at any address.
        let from = self.parts[nth].from;
        let first = from.next_multiple_of(WORD) - from;
        let (words, _) = self.bytes(nth).get(first..).unwrap_or_default().as_chunks::<WORD>();
        words.iter().for_each(|word| each(usize::from_ne_bytes(*word)));
    }

    pub(super) fn read(&self, address: usize) -> Option<usize> {
        let nth = self.parts.iter().position(|part| part.has(address))?;
        let word = self.bytes(nth)[address - self.parts[nth].from..].first_chunk()?;
        Some(usize::from_ne_bytes(*word))
    }

    /// As [`StackCopy::read`]. Copies the piece with `address` first, if it is missing and the
    /// stack has not changed.
    pub(super) fn read_or_recopy(
        &mut self,
        address: usize,
        is_still: impl Fn() -> bool,
    ) -> Option<usize> {
        if let Some(word) = self.read(address) {
            return Some(word);
        }
        let is_in =
            |part: &Piece| (part.start..part.end.saturating_sub(WORD - 1)).contains(&address);
        let nth = self.parts.iter().position(is_in)?;
        let Piece { start, end, .. } = self.parts[nth];
        self.copy(nth, start..end, start.max(address.saturating_sub(READ_BACK_BYTES)));
        if is_still() {
            self.read(address)
        } else {
            self.parts[nth].len = 0;
            None
        }
    }
}

impl Piece {
    fn is_whole(&self) -> bool {
        self.len == self.end - self.start
    }

    fn has(&self, address: usize) -> bool {
        let room = self.len.checked_sub(WORD);
        let offset = address.checked_sub(self.from);
        offset.zip(room).is_some_and(|(offset, room)| offset <= room)
    }
}

/// Returns a zeroed buffer. The allocator does not map pages that are never used.
fn room(size: usize) -> Vec<u8> {
    vec![0; size + OWN_STACK_BYTES]
}

/// Returns the saved stack pointer of a G that does not run. The caller need not own the G.
pub(crate) fn saved_sp(g: &'static G) -> usize {
    // SAFETY: the field of a record that is never freed.
    let at = unsafe { &raw mut (*g.saved.as_ptr()).sp };
    // SAFETY: as above; the switch, in assembly, writes the word as a whole. A reader checks
    // afterwards that the G's state has not changed.
    unsafe { AtomicUsize::from_ptr(at) }.load(Ordering::Relaxed)
}

/// Returns the saved thread pointer, the address of the G's identity. As [`saved_sp`].
pub(crate) fn thread_pointer(g: &'static G) -> usize {
    // SAFETY: the field of a record that is never freed.
    let at = unsafe { &raw mut (*g.saved.as_ptr()).thread_pointer };
    // SAFETY: as above.
    unsafe { AtomicUsize::from_ptr(at) }.load(Ordering::Relaxed)
}

/// Copies the registers that a G publishes. Returns `None` if they no longer exist.
pub(crate) fn shown_registers(at: *const Registers) -> Option<Registers> {
    let mut registers = Registers::default();
    let (start, size) = (ptr::from_mut(&mut registers).cast::<u8>(), size_of::<Registers>());
    // SAFETY: the bytes of a local variable that consists of words.
    let bytes = unsafe { std::slice::from_raw_parts_mut(start, size) };
    (memory::copy(at as usize, bytes) == size).then_some(registers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a copy of some memory, as of a stack that is not a goroutine's.
    fn view(memory: &[usize]) -> StackCopy {
        let mut view = StackCopy::new();
        let start = memory.as_ptr() as usize;
        view.registers.sp = start;
        view.copy(0, start..start + size_of_val(memory), start);
        view
    }

    #[test]
    fn a_stack_larger_than_the_buffer_is_read_in_pieces_as_long_as_it_does_not_change() {
        let memory: Vec<usize> = (0..3 * COPY_BYTES / WORD + 5).collect();
        let at = |nth: usize| (&raw const memory[nth]) as usize;
        let mut cut = view(&memory);
        for nth in (0..memory.len()).step_by(1000).chain([memory.len() - 1, 0]) {
            assert_eq!(cut.read_or_recopy(at(nth), || true), Some(nth));
        }
        assert_eq!(cut.read_or_recopy(at(memory.len() - 1) + WORD, || true), None);
        assert_eq!(cut.read_or_recopy(at(0) - WORD, || true), None);
        let mut moved = view(&memory);
        assert_eq!(moved.read_or_recopy(at(7), || false), Some(7), "this word was copied before");
        assert_eq!(moved.read_or_recopy(at(memory.len() - 1), || false), None);
        assert_eq!(
            moved.read_or_recopy(at(7), || false),
            None,
            "a piece of a stack that has changed is not used"
        );
    }

    #[test]
    fn each_word_is_visited_once_and_missing_words_are_reported() {
        let memory: Vec<usize> = (0..2 * COPY_BYTES / WORD + 5).collect();
        let mut words = Vec::new();
        assert!(view(&memory).words(|word| words.push(word), || true));
        assert_eq!(words, memory);
        assert!(!view(&memory).words(drop, || false));
        assert!(
            view(&memory[..COPY_BYTES / WORD]).words(drop, || false),
            "the whole stack was copied"
        );
    }

    #[test]
    fn a_buffer_that_was_too_small_can_grow() {
        let memory: Vec<usize> = (0..2 * COPY_BYTES / WORD).collect();
        let mut cut = view(&memory);
        assert!(cut.grow());
        let start = memory.as_ptr() as usize;
        cut.copy(0, start..start + size_of_val(&memory[..]), start);
        assert!(cut.words(drop, || false));
        assert!(!cut.grow());
        cut.shrink();
        assert_eq!(cut.bytes.len(), COPY_BYTES + OWN_STACK_BYTES);
    }
}
