//! How large a frame is, by the code of its function: for frames whose address is in the frame pointer, where
//! that is not known, as in a thread that is blocked in the kernel.
//!
//! **The rule.** From the function's beginning on, every way through its code is followed, and for each
//! instruction it is kept how far the stack pointer is from the frame's address, and what was pushed. That is
//! known only if
//!
//! - the tables have an entry that begins where nothing is pushed yet: not the second half of a function that is in
//!   two pieces;
//! - every instruction of the function is known ([`decode`]), whether a way leads there or not, and none moves the
//!   stack pointer by what only a run can tell (`alloca`, alignment): then nothing that runs unseen, as what a
//!   table of jumps leads to, can bring another distance to a place that is seen;
//! - ways that meet agree: if they do not, nothing is known there, nor after it;
//! - a way that contradicts the tables at some instruction is none: a function that never returns was called before;
//! - the instruction that is asked for is a call, or one of the system, that ends exactly there; the tables say
//!   that the frame pointer was set by then, and for each register that was saved, where: there it was pushed.
//!
//! **Then it must be true.** What should be the return address follows a call, in code that is taken apart from its
//! function's beginning. If that call tells whom it calls, it is this function; or one that does nothing else than
//! jump here (the linker's), or jumps here at its end, with its frame gone. A call by a register or through an
//! object does not tell, and is believed: the distance is no guess. And if the caller has its frame's address in
//! the frame pointer, what was saved of that lies on the stack, above.

use super::tables::{Module, Tables};
use crate::arch::{Effect, FP, Instruction, PC, SP, Target, decode};
use crate::memory;
use gimli::{CfaRule, RegisterRule, UnwindContext};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Longer functions are left alone.
const MAX_FUNCTION_BYTES: usize = 1 << 20;

/// So many functions are looked at, at most, to see whether one jumps to another.
const MAX_FUNCTIONS_FOLLOWED: usize = 16;

const WORD: usize = size_of::<usize>();

/// A function: where it is, and what the tables say about its frame, from place to place.
#[derive(Clone, Debug)]
struct Function {
    range: Range<usize>,
    rows: Vec<Row>,
}

/// What the tables say about a piece of code.
#[derive(Clone, Debug)]
struct Row {
    range: Range<usize>,
    base: CfaBase,
    /// Where registers are saved, below the frame's address.
    saved: Vec<(u16, usize)>,
}

/// Where the frame's address is: so far from a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CfaBase {
    Stack(usize),
    Frame(usize),
    Other,
}

/// What is known of the stack before an instruction. Depths are from the frame's address down.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StackState {
    /// The stack pointer's.
    depth: usize,
    /// The frame pointer's, once it was set.
    frame: Option<usize>,
    /// The registers that were pushed, and where.
    pushed: Vec<(u16, usize)>,
}

/// All ways through a function.
#[derive(Debug)]
struct Paths {
    instructions: BTreeMap<usize, Instruction>,
    /// Before each instruction that a way leads to. `None`: ways that do not agree, or the stack pointer was lost.
    stacks: BTreeMap<usize, Option<StackState>>,
}

/// Reads the code that is loaded.
#[derive(Debug)]
pub(super) struct Code<'a> {
    pub(super) tables: &'a Tables,
    pub(super) context: &'a mut UnwindContext<usize>,
    pub(super) frame_cache: &'a mut FrameCache,
}

/// What was found before: taking functions apart takes long.
#[derive(Debug, Default)]
pub(super) struct FrameCache {
    /// How large frames are, by where they go on.
    depths: HashMap<usize, Option<usize>>,
    /// Where a caller has its frame's address, by where it goes on and where who was called begins. `None`: that one
    /// was not called there.
    callers: HashMap<(usize, usize), Option<CfaBase>>,
}

impl Code<'_> {
    /// How far the address of a frame is above its stack pointer: at a call that returns to `pc`, or at a call of the
    /// system before it.
    pub(super) fn depth(&mut self, pc: usize, system: bool) -> Option<usize> {
        if let Some(&depth) = self.frame_cache.depths.get(&pc) {
            return depth;
        }
        let depth = self.new_depth(pc, system);
        self.frame_cache.depths.insert(pc, depth);
        depth
    }

    fn new_depth(&mut self, pc: usize, system: bool) -> Option<usize> {
        let function = self.function(if system { pc } else { pc - 1 })?;
        function.depth(&function.paths(&code(&function.range)?)?, pc, system)
    }

    /// Looks whether `frame` can be the address of a frame of the function that begins at `start`, with the frame
    /// pointer of its caller saved at `saved`. `None`: it cannot.
    pub(super) fn check(
        &mut self,
        frame: usize,
        start: usize,
        saved: usize,
        read: &dyn Fn(usize) -> Option<usize>,
    ) -> Option<()> {
        let back = read(frame - WORD)?;
        let caller = match self.frame_cache.callers.get(&(back, start)) {
            Some(&caller) => caller,
            None => {
                let caller = self.caller(back, start);
                self.frame_cache.callers.insert((back, start), caller);
                caller
            }
        };
        match caller? {
            CfaBase::Frame(_) => {
                let pointer = read(saved)?;
                read(pointer).filter(|_| pointer >= frame).map(drop)
            }
            CfaBase::Stack(_) | CfaBase::Other => Some(()),
        }
    }

    /// Where the function that goes on at `back` has its frame's address. `None`: it has not called who begins at
    /// `start`.
    fn caller(&mut self, back: usize, start: usize) -> Option<CfaBase> {
        let caller = self.function(back.checked_sub(1)?)?;
        let called = last_call(&code(&(caller.range.start..back))?)?;
        if called != Target::Unknown
            && !self.reaches(target_address(called, back)?, start, &mut { MAX_FUNCTIONS_FOLLOWED })
        {
            return None;
        }
        Some(caller.row(back - 1)?.base)
    }

    /// Whether who is called at `from` is at `to`, with nothing on the stack, sooner or later. `left`: so many may be
    /// looked at.
    fn reaches(&mut self, from: usize, to: usize, left: &mut usize) -> bool {
        if from == to || *left == 0 {
            return from == to;
        }
        *left -= 1;
        if let Some(next) = self.jump_target(from) {
            return self.reaches(next, to, left);
        }
        let exits = self.function(from).filter(|function| function.range.start == from);
        let exits = exits.and_then(|function| {
            let ways = function.paths(&code(&function.range)?)?;
            Some(function.exits(&ways))
        });
        let exits = exits.unwrap_or_default();
        exits.contains(&to) || exits.into_iter().any(|exit| self.reaches(exit, to, left))
    }

    /// Where code leads that is nothing but a jump, as the linker makes it.
    fn jump_target(&self, from: usize) -> Option<usize> {
        const LANDING: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
        self.tables.module(from)?;
        let mut bytes = [0; 16];
        let mut at = 0;
        let there = memory::copy(from, &mut bytes);
        if bytes.starts_with(&LANDING) {
            at = LANDING.len();
        }
        let instruction = decode(&bytes[at..there.max(at)])?;
        match instruction.effect {
            Effect::Jump(target) => target_address(target, from + at + instruction.length),
            _ => None,
        }
    }

    fn function(&mut self, at: usize) -> Option<Function> {
        Function::at(self.tables.module(at)?, at, self.context)
    }
}

impl Function {
    /// The function that an address is in.
    fn at(module: &Module, at: usize, context: &mut UnwindContext<usize>) -> Option<Function> {
        let (bases, frames) = (module.bases(), module.frames());
        let entry = module.entry(at)?;
        let start = entry.initial_address() as usize;
        let range = start..start + entry.len() as usize;
        let mut rows = Vec::new();
        let mut table = entry.rows(&frames, &bases, context).ok()?;
        while let Some(row) = table.next_row().ok()? {
            let base = match *row.cfa() {
                CfaRule::RegisterAndOffset { register, offset } => {
                    CfaBase::new(register.0, usize::try_from(offset).ok()?)
                }
                CfaRule::Expression(_) => CfaBase::Other,
            };
            let mut saved = Vec::new();
            for (register, rule) in row.registers().filter(|(register, _)| register.0 != PC) {
                let RegisterRule::Offset(offset) = *rule else { return None };
                saved.push((register.0, usize::try_from(-offset).ok()?));
            }
            let range = row.start_address() as usize..row.end_address() as usize;
            rows.push(Row { range, base, saved });
        }
        let is_code = module.has_code(&range) && range.len() <= MAX_FUNCTION_BYTES;
        is_code.then_some(Function { range, rows })
    }

    fn row(&self, at: usize) -> Option<&Row> {
        self.rows.iter().find(|row| row.range.contains(&at))
    }

    /// Follows every way through its code. `None`: something in it is not known.
    fn paths(&self, code: &[u8]) -> Option<Paths> {
        self.paths_where(code, |at, stack| self.row(at).is_some_and(|row| row.fits(stack)))
    }

    /// As [`Function::paths`], but for those that come to an instruction with a stack that cannot be.
    fn paths_where(
        &self,
        code: &[u8],
        mut can_be: impl FnMut(usize, &StackState) -> bool,
    ) -> Option<Paths> {
        let first = self.row(self.range.start)?;
        if first.base != CfaBase::Stack(WORD) || !first.saved.is_empty() {
            return None;
        }
        let instructions = decode_all(self.range.start, code)?;
        let mut ways = Paths { instructions, stacks: BTreeMap::new() };
        let begin = StackState { depth: WORD, frame: None, pushed: Vec::new() };
        let mut open = vec![(self.range.start, Some(begin))];
        while let Some((at, stack)) = open.pop() {
            if stack.as_ref().is_some_and(|stack| !can_be(at, stack)) {
                continue;
            }
            let stack = match ways.stacks.get(&at) {
                Some(known) if *known == stack || known.is_none() => continue,
                Some(_) => None,
                None => stack,
            };
            ways.stacks.insert(at, stack.clone());
            // No instruction begins there: what was taken for code is none, or the other way round.
            let instruction = *ways.instructions.get(&at)?;
            let end = at + instruction.length;
            let (goes_on, jump) = match instruction.effect {
                Effect::Stop => (false, None),
                Effect::Jump(Target::Code(far)) => (false, Some(far)),
                Effect::Jump(_) => (false, None),
                Effect::Branch(far) => (true, Some(far)),
                _ => (true, None),
            };
            let after = stack.and_then(|stack| stack.after(instruction.effect));
            let jump = jump.and_then(|far| end.checked_add_signed(far as isize));
            let next = goes_on.then_some(end).into_iter().chain(jump);
            // What is outside is another function, or a piece of this one that is not looked at.
            open.extend(next.filter(|at| self.range.contains(at)).map(|at| (at, after.clone())));
        }
        Some(ways)
    }

    /// How far the frame's address is above the stack pointer, at the call that returns to `pc`; or at the call
    /// of the system before it.
    fn depth(&self, ways: &Paths, pc: usize, system: bool) -> Option<usize> {
        let (&at, instruction) = ways.instructions.range(..pc).next_back()?;
        let is_call = match instruction.effect {
            Effect::Call(_) => !system,
            Effect::Syscall => system,
            _ => false,
        };
        let stack = ways.stacks.get(&at)?.as_ref()?;
        let row = self.row(if system { pc } else { pc - 1 })?;
        let is_saved = row.saved.iter().all(|saved| stack.pushed.contains(saved));
        let is_there = is_call && at + instruction.length == pc;
        (is_there && is_saved && row.fits(stack)).then_some(stack.depth)
    }

    /// Where it jumps to with its frame gone.
    fn exits(&self, ways: &Paths) -> Vec<usize> {
        let is_gone =
            |stack: &Option<StackState>| stack.as_ref().is_some_and(|stack| stack.depth == WORD);
        let gone = ways.stacks.iter().filter(|(_, stack)| is_gone(stack));
        let exits = gone.filter_map(|(at, _)| {
            let instruction = ways.instructions.get(at)?;
            let target = match instruction.effect {
                Effect::Jump(target) => target,
                Effect::Branch(far) => Target::Code(far),
                _ => return None,
            };
            target_address(target, at + instruction.length)
        });
        exits.filter(|to| !self.range.contains(to)).collect()
    }
}

impl CfaBase {
    fn new(register: u16, offset: usize) -> CfaBase {
        match register {
            SP => CfaBase::Stack(offset),
            FP => CfaBase::Frame(offset),
            _ => CfaBase::Other,
        }
    }
}

impl Row {
    /// Whether the frame is where the code has it. Saved registers are another matter: at the end of a function they
    /// are popped before the tables say so.
    fn fits(&self, stack: &StackState) -> bool {
        match self.base {
            CfaBase::Stack(depth) => depth == stack.depth,
            CfaBase::Frame(depth) => stack.frame == Some(depth),
            CfaBase::Other => false,
        }
    }
}

impl StackState {
    /// After an instruction. `None`: nothing is known.
    fn after(mut self, what: Effect) -> Option<StackState> {
        match what {
            Effect::Push(register) => {
                self.depth += WORD;
                self.pushed.extend(register.map(|register| (register, self.depth)));
            }
            Effect::Pop(register) => {
                self.depth -= WORD;
                if register == Some(FP) {
                    self.frame = None;
                }
            }
            Effect::AdjustSp(by) => self.depth = self.depth.checked_add_signed(-by as isize)?,
            Effect::SetFp(by) => {
                self.frame = Some(self.depth.checked_add_signed(-by as isize)?);
            }
            Effect::RestoreSpFromFp | Effect::UnknownSp => return None,
            Effect::Other
            | Effect::Call(_)
            | Effect::Jump(_)
            | Effect::Branch(_)
            | Effect::Syscall
            | Effect::Stop => {}
        }
        self.pushed.retain(|&(_, at)| at <= self.depth);
        // The return address is nobody's to take.
        (self.depth >= WORD).then_some(self)
    }
}

/// All instructions of code that is at `start`, one after the other.
fn decode_all(start: usize, code: &[u8]) -> Option<BTreeMap<usize, Instruction>> {
    let mut instructions = BTreeMap::new();
    let mut at = 0;
    while at < code.len() {
        let instruction = decode(&code[at..]).filter(|found| found.effect != Effect::UnknownSp)?;
        instructions.insert(start + at, instruction);
        at += instruction.length;
    }
    Some(instructions)
}

/// Whom the call tells that ends at the end of `code`, a function from its beginning on. `None`: there is no call.
fn last_call(code: &[u8]) -> Option<Target> {
    let mut at = 0;
    let mut last = None;
    while at < code.len() {
        let instruction = decode(&code[at..])?;
        at += instruction.length;
        last = Some(instruction.effect);
    }
    match last {
        Some(Effect::Call(target)) => Some(target),
        _ => None,
    }
}

/// The address that a call or jump leads to which ends at `end`, if it tells.
fn target_address(target: Target, end: usize) -> Option<usize> {
    match target {
        Target::Code(far) => end.checked_add_signed(far as isize),
        Target::Slot(far) => word(end.checked_add_signed(far as isize)?),
        Target::Unknown => None,
    }
}

/// What is in memory there, all of it: the kernel says whether it can be read.
fn code(range: &Range<usize>) -> Option<Vec<u8>> {
    let mut code = vec![0; range.len()];
    (memory::copy(range.start, &mut code) == code.len()).then_some(code)
}

fn word(at: usize) -> Option<usize> {
    let mut bytes = [0; WORD];
    (memory::copy(at, &mut bytes) == WORD).then(|| usize::from_ne_bytes(bytes))
}

#[cfg(test)]
#[path = "frame_size_tests.rs"]
mod tests;
