//! What `inspector` tells of a goroutine, on every system.

use crate::gmp::reason::WaitReason;
use crate::gmp::state::GState;
use std::collections::VecDeque;
use std::fmt::{self, Display};
use std::path::Path;

/// Whether calls that nobody marked may be interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InterruptPolicy {
    /// Only where they go on by themselves.
    RestartableOnly,
    /// The process ends anyway.
    Always,
}

/// A function that has not returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// An address in the instruction that runs, or in the call.
    pub(crate) at: usize,
    /// Where the code is, or will go on; its stack pointer there, and the one before the call, or 0.
    pub(crate) pc: usize,
    pub(crate) sp: usize,
    pub(crate) fp: usize,
}

/// From the innermost on.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    pub(crate) first: Vec<Frame>,
    /// How many are left out after those.
    pub(crate) elided: usize,
    pub(crate) last: VecDeque<Frame>,
    /// There are more, but it is not known which.
    pub(crate) is_cut: bool,
}

impl Frames {
    /// Those that are not left out.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &Frame> {
        self.first.iter().chain(&self.last)
    }
}

/// The program or library that has some code. It may be gone by now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Module<'a> {
    /// Its file; empty: the program.
    pub(crate) path: &'a Path,
    /// How far from its beginning the code is: the address that its file has for it.
    pub(crate) offset: usize,
    /// Its build id; empty: it has none.
    pub(crate) id: &'a [u8],
    /// The function there, as the linker knows it, if others may call it.
    pub(crate) function: Option<&'a [u8]>,
}

/// What a goroutine did, besides its frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GoroutineStatus {
    pub(crate) state: GState,
    /// The number of its M, and where that one's record is, if that was learned.
    pub(crate) m: Option<(u32, usize)>,
    /// Why it waited, if it did.
    pub(crate) reason: WaitReason,
    /// Since when it waits, or is in its call, if that is known.
    pub(crate) since: Option<u64>,
}

/// The first line of `schedtrace`, in numbers.
#[derive(Debug, Default)]
pub(crate) struct TraceHeader {
    pub(crate) procs: usize,
    pub(crate) idle_ps: u32,
    pub(crate) threads: usize,
    pub(crate) spinning: u32,
    pub(crate) idle_ms: usize,
    pub(crate) queued: usize,
    pub(crate) stopping: bool,
    /// Ms that sleep until the goroutine that they are locked to can run.
    pub(crate) locked_ms: u32,
    pub(crate) stop_wait: u32,
    /// Sysmon sleeps until it is called.
    pub(crate) sysmon_sleeps: bool,
}

/// `nil` as Go prints it, or the number.
pub(crate) struct NumberOrNil(pub(crate) Option<u64>);

impl Display for NumberOrNil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(number) => write!(f, "{number}"),
            None => f.write_str("nil"),
        }
    }
}

/// What there is now, and what has happened since the process began. Each was true at some moment while
/// they were read. Where goroutines are threads, what has no meaning is 0.
#[derive(Debug, Default)]
pub(crate) struct SchedStats {
    pub(crate) procs: u64,
    pub(crate) idle_procs: u64,
    pub(crate) goroutines: u64,
    pub(crate) created: u64,
    /// Running or blocked outside the program's text, as far as that is known.
    pub(crate) not_in_go: u64,
    pub(crate) runnable: u64,
    pub(crate) running: u64,
    pub(crate) waiting: u64,
    pub(crate) threads: u64,
    pub(crate) idle_threads: u64,
    /// Threads whose P was taken.
    pub(crate) blocked_threads: u64,
    pub(crate) spinning_threads: u64,
    pub(crate) global_queue: u64,
    pub(crate) local_queues: u64,
    pub(crate) timers: u64,
    pub(crate) steals: u64,
    pub(crate) stolen: u64,
    /// Ps whose receiver was not woken: see `in_flight`.
    pub(crate) hand_offs_lost: u64,
    pub(crate) hand_offs_marked: u64,
    pub(crate) hand_offs_unmarked: u64,
    pub(crate) moved: u64,
    pub(crate) stopped_in_place: u64,
    pub(crate) put_off: u64,
    pub(crate) woken_by_io: u64,
    pub(crate) stacks: u64,
    pub(crate) resting_stacks: u64,
    /// Address space of stacks.
    pub(crate) stack_bytes: u64,
    /// See [`CpuUse`].
    pub(crate) cpu: CpuUse,
}

/// CPU time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuUse {
    pub(crate) user: u64,
    pub(crate) idle: u64,
}
