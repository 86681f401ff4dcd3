//! The nodes of contexts that can be cancelled: a tree in which each node has weak references to
//! its children.
//!
//! A node owns a reference to its parent. The parent has only a weak reference to the node, in one
//! of its slots, so that an unused node is freed immediately. The receivers of a node's channel
//! keep the node alive. A node with functions to run keeps itself alive until they are started or
//! stopped, or until they can never run: its guard was detached, it has no deadline, and the same
//! holds for its parent.
//!
//! Cancellation descends the tree with a work list, so neither a deep nor a wide tree needs much
//! stack. A new node enters the slots of its parent under the parent's lock. If the parent is
//! already cancelled, the new node is cancelled immediately. So no node is missed.
//!
//! When [`cancel`] returns, all nodes below are cancelled. If another call of `cancel` is at work
//! below, this call waits for it. There is no deadlock: a call waits only for calls that began
//! further down.
//!
//! A function of the program never runs, and is never dropped, under the lock of a node.

use super::error::{Cause, ContextError};
use super::slots::Slots;
use crate::block::chan::{self, Closer, Receiver};
use crate::block::goroutine;
use crate::block::sync::Mutex;
use crate::block::time::{Timer, after_func};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// A node of the tree: see the top of this file.
pub(super) struct Node {
    /// The parent, and the index of the parent's slot that refers to this node.
    parent: Option<(Arc<Node>, Mutex<Option<usize>>)>,
    /// Closes the channel of the node when the node is cancelled.
    done: OnceLock<Closer<()>>,
    pub(super) deadline: Option<Instant>,
    state: Mutex<State>,
}

/// A function to run when the node is cancelled.
type Func = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    /// The guard was detached, so it will not cancel the node.
    detached: bool,
    /// Nothing can ever cancel the node.
    never_ends: bool,
    cancellation: Option<Arc<Cancellation>>,
    children: Slots<Weak<Node>>,
    funcs: Slots<Func>,
    /// The number of functions in `funcs`.
    func_count: usize,
    /// A reference to the node itself, as long as there are functions.
    keep_alive: Option<Arc<Node>>,
    /// Cancels the node at its deadline.
    timer: Option<Timer>,
}

/// What ends a node at its deadline.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expiry {
    /// A timer.
    ByTimer,
    /// The owner of the guard.
    ByGuard,
}

/// The result of [`Node::on_cancel`].
pub(super) enum Registered {
    /// The function was stored under this number.
    AsNumber(usize),
    /// The node is cancelled, so the function was started.
    Runs,
    /// The function will never run.
    Never,
}

/// One cancellation: of a node, and of all nodes below it that were not cancelled before.
pub(super) struct Cancellation {
    pub(super) error: ContextError,
    pub(super) cause: Option<Cause>,
    /// Closed when all these nodes are cancelled.
    propagated: Receiver<()>,
}

impl Cancellation {
    pub(super) fn new(error: ContextError, cause: Option<Cause>) -> Arc<Cancellation> {
        Arc::new(Cancellation { error, cause, propagated: chan::sealed() })
    }
}

impl Node {
    /// Creates a node below `parent`, with the earlier of `deadline` and the parent's deadline.
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
            // With the error of the parent, but with a `propagated` channel of its own: `cancel`
            // closes that channel, and the parent's cancellation may not be finished.
            cancel(&node, Cancellation::new(over.error, over.cause.clone()));
        } else if let (Some(own), Expiry::ByTimer) = (own, expiry) {
            node.expire_at(own);
        }
        (node, done)
    }

    /// Records that the guard will not cancel the node. Drops the functions of all nodes, from this
    /// one down, that nothing can cancel any longer.
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
            // The functions will never run. Their destructors are user code, so they do not run
            // under the lock.
            drop((funcs, myself));
        }
    }

    /// Adds the node to the children of its parent. Returns the parent's cancellation if the parent
    /// is already cancelled.
    fn add_to_parent(self: &Arc<Node>) -> Option<Arc<Cancellation>> {
        let (parent, slot) = self.parent.as_ref()?;
        let mut state = parent.state.lock_no_unwind();
        if state.cancellation.is_none() {
            *slot.lock_no_unwind() = Some(state.children.add(Arc::downgrade(self)));
        }
        state.cancellation.clone()
    }

    /// Removes the node from the children of its parent.
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
        // If the node was cancelled meanwhile, the timer is not needed.
        let unused = match state.cancellation {
            None => state.timer.replace(timer),
            Some(_) => Some(timer),
        };
        drop(state);
        if let Some(unused) = unused {
            unused.stop();
        }
    }

    /// Returns how the node was cancelled, or `None` if it was not.
    pub(super) fn over(&self) -> Option<Arc<Cancellation>> {
        self.state.lock_no_unwind().cancellation.clone()
    }

    /// Runs `f` in a new goroutine when the node is cancelled.
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

    /// Removes the function with this number, so that it does not run. Returns false if it was
    /// already started or stopped.
    pub(super) fn stop_func(&self, number: usize) -> bool {
        let mut state = self.state.lock_no_unwind();
        let Some(func) = state.funcs.take(number) else {
            // The function was dropped because nothing can ever cancel the node.
            return state.never_ends;
        };
        state.func_count -= 1;
        let myself = if state.func_count == 0 { state.keep_alive.take() } else { None };
        drop(state);
        drop((func, myself));
        true
    }
}

/// Cancels a node and all nodes below it. Nodes that are already cancelled do not change. The
/// functions are started last: whatever their code does, all nodes are cancelled by then.
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
        // Dropping `keep_alive` does not free the node: `node` is another reference.
    }
    node.remove_from_parent();
    for other in others {
        // Not `recv`, which may unwind. The wait is short: that call runs no user code before it
        // closes the channel.
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
        // A loop, because dropping a long chain recursively could overflow the stack.
        let mut parent = self.parent.take();
        while let Some((node, _)) = parent {
            parent = Arc::into_inner(node).and_then(|mut node| {
                node.remove_from_parent();
                node.parent.take()
            });
        }
    }
}
