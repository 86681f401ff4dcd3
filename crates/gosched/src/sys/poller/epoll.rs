//! epoll, edge-triggered.
//!
//! The descriptor that interrupts is level-triggered: those who only look see it and leave it; the one who
//! waits takes it back when it comes out. So a look by another M cannot swallow it.

use super::{AT_A_TIME, Direction, Event, Poller, Told};
use super::{checked, new_bell, poll_for, ring, timespec, unring};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// See the top of this file.
#[derive(Debug)]
pub(super) struct Epoll {
    epoll: OwnedFd,
    bell: OwnedFd,
    /// The system knows waits of nanoseconds (Linux 5.11).
    exact: AtomicBool,
}

/// The key of the descriptor that interrupts: nothing else lies at that address.
const BELL: u64 = 0;

const WANTED: i32 =
    libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLPRI | libc::EPOLLET;

impl Epoll {
    pub(super) fn new() -> io::Result<Epoll> {
        // SAFETY: no memory is involved.
        let epoll = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: just opened, and nobody else's.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        let bell = new_bell()?;
        control(&epoll, libc::EPOLL_CTL_ADD, bell.as_raw_fd(), libc::EPOLLIN, BELL)?;
        Ok(Epoll { epoll, bell, exact: AtomicBool::new(true) })
    }

    fn wait(&self, events: &mut [libc::epoll_event], timeout: Option<Duration>) -> usize {
        let most = events.len() as libc::c_int;
        let epoll = self.epoll.as_raw_fd();
        if timeout.is_none_or(|timeout| !timeout.is_zero()) && self.exact.load(Ordering::Relaxed) {
            let limit = timeout.map(timespec);
            let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            let (events, no_mask) = (events.as_mut_ptr(), std::ptr::null::<libc::sigset_t>());
            // SAFETY: room for `most` events; the limit lives, or is null.
            let found = unsafe {
                libc::syscall(libc::SYS_epoll_pwait2, epoll, events, most, limit, no_mask, 0usize)
            };
            if found >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS) {
                return usize::try_from(found).unwrap_or(0);
            }
            self.exact.store(false, Ordering::Relaxed);
        }
        // Rather too late than too early.
        let limit = timeout.map_or(-1, |timeout| {
            i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
        });
        // SAFETY: room for `most` events.
        let found = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), most, limit) };
        usize::try_from(found).unwrap_or(0)
    }
}

fn control(epoll: &OwnedFd, what: i32, fd: RawFd, events: i32, key: u64) -> io::Result<()> {
    let mut event = libc::epoll_event { events: events.cast_unsigned(), u64: key };
    // SAFETY: the event lives during the call.
    checked(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), what, fd, &raw mut event) }).map(drop)
}

impl Poller for Epoll {
    fn add(&self, fd: RawFd, key: usize) -> io::Result<()> {
        control(&self.epoll, libc::EPOLL_CTL_ADD, fd, WANTED, key as u64)
    }

    fn remove(&self, fd: RawFd, _key: usize) {
        // It can only fail for one that is gone.
        let _ = control(&self.epoll, libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    fn want(&self, _key: usize, _what: Direction) {}

    fn poll(&self, told: &mut Told, timeout: Option<Duration>) {
        told.clear();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; AT_A_TIME];
        // One more: the bell may be among them.
        let room = (told.most + 1).min(AT_A_TIME);
        let found = self.wait(&mut events[..room], timeout);
        for libc::epoll_event { events, u64: key } in events.into_iter().take(found) {
            if key == BELL {
                if timeout != Some(Duration::ZERO) {
                    unring(&self.bell);
                }
                continue;
            }
            told.push(event(key as usize, events.cast_signed()));
        }
    }

    fn watch(&self, stop: RawFd, timeout: Duration) -> bool {
        let wanted = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut both = [wanted(stop), wanted(self.epoll.as_raw_fd())];
        poll_for(&mut both, Some(timeout));
        both[1].revents != 0
    }

    fn interrupt(&self) {
        ring(&self.bell);
    }

    fn calm(&self) {
        unring(&self.bell);
    }
}

fn event(key: usize, events: i32) -> Event {
    let gone = libc::EPOLLHUP | libc::EPOLLERR;
    let odd = gone | libc::EPOLLRDHUP | libc::EPOLLPRI;
    Event {
        key,
        readable: events & (libc::EPOLLIN | odd) != 0,
        writable: events & (libc::EPOLLOUT | gone) != 0,
        odd: events & odd != 0,
    }
}
