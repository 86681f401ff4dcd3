//! Many ask for one thing at the same time: it is fetched once.

use super::{Mutex, OnceLock};
use crate::block::chan::{self, Receiver};
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

/// Calls with the same key at the same time become one. Clones are the same.
///
/// ```
/// use gosched::sync::SingleFlight;
///
/// let flights = SingleFlight::<&str, usize>::new();
/// let (value, shared) = flights.run("page", || 42);
/// assert_eq!((value, shared), (42, false));
/// ```
#[doc(alias = "singleflight")]
pub struct SingleFlight<K, V> {
    calls: Arc<Mutex<HashMap<K, Arc<Call<V>>>>>,
}

/// One call that is under way.
struct Call<V> {
    /// Closed when it is over.
    over: Receiver<()>,
    /// Nothing, if it is over by a panic or `goexit`.
    value: OnceLock<V>,
    /// How many wait for it beside the one who runs it.
    others: Mutex<usize>,
}

impl<K: Eq + Hash + Clone, V: Clone> SingleFlight<K, V> {
    /// With no call under way.
    pub fn new() -> SingleFlight<K, V> {
        SingleFlight { calls: Arc::default() }
    }

    /// Calls `f`, unless a call with that key is under way: then waits for that one. The value, and whether
    /// it was given to others too.
    ///
    /// # Panics
    /// With the panic of `f`. Or the call that was waited for ended without a value.
    #[doc(alias = "Do")]
    #[track_caller]
    pub fn run(&self, key: K, f: impl FnOnce() -> V) -> (V, bool) {
        let mut calls = self.calls.lock();
        if let Some(call) = calls.get(&key) {
            let call = call.clone();
            *call.others.lock() += 1;
            drop(calls);
            return call.wait();
        }
        let call = Arc::new(Call::new());
        calls.insert(key.clone(), call.clone());
        drop(calls);
        let flight = Flight { flights: self, key, call };
        let value = f();
        flight.land(value)
    }

    /// As [`SingleFlight::run`], in a goroutine of its own: what it gives can be received, once. If `f`
    /// panics the channel is closed, and empty.
    #[doc(alias = "DoChan")]
    #[track_caller]
    pub fn run_chan<F>(&self, key: K, f: F) -> Receiver<(V, bool)>
    where
        K: Send + 'static,
        V: Send + Sync + 'static,
        F: FnOnce() -> V + Send + 'static,
    {
        let (sender, receiver) = chan::chan(1);
        let flights = self.clone();
        crate::go(move || drop(sender.send(flights.run(key, f))));
        receiver
    }

    /// The next call with that key does not wait for the one under way.
    #[doc(alias = "Forget")]
    pub fn forget(&self, key: &K) {
        let call = self.calls.lock().remove_entry(key);
        drop(call);
    }
}

impl<V: Clone> Call<V> {
    fn new() -> Call<V> {
        Call { over: chan::sealed(), value: OnceLock::new(), others: Mutex::new(0) }
    }

    #[track_caller]
    fn wait(&self) -> (V, bool) {
        let _ = self.over.recv();
        match self.value.get() {
            Some(value) => (value.clone(), true),
            None => panic!("`SingleFlight::run`: the call that was waited for panicked"),
        }
    }
}

/// A call under way: over however it ends.
struct Flight<'a, K: Eq + Hash, V> {
    flights: &'a SingleFlight<K, V>,
    key: K,
    call: Arc<Call<V>>,
}

impl<K: Eq + Hash, V: Clone> Flight<'_, K, V> {
    fn land(self, value: V) -> (V, bool) {
        let _ = self.call.value.set(value.clone());
        let call = self.call.clone();
        drop(self);
        // Nobody comes any more.
        let shared = *call.others.lock() > 0;
        (value, shared)
    }
}

impl<K: Eq + Hash, V> Drop for Flight<'_, K, V> {
    fn drop(&mut self) {
        let mut calls = self.flights.calls.lock();
        // It may have been forgotten, and another one be under way.
        let mine = calls.get(&self.key).is_some_and(|call| Arc::ptr_eq(call, &self.call));
        let gone = if mine { calls.remove_entry(&self.key) } else { None };
        drop(calls);
        drop(gone);
        self.call.over.core().close();
    }
}

impl<K: Eq + Hash + Clone, V: Clone> Default for SingleFlight<K, V> {
    fn default() -> SingleFlight<K, V> {
        SingleFlight::new()
    }
}

impl<K, V> Clone for SingleFlight<K, V> {
    fn clone(&self) -> SingleFlight<K, V> {
        SingleFlight { calls: self.calls.clone() }
    }
}

impl<K, V> fmt::Debug for SingleFlight<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SingleFlight({} under way)", self.calls.lock().len())
    }
}
