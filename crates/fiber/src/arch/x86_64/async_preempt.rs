//! Code that a signal interrupted goes on in a stub instead, on its own stack: it saves every register,
//! calls the runtime, and goes back to where the code was. The code can be switched away there like any
//! other, and resumed by another thread; the kernel's signal frame stays where it was made.
//!
//! What the stub leaves on the stack, from the interrupted stack pointer down:
//!
//! ```text
//! sp - 128          the red zone, which the code may be using
//! sp - 136          where it was
//! sp - 144          flags
//! sp - 152 ... 264  rax rcx rdx rbx rbp rsi rdi r8 ... r15
//! below             vector and x87 state, 64-byte aligned
//! ```

use super::cfi::{pop, push};
use super::switch::RED_ZONE_BYTES;
use std::arch::{asm, naked_asm, x86_64::__cpuid_count};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// What XSAVE saves: x87, SSE, AVX and the three parts of AVX-512, where there are. 0: nothing can be saved.
static XSAVE_FEATURES: AtomicU32 = AtomicU32::new(0);

/// How many bytes that takes.
static XSAVE_AREA_BYTES: AtomicUsize = AtomicUsize::new(0);

/// What the stub calls, with preemption off; it returns with preemption on.
static PREEMPT_CALL: AtomicUsize = AtomicUsize::new(0);

const SUPPORTED_XSAVE_FEATURES: u64 = 0xe7;
const AVX: u32 = 1 << 2;
/// Protection keys are the thread's.
const XSAVE_PKRU: u64 = 1 << 9;
/// x87 and SSE, and the header that follows.
const XSAVE_LEGACY_BYTES: usize = 576;

/// Finds out what there is to save. Called once, before the first [`redirect`].
pub(crate) fn init_async_preempt(then: unsafe extern "C" fn()) {
    PREEMPT_CALL.store(then as usize, Ordering::Relaxed);
    const OSXSAVE: u32 = 1 << 27;
    if __cpuid_count(1, 0).ecx & OSXSAVE == 0 {
        return;
    }
    let (low, high): (u32, u32);
    // SAFETY: OSXSAVE says that it is there.
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

/// How much stack the stub takes, beside what it calls; `None`: there is no such way.
pub(crate) fn async_preempt_frame_bytes() -> Option<usize> {
    (XSAVE_FEATURES.load(Ordering::Relaxed) != 0).then(|| {
        // The picture above, and what aligning it takes.
        RED_ZONE_BYTES + 136 + 64 + XSAVE_AREA_BYTES.load(Ordering::Relaxed)
    })
}

/// Whether all that the interrupted code has in registers can be saved by the stub.
///
/// # Safety
/// - **context**: `context` is what the kernel passed to an `SA_SIGINFO` handler.
pub(crate) unsafe fn can_be_saved(context: *const libc::c_void) -> bool {
    const MAGIC: u32 = 0x4650_5853;
    // SAFETY: context — promised by the caller.
    let state = unsafe { &*context.cast::<libc::ucontext_t>() }.uc_mcontext.fpregs.cast::<u8>();
    if state.is_null() {
        return true;
    }
    // SAFETY: context — the kernel's picture of the state has so many bytes.
    let magic = unsafe { state.add(464) }.cast::<u32>();
    // SAFETY: context — as above.
    let magic = unsafe { magic.read_unaligned() };
    if magic != MAGIC {
        return true;
    }
    // SAFETY: context — the magic says that there is more.
    let in_use = unsafe { state.add(512) }.cast::<u64>();
    // SAFETY: context — as above.
    let in_use = unsafe { in_use.read_unaligned() };
    in_use & !(u64::from(XSAVE_FEATURES.load(Ordering::Relaxed)) | XSAVE_PKRU) == 0
}

/// Whether code at `pc` is about to make a system call, or has just made one: the kernel may have to begin
/// it again, on the same thread.
///
/// # Safety
/// - **text**: two bytes before and two bytes from `pc` on are code that can be read.
pub(crate) unsafe fn is_at_system_call(pc: usize) -> bool {
    // SAFETY: text — promised by the caller.
    let around = unsafe { ((pc - 2) as *const [u8; 4]).read_unaligned() };
    let syscall = [0x0f, 0x05];
    around[..2] == syscall || around[2..] == syscall
}

/// When the handler returns, the stub runs instead of the interrupted code.
///
/// # Safety
/// - **context**: as for [`can_be_saved`].
/// - **room**: the interrupted code's stack has [`async_preempt_frame_bytes`] bytes below its stack pointer, and what the
///   call takes.
pub(crate) unsafe fn redirect(context: *mut libc::c_void) {
    // SAFETY: context — promised by the caller.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let sp = registers[libc::REG_RSP as usize] as usize - RED_ZONE_BYTES - 8;
    // SAFETY: room — promised by the caller.
    unsafe { (sp as *mut i64).write(registers[libc::REG_RIP as usize]) };
    registers[libc::REG_RSP as usize] = sp as i64;
    registers[libc::REG_RIP as usize] = async_preempt as *const () as i64;
}

/// See the top of this file.
///
/// # Safety
/// - **redirect**: reached by [`redirect`], never called.
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
        // XSAVE wants its header zero.
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
        // Others are to find the x87 stack empty, and no upper halves in use.
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
        // Over the red zone, too.
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
    fn a_system_call_is_seen_from_both_sides() {
        let code: [u8; 10] = [0x90, 0x90, 0x90, 0x90, 0x0f, 0x05, 0x90, 0x90, 0x90, 0x90];
        let seen: Vec<usize> = (2..=8)
            // SAFETY: text — bytes of our own.
            .filter(|&at| unsafe { is_at_system_call(code.as_ptr() as usize + at) })
            .collect();
        assert_eq!(seen, [4, 6]);
    }
}
