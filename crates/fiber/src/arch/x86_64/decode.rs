//! Machine code, taken apart as far as the stack pointer goes: how long an instruction is, and what it does to
//! that register, to the frame pointer and to the way the code goes on.
//!
//! What is not known for certain is [`None`]: whoever asks then has nothing to build on. What changes the stack
//! pointer other than by a number that stands in the code is [`Effect::UnknownSp`]. Compilers write that register with few
//! instructions; all others are looked at for it too.

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    /// In bytes.
    pub(crate) length: usize,
    pub(crate) effect: Effect,
}

/// What an instruction does. Distances are from the instruction's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing of interest.
    Other,
    /// A word is pushed: a register of this number, by DWARF, or something else.
    Push(Option<u16>),
    /// A word is popped, likewise.
    Pop(Option<u16>),
    /// The stack pointer moves by so much.
    AdjustSp(i64),
    /// The frame pointer becomes the stack pointer and so much.
    SetFp(i64),
    /// The stack pointer comes from the frame pointer again.
    RestoreSpFromFp,
    /// The stack pointer becomes what only a run can tell; or perhaps does.
    UnknownSp,
    /// Calls the code there.
    Call(Target),
    /// Goes on there.
    Jump(Target),
    /// Goes on there, or with the next instruction.
    Branch(i64),
    /// Calls the system.
    Syscall,
    /// Does not go on: returns, or ends the program.
    Stop,
}

/// Where a call or jump leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// So far.
    Code(i64),
    /// To what the word says that is so far.
    Slot(i64),
    /// That is not in the code.
    Unknown,
}

/// The stack pointer and the frame pointer, as instructions number them.
const SP: u8 = 4;
const FP: u8 = 5;

/// DWARF's numbers of registers, by those of instructions.
const DWARF: [u16; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];

/// The first instruction in `code`. `None`: it is not known.
pub(crate) fn decode(code: &[u8]) -> Option<Instruction> {
    let mut reader = Reader { code, at: 0 };
    let what = reader.instruction()?;
    // No instruction is longer.
    (reader.at <= 15).then_some(Instruction { length: reader.at, effect: what })
}

struct Reader<'a> {
    code: &'a [u8],
    at: usize,
}

/// What stands before the operation.
#[derive(Clone, Copy, Debug, Default)]
struct Prefixes {
    /// Operands of 16 bits.
    is_16_bit: bool,
    /// A repetition, or a part of the operation.
    repeat: bool,
    /// Addresses of 32 bits.
    has_32_bit_address: bool,
    rex: Option<u8>,
}

impl Prefixes {
    fn wide(self) -> bool {
        self.rex.unwrap_or(0) & 8 != 0
    }

    /// A register of the byte's low three bits.
    fn register(self, byte: u8) -> u8 {
        (byte & 7) | ((self.rex.unwrap_or(0) & 1) << 3)
    }

    /// How long a number is that is as long as the operands, at most 4.
    fn number(self) -> usize {
        if self.is_16_bit && !self.wide() { 2 } else { 4 }
    }
}

/// The operands of most instructions.
#[derive(Clone, Copy, Debug)]
struct Operands {
    /// The first, a register; or more of the operation.
    register: u8,
    other: Operand,
}

/// The second operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operand {
    Register(u8),
    /// Memory at a register and so much.
    BaseOffset(u8, i64),
    /// Memory so far from the instruction's end; but for a number that may follow.
    RipRelative(i64),
    Memory,
}

impl Operands {
    /// The kind of operation, where that is in the operands.
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

    /// A number of one byte or four.
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
                // Segments, and the lock.
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
            // An index of 4 is none.
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

    /// Operations of one byte, but for pushes and pops.
    fn one_byte_opcode(
        &mut self,
        operation: u8,
        prefixes: Prefixes,
        rex: u8,
        wide: bool,
    ) -> Option<Effect> {
        match operation {
            // Arithmetic: of two operands, or with a number. Seven compares.
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
            // Floating point, of old.
            0xd8..=0xdf => self.operands(rex).map(|_| Effect::Other),
            // With shorter operands, processors differ.
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

    /// Nothing of interest, and a number of so many bytes.
    fn other(&mut self, bytes: usize) -> Option<Effect> {
        self.skip(bytes)?;
        Some(Effect::Other)
    }

    /// The first operand is written; a number follows.
    fn writes_register(&mut self, rex: u8, bytes: usize) -> Option<Effect> {
        let operands = self.operands(rex)?;
        self.skip(bytes)?;
        Some(other_if(operands.register != SP))
    }

    /// As [`Reader::writes_register`], the second.
    fn writes_operand(&mut self, rex: u8, bytes: usize) -> Option<Effect> {
        let operands = self.operands(rex)?;
        self.skip(bytes)?;
        Some(other_if(!operands.writes_sp()))
    }

    /// Arithmetic with a number.
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

    /// From one register or memory to another.
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

    /// The address of an operand.
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

    /// What is told by the operands: counts, calls, jumps and pushes.
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

    /// Operations of two bytes or three.
    fn two_byte_opcode(&mut self, prefixes: Prefixes) -> Option<Effect> {
        let rex = prefixes.rex.unwrap_or(0);
        let operation = self.byte()?;
        match operation {
            0x05 => Some(Effect::Syscall),
            0x0b => Some(Effect::Stop),
            0x31 | 0x77 | 0xa2 => Some(Effect::Other),
            0x80..=0x8f if prefixes.number() == 4 => Some(Effect::Branch(self.number(4)?)),
            0xc8..=0xcf => Some(other_if(prefixes.register(operation) != SP)),
            // What they write is a register like the others, or may be.
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
            // The rest is about other registers.
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

    /// Operations of three bytes; a number follows.
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

    /// Operations with the long prefixes of vectors.
    fn vector(&mut self, prefix: u8, prefixes: Prefixes) -> Option<Effect> {
        if prefixes.rex.is_some() || prefixes.is_16_bit || prefixes.repeat {
            return None;
        }
        let first = self.byte()?;
        // The bits of a prefix of registers, upside down there.
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
