//! Contexts: cancellation, deadlines and values for goroutines that work on a common task.
//!
//! A goroutine cannot be stopped from outside. Pass it a [`Context`] that its code checks: in a
//! `select!` with [`Context::done`], in a loop with [`Context::err`]. Cancelling a context never
//! interrupts code that does not check it.
//!
//! ```
//! use gosched::{chan, context, go, select};
//!
//! let (ctx, guard) = context::background().with_cancel();
//! let (tx, rx) = chan::<u64>(0);
//! let worker = go(move || {
//!     for i in 0.. {
//!         select! {
//!             recv(ctx.done()) -> _ => return i,
//!             send(tx, i) -> sent => sent.unwrap(),
//!         }
//!     }
//!     unreachable!()
//! });
//! assert_eq!((rx.recv(), rx.recv()), (Ok(0), Ok(1)));
//! drop(guard); // cancels the context
//! assert_eq!(worker.join().unwrap(), 2);
//! ```

mod error;
mod node;
mod slots;

pub use error::{Cause, ContextError};

use super::chan::{self, Receiver};
use super::time;
use node::{Cancellation, Expiry, Node, Registered, cancel};
use std::any::Any;
use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// A cancellation signal, a deadline and values, shared by all goroutines that work on a common
/// task.
///
/// A context is *done* once it has been cancelled or its deadline has passed. Contexts form a tree:
/// when a context is done, so are all contexts that were derived from it. Clones refer to the same
/// context.
#[derive(Clone)]
pub struct Context(Arc<Link>);

struct Link {
    /// The node that cancels the context, and the channel that is closed then; `None` if nothing
    /// cancels the context.
    end: Option<(Arc<Node>, Receiver<()>)>,
    value: Option<Box<dyn Any + Send + Sync>>,
    /// The context from which this one was derived; further values are found there.
    parent: Option<Context>,
}

/// Returns the background context: it is never done and carries no values. All other contexts are
/// derived from it.
#[doc(alias = "Background")]
#[doc(alias = "TODO")]
pub fn background() -> Context {
    Context::background()
}

impl Context {
    /// Returns the background context: see [`background()`].
    pub fn background() -> Context {
        static BACKGROUND: OnceLock<Context> = OnceLock::new();
        let new = || Context(Arc::new(Link { end: None, value: None, parent: None }));
        BACKGROUND.get_or_init(new).clone()
    }

    /// Derives a context and a guard. The context is done when this context is done, or when the
    /// guard is dropped.
    #[doc(alias = "WithCancel")]
    #[doc(alias = "WithCancelCause")]
    pub fn with_cancel(&self) -> (Context, CancelGuard) {
        self.child(None, Expiry::ByTimer)
    }

    /// Derives a context that is done after `duration`, when this context is done, or when the
    /// returned guard is dropped, whichever comes first.
    #[doc(alias = "WithTimeout")]
    pub fn with_timeout(&self, duration: Duration) -> (Context, CancelGuard) {
        // A deadline that an `Instant` cannot represent is no deadline.
        self.child(time::now().checked_add(duration), Expiry::ByTimer)
    }

    /// Like [`Context::with_timeout`], but without a timer: only the guard ends the context.
    pub(crate) fn with_guard_timeout(&self, duration: Duration) -> (Context, CancelGuard) {
        self.child(time::now().checked_add(duration), Expiry::ByGuard)
    }

    /// Derives a context that is done at `deadline`, when this context is done, or when the
    /// returned guard is dropped, whichever comes first.
    #[doc(alias = "WithDeadline")]
    pub fn with_deadline(&self, deadline: Instant) -> (Context, CancelGuard) {
        self.child(Some(deadline), Expiry::ByTimer)
    }

    fn child(&self, deadline: Option<Instant>, expiry: Expiry) -> (Context, CancelGuard) {
        let (node, done) = Node::new(self.node(), deadline, expiry);
        let guard = CancelGuard { node: Some(Arc::downgrade(&node)) };
        let above = Some(self.clone());
        (Context(Arc::new(Link { end: Some((node, done)), value: None, parent: above })), guard)
    }

    /// Derives a context that carries `value`, which hides other values of the same type.
    ///
    /// ```
    /// use gosched::context;
    ///
    /// #[derive(Debug, PartialEq)]
    /// struct User(&'static str);
    ///
    /// let ctx = context::background().with_value(User("gopher"));
    /// let (ctx, _guard) = ctx.with_cancel();
    /// assert_eq!(ctx.value::<User>(), Some(&User("gopher")));
    /// assert_eq!(ctx.value::<u32>(), None);
    /// ```
    #[doc(alias = "WithValue")]
    pub fn with_value<T: Any + Send + Sync>(&self, value: T) -> Context {
        Context(Arc::new(Link {
            end: self.0.end.clone(),
            value: Some(Box::new(value)),
            parent: Some(self.clone()),
        }))
    }

    /// Returns the value of type `T` carried by this context or by the nearest context from which
    /// it was derived. Returns `None` if there is none.
    pub fn value<T: Any>(&self) -> Option<&T> {
        let mut here = Some(self);
        while let Some(context) = here {
            let value = context.0.value.as_ref().and_then(|value| value.downcast_ref::<T>());
            if value.is_some() {
                return value;
            }
            here = context.0.parent.as_ref();
        }
        None
    }

    /// Derives a context that has the same values but no deadline, and that is not affected when
    /// this context is done.
    #[doc(alias = "WithoutCancel")]
    pub fn without_cancel(&self) -> Context {
        Context(Arc::new(Link { end: None, value: None, parent: Some(self.clone()) }))
    }

    /// Returns a channel that is closed when the context is done. It never carries a value.
    ///
    /// For use in `select!`.
    #[doc(alias = "Done")]
    pub fn done(&self) -> &Receiver<()> {
        static NEVER: OnceLock<Receiver<()>> = OnceLock::new();
        match &self.0.end {
            Some((_, done)) => done,
            None => NEVER.get_or_init(chan::never),
        }
    }

    /// Returns why the context is done, or `None` if it is not.
    #[doc(alias = "Err")]
    pub fn err(&self) -> Option<ContextError> {
        self.over().map(|over| over.error)
    }

    /// Returns the reason that was given to [`CancelGuard::cancel_cause`] or, without one, the
    /// error that [`Context::err`] returns. Returns `None` if the context is not done.
    #[doc(alias = "Cause")]
    pub fn cause(&self) -> Option<Cause> {
        let over = self.over()?;
        Some(over.cause.clone().unwrap_or_else(|| Arc::new(over.error)))
    }

    fn node(&self) -> Option<&Arc<Node>> {
        self.0.end.as_ref().map(|(node, _)| node)
    }

    fn over(&self) -> Option<Arc<Cancellation>> {
        // The channel decides, so that `err` and `done` agree: the context is done when it is
        // closed.
        let (node, done) = self.0.end.as_ref()?;
        if done.is_closed() { node.over() } else { None }
    }

    /// Returns the earliest deadline of this context and the contexts from which it was derived.
    /// Returns `None` if there is no deadline.
    #[doc(alias = "Deadline")]
    pub fn deadline(&self) -> Option<Instant> {
        self.node().and_then(|node| node.deadline)
    }

    /// Runs `f` in a new goroutine when the context is done, or immediately if it already is.
    ///
    /// `f` runs even if the context is dropped before. If the context can never be done, such as
    /// the background context, `f` is dropped and never runs.
    ///
    /// ```
    /// use gosched::{chan, context};
    ///
    /// let (ctx, guard) = context::background().with_cancel();
    /// let (tx, rx) = chan::<&str>(1);
    /// let stop = ctx.after_func(move || tx.send("cleaned up").unwrap());
    /// guard.cancel();
    /// assert_eq!(rx.recv(), Ok("cleaned up"));
    /// assert!(!stop.stop());
    /// ```
    #[doc(alias = "AfterFunc")]
    pub fn after_func<F: FnOnce() + Send + 'static>(&self, f: F) -> StopFunc {
        let (func, can_stop) = match self.node() {
            None => (None, true),
            Some(node) => match node.on_cancel(Box::new(f)) {
                Registered::AsNumber(number) => (Some((Arc::downgrade(node), number)), true),
                Registered::Runs => (None, false),
                Registered::Never => (None, true),
            },
        };
        StopFunc { func, can_stop: AtomicBool::new(can_stop) }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Context");
        debug.field("err", &self.err()).field("deadline", &self.deadline()).finish()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // A loop, because dropping a long chain recursively could overflow the stack. Values are
        // dropped first: a value may hold a clone of the parent, whose last reference must be
        // dropped by the loop.
        self.value = None;
        let mut above = self.parent.take();
        while let Some(Context(link)) = above {
            above = Arc::into_inner(link).and_then(|mut link| {
                link.value = None;
                link.parent.take()
            });
        }
    }
}

/// A guard that cancels its context when dropped, unless the guard is
/// [detached](CancelGuard::detach).
#[must_use = "dropping the guard cancels the context: bind it to a name such as `_guard`"]
#[derive(Debug)]
pub struct CancelGuard {
    /// The context's node; `None` once detached.
    node: Option<Weak<Node>>,
}

impl CancelGuard {
    /// Cancels the context and all contexts derived from it. Contexts that are already done keep
    /// their error.
    pub fn cancel(&self) {
        self.end(Cancellation::new(ContextError::Cancelled, None));
    }

    /// Cancels the context like [`CancelGuard::cancel`], with a reason that [`Context::cause`]
    /// returns.
    pub fn cancel_cause(&self, cause: impl Into<Box<dyn Error + Send + Sync>>) {
        let cause = Some(Arc::from(cause.into()));
        self.end(Cancellation::new(ContextError::Cancelled, cause));
    }

    /// Ends the context with [`ContextError::DeadlineExceeded`].
    pub(crate) fn expire(&self) {
        self.end(Cancellation::new(ContextError::DeadlineExceeded, None));
    }

    fn end(&self, over: Arc<Cancellation>) {
        if let Some(node) = self.node.as_ref().and_then(Weak::upgrade) {
            cancel(&node, over);
        }
    }

    /// Consumes the guard without cancelling the context, which is then done only when its parent
    /// is, or at its deadline.
    pub fn detach(mut self) {
        if let Some(node) = self.node.take().and_then(|node| node.upgrade()) {
            node.detach();
        }
    }
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Node")
    }
}

/// A handle that can prevent the function of [`Context::after_func`] from running. Dropping the
/// handle has no effect.
#[derive(Debug)]
pub struct StopFunc {
    func: Option<(Weak<Node>, usize)>,
    /// False once `stop` was called, or if the function was started immediately.
    can_stop: AtomicBool,
}

impl StopFunc {
    /// Prevents the function from running. Returns `true` if the function had not been started or
    /// stopped. The result has no meaning if the context can never be done.
    pub fn stop(&self) -> bool {
        if !self.can_stop.swap(false, Ordering::Relaxed) {
            return false;
        }
        let Some((node, number)) = &self.func else { return true };
        node.upgrade().is_some_and(|node| node.stop_func(*number))
    }
}
