//! Copies of many stacks at once, for whoever looks at one goroutine after the other: one call of the kernel
//! instead of one for each.
//!
//! Only of those that were switched away and have a small stack, which are most. A copy is good if its G has stood
//! still from before it was made until it is used, as `snapshot` says of each.

use crate::gmp::g::G;
use crate::gmp::reason::WaitReason;
use crate::gmp::state::{GState, Moment};
use crate::sched::inspect::stack_copy::{saved_sp, thread_pointer};
use gosched_context::memory;
use gosched_context::stack::Finder;

/// So many at a time.
pub(crate) const MANY: usize = memory::PARTS;
/// Room for all of them.
const ROOM: usize = 256 << 10;

/// See the top of this file.
#[derive(Debug)]
pub(super) struct Ahead {
    stacks: Vec<Copied>,
    /// How many were looked for already: they are asked for in the order in which they were copied.
    done: usize,
    finder: Finder,
    bytes: Box<[u8]>,
}

/// A goroutine as it was.
#[derive(Debug)]
pub(super) struct Copied {
    of: &'static G,
    pub(super) moment: Moment,
    /// Why it waited, if it did, and since when.
    pub(super) wait: (WaitReason, u64),
    pub(super) sp: usize,
    at: usize,
    len: usize,
}

impl Ahead {
    pub(super) fn new() -> Ahead {
        // Zeros from the allocator: a page that is never needed is never there.
        let bytes = vec![0; ROOM].into();
        Ahead { stacks: Vec::with_capacity(MANY), done: 0, finder: Finder::default(), bytes }
    }

    /// Copies stacks of those who will be looked at next, [`MANY`] at most.
    pub(super) fn copy(&mut self, gs: impl Iterator<Item = &'static G>) {
        self.stacks.clear();
        self.done = 0;
        let (mut parts, mut used) = ([(0, 0); MANY], 0);
        for g in gs.take(MANY) {
            if let Some(copied) = self.find(g, used) {
                parts[self.stacks.len()] = (copied.sp, copied.len);
                used += copied.len;
                self.stacks.push(copied);
            }
        }
        let copied = memory::copy_parts(&parts[..self.stacks.len()], &mut self.bytes[..used]);
        self.stacks.retain(|stack| stack.at + stack.len <= copied);
    }

    /// Where the stack of `g` is, if it can be copied to `at`.
    fn find(&mut self, g: &'static G, at: usize) -> Option<Copied> {
        let moment = g.moment();
        let is_away =
            matches!(moment.state(), GState::Runnable | GState::Waiting | GState::Preempted);
        if !is_away || !g.shown().is_null() || !g.has_stack() {
            return None;
        }
        let (wait, sp) = ((g.reason(), g.since()), saved_sp(g));
        let (stack, identity) = self.finder.find(sp)?;
        let is_own = stack.contains(&sp) && identity == thread_pointer(g);
        let len = stack.end.checked_sub(sp).filter(|len| is_own && *len <= ROOM - at)?;
        Some(Copied { of: g, moment, wait, sp, at, len })
    }

    /// That of `g`, and its stack from its stack pointer to the end: if there is one, and `g` has stood still.
    pub(super) fn take(&mut self, g: &'static G) -> Option<(&Copied, &[u8])> {
        let rest = &self.stacks[self.done..];
        let found = rest.iter().position(|copied| std::ptr::eq(copied.of, g))?;
        let copied = &rest[found];
        self.done += found + 1;
        let bytes = &self.bytes[copied.at..copied.at + copied.len];
        g.is_still(copied.moment).then_some((copied, bytes))
    }
}
