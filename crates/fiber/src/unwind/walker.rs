//! Stack walks by unwind tables, on memory that the caller reads: usually a copy of a stack.
//!
//! A register whose value is not known stays unknown, and the walk ends where it needs that value:
//! the walker never guesses a frame. It can restore one register, the frame pointer, if the
//! function's code determines the size of the frame for certain: see `frame_size`.

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

/// Largest number of frames in a walk. A walk that reaches it is in a loop.
const MAX_FRAMES: usize = 1 << 20;

const REGISTERS: usize = PC as usize + 1;

/// Values of the registers, by DWARF number. `None` if the value is not known.
type RegisterValues = [Option<usize>; REGISTERS];

/// Unwind rules for one code address.
#[derive(Clone, Debug)]
struct Rules {
    cfa: Source,
    /// Where to find each register of the calling frame. A callee-saved register that is not listed
    /// keeps its value.
    registers: Vec<(u16, Source)>,
    /// Whether this is a signal frame: the calling frame was interrupted and did not make a call.
    is_signal: bool,
    /// Start address of the function.
    start: usize,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// The value is not known.
    Unknown,
    /// A register plus an offset.
    Register(u16, i64),
    /// The frame's address plus an offset.
    Frame(i64),
    /// The memory word at the frame's address plus an offset.
    AtFrame(i64),
    /// The result of a DWARF expression.
    Expression(UnwindExpression<usize>),
    /// The memory word at the address that a DWARF expression yields.
    AtExpression(UnwindExpression<usize>),
}

/// A frame that a walk has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// An address in the current instruction, or in the call instruction (its last byte).
    pub at: usize,
    /// Program counter: the address where the code is, or where it will resume.
    pub pc: usize,
    /// Stack pointer at `pc`.
    pub sp: usize,
    /// End of the frame: the stack pointer before the function was called. 0 if it is not known.
    pub fp: usize,
}

/// The program or library that contains some code. It may have been unloaded since the walker was
/// created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Module<'a> {
    /// Path of the file. Empty for the program itself.
    pub path: &'a Path,
    /// Distance of the code from the module's load address. This is the address of the code in the
    /// file.
    pub offset: usize,
    /// Build id. Empty if the module has none.
    pub id: &'a [u8],
    /// Symbol name of the function that contains the code, if the module exports it.
    pub function: Option<&'a [u8]>,
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The walk reached the outermost frame.
    Complete,
    /// The callback `each` returned `false`.
    Stopped,
    /// The next step needs a value that is not known.
    Broken,
}

/// Walks stacks; see the top of this file. A walker reads the tables for each address only once.
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
    /// Creates a walker for the code that is loaded now.
    pub fn new() -> Walker {
        Walker {
            tables: Tables::now(),
            rules: HashMap::new(),
            found: FrameCache::default(),
            context: UnwindContext::new(),
        }
    }

    /// Calls `each` with each frame, innermost first, until `each` returns `false`.
    ///
    /// `exact` states whether the program counter of `start` is the current instruction. Otherwise
    /// it is the address that a call will return to. `read` returns the word of memory at an
    /// address, or `None` if the word is not known.
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

    /// Same as [`Walker::walk`], for code of which only the program counter and the stack pointer
    /// are known. The program counter is the current instruction.
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

    /// Returns the start address of the function that contains `address`. `address` must be the
    /// [`Frame::at`] of a frame that this walker has found, otherwise this returns `None`.
    pub fn function(&self, address: usize) -> Option<usize> {
        self.rules.get(&address)?.as_ref().map(|rules| rules.start)
    }

    /// Returns the program or library that contains the code at `pc`.
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

/// Computes the frame pointer from the size of the frame, if the frame's address is relative to the
/// frame pointer. Returns `None` if the frame pointer cannot be determined for certain.
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

/// Steps from a frame to its caller. Returns the end of the frame and the caller's registers, or no
/// registers if the frame is the outermost one. Returns `None` if a value that the step needs is
/// not known.
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
    // Registers that a callee need not preserve are lost.
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

/// Evaluates a DWARF expression whose first operand is the frame's address. Returns `None` if it
/// needs a value that is not known.
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
