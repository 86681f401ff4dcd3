//! The types of the fields of events, and how each is stored in one word. This module never stores
//! an event: `event` does.

use super::wait_reason::WaitReason;
use std::fmt;

/// A value that is stored in one word of a record.
pub(crate) trait Word: Sized {
    fn to_word(self) -> u64;

    /// Returns `None` if no value is stored as `word`.
    fn from_word(word: u64) -> Option<Self>;
}

impl Word for u64 {
    fn to_word(self) -> u64 {
        self
    }

    fn from_word(word: u64) -> Option<u64> {
        Some(word)
    }
}

impl Word for u32 {
    fn to_word(self) -> u64 {
        u64::from(self)
    }

    fn from_word(word: u64) -> Option<u32> {
        u32::try_from(word).ok()
    }
}

impl Word for bool {
    fn to_word(self) -> u64 {
        u64::from(self)
    }

    fn from_word(word: u64) -> Option<bool> {
        (word < 2).then_some(word == 1)
    }
}

impl Word for WaitReason {
    fn to_word(self) -> u64 {
        self as u64
    }

    fn from_word(word: u64) -> Option<WaitReason> {
        u8::try_from(word).ok().map(WaitReason::from_number)
    }
}

/// A kind and a number of 32 bits in one word.
fn join(kind: u32, number: u32) -> u64 {
    u64::from(kind) << 32 | u64::from(number)
}

fn split(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// Defines an enum without fields that is stored as its number, and displayed in the given words.
macro_rules! words {
    (
        $(#[$attribute:meta])*
        $name:ident { $( $(#[$doc:meta])* $variant:ident = $number:literal $text:literal, )* }
    ) => {
        $(#[$attribute])*
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $( $(#[$doc])* $variant = $number, )* }

        impl Word for $name {
            fn to_word(self) -> u64 {
                self as u64
            }

            fn from_word(word: u64) -> Option<$name> {
                match word {
                    $( $number => Some($name::$variant), )*
                    _ => None,
                }
            }
        }

        impl $name {
            pub(crate) fn words(self) -> &'static str {
                match self { $( $name::$variant => $text, )* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.words())
            }
        }
    };
}

words! {
    /// Why a goroutine must stop although it has not finished.
    PreemptReason {
        /// The goroutine has used up its time slice.
        Slice = 1 "its slice is over",
        /// The goroutine makes room for a timer that is due, or for a goroutine that I/O has made
        /// ready.
        MakeRoom = 2 "makes room",
        /// The goroutine runs without a P: its P was taken while the goroutine was in an
        /// unmarked call, and the goroutine runs again.
        NoP = 3 "runs without a P",
        /// The world stops.
        World = 4 "the world stops",
        /// The seeded mode chose to preempt here.
        Seeded = 5 "the seeded mode chose it",
    }
}

words! {
    /// How a goroutine was stopped.
    PreemptMethod {
        /// At the end of a call into the runtime.
        Leaving = 0 "as it left the runtime",
        /// By a signal. Any M can continue the goroutine.
        Moved = 1 "by a signal, to continue on any M",
        /// By a signal, together with its M, which alone can continue the goroutine.
        InPlace = 2 "by a signal, together with its M",
    }
}

words! {
    /// Why the world stops.
    StopReason {
        /// The number of Ps changes.
        SetProcs = 1 "set_procs",
        /// A test.
        Test = 2 "test",
        /// The stack of a goroutine is copied for a dump.
        Dump = 3 "dump",
        /// A recording of events begins.
        Recording = 4 "recording",
    }
}

words! {
    /// Why a P takes goroutines from the global queue.
    GlobalReason {
        /// It is the 61st slice: a goroutine in the global queue must not wait for local queues to
        /// become empty.
        Tick = 0 "every 61st slice",
        /// The P's own queue is empty.
        Empty = 1 "its own queue is empty",
        /// The goroutine at the head must run before all others: it was interrupted, or I/O made
        /// it ready while all Ps were busy.
        First = 2 "it runs before others",
        /// Two goroutines that keep making each other ready have run for long enough.
        Pair = 3 "a pair ran for too long",
        /// The goroutine belongs to an M that waits for a P.
        Pinned = 4 "its M waits for a P",
    }
}

words! {
    /// How a goroutine continues after a blocking call.
    CallEnd {
        /// With the P that it had: no thread has taken the P.
        Kept = 0 "still has its P",
        /// With the P that it had. The P had been taken, and is idle again.
        OldP = 1 "takes its old P back",
        /// With another idle P.
        IdleP = 2 "takes an idle P",
        /// No P is idle: the goroutine waits in the global queue.
        Queued = 3 "finds no P",
        /// No P is idle, and the goroutine cannot leave its M: both wait.
        Waits = 4 "finds no P, and waits with its M",
    }
}

/// Where a goroutine that can run waits for a P.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the `run_next` slot of the recording thread's P.
    RunNext,
    /// In the ring of that P, at this position. Positions are counted from 0 for each P, and wrap;
    /// the slot is the position modulo 256.
    Queue(u32),
    /// At the tail of the global queue.
    Global,
    /// Before all others in the global queue.
    GlobalFirst,
    /// Its P's queue is full: [`Spill`](super::event::EventKind::Spill) follows.
    Spill,
    /// Nowhere: the recording thread's M runs the goroutine next.
    Nowhere,
}

impl Word for Place {
    fn to_word(self) -> u64 {
        match self {
            Place::RunNext => join(0, 0),
            Place::Queue(position) => join(1, position),
            Place::Global => join(2, 0),
            Place::GlobalFirst => join(3, 0),
            Place::Spill => join(4, 0),
            Place::Nowhere => join(5, 0),
        }
    }

    fn from_word(word: u64) -> Option<Place> {
        Some(match split(word) {
            (0, 0) => Place::RunNext,
            (1, position) => Place::Queue(position),
            (2, 0) => Place::Global,
            (3, 0) => Place::GlobalFirst,
            (4, 0) => Place::Spill,
            (5, 0) => Place::Nowhere,
            _ => return None,
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::RunNext => f.write_str("run_next"),
            Place::Queue(position) => write!(f, "position {position}"),
            Place::Global => f.write_str("the global queue"),
            Place::GlobalFirst => f.write_str("the front of the global queue"),
            Place::Spill => f.write_str("a full queue"),
            Place::Nowhere => f.write_str("no queue"),
        }
    }
}

/// Where a P found the goroutine that it runs next.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the P's `run_next` slot.
    RunNext,
    /// In the P's ring, at this position.
    Queue(u32),
    /// In the global queue. [`TakeGlobal`](super::event::EventKind::TakeGlobal) came before.
    Global,
    /// In the queue of another P. [`Steal`](super::event::EventKind::Steal) came before.
    Stolen,
    /// I/O made the goroutine ready, and the P's M found it in the poller.
    Poll,
    /// The goroutine continues where it was stopped together with its M.
    InPlace,
    /// The recording began after the goroutine was taken.
    Earlier,
}

impl Word for Source {
    fn to_word(self) -> u64 {
        match self {
            Source::Earlier => join(0, 0),
            Source::RunNext => join(1, 0),
            Source::Queue(position) => join(2, position),
            Source::Global => join(3, 0),
            Source::Stolen => join(4, 0),
            Source::Poll => join(5, 0),
            Source::InPlace => join(6, 0),
        }
    }

    fn from_word(word: u64) -> Option<Source> {
        Some(match split(word) {
            (0, 0) => Source::Earlier,
            (1, 0) => Source::RunNext,
            (2, position) => Source::Queue(position),
            (3, 0) => Source::Global,
            (4, 0) => Source::Stolen,
            (5, 0) => Source::Poll,
            (6, 0) => Source::InPlace,
            _ => return None,
        })
    }
}

impl Source {
    /// Returns the source as a word, to be kept until the goroutine runs.
    pub(crate) fn to_word(self) -> u64 {
        Word::to_word(self)
    }

    /// Returns the source that was kept as `word`.
    pub(crate) fn from_word(word: u64) -> Source {
        <Source as Word>::from_word(word).unwrap_or(Source::Earlier)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::RunNext => f.write_str("run_next"),
            Source::Queue(position) => write!(f, "position {position}"),
            Source::Global => f.write_str("the global queue"),
            Source::Stolen => f.write_str("the queue of another P"),
            Source::Poll => f.write_str("the poller"),
            Source::InPlace => f.write_str("where it was stopped"),
            Source::Earlier => f.write_str("an unknown place"),
        }
    }
}

/// What made a goroutine ready.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waker {
    /// The goroutine with this number.
    Goroutine(u64),
    /// A thread that runs no goroutine.
    Thread,
    /// A timer.
    Timer,
    /// I/O on a descriptor.
    Io,
    /// Nothing: the wait was over before it had begun.
    NoWait,
}

impl Word for Waker {
    fn to_word(self) -> u64 {
        match self {
            Waker::Goroutine(id) => id << 3,
            Waker::Thread => 1,
            Waker::Timer => 2,
            Waker::Io => 3,
            Waker::NoWait => 4,
        }
    }

    fn from_word(word: u64) -> Option<Waker> {
        Some(match (word % 8, word >> 3) {
            (0, id) => Waker::Goroutine(id),
            (1, 0) => Waker::Thread,
            (2, 0) => Waker::Timer,
            (3, 0) => Waker::Io,
            (4, 0) => Waker::NoWait,
            _ => return None,
        })
    }
}

impl fmt::Display for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Waker::Goroutine(id) => write!(f, "G{id}"),
            Waker::Thread => f.write_str("a thread"),
            Waker::Timer => f.write_str("a timer"),
            Waker::Io => f.write_str("I/O"),
            Waker::NoWait => f.write_str("nothing: it need not wait"),
        }
    }
}

/// Consecutive positions in the ring of a P.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first position.
    pub position: u32,
    /// How many positions.
    pub count: u32,
}

impl Word for Span {
    fn to_word(self) -> u64 {
        join(self.position, self.count)
    }

    fn from_word(word: u64) -> Option<Span> {
        let (position, count) = split(word);
        Some(Span { position, count })
    }
}
