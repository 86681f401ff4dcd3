//! Handing a P to an M that sleeps.
//!
//! A P is *in flight* from the moment it is handed to an M, the *receiver*, until the receiver
//! acquires it. It is then in no list, and belongs to its receiver alone. Flights of a P have
//! numbers, which only grow.
//!
//! - Giver, which owns the P: 1. starts a flight with a new number; 2. puts the P into the
//!   receiver's place ([`NextP`]); 3. wakes the receiver; 4. records that it has woken the receiver
//!   of this flight. The receiver may have passed the P on by then, so the record is the largest
//!   number so far.
//! - Receiver: 1. wakes; 2. takes the P out of its place; 3. ends the flight.
//! - Sysmon: 1. reads the flight; 2. checks that the receiver of that flight was woken; 3. asks the
//!   kernel whether the receiver sleeps; 4. checks that the flight is still the same. If all holds,
//!   the wake-up was lost.
//!
//! Why sysmon is never wrong: in step 3 of sysmon, the giver's step 3 is over, so a receiver that
//! slept in this flight is awake, or about to run. If the receiver has run and sleeps again, it has
//! ended the flight before. Step 4 then finds another receiver or none, or the same receiver in a
//! later flight. It reads the receiver before the number, so in that case it reads a later number.
//!
//! A receiver has one place. The giver has taken the receiver out of the list of idle Ms, so no
//! other giver uses the place at the same time.
//!
//! This module never wakes a thread and never acquires a P: its callers do.

use crate::sys::atomic::{AtomicPtr, AtomicU64, Ordering, const_fn};
use crate::sys::fatal::fatal;
use std::ptr;

/// The flights of a P (see the top of this file).
#[derive(Debug)]
pub(crate) struct Flight<M: 'static> {
    /// The receiver, until an M acquires the P; then null.
    receiver: AtomicPtr<M>,
    /// Number of the current or last flight.
    number: AtomicU64,
    /// The largest number of a flight whose receiver was woken by the giver.
    woken: AtomicU64,
}

impl<M> Flight<M> {
    const_fn! {
        pub(crate) fn new() -> Flight<M> {
            Flight {
                receiver: AtomicPtr::new(ptr::null_mut()),
                number: AtomicU64::new(0),
                woken: AtomicU64::new(0),
            }
        }
    }

    /// Performs step 1 of the giver. Returns the number of the flight.
    fn start(&self, receiver: &'static M) -> u64 {
        let number = self.number.load(Ordering::Relaxed) + 1;
        self.number.store(number, Ordering::Relaxed);
        // PAIR flight: a thread that sees the receiver also sees the number.
        self.receiver.store(ptr::from_ref(receiver).cast_mut(), Ordering::Release);
        number
    }

    /// Performs step 4 of the giver.
    fn record_wake_up(&self, number: u64) {
        // PAIR flight-woken: a thread that sees the record finds the receiver woken.
        self.woken.fetch_max(number, Ordering::Release);
    }

    /// Ends the flight: step 3 of the receiver.
    #[inline]
    pub(crate) fn end(&self) {
        self.receiver.store(ptr::null_mut(), Ordering::Relaxed);
    }

    /// Returns the number of the current flight and its receiver, or `None` if the P is not in
    /// flight. Number and receiver may belong to different flights: they are read one by one.
    pub(crate) fn current(&self) -> Option<(u64, &'static M)> {
        let number = self.number.load(Ordering::Relaxed);
        // PAIR flight: a later read of the number returns that of this receiver, or a larger one.
        let receiver = self.receiver.load(Ordering::Acquire);
        // SAFETY: only `'static` references are ever stored.
        unsafe { receiver.as_ref() }.map(|receiver| (number, receiver))
    }

    /// Returns whether flight `number` to `receiver` has not ended.
    fn is_under_way(&self, number: u64, receiver: &M) -> bool {
        // PAIR flight: the number below is that of this receiver, or a larger one.
        let is_same = ptr::eq(self.receiver.load(Ordering::Acquire), receiver);
        is_same && self.number.load(Ordering::Relaxed) == number
    }

    /// Performs steps 2 to 4 of sysmon, for the flight that [`Flight::current`] has returned. `ask`
    /// asks the kernel about the receiver. Returns the kernel's answer if it is about a receiver
    /// that was woken and has not acquired the P.
    pub(crate) fn ask_about_receiver<T>(
        &self,
        (number, receiver): (u64, &'static M),
        ask: impl FnOnce(&'static M) -> T,
    ) -> Option<T> {
        // PAIR flight-woken: the kernel is asked after the giver has woken the receiver.
        if self.woken.load(Ordering::Acquire) < number {
            return None;
        }
        let answer = ask(receiver);
        self.is_under_way(number, receiver).then_some(answer)
    }
}

/// The P that an M is woken with: the place into which the giver puts it.
/// Go: m.nextp.
#[derive(Debug)]
pub(crate) struct NextP<P: 'static>(AtomicPtr<P>);

impl<P> NextP<P> {
    const_fn! {
        pub(crate) fn new() -> NextP<P> {
            NextP(AtomicPtr::new(ptr::null_mut()))
        }
    }

    /// Takes the P: step 2 of the receiver. Returns `None` if the M was not given one.
    #[inline]
    pub(crate) fn take(&self) -> Option<&'static P> {
        let p = self.0.swap(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: only `'static` references are ever stored.
        unsafe { p.as_ref() }
    }
}

/// Hands `p` to `receiver`: all steps of the giver. `wake` wakes the receiver.
/// Go: the end of startm.
pub(crate) fn hand_over<P, M>(
    p: &'static P,
    flight: &Flight<M>,
    receiver: &'static M,
    place: &NextP<P>,
    wake: impl FnOnce(),
) {
    let number = flight.start(receiver);
    let before = place.0.swap(ptr::from_ref(p).cast_mut(), Ordering::Relaxed);
    if !before.is_null() {
        fatal!("an M is given a P although it has not taken the last one");
    }
    wake();
    flight.record_wake_up(number);
}
