//! The ends of a channel: who holds them, and how many there are.
//!
//! An end is one word: the address of the count of its kind. So whoever looks at a goroutine's memory can tell which
//! ends it may hold, and which kind they are; nothing else of the channel is found by that address.

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

/// A channel.
pub(super) struct ChanRecord<T> {
    pub(super) core: Chan<T>,
    /// The only sender, if it is one.
    pub(super) timer: Option<ChanTimer<T>>,
    /// Programs cannot close it.
    pub(super) seal: Option<Seal>,
}

/// How many hold each end.
#[derive(Debug)]
pub(super) struct EndCounts {
    /// 0 where only the runtime sends.
    senders: AtomicUsize,
    receivers: AtomicUsize,
}

impl EndCounts {
    pub(super) fn new(senders: usize) -> EndCounts {
        EndCounts { senders: AtomicUsize::new(senders), receivers: AtomicUsize::new(1) }
    }

    /// The count of those who can end the wait of one who sends, or receives.
    #[inline]
    pub(super) fn of_the_other_end(&self, to: Direction) -> *const () {
        match to {
            Direction::Send => self.receivers.as_ptr().cast(),
            Direction::Receive => self.senders.as_ptr().cast(),
        }
    }
}

/// A hold on a channel, as a sender or as a receiver: where in [`ChanRecord`] its count is.
pub(super) struct End<T, K: Kind> {
    count: NonNull<AtomicUsize>,
    of: PhantomData<(Arc<ChanRecord<T>>, K)>,
}

/// Which count.
pub(super) trait Kind {
    const OFFSET: usize;
}

/// Of those who send.
pub(super) struct Sends;
/// Of those who receive.
pub(super) struct Receives;

impl Kind for Sends {
    const OFFSET: usize = offset_of!(EndCounts, senders);
}

impl Kind for Receives {
    const OFFSET: usize = offset_of!(EndCounts, receivers);
}

// SAFETY: as an `Arc` of the same.
unsafe impl<T: Send, K: Kind> Send for End<T, K> {}
// SAFETY: as above.
unsafe impl<T: Send, K: Kind> Sync for End<T, K> {}

impl<T, K: Kind> End<T, K> {
    const OFFSET: usize =
        offset_of!(ChanRecord<T>, core) + Chan::<T>::END_COUNTS_OFFSET + K::OFFSET;

    /// One that was counted.
    pub(super) fn new(ends: Arc<ChanRecord<T>>) -> End<T, K> {
        let ends = Arc::into_raw(ends).cast_mut();
        // SAFETY: the count is so far into it.
        let count = unsafe { ends.byte_add(Self::OFFSET) }.cast::<AtomicUsize>();
        // SAFETY: in a record that is there.
        End { count: unsafe { NonNull::new_unchecked(count) }, of: PhantomData }
    }

    /// Another one.
    #[inline]
    pub(super) fn another(&self) -> End<T, K> {
        self.count().fetch_add(1, Ordering::Relaxed);
        // SAFETY: `new` made it from an `Arc`, of which this one has a share.
        unsafe { Arc::increment_strong_count(self.ends()) };
        End { count: self.count, of: PhantomData }
    }

    /// Before it goes. True for the last.
    #[inline]
    pub(super) fn release(&self) -> bool {
        // PAIR chan-ends: publishes what was done with this one.
        let is_last = self.count().fetch_sub(1, Ordering::Release) == 1;
        if is_last {
            // PAIR chan-ends: sees what was done with the others.
            fence(Ordering::Acquire);
        }
        is_last
    }

    fn count(&self) -> &AtomicUsize {
        // SAFETY: in a record of which this one has a share.
        unsafe { self.count.as_ref() }
    }

    #[inline]
    fn ends(&self) -> *const ChanRecord<T> {
        // SAFETY: the count is so far into it.
        unsafe { self.count.as_ptr().byte_sub(Self::OFFSET) }.cast()
    }

    pub(super) fn same(&self, other: &Self) -> bool {
        self.count == other.count
    }

    pub(super) fn closer(&self) -> Closer<T> {
        // SAFETY: `new` made it from an `Arc`, and the share stays with this one.
        let ends = ManuallyDrop::new(unsafe { Arc::from_raw(self.ends()) });
        Closer(Arc::downgrade(&ends))
    }
}

impl<T, K: Kind> Drop for End<T, K> {
    fn drop(&mut self) {
        // SAFETY: `new` made it from an `Arc`, or `another` counted it; used once.
        drop(unsafe { Arc::from_raw(self.ends()) });
    }
}

impl<T, K: Kind> Deref for End<T, K> {
    type Target = ChanRecord<T>;
    #[inline]
    fn deref(&self) -> &ChanRecord<T> {
        // SAFETY: this one has a share of it.
        unsafe { &*self.ends() }
    }
}
