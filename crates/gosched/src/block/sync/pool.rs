//! Values to be used again: a stock for each P, so that Ps do not get in each other's way.

use super::parking::Guarded;
use crate::sched;
use crate::sys::cache_padded::CachePadded;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;

/// Values that cost something to make, for whoever needs one next. What is put back may be dropped at any
/// time.
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

/// One P's values.
type Stock<T> = CachePadded<Guarded<Vec<T>>>;

/// A P keeps no more.
const MAX_VALUES_PER_P: usize = 1024;

/// Room that a stock begins with.
const INITIAL_CAPACITY: usize = 8;

impl<T: Send, F: Fn() -> T> Pool<T, F> {
    /// An empty one; `make` makes a value where there is none.
    pub const fn new(make: F) -> Pool<T, F> {
        Pool { make, stocks: OnceLock::new() }
    }

    /// A value: one that was put back here lately, or anywhere, or a new one.
    #[doc(alias = "Get")]
    pub fn get(&self) -> T {
        self.take().unwrap_or_else(&self.make)
    }

    /// As [`Pool::get`]; goes back when it is dropped.
    pub fn lend(&self) -> Lent<'_, T, F> {
        Lent { pool: self, value: Some(self.get()) }
    }

    /// For somebody else.
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
                // What is left is dropped here, and old room too.
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

    /// Drops all values that are there.
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

/// The stock of the P that the caller is on.
fn here(stocks: usize) -> usize {
    sched::p_number().map_or(0, |p| p % stocks)
}

/// A value of a pool, which it goes back to.
pub struct Lent<'a, T: Send, F: Fn() -> T = fn() -> T> {
    pool: &'a Pool<T, F>,
    /// Until it goes.
    value: Option<T>,
}

impl<T: Send, F: Fn() -> T> Lent<'_, T, F> {
    /// It does not go back.
    pub fn keep(mut self) -> T {
        match self.value.take() {
            Some(value) => value,
            None => unreachable!("it is there until it goes"),
        }
    }
}

impl<T: Send, F: Fn() -> T> Deref for Lent<'_, T, F> {
    type Target = T;
    fn deref(&self) -> &T {
        match &self.value {
            Some(value) => value,
            None => unreachable!("it is there until it goes"),
        }
    }
}

impl<T: Send, F: Fn() -> T> DerefMut for Lent<'_, T, F> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.value {
            Some(value) => value,
            None => unreachable!("it is there until it goes"),
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
