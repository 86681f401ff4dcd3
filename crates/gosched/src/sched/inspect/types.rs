//! The data that `inspect` returns, on every system. These types never contain a reference to a G,
//! an M or a P: they contain ids and addresses.

use crate::gmp::state::GState;
use crate::probe::wait_reason::WaitReason;
use std::collections::VecDeque;
use std::fmt::{self, Display};
use std::path::Path;

/// Whether a signal may interrupt an unmarked call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InterruptPolicy {
    /// Only if the call continues by itself after a signal.
    RestartableOnly,
    /// Always: the process ends anyway.
    Always,
}

/// The frame of a function that has not returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// An address within the current instruction, or within the call instruction.
    pub(crate) at: usize,
    /// The program counter or return address; the stack pointer there; and the stack pointer before
    /// the function was called, or 0 if unknown.
    pub(crate) pc: usize,
    pub(crate) sp: usize,
    pub(crate) fp: usize,
}

/// The frames of a goroutine, innermost first.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    pub(crate) first: Vec<Frame>,
    /// Number of frames omitted after `first`.
    pub(crate) elided: usize,
    pub(crate) last: VecDeque<Frame>,
    /// Whether there are more frames, which are unknown.
    pub(crate) is_cut: bool,
}

impl Frames {
    /// Iterates over the frames that are not omitted.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &Frame> {
        self.first.iter().chain(&self.last)
    }
}

/// The program or library that contains some code. It may have been unloaded since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Module<'a> {
    /// Path of the file; empty for the program itself.
    pub(crate) path: &'a Path,
    /// Offset of the code from the beginning of the module: its address in the file.
    pub(crate) offset: usize,
    /// Build id; empty if there is none.
    pub(crate) id: &'a [u8],
    /// Name of the function at that address, if the module exports it.
    pub(crate) function: Option<&'a [u8]>,
}

/// The state of a goroutine, without its frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GoroutineStatus {
    pub(crate) state: GState,
    /// Id of its M and address of the M's record, if they are known.
    pub(crate) m: Option<(u32, usize)>,
    /// Why the goroutine waited, if it did.
    pub(crate) reason: WaitReason,
    /// Since when the goroutine has waited or has been in its call, if that is known.
    pub(crate) since: Option<u64>,
}

/// The numbers in the first line of `schedtrace`.
#[derive(Debug, Default)]
pub(crate) struct TraceHeader {
    pub(crate) procs: usize,
    pub(crate) idle_ps: u32,
    pub(crate) threads: usize,
    pub(crate) spinning: u32,
    pub(crate) idle_ms: usize,
    pub(crate) queued: usize,
    pub(crate) stopping: bool,
    /// Number of Ms that sleep until the goroutine that they are locked to can run.
    pub(crate) locked_ms: u32,
    pub(crate) stop_wait: u32,
    /// Whether sysmon sleeps until a P is acquired.
    pub(crate) sysmon_sleeps: bool,
}

/// A number, or `nil` as Go prints it.
pub(crate) struct NumberOrNil(pub(crate) Option<u64>);

impl Display for NumberOrNil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(number) => write!(f, "{number}"),
            None => f.write_str("nil"),
        }
    }
}

/// Current counts, and totals since the process began. Each value was true at some time while all
/// were read. On the threads backend, values without a meaning are 0.
#[derive(Debug, Default)]
pub(crate) struct SchedStats {
    pub(crate) procs: u64,
    pub(crate) idle_procs: u64,
    pub(crate) goroutines: u64,
    pub(crate) created: u64,
    /// Goroutines in a marked call, and goroutines without a P after an unmarked one.
    pub(crate) not_in_go: u64,
    pub(crate) runnable: u64,
    pub(crate) running: u64,
    pub(crate) waiting: u64,
    pub(crate) threads: u64,
    pub(crate) idle_threads: u64,
    /// Threads that are blocked in a call and whose P was retaken.
    pub(crate) blocked_threads: u64,
    pub(crate) spinning_threads: u64,
    pub(crate) global_queue: u64,
    pub(crate) local_queues: u64,
    pub(crate) timers: u64,
    pub(crate) steals: u64,
    pub(crate) stolen: u64,
    /// Number of lost wake-ups; see `in_flight`.
    pub(crate) hand_offs_lost: u64,
    pub(crate) hand_offs_marked: u64,
    pub(crate) hand_offs_unmarked: u64,
    pub(crate) moved: u64,
    pub(crate) stopped_in_place: u64,
    pub(crate) put_off: u64,
    pub(crate) woken_by_io: u64,
    pub(crate) stacks: u64,
    pub(crate) resting_stacks: u64,
    /// Address space reserved for stacks, in bytes.
    pub(crate) stack_bytes: u64,
    /// See [`CpuUse`].
    pub(crate) cpu: CpuUse,
}

/// CPU time that goroutines used, and CPU time that was available but unused, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuUse {
    pub(crate) user: u64,
    pub(crate) idle: u64,
}
