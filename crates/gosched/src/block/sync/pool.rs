//! Values for reuse: each P has its own stock, so that Ps do not contend for a lock. (If the number
//! of Ps grows after the first use, Ps share stocks; ordinary threads share the first.) A pool
//! never allocates, creates a value or drops a value under a lock.

use super::parking::Guarded;
use crate::sched;
use crate::sys::cache_padded::CachePadded;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;

/// A pool of values that are expensive to create, for reuse by any goroutine or thread.
///
/// The pool keeps at most 1024 values for each processor (P). [`Pool::put`] drops a value for which
/// there is no room.
///
/// ```
/// use gosched::sync::Pool;
///
/// static BUFFERS: Pool<Vec<u8>> = Pool::new(|| Vec::with_capacity(4096));
///
/// let mut buffer = BUFFERS.get();
/// buffer.extend_from_slice(b"hello");
/// buffer.clear();
/// BUFFERS.put(buffer);
/// ```
pub struct Pool<T, F = fn() -> T> {
    make: F,
    stocks: OnceLock<Box<[Stock<T>]>>,
}

/// The values of one P.
type Stock<T> = CachePadded<Guarded<Vec<T>>>;

/// The maximum number of values in a stock.
const MAX_VALUES_PER_P: usize = 1024;

/// The initial capacity of a stock.
const INITIAL_CAPACITY: usize = 8;

impl<T: Send, F: Fn() -> T> Pool<T, F> {
    /// Creates an empty pool. `make` creates a value when the pool has none.
    pub const fn new(make: F) -> Pool<T, F> {
        Pool { make, stocks: OnceLock::new() }
    }

    /// Takes a value from the pool, or creates one if the pool is empty.
    ///
    /// Prefers the value that was put back last by a goroutine on the same processor (P).
    #[doc(alias = "Get")]
    pub fn get(&self) -> T {
        self.take().unwrap_or_else(&self.make)
    }

    /// Takes a value like [`Pool::get`]. The value goes back into the pool when the returned guard
    /// is dropped.
    pub fn lend(&self) -> Lent<'_, T, F> {
        Lent { pool: self, value: Some(self.get()) }
    }

    /// Puts a value into the pool.
    #[doc(alias = "Put")]
    pub fn put(&self, value: T) {
        let stocks = self.stocks();
        let stock = &stocks[here(stocks.len())];
        let mut value = Some(value);
        let mut more = Vec::new();
        loop {
            let mut held = stock.lock();
            let room = held.capacity();
            if held.len() == room && more.capacity() > room {
                more.append(&mut held);
                std::mem::swap(&mut *held, &mut more);
            }
            if held.len() < held.capacity() {
                held.extend(value.take());
            }
            drop(held);
            if value.is_none() || room >= MAX_VALUES_PER_P {
                // A value for which there is no room is dropped here, outside the lock, and so is
                // the old buffer.
                return;
            }
            more = Vec::with_capacity((2 * room).max(INITIAL_CAPACITY));
        }
    }

    fn take(&self) -> Option<T> {
        let stocks = self.stocks.get()?;
        let here = here(stocks.len());
        let mut next = stocks[here..].iter().chain(&stocks[..here]);
        next.find_map(|stock| stock.lock().pop())
    }

    /// Drops all values in the pool.
    pub fn clear(&self) {
        for stock in self.stocks.get().into_iter().flatten() {
            let values = std::mem::take(&mut *stock.lock());
            drop(values);
        }
    }

    fn stocks(&self) -> &[Stock<T>] {
        self.stocks.get_or_init(|| {
            (0..sched::procs()).map(|_| CachePadded::new(Guarded::new(Vec::new()))).collect()
        })
    }
}

/// Returns the index of the stock of the P that runs the caller; 0 on an ordinary thread.
fn here(stocks: usize) -> usize {
    sched::p_number().map_or(0, |p| p % stocks)
}

/// A value borrowed from a [`Pool`]. Dropping it puts the value back.
pub struct Lent<'a, T: Send, F: Fn() -> T = fn() -> T> {
    pool: &'a Pool<T, F>,
    /// `Some` until the value is kept or put back.
    value: Option<T>,
}

impl<T: Send, F: Fn() -> T> Lent<'_, T, F> {
    /// Returns the value, which does not go back into the pool.
    pub fn keep(mut self) -> T {
        match self.value.take() {
            Some(value) => value,
            None => unreachable!("the value is present until it is kept or put back"),
        }
    }
}

impl<T: Send, F: Fn() -> T> Deref for Lent<'_, T, F> {
    type Target = T;
    fn deref(&self) -> &T {
        match &self.value {
            Some(value) => value,
            None => unreachable!("the value is present until it is kept or put back"),
        }
    }
}

impl<T: Send, F: Fn() -> T> DerefMut for Lent<'_, T, F> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.value {
            Some(value) => value,
            None => unreachable!("the value is present until it is kept or put back"),
        }
    }
}

impl<T: Send, F: Fn() -> T> Drop for Lent<'_, T, F> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            self.pool.put(value);
        }
    }
}

impl<T: Send + fmt::Debug, F: Fn() -> T> fmt::Debug for Lent<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T, F> fmt::Debug for Pool<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pool")
    }
}
