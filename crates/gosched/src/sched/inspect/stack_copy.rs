//! Registers of a goroutine, and its stack: all of it, or a piece that moves.
//!
//! A stack may be larger than there is room. Then it is read piece by piece, as long as it stays as it is: the caller
//! says whether it has, after each copy. What is cut, and cannot be read on, is never taken for the whole.

use crate::gmp::g::G;
use gosched_fiber::arch::Registers;
use gosched_fiber::{memory, stack};
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// So much of a stack is copied at once.
pub(super) const COPY_BYTES: usize = 256 << 10;
/// The same of a goroutine that runs, which cannot be read on, where that was not enough.
const MAX_COPY_BYTES: usize = 16 << 20;
/// So much of a goroutine's own stack, where it runs on another.
const OWN_STACK_BYTES: usize = 32 << 10;
/// A stack of the system's ends somewhere, not farther than this.
const MAX_SYSTEM_STACK_BYTES: usize = 64 << 20;
/// A piece begins so much before what is asked for: a frame is read from its end.
const READ_BACK_BYTES: usize = 4 << 10;

const WORD: usize = size_of::<usize>();

/// See the top of this file.
#[derive(Debug)]
pub(super) struct StackCopy {
    pub(super) registers: Registers,
    /// Of the stack that it runs on; and of its own, where that is another.
    parts: [Piece; 2],
    /// Room for the first part, then for the second.
    bytes: Vec<u8>,
}

/// A piece of a stack, in the bytes of a view.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    /// What it is a piece of.
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

    /// These bytes are at a stack pointer, all that there are, and that is all that is known.
    pub(super) fn set(&mut self, sp: usize, bytes: &[u8]) {
        self.registers = Registers { sp, ..Registers::default() };
        self.bytes[..bytes.len()].copy_from_slice(bytes);
        let (end, len) = (sp + bytes.len(), bytes.len());
        self.parts = [Piece { start: sp, end, from: sp, len }, Piece::default()];
    }

    /// Copies the stack above the registers' stack pointer; and, where that is not the goroutine's own, the
    /// end of that one. In a signal handler too.
    pub(super) fn fill(&mut self, registers: Registers, of: Option<&'static G>) {
        self.registers = registers;
        self.parts = [Piece::default(); 2];
        let sp = registers.sp;
        let found = stack::usable_range(sp).filter(|stack| stack.contains(&sp));
        // A thread's stack ends somewhere: the kernel copies what there is.
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

    /// As much of a stack as there is room for, from an address on.
    fn copy(&mut self, nth: usize, of: Range<usize>, from: usize) {
        let border = self.bytes.len() - OWN_STACK_BYTES;
        let (first, second) = self.bytes.split_at_mut(border);
        let room = if nth == 0 { first } else { second };
        let wanted = (of.end - from).min(room.len());
        let len = memory::copy(from, &mut room[..wanted]);
        // There is no more.
        let end = if len < wanted { from + len } else { of.end };
        self.parts[nth] = Piece { start: of.start, end, from, len };
    }

    /// What was copied of a part.
    fn bytes(&self, nth: usize) -> &[u8] {
        let at = if nth == 0 { 0 } else { self.bytes.len() - OWN_STACK_BYTES };
        &self.bytes[at..at + self.parts[nth].len]
    }

    /// More room, for who is copied by another. False: it was enough, or there is none.
    pub(super) fn grow(&mut self) -> bool {
        let had = self.bytes.len() - OWN_STACK_BYTES;
        let grows = !self.parts[0].is_whole() && had < MAX_COPY_BYTES;
        if grows {
            (self.parts, self.bytes) = ([Piece::default(); 2], room(MAX_COPY_BYTES.min(8 * had)));
        }
        grows
    }

    /// No more room than others need.
    pub(super) fn shrink(&mut self) {
        if self.bytes.len() > COPY_BYTES + OWN_STACK_BYTES {
            (self.parts, self.bytes) = ([Piece::default(); 2], room(COPY_BYTES));
        }
    }

    /// Calls `each` with every word of the stack. False: not with all.
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
                    // A word is in one piece.
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
        // Words are where words can be: the copy begins anywhere.
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

    /// As [`StackCopy::read`]; what was not copied is, if it is still what it was.
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

/// Zeros from the allocator: a page that is never needed is never there.
fn room(size: usize) -> Vec<u8> {
    vec![0; size + OWN_STACK_BYTES]
}

/// The stack pointer of a G that does not run, read without owning it.
pub(crate) fn saved_sp(g: &'static G) -> usize {
    // SAFETY: in a record that is never freed.
    let at = unsafe { &raw mut (*g.saved.as_ptr()).sp };
    // SAFETY: as above; a word that the switch writes, in assembly. Whoever reads it looks afterwards whether the
    // G stood still.
    unsafe { AtomicUsize::from_ptr(at) }.load(Ordering::Relaxed)
}

/// As [`saved_sp`]: where its identity is.
pub(crate) fn thread_pointer(g: &'static G) -> usize {
    // SAFETY: in a record that is never freed.
    let at = unsafe { &raw mut (*g.saved.as_ptr()).thread_pointer };
    // SAFETY: as above.
    unsafe { AtomicUsize::from_ptr(at) }.load(Ordering::Relaxed)
}

/// Copies registers from where a G shows them. `None`: they are not there any more.
pub(crate) fn shown_registers(at: *const Registers) -> Option<Registers> {
    let mut registers = Registers::default();
    let (start, size) = (ptr::from_mut(&mut registers).cast::<u8>(), size_of::<Registers>());
    // SAFETY: the bytes of a local that is made of words.
    let bytes = unsafe { std::slice::from_raw_parts_mut(start, size) };
    (memory::copy(at as usize, bytes) == size).then_some(registers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A view of some memory, as of a stack that no stack of ours is.
    fn view(memory: &[usize]) -> StackCopy {
        let mut view = StackCopy::new();
        let start = memory.as_ptr() as usize;
        view.registers.sp = start;
        view.copy(0, start..start + size_of_val(memory), start);
        view
    }

    #[test]
    fn what_there_is_no_room_for_is_read_on_while_it_stands_still() {
        let memory: Vec<usize> = (0..3 * COPY_BYTES / WORD + 5).collect();
        let at = |nth: usize| (&raw const memory[nth]) as usize;
        let mut cut = view(&memory);
        for nth in (0..memory.len()).step_by(1000).chain([memory.len() - 1, 0]) {
            assert_eq!(cut.read_or_recopy(at(nth), || true), Some(nth));
        }
        assert_eq!(cut.read_or_recopy(at(memory.len() - 1) + WORD, || true), None);
        assert_eq!(cut.read_or_recopy(at(0) - WORD, || true), None);
        let mut moved = view(&memory);
        assert_eq!(moved.read_or_recopy(at(7), || false), Some(7), "that was copied before");
        assert_eq!(moved.read_or_recopy(at(memory.len() - 1), || false), None);
        assert_eq!(moved.read_or_recopy(at(7), || false), None, "a piece of what is gone");
    }

    #[test]
    fn words_are_told_once_each_and_a_cut_stack_is_not_known() {
        let memory: Vec<usize> = (0..2 * COPY_BYTES / WORD + 5).collect();
        let mut words = Vec::new();
        assert!(view(&memory).words(|word| words.push(word), || true));
        assert_eq!(words, memory);
        assert!(!view(&memory).words(drop, || false));
        assert!(view(&memory[..COPY_BYTES / WORD]).words(drop, || false), "all of it was copied");
    }

    #[test]
    fn room_grows_where_it_was_not_enough() {
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
