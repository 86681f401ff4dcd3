//! Actors for tests, each either a goroutine or a thread, and values that count their drops.

use crate::wait::LIMIT;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;

/// The kind of an actor.
#[derive(Clone, Copy, Debug)]
pub enum ActorKind {
    /// A goroutine, started by `gosched::go`.
    Goroutine,
    /// A thread, started by `std::thread::spawn`.
    Thread,
}

/// Both kinds.
pub const ACTOR_KINDS: [ActorKind; 2] = [ActorKind::Goroutine, ActorKind::Thread];

/// Returns [`ActorKind::Goroutine`] for even numbers and [`ActorKind::Thread`] for odd numbers.
pub fn kind_for(number: usize) -> ActorKind {
    ACTOR_KINDS[number % 2]
}

impl ActorKind {
    /// Starts an actor of this kind, which runs `f`.
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

/// A handle to a running actor. Dropping the handle detaches the actor.
#[derive(Debug)]
pub struct ActorHandle<T>(mpsc::Receiver<T>);

impl<T> ActorHandle<T> {
    /// Waits for the actor and returns its result. Call it on the test's thread: a goroutine would
    /// hold its P while it waits.
    ///
    /// # Panics
    /// The actor panicked, did not end within [`LIMIT`], or the caller is a goroutine.
    pub fn join(self) -> T {
        assert!(gosched::id().is_none(), "joined by a goroutine");
        self.0.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("a party: {error}"))
    }
}

/// Runs `f` in a goroutine, then in a thread.
pub fn in_goroutine_and_thread(f: impl Fn() + Clone + Send + 'static) {
    for kind in ACTOR_KINDS {
        kind.start(f.clone()).join();
    }
}

/// Runs `f(i)` in goroutines for even `i` and in threads for odd `i`, and waits for all of them.
///
/// # Panics
/// A call of `f` panicked.
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

/// Returns whether an actor of [`run_alternating`] yields in this round. Goroutines, which have
/// even numbers, always yield. Threads rarely do: on a busy machine a thread that yields waits
/// long.
pub fn should_yield(me: usize, round: usize) -> bool {
    me.is_multiple_of(2) || round.is_multiple_of(16)
}

/// Joins all actors and returns their results.
pub fn join_all<T>(parties: impl IntoIterator<Item = ActorHandle<T>>) -> Vec<T> {
    parties.into_iter().map(ActorHandle::join).collect()
}

/// A counter of drops for each of its tokens.
#[derive(Clone, Debug)]
pub struct Ledger(Arc<[AtomicUsize]>);

impl Ledger {
    /// Creates a ledger for tokens with numbers below `count`.
    pub fn new(count: usize) -> Ledger {
        Ledger((0..count).map(|_| AtomicUsize::new(0)).collect())
    }

    /// Creates the token with this number. A test creates each token once.
    pub fn token(&self, number: usize) -> Token {
        Token { number, ledger: self.clone() }
    }

    /// Returns the number of drops of each token.
    pub fn drops(&self) -> Vec<usize> {
        self.0.iter().map(|drops| drops.load(SeqCst)).collect()
    }

    /// Returns the number of drops of all tokens.
    pub fn total(&self) -> usize {
        self.drops().into_iter().sum()
    }

    /// Checks that each token was dropped exactly once.
    ///
    /// # Panics
    /// A token was not dropped, or was dropped more than once.
    pub fn assert_each_dropped_once(&self) {
        let drops = self.drops();
        let wrong: Vec<_> = drops.iter().enumerate().filter(|&(_, &count)| count != 1).collect();
        assert!(wrong.is_empty(), "(token, drops): {wrong:?}");
    }
}

/// A value that counts its drop in its ledger.
#[derive(Debug)]
pub struct Token {
    /// The token's index in the ledger.
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
