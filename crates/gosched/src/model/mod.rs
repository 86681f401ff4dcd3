//! Models of the concurrent protocols, checked by loom under every interleaving.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p gosched --lib --target-dir target/loom model
//! ```
//!
//! A model that cannot fail proves nothing, so each model comes with broken variants: an ordering
//! or a barrier is weakened ([`weakness`](crate::sys::weakness)), or a step is left out, and loom
//! must detect it. A lost item or wake-up shows as a deadlock, and a read that comes too early
//! shows as two concurrent accesses.
//!
//! [`every_order`] explores all interleavings. [`most_orders`] explores the interleavings with at
//! most a given number of preemptions; a switch at which a thread sleeps or ends is not a
//! preemption. Most bugs of this kind need one or two preemptions, so a quick run sets
//! `LOOM_MAX_PREEMPTIONS=2`, which limits both functions.
//!
//! loom does not model two effects: a load that takes its value from a store that comes later in
//! the program order of another thread (load buffering), and the extra strength of `SeqCst`
//! accesses over acquire and release (the models have none: their full barriers are fences).

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
#[expect(dead_code, unreachable_pub, reason = "the models use only a part of it")]
#[path = "../block/waiter.rs"]
mod waiter;
mod waking;
mod waking_fixture;
mod waking_fixture_m;

use loom::model::Builder;

/// Leaks `value`, which the threads of a model share. It is never freed: loom cannot count
/// references while it reports a deadlock.
fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// The pause of a thief before it takes `run_next`. It does not yield: loom would then not explore
/// the orders in which the thief continues at once.
fn pause() {}

fn every_order(f: impl Fn() + Sync + Send + 'static) {
    most_orders(usize::MAX, f);
}

fn most_orders(interruptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let limit = Builder::new().preemption_bound.unwrap_or(usize::MAX);
    exactly_these_orders(interruptions.min(limit), f);
}

/// Explores the interleavings with at most `interruptions` preemptions, regardless of
/// `LOOM_MAX_PREEMPTIONS`: for broken variants that fail only with that many.
fn exactly_these_orders(interruptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = (interruptions != usize::MAX).then_some(interruptions);
    builder.max_branches = 10_000;
    builder.check(f);
}
