//! The context switch on x86-64 Linux. FS base is the thread pointer; GS base points to the
//! carrier.
//!
//! Layout of a saved context, from its stack pointer up. [`switch`], [`first_frame`] and
//! `registers.rs` share it: a change must be made in all three.
//!
//! ```text
//! sp + 0   mxcsr (4 bytes), x87 control word (2), unused (2)
//! sp + 8   r15
//! sp + 16  r14
//! sp + 24  r13
//! sp + 32  r12
//! sp + 40  rbx
//! sp + 48  rbp
//! sp + 56  return address
//! sp + 64  the caller's stack pointer after return (DWARF's CFA)
//! ```
//!
//! FS is written with `WRFSBASE` if the kernel allows it (AT_HWCAP2), otherwise with `arch_prctl`:
//! about 10 ns instead of 200 ns. The switch tests the byte [`FS_BY_SYSCALL`] to choose; the branch
//! has no measurable cost.
//!
//! The switch never reads a thread-local and never calls a function: it runs between two
//! identities.

use super::cfi::{pop, push};
use crate::arch::{Callback, Entry, Interrupted, SavedContext, Start};
use crate::base::environment;
use crate::carrier::Carrier;
use std::arch::{asm, naked_asm};
use std::sync::atomic::{AtomicU8, Ordering};

pub(crate) const RED_ZONE_BYTES: usize = 128;

/// Size of a saved context in bytes; see the layout above.
const CONTEXT_BYTES: usize = 64;

/// MXCSR and x87 control word of a new context: all exceptions masked, round to nearest.
const FP_CONTROL: usize = 0x037f_0000_1f80;

/// Mask of the sticky exception flags in MXCSR.
const FP_FLAGS: u32 = 0x3f;

/// 1 if FS and GS can be written only with `arch_prctl`, otherwise 0. Written only by [`init`].
pub(super) static FS_BY_SYSCALL: AtomicU8 = AtomicU8::new(0);

/// Bit of AT_HWCAP2: user code may write FS base and GS base.
const HWCAP2_FSGSBASE: u64 = 1 << 1;

const ARCH_SET_GS: i32 = 0x1001;

/// Chooses how FS is written. Called once, before the first switch. Fails if
/// [`environment::FSGSBASE`] is set to anything but `off`.
pub(crate) fn init() -> Result<(), String> {
    // SAFETY: getauxval reads the process's auxiliary vector; it has no precondition.
    let hwcap2 = unsafe { libc::getauxval(libc::AT_HWCAP2) };
    let off = match environment::FSGSBASE.read() {
        None => false,
        Some(value) if value == "off" => true,
        Some(value) => {
            return Err(format!("GOSCHED_FSGSBASE is {value:?}: set it to `off` or unset it"));
        }
    };
    if off || hwcap2 & HWCAP2_FSGSBASE == 0 {
        FS_BY_SYSCALL.store(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Saves the running context in `from` and resumes the context `to`. Returns when a later `switch`
/// resumes `from`, and returns the `message` of that switch.
///
/// The floating-point control state (`mxcsr`, x87 control word) belongs to the context. Reading it
/// is cheap and writing it is expensive, so the switch compares the states of both contexts and
/// writes only what differs. The comparison includes the sticky exception flags of `mxcsr`, so that
/// `fetestexcept` works as on a thread. The x87 status word is not preserved; the calling
/// convention does not require it.
///
/// The switch uses neither `call` nor `ret`. The CPU predicts the target of a `ret` from the calls
/// before it. A switch that does not disturb these predictions lets the CPU predict the next
/// returns correctly, provided that both contexts reached the switch through the same calls.
///
/// # Safety
/// - **to**: `to` was filled in by this function or by [`first_frame`], no other thread resumes it,
///   and its stack and its thread control block are alive.
/// - **from**: `from` is valid for writes until it is resumed; `from.thread_pointer` is the
///   caller's thread pointer.
/// - **fs**: `to.thread_pointer` points to a thread control block that this process's libc accepts
///   and that no other running context uses.
#[inline(always)]
pub unsafe fn switch(from: *mut SavedContext, to: *const SavedContext, message: usize) -> usize {
    let answer: usize;
    // SAFETY: to, from, fs — promised by the caller. `switch_context` preserves the callee-saved
    // registers and jumps back to the label with the stack pointer unchanged.
    unsafe {
        asm!(
            "lea rcx, [rip + 2f]",
            "jmp {switch_context}",
            "2:",
            switch_context = sym switch_context,
            inout("rdi") from => _,
            inout("rsi") to => _,
            inout("rdx") message => _,
            lateout("rax") answer,
            clobber_abi("C"),
        );
    }
    answer
}

/// The body of [`switch`], which jumps here with the return address in `rcx`. Public for tests,
/// which single-step through it.
///
/// # Safety
/// Same as [`switch`].
#[unsafe(naked)]
pub unsafe extern "C" fn switch_context() {
    // rdi: from, rsi: to, rdx: message (returned in rax), rcx: return address. Both stacks have the
    // same frame layout, so the CFA stays `rsp + n` when rsp changes.
    naked_asm!(
        ".cfi_startproc",
        ".cfi_def_cfa rsp, 0",
        ".cfi_register rip, rcx",
        "push rcx",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_offset rip, -8",
        push!("rbp"),
        push!("rbx"),
        push!("r12"),
        push!("r13"),
        push!("r14"),
        push!("r15"),
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        // r8: thread pointer of `from`; r9: thread pointer of `to`; r10: stack pointer of `from`.
        // The saved words at r10 stay valid: no thread resumes `from` before the code after this
        // switch allows it.
        "mov r8, [rdi + 8]",
        "mov r9, [rsi + 8]",
        "mov r10, rsp",
        "mov [rdi], rsp",
        "mov rsp, [rsi]",
        // The thread pointers are equal if a thread starts a goroutine that has no identity yet.
        "cmp r8, r9",
        "je 2f",
        "cmp byte ptr [rip + {fs_by_syscall}], 0",
        "jne 4f",
        "wrfsbase r9",
        "2:",
        "mov eax, [r10]",
        "cmp eax, [rsp]",
        "jne 5f",
        "3:",
        "mov ax, [r10 + 4]",
        "cmp ax, [rsp + 4]",
        "jne 6f",
        "7:",
        "mov rax, rdx",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        pop!("r15"),
        pop!("r14"),
        pop!("r13"),
        pop!("r12"),
        pop!("rbx"),
        pop!("rbp"),
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_register rip, rcx",
        "jmp rcx",
        // Out-of-line paths, entered with the whole frame on the stack.
        ".cfi_def_cfa rsp, 64",
        ".cfi_offset rip, -8",
        ".cfi_offset rbp, -16",
        ".cfi_offset rbx, -24",
        ".cfi_offset r12, -32",
        ".cfi_offset r13, -40",
        ".cfi_offset r14, -48",
        ".cfi_offset r15, -56",
        // arch_prctl(ARCH_SET_FS, r9) clobbers rax, rcx and r11, none of which is in use.
        "4:",
        "mov eax, 158",
        "mov edi, 0x1002",
        "mov rsi, r9",
        "syscall",
        "jmp 2b",
        "5:",
        "ldmxcsr [rsp]",
        "jmp 3b",
        // Clears the exception flags of the departing context first: `fldcw` would trap on a flag
        // that the new control word does not mask.
        "6:",
        "fnclex",
        "fldcw [rsp + 4]",
        "jmp 7b",
        ".cfi_endproc",
        fs_by_syscall = sym FS_BY_SYSCALL,
    )
}

/// Lays out the first context of the stack below `top`, so that a [`switch`] to it calls
/// `entry(message, data)`. Returns the stack pointer to store in [`SavedContext::sp`].
///
/// The new context has the default floating-point control state, not the caller's. It inherits the
/// caller's sticky exception flags, as a new thread does: contexts that start with equal flags
/// switch without a write of `mxcsr`.
///
/// # Safety
/// - **mapped**: the words below `top` belong to one live, writable stack.
/// - **quiet**: no thread runs on that stack or reads it during the call.
pub unsafe fn first_frame(top: *mut u8, entry: Entry, data: usize) -> usize {
    let cfa = top as usize & !15;
    let sp = cfa - CONTEXT_BYTES;
    let mut mxcsr = 0u32;
    // SAFETY: stores MXCSR in `mxcsr`, which is valid for writes.
    unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut mxcsr, options(nostack, preserves_flags)) };
    let words: [usize; CONTEXT_BYTES / 8] = [
        FP_CONTROL | (mxcsr & FP_FLAGS) as usize,
        0,              // r15
        0,              // r14
        entry as usize, // r13
        data,           // r12
        0,              // rbx
        0,              // rbp: ends walks by frame pointer
        root as *const () as usize + ROOT_NOP,
    ];
    // SAFETY: mapped, quiet — promised by the caller; `sp` is 16-byte aligned.
    unsafe { (sp as *mut [usize; CONTEXT_BYTES / 8]).write(words) };
    sp
}

/// Length in bytes of the `nop` at the start of [`root`].
const ROOT_NOP: usize = 1;

/// The outermost frame of a new stack. It is entered by a switch, and every backtrace ends in it.
///
/// Unwinders look up `return address - 1`. The saved address of a goroutine that has not run yet
/// points behind the `nop`, so the look-up still finds this function.
///
/// # Safety
/// - **switch**: reached only by a [`switch`] to a context of [`first_frame`], never called.
#[unsafe(naked)]
unsafe extern "C" fn root() {
    // rax: message, r12: data, r13: entry (see `first_frame`).
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "nop",
        "mov rdi, rax",
        "mov rsi, r12",
        "call r13",
        "ud2",
        ".cfi_endproc",
    )
}

/// Restarts the stack at `top` with `start(data)` and the thread pointer `fs`.
///
/// A new goroutine changes from the carrier's thread pointer to its own in this way. The frames
/// that built the identity ran with the carrier's thread pointer; they are discarded, and control
/// never returns to them.
///
/// # Safety
/// - **mapped**: as for [`first_frame`]; `top` is on the stack that the caller runs on, above every
///   frame, and no frame below it holds a value that must be dropped.
/// - **fs**: as for [`switch`].
#[unsafe(naked)]
pub unsafe extern "C" fn restart_stack(top: *mut u8, fs: usize, start: Start, data: usize) -> ! {
    // rdi: top, rsi: fs, rdx: start, rcx: data.
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "and rdi, -16",
        "mov rsp, rdi",
        "xor ebp, ebp",
        "mov r12, rcx",
        "mov r13, rdx",
        "cmp byte ptr [rip + {fs_by_syscall}], 0",
        "jne 2f",
        "wrfsbase rsi",
        "3:",
        "mov rdi, r12",
        "call r13",
        "ud2",
        "2:",
        "mov eax, 158", // arch_prctl(ARCH_SET_FS, rsi)
        "mov edi, 0x1002",
        "syscall",
        "jmp 3b",
        ".cfi_endproc",
        fs_by_syscall = sym FS_BY_SYSCALL,
    )
}

/// Calls `f(data)` on the stack below `top`, then returns. The thread pointer does not change.
///
/// # Safety
/// - **mapped**, **quiet**: `top` is the end of a writable stack that nothing else uses during the
///   call.
/// - **callback**: `f` may be called with `data` and does not unwind.
#[unsafe(naked)]
pub unsafe extern "C" fn call_on_stack(top: *mut u8, f: Callback, data: *mut u8) {
    // rdi: top, rsi: f, rdx: data. rbp keeps the caller's stack pointer, for the return and for
    // unwinders.
    naked_asm!(
        ".cfi_startproc",
        push!("rbp"),
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "and rdi, -16",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        ".cfi_def_cfa_register rsp",
        pop!("rbp"),
        "ret",
        ".cfi_endproc",
    )
}

/// Returns the caller's thread pointer. (The x86-64 thread-local ABI stores it in word 0 of the
/// block that it points to.)
#[inline(always)]
pub(crate) fn thread_pointer() -> usize {
    let tp: usize;
    // SAFETY: reads a word that the ABI guarantees. Not `pure`, so never moved across a switch.
    unsafe { asm!("mov {}, fs:[0]", out(reg) tp, options(nostack, preserves_flags, readonly)) };
    tp
}

/// Returns the carrier of the calling thread.
///
/// # Safety
/// - **carried**: the caller's [`role`](crate::carrier::role) is not `Foreign`, or
///   [`is_attached`](crate::carrier::is_attached) returns `true`. (`clone` copies GS to threads
///   that have no carrier, and on a thread that never had a carrier, GS does not point to one.)
#[inline(always)]
pub unsafe fn carrier() -> *const Carrier {
    let carrier: *const Carrier;
    // SAFETY: reads the first field of the carrier that GS points to, which holds the carrier's own
    // address. Not `pure`, see `arch`.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) carrier, options(nostack, preserves_flags, readonly));
    }
    carrier
}

/// Increments the preempt-disable count of the calling thread's carrier. While the count is not 0,
/// the code that runs on this thread is neither stopped nor moved to another thread.
///
/// The increment is one instruction. A signal arrives before it or after it, so the increment
/// always applies to the thread that executes it.
///
/// # Safety
/// - **carried**: as for [`carrier`].
#[inline(always)]
pub unsafe fn preempt_disable() {
    // SAFETY: changes a word of the carrier. Not `nomem`, so no memory access is moved across it.
    unsafe { asm!("inc dword ptr gs:[16]", options(nostack)) };
}

/// Decrements the preempt-disable count of the calling thread's carrier. Returns whether a
/// preemption request is pending; the caller must then check whether the count is 0.
///
/// The request is read *after* the decrement: a request made before the read is seen here, and the
/// sender of a later request finds the decremented count.
///
/// # Safety
/// - **carried**: as for [`carrier`].
/// - **counted**: [`preempt_disable`] was called on this thread and has not been undone.
#[inline(always)]
pub unsafe fn preempt_enable() -> bool {
    let pending: u32;
    // SAFETY: counted — promised by the caller; both words belong to the carrier.
    unsafe {
        asm!(
            "dec dword ptr gs:[16]",
            "mov {:e}, dword ptr gs:[20]",
            out(reg) pending,
            options(nostack)
        );
    }
    pending != 0
}

/// Returns the preempt-disable count of the calling thread's carrier. The read is one instruction,
/// as in [`preempt_disable`]. If the count is not 0, the caller is not moved to another thread
/// until the count is 0 again.
///
/// # Safety
/// - **carried**: as for [`carrier`].
#[inline(always)]
pub unsafe fn preempt_disable_count() -> u32 {
    let count: u32;
    // SAFETY: reads a word of the carrier.
    unsafe {
        asm!("mov {:e}, dword ptr gs:[16]", out(reg) count, options(nostack, preserves_flags, readonly));
    }
    count
}

/// Makes [`carrier`] return `carrier` on the calling thread. Returns `false` if the system refuses.
///
/// # Safety
/// - **alive**: `*carrier` stays at its address until this thread ends or calls [`clear_carrier`].
pub(crate) unsafe fn set_carrier(carrier: *const Carrier) -> bool {
    set_gs(carrier as usize)
}

/// Undoes [`set_carrier`]. Returns `false` if the system refuses.
pub(crate) fn clear_carrier() -> bool {
    set_gs(0)
}

fn set_gs(base: usize) -> bool {
    if FS_BY_SYSCALL.load(Ordering::Relaxed) == 0 {
        // SAFETY: `init` found that FSGSBASE is available; nothing else in the process uses GS.
        unsafe { asm!("wrgsbase {}", in(reg) base, options(nostack, preserves_flags)) };
        return true;
    }
    // SAFETY: sets this thread's GS base; nothing else in the process uses GS.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, base) == 0 }
}

/// CPU exception number of a general-protection fault, such as an access to a non-canonical
/// address.
const GENERAL_PROTECTION: i64 = 13;

/// Reads the registers of the interrupted code from the third argument of a signal handler.
///
/// # Safety
/// - **context**: `context` is the context that the kernel passed to an `SA_SIGINFO` handler.
pub(crate) unsafe fn read_interrupted(context: *const libc::c_void) -> Interrupted {
    // SAFETY: context — promised by the caller.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    let registers = &context.uc_mcontext.gregs;
    Interrupted {
        pc: registers[libc::REG_RIP as usize] as usize,
        sp: registers[libc::REG_RSP as usize] as usize,
        is_general_protection: registers[libc::REG_TRAPNO as usize] == GENERAL_PROTECTION,
    }
}
