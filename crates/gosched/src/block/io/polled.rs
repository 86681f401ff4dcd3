//! A descriptor that is registered with the poller. A call that would block parks the goroutine
//! instead, and a close or a deadline set by another goroutine ends the call.
//!
//! **Users.** `users` counts the calls in progress. [`Polled::close`] sets [`CLOSED`] in it, so no
//! further call can begin, and ends all waits. The last user to leave closes the descriptor. So no
//! call can run on another file that was opened under the same number.
//!
//! **Lent descriptors.** [`AsFd`] lends the descriptor for as long as the value exists, even if it
//! is closed meanwhile. If the descriptor was ever lent, its number therefore stays in use until
//! the value is dropped: the close replaces the file by one that can be neither read, written nor
//! changed.
//!
//! **Turns.** One read runs at a time, and one write. A read and a write do not wait for each
//! other.
//!
//! A `Polled` never changes the mode (blocking or non-blocking) of its descriptor: only the type
//! that owns the `Polled` may.

use crate::block::before_wait;
use crate::block::call;
use crate::block::limit::{Alarm, AlarmEffect};
use crate::block::sync::{Condvar, Mutex};
use crate::gmp::poll_desc::PollDesc;
use crate::protocol::readiness::Refusal;
use crate::sched::netpoll;
use crate::sys::poller::Direction;
use crate::sys::{clock, descriptor};
use std::cell::UnsafeCell;
use std::fmt;
use std::io::{self, ErrorKind};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A polled descriptor (see the top of this file). `S` is in non-blocking mode.
pub(crate) struct Polled<S: AsFd> {
    /// Used only by calls that are counted in `users`. Dropped by the last user after a close, or
    /// with the `Polled`.
    source: UnsafeCell<ManuallyDrop<S>>,
    pub(super) desc: &'static PollDesc,
    /// Number of calls in progress, and the flag [`CLOSED`].
    users: AtomicUsize,
    /// Whether the descriptor was ever lent ([`Polled::lend`]).
    lent: AtomicBool,
    /// Held by the read in progress. `true` if the last read emptied the socket: whatever arrives
    /// later causes an event, so the next read waits before it tries.
    read_lock: Mutex<bool>,
    write_lock: Mutex<()>,
    /// Held while a deadline is changed.
    deadline_lock: Mutex<()>,
    /// Time limit of each call, by direction, in nanoseconds; 0 if there is none.
    timeouts: [AtomicU64; 2],
    /// Whether the descriptor is closed. Set by the last user after a close.
    fd_closed: Mutex<bool>,
    closed_cond: Condvar,
}

/// Flag in `users`: the descriptor is closed, and no further call may begin.
const CLOSED: usize = 1 << (usize::BITS - 1);

// SAFETY: the users share `source` by shared references, which `S: Sync` allows. It is dropped when
// no user is left.
unsafe impl<S: AsFd + Send + Sync> Sync for Polled<S> {}
// SAFETY: the poller's record may be used by any thread.
unsafe impl<S: AsFd + Send> Send for Polled<S> {}

/// Returns the descriptor that replaces a lent descriptor after a close: it can be neither read,
/// written nor changed.
fn inert_fd() -> io::Result<BorrowedFd<'static>> {
    static INERT_FD: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(nothing) = INERT_FD.get() {
        return Ok(nothing.as_fd());
    }
    let new = descriptor::inert()?;
    Ok(INERT_FD.get_or_init(|| new).as_fd())
}

/// A call in progress, counted in `users` until it is dropped.
pub(super) struct User<'a, S: AsFd> {
    polled: &'a Polled<S>,
}

impl<S: AsFd> Drop for User<'_, S> {
    #[inline]
    fn drop(&mut self) {
        // PAIR polled-users: the last user sees what the other users did.
        if self.polled.users.fetch_sub(1, Ordering::AcqRel) == CLOSED | 1 {
            self.polled.finish_close();
        }
    }
}

impl<S: AsFd> Polled<S> {
    /// Registers `source`, which must be in non-blocking mode, with the poller.
    ///
    /// # Errors
    /// The descriptor cannot be polled, or the system refuses.
    pub(crate) fn new(source: S) -> io::Result<Polled<S>> {
        inert_fd()?;
        let desc = netpoll::register(source.as_fd().as_raw_fd())?;
        Ok(Polled {
            source: UnsafeCell::new(ManuallyDrop::new(source)),
            desc,
            users: AtomicUsize::new(0),
            lent: AtomicBool::new(false),
            read_lock: Mutex::new(false),
            write_lock: Mutex::new(()),
            deadline_lock: Mutex::new(()),
            timeouts: [AtomicU64::new(0), AtomicU64::new(0)],
            fd_closed: Mutex::new(false),
            closed_cond: Condvar::new(),
        })
    }

    /// Counts the caller as a user. Fails if the descriptor is closed.
    #[inline]
    pub(super) fn enter(&self) -> io::Result<User<'_, S>> {
        // PAIR polled-users: sees an earlier `close`.
        let users = self.users.fetch_add(1, Ordering::AcqRel);
        let user = User { polled: self };
        if users & CLOSED != 0 {
            return Err(ErrorKind::NotConnected.into());
        }
        Ok(user)
    }

    /// Runs `f`, which must not block, with the source. Fails if the descriptor is closed.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&S) -> io::Result<R>) -> io::Result<R> {
        let _user = self.enter()?;
        f(self.source())
    }

    /// Returns the source. The caller must be counted in `users`.
    #[inline]
    pub(super) fn source(&self) -> &S {
        // SAFETY: counted — the caller is counted in `users`, and the source is dropped only when
        // no user is left.
        unsafe { &*self.source.get() }
    }

    /// Runs `f` and returns its result. While `f` fails with [`ErrorKind::WouldBlock`], waits for
    /// an event and runs `f` again.
    pub(crate) fn read<R>(&self, f: impl FnMut(&S) -> io::Result<R>) -> io::Result<R> {
        let _user = self.enter_to_wait()?;
        let mut drained = self.read_lock.lock_no_unwind();
        *drained = false;
        self.attempt(Direction::Read, f)
    }

    /// Like [`Polled::read`], for datagram sockets. Returns `end()` if the receiving direction is
    /// shut down: a non-blocking receive fails with `WouldBlock` in that case too.
    pub(crate) fn receive<R>(
        &self,
        mut f: impl FnMut(&S) -> io::Result<R>,
        mut end: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        self.read(|socket| match f(socket) {
            Err(why) if why.kind() == ErrorKind::WouldBlock && self.desc.is_exceptional() => {
                if descriptor::is_shut(socket) {
                    end()
                } else {
                    Err(why)
                }
            }
            done => done,
        })
    }

    /// Like [`Polled::read`], for an `f` that also returns whether the socket is empty after its
    /// read. If so, the next read waits before it tries. `room` is the length of the caller's
    /// buffer.
    #[inline]
    pub(crate) fn read_bytes(
        &self,
        room: usize,
        mut f: impl FnMut(&S) -> io::Result<(usize, bool)>,
    ) -> io::Result<usize> {
        let _user = self.enter_to_wait()?;
        let mut drained = self.read_lock.lock_no_unwind();
        let mut until = None;
        // The flag is cleared whatever the outcome of the wait: a wait that fails may have consumed
        // the event.
        if std::mem::take(&mut *drained) && room > 0 && !self.desc.is_exceptional() {
            self.wait(Direction::Read, &mut until)?;
        }
        let (count, all) = self.attempt_until(Direction::Read, until, &mut f)?;
        *drained = all && count > 0 && !self.desc.is_exceptional();
        Ok(count)
    }

    /// Like [`Polled::read`], for the write direction.
    #[inline]
    pub(crate) fn write<R>(&self, f: impl FnMut(&S) -> io::Result<R>) -> io::Result<R> {
        let _user = self.enter_to_wait()?;
        let _turn = self.write_lock.lock_no_unwind();
        self.attempt(Direction::Write, f)
    }

    /// Runs `f` once. Waits neither for an event nor for the caller's turn. Fails if the descriptor
    /// is closed or the deadline of the direction has passed.
    pub(crate) fn try_once<R>(
        &self,
        direction: Direction,
        f: impl FnOnce(&S) -> io::Result<R>,
    ) -> io::Result<R> {
        let _user = self.enter_to_wait()?;
        self.desc.side(direction).readiness.check().map_err(error)?;
        f(self.source())
    }

    /// Like [`Polled::write`], for a source whose events do not show when `f` can succeed: retries
    /// after pauses.
    pub(crate) fn write_with_retries<R>(
        &self,
        mut f: impl FnMut(&S) -> io::Result<R>,
    ) -> io::Result<R> {
        let _user = self.enter_to_wait()?;
        let _turn = self.write_lock.lock_no_unwind();
        let timeout = self.timeouts[Direction::Write as usize].load(Ordering::Relaxed);
        let until = (timeout != 0).then(|| clock::after(Duration::from_nanos(timeout)));
        let mut pause = Duration::from_micros(50);
        loop {
            self.desc.side(Direction::Write).readiness.reset().map_err(error)?;
            match f(self.source()) {
                Err(why) if why.kind() == ErrorKind::WouldBlock => {
                    if until.is_some_and(|until| until <= clock::now()) {
                        return Err(why);
                    }
                }
                Err(why) if why.kind() == ErrorKind::Interrupted => continue,
                done => return done,
            }
            let end = clock::after(pause).min(until.unwrap_or(u64::MAX));
            self.pause_until(Direction::Write, end)?;
            pause = (2 * pause).min(Duration::from_millis(5));
        }
    }

    #[inline]
    fn enter_to_wait(&self) -> io::Result<User<'_, S>> {
        before_wait();
        self.enter()
    }

    #[inline]
    fn attempt<R>(
        &self,
        direction: Direction,
        f: impl FnMut(&S) -> io::Result<R>,
    ) -> io::Result<R> {
        self.attempt_until(direction, None, f)
    }

    #[inline]
    fn attempt_until<R>(
        &self,
        direction: Direction,
        mut until: Option<u64>,
        mut f: impl FnMut(&S) -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            self.desc.side(direction).readiness.reset().map_err(error)?;
            match f(self.source()) {
                Err(why) if why.kind() == ErrorKind::WouldBlock => {
                    self.wait(direction, &mut until)?
                }
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    /// Makes the next read try before it waits. Needed before other code reads the socket, because
    /// such reads do not update the flag in `read_lock`.
    #[cfg_attr(not(feature = "hyper"), expect(dead_code, reason = "only async code calls it"))]
    pub(crate) fn forget_drained(&mut self) {
        *self.read_lock.get_mut() = false;
    }

    /// Waits for an event. `until` is the end of the call's time limit; the first wait of a call
    /// computes it.
    fn wait(&self, direction: Direction, until: &mut Option<u64>) -> io::Result<()> {
        let timeout = self.timeouts[direction as usize].load(Ordering::Relaxed);
        if timeout == 0 && until.is_none() {
            return netpoll::wait(self.desc, direction, || false).map_err(error);
        }
        let until = *until.get_or_insert_with(|| clock::after(Duration::from_nanos(timeout)));
        if self.wait_until(direction, until)? {
            Ok(())
        } else {
            // The error of a socket whose time limit is set in the system (`SO_RCVTIMEO`).
            Err(io::Error::from_raw_os_error(libc::EAGAIN))
        }
    }

    /// Waits for an event, at most until `when`. Returns false if the time limit has expired.
    fn wait_until(&self, direction: Direction, when: u64) -> io::Result<bool> {
        self.wait_with_alarm(direction, when, |is_over| {
            netpoll::wait(self.desc, direction, is_over)
        })
    }

    /// Waits for `duration`. Fails early if the descriptor is closed or its read deadline passes.
    pub(crate) fn pause(&self, duration: Duration) -> io::Result<()> {
        let _user = self.enter_to_wait()?;
        let _turn = self.read_lock.lock_no_unwind();
        self.pause_until(Direction::Read, clock::after(duration))
    }

    fn pause_until(&self, direction: Direction, when: u64) -> io::Result<()> {
        let rest = || {
            self.wait_with_alarm(direction, when, |is_over| {
                netpoll::wait_unpolled(self.desc, direction, is_over)
            })
        };
        while rest()? {}
        Ok(())
    }

    /// Runs `wait`, and ends it at `when`. Returns false if the time limit has expired.
    fn wait_with_alarm(
        &self,
        direction: Direction,
        when: u64,
        wait: impl FnOnce(&dyn Fn() -> bool) -> Result<(), Refusal>,
    ) -> io::Result<bool> {
        let limit = TimeLimit { desc: self.desc, direction, over: AtomicBool::new(false) };
        // SAFETY: data — `limit` outlives the alarm.
        let alarm = unsafe { Alarm::new(on_timeout, ptr::from_ref(&limit).cast()) };
        alarm.start(when);
        // PAIR io-limit: `over` is set before the readiness word is changed. If the change comes
        // before `prepare_wait`, the caller sees `over` and does not wait. If it comes after, it
        // ends the wait.
        let is_over = || limit.over.load(Ordering::Acquire);
        wait(&is_over).map_err(error)?;
        alarm.stop();
        Ok(!is_over())
    }

    /// Sets the deadline of a direction: from then on calls fail, including calls that already
    /// wait. `None` removes the deadline.
    pub(crate) fn set_deadline(
        &self,
        direction: Direction,
        when: Option<Instant>,
    ) -> io::Result<()> {
        let _user = self.enter()?;
        let _turn = self.deadline_lock.lock_no_unwind();
        let when = when.map(|when| {
            let left = when.saturating_duration_since(clock::instant(clock::now()));
            if left.is_zero() { 0 } else { clock::after(left) }
        });
        netpoll::set_deadline(self.desc, direction, when);
        Ok(())
    }

    /// Sets the time limit of each call in a direction. `None` removes the limit. Fails if
    /// `timeout` is zero or the descriptor is closed.
    pub(crate) fn set_timeout(
        &self,
        direction: Direction,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        if timeout == Some(Duration::ZERO) {
            let why = "the time limit is zero: use `None` for no limit, or a deadline in the past to fail at once";
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        let _user = self.enter()?;
        let nanos = timeout.map_or(0, clock::nanos);
        self.timeouts[direction as usize].store(nanos, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn timeout(&self, direction: Direction) -> io::Result<Option<Duration>> {
        let _user = self.enter()?;
        let nanos = self.timeouts[direction as usize].load(Ordering::Relaxed);
        Ok((nanos != 0).then(|| Duration::from_nanos(nanos)))
    }

    /// Ends all calls, and waits until the last of them has closed the descriptor. Fails if the
    /// descriptor is already closed.
    pub(crate) fn close(&self) -> io::Result<()> {
        before_wait();
        let user = self.enter()?;
        // PAIR polled-users: every later `enter` sees `CLOSED`.
        if self.users.fetch_or(CLOSED, Ordering::AcqRel) & CLOSED != 0 {
            return Err(ErrorKind::NotConnected.into());
        }
        netpoll::close(self.desc);
        drop(user);
        let mut gone = self.fd_closed.lock_no_unwind();
        while !*gone {
            gone = self.closed_cond.wait(gone);
        }
        Ok(())
    }

    /// Closes the descriptor. Called when the last user leaves after a close.
    #[cold]
    fn finish_close(&self) {
        // A call that begins after the close counts itself, sees `CLOSED` and leaves. If it leaves
        // last, it gets here again.
        let mut gone = self.fd_closed.lock_no_unwind();
        if *gone {
            return;
        }
        let fd = self.source().as_fd().as_raw_fd();
        netpoll::unregister(fd, self.desc);
        if self.lent.load(Ordering::Relaxed) {
            if let Ok(inert) = inert_fd() {
                descriptor::replace(fd, inert);
            }
        } else {
            // SAFETY: no user is left, and a call that begins later sees `CLOSED` and does not use
            // the source.
            close_blocking(unsafe { &mut *self.source.get() });
        }
        *gone = true;
        drop(gone);
        self.closed_cond.notify_all();
    }

    /// Unregisters the descriptor from the poller and returns the source.
    ///
    /// # Errors
    /// The descriptor is closed.
    pub(crate) fn into_source(mut self) -> io::Result<S> {
        if *self.fd_closed.get_mut() {
            return Err(ErrorKind::NotConnected.into());
        }
        let mut this = ManuallyDrop::new(self);
        netpoll::unregister(this.source().as_fd().as_raw_fd(), this.desc);
        // SAFETY: the source is taken once, because `this` is never dropped. The other fields own
        // nothing.
        Ok(unsafe { ManuallyDrop::take(this.source.get_mut()) })
    }

    /// Returns the descriptor, and keeps its number in use until the `Polled` is dropped. Returns
    /// the inert descriptor if this one is closed.
    pub(crate) fn lend(&self) -> BorrowedFd<'_> {
        let Ok(_user) = self.enter() else {
            return inert_fd().unwrap_or_else(|_| {
                unreachable!("`Polled::new` has created the inert descriptor")
            });
        };
        self.lent.store(true, Ordering::Relaxed);
        self.source().as_fd()
    }
}

impl<S: AsFd> Drop for Polled<S> {
    fn drop(&mut self) {
        let gone = *self.fd_closed.get_mut();
        if !gone {
            netpoll::unregister(self.source().as_fd().as_raw_fd(), self.desc);
        }
        if !gone || *self.lent.get_mut() {
            close_blocking(self.source.get_mut());
        }
    }
}

impl<S: AsFd + fmt::Debug> fmt::Debug for Polled<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.enter() {
            Ok(_user) => self.source().fmt(f),
            Err(_) => f.write_str("<closed>"),
        }
    }
}

/// Drops the source in a marked call, because a close may block (`SO_LINGER`).
fn close_blocking<S>(source: &mut ManuallyDrop<S>) {
    // SAFETY: each caller calls this once, when no user of the source is left.
    drop(call::BlockingDrop::new(unsafe { ManuallyDrop::take(source) }));
}

pub(super) fn error(why: Refusal) -> io::Error {
    match why {
        Refusal::Closed => ErrorKind::NotConnected.into(),
        Refusal::Expired => ErrorKind::TimedOut.into(),
    }
}

/// The time limit of one call.
struct TimeLimit {
    desc: &'static PollDesc,
    direction: Direction,
    over: AtomicBool,
}

/// Ends the wait of the call: its time limit has expired.
///
/// # Safety
/// - **data**: a `TimeLimit`.
unsafe fn on_timeout(data: *const ()) -> AlarmEffect {
    // SAFETY: data — promised by the caller.
    let limit = unsafe { &*data.cast::<TimeLimit>() };
    // PAIR io-limit: set before the readiness word is changed.
    limit.over.store(true, Ordering::Release);
    let side = limit.desc.side(limit.direction);
    match side.resolve_waiter(side.readiness.unblock()) {
        Some(g) => AlarmEffect::Ready(g),
        None => AlarmEffect::Nothing,
    }
}
