//! Decoder for x86-64 machine code, limited to what a stack walk needs: the length of an
//! instruction, and its effect on the stack pointer, on the frame pointer and on control flow.
//!
//! [`decode`] returns [`None`] for an instruction that it does not know for certain, so that its
//! callers never rely on a guess. [`Effect::UnknownSp`] stands for a change of the stack pointer by
//! anything but a constant in the code. Compilers change the stack pointer with only a few
//! instructions, but the decoder checks every instruction for such a change.

/// A decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    /// Length in bytes.
    pub(crate) length: usize,
    pub(crate) effect: Effect,
}

/// Effect of an instruction. Distances in code are in bytes, from the end of the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// None of the effects below.
    Other,
    /// Pushes one word: the register with this DWARF number, or `None` for anything else.
    Push(Option<u16>),
    /// Pops one word into the register with this DWARF number, or `None` for anything else.
    Pop(Option<u16>),
    /// Adds this constant to the stack pointer.
    AdjustSp(i64),
    /// Sets the frame pointer to the stack pointer plus this constant.
    SetFp(i64),
    /// Restores the stack pointer from the frame pointer.
    RestoreSpFromFp,
    /// Sets the stack pointer, or may set it, to a value that is known only at run time.
    UnknownSp,
    /// Calls the target.
    Call(Target),
    /// Jumps to the target.
    Jump(Target),
    /// Jumps by this distance, or continues with the next instruction.
    Branch(i64),
    /// Makes a system call.
    Syscall,
    /// Does not continue: returns, or ends the program.
    Stop,
}

/// Target of a call or jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The code at this distance.
    Code(i64),
    /// The address stored in the word at this distance.
    Slot(i64),
    /// A target that the instruction does not contain.
    Unknown,
}

/// Numbers of the stack pointer and the frame pointer in machine code.
const SP: u8 = 4;
const FP: u8 = 5;

/// DWARF register numbers, indexed by the register numbers in machine code.
const DWARF: [u16; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];

/// Decodes the first instruction in `code`. Returns `None` if the decoder does not know it.
pub(crate) fn decode(code: &[u8]) -> Option<Instruction> {
    let mut reader = Reader { code, at: 0 };
    let what = reader.instruction()?;
    // 15 bytes is the architecture's limit.
    (reader.at <= 15).then_some(Instruction { length: reader.at, effect: what })
}

struct Reader<'a> {
    code: &'a [u8],
    at: usize,
}

/// Prefixes of an instruction.
#[derive(Clone, Copy, Debug, Default)]
struct Prefixes {
    /// Operands have 16 bits (prefix 0x66).
    is_16_bit: bool,
    /// A repeat prefix (0xf2, 0xf3), which for some instructions is part of the opcode.
    repeat: bool,
    /// Addresses have 32 bits (prefix 0x67).
    has_32_bit_address: bool,
    rex: Option<u8>,
}

impl Prefixes {
    fn wide(self) -> bool {
        self.rex.unwrap_or(0) & 8 != 0
    }

    /// Returns the register whose number is in the low three bits of `byte`, extended by REX.
    fn register(self, byte: u8) -> u8 {
        (byte & 7) | ((self.rex.unwrap_or(0) & 1) << 3)
    }

    /// Returns the length in bytes of an immediate that is as wide as the operands, at most 4.
    fn number(self) -> usize {
        if self.is_16_bit && !self.wide() { 2 } else { 4 }
    }
}

/// Operands in the form that most instructions use (the ModRM byte).
#[derive(Clone, Copy, Debug)]
struct Operands {
    /// The first operand, a register. In some instructions, an extension of the opcode instead.
    register: u8,
    other: Operand,
}

/// The second operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operand {
    Register(u8),
    /// Memory at a base register plus an offset.
    BaseOffset(u8, i64),
    /// Memory at this distance from the end of the instruction.
    RipRelative(i64),
    Memory,
}

impl Operands {
    /// Returns the operation, for opcodes that encode it in the operands.
    fn kind(self) -> u8 {
        self.register & 7
    }

    fn writes_sp(self) -> bool {
        self.other == Operand::Register(SP)
    }

    fn names_sp(self) -> bool {
        self.register == SP || self.writes_sp()
    }
}

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.code.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn peek(&self) -> Option<u8> {
        self.code.get(self.at).copied()
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.at += bytes;
        (self.at <= self.code.len()).then_some(())
    }

    /// Reads a signed number of one or four bytes. Returns `None` for other lengths.
    fn number(&mut self, bytes: usize) -> Option<i64> {
        let from = self.at;
        self.skip(bytes)?;
        match bytes {
            1 => Some(i64::from(self.code[from] as i8)),
            4 => Some(i64::from(i32::from_le_bytes(*self.code[from..].first_chunk()?))),
            _ => None,
        }
    }

    fn prefixes(&mut self) -> Option<Prefixes> {
        let mut prefixes = Prefixes::default();
        loop {
            match self.peek()? {
                0x66 => prefixes.is_16_bit = true,
                0x67 => prefixes.has_32_bit_address = true,
                0xf2 | 0xf3 => prefixes.repeat = true,
                // Segment overrides, and `lock`.
                0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0xf0 => {}
                _ => break,
            }
            self.at += 1;
        }
        if let Some(rex @ 0x40..=0x4f) = self.peek() {
            prefixes.rex = Some(rex);
            self.at += 1;
        }
        Some(prefixes)
    }

    fn operands(&mut self, rex: u8) -> Option<Operands> {
        let byte = self.byte()?;
        let register = (byte >> 3 & 7) | ((rex & 4) << 1);
        let (form, low) = (byte >> 6, byte & 7);
        if form == 3 {
            return Some(Operands { register, other: Operand::Register(low | ((rex & 1) << 3)) });
        }
        let mut base = Some(low | ((rex & 1) << 3));
        let mut near = form == 0 && low == 5;
        let mut bytes = [if near { 4 } else { 0 }, 1, 4][usize::from(form)];
        if low == 4 {
            near = false;
            let scaled = self.byte()?;
            // Index 4 stands for no index register.
            let index = (scaled >> 3 & 7) | ((rex & 2) << 2);
            base = (index == 4).then_some((scaled & 7) | ((rex & 1) << 3));
            if form == 0 && scaled & 7 == 5 {
                (base, bytes) = (None, 4);
            }
        }
        let distance = if bytes == 0 { 0 } else { self.number(bytes)? };
        let other = match base {
            _ if near => Operand::RipRelative(distance),
            Some(base) => Operand::BaseOffset(base, distance),
            None => Operand::Memory,
        };
        Some(Operands { register, other })
    }

    fn instruction(&mut self) -> Option<Effect> {
        let prefixes = self.prefixes()?;
        let rex = prefixes.rex.unwrap_or(0);
        let wide = prefixes.wide();
        let operation = self.byte()?;
        match operation {
            0x0f => return self.two_byte_opcode(prefixes),
            0xc4 | 0xc5 | 0x62 => return self.vector(operation, prefixes),
            0x50..=0x57 if !prefixes.is_16_bit => {
                return Some(Effect::Push(Some(dwarf(prefixes.register(operation)))));
            }
            0x58..=0x5f if !prefixes.is_16_bit && prefixes.register(operation) != SP => {
                return Some(Effect::Pop(Some(dwarf(prefixes.register(operation)))));
            }
            0x68 if !prefixes.is_16_bit => self.skip(4)?,
            0x6a if !prefixes.is_16_bit => self.skip(1)?,
            _ => return self.one_byte_opcode(operation, prefixes, rex, wide),
        }
        Some(Effect::Push(None))
    }

    /// Decodes opcodes of one byte, except the pushes and pops in [`Reader::instruction`].
    fn one_byte_opcode(
        &mut self,
        operation: u8,
        prefixes: Prefixes,
        rex: u8,
        wide: bool,
    ) -> Option<Effect> {
        match operation {
            // Arithmetic on two operands, or on the accumulator and an immediate. Operation 7 only
            // compares.
            0x00..=0x3f => {
                let compares = operation >> 3 == 7;
                match operation & 7 {
                    form @ 0..4 => {
                        let operands = self.operands(rex)?;
                        let writes = match form {
                            0 | 1 => operands.writes_sp(),
                            _ => operands.register == SP,
                        };
                        Some(other_if(compares || !writes))
                    }
                    4 => self.other(1),
                    5 => self.other(prefixes.number()),
                    _ => None,
                }
            }
            0x63 => self.writes_register(rex, 0),
            0x69 => self.writes_register(rex, prefixes.number()),
            0x6b => self.writes_register(rex, 1),
            0x70..=0x7f | 0xe0..=0xe3 => Some(Effect::Branch(self.number(1)?)),
            0x80 | 0x81 | 0x83 => self.arithmetic(operation, prefixes),
            0x84 | 0x85 => self.operands(rex).map(|_| Effect::Other),
            0x86 | 0x87 => Some(other_if(!self.operands(rex)?.names_sp())),
            0x88 => self.writes_operand(rex, 0),
            0x89 | 0x8b => self.mov(operation, rex, wide),
            0x8a => self.writes_register(rex, 0),
            0x8d => self.lea(rex, wide && !prefixes.has_32_bit_address),
            0x90..=0x97 => Some(other_if(prefixes.register(operation) != SP)),
            0x98 | 0x99 | 0x9b | 0x9e | 0x9f => Some(Effect::Other),
            0xa4..=0xa7 | 0xaa..=0xaf => Some(Effect::Other),
            0xa8 => self.other(1),
            0xa9 => self.other(prefixes.number()),
            0xb0..=0xbf => {
                let bytes = if wide { 8 } else { prefixes.number() };
                self.skip(if operation < 0xb8 { 1 } else { bytes })?;
                Some(other_if(prefixes.register(operation) != SP))
            }
            0xc0 | 0xc1 => self.writes_operand(rex, 1),
            0xc2 | 0xc3 | 0xcc | 0xf4 => {
                self.skip(if operation == 0xc2 { 2 } else { 0 })?;
                Some(Effect::Stop)
            }
            0xc6 | 0xc7 if self.peek()? >> 3 & 7 == 0 => {
                self.writes_operand(rex, if operation == 0xc6 { 1 } else { prefixes.number() })
            }
            0xc9 => Some(Effect::RestoreSpFromFp),
            0xd0..=0xd3 => self.writes_operand(rex, 0),
            // x87 floating point.
            0xd8..=0xdf => self.operands(rex).map(|_| Effect::Other),
            // With 16-bit operands, processors disagree on the length of the instruction.
            0xe8 | 0xe9 if prefixes.number() == 4 => {
                let target = Target::Code(self.number(4)?);
                Some(if operation == 0xe8 { Effect::Call(target) } else { Effect::Jump(target) })
            }
            0xeb => Some(Effect::Jump(Target::Code(self.number(1)?))),
            0xf5 | 0xf8 | 0xf9 | 0xfc | 0xfd => Some(Effect::Other),
            0xf6 | 0xf7 => {
                let tests = self.peek()? >> 3 & 7 < 2;
                let bytes = if operation == 0xf6 { 1 } else { prefixes.number() };
                self.writes_operand(rex, if tests { bytes } else { 0 })
            }
            0xfe if self.peek()? >> 3 & 7 < 2 => self.writes_operand(rex, 0),
            0xff => self.by_operand(rex, prefixes),
            _ => None,
        }
    }

    /// Returns [`Effect::Other`] for an instruction that ends with an immediate of `bytes` bytes.
    fn other(&mut self, bytes: usize) -> Option<Effect> {
        self.skip(bytes)?;
        Some(Effect::Other)
    }

    /// Decodes an instruction that writes its first operand. An immediate of `bytes` bytes follows.
    fn writes_register(&mut self, rex: u8, bytes: usize) -> Option<Effect> {
        let operands = self.operands(rex)?;
        self.skip(bytes)?;
        Some(other_if(operands.register != SP))
    }

    /// Same as [`Reader::writes_register`], for an instruction that writes its second operand.
    fn writes_operand(&mut self, rex: u8, bytes: usize) -> Option<Effect> {
        let operands = self.operands(rex)?;
        self.skip(bytes)?;
        Some(other_if(!operands.writes_sp()))
    }

    /// Decodes arithmetic with an immediate.
    fn arithmetic(&mut self, operation: u8, prefixes: Prefixes) -> Option<Effect> {
        let operands = self.operands(prefixes.rex.unwrap_or(0))?;
        let bytes = if operation == 0x81 { prefixes.number() } else { 1 };
        if !operands.writes_sp() || operands.kind() == 7 {
            return self.other(bytes);
        }
        let number = self.number(bytes)?;
        Some(match operands.kind() {
            0 if prefixes.wide() && operation != 0x80 => Effect::AdjustSp(number),
            5 if prefixes.wide() && operation != 0x80 => Effect::AdjustSp(-number),
            _ => Effect::UnknownSp,
        })
    }

    /// Decodes a move between two registers, or between a register and memory.
    fn mov(&mut self, operation: u8, rex: u8, wide: bool) -> Option<Effect> {
        let operands = self.operands(rex)?;
        let (from, to) = match operation {
            0x89 => (Operand::Register(operands.register), operands.other),
            _ => (operands.other, Operand::Register(operands.register)),
        };
        match (from, to) {
            (Operand::Register(SP), Operand::Register(FP)) if wide => Some(Effect::SetFp(0)),
            (Operand::Register(FP), Operand::Register(SP)) if wide => Some(Effect::RestoreSpFromFp),
            (_, Operand::Register(SP)) => Some(Effect::UnknownSp),
            _ => Some(Effect::Other),
        }
    }

    /// Decodes `lea`, which computes the address of an operand.
    fn lea(&mut self, rex: u8, wide: bool) -> Option<Effect> {
        let operands = self.operands(rex)?;
        match (operands.register, operands.other) {
            (_, Operand::Register(_)) => None,
            (SP, Operand::BaseOffset(SP, distance)) if wide => Some(Effect::AdjustSp(distance)),
            (SP, Operand::BaseOffset(FP, _)) if wide => Some(Effect::RestoreSpFromFp),
            (SP, _) => Some(Effect::UnknownSp),
            (FP, Operand::BaseOffset(SP, distance)) if wide => Some(Effect::SetFp(distance)),
            _ => Some(Effect::Other),
        }
    }

    /// Decodes opcode 0xff. The operands select increment, decrement, call, jump or push.
    fn by_operand(&mut self, rex: u8, prefixes: Prefixes) -> Option<Effect> {
        let operands = self.operands(rex)?;
        let target = match operands.other {
            Operand::RipRelative(distance) if !prefixes.has_32_bit_address => {
                Target::Slot(distance)
            }
            _ => Target::Unknown,
        };
        match operands.kind() {
            0 | 1 => Some(other_if(!operands.writes_sp())),
            _ if prefixes.is_16_bit => None,
            2 => Some(Effect::Call(target)),
            4 => Some(Effect::Jump(target)),
            6 => Some(Effect::Push(None)),
            _ => None,
        }
    }

    /// Decodes opcodes of two or three bytes.
    fn two_byte_opcode(&mut self, prefixes: Prefixes) -> Option<Effect> {
        let rex = prefixes.rex.unwrap_or(0);
        let operation = self.byte()?;
        match operation {
            0x05 => Some(Effect::Syscall),
            0x0b => Some(Effect::Stop),
            0x31 | 0x77 | 0xa2 => Some(Effect::Other),
            0x80..=0x8f if prefixes.number() == 4 => Some(Effect::Branch(self.number(4)?)),
            0xc8..=0xcf => Some(other_if(prefixes.register(operation) != SP)),
            // These instructions write a general-purpose register, or may do so.
            0x2c | 0x2d | 0x40..=0x4f | 0x50 | 0xaf | 0xb6..=0xb8 | 0xbc..=0xbf | 0xd7 => {
                self.writes_register(rex, 0)
            }
            0xc5 => self.writes_register(rex, 1),
            0x01 | 0x1e | 0x7e | 0x90..=0x9f | 0xa3 | 0xa5 | 0xab | 0xad | 0xae => {
                self.writes_operand(rex, 0)
            }
            0xb0 | 0xb1 | 0xb3 | 0xbb | 0xc7 => self.writes_operand(rex, 0),
            0xa4 | 0xac | 0xba => self.writes_operand(rex, 1),
            0xc0 | 0xc1 => Some(other_if(!self.operands(rex)?.names_sp())),
            0x38 => self.three_byte_opcode(rex, 0),
            0x3a => self.three_byte_opcode(rex, 1),
            // The remaining instructions write no general-purpose register.
            0x70..=0x73 | 0xc2 | 0xc4 | 0xc6 => {
                self.operands(rex)?;
                self.other(1)
            }
            0x0d | 0x10..=0x1d | 0x1f | 0x28..=0x2b | 0x2e | 0x2f | 0x51..=0x6f => {
                self.operands(rex).map(|_| Effect::Other)
            }
            0x74..=0x76 | 0x7c | 0x7d | 0x7f | 0xc3 | 0xd0..=0xd6 | 0xd8..=0xfe => {
                self.operands(rex).map(|_| Effect::Other)
            }
            _ => None,
        }
    }

    /// Decodes opcodes of three bytes. An immediate of `bytes` bytes follows.
    fn three_byte_opcode(&mut self, rex: u8, bytes: usize) -> Option<Effect> {
        let operation = self.byte()?;
        let operands = self.operands(rex)?;
        self.skip(bytes)?;
        let is_plain = match bytes {
            0 => (0xf0..=0xf7).contains(&operation),
            _ => matches!(operation, 0x14..=0x17 | 0xf0),
        };
        Some(other_if(!is_plain || !operands.names_sp()))
    }

    /// Decodes instructions with a VEX or EVEX prefix, most of which are vector instructions.
    fn vector(&mut self, prefix: u8, prefixes: Prefixes) -> Option<Effect> {
        if prefixes.rex.is_some() || prefixes.is_16_bit || prefixes.repeat {
            return None;
        }
        let first = self.byte()?;
        // VEX and EVEX store the REX bits inverted.
        let upper = !first >> 5;
        let (map, rex, third) = match prefix {
            0xc5 => (1, upper & 4, first),
            0xc4 => (first & 0x1f, upper, self.byte()?),
            _ => {
                let second = self.byte()?;
                self.skip(1)?;
                (first & 7, upper, second)
            }
        };
        let operation = self.byte()?;
        if prefix != 0x62 && map == 1 && operation == 0x77 {
            return Some(Effect::Other);
        }
        let operands = self.operands(rex)?;
        match map {
            1 if matches!(operation, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6) => self.skip(1)?,
            1 | 2 | 5 | 6 => {}
            3 => self.skip(1)?,
            _ => return None,
        }
        let is_plain = match map {
            1 => matches!(operation, 0x2c | 0x2d | 0x50 | 0x78 | 0x79 | 0x7e | 0x93 | 0xc5 | 0xd7),
            2 => (0xf0..=0xf7).contains(&operation),
            3 => matches!(operation, 0x14..=0x17 | 0xf0),
            5 => matches!(operation, 0x2c | 0x2d | 0x78 | 0x79 | 0x7e),
            _ => false,
        };
        let third_register = !third >> 3 & 0xf;
        let names_sp = operands.names_sp() || third_register == SP;
        Some(other_if(!is_plain || !names_sp))
    }
}

fn other_if(harmless: bool) -> Effect {
    if harmless { Effect::Other } else { Effect::UnknownSp }
}

fn dwarf(register: u8) -> u16 {
    DWARF[usize::from(register & 0xf)]
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
