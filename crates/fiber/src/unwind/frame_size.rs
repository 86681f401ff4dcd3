//! Computes the size of a frame from the code of its function. Needed for frames whose address
//! (DWARF's CFA) is relative to the frame pointer, if the frame pointer is not known, as in a
//! thread that is blocked in the kernel.
//!
//! **The rule.** The analysis follows every path through the code, from the start of the function.
//! For each instruction it records how far the stack pointer is from the frame's address, and which
//! registers were pushed. The result is known only if
//!
//! - the function's entry in the unwind tables starts where nothing has been pushed: it is not the
//!   second half of a function that is in two pieces;
//! - every instruction of the function is known ([`decode`]), whether a path reaches it or not, and
//!   none moves the stack pointer by an amount that is known only at run time (`alloca`,
//!   alignment). Code that no path reaches, such as the targets of a jump table, can then not bring
//!   another distance to an instruction that a path reaches;
//! - paths that meet agree. If they do not, nothing is known at that instruction or after it;
//! - a path that contradicts the tables at some instruction is dropped: it continues after a call
//!   of a function that never returns;
//! - the instruction in question is a call or a system call that ends exactly at the given address.
//!   There the tables must agree with the recorded distance, and each register that they list as
//!   saved must have been pushed at the place that they state.
//!
//! **The check.** The result must also fit the contents of the stack. The word where the return
//! address should be must follow a call, in code that is decoded from the start of its function. If
//! the call instruction contains its target, the target must be this function, or code that only
//! jumps here (made by the linker), or a function that jumps here at its end, after removing its
//! frame. A call through a register, or through memory that a register points to, does not contain
//! its target and is accepted, because the distance is not a guess. If the caller's frame address
//! is relative to the frame pointer too, the saved frame pointer must point to the stack, at or
//! above this frame's address.
//!
//! The analysis never dereferences an address: the kernel copies the code (`memory`), and the
//! caller passes a function that reads the stack.

use super::tables::{Module, Tables};
use crate::arch::{Effect, FP, Instruction, PC, SP, Target, decode};
use crate::memory;
use gimli::{CfaRule, RegisterRule, UnwindContext};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Size in bytes of the longest function that is analyzed.
const MAX_FUNCTION_BYTES: usize = 1 << 20;

/// Largest number of functions that [`Code::reaches`] follows from jump to jump.
const MAX_FUNCTIONS_FOLLOWED: usize = 16;

const WORD: usize = size_of::<usize>();

/// A function: its address range, and what the unwind tables state about its frame.
#[derive(Clone, Debug)]
struct Function {
    range: Range<usize>,
    rows: Vec<Row>,
}

/// What the unwind tables state about a range of code.
#[derive(Clone, Debug)]
struct Row {
    range: Range<usize>,
    base: CfaBase,
    /// Saved registers: DWARF number, and distance below the frame's address.
    saved: Vec<(u16, usize)>,
}

/// How the frame's address is computed: a register plus an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CfaBase {
    Stack(usize),
    Frame(usize),
    Other,
}

/// State of the stack before an instruction. Depths are distances in bytes below the frame's
/// address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StackState {
    /// Depth of the stack pointer.
    depth: usize,
    /// Depth of the frame pointer, once it has been set.
    frame: Option<usize>,
    /// Pushed registers: DWARF number, and depth.
    pushed: Vec<(u16, usize)>,
}

/// The paths through a function.
#[derive(Debug)]
struct Paths {
    instructions: BTreeMap<usize, Instruction>,
    /// State before each instruction that a path reaches. `None` if paths do not agree, or if the
    /// stack pointer is not known.
    stacks: BTreeMap<usize, Option<StackState>>,
}

/// Access to the loaded code, to its unwind tables and to results found before.
#[derive(Debug)]
pub(super) struct Code<'a> {
    pub(super) tables: &'a Tables,
    pub(super) context: &'a mut UnwindContext<usize>,
    pub(super) frame_cache: &'a mut FrameCache,
}

/// Cache of results, because decoding functions takes long.
#[derive(Debug, Default)]
pub(super) struct FrameCache {
    /// Sizes of frames, by the address where their code resumes. `None` if the size is not known.
    depths: HashMap<usize, Option<usize>>,
    /// How a caller's frame address is computed, by the return address and the start of the called
    /// function. `None` if that function was not called there.
    callers: HashMap<(usize, usize), Option<CfaBase>>,
}

impl Code<'_> {
    /// Returns how far the frame's address is above the stack pointer: at the call that returns to
    /// `pc` or, if `system`, at the system call before `pc`. Returns `None` if that is not known
    /// for certain.
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

    /// Checks whether `frame` can be the frame address of the function that starts at `start`. The
    /// function has saved its caller's frame pointer at `saved`. Returns `None` if `frame` cannot
    /// be right.
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

    /// Returns how the frame address is computed in the function that contains the return address
    /// `back`. Returns `None` if the call before `back` did not call the function that starts at
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

    /// Returns whether a call of `from` arrives at `to` through jumps, with nothing left on the
    /// stack. `left` is the number of functions that may still be followed.
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

    /// Returns the target of code that consists of one jump, such as a stub made by the linker.
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
    /// Returns the function that contains the address `at`.
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

    /// Follows every path through the function. Returns `None` if some instruction is not known.
    fn paths(&self, code: &[u8]) -> Option<Paths> {
        self.paths_where(code, |at, stack| self.row(at).is_some_and(|row| row.fits(stack)))
    }

    /// Same as [`Function::paths`], but drops each path that reaches an instruction in a state for
    /// which `can_be` returns `false`.
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
            // If no instruction starts there, data was decoded as code, or code as data.
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
            // Addresses outside belong to another function, or to a piece of this one that is not
            // analyzed.
            open.extend(next.filter(|at| self.range.contains(at)).map(|at| (at, after.clone())));
        }
        Some(ways)
    }

    /// Returns how far the frame's address is above the stack pointer: at the call that returns to
    /// `pc` or, if `system`, at the system call before `pc`. Returns `None` if that is not known
    /// for certain.
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

    /// Returns the addresses outside the function to which it jumps after removing its frame.
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
    /// Returns whether the tables agree with `stack` on the frame's address. Saved registers are
    /// not compared: at the end of a function they are popped before the tables record it.
    fn fits(&self, stack: &StackState) -> bool {
        match self.base {
            CfaBase::Stack(depth) => depth == stack.depth,
            CfaBase::Frame(depth) => stack.frame == Some(depth),
            CfaBase::Other => false,
        }
    }
}

impl StackState {
    /// Returns the state after an instruction, or `None` if it is not known.
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
        // A function never pops its own return address.
        (self.depth >= WORD).then_some(self)
    }
}

/// Decodes all instructions of `code`, which is at address `start`. Returns `None` if an
/// instruction is not known or makes the stack pointer unknown.
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

/// Returns the target of the call that ends at the end of `code`. `code` begins at the start of a
/// function. Returns `None` if the last instruction is not a call.
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

/// Returns the address of a call's or jump's target, or `None` if the target is unknown. The
/// instruction ends at `end`.
fn target_address(target: Target, end: usize) -> Option<usize> {
    match target {
        Target::Code(far) => end.checked_add_signed(far as isize),
        Target::Slot(far) => word(end.checked_add_signed(far as isize)?),
        Target::Unknown => None,
    }
}

/// Returns the bytes in `range`, or `None` if not all of them are readable. The kernel copies them,
/// so unreadable memory does not fault.
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
