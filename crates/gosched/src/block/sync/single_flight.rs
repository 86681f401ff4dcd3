//! Concurrent calls with the same key, of which only one is executed. A result is never cached: a
//! call that begins after the end of another executes its own function.

use super::{Mutex, OnceLock};
use crate::block::chan::{self, Receiver};
use crate::block::goroutine;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

/// Combines concurrent calls with the same key into one call, and returns its result to all
/// callers.
///
/// Clones share the calls in progress. Keys are hashed, compared and cloned under a lock: these
/// operations should be short, and must not use the same `SingleFlight`.
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
    calls: Calls<K, V>,
}

/// A call in progress.
struct Call<V> {
    /// Closed when the call has ended.
    over: Receiver<()>,
    /// Stays empty if the call ends with a panic or with `goexit`.
    value: OnceLock<V>,
    /// The number of callers that wait for the call, without the caller that executes it.
    others: Mutex<usize>,
}

impl<K: Eq + Hash + Clone, V: Clone> SingleFlight<K, V> {
    /// Creates a `SingleFlight` without calls in progress.
    pub fn new() -> SingleFlight<K, V> {
        SingleFlight { calls: Arc::default() }
    }

    /// Calls `f` and returns its result, unless a call with the same key is in progress: then waits
    /// for that call and returns its result.
    ///
    /// The returned flag is `true` if several callers got the result. A call of `run` with the same
    /// key inside `f` blocks forever.
    ///
    /// # Panics
    /// `f` panics. Or the call for which this call waited ended without a result, because its `f`
    /// panicked or called [`goexit`](crate::goexit).
    #[doc(alias = "Do")]
    #[track_caller]
    pub fn run(&self, key: K, f: impl FnOnce() -> V) -> (V, bool) {
        match self.begin(key) {
            Part::Waits(call) => call.wait(),
            Part::Leads(flight) => flight.land(f()),
        }
    }

    /// Like [`SingleFlight::run`], but executes `f` in a new goroutine and returns a receiver on
    /// which the result arrives, once.
    ///
    /// When this function returns, the call is in progress: later calls with the same key wait for
    /// it. If the call ends with a panic or with [`goexit`](crate::goexit), the channel is closed
    /// without a result.
    #[doc(alias = "DoChan")]
    #[track_caller]
    pub fn run_chan<F>(&self, key: K, f: F) -> Receiver<(V, bool)>
    where
        K: Send + 'static,
        V: Send + Sync + 'static,
        F: FnOnce() -> V + Send + 'static,
    {
        let (sender, receiver) = chan::chan(1);
        let part = self.begin(key);
        goroutine::go(move || {
            let given = match part {
                Part::Waits(call) => call.wait_quietly(),
                Part::Leads(flight) => Some(flight.land(f())),
            };
            if let Some(given) = given {
                let _ = sender.send(given);
            }
        });
        receiver
    }

    fn begin(&self, key: K) -> Part<K, V> {
        let mut calls = self.calls.lock_no_unwind();
        if let Some(call) = calls.get(&key) {
            let call = call.clone();
            *call.others.lock_no_unwind() += 1;
            return Part::Waits(call);
        }
        let call = Arc::new(Call::new());
        calls.insert(key.clone(), call.clone());
        drop(calls);
        Part::Leads(Flight { calls: self.calls.clone(), key, call })
    }

    /// Makes the next call with this key execute its function, even if a call with this key is in
    /// progress.
    #[doc(alias = "Forget")]
    pub fn forget(&self, key: &K) {
        let call = self.calls.lock_no_unwind().remove_entry(key);
        drop(call);
    }
}

impl<V: Clone> Call<V> {
    fn new() -> Call<V> {
        Call { over: chan::sealed(), value: OnceLock::new(), others: Mutex::new(0) }
    }

    #[track_caller]
    fn wait(&self) -> (V, bool) {
        match self.wait_quietly() {
            Some(given) => given,
            None => {
                panic!(
                    "`SingleFlight::run`: the call with the same key panicked or called `goexit`, so there is no result: call `run` again"
                )
            }
        }
    }

    fn wait_quietly(&self) -> Option<(V, bool)> {
        let _ = self.over.recv();
        self.value.get().map(|value| (value.clone(), true))
    }
}

/// The role of a caller: it executes the call, or waits for it.
enum Part<K: Eq + Hash, V> {
    Leads(Flight<K, V>),
    Waits(Arc<Call<V>>),
}

/// The calls in progress, by key.
type Calls<K, V> = Arc<Mutex<HashMap<K, Arc<Call<V>>>>>;

/// A call in progress, as its executor holds it. Dropping this value ends the call, with or without
/// a result.
struct Flight<K: Eq + Hash, V> {
    calls: Calls<K, V>,
    key: K,
    call: Arc<Call<V>>,
}

impl<K: Eq + Hash, V: Clone> Flight<K, V> {
    fn land(self, value: V) -> (V, bool) {
        let _ = self.call.value.set(value.clone());
        let call = self.call.clone();
        drop(self);
        // The call is no longer in the map, so the number of waiting callers is final.
        let shared = *call.others.lock_no_unwind() > 0;
        (value, shared)
    }
}

impl<K: Eq + Hash, V> Drop for Flight<K, V> {
    fn drop(&mut self) {
        /// Ends the call, whatever the key's code does when the key is compared or dropped.
        struct Over<'a>(&'a Receiver<()>);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.core().close();
            }
        }
        let _over = Over(&self.call.over);
        let mut calls = self.calls.lock_no_unwind();
        // The call may have been forgotten, and another call with the same key may be in progress.
        let mine = calls.get(&self.key).is_some_and(|call| Arc::ptr_eq(call, &self.call));
        let gone = if mine { calls.remove_entry(&self.key) } else { None };
        drop(calls);
        drop(gone);
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
        write!(f, "SingleFlight({} under way)", self.calls.lock_no_unwind().len())
    }
}
