//! Stack walks: finds the frames of code that is not running, using the unwind tables that every
//! program has, stripped or not. A walk never writes to the stack, and never runs code of the
//! frames that it finds.

mod frame_size;
mod tables;
mod walker;

use crate::arch::{SAVED_WORDS, SavedContext, registers_of_context};

pub use crate::base::elf::{build_id_of_notes, function_at};
pub use walker::{End, Frame, Module, Walker};

/// Calls `each` with the return addresses of a parked context, innermost frame first, until `each`
/// returns `false`. Writes nothing to the context's stack. Any thread may call this.
///
/// A return address points behind its call instruction: look up `address - 1`.
///
/// # Safety
/// - **parked**: `saved` was filled in by [`switch`](crate::arch::switch) or
///   [`first_frame`](crate::arch::first_frame), its stack is alive, and no thread resumes it during
///   the call.
pub unsafe fn walk(saved: &SavedContext, mut each: impl FnMut(usize) -> bool) {
    // SAFETY: parked — `saved.sp` points to the words of a saved context.
    let words = unsafe { &*(saved.sp as *const [usize; SAVED_WORDS]) };
    let start = registers_of_context(words, saved.sp);
    // SAFETY: parked — the tables lead only to words of the context's frames.
    let read = |address: usize| Some(unsafe { (address as *const usize).read_unaligned() });
    Walker::new().walk(&start, false, read, |frame| each(frame.at + 1));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::{Registers, capture_registers};
    use std::hint::black_box;

    /// Returns the frames that another unwinder finds, beginning with the caller of this function:
    /// program counter and stack pointer.
    #[inline(never)]
    fn others() -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        backtrace::trace(|frame| {
            found.push((frame.ip() as usize, frame.sp() as usize));
            true
        });
        found.retain(|&(address, _)| address != 0);
        found
    }

    #[inline(never)]
    fn both(depth: usize) -> (Vec<Frame>, Vec<(usize, usize)>, End) {
        let pad = black_box([depth; 7]);
        if depth > 0 {
            let mut result = both(depth - 1);
            result.0.truncate(result.0.len() + black_box(pad[3]) - depth);
            return result;
        }
        let mut start = Registers::default();
        // SAFETY: to — a local variable.
        unsafe { capture_registers(&raw mut start) };
        let mut ours = Vec::new();
        // SAFETY: the tables lead only to words of live frames.
        let read = |address: usize| Some(unsafe { (address as *const usize).read_unaligned() });
        let end = Walker::new().walk(&start, false, read, |frame| {
            ours.push(frame);
            true
        });
        (ours, others(), end)
    }

    #[test]
    fn a_walk_finds_the_same_frames_as_another_unwinder() {
        let (ours, others, end) = both(20);
        assert_eq!(end, End::Complete);
        // Both walks begin in the same frame, but at different program counters.
        let others = &others[others.len() + 1 - ours.len()..];
        assert!(ours.len() > 25);
        let found: Vec<_> = ours[1..].iter().map(|frame| (frame.pc, frame.sp)).collect();
        assert_eq!(found, others, "{ours:x?}");
        assert!(ours.windows(2).all(|two| two[0].fp == two[1].sp && two[0].sp < two[0].fp));
        assert!(ours.iter().all(|frame| frame.at == frame.pc - 1));
    }

    #[test]
    fn a_walk_ends_at_unreadable_memory_and_at_unknown_code() {
        let mut start = Registers::default();
        // SAFETY: to — a local variable.
        unsafe { capture_registers(&raw mut start) };
        let mut walker = Walker::new();
        let mut count = 0;
        let end = walker.walk(
            &start,
            false,
            |_| None,
            |_| {
                count += 1;
                true
            },
        );
        assert_eq!((end, count), (End::Broken, 1));
        let nowhere = Registers { pc: 0x1234, ..start };
        let end = walker.walk(&nowhere, false, |_| None, |_| unreachable!());
        assert_eq!(end, End::Broken);
        assert_eq!(walker.walk(&start, false, |_| None, |_| false), End::Stopped);
        let module = walker.module(start.pc).unwrap();
        assert!(module.path.as_os_str().is_empty() && module.offset < start.pc);
        assert!(walker.module(0x1234).is_none());
    }
}
