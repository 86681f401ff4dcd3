//! The twin of [`barrier`](gosched_fiber::barrier) for models: no more than membarrier promises.
//!
//! Each thread has a word. A light barrier is one change of the thread's own word, a heavy one is one
//! change of each: of any two, one comes first, and the second sees what was done before the first.
//! Two light ones meet nowhere, as in truth; and a heavy one passes on what *it* knew when it began,
//! not what it learns from one thread to the next, as the kernel interrupts them in any order.

use super::weakness::{self, Weakness};
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::atomic::AtomicUsize;

/// As many threads as a model here may have.
const THREADS: usize = 4;

struct Words {
    /// Not modelled: gives each thread its word.
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
    // PAIR asymmetric: as the real one.
    WORDS.of_threads[own].fetch_add(1, Ordering::AcqRel);
}

pub(crate) fn heavy() {
    if weakness::is_active(Weakness::Heavy) {
        return;
    }
    // PAIR asymmetric: as the real one.
    fence(Ordering::SeqCst);
    for word in &WORDS.of_threads {
        word.fetch_add(1, Ordering::Relaxed);
    }
    // PAIR asymmetric: as the real one.
    fence(Ordering::SeqCst);
}
