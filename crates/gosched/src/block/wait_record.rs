//! What a goroutine that waits is waiting for, for whoever looks at it from outside.
//!
//! It has left a [`WaitRecord`] in the frame that waits, and its G says where; each of the waiters says where it is told
//! who can end its wait: a count of a channel's ends, the holder of a lock. Nobody keeps any of that for who looks:
//! it reads copies, word by word, and believes them if the G stood still meanwhile.

use super::sync::TRACKED_READERS;
use super::waiter::{Waiter, Wakeup};
use crate::gmp::g::G;
use crate::gmp::reason::WaitReason;
use crate::sched::inspector::MemoryReader;
use std::mem::offset_of;

/// What a caller parks with, or the head of it. Made of plain words.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct WaitRecord<'a> {
    pub(crate) wakeup: &'a Wakeup,
    waiters: *const Waiter,
    /// How many there are; and, in the lowest bit, whether there is a time limit.
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

/// Who can end a wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// It is not known.
    Unknown,
    /// The time can, if nobody else does.
    Time,
    Never,
    /// Whoever holds the mutex; 0 is not known.
    Mutex(u64),
    /// The one that changes what is under the lock at this place, if one does; or those who wait to.
    Read(usize, u64),
    /// All who hold the lock at this place; 0 is none, or not known.
    Write(usize, [u64; 1 + TRACKED_READERS]),
    /// Whoever has one of these ends.
    Ends(Vec<ChanEnd>),
    /// The goroutine that has this word in its task; or all that have this scope.
    Goroutines(usize),
}

/// One end of a channel: an end is a word, this address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChanEnd {
    pub(crate) address: usize,
    /// How many there are. 0: the runtime has it.
    pub(crate) count: usize,
}

/// Whether nobody has ended the wait of `g` yet, whose reason this is. One that was given what it waits for waits on
/// until it is made ready, and may be known as a holder by then. To be believed if the G stands still.
pub(crate) fn is_waiting(g: &'static G, reason: WaitReason, reader: &mut MemoryReader) -> bool {
    let mut wakeup = || {
        let wakeup = reader.word(g.park_data() as usize + offset_of!(WaitRecord<'_>, wakeup))?;
        reader.word(wakeup + Wakeup::WORD_OFFSET)
    };
    // Where it cannot be read the frame is gone, and the G has moved on; or there is no port.
    !has_wait_record(reason) || wakeup().is_none_or(|word| word == Wakeup::WORD_WHEN_PARKED)
}

/// More arms than a `select` has: a copy that makes no sense.
const MAX_WAITERS: usize = 1 << 16;

/// What `g` waits for, whose reason this is. To be believed if the G stands still.
pub(crate) fn read_waits_for(
    g: &'static G,
    reason: WaitReason,
    reader: &mut MemoryReader,
) -> WaitsFor {
    let with = g.park_data() as usize;
    match reason {
        WaitReason::ChanReceiveNil | WaitReason::SelectNoCases => WaitsFor::Never,
        WaitReason::Sleep => WaitsFor::Time,
        // Whoever waits for a time says so in the lowest bit.
        WaitReason::Join if with & 1 != 0 => WaitsFor::Time,
        WaitReason::Join => WaitsFor::Goroutines(with),
        reason if has_wait_record(reason) => {
            waiters_of(with, reason, reader).unwrap_or(WaitsFor::Unknown)
        }
        _ => WaitsFor::Unknown,
    }
}

/// Whether one that waits for this reason has parked with a [`WaitRecord`].
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
        // The writer comes first.
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
