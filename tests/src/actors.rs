//! Who takes part in a test of channels, goroutines and ordinary threads alike, and values that are
//! counted when they are dropped.

use crate::wait::LIMIT;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;

/// What a party is.
#[derive(Clone, Copy, Debug)]
pub enum ActorKind {
    /// Started by `go`.
    Goroutine,
    /// Started by std.
    Thread,
}

/// Both kinds.
pub const ACTOR_KINDS: [ActorKind; 2] = [ActorKind::Goroutine, ActorKind::Thread];

/// Goroutines for even numbers, threads for odd ones.
pub fn kind_for(number: usize) -> ActorKind {
    ACTOR_KINDS[number % 2]
}

impl ActorKind {
    /// Starts a party of this kind.
    pub fn start<T: Send + 'static>(
        self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> ActorHandle<T> {
        let (result, party) = mpsc::channel();
        let work = move || drop(result.send(f()));
        match self {
            ActorKind::Goroutine => drop(gosched::go(work)),
            ActorKind::Thread => drop(std::thread::spawn(work)),
        }
        ActorHandle(party)
    }
}

/// Somebody who was started; forgotten when it is dropped.
#[derive(Debug)]
pub struct ActorHandle<T>(mpsc::Receiver<T>);

impl<T> ActorHandle<T> {
    /// Its result. For the thread of a test: a goroutine would keep its P while it waits.
    ///
    /// # Panics
    /// It panicked, or hangs.
    pub fn join(self) -> T {
        assert!(gosched::id().is_none(), "joined by a goroutine");
        self.0.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("a party: {error}"))
    }
}

/// Runs `f` as a goroutine, then as a thread.
pub fn in_goroutine_and_thread(f: impl Fn() + Clone + Send + 'static) {
    for kind in ACTOR_KINDS {
        kind.start(f.clone()).join();
    }
}

/// Runs `f(i)` in goroutines for even `i` and in threads for odd ones, and waits for all.
///
/// # Panics
/// One of them did.
pub fn run_alternating(count: usize, f: impl Fn(usize) + Send + Sync + 'static) {
    let f = Arc::new(f);
    let mut goroutines: Vec<gosched::JoinHandle<()>> = Vec::new();
    let mut threads = Vec::new();
    for i in 0..count {
        let f = f.clone();
        match kind_for(i) {
            ActorKind::Goroutine => goroutines.push(gosched::go(move || f(i))),
            ActorKind::Thread => threads.push(std::thread::spawn(move || f(i))),
        }
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    goroutines.into_iter().for_each(|goroutine| goroutine.join().unwrap());
}

/// Whether a party of a [`run_alternating`] lets others run in this round. Goroutines, the even ones, always do. Threads seldom do: on
/// a busy machine a thread that gives way waits for long.
pub fn should_yield(me: usize, round: usize) -> bool {
    me.is_multiple_of(2) || round.is_multiple_of(16)
}

/// The results of all.
pub fn join_all<T>(parties: impl IntoIterator<Item = ActorHandle<T>>) -> Vec<T> {
    parties.into_iter().map(ActorHandle::join).collect()
}

/// Counts how often each of its tokens was dropped.
#[derive(Clone, Debug)]
pub struct Ledger(Arc<[AtomicUsize]>);

impl Ledger {
    /// For tokens numbered below `count`.
    pub fn new(count: usize) -> Ledger {
        Ledger((0..count).map(|_| AtomicUsize::new(0)).collect())
    }

    /// The token of this number: made once by its test.
    pub fn token(&self, number: usize) -> Token {
        Token { number, ledger: self.clone() }
    }

    /// How often each was dropped.
    pub fn drops(&self) -> Vec<usize> {
        self.0.iter().map(|drops| drops.load(SeqCst)).collect()
    }

    /// How often any was dropped.
    pub fn total(&self) -> usize {
        self.drops().into_iter().sum()
    }

    /// Fails unless each was dropped exactly once.
    ///
    /// # Panics
    /// It was not.
    pub fn assert_each_dropped_once(&self) {
        let drops = self.drops();
        let wrong: Vec<_> = drops.iter().enumerate().filter(|&(_, &count)| count != 1).collect();
        assert!(wrong.is_empty(), "(token, drops): {wrong:?}");
    }
}

/// A value whose drops are counted.
#[derive(Debug)]
pub struct Token {
    /// Its place in the ledger.
    pub number: usize,
    ledger: Ledger,
}

impl Drop for Token {
    fn drop(&mut self) {
        self.ledger.0[self.number].fetch_add(1, SeqCst);
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Token) -> bool {
        self.number == other.number
    }
}
