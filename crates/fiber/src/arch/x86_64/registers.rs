//! Register sets for stack walks and reports, and the DWARF numbers of registers. A register set is
//! never loaded into the CPU: `switch.rs` and `async_preempt.rs` keep copies of their own.

use crate::arch::Registers;
use std::arch::naked_asm;

/// DWARF numbers of the registers in [`Registers::callee_saved`]: r15, r14, r13, r12, rbx, rbp.
pub(crate) const CALLEE_SAVED: [u16; 6] = [15, 14, 13, 12, 3, 6];
/// DWARF number of the frame pointer (rbp), in code that uses one.
pub(crate) const FP: u16 = 6;
/// DWARF number of the stack pointer (rsp).
pub(crate) const SP: u16 = 7;
/// DWARF number of the return address.
pub(crate) const PC: u16 = 16;

/// Size of a saved context in words; `switch.rs` shows the layout.
pub const SAVED_WORDS: usize = 8;

/// Returns the registers of the context saved at `sp`. `words` are the words found there.
pub fn registers_of_context(words: &[usize; SAVED_WORDS], sp: usize) -> Registers {
    let [_, kept @ .., pc] = *words;
    Registers { callee_saved: kept, pc, sp: sp + 8 * SAVED_WORDS }
}

/// Stores the registers as the caller has them when this function returns. A stack walk can start
/// from them as long as the caller's frame exists.
///
/// # Safety
/// - **to**: `to` is valid for writes.
#[unsafe(naked)]
pub unsafe extern "C" fn capture_registers(to: *mut Registers) {
    naked_asm!(
        ".cfi_startproc",
        "mov [rdi], r15",
        "mov [rdi + 8], r14",
        "mov [rdi + 16], r13",
        "mov [rdi + 24], r12",
        "mov [rdi + 32], rbx",
        "mov [rdi + 40], rbp",
        "mov rax, [rsp]",
        "mov [rdi + 48], rax",
        "lea rax, [rsp + 8]",
        "mov [rdi + 56], rax",
        "ret",
        ".cfi_endproc",
    )
}

/// Names of the registers shown in reports, as Go spells them.
pub const REGISTER_NAMES: [&str; 21] = [
    "rax", "rbx", "rcx", "rdx", "rdi", "rsi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15", "rip", "rflags", "cs", "fs", "gs",
];

/// Index of the program counter in [`REGISTER_NAMES`].
pub const PC_INDEX: usize = 16;

/// Returns the values that the registers in [`REGISTER_NAMES`] have in the code that a signal
/// interrupted, in the same order. For signal handlers.
///
/// # Safety
/// - **context**: `context` is the context that the kernel passed to an `SA_SIGINFO` handler.
pub unsafe fn all_registers(context: *const libc::c_void) -> [usize; REGISTER_NAMES.len()] {
    use libc::{REG_CSGSFS, REG_EFL, REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13};
    use libc::{REG_R14, REG_R15, REG_RAX, REG_RBP, REG_RBX, REG_RCX, REG_RDI, REG_RDX};
    use libc::{REG_RIP, REG_RSI, REG_RSP};
    const WHOLE: [i32; 18] = [
        REG_RAX, REG_RBX, REG_RCX, REG_RDX, REG_RDI, REG_RSI, REG_RBP, REG_RSP, REG_R8, REG_R9,
        REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP, REG_EFL,
    ];
    // SAFETY: context — promised by the caller.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    let word = |register: i32| context.uc_mcontext.gregs[register as usize] as usize;
    let mut all = [0; REGISTER_NAMES.len()];
    for (value, register) in all.iter_mut().zip(WHOLE) {
        *value = word(register);
    }
    // One word holds cs, gs and fs, 16 bits each, from the low end.
    let segments = word(REG_CSGSFS);
    for (value, shift) in all[WHOLE.len()..].iter_mut().zip([0, 32, 16]) {
        *value = segments >> shift & 0xffff;
    }
    all
}

/// Returns the registers of the code that a signal interrupted.
///
/// # Safety
/// - **context**: `context` is the context that the kernel passed to an `SA_SIGINFO` handler.
pub(crate) unsafe fn registers_of_signal(context: *const libc::c_void) -> Registers {
    // SAFETY: context — promised by the caller.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    let word = |register: i32| context.uc_mcontext.gregs[register as usize] as usize;
    use libc::{REG_R12, REG_R13, REG_R14, REG_R15, REG_RBP, REG_RBX, REG_RIP, REG_RSP};
    Registers {
        callee_saved: [REG_R15, REG_R14, REG_R13, REG_R12, REG_RBX, REG_RBP].map(word),
        pc: word(REG_RIP),
        sp: word(REG_RSP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_register_is_stored_at_the_index_of_its_name() {
        // SAFETY: a `ucontext_t` of zeros is valid.
        let mut context: libc::ucontext_t = unsafe { std::mem::zeroed() };
        for (number, word) in context.uc_mcontext.gregs.iter_mut().enumerate() {
            *word = 100 + number as i64;
        }
        context.uc_mcontext.gregs[libc::REG_CSGSFS as usize] = 0x4_0003_0002_0001;
        // SAFETY: context — filled in as the kernel does.
        let values = unsafe { all_registers((&raw const context).cast()) };
        let value =
            |name: &str| values[REGISTER_NAMES.iter().position(|other| *other == name).unwrap()];
        use libc::{REG_EFL, REG_R8, REG_R15, REG_RAX, REG_RBX, REG_RIP, REG_RSI, REG_RSP};
        for (name, register) in [
            ("rax", REG_RAX),
            ("rbx", REG_RBX),
            ("rsi", REG_RSI),
            ("rsp", REG_RSP),
            ("r8", REG_R8),
            ("r15", REG_R15),
            ("rip", REG_RIP),
            ("rflags", REG_EFL),
        ] {
            assert_eq!(value(name), 100 + register as usize, "{name}");
        }
        assert_eq!([value("cs"), value("gs"), value("fs")], [1, 2, 3]);
        assert_eq!(REGISTER_NAMES[PC_INDEX], "rip");
    }
}
