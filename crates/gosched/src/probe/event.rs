//! What the scheduler records: one [`EventKind`] for each kind of decision, and the numbers that
//! belong to it. This module never records anything: [`recorder`](super::recorder) does.
//!
//! An event is stored as a number for its kind and up to five words, one for each field.

use super::field::{
    CallEnd, GlobalReason, Place, PreemptMethod, PreemptReason, Source, Span, StopReason, Waker,
    Word,
};
use super::wait_reason::WaitReason;
use std::fmt;

/// Number of words for the fields of an event.
pub(crate) const FIELDS: usize = 5;

fn padded<const N: usize>(words: [u64; N]) -> [u64; FIELDS] {
    const { assert!(N <= FIELDS, "an event has too many fields") };
    std::array::from_fn(|index| if index < N { words[index] } else { 0 })
}

/// Defines [`EventKind`] and how each kind is stored.
macro_rules! events {
    ($(
        $(#[$doc:meta])*
        $name:ident = $number:literal { $( $(#[$field_doc:meta])* $field:ident: $type:ty, )* }
    )*) => {
        /// What the scheduler decided. Goroutines, Ms and Ps are given by number: `g: 7` is the
        /// goroutine whose [`GoId`](crate::GoId) is displayed as 7.
        ///
        /// An event is recorded before its effect shows to other threads, and a goroutine is
        /// recorded as taken after it was taken. So a goroutine's events, in the order of their
        /// times, are its history.
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum EventKind {
            $( $(#[$doc])* $name { $( $(#[$field_doc])* $field: $type, )* }, )*
        }

        impl EventKind {
            /// Returns the number of the kind, and the fields.
            pub(crate) fn encode(self) -> (u8, [u64; FIELDS]) {
                match self {
                    $( EventKind::$name { $($field),* } => {
                        ($number, padded([$( Word::to_word($field) ),*]))
                    } )*
                }
            }

            /// Returns `None` if the words are not those of an event.
            pub(crate) fn decode(number: u8, words: [u64; FIELDS]) -> Option<EventKind> {
                let mut _words = words.into_iter();
                match number {
                    $( $number => Some(EventKind::$name {
                        $( $field: Word::from_word(_words.next()?)?, )*
                    }), )*
                    _ => None,
                }
            }
        }
    };
}

events! {
    /// A goroutine starts.
    Spawn = 1 {
        /// The new goroutine.
        g: u64,
        /// The goroutine that called `go`; 0 if an ordinary thread did.
        parent: u64,
        /// Where the new goroutine waits for a P.
        to: Place,
    }
    /// A goroutine that waited can run again.
    Ready = 2 {
        /// The goroutine.
        g: u64,
        /// What made it ready.
        by: Waker,
        /// Where it waits for a P.
        to: Place,
    }
    /// A goroutine that ran, and can run on, goes into a queue.
    Enqueue = 3 {
        /// The goroutine.
        g: u64,
        /// The queue.
        to: Place,
    }
    /// A goroutine loses its place in `run_next` to another one.
    Displace = 4 {
        /// The goroutine that was next to run.
        g: u64,
        /// The goroutine that is next now.
        by: u64,
        /// Where the displaced goroutine waits.
        to: Place,
    }
    /// A full local queue moves its older half to the global queue, and with it the goroutine that
    /// did not fit.
    Spill = 5 {
        /// The goroutine that did not fit.
        g: u64,
        /// The positions that were moved.
        moved: Span,
        /// The goroutine at the first of these positions.
        first: u64,
        /// The goroutine at the last of these positions.
        last: u64,
        /// How many goroutines the local queue held.
        len: u32,
    }
    /// A P begins to run a goroutine.
    Run = 6 {
        /// The goroutine.
        g: u64,
        /// Where the P found it.
        from: Source,
        /// The number of the slice: how many slices have begun on this P. It wraps.
        slice: u32,
        /// Whether the goroutine continues the slice of the goroutine that made it ready.
        inherits: bool,
        /// How many goroutines are in the global queue.
        global: u32,
    }
    /// A P takes goroutines from the global queue.
    TakeGlobal = 7 {
        /// The first one, which the P runs next.
        g: u64,
        /// Why the P takes from the global queue now.
        why: GlobalReason,
        /// Where in the ring of the P the others are, in their order.
        others: Span,
        /// How many goroutines were in the global queue before.
        len: u32,
    }
    /// A P steals goroutines from another P.
    Steal = 8 {
        /// The goroutine that the P runs next: the last of those that it stole.
        g: u64,
        /// The P that is stolen from.
        victim: u32,
        /// The positions in the victim's ring. The count is 0 if the goroutine was in `run_next`.
        taken: Span,
        /// How many goroutines the victim's ring held.
        len: u32,
        /// Where in the thief's ring the first of the others is.
        to: u32,
    }
    /// A goroutine waits.
    Park = 9 {
        /// The goroutine.
        g: u64,
        /// What it waits for.
        reason: WaitReason,
    }
    /// A goroutine lets others run. [`EventKind::Enqueue`] follows, unless no other goroutine waits
    /// for this P: the goroutine then continues at once.
    Yield = 10 {
        /// The goroutine.
        g: u64,
        /// Whether the goroutine continues at once.
        continues: bool,
    }
    /// A goroutine ends.
    Exit = 11 {
        /// The goroutine.
        g: u64,
    }
    /// A goroutine could not start, because there is no memory for its stack. It waits until
    /// another goroutine ends.
    NoStack = 12 {
        /// The goroutine.
        g: u64,
    }
    /// A goroutine stops in the middle.
    Preempt = 13 {
        /// The goroutine.
        g: u64,
        /// Why it stops.
        reason: PreemptReason,
        /// How it was stopped.
        how: PreemptMethod,
    }
    /// A thread requests that an M stop its goroutine.
    RequestPreempt = 14 {
        /// The M.
        m: u32,
        /// The goroutine that the M seems to run; 0 if none.
        g: u64,
        /// Why.
        reason: PreemptReason,
    }
    /// A goroutine enters a marked call, which may block.
    EnterCall = 15 {
        /// The goroutine.
        g: u64,
        /// Whether the call is known to block: the P is handed off at once.
        blocks: bool,
    }
    /// A thread takes the P of an M that is blocked in a call.
    Retake = 16 {
        /// The P.
        p: u32,
        /// The M.
        m: u32,
        /// The goroutine in the call; 0 if unknown.
        g: u64,
        /// Whether the call was marked. The kernel told about an unmarked call.
        marked: bool,
    }
    /// A goroutine comes back from a marked call, or enters the runtime after its P was taken in an
    /// unmarked call.
    LeaveCall = 17 {
        /// The goroutine.
        g: u64,
        /// How it continues.
        end: CallEnd,
    }
    /// The M begins to search for work on other Ps.
    Spin = 18 {}
    /// The M ends its search.
    StopSpinning = 19 {
        /// Whether it found work.
        found: bool,
    }
    /// A thread hands a P to a sleeping M, and wakes the M.
    Wake = 20 {
        /// The M.
        m: u32,
        /// The P.
        p: u32,
        /// Whether the M begins by searching for work.
        spins: bool,
    }
    /// No M sleeps that could take a P: the P waits until the thread maker has made an M.
    NeedThread = 21 {
        /// The P.
        p: u32,
        /// Whether the M begins by searching for work.
        spins: bool,
    }
    /// The M, which has no P, goes to sleep.
    Sleep = 22 {
        /// Whether it sleeps in the poller, and is woken by I/O.
        polls: bool,
        /// Whether it wakes for the next timer.
        keeps_time: bool,
    }
    /// The M wakes.
    Awake = 23 {}
    /// The M acquires a P.
    AcquireP = 24 {
        /// The P.
        p: u32,
    }
    /// The M releases its P.
    ReleaseP = 25 {
        /// The P.
        p: u32,
    }
    /// Timers fire.
    Timers = 26 {
        /// How many goroutines they made ready.
        ready: u32,
    }
    /// A poll finds goroutines that I/O has made ready.
    Poll = 27 {
        /// How many goroutines.
        ready: u32,
    }
    /// A thread begins to stop the world.
    StopWorld = 28 {
        /// Why.
        reason: StopReason,
    }
    /// All Ps have stopped.
    WorldStopped = 29 {}
    /// The world starts again.
    StartWorld = 30 {
        /// Whether all Ps had stopped. If not, the thread tries again later.
        stopped: bool,
    }
    /// The thread maker makes an M.
    MakeThread = 31 {
        /// The M.
        m: u32,
    }
    /// The M begins: its thread runs.
    StartThread = 32 {}
    /// The M ends.
    EndThread = 33 {}
    /// A thread wakes the M that sleeps until the next timer, without a P: a new timer is due
    /// earlier.
    WakeTimekeeper = 34 {
        /// The M.
        m: u32,
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            EventKind::Spawn { g, parent: 0, to } => write!(f, "a thread starts G{g}: {to}"),
            EventKind::Spawn { g, parent, to } => write!(f, "G{parent} starts G{g}: {to}"),
            EventKind::Ready { g, by, to } => write!(f, "{by} makes G{g} ready: {to}"),
            EventKind::Enqueue { g, to } => write!(f, "G{g} is queued: {to}"),
            EventKind::Displace { g, by, to } => {
                write!(f, "G{by} displaces G{g} from run_next: {to}")
            }
            EventKind::Spill { g, moved, first, last, len } => write!(
                f,
                "the queue of {len} is full: {} of them, G{first} to G{last}, and G{g} go to the \
                 global queue",
                moved.count
            ),
            EventKind::Run { g, from, slice, inherits, .. } => {
                let begins = if inherits { "in the same slice" } else { "slice" };
                write!(f, "G{g} runs, from {from}, {begins} {slice}")
            }
            EventKind::TakeGlobal { g, why, others: Span { count: 0, .. }, len } => {
                write!(f, "takes G{g}, the first of {len} in the global queue: {why}")
            }
            EventKind::TakeGlobal { g, why, others, len } => write!(
                f,
                "takes G{g} and the next {} of {len} in the global queue: {why}",
                others.count
            ),
            EventKind::Steal { g, victim, taken: Span { count: 0, .. }, .. } => {
                write!(f, "steals G{g} from run_next of P{victim}")
            }
            EventKind::Steal { g, victim, taken, len, .. } => {
                write!(f, "steals {} of {len} from P{victim}, and runs G{g}", taken.count)
            }
            EventKind::Park { g, reason } => write!(f, "G{g} waits: {reason}"),
            EventKind::Yield { g, continues: false } => write!(f, "G{g} yields"),
            EventKind::Yield { g, continues: true } => {
                write!(f, "G{g} yields, but no other goroutine waits")
            }
            EventKind::Exit { g } => write!(f, "G{g} ends"),
            EventKind::NoStack { g } => write!(f, "no memory for the stack of G{g}"),
            EventKind::Preempt { g, reason, how } => {
                write!(f, "G{g} is stopped {how}: {reason}")
            }
            EventKind::RequestPreempt { m, g, reason } => {
                write!(f, "requests that M{m} stop G{g}: {reason}")
            }
            EventKind::EnterCall { g, blocks: false } => write!(f, "G{g} enters a call"),
            EventKind::EnterCall { g, blocks: true } => {
                write!(f, "G{g} enters a call that blocks")
            }
            EventKind::Retake { p, m, g, marked } => {
                let call = if marked { "a call" } else { "an unmarked call" };
                write!(f, "P{p} is taken from M{m}: G{g} is blocked in {call}")
            }
            EventKind::LeaveCall { g, end } => write!(f, "G{g} leaves its call: it {end}"),
            EventKind::Spin {} => f.write_str("searches other Ps for work"),
            EventKind::StopSpinning { found: true } => f.write_str("has found work"),
            EventKind::StopSpinning { found: false } => f.write_str("has found no work"),
            EventKind::Wake { m, p, spins } => {
                let spins = if spins { ", to search for work" } else { "" };
                write!(f, "wakes M{m} with P{p}{spins}")
            }
            EventKind::NeedThread { p, .. } => write!(f, "P{p} waits for a new M"),
            EventKind::Sleep { polls, keeps_time } => f.write_str(match (polls, keeps_time) {
                (false, false) => "sleeps",
                (true, false) => "sleeps in the poller",
                (false, true) => "sleeps until the next timer",
                (true, true) => "sleeps in the poller until the next timer",
            }),
            EventKind::Awake {} => f.write_str("wakes"),
            EventKind::AcquireP { p } => write!(f, "acquires P{p}"),
            EventKind::ReleaseP { p } => write!(f, "releases P{p}"),
            EventKind::Timers { ready } => write!(f, "due timers: {ready} goroutines are ready"),
            EventKind::Poll { ready } => write!(f, "the poller: {ready} goroutines are ready"),
            EventKind::StopWorld { reason } => write!(f, "stops the world: {reason}"),
            EventKind::WorldStopped {} => f.write_str("the world has stopped"),
            EventKind::StartWorld { stopped: true } => f.write_str("starts the world"),
            EventKind::StartWorld { stopped: false } => {
                f.write_str("starts the world, in which not every P has stopped")
            }
            EventKind::MakeThread { m } => write!(f, "makes M{m}"),
            EventKind::StartThread {} => f.write_str("begins"),
            EventKind::EndThread {} => f.write_str("ends"),
            EventKind::WakeTimekeeper { m } => write!(f, "wakes M{m} for an earlier timer"),
        }
    }
}

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;
