//! The frames of a goroutine: see `snapshot` for how they are had.

pub(crate) use super::batch::BATCH_STACKS;
pub(crate) use super::types::{Frame, Frames, GoroutineStatus, InterruptPolicy, Module};

use crate::gmp::current;
use crate::gmp::g::G;
use crate::gmp::m::M;
use crate::gmp::reason::WaitReason;
use crate::gmp::slab;
use crate::gmp::state::GState;
use crate::sched::inspect::snapshot::Snapshot;
use crate::sched::inspect::stack_copy::shown_registers;
use crate::sched::inspect::tables;
use crate::sched::threads::wait::WaitingPlace;
use gosched_fiber::arch::{self, Registers};
use gosched_fiber::memory;
use gosched_fiber::unwind::{self, End, Walker};
use std::mem::offset_of;
use std::ops::Range;

/// Looks at one goroutine after the other.
#[derive(Debug)]
pub(crate) struct Inspector {
    snapshot: Snapshot,
    walker: Walker,
}

/// Frames at each end of a long stack, as Go shows them.
/// Go: tracebackInnerFrames, tracebackOuterFrames.
const FRAMES_AT_EACH_END: usize = 50;

/// The goroutine that calls, inside `host` too.
pub(crate) fn own() -> Option<&'static G> {
    current::goroutine().or_else(|| M::of_this_thread().and_then(M::curg))
}

/// A place in the caller's code.
#[derive(Debug)]
pub(crate) struct CallerFrame(Registers);

impl CallerFrame {
    /// In the function that calls.
    #[inline(always)]
    pub(crate) fn new() -> CallerFrame {
        let mut registers = Registers::default();
        // SAFETY: to — a local.
        unsafe { arch::capture_registers(&raw mut registers) };
        CallerFrame(registers)
    }
}

fn is_own(g: &'static G) -> bool {
    own().is_some_and(|own| std::ptr::eq(own, g))
}

/// Reads words of memory that need not be there. What it has read once it does not read again, nor what is near that:
/// each of its words was true at some moment since it was made.
#[derive(Debug)]
pub(crate) struct MemoryReader {
    pieces: [(usize, usize); 2],
    bytes: [[u8; PIECE_BYTES]; 2],
    /// Which one goes next.
    turn: usize,
}

/// So much is read at once: of one page.
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

/// Calls `each` with every word there is at these addresses, up to the first that is not there.
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
    /// The system's number of it.
    pub(crate) id: i32,
    pub(crate) reason: WaitReason,
    shown: *const Registers,
}

/// The number of the M that runs `g`, and where its record is.
pub(crate) fn m_of(g: &'static G) -> Option<(u32, usize)> {
    tables::runner_of(g).map(number_and_record)
}

fn number_and_record(m: &'static M) -> (u32, usize) {
    (m.id, std::ptr::from_ref(m) as usize)
}

/// The number of the M whose thread has this id.
pub(crate) fn m_with_thread(id: i32) -> Option<u32> {
    tables::with_thread(id).map(|m| m.id)
}

/// Ordinary threads that wait for a goroutine.
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
    /// The frames of an ordinary thread that waits.
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

    /// Those will be looked at next, in this order, [`BATCH_STACKS`] at most: it is quicker to know that.
    pub(crate) fn prefetch(&mut self, gs: impl Iterator<Item = &'static G>) {
        self.snapshot.prefetch(gs);
    }

    /// What `g` does: its state, and its frames. `None`: it is dead.
    ///
    /// One whose thread is blocked in a call is in a call, whether it was marked or not.
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

    /// Calls `each` with every word on the stack of `g`; of the caller only with what is above `here`: below it are
    /// words that whoever looks has put there. False: they are not known. `None`: it is dead.
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
            // How many there are is not known, nor which are the outermost.
            last.clear();
        } else {
            first.truncate(FRAMES_AT_EACH_END);
        }
    }

    /// Where the function begins that an address is in, which was told as one of a frame.
    pub(crate) fn function(&self, address: usize) -> Option<usize> {
        self.walker.function(address)
    }

    /// What has this code.
    pub(crate) fn module(&self, address: usize) -> Option<Module<'_>> {
        let unwind::Module { path, offset, id, function } = self.walker.module(address)?;
        Some(Module { path, offset, id, function })
    }
}
