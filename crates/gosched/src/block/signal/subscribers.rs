//! Who is subscribed to what, and the thread that passes signals on.
//!
//! A signal is caught while somebody is subscribed to it. The thread lives while there are subscribers: it is
//! started by the first, and ends when it finds none. A subscriber is known by what holds no share of its
//! channel, which goes with its last receiver, and takes the subscription along ([`Subscription`]).
//!
//! The lock is std's: who holds it does not wait for anything, and the thread is no goroutine.

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
    /// The signals that are caught, and what was done with them before.
    caught: Vec<(i32, PreviousAction)>,
    /// The thread has been started, and has not decided to end.
    is_running: bool,
}

struct Subscriber {
    number: u64,
    /// What it is subscribed to.
    bits: u64,
    feeder: WeakSender<Signal>,
}

/// What goes with the last receiver.
struct Subscription {
    number: u64,
}

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new subscriber.
///
/// # Errors
/// A signal cannot be caught, or the system refuses a descriptor or a thread.
pub(super) fn add(bits: u64) -> io::Result<Receiver<Signal>> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // Dropped after the lock where this fails.
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
    /// Catches what somebody is subscribed to.
    fn catch_all(&mut self) -> io::Result<()> {
        for signal in signals::signals_in_mask(self.wanted()) {
            if self.caught.iter().all(|(caught, _)| *caught != signal) {
                let why = |why| io::Error::other(format!("{}: {why}", Signal(signal)));
                self.caught.push((signal, signals::catch(signal).map_err(why)?));
            }
        }
        Ok(())
    }

    /// Releases what nobody is subscribed to.
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

/// What the thread does.
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
        // Whoever is dropped meanwhile takes its subscription out.
        drop(table);
        for (feeder, bits) in receivers {
            signals::signals_in_mask(bits).for_each(|signal| feeder.offer(Signal(signal)));
        }
    }
}
