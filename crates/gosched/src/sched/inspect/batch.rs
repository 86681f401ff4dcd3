//! Copies the stacks of many goroutines with one system call, for an inspector that then visits
//! them one after the other.
//!
//! Only goroutines that were switched away and have a small stack are copied, which is most of
//! them. A copy is valid if the state of its G has not changed since before the copy was made; see
//! `snapshot`. This module never interrupts a goroutine: `snapshot` does, if the goroutine runs.

use crate::gmp::g::G;
use crate::gmp::state::{GState, StateVersion};
use crate::probe::wait_reason::WaitReason;
use crate::sched::inspect::stack_copy::{saved_sp, thread_pointer};
use gosched_fiber::memory;
use gosched_fiber::stack::Finder;

/// Maximum number of stacks in a batch.
pub(crate) const BATCH_STACKS: usize = memory::MAX_PARTS;
/// Size of the buffer for all stacks of a batch.
const BATCH_BYTES: usize = 256 << 10;

/// See the top of this file.
#[derive(Debug)]
pub(super) struct StackBatch {
    stacks: Vec<CopiedStack>,
    /// Number of stacks already visited: they are taken in the order in which they were copied.
    done: usize,
    finder: Finder,
    bytes: Box<[u8]>,
}

/// A goroutine at the time of the copy.
#[derive(Debug)]
pub(super) struct CopiedStack {
    of: &'static G,
    pub(super) moment: StateVersion,
    /// Why and since when the goroutine waited, if it did.
    pub(super) wait: (WaitReason, u64),
    pub(super) sp: usize,
    at: usize,
    len: usize,
}

impl StackBatch {
    pub(super) fn new() -> StackBatch {
        // Zeroed memory from the allocator: unused pages are never mapped.
        let bytes = vec![0; BATCH_BYTES].into();
        StackBatch {
            stacks: Vec::with_capacity(BATCH_STACKS),
            done: 0,
            finder: Finder::default(),
            bytes,
        }
    }

    /// Copies the stacks of the goroutines that will be inspected next, at most [`BATCH_STACKS`].
    pub(super) fn copy(&mut self, gs: impl Iterator<Item = &'static G>) {
        self.stacks.clear();
        self.done = 0;
        let (mut parts, mut used) = ([(0, 0); BATCH_STACKS], 0);
        for g in gs.take(BATCH_STACKS) {
            if let Some(copied) = self.find(g, used) {
                parts[self.stacks.len()] = (copied.sp, copied.len);
                used += copied.len;
                self.stacks.push(copied);
            }
        }
        let copied = memory::copy_parts(&parts[..self.stacks.len()], &mut self.bytes[..used]);
        self.stacks.retain(|stack| stack.at + stack.len <= copied);
    }

    /// Finds the stack of `g`, if it can be copied to offset `at` of the buffer.
    fn find(&mut self, g: &'static G, at: usize) -> Option<CopiedStack> {
        let moment = g.state_version();
        let is_away = matches!(moment.state(), GState::Runnable | GState::Waiting);
        if !is_away || !g.shown().is_null() || !g.has_stack() {
            return None;
        }
        let (wait, sp) = ((g.reason(), g.since()), saved_sp(g));
        let (stack, identity) = self.finder.find(sp)?;
        let is_own = stack.contains(&sp) && identity == thread_pointer(g);
        let len = stack.end.checked_sub(sp).filter(|len| is_own && *len <= BATCH_BYTES - at)?;
        Some(CopiedStack { of: g, moment, wait, sp, at, len })
    }

    /// Returns the copy of `g`, and its stack from the stack pointer to the end. Returns `None` if
    /// `g` was not copied, or has changed its state since.
    pub(super) fn take(&mut self, g: &'static G) -> Option<(&CopiedStack, &[u8])> {
        let rest = &self.stacks[self.done..];
        let found = rest.iter().position(|copied| std::ptr::eq(copied.of, g))?;
        let copied = &rest[found];
        self.done += found + 1;
        let bytes = &self.bytes[copied.at..copied.at + copied.len];
        g.is_unchanged(copied.moment).then_some((copied, bytes))
    }
}
