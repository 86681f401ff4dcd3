//! Runs a model in every interleaving, or in those with few preemptions, and prints how many
//! executions that took.
//!
//! [`every_order`] explores all interleavings. [`most_orders`] explores the interleavings with at
//! most a given number of preemptions; a switch at which a thread sleeps or ends is not a
//! preemption. Most bugs of this kind need one or two preemptions, so a quick run sets
//! `LOOM_MAX_PREEMPTIONS=2`, which limits both functions.
//!
//! loom always gets a number of preemptions. Without one, it leaves out interleavings that it takes
//! for equivalent, and it then misses what `join::broken_by_a_word_read_without_order` does.

use loom::model::Builder;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Leaks `value`, which the threads of a model share. It is never freed: loom cannot count
/// references while it reports a deadlock.
pub(crate) fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// The pause of a thief before it takes `run_next`. It does not yield: loom would then not explore
/// the orders in which the thief continues at once.
pub(crate) fn pause() {}

/// A number of preemptions that no model reaches.
const ALL: usize = 100;

/// Explores all interleavings of `f`.
pub(crate) fn every_order(f: impl Fn() + Sync + Send + 'static) {
    most_orders(ALL, f);
}

/// Explores the interleavings of `f` with at most `interruptions` preemptions.
pub(crate) fn most_orders(interruptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let limit = Builder::new().preemption_bound.unwrap_or(ALL);
    exactly_these_orders(interruptions.min(limit), f);
}

/// Explores the interleavings with at most `interruptions` preemptions, regardless of
/// `LOOM_MAX_PREEMPTIONS`: for broken variants that fail only with that many.
pub(crate) fn exactly_these_orders(interruptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.max_branches = 10_000;
    let executions = Executions(leak(AtomicUsize::new(0)));
    let count = executions.0;
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        f();
    });
}

/// Prints the number of executions when it is dropped, also by the panic of a broken variant.
struct Executions(&'static AtomicUsize);

impl Drop for Executions {
    fn drop(&mut self) {
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        let end = if std::thread::panicking() { "; the last one fails" } else { "" };
        println!("{test}: {} executions{end}", self.0.load(Ordering::Relaxed));
    }
}
