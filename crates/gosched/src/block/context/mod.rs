//! Contexts: how work is told to stop, how long it may take, and what goes with it.
//!
//! A goroutine cannot be killed from outside. It is given a [`Context`], and looks at it: in a `select!` by
//! [`Context::done`], in a loop by [`Context::err`].
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
//! drop(guard); // cancels
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

/// Told to everybody who works on one thing: when to stop, and what goes with it. Clones are the same
/// context; one made from another is over when that is.
#[derive(Clone)]
pub struct Context(Arc<Link>);

struct Link {
    /// What cancels it, and is closed then; `None`: nothing does.
    end: Option<(Arc<Node>, Receiver<()>)>,
    value: Option<Box<dyn Any + Send + Sync>>,
    /// Where other values are.
    parent: Option<Context>,
}

/// The context that is never over and carries nothing: where all others come from.
#[doc(alias = "Background")]
#[doc(alias = "TODO")]
pub fn background() -> Context {
    Context::background()
}

impl Context {
    /// See [`background()`].
    pub fn background() -> Context {
        static BACKGROUND: OnceLock<Context> = OnceLock::new();
        let new = || Context(Arc::new(Link { end: None, value: None, parent: None }));
        BACKGROUND.get_or_init(new).clone()
    }

    /// One that can be cancelled by itself. The guard does so when it is dropped.
    #[doc(alias = "WithCancel")]
    #[doc(alias = "WithCancelCause")]
    pub fn with_cancel(&self) -> (Context, CancelGuard) {
        self.child(None, Expiry::ByTimer)
    }

    /// One that is over after `duration`; or when the guard is dropped.
    #[doc(alias = "WithTimeout")]
    pub fn with_timeout(&self, duration: Duration) -> (Context, CancelGuard) {
        // What is too far away is never.
        self.child(time::now().checked_add(duration), Expiry::ByTimer)
    }

    /// As [`Context::with_timeout`], but over only when the guard says so.
    pub(crate) fn with_guard_timeout(&self, duration: Duration) -> (Context, CancelGuard) {
        self.child(time::now().checked_add(duration), Expiry::ByGuard)
    }

    /// One that is over at `deadline`, if this one is not before; or when the guard is dropped.
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

    /// One that carries `value`: it hides other values of that type.
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

    /// The value of that type, if this context, or one it was made from, carries one.
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

    /// One with the same values that is not over when this one is, and has no deadline.
    #[doc(alias = "WithoutCancel")]
    pub fn without_cancel(&self) -> Context {
        Context(Arc::new(Link { end: None, value: None, parent: Some(self.clone()) }))
    }

    /// Closed when the context is over. For `select!`; it never carries a value.
    #[doc(alias = "Done")]
    pub fn done(&self) -> &Receiver<()> {
        static NEVER: OnceLock<Receiver<()>> = OnceLock::new();
        match &self.0.end {
            Some((_, done)) => done,
            None => NEVER.get_or_init(chan::never),
        }
    }

    /// Why it is over; `None`: it is not.
    #[doc(alias = "Err")]
    pub fn err(&self) -> Option<ContextError> {
        self.over().map(|over| over.error)
    }

    /// What [`CancelGuard::cancel_cause`] was given; without that, what [`Context::err`] says.
    #[doc(alias = "Cause")]
    pub fn cause(&self) -> Option<Cause> {
        let over = self.over()?;
        Some(over.cause.clone().unwrap_or_else(|| Arc::new(over.error)))
    }

    fn node(&self) -> Option<&Arc<Node>> {
        self.0.end.as_ref().map(|(node, _)| node)
    }

    fn over(&self) -> Option<Arc<Cancellation>> {
        // One answer for both: it is over when the channel is closed.
        let (node, done) = self.0.end.as_ref()?;
        if done.is_closed() { node.over() } else { None }
    }

    /// When it will be over at the latest.
    #[doc(alias = "Deadline")]
    pub fn deadline(&self) -> Option<Instant> {
        self.node().and_then(|node| node.deadline)
    }

    /// Runs `f` in a goroutine of its own as soon as the context is over: at once, if it is. Dropping the
    /// context changes nothing; if nothing can end it any more, `f` is dropped.
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
        // A long chain must not take as much stack.
        // Values first: one may have the context that it was made with.
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

/// The right to cancel a context: done when it is dropped, unless it is [detached](CancelGuard::detach).
#[must_use = "dropping it cancels the context: bind it to a name, `_guard` perhaps"]
#[derive(Debug)]
pub struct CancelGuard {
    /// `None`: detached.
    node: Option<Weak<Node>>,
}

impl CancelGuard {
    /// The context is over, and so are all that were made from it. What is over stays as it is.
    pub fn cancel(&self) {
        self.end(Cancellation::new(ContextError::Cancelled, None));
    }

    /// As [`CancelGuard::cancel`], with a reason: see [`Context::cause`].
    pub fn cancel_cause(&self, cause: impl Into<Box<dyn Error + Send + Sync>>) {
        let cause = Some(Arc::from(cause.into()));
        self.end(Cancellation::new(ContextError::Cancelled, cause));
    }

    /// Its deadline has passed.
    pub(crate) fn expire(&self) {
        self.end(Cancellation::new(ContextError::DeadlineExceeded, None));
    }

    fn end(&self, over: Arc<Cancellation>) {
        if let Some(node) = self.node.as_ref().and_then(Weak::upgrade) {
            cancel(&node, over);
        }
    }

    /// Lets the context be: it is over when one it was made from is, or at its deadline.
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

/// The right to stop what [`Context::after_func`] was given. Dropped, it changes nothing.
#[derive(Debug)]
pub struct StopFunc {
    func: Option<(Weak<Node>, usize)>,
    /// Until it is tried.
    can_stop: AtomicBool,
}

impl StopFunc {
    /// The function is not to run. False: it was started, or was stopped before.
    pub fn stop(&self) -> bool {
        if !self.can_stop.swap(false, Ordering::Relaxed) {
            return false;
        }
        let Some((node, number)) = &self.func else { return true };
        node.upgrade().is_some_and(|node| node.stop_func(*number))
    }
}
