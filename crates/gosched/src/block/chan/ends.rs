//! The ends of a channel, and how many of each kind there are.
//!
//! An end is one word: the address of the count of its kind. Code that scans the memory of a
//! goroutine can therefore recognise which ends the goroutine may hold, and of which kind they are.
//! No other reference to the channel has that address.
//!
//! An end never closes the channel: `Sender` and `Receiver` do, if `End::release` returns true.

use super::any_chan::Direction;
use super::core::Chan;
use super::timer::ChanTimer;
use super::{Closer, Seal};
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, offset_of};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// The allocation that all ends of a channel share.
pub(super) struct ChanRecord<T> {
    pub(super) core: Chan<T>,
    /// The timer that is the only sender, if there is one.
    pub(super) timer: Option<ChanTimer<T>>,
    /// Set if user code cannot close the channel.
    pub(super) seal: Option<Seal>,
}

/// The number of ends of each kind.
#[derive(Debug)]
pub(super) struct EndCounts {
    /// Number of senders; 0 if only the runtime sends.
    senders: AtomicUsize,
    receivers: AtomicUsize,
}

impl EndCounts {
    pub(super) fn new(senders: usize) -> EndCounts {
        EndCounts { senders: AtomicUsize::new(senders), receivers: AtomicUsize::new(1) }
    }

    /// Returns the address of the count of the ends that can end a wait: of receivers for a sender
    /// that waits, of senders for a receiver that waits.
    #[inline]
    pub(super) fn of_the_other_end(&self, to: Direction) -> *const () {
        match to {
            Direction::Send => self.receivers.as_ptr().cast(),
            Direction::Receive => self.senders.as_ptr().cast(),
        }
    }
}

/// One end of a channel, as a sender or as a receiver: the address of its count in the
/// [`ChanRecord`]. Owns a strong count of the record.
pub(super) struct End<T, K: Kind> {
    count: NonNull<AtomicUsize>,
    of: PhantomData<(Arc<ChanRecord<T>>, K)>,
}

/// The kind of an end: which count it points to.
pub(super) trait Kind {
    const OFFSET: usize;
}

/// The kind of senders.
pub(super) struct Sends;
/// The kind of receivers.
pub(super) struct Receives;

impl Kind for Sends {
    const OFFSET: usize = offset_of!(EndCounts, senders);
}

impl Kind for Receives {
    const OFFSET: usize = offset_of!(EndCounts, receivers);
}

// SAFETY: the same as for an `Arc` of the record.
unsafe impl<T: Send, K: Kind> Send for End<T, K> {}
// SAFETY: as above.
unsafe impl<T: Send, K: Kind> Sync for End<T, K> {}

impl<T, K: Kind> End<T, K> {
    const OFFSET: usize =
        offset_of!(ChanRecord<T>, core) + Chan::<T>::END_COUNTS_OFFSET + K::OFFSET;

    /// Creates an end that is already counted.
    pub(super) fn new(ends: Arc<ChanRecord<T>>) -> End<T, K> {
        let ends = Arc::into_raw(ends).cast_mut();
        // SAFETY: `OFFSET` is the offset of the count in the record.
        let count = unsafe { ends.byte_add(Self::OFFSET) }.cast::<AtomicUsize>();
        // SAFETY: the address of a field is not null.
        End { count: unsafe { NonNull::new_unchecked(count) }, of: PhantomData }
    }

    /// Creates another end of the same kind.
    #[inline]
    pub(super) fn another(&self) -> End<T, K> {
        self.count().fetch_add(1, Ordering::Relaxed);
        // SAFETY: `new` made the address from an `Arc`, of which `self` owns a strong count.
        unsafe { Arc::increment_strong_count(self.ends()) };
        End { count: self.count, of: PhantomData }
    }

    /// Decrements the count, before `self` is dropped. Returns whether this was the last end of its
    /// kind.
    #[inline]
    pub(super) fn release(&self) -> bool {
        // PAIR chan-ends: publishes what was done with this end.
        let is_last = self.count().fetch_sub(1, Ordering::Release) == 1;
        if is_last {
            // PAIR chan-ends: sees what was done with all other ends.
            fence(Ordering::Acquire);
        }
        is_last
    }

    fn count(&self) -> &AtomicUsize {
        // SAFETY: in the record, of which `self` owns a strong count.
        unsafe { self.count.as_ref() }
    }

    #[inline]
    fn ends(&self) -> *const ChanRecord<T> {
        // SAFETY: `OFFSET` is the offset of the count in the record.
        unsafe { self.count.as_ptr().byte_sub(Self::OFFSET) }.cast()
    }

    pub(super) fn same(&self, other: &Self) -> bool {
        self.count == other.count
    }

    pub(super) fn closer(&self) -> Closer<T> {
        // SAFETY: `new` made the address from an `Arc`; the strong count stays with `self`.
        let ends = ManuallyDrop::new(unsafe { Arc::from_raw(self.ends()) });
        Closer(Arc::downgrade(&ends))
    }
}

impl<T, K: Kind> Drop for End<T, K> {
    fn drop(&mut self) {
        // SAFETY: the strong count that `new` or `another` gave to `self`; used once.
        drop(unsafe { Arc::from_raw(self.ends()) });
    }
}

impl<T, K: Kind> Deref for End<T, K> {
    type Target = ChanRecord<T>;
    #[inline]
    fn deref(&self) -> &ChanRecord<T> {
        // SAFETY: `self` owns a strong count of the record.
        unsafe { &*self.ends() }
    }
}
