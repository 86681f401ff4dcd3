//! Asynchronous preemption: a signal handler makes the interrupted code continue in a stub. The
//! stub runs on the stack of the interrupted code. It saves every register, calls the runtime,
//! restores the registers and resumes the code. During the call the code can be switched away like
//! any other context, and another thread may resume it. The kernel's signal frame is not part of
//! this: the handler has returned from it before the stub runs.
//!
//! What the stub stores on the stack, from the interrupted stack pointer down:
//!
//! ```text
//! sp - 128          the red zone, which the code may be using
//! sp - 136          address of the interrupted instruction
//! sp - 144          flags
//! sp - 152 ... 264  rax rcx rdx rbx rbp rsi rdi r8 ... r15
//! below             vector and x87 state, 64-byte aligned
//! ```
//!
//! The functions that the signal handler calls (`can_be_saved`, `is_at_system_call`, `redirect`)
//! never allocate and never take a lock.

use super::cfi::{pop, push};
use super::switch::RED_ZONE_BYTES;
use std::arch::{asm, naked_asm, x86_64::__cpuid_count};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Bit mask of the state that the stub saves with XSAVE: x87, SSE, AVX and the three parts of
/// AVX-512, as far as the system supports them. 0 if the stub cannot save the state.
static XSAVE_FEATURES: AtomicU32 = AtomicU32::new(0);

/// Size of the XSAVE area for this state, in bytes.
static XSAVE_AREA_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Address of the function that the stub calls. The stub calls it with preemption off, and it
/// returns with preemption on.
static PREEMPT_CALL: AtomicUsize = AtomicUsize::new(0);

const SUPPORTED_XSAVE_FEATURES: u64 = 0xe7;
const AVX: u32 = 1 << 2;
/// Protection keys. They belong to the thread, so the stub does not save them.
const XSAVE_PKRU: u64 = 1 << 9;
/// Size in bytes of the x87 and SSE state and of the XSAVE header that follows it.
const XSAVE_LEGACY_BYTES: usize = 576;

/// Makes the stub call `then`, and determines which state the stub must save. Called once, before
/// the first [`redirect`].
pub(crate) fn init_async_preempt(then: unsafe extern "C" fn()) {
    PREEMPT_CALL.store(then as usize, Ordering::Relaxed);
    const OSXSAVE: u32 = 1 << 27;
    if __cpuid_count(1, 0).ecx & OSXSAVE == 0 {
        return;
    }
    let (low, high): (u32, u32);
    // SAFETY: OSXSAVE is set, so `xgetbv` is available.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack))
    };
    let parts = (u64::from(high) << 32 | u64::from(low)) & SUPPORTED_XSAVE_FEATURES;
    let end = |part: u32| {
        let found = __cpuid_count(0xd, part);
        (found.ebx + found.eax) as usize
    };
    let bytes =
        (2..8).filter(|part| parts >> part & 1 == 1).map(end).fold(XSAVE_LEGACY_BYTES, usize::max);
    XSAVE_AREA_BYTES.store(bytes.next_multiple_of(64), Ordering::Relaxed);
    XSAVE_FEATURES.store(parts as u32, Ordering::Relaxed);
}

/// Returns how many bytes of stack the stub needs, in addition to the function that it calls.
/// Returns `None` if asynchronous preemption is not supported on this system.
pub(crate) fn async_preempt_frame_bytes() -> Option<usize> {
    (XSAVE_FEATURES.load(Ordering::Relaxed) != 0).then(|| {
        // The picture at the top of this file, and up to 64 bytes of alignment.
        RED_ZONE_BYTES + 136 + 64 + XSAVE_AREA_BYTES.load(Ordering::Relaxed)
    })
}

/// Returns whether the stub can save all of the interrupted code's registers.
///
/// # Safety
/// - **context**: `context` is the context that the kernel passed to an `SA_SIGINFO` handler.
pub(crate) unsafe fn can_be_saved(context: *const libc::c_void) -> bool {
    const MAGIC: u32 = 0x4650_5853;
    // SAFETY: context — promised by the caller.
    let state = unsafe { &*context.cast::<libc::ucontext_t>() }.uc_mcontext.fpregs.cast::<u8>();
    if state.is_null() {
        return true;
    }
    // SAFETY: context — the kernel's copy of the x87 and SSE state has 512 bytes.
    let magic = unsafe { state.add(464) }.cast::<u32>();
    // SAFETY: context — as above.
    let magic = unsafe { magic.read_unaligned() };
    if magic != MAGIC {
        return true;
    }
    // SAFETY: context — by the magic number, an XSAVE header follows the 512 bytes.
    let in_use = unsafe { state.add(512) }.cast::<u64>();
    // SAFETY: context — as above.
    let in_use = unsafe { in_use.read_unaligned() };
    in_use & !(u64::from(XSAVE_FEATURES.load(Ordering::Relaxed)) | XSAVE_PKRU) == 0
}

/// Returns whether code at `pc` is about to make a system call or has just made one. The kernel may
/// have to restart such a call, which it must do on the same thread.
///
/// # Safety
/// - **text**: the two bytes before `pc` and the two bytes at `pc` are readable code.
pub(crate) unsafe fn is_at_system_call(pc: usize) -> bool {
    // SAFETY: text — promised by the caller.
    let around = unsafe { ((pc - 2) as *const [u8; 4]).read_unaligned() };
    let syscall = [0x0f, 0x05];
    around[..2] == syscall || around[2..] == syscall
}

/// Makes the signal handler return into the stub instead of the interrupted code.
///
/// # Safety
/// - **context**: as for [`can_be_saved`].
/// - **room**: the stack of the interrupted code has room below its stack pointer for
///   [`async_preempt_frame_bytes`] bytes and for the function that the stub calls.
pub(crate) unsafe fn redirect(context: *mut libc::c_void) {
    // SAFETY: context — promised by the caller.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let sp = registers[libc::REG_RSP as usize] as usize - RED_ZONE_BYTES - 8;
    // SAFETY: room — promised by the caller.
    unsafe { (sp as *mut i64).write(registers[libc::REG_RIP as usize]) };
    registers[libc::REG_RSP as usize] = sp as i64;
    registers[libc::REG_RIP as usize] = async_preempt as *const () as i64;
}

/// The stub; see the top of this file.
///
/// # Safety
/// - **redirect**: reached only through [`redirect`], never called.
#[unsafe(naked)]
#[unsafe(link_section = "gosched_pinned")]
unsafe extern "C" fn async_preempt() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_signal_frame",
        ".cfi_def_cfa rsp, 136",
        ".cfi_offset rip, -136",
        "pushfq",
        ".cfi_adjust_cfa_offset 8",
        push!("rax"),
        push!("rcx"),
        push!("rdx"),
        push!("rbx"),
        push!("rbp"),
        push!("rsi"),
        push!("rdi"),
        push!("r8"),
        push!("r9"),
        push!("r10"),
        push!("r11"),
        push!("r12"),
        push!("r13"),
        push!("r14"),
        push!("r15"),
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "cld",
        "sub rsp, [rip + {bytes}]",
        "and rsp, -64",
        // XSAVE requires a header of zeros.
        "xor eax, eax",
        "mov [rsp + 512], rax",
        "mov [rsp + 520], rax",
        "mov [rsp + 528], rax",
        "mov [rsp + 536], rax",
        "mov [rsp + 544], rax",
        "mov [rsp + 552], rax",
        "mov [rsp + 560], rax",
        "mov [rsp + 568], rax",
        "mov eax, [rip + {parts}]",
        "xor edx, edx",
        "xsave64 [rsp]",
        // Code that runs before the registers are restored must find the x87 stack empty and the
        // upper halves of the vector registers unused.
        "fninit",
        "test byte ptr [rip + {parts}], {avx}",
        "jz 2f",
        "vzeroupper",
        "2:",
        "call [rip + {then}]",
        "mov eax, [rip + {parts}]",
        "xor edx, edx",
        "xrstor64 [rsp]",
        "mov rsp, rbp",
        ".cfi_def_cfa_register rsp",
        pop!("r15"),
        pop!("r14"),
        pop!("r13"),
        pop!("r12"),
        pop!("r11"),
        pop!("r10"),
        pop!("r9"),
        pop!("r8"),
        pop!("rdi"),
        pop!("rsi"),
        pop!("rbp"),
        pop!("rbx"),
        pop!("rdx"),
        pop!("rcx"),
        pop!("rax"),
        "popfq",
        ".cfi_adjust_cfa_offset -8",
        // Returns, and also removes the red zone's 128 bytes from the stack.
        "ret 128",
        ".cfi_endproc",
        bytes = sym XSAVE_AREA_BYTES,
        parts = sym XSAVE_FEATURES,
        then = sym PREEMPT_CALL,
        avx = const AVX,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_call_is_recognized_before_and_after_its_instruction() {
        let code: [u8; 10] = [0x90, 0x90, 0x90, 0x90, 0x0f, 0x05, 0x90, 0x90, 0x90, 0x90];
        let seen: Vec<usize> = (2..=8)
            // SAFETY: text — all four bytes lie in `code`.
            .filter(|&at| unsafe { is_at_system_call(code.as_ptr() as usize + at) })
            .collect();
        assert_eq!(seen, [4, 6]);
    }
}
