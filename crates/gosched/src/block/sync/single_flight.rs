//! Many ask for one thing at the same time: it is fetched once.

use super::{Mutex, OnceLock};
use crate::block::chan::{self, Receiver};
use crate::block::goroutine;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

/// Calls with the same key at the same time become one. Clones are the same. Keys are hashed, compared and
/// cloned under a lock: their code should be short, and not come back here.
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
        match self.begin(key) {
            Part::Waits(call) => call.wait(),
            Part::Leads(flight) => flight.land(f()),
        }
    }

    /// As [`SingleFlight::run`], in a goroutine of its own: what it gives can be received, once. The call is
    /// under way when this returns. If it ends without a value the channel is closed, and empty.
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

    /// The next call with that key does not wait for the one under way.
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
                panic!("`SingleFlight::run`: the call that was waited for ended without a value")
            }
        }
    }

    fn wait_quietly(&self) -> Option<(V, bool)> {
        let _ = self.over.recv();
        self.value.get().map(|value| (value.clone(), true))
    }
}

/// What a caller does.
enum Part<K: Eq + Hash, V> {
    Leads(Flight<K, V>),
    Waits(Arc<Call<V>>),
}

/// Calls under way.
type Calls<K, V> = Arc<Mutex<HashMap<K, Arc<Call<V>>>>>;

/// A call under way: over however it ends.
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
        // Nobody comes any more.
        let shared = *call.others.lock_no_unwind() > 0;
        (value, shared)
    }
}

impl<K: Eq + Hash, V> Drop for Flight<K, V> {
    fn drop(&mut self) {
        /// Whatever the key does when it is compared or dropped.
        struct Over<'a>(&'a Receiver<()>);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.core().close();
            }
        }
        let _over = Over(&self.call.over);
        let mut calls = self.calls.lock_no_unwind();
        // It may have been forgotten, and another one be under way.
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
