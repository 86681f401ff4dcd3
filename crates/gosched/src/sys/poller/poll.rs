//! The poll(2) implementation of [`Poller`]: slower than epoll, but available everywhere. poll(2)
//! reports levels, not edges. So a descriptor is polled only while a G waits for it:
//! [`Poller::arm`] marks a direction as wanted, and the first event clears the mark.
//!
//! The kernel keeps a file open while a thread sleeps in poll(2) with its descriptor, even after
//! the descriptor is closed: a closed listener would still accept connections. So
//! [`Poller::remove`] wakes the threads that sleep with the descriptor, and waits until they have
//! left poll(2).
//!
//! - Sleeping thread: 1. publishes the number of its sleep; 2. under the lock, marks the entries
//!   that it polls with that number; 3. sleeps; 4. publishes 0.
//! - Removing thread: 1. under the lock, takes out the entry with its marks; 2. for each mark,
//!   waits as long as the published number equals the mark.
//!
//! Outside of [`Poller::add`], this implementation never allocates or frees memory: the caller may
//! be the scheduler.

use super::{
    Direction, Event, EventBuffer, Poller, drain_eventfd, new_eventfd, poll_for, signal_eventfd,
};
use crate::sys::Lock;
use gosched_fiber::lock::NoPreemptLockGuard;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The polled descriptors and the state of the sleeping threads.
#[derive(Debug)]
pub(super) struct Poll {
    entries: Lock<Vec<Entry>>,
    /// Lists for the thread that blocks in `poll`.
    wait_scratch: Scratch,
    /// Lists for the threads that poll without blocking.
    poll_scratch: Scratch,
    /// Lists for sysmon in `wait_for_events`.
    sysmon_scratch: Scratch,
    wake_fd: OwnedFd,
    /// Number of sleeps begun so far, which is also the number of the latest sleep.
    sleeps: AtomicU64,
    /// Number of the sleep that each sleeper ([`WAITER`], [`SYSMON`]) is in; 0 if it is not asleep.
    asleep: [AtomicU64; 2],
}

/// Index of the thread that blocks in `poll`.
const WAITER: usize = 0;
/// Index of sysmon in `wait_for_events`.
const SYSMON: usize = 1;

#[derive(Clone, Copy, Debug)]
struct Entry {
    fd: RawFd,
    key: usize,
    /// The poll(2) events that a G waits for; 0 if there are none.
    wanted: i16,
    /// The last sleep of each sleeper ([`WAITER`], [`SYSMON`]) that polls this entry; 0 if there is
    /// none.
    sleeps: [u64; 2],
}

/// Preallocated lists with room for all entries. There are two slots, so that [`Scratch::grow`] can
/// add a longer list while a shorter one is in use.
#[derive(Debug)]
struct Scratch(Lock<[Option<Vec<libc::pollfd>>; 2]>);

impl Scratch {
    const fn new() -> Scratch {
        Scratch(Lock::new([None, None]))
    }

    /// Takes the longer list. Returns `None` if other threads have taken all lists.
    fn take(&self) -> Option<Vec<libc::pollfd>> {
        let mut lists = NoPreemptLockGuard::new(&self.0);
        lists.iter_mut().max_by_key(|list| room(list)).and_then(Option::take)
    }

    fn give_back(&self, list: Vec<libc::pollfd>) {
        let mut lists = NoPreemptLockGuard::new(&self.0);
        let rest = match lists.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => slot.replace(list),
            None => Some(list),
        };
        // A surplus list is leaked: the caller may be the scheduler, which must not call the
        // allocator.
        std::mem::forget(rest);
    }

    /// Ensures that a list has room for `wanted` records.
    fn grow(&self, wanted: usize) {
        let new = Vec::with_capacity(wanted);
        let mut lists = NoPreemptLockGuard::new(&self.0);
        let enough = lists.iter().any(|list| room(list) >= wanted);
        let old = match lists.iter_mut().min_by_key(|list| room(list)) {
            Some(slot) if !enough => slot.replace(new),
            _ => Some(new),
        };
        drop(lists);
        drop(old);
    }
}

fn room(list: &Option<Vec<libc::pollfd>>) -> usize {
    list.as_ref().map_or(0, Vec::capacity)
}

impl Poll {
    pub(super) fn new() -> io::Result<Poll> {
        Ok(Poll {
            entries: Lock::new(Vec::new()),
            wait_scratch: Scratch::new(),
            poll_scratch: Scratch::new(),
            sysmon_scratch: Scratch::new(),
            wake_fd: new_eventfd()?,
            sleeps: AtomicU64::new(0),
            asleep: [const { AtomicU64::new(0) }; 2],
        })
    }

    /// Polls `first` and the wanted entries, at most for `timeout`. Returns how many are ready.
    /// `who` is the sleeper ([`WAITER`] or [`SYSMON`]), or `None` if the call does not sleep.
    fn poll_entries(
        &self,
        list: &mut Vec<libc::pollfd>,
        first: RawFd,
        who: Option<usize>,
        timeout: Option<Duration>,
    ) -> usize {
        let sleep = who.map(|who| (who, self.sleeps.fetch_add(1, Ordering::Relaxed) + 1));
        if let Some((who, number)) = sleep {
            // PAIR poll-sleep: the number is published before an entry is marked with it.
            self.asleep[who].store(number, Ordering::SeqCst);
        }
        self.fill(list, first, sleep);
        let found = poll_for(list, timeout);
        if let Some((who, _)) = sleep {
            // PAIR poll-sleep: the kernel has released the files.
            self.asleep[who].store(0, Ordering::SeqCst);
        }
        found
    }

    /// Fills `list` with `first` and the wanted entries, as many as there is room for. An entry
    /// that does not fit was added after the list was taken. [`Poller::arm`] interrupts the blocked
    /// thread for that entry, and the thread's next call takes a longer list.
    fn fill(&self, list: &mut Vec<libc::pollfd>, first: RawFd, sleep: Option<(usize, u64)>) {
        list.clear();
        let mut entries = NoPreemptLockGuard::new(&self.entries);
        let wanted = entries.iter_mut().filter(|entry| entry.wanted != 0);
        let rest = wanted.map(|entry| {
            if let Some((who, number)) = sleep {
                entry.sleeps[who] = number;
            }
            libc::pollfd { fd: entry.fd, events: entry.wanted, revents: 0 }
        });
        let first = libc::pollfd { fd: first, events: libc::POLLIN, revents: 0 };
        let room = list.capacity();
        list.extend(std::iter::once(first).chain(rest).take(room));
    }

    /// Copies the ready entries of `list` to `buffer`, and clears the wanted events that they
    /// satisfy.
    fn collect_events(&self, list: &[libc::pollfd], buffer: &mut EventBuffer) {
        let mut entries = NoPreemptLockGuard::new(&self.entries);
        for found in list.iter().filter(|found| found.revents != 0) {
            if buffer.is_full() {
                return;
            }
            // If the number was reused for another descriptor meanwhile, this event is spurious.
            let entry = entries.iter_mut().find(|entry| entry.fd == found.fd && entry.wanted != 0);
            if let Some(entry) = entry {
                let event = event(entry.key, found.revents);
                entry.wanted &= !mask(event);
                buffer.push(event);
            }
        }
    }
}

impl Poller for Poll {
    fn add(&self, fd: RawFd, key: usize) -> io::Result<()> {
        let entry = Entry { fd, key, wanted: 0, sleeps: [0; 2] };
        loop {
            let len = NoPreemptLockGuard::new(&self.entries).len();
            let mut room = Vec::with_capacity(2 * len + 64);
            for scratch in [&self.wait_scratch, &self.poll_scratch, &self.sysmon_scratch] {
                scratch.grow(room.capacity() + 1);
            }
            let mut entries = NoPreemptLockGuard::new(&self.entries);
            if entries.len() == entries.capacity() && room.capacity() > entries.len() {
                room.extend_from_slice(&entries);
                std::mem::swap(&mut *entries, &mut room);
            }
            let fits = entries.len() < entries.capacity();
            if fits {
                entries.push(entry);
            }
            drop(entries);
            drop(room);
            if fits {
                return Ok(());
            }
        }
    }

    fn remove(&self, fd: RawFd, key: usize) {
        let mut entries = NoPreemptLockGuard::new(&self.entries);
        let at = entries.iter().position(|entry| entry.fd == fd && entry.key == key);
        let Some(entry) = at.map(|at| entries.swap_remove(at)) else { return };
        drop(entries);
        for (asleep, number) in
            self.asleep.iter().zip(entry.sleeps).filter(|(_, number)| *number != 0)
        {
            // PAIR poll-sleep: a different number means that the sleeper has left that sleep.
            while asleep.load(Ordering::SeqCst) == number {
                signal_eventfd(&self.wake_fd);
                super::sysmon_wake_fd().into_iter().for_each(signal_eventfd);
                std::thread::yield_now();
            }
        }
    }

    fn arm(&self, key: usize, what: Direction) {
        let wanted = match what {
            Direction::Read => libc::POLLIN | libc::POLLPRI | libc::POLLRDHUP,
            Direction::Write => libc::POLLOUT,
        };
        let mut entries = NoPreemptLockGuard::new(&self.entries);
        entries
            .iter_mut()
            .filter(|entry| entry.key == key)
            .for_each(|entry| entry.wanted |= wanted);
        drop(entries);
        // The blocked thread must poll again, with the new event.
        signal_eventfd(&self.wake_fd);
    }

    fn poll(&self, buffer: &mut EventBuffer, timeout: Option<Duration>) {
        buffer.clear();
        let waits = timeout != Some(Duration::ZERO);
        let scratch = if waits { &self.wait_scratch } else { &self.poll_scratch };
        let Some(mut list) = scratch.take() else { return };
        let who = waits.then_some(WAITER);
        if self.poll_entries(&mut list, self.wake_fd.as_raw_fd(), who, timeout) > 0 {
            if waits {
                drain_eventfd(&self.wake_fd);
            }
            self.collect_events(list.get(1..).unwrap_or_default(), buffer);
        }
        scratch.give_back(list);
    }

    fn wait_for_events(&self, stop: RawFd, timeout: Duration) -> bool {
        let Some(mut list) = self.sysmon_scratch.take() else { return false };
        self.poll_entries(&mut list, stop, Some(SYSMON), Some(timeout));
        let is_any_ready = list.iter().skip(1).any(|found| found.revents != 0);
        self.sysmon_scratch.give_back(list);
        is_any_ready
    }

    fn interrupt(&self) {
        signal_eventfd(&self.wake_fd);
    }

    fn clear_interrupt(&self) {
        drain_eventfd(&self.wake_fd);
    }
}

fn event(key: usize, found: i16) -> Event {
    let gone = libc::POLLHUP | libc::POLLERR | libc::POLLNVAL;
    let odd = gone | libc::POLLRDHUP | libc::POLLPRI;
    Event {
        key,
        readable: found & (libc::POLLIN | odd) != 0,
        writable: found & (libc::POLLOUT | gone) != 0,
        exceptional: found & odd != 0,
    }
}

/// Returns the poll(2) events that `event` satisfies, which are no longer wanted.
fn mask(event: Event) -> i16 {
    let read = libc::POLLIN | libc::POLLPRI | libc::POLLRDHUP;
    (if event.readable { read } else { 0 }) | (if event.writable { libc::POLLOUT } else { 0 })
}
