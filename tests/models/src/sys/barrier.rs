//! The loom version of [`barrier`](gosched_fiber::barrier), for models. It guarantees no more than
//! membarrier does.
//!
//! Each thread has a word. A light barrier modifies the thread's own word, and a heavy barrier
//! modifies the words of all threads. So a light and a heavy barrier meet in one word: one of them
//! comes first there, and the second sees everything that was done before the first. Two light
//! barriers do not meet in any word, as in reality. A heavy barrier passes on only what its thread
//! had seen when the barrier began, not what it learns on the way from one word to the next,
//! because the kernel interrupts the threads in any order.

use super::weakness::{self, Weakness};
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::atomic::AtomicUsize;

/// The maximum number of threads in a model.
const THREADS: usize = 4;

struct Words {
    /// Index of the word for the next thread. A std atomic, so loom does not model it.
    next: AtomicUsize,
    of_threads: [AtomicU32; THREADS],
}

loom::lazy_static! {
    static ref WORDS: Words = Words {
        next: AtomicUsize::new(0),
        of_threads: std::array::from_fn(|_| AtomicU32::new(0)),
    };
}

loom::thread_local! {
    static OWN: usize = WORDS.next.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn light() {
    if weakness::is_active(Weakness::Light) {
        return;
    }
    let own = OWN.with(|own| *own);
    // PAIR asymmetric: same guarantee as the real barrier.
    WORDS.of_threads[own].fetch_add(1, Ordering::AcqRel);
}

pub(crate) fn heavy() {
    if weakness::is_active(Weakness::Heavy) {
        return;
    }
    // PAIR asymmetric: same guarantee as the real barrier.
    fence(Ordering::SeqCst);
    for word in &WORDS.of_threads {
        word.fetch_add(1, Ordering::Relaxed);
    }
    // PAIR asymmetric: same guarantee as the real barrier.
    fence(Ordering::SeqCst);
}
