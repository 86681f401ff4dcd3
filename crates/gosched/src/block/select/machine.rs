//! How a choice among channel operations is made, for any types of values.
//!
//! 1. Visits the arms in random order, without locks, and tries those that seem ready.
//! 2. Acquires the locks of all channels, each once, in the order of their addresses, and tries all
//!    arms again. So "no arm is ready" is true at one moment.
//! 3. Enqueues a waiter for each arm, and parks. The locks are released once the context is saved.
//! 4. The first thread that fires the wakeup decides which arm is chosen. The caller acquires all
//!    locks again and removes its other waiters.
//!
//! The machine never drops a value, and never runs the body of an arm: its caller does, after all
//! locks are released.

use crate::block::chan::{AnyChan, Direction};
use crate::block::limit::{TIMEOUT, WaitTimeout};
use crate::block::wait_record::WaitRecord;
use crate::block::waiter::{ToReady, Waiter, Wakeup};
use crate::gmp::commit::Commit;
use crate::gmp::current;
use crate::gmp::g::G;
use crate::probe::wait_reason::WaitReason;
use crate::sched::{self, RuntimeGuard};
use crate::sys::{clock, random};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr;

/// One arm: a channel, a direction, and a place for the value.
/// Go: scase.
///
/// # Safety
/// - **channel**: `channel` always returns the same channel, which is alive as long as the arm.
/// - **place**: `place` is valid for the channel's values in the direction of the arm.
pub unsafe trait Case {
    /// Returns the channel, or `None` if the arm is disabled.
    fn channel(&self) -> Option<&dyn AnyChan>;
    /// Returns whether the arm sends or receives.
    fn direction(&self) -> Direction;
    /// Returns whether the operation seems possible without a wait. Does not take the lock.
    fn seems_ready(&self) -> bool;
    /// Performs the operation if that needs no wait. Returns `None` if it would have to wait;
    /// otherwise the G, if any, that the caller must make ready after releasing the lock.
    ///
    /// # Safety
    /// - **held**: the caller holds the channel's lock.
    unsafe fn try_now(&self) -> Option<ToReady>;
    /// Returns the place of the value to send, or the place for the received value.
    fn place(&self) -> *mut ();
    /// Records that this arm was chosen while the caller was parked: another thread transferred the
    /// value or, if `closed`, closed the channel.
    fn complete(&self, closed: bool);
}

/// The memory that a choice needs: one element of each kind for each arm.
pub(crate) struct Scratch<'a> {
    /// The enabled arms, in the order in which they are tried.
    pub(crate) poll_order: &'a mut [u16],
    /// The enabled arms, in the order in which their channels are locked.
    pub(crate) lock_order: &'a mut [u16],
    pub(crate) waiters: &'a mut [MaybeUninit<Waiter>],
}

/// How long a choice waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitMode {
    /// Not at all: there is a default.
    NoWait,
    /// Until this time, in nanoseconds of `clock::now`.
    Until(u64),
    /// Without a limit.
    Forever,
}

/// Chooses an arm, performs it, and returns its index. Returns `None` if no arm was ready in the
/// time that `mode` allows.
/// Go: selectgo.
pub(crate) fn choose(arms: &[&dyn Case], scratch: Scratch<'_>, mode: WaitMode) -> Option<usize> {
    let Scratch { poll_order: order, lock_order: locks, waiters } = scratch;
    let count = shuffle(arms, order);
    let (order, locks, waiters) = (&order[..count], &mut locks[..count], &mut waiters[..count]);
    if let Some(arm) = try_one_by_one(arms, order) {
        return Some(arm);
    }
    if order.is_empty() && mode == WaitMode::Forever {
        block_forever(WaitReason::SelectNoCases);
    }
    let wakeup = Wakeup::contested();
    let limit = WaitTimeout::new(&wakeup);
    let mode = match mode {
        WaitMode::Until(when) if when <= clock::now() => WaitMode::NoWait,
        WaitMode::Until(when) => {
            limit.start(when);
            mode
        }
        _ => mode,
    };
    locks.copy_from_slice(order);
    locks.sort_unstable_by_key(|&arm| arms[usize::from(arm)].channel().map(address));
    let all = AllLocks { arms, lock_order: locks };
    let inside = sched::enter_runtime();
    all.lock();
    for &arm in order {
        // SAFETY: held — all locked above.
        if let Some(woken) = unsafe { arms[usize::from(arm)].try_now() } {
            // SAFETY: held — locked above.
            unsafe { all.unlock() };
            make_ready(inside, woken);
            return Some(usize::from(arm));
        }
    }
    if mode == WaitMode::NoWait {
        // SAFETY: held — locked above.
        unsafe { all.unlock() };
        return None;
    }
    let is_limited = mode != WaitMode::Forever;
    // SAFETY: held — locked above.
    unsafe { wait(inside, &wakeup, &all, waiters, is_limited) }
}

/// Waits until one of the arms was performed, and returns its index. Returns `None` if the time
/// limit was reached.
///
/// # Safety
/// - **held**: the caller holds all locks, which this function releases.
unsafe fn wait(
    mut inside: RuntimeGuard,
    wakeup: &Wakeup,
    all: &AllLocks<'_>,
    waiters: &mut [MaybeUninit<Waiter>],
    is_limited: bool,
) -> Option<usize> {
    for (&arm, place) in all.lock_order.iter().zip(waiters.iter_mut()) {
        let case = all.arms[usize::from(arm)];
        let waiter = place.write(Waiter::new(wakeup, usize::from(arm), case.place()));
        if let Some(channel) = case.channel() {
            // SAFETY: held — promised by the caller; frame — dequeued below, under the lock.
            if let Some(g) = unsafe { channel.enqueue(waiter, case.direction()) }.0 {
                inside.ready(g);
            }
        }
    }
    // SAFETY: one waiter was written for each arm, above.
    let written = unsafe { waiters[..all.lock_order.len()].assume_init_ref() };
    let parking = Parking { waits: WaitRecord::many(wakeup, written, is_limited), all };
    // SAFETY: commit — it takes a `Parking`, and this frame stays until the caller is made ready.
    let commit = unsafe { Commit::new(commit, (&raw const parking).cast()) };
    inside.park(WaitReason::Select, commit);
    let inside = sched::enter_runtime();
    all.lock();
    let chosen = wakeup.fired();
    for (&arm, waiter) in all.lock_order.iter().zip(waiters.iter()) {
        let case = all.arms[usize::from(arm)];
        // SAFETY: written above.
        let waiter = unsafe { waiter.assume_init_ref() };
        if let Some(channel) = case.channel() {
            // SAFETY: held — locked above.
            unsafe { channel.dequeue(waiter, case.direction()) };
        }
        if chosen == Some(usize::from(arm)) {
            case.complete(waiter.is_woken_by_close());
        }
    }
    // SAFETY: held — locked above.
    unsafe { all.unlock() };
    drop(inside);
    chosen.filter(|&arm| arm != TIMEOUT)
}

/// The data that [`commit`] takes. `repr(C)`: the [`WaitRecord`] must come first.
#[repr(C)]
struct Parking<'a> {
    waits: WaitRecord<'a>,
    all: &'a AllLocks<'a>,
}

/// Publishes the parked G, whose context is saved, and releases all locks.
/// Go: selparkcommit.
///
/// # Safety
/// - **parking**: `data` is a `Parking`, alive until the wakeup is committed; the channels are
///   alive until the last lock is released.
unsafe fn commit(g: &'static G, data: *const ()) -> bool {
    // SAFETY: parking — promised by the caller.
    let &Parking { waits: WaitRecord { wakeup, .. }, all } =
        unsafe { &*data.cast::<Parking<'_>>() };
    // From here on a time limit may make the G ready without the locks, so the `Parking` may be
    // gone.
    let wait = wakeup.commit(g);
    // SAFETY: held — by the goroutine that waits. It acquires them all again before it leaves its
    // frame.
    unsafe { all.unlock_and_forget() };
    wait
}

/// The locks of all channels, in the order of their addresses. Arms of the same channel are
/// adjacent.
struct AllLocks<'a> {
    arms: &'a [&'a dyn Case],
    lock_order: &'a [u16],
}

impl AllLocks<'_> {
    /// Returns the channel of the arm at position `at`, if this is the last arm of that channel.
    fn channel(&self, at: usize) -> Option<&dyn AnyChan> {
        let channel = |at: usize| self.arms[usize::from(self.lock_order[at])].channel();
        let (this, next) =
            (channel(at)?, self.lock_order.get(at + 1).and_then(|_| channel(at + 1)));
        next.is_none_or(|next| address(next) != address(this)).then_some(this)
    }

    fn lock(&self) {
        for channel in (0..self.lock_order.len()).filter_map(|at| self.channel(at)) {
            channel.lock();
        }
    }

    /// Releases all locks.
    ///
    /// # Safety
    /// - **held**: the caller holds all locks.
    unsafe fn unlock(&self) {
        for channel in (0..self.lock_order.len()).filter_map(|at| self.channel(at)) {
            // SAFETY: held — promised by the caller.
            unsafe { channel.unlock() };
        }
    }

    /// Like [`AllLocks::unlock`], but accesses nothing after the last lock is released.
    ///
    /// # Safety
    /// - **held**: the goroutine on whose behalf the caller runs holds all locks.
    unsafe fn unlock_and_forget(&self) {
        let count = self.lock_order.len();
        for at in 0..count {
            if let Some(channel) = self.channel(at) {
                // SAFETY: held — promised by the caller.
                unsafe { channel.unlock_and_forget() };
            }
        }
    }
}

fn address(channel: &dyn AnyChan) -> usize {
    ptr::from_ref(channel).addr()
}

/// Tries the arms that seem ready, one by one, each under the lock of its own channel.
fn try_one_by_one(arms: &[&dyn Case], order: &[u16]) -> Option<usize> {
    for &index in order {
        let arm = arms[usize::from(index)];
        let Some(channel) = arm.channel().filter(|_| arm.seems_ready()) else { continue };
        let inside = sched::enter_runtime();
        channel.lock();
        // SAFETY: held — locked above.
        let done = unsafe { arm.try_now() };
        // SAFETY: held — locked above.
        unsafe { channel.unlock() };
        if let Some(woken) = done {
            make_ready(inside, woken);
            return Some(usize::from(index));
        }
    }
    None
}

fn make_ready(mut inside: RuntimeGuard, woken: ToReady) {
    if let Some(g) = woken.0 {
        inside.ready(g);
    }
}

/// Parks the caller forever.
/// Go: block.
pub(crate) fn block_forever(reason: WaitReason) -> ! {
    /// # Safety
    /// - **any**: this function may always be called.
    unsafe fn commit(_g: &'static G, _data: *const ()) -> bool {
        true
    }
    loop {
        // SAFETY: commit — it may always be called; it publishes the G nowhere, so nothing makes it
        // ready.
        let commit = unsafe { Commit::new(commit, ptr::null()) };
        sched::park(reason, commit);
    }
}

/// Writes the indices of the enabled arms into `order`, in random order, and returns their number.
fn shuffle(arms: &[&dyn Case], order: &mut [u16]) -> usize {
    let mut count = 0;
    for (index, arm) in arms.iter().enumerate() {
        if arm.channel().is_none() {
            continue;
        }
        let at = random_below(count + 1);
        order[count] = order[at];
        order[at] = index as u16;
        count += 1;
    }
    count
}

/// Returns a pseudo-random number below `n`.
fn random_below(n: usize) -> usize {
    thread_local! {
        static STATE: Cell<u64> = const { Cell::new(0) };
    }
    let mut state = STATE.get();
    if state == 0 {
        // The seed differs between goroutines, and is the same again when a run is replayed.
        let id = current::goroutine().map_or(ptr::from_ref(&STATE).addr() as u64, G::id);
        state = (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ random::seed()) | 1;
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    STATE.set(state);
    ((u128::from(state) * n as u128) >> 64) as usize
}
