//! poll(2): slower, and everywhere. It tells of levels, so a descriptor is only asked about while somebody
//! waits for it: [`Poller::arm`] says so, and the first time it is told of takes that back.
//!
//! The kernel keeps a file that somebody sleeps for, though it is closed: a listener would go on to listen. So
//! whoever takes a descriptor out calls those who sleep with it, and waits until they are out.
//! Sleeper: 1. says which sleep it is; 2. under the lock, marks the entries with that; 3. sleeps; 4. says that it is
//! out. Who takes one out: 1. takes it out under the lock, with its marks; 2. waits while the sleeper is in that sleep.

use super::{
    Direction, Event, EventBuffer, Poller, drain_eventfd, new_eventfd, poll_for, signal_eventfd,
};
use crate::sys::Lock;
use gosched_fiber::lock::NoPreemptLockGuard;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// See the top of this file.
#[derive(Debug)]
pub(super) struct Poll {
    entries: Lock<Vec<Entry>>,
    /// Where the one who waits keeps its list, those who look, and sysmon.
    wait_scratch: Scratch,
    poll_scratch: Scratch,
    sysmon_scratch: Scratch,
    wake_fd: OwnedFd,
    /// The sleeps that were begun.
    sleeps: AtomicU64,
    /// The sleep that the one who waits is in, and sysmon; 0: none.
    asleep: [AtomicU64; 2],
}

const WAITER: usize = 0;
const SYSMON: usize = 1;

#[derive(Clone, Copy, Debug)]
struct Entry {
    fd: RawFd,
    key: usize,
    /// What somebody waits for.
    wanted: i16,
    /// The last sleeps in which the kernel has it.
    sleeps: [u64; 2],
}

/// Lists that are as long as there are entries: one that is in use, and one that was made meanwhile, since
/// there are more.
#[derive(Debug)]
struct Scratch(Lock<[Option<Vec<libc::pollfd>>; 2]>);

impl Scratch {
    const fn new() -> Scratch {
        Scratch(Lock::new([None, None]))
    }

    /// The longer one; `None`: others have them.
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
        // Memory is not given back here: this may be the scheduler.
        std::mem::forget(rest);
    }

    /// Makes room.
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

    /// Asks the kernel, and sleeps for so long: how many were found. `who`: whoever sleeps; `None`: nobody does.
    fn poll_entries(
        &self,
        list: &mut Vec<libc::pollfd>,
        first: RawFd,
        who: Option<usize>,
        timeout: Option<Duration>,
    ) -> usize {
        let sleep = who.map(|who| (who, self.sleeps.fetch_add(1, Ordering::Relaxed) + 1));
        if let Some((who, number)) = sleep {
            // PAIR poll-sleep: said before an entry is marked.
            self.asleep[who].store(number, Ordering::SeqCst);
        }
        self.fill(list, first, sleep);
        let found = poll_for(list, timeout);
        if let Some((who, _)) = sleep {
            // PAIR poll-sleep: the kernel has let go of the files.
            self.asleep[who].store(0, Ordering::SeqCst);
        }
        found
    }

    /// What is to be asked now, after `first`. As many as there is room for: who makes room comes back.
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

    /// What was found, and nobody waits for it any more.
    fn collect_events(&self, list: &[libc::pollfd], buffer: &mut EventBuffer) {
        let mut entries = NoPreemptLockGuard::new(&self.entries);
        for found in list.iter().filter(|found| found.revents != 0) {
            if buffer.is_full() {
                return;
            }
            // It may be another's by now, and tries in vain.
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
            // PAIR poll-sleep: it is out of that sleep.
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
        // Whoever waits asks for this, too.
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

/// What is not wanted any more after this was told.
fn mask(event: Event) -> i16 {
    let read = libc::POLLIN | libc::POLLPRI | libc::POLLRDHUP;
    (if event.readable { read } else { 0 }) | (if event.writable { libc::POLLOUT } else { 0 })
}
