//! A descriptor that is polled: calls that would block park the goroutine instead, and a close or a deadline
//! from elsewhere ends them.
//!
//! **Who uses it.** Every call is counted in `users`. [`Polled::close`] leaves [`CLOSED`] there, so nobody is
//! counted any more; it ends all waits; and the last one who leaves closes the descriptor. So a call never
//! finds another file under its number.
//!
//! **Borrowed descriptors** outlive no close by the type system's rules ([`AsFd`] borrows for as long as the
//! value lives), so where one was ever lent, the number is kept until the value is dropped: closing puts
//! something there with which nothing can be done.
//!
//! **One at a time.** Reads take turns, and so do writes; a read and a write do not wait for each other.

use crate::block::before_wait;
use crate::block::call;
use crate::block::limit::{Alarm, AlarmEffect};
use crate::block::sync::{Condvar, Mutex};
use crate::gmp::poll_desc::PollDesc;
use crate::gmp::readiness::Refusal;
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

/// See the top of this file. `S` is in non-blocking mode.
pub(crate) struct Polled<S: AsFd> {
    /// Used by those who are counted; dropped by the last one, or with this.
    source: UnsafeCell<ManuallyDrop<S>>,
    pub(super) desc: &'static PollDesc,
    users: AtomicUsize,
    /// The descriptor was borrowed from outside.
    lent: AtomicBool,
    /// True: there was no more to read the last time, and nothing has happened since that was not told.
    read_lock: Mutex<bool>,
    write_lock: Mutex<()>,
    /// Changed by one at a time.
    deadline_lock: Mutex<()>,
    timeouts: [AtomicU64; 2],
    /// The last one has left, after a close.
    fd_closed: Mutex<bool>,
    closed_cond: Condvar,
}

/// In `users`: nobody is counted any more.
const CLOSED: usize = 1 << (usize::BITS - 1);

// SAFETY: `source` is only shared, as `S` may be; it is dropped by one who is alone.
unsafe impl<S: AsFd + Send + Sync> Sync for Polled<S> {}
// SAFETY: the records it points to are anybody's.
unsafe impl<S: AsFd + Send> Send for Polled<S> {}

/// What is put in the place of a lent descriptor: nothing can be done with it.
fn inert_fd() -> io::Result<BorrowedFd<'static>> {
    static INERT_FD: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(nothing) = INERT_FD.get() {
        return Ok(nothing.as_fd());
    }
    let new = descriptor::inert()?;
    Ok(INERT_FD.get_or_init(|| new).as_fd())
}

/// One who is counted.
pub(super) struct User<'a, S: AsFd> {
    polled: &'a Polled<S>,
}

impl<S: AsFd> Drop for User<'_, S> {
    #[inline]
    fn drop(&mut self) {
        // PAIR polled-users: whoever leaves last sees what the others did.
        if self.polled.users.fetch_sub(1, Ordering::AcqRel) == CLOSED | 1 {
            self.polled.finish_close();
        }
    }
}

impl<S: AsFd> Polled<S> {
    /// # Errors
    /// It cannot be polled, or the system refuses.
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

    #[inline]
    pub(super) fn enter(&self) -> io::Result<User<'_, S>> {
        // PAIR polled-users: a close before this is seen.
        let users = self.users.fetch_add(1, Ordering::AcqRel);
        let user = User { polled: self };
        if users & CLOSED != 0 {
            return Err(ErrorKind::NotConnected.into());
        }
        Ok(user)
    }

    /// What a caller does with the descriptor that does not block.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&S) -> io::Result<R>) -> io::Result<R> {
        let _user = self.enter()?;
        f(self.source())
    }

    /// For those who are counted.
    #[inline]
    pub(super) fn source(&self) -> &S {
        // SAFETY: counted — the caller is; it is dropped when nobody is.
        unsafe { &*self.source.get() }
    }

    /// Does `f` as soon as it would not block: it says [`ErrorKind::WouldBlock`] until then.
    pub(crate) fn read<R>(&self, f: impl FnMut(&S) -> io::Result<R>) -> io::Result<R> {
        let _user = self.enter_to_wait()?;
        let mut drained = self.read_lock.lock_no_unwind();
        *drained = false;
        self.attempt(Direction::Read, f)
    }

    /// As [`Polled::read`], of datagrams: `end` is what a receive says after a shutdown. A call that would not
    /// block does not say so by itself.
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

    /// As [`Polled::read`], where `f` also says whether that was all there was: the next read waits at once.
    #[inline]
    pub(crate) fn read_bytes(
        &self,
        room: usize,
        mut f: impl FnMut(&S) -> io::Result<(usize, bool)>,
    ) -> io::Result<usize> {
        let _user = self.enter_to_wait()?;
        let mut drained = self.read_lock.lock_no_unwind();
        let mut until = None;
        // Whatever comes of the wait: what was told may be used up by it.
        if std::mem::take(&mut *drained) && room > 0 && !self.desc.is_exceptional() {
            self.wait(Direction::Read, &mut until)?;
        }
        let (count, all) = self.attempt_until(Direction::Read, until, &mut f)?;
        *drained = all && count > 0 && !self.desc.is_exceptional();
        Ok(count)
    }

    /// As [`Polled::read`], in the other direction.
    #[inline]
    pub(crate) fn write<R>(&self, f: impl FnMut(&S) -> io::Result<R>) -> io::Result<R> {
        let _user = self.enter_to_wait()?;
        let _turn = self.write_lock.lock_no_unwind();
        self.attempt(Direction::Write, f)
    }

    /// Does `f` once, if calls in that direction may still be made. It does not wait, nor for its turn.
    pub(crate) fn try_once<R>(
        &self,
        direction: Direction,
        f: impl FnOnce(&S) -> io::Result<R>,
    ) -> io::Result<R> {
        let _user = self.enter_to_wait()?;
        self.desc.side(direction).readiness.check().map_err(error)?;
        f(self.source())
    }

    /// As [`Polled::write`], where nobody tells when it would not block: it is tried again after pauses.
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

    /// Whoever reads next tries: others have read meanwhile, in their own way.
    #[cfg_attr(not(feature = "hyper"), expect(dead_code, reason = "only async code does"))]
    pub(crate) fn forget_drained(&mut self) {
        *self.read_lock.get_mut() = false;
    }

    /// Waits until something has happened; `until` is when the call has taken too long, once that is known.
    fn wait(&self, direction: Direction, until: &mut Option<u64>) -> io::Result<()> {
        let timeout = self.timeouts[direction as usize].load(Ordering::Relaxed);
        if timeout == 0 && until.is_none() {
            return netpoll::wait(self.desc, direction, || false).map_err(error);
        }
        let until = *until.get_or_insert_with(|| clock::after(Duration::from_nanos(timeout)));
        if self.wait_until(direction, until)? {
            Ok(())
        } else {
            // What a socket says whose time limit is the system's.
            Err(io::Error::from_raw_os_error(libc::EAGAIN))
        }
    }

    /// Waits until something has happened. False: it is `when`, and nothing has.
    fn wait_until(&self, direction: Direction, when: u64) -> io::Result<bool> {
        self.wait_with_alarm(direction, when, |is_over| {
            netpoll::wait(self.desc, direction, is_over)
        })
    }

    /// Does nothing for `duration`; a close or a deadline ends that.
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

    /// Waits, until `when` at most. False: it is.
    fn wait_with_alarm(
        &self,
        direction: Direction,
        when: u64,
        wait: impl FnOnce(&dyn Fn() -> bool) -> Result<(), Refusal>,
    ) -> io::Result<bool> {
        let limit = TimeLimit { desc: self.desc, direction, over: AtomicBool::new(false) };
        // SAFETY: data — it outlives the alarm.
        let alarm = unsafe { Alarm::new(on_timeout, ptr::from_ref(&limit).cast()) };
        alarm.start(when);
        // PAIR io-limit: one sees what the other did to the word in between.
        let is_over = || limit.over.load(Ordering::Acquire);
        wait(&is_over).map_err(error)?;
        alarm.stop();
        Ok(!is_over())
    }

    /// From when on calls in that direction fail, also those that wait now.
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

    /// How long each call in that direction may take.
    pub(crate) fn set_timeout(
        &self,
        direction: Direction,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        if timeout == Some(Duration::ZERO) {
            let why = "a time limit of zero: use a deadline in the past, or a non-blocking socket";
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

    /// Ends all calls, and closes the descriptor when they have come back.
    pub(crate) fn close(&self) -> io::Result<()> {
        before_wait();
        let user = self.enter()?;
        // PAIR polled-users: whoever comes later sees it.
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

    /// The last one has left, after a close.
    #[cold]
    fn finish_close(&self) {
        // Those who come now count themselves, see that it is closed, and leave again: the last one of them
        // would come here, too.
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
            // SAFETY: nobody is counted: nobody uses it, nor will.
            close_blocking(unsafe { &mut *self.source.get() });
        }
        *gone = true;
        drop(gone);
        self.closed_cond.notify_all();
    }

    /// The source, which is polled no more.
    ///
    /// # Errors
    /// It was closed.
    pub(crate) fn into_source(mut self) -> io::Result<S> {
        if *self.fd_closed.get_mut() {
            return Err(ErrorKind::NotConnected.into());
        }
        let mut this = ManuallyDrop::new(self);
        netpoll::unregister(this.source().as_fd().as_raw_fd(), this.desc);
        // SAFETY: taken once: nothing drops `this`, and its other fields own nothing.
        Ok(unsafe { ManuallyDrop::take(this.source.get_mut()) })
    }

    /// The descriptor; one with which nothing can be done after a close.
    pub(crate) fn lend(&self) -> BorrowedFd<'_> {
        let Ok(_user) = self.enter() else {
            return inert_fd().unwrap_or_else(|_| unreachable!("made before the first was polled"));
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

/// Drops the source; a close may take its time (`SO_LINGER`).
fn close_blocking<S>(source: &mut ManuallyDrop<S>) {
    // SAFETY: the callers are the last who use it, and come here once.
    drop(call::BlockingDrop::new(unsafe { ManuallyDrop::take(source) }));
}

pub(super) fn error(why: Refusal) -> io::Error {
    match why {
        Refusal::Closed => ErrorKind::NotConnected.into(),
        Refusal::Expired => ErrorKind::TimedOut.into(),
    }
}

/// Of one call.
struct TimeLimit {
    desc: &'static PollDesc,
    direction: Direction,
    over: AtomicBool,
}

/// # Safety
/// - **data**: a `TimeLimit`.
unsafe fn on_timeout(data: *const ()) -> AlarmEffect {
    // SAFETY: data — promised by the caller.
    let limit = unsafe { &*data.cast::<TimeLimit>() };
    // PAIR io-limit: before the word is changed.
    limit.over.store(true, Ordering::Release);
    let side = limit.desc.side(limit.direction);
    match side.resolve_waiter(side.readiness.unblock()) {
        Some(g) => AlarmEffect::Ready(g),
        None => AlarmEffect::Nothing,
    }
}
