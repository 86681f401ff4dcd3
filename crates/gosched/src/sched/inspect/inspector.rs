//! The state and the frames of goroutines. `snapshot` describes how they are obtained. This module
//! never interrupts a thread and never stops the world: `snapshot` does both.

pub(crate) use super::batch::BATCH_STACKS;
pub(crate) use super::types::{Frame, Frames, GoroutineStatus, InterruptPolicy, Module};

use crate::gmp::current;
use crate::gmp::g::G;
use crate::gmp::m::M;
use crate::gmp::slab;
use crate::gmp::state::GState;
use crate::probe::wait_reason::WaitReason;
use crate::sched::inspect::snapshot::Snapshot;
use crate::sched::inspect::stack_copy::shown_registers;
use crate::sched::inspect::tables;
use crate::sched::threads::wait::WaitingPlace;
use gosched_fiber::arch::{self, Registers};
use gosched_fiber::memory;
use gosched_fiber::unwind::{self, End, Walker};
use std::mem::offset_of;
use std::ops::Range;

/// Inspects goroutines, one after the other.
#[derive(Debug)]
pub(crate) struct Inspector {
    snapshot: Snapshot,
    walker: Walker,
}

/// Number of frames shown at each end of a long stack, as in Go.
/// Go: tracebackInnerFrames, tracebackOuterFrames.
const FRAMES_AT_EACH_END: usize = 50;

/// Returns the calling goroutine, also for code inside `host`.
pub(crate) fn own() -> Option<&'static G> {
    current::goroutine().or_else(|| M::of_this_thread().and_then(M::curg))
}

/// The registers of a frame of the caller.
#[derive(Debug)]
pub(crate) struct CallerFrame(Registers);

impl CallerFrame {
    /// Captures the registers of the calling function.
    #[inline(always)]
    pub(crate) fn new() -> CallerFrame {
        let mut registers = Registers::default();
        // SAFETY: to — a local variable.
        unsafe { arch::capture_registers(&raw mut registers) };
        CallerFrame(registers)
    }
}

fn is_own(g: &'static G) -> bool {
    own().is_some_and(|own| std::ptr::eq(own, g))
}

/// Reads words of memory that may be unmapped. Keeps the last two pieces and does not read them
/// again, so each word was current at some time since the reader was created.
#[derive(Debug)]
pub(crate) struct MemoryReader {
    pieces: [(usize, usize); 2],
    bytes: [[u8; PIECE_BYTES]; 2],
    /// The piece that was filled last.
    turn: usize,
}

/// Number of bytes in a piece, which lies within one page.
const PIECE_BYTES: usize = 512;

impl Default for MemoryReader {
    fn default() -> MemoryReader {
        MemoryReader { pieces: [(0, 0); 2], bytes: [[0; PIECE_BYTES]; 2], turn: 0 }
    }
}

impl MemoryReader {
    pub(crate) fn word(&mut self, address: usize) -> Option<usize> {
        let from = address & !(PIECE_BYTES - 1);
        let found = self.pieces.iter().position(|&(start, len)| len > 0 && start == from);
        let piece = found.unwrap_or_else(|| {
            self.turn ^= 1;
            let len = memory::copy(from, &mut self.bytes[self.turn]);
            self.pieces[self.turn] = (from, len);
            self.turn
        });
        let known = &self.bytes[piece][..self.pieces[piece].1];
        let word = known.get(address - from..)?.first_chunk()?;
        Some(usize::from_ne_bytes(*word))
    }
}

/// Calls `each` with every word in the range, up to the first that cannot be read.
pub(crate) fn read_words(addresses: Range<usize>, mut each: impl FnMut(usize)) {
    let mut bytes = [0; 512];
    let mut at = addresses.start;
    while at < addresses.end {
        let len = bytes.len().min(addresses.end - at);
        let copied = memory::copy(at, &mut bytes[..len]);
        let (words, _) = bytes[..copied].as_chunks();
        words.iter().for_each(|word| each(usize::from_ne_bytes(*word)));
        if copied < len {
            return;
        }
        at += len;
    }
}

/// An ordinary thread that waits for a goroutine.
#[derive(Debug)]
pub(crate) struct WaitingThread {
    /// The thread's id in the system.
    pub(crate) id: i32,
    pub(crate) reason: WaitReason,
    shown: *const Registers,
}

/// Returns the id of the M that runs `g`, and the address of its record.
pub(crate) fn m_of(g: &'static G) -> Option<(u32, usize)> {
    tables::runner_of(g).map(number_and_record)
}

fn number_and_record(m: &'static M) -> (u32, usize) {
    (m.id, std::ptr::from_ref(m) as usize)
}

/// Returns the id of the M whose thread has this id.
pub(crate) fn m_with_thread(id: i32) -> Option<u32> {
    tables::with_thread(id).map(|m| m.id)
}

/// Iterates over the ordinary threads that wait for goroutines.
pub(crate) fn waiting_threads() -> impl Iterator<Item = WaitingThread> {
    slab::all().filter(|g| g.is_thread() && g.id() == 0).filter_map(|g| {
        let shown = g.shown();
        let mut number = [0; size_of::<i32>()];
        let at = shown.addr() + offset_of!(WaitingPlace, thread);
        let is_there = !shown.is_null() && memory::copy(at, &mut number) == number.len();
        let (id, reason) = (i32::from_ne_bytes(number), g.reason());
        is_there.then_some(WaitingThread { id, reason, shown })
    })
}

impl Inspector {
    /// Fills in the frames of an ordinary thread that waits.
    pub(crate) fn inspect_thread(&mut self, thread: &WaitingThread, frames: &mut Frames) {
        *frames = Frames::default();
        if let Some(registers) = shown_registers(thread.shown) {
            self.snapshot.take_thread(registers);
            self.walk(frames);
        }
    }

    pub(crate) fn new(policy: InterruptPolicy) -> Inspector {
        Inspector { snapshot: Snapshot::new(policy), walker: Walker::new() }
    }

    /// Announces the goroutines that will be inspected next, in this order, at most
    /// [`BATCH_STACKS`]. Copying their stacks together is faster.
    pub(crate) fn prefetch(&mut self, gs: impl Iterator<Item = &'static G>) {
        self.snapshot.prefetch(gs);
    }

    /// Returns the state of `g`, and fills in its frames. Returns `None` if `g` is dead.
    ///
    /// A goroutine whose thread is blocked in a call has the state `Syscall`, whether or not the
    /// call is marked.
    pub(crate) fn inspect(
        &mut self,
        g: &'static G,
        frames: &mut Frames,
    ) -> Option<GoroutineStatus> {
        let state = if is_own(g) {
            self.snapshot.take_own();
            GState::Running
        } else {
            self.snapshot.take(g)?.state()
        };
        self.walk(frames);
        while frames.is_cut && self.snapshot.take_more(g) {
            self.walk(frames);
        }
        let state = if self.snapshot.is_blocked() { GState::Syscall } else { state };
        let (reason, since) = (self.snapshot.reason(), self.snapshot.since());
        let m = self.snapshot.copier().map(number_and_record);
        Some(GoroutineStatus { state, m, reason, since })
    }

    /// Calls `each` with every word on the stack of `g`. If `g` is the caller, only words above
    /// `here` count: the inspection itself has put words below. Returns whether all words are
    /// known, or `None` if `g` is dead.
    pub(crate) fn words(
        &mut self,
        g: &'static G,
        here: &CallerFrame,
        mut each: impl FnMut(usize),
    ) -> Option<bool> {
        if is_own(g) {
            self.snapshot.take_above(g, here.0);
        } else {
            self.snapshot.take(g)?;
        }
        let mut is_known = self.snapshot.words(&mut each);
        while !is_known && self.snapshot.take_more(g) {
            is_known = self.snapshot.words(&mut each);
        }
        Some(is_known)
    }

    fn walk(&mut self, frames: &mut Frames) {
        let Frames { first, elided, last, is_cut } = frames;
        first.clear();
        last.clear();
        let mut count = 0;
        let how = self.snapshot.walk(&mut self.walker, |unwind::Frame { at, pc, sp, fp }| {
            let frame = Frame { at, pc, sp, fp };
            count += 1;
            if count <= 2 * FRAMES_AT_EACH_END {
                first.push(frame);
            }
            if last.len() == FRAMES_AT_EACH_END {
                last.pop_front();
            }
            if count > FRAMES_AT_EACH_END {
                last.push_back(frame);
            }
            true
        });
        *is_cut = how == End::Broken;
        *elided = if *is_cut { 0 } else { count.saturating_sub(2 * FRAMES_AT_EACH_END) };
        if *is_cut {
            // The number of frames and the outermost frames are unknown.
            last.clear();
        } else {
            first.truncate(FRAMES_AT_EACH_END);
        }
    }

    /// Returns the start of the function at `address`, which must be an address of an earlier
    /// frame.
    pub(crate) fn function(&self, address: usize) -> Option<usize> {
        self.walker.function(address)
    }

    /// Returns the program or library that contains the code at `address`.
    pub(crate) fn module(&self, address: usize) -> Option<Module<'_>> {
        let unwind::Module { path, offset, id, function } = self.walker.module(address)?;
        Some(Module { path, offset, id, function })
    }
}
