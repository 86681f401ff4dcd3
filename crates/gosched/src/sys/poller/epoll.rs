//! The edge-triggered epoll implementation of [`Poller`].
//!
//! Only the wake descriptor is level-triggered. A thread that polls without blocking sees the wake
//! event and leaves it pending. Only a thread that blocks drains the wake descriptor when it
//! returns. So a non-blocking poll on another M cannot swallow an interrupt.
//!
//! This implementation never allocates after its creation.

use super::{Direction, Event, EventBuffer, MAX_EVENTS, Poller};
use super::{checked, drain_eventfd, new_eventfd, poll_for, signal_eventfd, timespec};
use crate::sys::fatal::fatal;
use gosched_fiber::fatal::Errno;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// An epoll instance with its wake descriptor.
#[derive(Debug)]
pub(super) struct Epoll {
    epoll: OwnedFd,
    /// Eventfd that interrupts a blocked `poll`.
    /// Go: netpollEventFd.
    wake_fd: OwnedFd,
    /// Index into [`WaitCall::NONBLOCKING_ORDER`]: the system has refused all calls before it.
    nonblocking_call: AtomicUsize,
    /// Index into [`WaitCall::BLOCKING_ORDER`]: the system has refused all calls before it.
    blocking_call: AtomicUsize,
}

/// A system call that waits for events. A container may refuse any of them, with any error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitCall {
    /// Takes a timeout in nanoseconds. Since Linux 5.11.
    Pwait2,
    Wait,
    Pwait,
}

impl WaitCall {
    /// The order in which the calls are tried if the timeout is zero.
    const NONBLOCKING_ORDER: [WaitCall; 3] = [WaitCall::Wait, WaitCall::Pwait, WaitCall::Pwait2];
    /// The order in which the calls are tried if the call may block.
    const BLOCKING_ORDER: [WaitCall; 3] = [WaitCall::Pwait2, WaitCall::Wait, WaitCall::Pwait];

    fn call(
        self,
        epoll: &OwnedFd,
        events: &mut [libc::epoll_event],
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let most = events.len() as libc::c_int;
        let (epoll, events) = (epoll.as_raw_fd(), events.as_mut_ptr());
        let limit = timeout.map(timespec);
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let no_mask = std::ptr::null::<libc::sigset_t>();
        // Rounded up: the call must not return before the timeout is over.
        let millis = timeout.map_or(-1, |timeout| {
            i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
        });
        let found = match self {
            // SAFETY: `events` has room for `most` events; `limit` is null or points to a live
            // value.
            WaitCall::Pwait2 => unsafe {
                libc::syscall(libc::SYS_epoll_pwait2, epoll, events, most, limit, no_mask, 0usize)
            },
            // SAFETY: `events` has room for `most` events.
            WaitCall::Wait => unsafe { libc::epoll_wait(epoll, events, most, millis) }.into(),
            WaitCall::Pwait => {
                // SAFETY: `events` has room for `most` events.
                unsafe { libc::epoll_pwait(epoll, events, most, millis, no_mask) }.into()
            }
        };
        usize::try_from(found).map_err(|_| io::Error::last_os_error())
    }
}

/// The key of the wake descriptor. Other keys contain the address of a record, so none of them is
/// 0.
const WAKE_FD_KEY: u64 = 0;

const EVENT_MASK: i32 =
    libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLPRI | libc::EPOLLET;

impl Epoll {
    pub(super) fn new() -> io::Result<Epoll> {
        // SAFETY: no memory is involved.
        let epoll = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor is new and has no other owner.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        let wake_fd = new_eventfd()?;
        control(&epoll, libc::EPOLL_CTL_ADD, wake_fd.as_raw_fd(), libc::EPOLLIN, WAKE_FD_KEY)?;
        let epoll = Epoll {
            epoll,
            wake_fd,
            nonblocking_call: AtomicUsize::new(0),
            blocking_call: AtomicUsize::new(0),
        };
        epoll.try_wait(&mut [libc::epoll_event { events: 0, u64: 0 }], Some(Duration::ZERO))?;
        Ok(epoll)
    }

    /// Waits for events and returns their number; 0 also after a signal.
    fn wait(&self, events: &mut [libc::epoll_event], timeout: Option<Duration>) -> usize {
        match self.try_wait(events, timeout) {
            Ok(found) => found,
            // Treating the error as "no events" would leave every waiting goroutine parked.
            Err(why) => fatal!(
                "waiting for epoll fails ({}), so goroutines that wait for sockets cannot be made ready; check whether \
                 the program has closed a descriptor that it does not own, or installed a system call filter",
                Errno::of(&why)
            ),
        }
    }

    /// Tries the system calls in order. A call that has failed is not tried again, unless a signal
    /// interrupted it.
    fn try_wait(
        &self,
        events: &mut [libc::epoll_event],
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let (ways, granted) = if timeout == Some(Duration::ZERO) {
            (WaitCall::NONBLOCKING_ORDER, &self.nonblocking_call)
        } else {
            (WaitCall::BLOCKING_ORDER, &self.blocking_call)
        };
        let mut at = granted.load(Ordering::Relaxed);
        loop {
            let why = match ways[at].call(&self.epoll, events, timeout) {
                Ok(found) => return Ok(found),
                Err(why) => why,
            };
            if why.kind() == io::ErrorKind::Interrupted {
                return Ok(0);
            }
            at += 1;
            if at == ways.len() {
                return Err(why);
            }
            granted.store(at, Ordering::Relaxed);
        }
    }
}

fn control(epoll: &OwnedFd, what: i32, fd: RawFd, events: i32, key: u64) -> io::Result<()> {
    let mut event = libc::epoll_event { events: events.cast_unsigned(), u64: key };
    // SAFETY: `event` outlives the call.
    checked(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), what, fd, &raw mut event) }).map(drop)
}

impl Poller for Epoll {
    fn add(&self, fd: RawFd, key: usize) -> io::Result<()> {
        control(&self.epoll, libc::EPOLL_CTL_ADD, fd, EVENT_MASK, key as u64)
    }

    fn remove(&self, fd: RawFd, _key: usize) {
        // Fails only if the descriptor is not registered.
        let _ = control(&self.epoll, libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    fn arm(&self, _key: usize, _what: Direction) {}

    fn poll(&self, buffer: &mut EventBuffer, timeout: Option<Duration>) {
        buffer.clear();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MAX_EVENTS];
        // One more than requested, because the wake event may be among them.
        let room = (buffer.capacity + 1).min(MAX_EVENTS);
        let found = self.wait(&mut events[..room], timeout);
        for libc::epoll_event { events, u64: key } in events.into_iter().take(found) {
            if key == WAKE_FD_KEY {
                if timeout != Some(Duration::ZERO) {
                    drain_eventfd(&self.wake_fd);
                }
                continue;
            }
            buffer.push(event(key as usize, events.cast_signed()));
        }
    }

    fn wait_for_events(&self, stop: RawFd, timeout: Duration) -> bool {
        let wanted = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut both = [wanted(stop), wanted(self.epoll.as_raw_fd())];
        poll_for(&mut both, Some(timeout));
        both[1].revents != 0
    }

    fn interrupt(&self) {
        signal_eventfd(&self.wake_fd);
    }

    fn clear_interrupt(&self) {
        drain_eventfd(&self.wake_fd);
    }
}

fn event(key: usize, events: i32) -> Event {
    let gone = libc::EPOLLHUP | libc::EPOLLERR;
    let odd = gone | libc::EPOLLRDHUP | libc::EPOLLPRI;
    Event {
        key,
        readable: events & (libc::EPOLLIN | odd) != 0,
        writable: events & (libc::EPOLLOUT | gone) != 0,
        exceptional: events & odd != 0,
    }
}
