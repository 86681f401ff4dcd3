//! Models of the protocols, checked by loom in every order.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p gosched --lib --target-dir target/loom model
//! ```
//!
//! A model that cannot fail shows nothing, so each comes with its broken forms: an ordering or a
//! barrier is weakened ([`weakness`](crate::sys::weakness)), or a step is left out, and loom must
//! notice. What is lost shows as a deadlock, what is seen too early as two accesses at once.
//!
//! [`every_order`] leaves no order out. [`most_orders`] follows those in which threads are
//! interrupted at most so many times where they could have gone on; switches where a thread sleeps
//! or ends do not count. Most bugs of this kind need one or two, so a quick run sets
//! `LOOM_MAX_PREEMPTIONS=2`, which limits both.
//!
//! What loom cannot see: a load that takes its value from a store that comes later in the program
//! of another thread (load buffering), and that `SeqCst` accesses are stronger than acquire and
//! release (there are none here: full barriers are fences).

pub(crate) mod g;

mod chan_transfer;
mod item;
mod lock;
mod mutex;
mod note;
mod packet;
mod park;
mod poll_role;
mod queue;
mod queue_next;
mod readiness;
mod select;
mod semaphore;
mod signal;
mod stopping;
mod syscall;
mod timer;
#[expect(dead_code, unreachable_pub, reason = "a model uses a part of it, and sees it from here")]
#[path = "../block/waiter.rs"]
mod waiter;
mod waking;
mod waking_fixture;
mod waking_fixture_m;

use loom::model::Builder;

/// What the threads of a model have in common. Never freed: loom cannot count references while it
/// reports a deadlock.
fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// For thieves of the item to run next. (A yield would keep loom from going on here at once.)
fn pause() {}

fn every_order(f: impl Fn() + Sync + Send + 'static) {
    most_orders(usize::MAX, f);
}

fn most_orders(interruptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let limit = Builder::new().preemption_bound.unwrap_or(usize::MAX);
    exactly_these_orders(interruptions.min(limit), f);
}

/// Follows orders with up to `interruptions` interruptions whatever `LOOM_MAX_PREEMPTIONS` says: for
/// broken forms that fail only then.
fn exactly_these_orders(interruptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = (interruptions != usize::MAX).then_some(interruptions);
    builder.max_branches = 10_000;
    builder.check(f);
}
