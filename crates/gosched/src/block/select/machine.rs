//! How a choice is made among channels, whatever their types.
//!
//! 1. In random order, looks at each arm without its lock, and tries those that seem ready.
//! 2. Takes the locks of all channels, in the order of their addresses, each once; tries all again. So
//!    "none is ready" is true at one moment.
//! 3. Puts a waiter into each queue, and parks; the locks are given back once the context is saved.
//! 4. Whoever comes first fires the wakeup: its arm is chosen. The caller takes all locks again, and takes
//!    its other waiters out.

use crate::block::chan::{AnyChan, Direction};
use crate::block::limit::{TIMEOUT, WaitTimeout};
use crate::block::wait_record::WaitRecord;
use crate::block::waiter::{ToReady, Waiter, Wakeup};
use crate::gmp::current;
use crate::gmp::g::G;
use crate::gmp::reason::WaitReason;
use crate::sched::{self, RuntimeGuard};
use crate::sys::{clock, random};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr;

/// One arm: a channel, a direction, and a place for the value.
/// Go: scase.
///
/// # Safety
/// - **channel**: `channel` is always the same, alive while the arm is.
/// - **place**: `place` is good for the channel's values in that direction.
pub unsafe trait Case {
    /// `None`: the arm is off.
    fn channel(&self) -> Option<&dyn AnyChan>;
    /// Which way.
    fn direction(&self) -> Direction;
    /// Whether it seems to be ready, without the lock.
    fn seems_ready(&self) -> bool;
    /// Does it if that can be done now: `Some`, perhaps with whom to make ready then.
    ///
    /// # Safety
    /// - **held**: the channel's lock, by the caller.
    unsafe fn try_now(&self) -> Option<ToReady>;
    /// Where the value is, or is to be put.
    fn place(&self) -> *mut ();
    /// It was chosen, and was done by somebody else; or, refused, the channel was closed.
    fn complete(&self, closed: bool);
}

/// What a choice among `arms` needs beside them: as many of each.
pub(crate) struct Scratch<'a> {
    /// In which order arms are tried: those that are not off.
    pub(crate) poll_order: &'a mut [u16],
    /// In which order locks are taken.
    pub(crate) lock_order: &'a mut [u16],
    pub(crate) waiters: &'a mut [MaybeUninit<Waiter>],
}

/// Whether to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitMode {
    /// Not at all: there is a default.
    NoWait,
    /// Until that time.
    Until(u64),
    /// As long as it takes.
    Forever,
}

/// Chooses an arm and does it. `None`: none was ready, and it was not to wait.
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
        // SAFETY: held — all are.
        if let Some(woken) = unsafe { arms[usize::from(arm)].try_now() } {
            // SAFETY: held — above.
            unsafe { all.unlock() };
            make_ready(inside, woken);
            return Some(usize::from(arm));
        }
    }
    if mode == WaitMode::NoWait {
        // SAFETY: held — above.
        unsafe { all.unlock() };
        return None;
    }
    let is_limited = mode != WaitMode::Forever;
    // SAFETY: held — above.
    unsafe { wait(inside, &wakeup, &all, waiters, is_limited) }
}

/// Waits until one of the arms is done. `None`: the time is over.
///
/// # Safety
/// - **held**: all locks; given back here.
unsafe fn wait(
    inside: RuntimeGuard,
    wakeup: &Wakeup,
    all: &AllLocks<'_>,
    waiters: &mut [MaybeUninit<Waiter>],
    is_limited: bool,
) -> Option<usize> {
    for (&arm, place) in all.lock_order.iter().zip(waiters.iter_mut()) {
        let case = all.arms[usize::from(arm)];
        let waiter = place.write(Waiter::new(wakeup, usize::from(arm), case.place()));
        if let Some(channel) = case.channel() {
            // SAFETY: held — promised by the caller; frame — taken out below, under the lock.
            if let Some(g) = unsafe { channel.enqueue(waiter, case.direction()) }.0 {
                inside.ready(g);
            }
        }
    }
    // SAFETY: one was written for each arm, above.
    let written = unsafe { waiters[..all.lock_order.len()].assume_init_ref() };
    let parking = Parking { waits: WaitRecord::many(wakeup, written, is_limited), all };
    // SAFETY: commit — it takes a `Parking`, and this frame waits.
    unsafe { inside.park(WaitReason::Select, commit, (&raw const parking).cast()) };
    let inside = sched::enter_runtime();
    all.lock();
    let chosen = wakeup.fired();
    for (&arm, waiter) in all.lock_order.iter().zip(waiters.iter()) {
        let case = all.arms[usize::from(arm)];
        // SAFETY: written above.
        let waiter = unsafe { waiter.assume_init_ref() };
        if let Some(channel) = case.channel() {
            // SAFETY: held — above.
            unsafe { channel.dequeue(waiter, case.direction()) };
        }
        if chosen == Some(usize::from(arm)) {
            case.complete(waiter.is_woken_by_close());
        }
    }
    // SAFETY: held — above.
    unsafe { all.unlock() };
    drop(inside);
    chosen.filter(|&arm| arm != TIMEOUT)
}

/// What [`commit`] needs. `repr(C)`: what is waited for comes first.
#[repr(C)]
struct Parking<'a> {
    waits: WaitRecord<'a>,
    all: &'a AllLocks<'a>,
}

/// The caller's context is saved: others may know.
/// Go: selparkcommit.
///
/// # Safety
/// - **parking**: `data` is a `Parking`, alive until the wakeup is committed, and what it names until the last lock is free.
unsafe fn commit(g: &'static G, data: *const ()) -> bool {
    // SAFETY: parking — promised by the caller.
    let &Parking { waits: WaitRecord { wakeup, .. }, all } =
        unsafe { &*data.cast::<Parking<'_>>() };
    // From here on a time limit may make it ready without the locks: the `Parking` may be gone.
    let wait = wakeup.commit(g);
    // SAFETY: held — by the goroutine that waits. It takes them all before it leaves its frame.
    unsafe { all.unlock_and_forget() };
    wait
}

/// All locks, in the order of their addresses; arms of one channel are neighbours.
struct AllLocks<'a> {
    arms: &'a [&'a dyn Case],
    lock_order: &'a [u16],
}

impl AllLocks<'_> {
    /// The channel of the arm at `at`, if that is its last arm.
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

    /// # Safety
    /// - **held**: all of them, by the caller.
    unsafe fn unlock(&self) {
        for channel in (0..self.lock_order.len()).filter_map(|at| self.channel(at)) {
            // SAFETY: held — promised by the caller.
            unsafe { channel.unlock() };
        }
    }

    /// As [`AllLocks::unlock`]; after the last one is free nothing here is looked at.
    ///
    /// # Safety
    /// - **held**: as there, by whoever the caller goes on for.
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

/// One after the other, those that seem ready.
fn try_one_by_one(arms: &[&dyn Case], order: &[u16]) -> Option<usize> {
    for &index in order {
        let arm = arms[usize::from(index)];
        let Some(channel) = arm.channel().filter(|_| arm.seems_ready()) else { continue };
        let inside = sched::enter_runtime();
        channel.lock();
        // SAFETY: held — above.
        let done = unsafe { arm.try_now() };
        // SAFETY: held — above.
        unsafe { channel.unlock() };
        if let Some(woken) = done {
            make_ready(inside, woken);
            return Some(usize::from(index));
        }
    }
    None
}

fn make_ready(inside: RuntimeGuard, woken: ToReady) {
    if let Some(g) = woken.0 {
        inside.ready(g);
    }
}

/// Nobody can ever make the caller ready.
/// Go: block.
pub(crate) fn block_forever(reason: WaitReason) -> ! {
    /// # Safety
    /// - **any**: it may always be called.
    unsafe fn commit(_g: &'static G, _data: *const ()) -> bool {
        true
    }
    loop {
        // SAFETY: commit — it may be called; nobody makes this one ready.
        unsafe { sched::park(reason, commit, ptr::null()) };
    }
}

/// Puts the arms that are not off into `order`, in random order; how many there are.
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

/// A number below `n`, which is small.
fn random_below(n: usize) -> usize {
    thread_local! {
        static STATE: Cell<u64> = const { Cell::new(0) };
    }
    let mut state = STATE.get();
    if state == 0 {
        // Different for each goroutine, and the same again in a run that is replayed.
        let id = current::goroutine().map_or(ptr::from_ref(&STATE).addr() as u64, G::id);
        state = (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ random::seed()) | 1;
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    STATE.set(state);
    ((u128::from(state) * n as u128) >> 64) as usize
}
