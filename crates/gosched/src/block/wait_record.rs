//! What a parked goroutine waits for, as the leak hints read it from outside.
//!
//! A goroutine leaves a [`WaitRecord`] in the frame in which it parks, and its G stores the address
//! of that record. Each waiter of the record stores the address of the words that record what can
//! end its wait: the count of a channel's ends, or the holders of a lock. Nothing keeps these words
//! alive for the reader. The reader copies them one by one, and uses the copies only if the G did
//! not change its state meanwhile.
//!
//! The reader never dereferences an address that it has read: `MemoryReader` copies the word, or
//! reports that the word cannot be read.

use super::sync::TRACKED_READERS;
use super::waiter::{Waiter, Wakeup};
use crate::gmp::g::G;
use crate::probe::wait_reason::WaitReason;
use crate::protocol::join_word::LIMIT_MARK;
use crate::sched::inspector::MemoryReader;
use std::mem::offset_of;

/// The data that a caller parks with, or the head of that data. Consists of plain words.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct WaitRecord<'a> {
    pub(crate) wakeup: &'a Wakeup,
    waiters: *const Waiter,
    /// Twice the number of waiters; the lowest bit is set if the wait has a time limit.
    count_and_limit: usize,
}

impl<'a> WaitRecord<'a> {
    #[inline]
    pub(crate) fn one(wakeup: &'a Wakeup, waiter: &'a Waiter, is_limited: bool) -> WaitRecord<'a> {
        WaitRecord { wakeup, waiters: waiter, count_and_limit: 2 + usize::from(is_limited) }
    }

    pub(crate) fn many(
        wakeup: &'a Wakeup,
        waiters: &'a [Waiter],
        is_limited: bool,
    ) -> WaitRecord<'a> {
        let how = 2 * waiters.len() + usize::from(is_limited);
        WaitRecord { wakeup, waiters: waiters.as_ptr(), count_and_limit: how }
    }
}

/// What can end a wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// Not known.
    Unknown,
    /// The passing of time, at the latest.
    Time,
    /// Nothing.
    Never,
    /// The goroutine with this id, which holds the mutex; 0 if the holder is not known.
    Mutex(u64),
    /// For a reader of the `RwLock` whose holders are at this address: the writer with this id. If
    /// the id is 0, the writers that wait for the lock.
    Read(usize, u64),
    /// For a writer of the `RwLock` whose holders are at this address: the goroutines with these
    /// ids, which hold the lock. An id of 0 is an unused entry, or a holder that is not known.
    Write(usize, [u64; 1 + TRACKED_READERS]),
    /// Any goroutine that has one of these ends of channels.
    Ends(Vec<ChanEnd>),
    /// The goroutine whose task has its state word at this address, or all goroutines of the scope
    /// at this address.
    Goroutines(usize),
}

/// One kind of end of a channel. In memory, such an end is one word: this address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChanEnd {
    pub(crate) address: usize,
    /// The number of such ends; 0 if only the runtime has one.
    pub(crate) count: usize,
}

/// Returns whether the wait of `g`, which is parked for `reason`, has not been ended yet.
///
/// A G whose wait was ended remains in the waiting state until it is made ready, and may already be
/// recorded as the holder of a lock. The result is valid only if the G does not change its state
/// meanwhile.
pub(crate) fn is_waiting(g: &'static G, reason: WaitReason, reader: &mut MemoryReader) -> bool {
    let mut wakeup = || {
        let wakeup = reader.word(g.park_data() as usize + offset_of!(WaitRecord<'_>, wakeup))?;
        reader.word(wakeup + Wakeup::WORD_OFFSET)
    };
    // If the word cannot be read, the frame is gone because the G has moved on, or this platform
    // has no memory reader.
    !has_wait_record(reason) || wakeup().is_none_or(|word| word == Wakeup::WORD_WHEN_PARKED)
}

/// A record with this many waiters is an inconsistent copy: a `select!` has fewer arms.
const MAX_WAITERS: usize = 1 << 16;

/// Reads what `g`, which is parked for `reason`, waits for. The result is valid only if the G does
/// not change its state meanwhile.
pub(crate) fn read_waits_for(
    g: &'static G,
    reason: WaitReason,
    reader: &mut MemoryReader,
) -> WaitsFor {
    let with = g.park_data() as usize;
    match reason {
        WaitReason::ChanReceiveNil | WaitReason::SelectNoCases => WaitsFor::Never,
        WaitReason::Sleep => WaitsFor::Time,
        // A join with a time limit parks with a marked address.
        WaitReason::Join if with & LIMIT_MARK != 0 => WaitsFor::Time,
        WaitReason::Join => WaitsFor::Goroutines(with),
        reason if has_wait_record(reason) => {
            waiters_of(with, reason, reader).unwrap_or(WaitsFor::Unknown)
        }
        _ => WaitsFor::Unknown,
    }
}

/// Returns whether a G that waits for `reason` has parked with a [`WaitRecord`].
fn has_wait_record(reason: WaitReason) -> bool {
    match reason {
        WaitReason::ChanReceive
        | WaitReason::ChanSend
        | WaitReason::Select
        | WaitReason::Mutex
        | WaitReason::RwLockRead
        | WaitReason::RwLockWrite
        | WaitReason::Condvar
        | WaitReason::WaitGroup
        | WaitReason::Semaphore
        | WaitReason::Barrier => true,
        WaitReason::None
        | WaitReason::Park
        | WaitReason::Join
        | WaitReason::Run
        | WaitReason::ChanReceiveNil
        | WaitReason::SelectNoCases
        | WaitReason::Sleep
        | WaitReason::BlockOn
        | WaitReason::Io => false,
    }
}

fn waiters_of(with: usize, reason: WaitReason, reader: &mut MemoryReader) -> Option<WaitsFor> {
    let waiters = reader.word(with + offset_of!(WaitRecord<'_>, waiters))?;
    let how = reader.word(with + offset_of!(WaitRecord<'_>, count_and_limit))?;
    if how & 1 != 0 {
        return Some(WaitsFor::Time);
    }
    let count = how / 2;
    if !(1..MAX_WAITERS).contains(&count) {
        return None;
    }
    let mut on = |nth: usize| {
        let waiter = waiters.wrapping_add(nth.wrapping_mul(size_of::<Waiter>()));
        reader.word(waiter.wrapping_add(Waiter::HOLDERS_OFFSET))
    };
    let first = on(0)?;
    Some(match reason {
        WaitReason::Mutex => WaitsFor::Mutex(reader.word(first)? as u64),
        // The writer is the first of the holders.
        WaitReason::RwLockRead => WaitsFor::Read(first, reader.word(first)? as u64),
        WaitReason::RwLockWrite => {
            let mut holders = [0; 1 + TRACKED_READERS];
            for (nth, holder) in holders.iter_mut().enumerate() {
                *holder = reader.word(first.wrapping_add(nth * size_of::<u64>()))? as u64;
            }
            WaitsFor::Write(first, holders)
        }
        WaitReason::ChanReceive | WaitReason::ChanSend | WaitReason::Select => {
            let mut ends = Vec::with_capacity(count);
            for nth in 0..count {
                ends.push(ChanEnd { address: on(nth)?, count: 0 });
            }
            for end in &mut ends {
                end.count = reader.word(end.address)?;
            }
            WaitsFor::Ends(ends)
        }
        _ => WaitsFor::Unknown,
    })
}
