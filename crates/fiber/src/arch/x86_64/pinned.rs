//! Functions that read the carrier and then use it, and so must not move to another thread halfway.
//! They lie in one section, as does the stub of `async_preempt.rs`, so that [`is_pinned`]
//! recognizes them by address.
//!
//! The functions in the section never check whether the thread has a carrier: their callers do.

use super::cfi::{pop, push};
use super::switch::FS_BY_SYSCALL;
use crate::arch::Callback;
use std::arch::naked_asm;

/// Calls `f(data)` on the current stack with the carrier's thread pointer, then restores the
/// caller's thread pointer and returns.
///
/// # Safety
/// - **goroutine**: the caller runs with a goroutine's thread pointer on the thread that carries
///   the goroutine, and does not move to another thread before `f` returns. (Preemption may stop it
///   in place.)
/// - **callback**: `f` may be called with `data` and does not unwind.
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
        push!("r12"), // r12: f, kept across the system call
        push!("r13"), // r13: data
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

/// Takes a free block of size class `size` from the carrier's row of magazines, as
/// [`magazine::take`](crate::magazine::take) does. Returns null if there is none.
///
/// # Safety
/// - **carried**: as for [`carrier`](super::switch::carrier).
/// - **size**: `size` is less than [`CLASS_COUNT`](crate::magazine::CLASS_COUNT).
#[unsafe(naked)]
#[unsafe(link_section = "gosched_pinned")]
pub unsafe extern "C" fn take_block(size: usize) -> *mut u8 {
    // rdi: size class, then the address of its magazine.
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

/// Puts a block of size class `size` into the carrier's row of magazines, as
/// [`magazine::give`](crate::magazine::give) does. Returns `false` if there is no room.
///
/// # Safety
/// - **carried**: as for [`carrier`](super::switch::carrier).
/// - **size**: `size` is less than [`CLASS_COUNT`](crate::magazine::CLASS_COUNT).
/// - **block**: `block` is of that size class, and nothing else uses it.
#[unsafe(naked)]
#[unsafe(link_section = "gosched_pinned")]
pub unsafe extern "C" fn give_block(size: usize, block: *mut u8) -> bool {
    // rdi: size class, then the address of its magazine; rsi: block.
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
    /// Symbols that the linker defines at both ends of the section.
    #[link_name = "__start_gosched_pinned"]
    static PINNED_START: u8;
    #[link_name = "__stop_gosched_pinned"]
    static PINNED_STOP: u8;
}

/// Returns whether code that was stopped at `pc` must resume on the same thread; see `arch`.
pub fn is_pinned(pc: usize) -> bool {
    (&raw const PINNED_START as usize..&raw const PINNED_STOP as usize).contains(&pc)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::{restart_stack, switch_context};

    #[test]
    fn only_functions_that_use_their_carrier_are_pinned() {
        let pinned = [call_host as *const (), take_block as *const (), give_block as *const ()];
        assert!(pinned.iter().all(|&function| is_pinned(function as usize)));
        let others = [switch_context as *const (), restart_stack as *const ()];
        assert!(others.iter().all(|&function| !is_pinned(function as usize)));
        let length = &raw const PINNED_STOP as usize - &raw const PINNED_START as usize;
        assert!(length < 400, "three small functions and the preemption stub take {length} bytes");
    }
}
