//! What can be cancelled: a tree, in which each node knows those below it.
//!
//! A node keeps the one above it; that one knows it by a weak reference, in a slot of its own, so a node
//! that nobody uses any more goes at once. Its channel keeps it, and so does everybody who has that. A node
//! with functions to run keeps itself, until they run or are stopped; or until it is certain that they will
//! never run: its guard was detached, it has no deadline, and the same holds for the one above.
//!
//! Cancelling goes down the tree with a list of what is still to do: neither the depth nor the width of a
//! tree needs stack. A new node enters its parent's slots under the parent's lock, and is cancelled right
//! there if the parent is; so nobody is forgotten.
//!
//! Whoever has cancelled a node finds all below it over. Where somebody else is on its way down there, it
//! waits for that one; who waits in turn only for those who are further down.

use super::error::{Cause, ContextError};
use super::slots::Slots;
use crate::block::chan::{self, Closer, Receiver};
use crate::block::goroutine;
use crate::block::sync::Mutex;
use crate::block::time::{Timer, after_func};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// See the top of this file.
pub(super) struct Node {
    /// The one above, and the slot it knows this one by.
    parent: Option<(Arc<Node>, Mutex<Option<usize>>)>,
    /// Closes the channel that is closed when it is over.
    done: OnceLock<Closer<()>>,
    pub(super) deadline: Option<Instant>,
    state: Mutex<State>,
}

/// A function to run when the node is over.
type Func = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    /// Its guard will never cancel it.
    detached: bool,
    /// Nothing will.
    never_ends: bool,
    cancellation: Option<Arc<Cancellation>>,
    children: Slots<Weak<Node>>,
    funcs: Slots<Func>,
    /// How many functions there are.
    func_count: usize,
    /// The node itself, while there are any.
    keep_alive: Option<Arc<Node>>,
    /// Cancels it at its deadline.
    timer: Option<Timer>,
}

/// What happens at a node's deadline.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expiry {
    /// A timer ends it.
    ByTimer,
    /// Whoever has the guard does.
    ByGuard,
}

/// What became of a function.
pub(super) enum Registered {
    /// It waits, and has that number.
    AsNumber(usize),
    /// It was started.
    Runs,
    /// It will never run.
    Never,
}

/// How a node ended, and all below it that were not over.
pub(super) struct Cancellation {
    pub(super) error: ContextError,
    pub(super) cause: Option<Cause>,
    /// Closed when all of them are.
    propagated: Receiver<()>,
}

impl Cancellation {
    pub(super) fn new(error: ContextError, cause: Option<Cause>) -> Arc<Cancellation> {
        Arc::new(Cancellation { error, cause, propagated: chan::sealed() })
    }
}

impl Node {
    /// Below `parent`, with the earlier of `deadline` and the one above.
    pub(super) fn new(
        parent: Option<&Arc<Node>>,
        deadline: Option<Instant>,
        expiry: Expiry,
    ) -> (Arc<Node>, Receiver<()>) {
        let inherited = parent.and_then(|parent| parent.deadline);
        let own = deadline.filter(|&own| inherited.is_none_or(|inherited| own < inherited));
        let node = Arc::new(Node {
            parent: parent.map(|parent| (parent.clone(), Mutex::new(None))),
            done: OnceLock::new(),
            deadline: own.or(inherited),
            state: Mutex::default(),
        });
        let done = chan::sealed_for(Some(node.clone()));
        drop(node.done.set(done.closer()));
        if let Some(over) = node.add_to_parent() {
            // As the one above ended, but not to be waited for with that.
            cancel(&node, Cancellation::new(over.error, over.cause.clone()));
        } else if let (Some(own), Expiry::ByTimer) = (own, expiry) {
            node.expire_at(own);
        }
        (node, done)
    }

    /// The guard will never cancel it.
    pub(super) fn detach(self: &Arc<Node>) {
        self.state.lock_no_unwind().detached = true;
        let mut to_do = vec![self.clone()];
        while let Some(node) = to_do.pop() {
            let parent_never_ends = node
                .parent
                .as_ref()
                .is_none_or(|(parent, _)| parent.state.lock_no_unwind().never_ends);
            let mut state = node.state.lock_no_unwind();
            if state.never_ends || !state.detached || !parent_never_ends || node.deadline.is_some()
            {
                continue;
            }
            state.never_ends = true;
            let (funcs, myself) = (std::mem::take(&mut state.funcs), state.keep_alive.take());
            to_do.extend(state.children.values().filter_map(Weak::upgrade));
            drop(state);
            // They will never run. Code of the program: not under the lock.
            drop((funcs, myself));
        }
    }

    /// Lets the one above know of it. `Some`: that one is over.
    fn add_to_parent(self: &Arc<Node>) -> Option<Arc<Cancellation>> {
        let (parent, slot) = self.parent.as_ref()?;
        let mut state = parent.state.lock_no_unwind();
        if state.cancellation.is_none() {
            *slot.lock_no_unwind() = Some(state.children.add(Arc::downgrade(self)));
        }
        state.cancellation.clone()
    }

    /// The one above need not know of it any more.
    fn remove_from_parent(&self) {
        let Some((parent, slot)) = &self.parent else { return };
        let mut state = parent.state.lock_no_unwind();
        let gone = slot.lock_no_unwind().take().and_then(|slot| state.children.take(slot));
        drop(state);
        drop(gone);
    }

    fn expire_at(self: &Arc<Node>, deadline: Instant) {
        let left = deadline.saturating_duration_since(crate::block::time::now());
        if left == Duration::ZERO {
            return cancel(self, Cancellation::new(ContextError::DeadlineExceeded, None));
        }
        let node = Arc::downgrade(self);
        let timer = after_func(left, move || {
            if let Some(node) = node.upgrade() {
                cancel(&node, Cancellation::new(ContextError::DeadlineExceeded, None));
            }
        });
        let mut state = self.state.lock_no_unwind();
        // It may be over by now: then the timer is of no use.
        let unused = match state.cancellation {
            None => state.timer.replace(timer),
            Some(_) => Some(timer),
        };
        drop(state);
        if let Some(unused) = unused {
            unused.stop();
        }
    }

    /// How it ended, if it did.
    pub(super) fn over(&self) -> Option<Arc<Cancellation>> {
        self.state.lock_no_unwind().cancellation.clone()
    }

    /// Runs `f` when it is over, in a goroutine of its own.
    pub(super) fn on_cancel(self: &Arc<Node>, f: Func) -> Registered {
        let mut state = self.state.lock_no_unwind();
        if state.cancellation.is_some() {
            drop(state);
            goroutine::go(f);
            return Registered::Runs;
        }
        if state.never_ends {
            return Registered::Never;
        }
        state.func_count += 1;
        state.keep_alive.get_or_insert_with(|| self.clone());
        Registered::AsNumber(state.funcs.add(f))
    }

    /// The function of that number is not to run. False: it runs, or has run, or was stopped.
    pub(super) fn stop_func(&self, number: usize) -> bool {
        let mut state = self.state.lock_no_unwind();
        let Some(func) = state.funcs.take(number) else {
            // It was dropped when it was certain that it would never run.
            return state.never_ends;
        };
        state.func_count -= 1;
        let myself = if state.func_count == 0 { state.keep_alive.take() } else { None };
        drop(state);
        drop((func, myself));
        true
    }
}

/// Ends a node, and all below it. What is over stays as it is. Code of the program comes last: whatever it
/// does, all is over then.
pub(super) fn cancel(node: &Arc<Node>, over: Arc<Cancellation>) {
    let (mut to_do, mut others, mut funcs) = (vec![node.clone()], Vec::new(), Vec::new());
    while let Some(node) = to_do.pop() {
        let mut state = node.state.lock_no_unwind();
        if let Some(other) = &state.cancellation {
            others.push(other.clone());
            continue;
        }
        let before = std::mem::replace(
            &mut *state,
            State { cancellation: Some(over.clone()), ..State::default() },
        );
        drop(state);
        if let Some(done) = node.done.get() {
            done.close();
        }
        if let Some(timer) = before.timer {
            timer.stop();
        }
        funcs.extend(before.funcs.into_values());
        to_do.extend(before.children.into_values().filter_map(|child| child.upgrade()));
        // `keep_alive` is not the last: `to_do` had one.
    }
    node.remove_from_parent();
    for other in others {
        // Never refused: nothing of the program's is under way there.
        other.propagated.core().receive();
    }
    over.propagated.core().close();
    funcs.into_iter().for_each(|func| drop(goroutine::go(func)));
}

impl Drop for Node {
    fn drop(&mut self) {
        self.remove_from_parent();
        let state = std::mem::take(&mut *self.state.lock_no_unwind());
        if let Some(timer) = &state.timer {
            timer.stop();
        }
        // A long chain must not take as much stack.
        let mut parent = self.parent.take();
        while let Some((node, _)) = parent {
            parent = Arc::into_inner(node).and_then(|mut node| {
                node.remove_from_parent();
                node.parent.take()
            });
        }
    }
}
