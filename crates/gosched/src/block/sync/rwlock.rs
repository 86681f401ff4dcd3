//! A lock for many readers or one writer. A waiting writer keeps new readers out. When a writer
//! releases the lock, the waiting readers get it before the next writer, as in Go. A read guard
//! never becomes a write guard: the lock has no upgrade.

use super::parking::{Guarded, Held, WaitOptions, WaitOutcome};
use crate::block::before_wait;
use crate::block::waiter::WaitQueue;
use crate::gmp::current;
use crate::gmp::g::G;
use crate::probe;
use crate::probe::wait_reason::WaitReason;
use crate::sys::clock;
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// A lock that protects a value and allows many readers or one writer at a time.
///
/// A waiting writer keeps new readers out. When a writer releases the lock, the readers that wait
/// get it before the next writer. There is no poisoning: if a holder panics, the lock is released.
///
/// ```
/// let lock = gosched::sync::RwLock::new(5);
/// assert_eq!(*lock.read() + *lock.read(), 10);
/// *lock.write() += 1;
/// assert_eq!(lock.into_inner(), 6);
/// ```
#[derive(Default)]
pub struct RwLock<T: ?Sized> {
    state: Guarded<State>,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives access to the value to one writer, or shared access to readers.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

#[derive(Debug, Default)]
struct State {
    readers: usize,
    writer: bool,
    waiting_readers: WaitQueue,
    waiting_writers: WaitQueue,
    holders: Holders,
}

/// The ids of the goroutines that hold the lock, for the leak hints; 0 for an unused entry. Not all
/// of many readers are recorded. The leak hints read a copy, so this consists of plain words.
#[repr(C)]
#[derive(Debug, Default)]
struct Holders {
    writer: u64,
    readers: [u64; TRACKED_READERS],
}

/// How many readers are recorded.
pub(crate) const TRACKED_READERS: usize = 3;

impl Holders {
    fn set_writer(&mut self, number: u64) {
        if probe::ENABLED {
            self.writer = number;
        }
    }

    fn add_reader(&mut self, number: u64) {
        let place = self.readers.iter_mut().find(|place| probe::ENABLED && **place == 0);
        if let Some(place) = place {
            *place = number;
        }
    }

    fn remove_reader(&mut self, number: u64) {
        let place = self.readers.iter_mut().find(|place| probe::ENABLED && **place == number);
        if let Some(place) = place {
            *place = 0;
        }
    }
}

impl Default for Guarded<State> {
    fn default() -> Self {
        Guarded::new(State::default())
    }
}

impl State {
    const fn new() -> State {
        State {
            readers: 0,
            writer: false,
            waiting_readers: WaitQueue::new(),
            waiting_writers: WaitQueue::new(),
            holders: Holders { writer: 0, readers: [0; TRACKED_READERS] },
        }
    }

    fn try_read(&mut self) -> Option<()> {
        let free = !self.writer && self.waiting_writers.is_empty();
        self.readers += usize::from(free);
        if free {
            self.holders.add_reader(current::goroutine_id());
        }
        free.then_some(())
    }

    fn try_write(&mut self) -> Option<()> {
        let free = !self.writer && self.readers == 0;
        self.writer |= free;
        if free {
            self.holders.set_writer(current::goroutine_id());
        }
        free.then_some(())
    }
}

/// Gives the lock to all waiting readers.
fn let_readers_in(held: &mut Held<'_, State>) {
    while let Some(taken) = held.waiting_readers.fire_next() {
        held.readers += 1;
        let g = taken.g();
        held.holders.add_reader(g.map_or(0, G::id));
        held.ready(g);
    }
}

/// Gives the lock to the first waiting writer.
fn let_a_writer_in(held: &mut Held<'_, State>) {
    if let Some(taken) = held.waiting_writers.fire_next() {
        held.writer = true;
        let g = taken.g();
        held.holders.set_writer(g.map_or(0, G::id));
        held.ready(g);
    }
}

/// Gives the lock to the readers that a writer kept out, after that writer's time limit was
/// reached.
fn writer_gave_up(held: &mut Held<'_, State>) {
    if !held.writer && held.waiting_writers.is_empty() {
        let_readers_in(held);
    }
}

impl<T> RwLock<T> {
    /// Creates a lock that is not held.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock { state: Guarded::new(State::new()), value: UnsafeCell::new(value) }
    }

    /// Consumes the lock and returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Acquires the lock for reading. Blocks while a writer holds the lock or waits for it.
    ///
    /// A goroutine that already holds a read guard must not call `read` again: if a writer waits,
    /// both block forever.
    #[doc(alias = "RLock")]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        before_wait();
        self.wait_to_read(None);
        RwLockReadGuard { lock: self, not_send: PhantomData }
    }

    /// Acquires the lock for writing. Blocks while a reader or a writer holds the lock.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        before_wait();
        self.wait_to_write(None);
        RwLockWriteGuard { lock: self, not_send: PhantomData }
    }

    /// Acquires the lock for reading if that is possible without blocking. Returns `None`
    /// otherwise.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let taken = self.state.lock().try_read();
        taken.map(|()| RwLockReadGuard { lock: self, not_send: PhantomData })
    }

    /// Acquires the lock for writing if that is possible without blocking. Returns `None`
    /// otherwise.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let taken = self.state.lock().try_write();
        taken.map(|()| RwLockWriteGuard { lock: self, not_send: PhantomData })
    }

    /// Acquires the lock like [`RwLock::read`], but waits at most `duration`. Returns `None` if the
    /// lock could not be acquired in time.
    pub fn try_read_for(&self, duration: Duration) -> Option<RwLockReadGuard<'_, T>> {
        self.try_read().or_else(|| {
            before_wait();
            let taken = self.wait_to_read(Some(clock::after(duration)));
            taken.then(|| RwLockReadGuard { lock: self, not_send: PhantomData })
        })
    }

    /// Acquires the lock like [`RwLock::write`], but waits at most `duration`. Returns `None` if
    /// the lock could not be acquired in time.
    pub fn try_write_for(&self, duration: Duration) -> Option<RwLockWriteGuard<'_, T>> {
        self.try_write().or_else(|| {
            before_wait();
            let taken = self.wait_to_write(Some(clock::after(duration)));
            taken.then(|| RwLockWriteGuard { lock: self, not_send: PhantomData })
        })
    }

    fn holders(&self) -> *const () {
        let state = self.state.as_ptr();
        // SAFETY: computes the address of a field, and reads nothing.
        let holders = unsafe { &raw const (*state).holders };
        holders.cast()
    }

    fn wait_to_read(&self, until: Option<u64>) -> bool {
        let wait = WaitOptions {
            reason: WaitReason::RwLockRead,
            holders: self.holders(),
            queue: |state: &mut State| &mut state.waiting_readers,
            first: false,
            ticket: std::ptr::null_mut(),
            until,
            gave_up: None,
        };
        // The thread that removes a reader from the queue has already counted it in `readers`.
        self.state.wait(&wait, |held| held.try_read()) != Err(WaitOutcome::TimedOut)
    }

    fn wait_to_write(&self, until: Option<u64>) -> bool {
        let wait = WaitOptions {
            reason: WaitReason::RwLockWrite,
            holders: self.holders(),
            queue: |state: &mut State| &mut state.waiting_writers,
            first: false,
            ticket: std::ptr::null_mut(),
            until,
            gave_up: Some(&writer_gave_up),
        };
        self.state.wait(&wait, |held| held.try_write()) != Err(WaitOutcome::TimedOut)
    }

    /// Returns a mutable reference to the value. No locking is necessary, because `&mut self` is
    /// exclusive.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> RwLock<T> {
        RwLock::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_read() {
            Some(guard) => f.debug_struct("RwLock").field("value", &&*guard).finish(),
            None => f.write_str("RwLock { <locked> }"),
        }
    }
}

/// A guard that gives shared access to the value of an [`RwLock`], and releases the lock when
/// dropped.
#[must_use = "the lock is free again as soon as the guard is dropped"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    /// Makes the guard `!Send`, as in std.
    not_send: PhantomData<*const ()>,
}

/// A guard that gives exclusive access to the value of an [`RwLock`], and releases the lock when
/// dropped.
#[must_use = "the lock is free again as soon as the guard is dropped"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    /// Makes the guard `!Send`, as in std.
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared reference to the guard gives only a shared reference to the value.
unsafe impl<T: ?Sized + Sync> Sync for RwLockReadGuard<'_, T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for RwLockWriteGuard<'_, T> {}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: there is no writer as long as the guard exists.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: there is no reader and no other writer as long as the guard exists.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: there is no reader and no other writer as long as the guard exists.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    fn drop(&mut self) {
        let mut held = self.lock.state.lock();
        held.readers -= 1;
        held.holders.remove_reader(current::goroutine_id());
        if held.readers == 0 {
            let_a_writer_in(&mut held);
        }
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    fn drop(&mut self) {
        let mut held = self.lock.state.lock();
        held.writer = false;
        held.holders.set_writer(0);
        let_readers_in(&mut held);
        if held.readers == 0 {
            let_a_writer_in(&mut held);
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
