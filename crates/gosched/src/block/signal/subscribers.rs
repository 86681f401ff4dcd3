//! The table of subscribers, and the thread that delivers signals to them.
//!
//! A signal is caught as long as it has a subscriber. The first subscriber starts the thread; the
//! thread ends when it finds no subscriber. The table holds only weak references to the
//! subscribers' channels. When the last receiver of a channel is dropped, its [`Subscription`] is
//! dropped and removes the subscriber from the table.
//!
//! The lock of the table is a lock of std: its holder never waits, and the thread is not a
//! goroutine.

use super::{CAPACITY, Signal};
use crate::block::chan::{self, Receiver, WeakSender};
use crate::sys::signals::{self, PreviousAction};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

static TABLE: Mutex<Table> =
    Mutex::new(Table { subscribers: Vec::new(), caught: Vec::new(), is_running: false });

struct Table {
    subscribers: Vec<Subscriber>,
    /// The caught signals, with their previous actions.
    caught: Vec<(i32, PreviousAction)>,
    /// Whether the thread was started and has not decided to end.
    is_running: bool,
}

struct Subscriber {
    number: u64,
    /// The signals of the subscription: see [`signals::bit`].
    bits: u64,
    feeder: WeakSender<Signal>,
}

/// Owned by the channel of a subscriber. Ends the subscription when dropped.
struct Subscription {
    number: u64,
}

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a subscriber. Returns the receiver for its signals.
///
/// # Errors
/// A signal cannot be caught, or the system refuses to create a descriptor or a thread.
pub(super) fn add(bits: u64) -> io::Result<Receiver<Signal>> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // Created before the lock is taken: the receiver's `Subscription` takes the lock when it is
    // dropped, so if this function fails, the lock must be released first.
    let (feeder, receiver) = chan::with_weak_sender(CAPACITY, Arc::new(Subscription { number }));
    signals::create_wake_fd()?;
    let mut table = table();
    if !table.is_running {
        start_thread()?;
        table.is_running = true;
    }
    table.subscribers.push(Subscriber { number, bits, feeder });
    let caught = table.catch_all();
    drop(table);
    caught.map(|()| receiver)
}

impl Table {
    /// Catches all signals that have a subscriber.
    fn catch_all(&mut self) -> io::Result<()> {
        for signal in signals::signals_in_mask(self.wanted()) {
            if self.caught.iter().all(|(caught, _)| *caught != signal) {
                let why = |why| io::Error::other(format!("{}: {why}", Signal(signal)));
                self.caught.push((signal, signals::catch(signal).map_err(why)?));
            }
        }
        Ok(())
    }

    /// Restores the actions of all signals that no longer have a subscriber.
    fn release_rest(&mut self) {
        let wanted = self.wanted();
        self.caught.retain(|(signal, before)| {
            let keep = wanted & signals::bit(*signal) != 0;
            if !keep {
                signals::restore(*signal, before);
            }
            keep
        });
    }

    /// Returns the signals that have a subscriber.
    fn wanted(&self) -> u64 {
        self.subscribers.iter().fold(0, |bits, subscriber| bits | subscriber.bits)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut table = table();
        table.subscribers.retain(|subscriber| subscriber.number != self.number);
        table.release_rest();
        if table.subscribers.is_empty() {
            signals::interrupt_wait();
        }
    }
}

fn start_thread() -> io::Result<()> {
    let thread = std::thread::Builder::new().name("gosched-signals".into());
    thread.stack_size(128 << 10).spawn(deliver_signals).map(drop)
}

/// The main function of the thread.
fn deliver_signals() {
    loop {
        let noted = signals::wait();
        let mut table = table();
        if table.subscribers.is_empty() {
            table.is_running = false;
            return;
        }
        let receivers = table.subscribers.iter().filter(|subscriber| subscriber.bits & noted != 0);
        let receivers: Vec<_> = receivers
            .map(|subscriber| (subscriber.feeder.clone(), subscriber.bits & noted))
            .collect();
        // The lock is released first: `offer` may drop the last reference to a channel, and the
        // channel's `Subscription` then takes the lock.
        drop(table);
        for (feeder, bits) in receivers {
            signals::signals_in_mask(bits).for_each(|signal| feeder.offer(Signal(signal)));
        }
    }
}
