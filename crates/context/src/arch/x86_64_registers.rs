//! Registers as a walk over frames wants them.

use super::Registers;
use std::arch::naked_asm;

/// DWARF's numbers of the registers in [`Registers::kept`]: r15, r14, r13, r12, rbx, rbp.
pub(crate) const KEPT: [u16; 6] = [15, 14, 13, 12, 3, 6];
/// DWARF's number of the stack pointer.
pub(crate) const SP: u16 = 7;
/// DWARF's number of where a frame goes on.
pub(crate) const PC: u16 = 16;

/// A saved context, in words: the picture in `x86_64.rs`.
pub const SAVED_WORDS: usize = 8;

/// The registers of a context that was saved at `sp`, where these words are.
pub fn registers_of_saved(words: &[usize; SAVED_WORDS], sp: usize) -> Registers {
    let [_, kept @ .., pc] = *words;
    Registers { kept, pc, sp: sp + 8 * SAVED_WORDS }
}

/// The caller's, as they are when this returns: good for walks while the caller's frame is there.
///
/// # Safety
/// - **to**: valid for writes.
#[unsafe(naked)]
pub unsafe extern "C" fn registers_here(to: *mut Registers) {
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

/// Those of the code that a signal interrupted.
///
/// # Safety
/// - **context**: `context` is what the kernel passed to an `SA_SIGINFO` handler.
pub(crate) unsafe fn registers_of(context: *const libc::c_void) -> Registers {
    // SAFETY: context — promised by the caller.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    let word = |register: i32| context.uc_mcontext.gregs[register as usize] as usize;
    use libc::{REG_R12, REG_R13, REG_R14, REG_R15, REG_RBP, REG_RBX, REG_RIP, REG_RSP};
    Registers {
        kept: [REG_R15, REG_R14, REG_R13, REG_R12, REG_RBX, REG_RBP].map(word),
        pc: word(REG_RIP),
        sp: word(REG_RSP),
    }
}
