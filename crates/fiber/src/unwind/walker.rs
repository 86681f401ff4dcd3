//! Walks over frames by the tables, on memory that the caller reads: a copy of a stack, as a rule.
//!
//! A register whose value is not known stays unknown, and a walk ends where it is needed: no frame is ever
//! guessed. But a frame pointer that is needed is found, where the function's code tells for certain how large its
//! frame is: see `code`.

use super::frame_size::{Code, FrameCache};
use super::tables::{self, Bytes, Tables};
use crate::arch::{CALLEE_SAVED, FP, PC, Registers, SP};
use gimli::{
    CfaRule, EvaluationResult, Expression, Location, Register, RegisterRule, UnwindContext,
    UnwindExpression, Value,
};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// No stack has more frames, unless it goes in circles.
const MAX_FRAMES: usize = 1 << 20;

const REGISTERS: usize = PC as usize + 1;

/// The values of registers, as far as they are known.
type RegisterValues = [Option<usize>; REGISTERS];

/// What the tables say about code at some place.
#[derive(Clone, Debug)]
struct Rules {
    cfa: Source,
    /// Of each register in the frame that called; those that are not named keep their value.
    registers: Vec<(u16, Source)>,
    /// The code was interrupted there, it did not call.
    is_signal: bool,
    /// Where the function begins.
    start: usize,
}

/// Where a value is had from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// Nowhere.
    Unknown,
    /// A register, and so much.
    Register(u16, i64),
    /// The frame's address and so much.
    Frame(i64),
    /// What is in memory there.
    AtFrame(i64),
    /// What an expression says.
    Expression(UnwindExpression<usize>),
    /// What is in memory where an expression says.
    AtExpression(UnwindExpression<usize>),
}

/// A frame that a walk has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// An address in the instruction that runs, or in the call: its last byte.
    pub at: usize,
    /// Where the code is, or will go on.
    pub pc: usize,
    /// Its stack pointer there.
    pub sp: usize,
    /// Where the frame ends: the stack pointer before the function was called. 0: it is not known.
    pub fp: usize,
}

/// What is known of the program or library that has some code. It may be gone by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Module<'a> {
    /// Its file; empty: the program.
    pub path: &'a Path,
    /// How far from its beginning the code is: the address that its file has for it.
    pub offset: usize,
    /// Its build id; empty: it has none.
    pub id: &'a [u8],
    /// The function there, as the linker knows it, if others may call it.
    pub function: Option<&'a [u8]>,
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At the first frame.
    Complete,
    /// Whoever was told about frames said so.
    Stopped,
    /// Something is not known that the next step needs.
    Broken,
}

/// See the top of this file. It learns: what the tables say about a place is read once.
#[derive(Debug)]
pub struct Walker {
    tables: Arc<Tables>,
    rules: HashMap<usize, Option<Rules>>,
    found: FrameCache,
    context: UnwindContext<usize>,
}

impl Default for Walker {
    fn default() -> Walker {
        Walker::new()
    }
}

impl Walker {
    /// For the code that is loaded now.
    pub fn new() -> Walker {
        Walker {
            tables: Tables::now(),
            rules: HashMap::new(),
            found: FrameCache::default(),
            context: UnwindContext::new(),
        }
    }

    /// Calls `each` with each frame, from the innermost on, until it says false.
    ///
    /// `exact`: the code is at the program counter; else it is where a call will return to. `read` gives a word
    /// of memory, if it is known.
    pub fn walk(
        &mut self,
        start: &Registers,
        exact: bool,
        read: impl Fn(usize) -> Option<usize>,
        mut each: impl FnMut(Frame) -> bool,
    ) -> End {
        let mut known: RegisterValues = [None; REGISTERS];
        for (number, value) in CALLEE_SAVED.into_iter().zip(start.callee_saved) {
            known[usize::from(number)] = Some(value);
        }
        (known[usize::from(PC)], known[usize::from(SP)]) = (Some(start.pc), Some(start.sp));
        self.walk_known(known, exact, &read, &mut each)
    }

    /// As [`Walker::walk`], for code of which only these two registers are known.
    pub fn walk_from_pc_and_sp(
        &mut self,
        pc: usize,
        sp: usize,
        read: impl Fn(usize) -> Option<usize>,
        mut each: impl FnMut(Frame) -> bool,
    ) -> End {
        self.walk_two(pc, sp, true, &read, &mut each)
    }

    pub(super) fn walk_two(
        &mut self,
        pc: usize,
        sp: usize,
        exact: bool,
        read: &dyn Fn(usize) -> Option<usize>,
        each: &mut dyn FnMut(Frame) -> bool,
    ) -> End {
        let mut known: RegisterValues = [None; REGISTERS];
        (known[usize::from(PC)], known[usize::from(SP)]) = (Some(pc), Some(sp));
        self.walk_known(known, exact, read, each)
    }

    fn walk_known(
        &mut self,
        mut known: RegisterValues,
        mut exact: bool,
        read: &dyn Fn(usize) -> Option<usize>,
        each: &mut dyn FnMut(Frame) -> bool,
    ) -> End {
        for _ in 0..MAX_FRAMES {
            let Some(pc) = known[usize::from(PC)] else { return End::Broken };
            if pc == 0 {
                return End::Complete;
            }
            let at = if exact { pc } else { pc - 1 };
            let Walker { tables, rules, found, context } = self;
            let rules = rules.entry(at).or_insert_with(|| {
                let module = tables.module(at)?;
                read_rules(module, at, context)
            });
            let Some(rules) = rules else { return End::Broken };
            if known[usize::from(FP)].is_none() {
                let mut code = Code { tables, context, frame_cache: found };
                known[usize::from(FP)] = frame_pointer(&mut code, rules, &known, exact, read);
            }
            let module = tables.module(at);
            let caller = module.and_then(|module| step(module, rules, &known, read));
            let fp = caller.as_ref().map_or(0, |(fp, _)| *fp);
            if !each(Frame { at, pc, sp: known[usize::from(SP)].unwrap_or(0), fp }) {
                return End::Stopped;
            }
            exact = rules.is_signal;
            match caller {
                None => return End::Broken,
                Some((_, None)) => return End::Complete,
                Some((_, Some(next))) => known = next,
            }
        }
        End::Broken
    }

    /// Where the function begins that an address is in, which a walk has told.
    pub fn function(&self, address: usize) -> Option<usize> {
        self.rules.get(&address)?.as_ref().map(|rules| rules.start)
    }

    /// The program or library that has this code.
    pub fn module(&self, pc: usize) -> Option<Module<'_>> {
        let module = self.tables.module(pc)?;
        let offset = pc - module.base;
        let function = module.exports.function_at(offset);
        Some(Module { path: &module.path, offset, id: &module.id, function })
    }
}

fn read_rules(
    module: &tables::Module,
    at: usize,
    context: &mut UnwindContext<usize>,
) -> Option<Rules> {
    let (bases, frames) = (module.bases(), module.frames());
    let entry = module.entry(at)?;
    let row = entry.unwind_info_for_address(&frames, &bases, context, at as u64).ok()?;
    let cfa = match *row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => Source::Register(register.0, offset),
        CfaRule::Expression(expression) => Source::Expression(expression),
    };
    let registers = row.registers().filter(|(register, _)| usize::from(register.0) < REGISTERS);
    let registers = registers.map(|(register, rule)| (register.0, source(register.0, rule)));
    Some(Rules {
        cfa,
        registers: registers.collect(),
        is_signal: entry.is_signal_trampoline(),
        start: entry.initial_address() as usize,
    })
}

fn source(register: u16, rule: &RegisterRule<usize>) -> Source {
    match *rule {
        RegisterRule::SameValue => Source::Register(register, 0),
        RegisterRule::Register(other) => Source::Register(other.0, 0),
        RegisterRule::Offset(offset) => Source::AtFrame(offset),
        RegisterRule::ValOffset(offset) => Source::Frame(offset),
        RegisterRule::Expression(expression) => Source::AtExpression(expression),
        RegisterRule::ValExpression(expression) => Source::Expression(expression),
        _ => Source::Unknown,
    }
}

/// The frame pointer, where a frame's address comes from it, by the size of the frame.
fn frame_pointer(
    code: &mut Code<'_>,
    rules: &Rules,
    known: &RegisterValues,
    exact: bool,
    read: &dyn Fn(usize) -> Option<usize>,
) -> Option<usize> {
    let Source::Register(FP, offset) = rules.cfa else { return None };
    let saved = rules.registers.iter().find(|(register, _)| *register == FP);
    let Some((_, Source::AtFrame(saved))) = saved else { return None };
    let depth = code.depth(known[usize::from(PC)]?, exact)?;
    let frame = known[usize::from(SP)]?.checked_add(depth)?;
    let saved = frame.checked_add_signed(*saved as isize)?;
    code.check(frame, rules.start, saved, read)?;
    frame.checked_add_signed(-offset as isize)
}

/// From a frame to the one that called it: where the frame ends, and the caller's registers, if there is one.
/// `None`: it is not known.
fn step(
    module: &tables::Module,
    rules: &Rules,
    known: &RegisterValues,
    read: &dyn Fn(usize) -> Option<usize>,
) -> Option<(usize, Option<RegisterValues>)> {
    let value = |source: Source, frame: usize| match source {
        Source::Unknown => None,
        Source::Register(register, offset) => {
            (*known.get(usize::from(register))?)?.checked_add_signed(offset as isize)
        }
        Source::Frame(offset) => frame.checked_add_signed(offset as isize),
        Source::AtFrame(offset) => read(frame.checked_add_signed(offset as isize)?),
        Source::Expression(expression) => evaluate(module, expression, known, frame, read),
        Source::AtExpression(expression) => read(evaluate(module, expression, known, frame, read)?),
    };
    let frame = value(rules.cfa, 0)?;
    let mut next = *known;
    // What a callee need not keep is lost.
    for (number, known) in next.iter_mut().enumerate() {
        if !CALLEE_SAVED.contains(&(number as u16)) {
            *known = None;
        }
    }
    next[usize::from(SP)] = Some(frame);
    for &(register, source) in &rules.registers {
        next[usize::from(register)] = value(source, frame);
    }
    let ends =
        |&(register, source): &(u16, Source)| register == PC && matches!(source, Source::Unknown);
    Some((frame, (!rules.registers.iter().any(ends)).then_some(next)))
}

/// What an expression says, of which the frame's address is the first operand.
fn evaluate(
    module: &tables::Module,
    expression: UnwindExpression<usize>,
    known: &RegisterValues,
    frame: usize,
    read: &dyn Fn(usize) -> Option<usize>,
) -> Option<usize> {
    let frames = module.frames();
    let expression: Expression<Bytes<'_>> = expression.get(&frames).ok()?;
    let encoding = gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 4 };
    let mut evaluation = expression.evaluation(encoding);
    evaluation.set_initial_value(frame as u64);
    let mut state = evaluation.evaluate().ok()?;
    loop {
        state = match state {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register: Register(number), .. } => {
                let value = (*known.get(usize::from(number))?)?;
                evaluation.resume_with_register(Value::Generic(value as u64)).ok()?
            }
            EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                let value = read(address as usize)?;
                evaluation.resume_with_memory(Value::Generic(value as u64)).ok()?
            }
            _ => return None,
        };
    }
    match evaluation.result().last()?.location {
        Location::Address { address } => Some(address as usize),
        _ => None,
    }
}
