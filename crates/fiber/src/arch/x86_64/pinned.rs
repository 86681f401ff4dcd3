//! Code that asks for the carrier and uses what it finds: it is never moved to another thread in the
//! middle. All of it lies in one section, so that an address tells.

use super::cfi::{pop, push};
use super::switch::FS_BY_SYSCALL;
use crate::arch::Callback;
use std::arch::naked_asm;

/// Calls `f(data)` on the present stack with the carrier's thread pointer, and comes back with the
/// caller's.
///
/// # Safety
/// - **goroutine**: the caller runs on a goroutine's thread pointer, carried by this thread, and is
///   not moved to another one before `f` returns. (Preemption may stop it in place.)
/// - **callback**: `f` does not unwind, and may be called with `data`.
#[unsafe(naked)]
#[unsafe(link_section = "gosched_pinned")]
pub unsafe extern "C" fn call_host(f: Callback, data: *mut u8) {
    // rdi: f, rsi: data. rbx keeps the goroutine's thread pointer.
    naked_asm!(
        ".cfi_startproc",
        push!("rbx"),
        "mov rbx, fs:[0]",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, gs:[8]",
        "cmp byte ptr [rip + {fs_by_syscall}], 0",
        "jne 2f",
        "wrfsbase rsi",
        "call rax",
        "wrfsbase rbx",
        "3:",
        pop!("rbx"),
        "ret",
        ".cfi_def_cfa rsp, 16",
        ".cfi_offset rbx, -16",
        "2:",
        push!("r12"), // f, over the system call
        push!("r13"), // data
        "mov r12, rax",
        "mov r13, rdi",
        "mov eax, 158", // arch_prctl(ARCH_SET_FS, rsi)
        "mov edi, 0x1002",
        "syscall",
        "mov rdi, r13",
        "call r12",
        "mov eax, 158",
        "mov edi, 0x1002",
        "mov rsi, rbx",
        "syscall",
        pop!("r13"),
        pop!("r12"),
        "jmp 3b",
        ".cfi_endproc",
        fs_by_syscall = sym FS_BY_SYSCALL,
    )
}

/// As [`magazine::take`](crate::magazine::take), from the row of the carrier.
///
/// # Safety
/// - **carried**: as for [`carrier`](super::switch::carrier).
/// - **size**: below [`CLASS_COUNT`](crate::magazine::CLASS_COUNT).
#[unsafe(naked)]
#[unsafe(link_section = "gosched_pinned")]
pub unsafe extern "C" fn take_block(size: usize) -> *mut u8 {
    // rdi: size, then its magazine.
    naked_asm!(
        ".cfi_startproc",
        "shl rdi, 4",
        "add rdi, gs:[24]",
        "mov rax, [rdi]",
        "test rax, rax",
        "je 2f",
        "mov rcx, [rax]",
        "mov [rdi], rcx",
        "inc dword ptr [rdi + 8]",
        "2:",
        "ret",
        ".cfi_endproc",
    )
}

/// As [`magazine::give`](crate::magazine::give), to the row of the carrier.
///
/// # Safety
/// - **carried**: as for [`carrier`](super::switch::carrier).
/// - **size**: below [`CLASS_COUNT`](crate::magazine::CLASS_COUNT).
/// - **block**: of that size, and nobody else uses it.
#[unsafe(naked)]
#[unsafe(link_section = "gosched_pinned")]
pub unsafe extern "C" fn give_block(size: usize, block: *mut u8) -> bool {
    // rdi: size, then its magazine; rsi: block.
    naked_asm!(
        ".cfi_startproc",
        "shl rdi, 4",
        "add rdi, gs:[24]",
        "mov ecx, [rdi + 8]",
        "xor eax, eax",
        "sub ecx, 1",
        "jb 2f",
        "mov rdx, [rdi]",
        "mov [rsi], rdx",
        "mov [rdi], rsi",
        "mov [rdi + 8], ecx",
        "mov eax, 1",
        "2:",
        "ret",
        ".cfi_endproc",
    )
}

unsafe extern "C" {
    /// The linker's names for the ends of the section.
    #[link_name = "__start_gosched_pinned"]
    static PINNED_START: u8;
    #[link_name = "__stop_gosched_pinned"]
    static PINNED_STOP: u8;
}

/// Whether code that was stopped at `pc` must go on on the same thread: see `arch`.
pub fn is_pinned(pc: usize) -> bool {
    (&raw const PINNED_START as usize..&raw const PINNED_STOP as usize).contains(&pc)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::{restart_stack, switch_context};

    #[test]
    fn what_uses_its_carrier_is_pinned_and_nothing_else_is() {
        let pinned = [call_host as *const (), take_block as *const (), give_block as *const ()];
        assert!(pinned.iter().all(|&function| is_pinned(function as usize)));
        let others = [switch_context as *const (), restart_stack as *const ()];
        assert!(others.iter().all(|&function| !is_pinned(function as usize)));
        let length = &raw const PINNED_STOP as usize - &raw const PINNED_START as usize;
        assert!(length < 400, "three small functions, not {length} bytes");
    }
}
