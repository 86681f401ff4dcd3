//! Walking the frames of code that does not run: by the unwind tables that every program has, stripped or not.

mod elf;
mod frame_size;
mod tables;
mod walker;

use crate::arch::{SAVED_WORDS, SavedContext, registers_of_context};

pub use elf::{build_id_of_notes, function_at};
pub use walker::{End, Frame, Module, Walker};

/// Calls `each` with the return addresses of a parked context, from where it left off to its first
/// frame, until `each` says false. Nothing is written to its stack; any thread may do this.
///
/// An address points behind the call it belongs to: look up `address - 1`.
///
/// # Safety
/// - **parked**: `saved` was filled by [`switch`](crate::arch::switch) or
///   [`first_frame`](crate::arch::first_frame), its stack is alive, and nobody resumes it during the call.
pub unsafe fn walk(saved: &SavedContext, mut each: impl FnMut(usize) -> bool) {
    // SAFETY: parked — the words of a saved context are there.
    let words = unsafe { &*(saved.sp as *const [usize; SAVED_WORDS]) };
    let start = registers_of_context(words, saved.sp);
    // SAFETY: parked — the tables lead to words of its frames only.
    let read = |address: usize| Some(unsafe { (address as *const usize).read_unaligned() });
    Walker::new().walk(&start, false, read, |frame| each(frame.at + 1));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::{Registers, capture_registers};
    use std::hint::black_box;

    /// What another unwinder says, from the caller of this on: where the code is, and its stack pointer.
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
        // SAFETY: to — a local.
        unsafe { capture_registers(&raw mut start) };
        let mut ours = Vec::new();
        // SAFETY: the tables lead to words of frames that are there.
        let read = |address: usize| Some(unsafe { (address as *const usize).read_unaligned() });
        let end = Walker::new().walk(&start, false, read, |frame| {
            ours.push(frame);
            true
        });
        (ours, others(), end)
    }

    #[test]
    fn the_walk_finds_what_another_unwinder_finds() {
        let (ours, others, end) = both(20);
        assert_eq!(end, End::Complete);
        // The innermost frame is the same, at two places.
        let others = &others[others.len() + 1 - ours.len()..];
        assert!(ours.len() > 25);
        let found: Vec<_> = ours[1..].iter().map(|frame| (frame.pc, frame.sp)).collect();
        assert_eq!(found, others, "{ours:x?}");
        assert!(ours.windows(2).all(|two| two[0].fp == two[1].sp && two[0].sp < two[0].fp));
        assert!(ours.iter().all(|frame| frame.at == frame.pc - 1));
    }

    #[test]
    fn a_walk_ends_where_something_is_not_known() {
        let mut start = Registers::default();
        // SAFETY: to — a local.
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
