//! x86-64 on Linux: FS base is the thread pointer, GS base finds the carrier.
//!
//! A saved context, from its stack pointer up (one picture for [`switch`], [`first_frame`] and
//! `registers.rs`; a change here is a change in all three):
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
//! FS is written by `WRFSBASE` where the kernel allows it (AT_HWCAP2), else by `arch_prctl`: about
//! ten against two hundred nanoseconds. [`FS_BY_SYSCALL`] is a byte tested in the switch; the
//! branch costs nothing measurable.

use super::cfi::{pop, push};
use crate::arch::{Callback, Entry, Interrupted, SavedContext, Start};
use crate::carrier::Carrier;
use std::arch::{asm, naked_asm};
use std::sync::atomic::{AtomicU8, Ordering};

pub(crate) const RED_ZONE_BYTES: usize = 128;

/// Size of a saved context: the picture above.
const CONTEXT_BYTES: usize = 64;

/// MXCSR and x87 control word of a fresh context: all exceptions masked, round to nearest.
const FP_CONTROL: usize = 0x037f_0000_1f80;

/// The sticky exception flags of MXCSR.
const FP_FLAGS: u32 = 0x3f;

/// 1 when FS and GS can only be written by `arch_prctl`.
pub(super) static FS_BY_SYSCALL: AtomicU8 = AtomicU8::new(0);

/// `GOSCHED_FSGSBASE=off` forces `arch_prctl`, so that tests run both ways.
const FSGSBASE_ENV: &str = "GOSCHED_FSGSBASE";

/// AT_HWCAP2 bit: user code may write FS and GS base.
const HWCAP2_FSGSBASE: u64 = 1 << 1;

const ARCH_SET_GS: i32 = 0x1001;

/// Chooses how FS is written. Called once, before the first switch.
pub(crate) fn init() -> Result<(), String> {
    // SAFETY: getauxval reads the process's auxiliary vector; it has no precondition.
    let hwcap2 = unsafe { libc::getauxval(libc::AT_HWCAP2) };
    let off = match std::env::var_os(FSGSBASE_ENV) {
        None => false,
        Some(value) if value == "off" => true,
        Some(value) => {
            return Err(format!("{FSGSBASE_ENV} is {value:?}: it may be `off` or unset"));
        }
    };
    if off || hwcap2 & HWCAP2_FSGSBASE == 0 {
        FS_BY_SYSCALL.store(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Leaves the running context in `from` and takes up `to`; returns, on the other side, what that
/// side's own call of `switch` returns: the `message` of whoever switched to it.
///
/// The floating-point control state (`mxcsr`, x87 control word) belongs to the context. Reading it
/// is cheap and writing it is not, so it is compared and written only where the two differ. The
/// sticky exception flags of `mxcsr` are compared too: `fetestexcept` answers as on a thread. The
/// x87 status word is not kept (the calling convention does not promise it).
///
/// Neither `call` nor `ret`: the CPU guesses where a `ret` goes by the calls before it. A switch that
/// leaves that list alone lets the returns after it be guessed right, where both sides came the same
/// way.
///
/// # Safety
/// - **to**: `to` was filled by this function or by [`first_frame`], nobody else resumes it, and its
///   stack and thread pointer are alive.
/// - **from**: `from` is valid for writes until it is resumed; `from.thread_pointer` is the
///   caller's own.
/// - **fs**: `to.thread_pointer` is a thread control block this process's libc accepts, used by no
///   other running context.
#[inline(always)]
pub unsafe fn switch(from: *mut SavedContext, to: *const SavedContext, message: usize) -> usize {
    let answer: usize;
    // SAFETY: to, from, fs — promised by the caller. `switch_context` keeps the callee-saved registers
    // and comes back to the label with the stack pointer as it was.
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

/// The body of [`switch`], jumped to with the return address in `rcx`. Public for tests, which step
/// through it.
///
/// # Safety
/// As [`switch`].
#[unsafe(naked)]
pub unsafe extern "C" fn switch_context() {
    // rdi: from, rsi: to, rdx: message (goes to rax), rcx: where to return to.
    // The frame's layout is the same on both stacks, so the CFA stays `rsp + n` across the change.
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
        // r8, r9: the two thread pointers; r10: the departing context, nobody else's until the
        // code after this switch says so.
        "mov r8, [rdi + 8]",
        "mov r9, [rsi + 8]",
        "mov r10, rsp",
        "mov [rdi], rsp",
        "mov rsp, [rsi]",
        // Nothing to write when a thread starts a goroutine that has no identity yet.
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
        // Out of line, entered with the whole frame on the stack.
        ".cfi_def_cfa rsp, 64",
        ".cfi_offset rip, -8",
        ".cfi_offset rbp, -16",
        ".cfi_offset rbx, -24",
        ".cfi_offset r12, -32",
        ".cfi_offset r13, -40",
        ".cfi_offset r14, -48",
        ".cfi_offset r15, -56",
        // arch_prctl(ARCH_SET_FS, r9) clobbers rax, rcx, r11: none is in use.
        "4:",
        "mov eax, 158",
        "mov edi, 0x1002",
        "mov rsi, r9",
        "syscall",
        "jmp 2b",
        "5:",
        "ldmxcsr [rsp]",
        "jmp 3b",
        // A flag that the departing side left, unmasked by this control word, would trap here.
        "6:",
        "fnclex",
        "fldcw [rsp + 4]",
        "jmp 7b",
        ".cfi_endproc",
        fs_by_syscall = sym FS_BY_SYSCALL,
    )
}

/// Lays out the first context of a stack below `top`, so that a [`switch`] to it calls
/// `entry(message, data)`. Returns the stack pointer to put into [`SavedContext::sp`].
///
/// Its floating-point control state is the default, not the caller's. The sticky exception flags are
/// the caller's, as a thread inherits them: contexts that start out alike switch without a write.
///
/// # Safety
/// - **mapped**: the words below `top` belong to one live, writable stack.
/// - **quiet**: no thread runs on, or reads, that stack during the call.
pub unsafe fn first_frame(top: *mut u8, entry: Entry, data: usize) -> usize {
    let cfa = top as usize & !15;
    let sp = cfa - CONTEXT_BYTES;
    let mut mxcsr = 0u32;
    // SAFETY: stores the register; `mxcsr` is valid for writes.
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

/// Length of the `nop` that opens [`root`].
const ROOT_NOP: usize = 1;

/// The frame at the bottom of every goroutine: started by a switch, ends every backtrace.
///
/// Unwinders look up `return address - 1`, hence the `nop`: a goroutine that has not run yet has
/// its address just behind it, and is still found in this function.
///
/// # Safety
/// - **switch**: reached by [`switch`] to a context of [`first_frame`], never called.
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

/// Starts the stack at `top` over, on the thread pointer `fs`, with `start(data)`.
///
/// The way from the carrier's thread pointer to the goroutine's own: the frames that built the
/// identity ran with the carrier's and are dropped, never to be returned to.
///
/// # Safety
/// - **mapped**: as for [`first_frame`]; `top` is on the stack the caller runs on, above every frame,
///   and no frame below it holds anything that has to be dropped.
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

/// Calls `f(data)` on the stack below `top` and comes back. The thread pointer stays.
///
/// # Safety
/// - **mapped**, **quiet**: `top` ends a writable stack that nothing else uses during the call.
/// - **callback**: `f` does not unwind, and may be called with `data`.
#[unsafe(naked)]
pub unsafe extern "C" fn call_on_stack(top: *mut u8, f: Callback, data: *mut u8) {
    // rdi: top, rsi: f, rdx: data. rbp keeps the way back, and unwinders find it there.
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

/// The thread pointer the caller runs with. (Word 0 of the block it points at is its own address:
/// the x86-64 thread-local ABI.)
#[inline(always)]
pub(crate) fn thread_pointer() -> usize {
    let tp: usize;
    // SAFETY: reads one word that the ABI puts there; not `pure`, so never moved over a switch.
    unsafe { asm!("mov {}, fs:[0]", out(reg) tp, options(nostack, preserves_flags, readonly)) };
    tp
}

/// The carrier this thread runs for.
///
/// # Safety
/// - **carried**: the caller's [`role`](crate::carrier::role) is not `Foreign`. (`clone` copies GS to
///   threads that have no carrier, and a thread that never had one has nothing there.)
#[inline(always)]
pub unsafe fn carrier() -> *const Carrier {
    let carrier: *const Carrier;
    // SAFETY: reads the word that `set_carrier` put there: the carrier's first field is its own
    // address; not `pure`, see `arch`.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) carrier, options(nostack, preserves_flags, readonly));
    }
    carrier
}

/// One more reason not to stop or move the code that runs on this thread. One instruction: a signal
/// comes before it or after it, so the count is always that of the thread it is made on.
///
/// # Safety
/// - **carried**: as for [`carrier`].
#[inline(always)]
pub unsafe fn preempt_disable() {
    // SAFETY: the carrier's own word; not `nomem`, so nothing is moved over it.
    unsafe { asm!("inc dword ptr gs:[16]", options(nostack)) };
}

/// One reason less. True if somebody waits for the last one to go: the caller then looks whether
/// it was.
///
/// The request is looked at *after* the count: one that comes before is seen, and one that comes
/// later finds the count as it is now.
///
/// # Safety
/// - **carried**: as for [`carrier`].
/// - **counted**: [`preempt_disable`] was called on this thread, and not yet undone.
#[inline(always)]
pub unsafe fn preempt_enable() -> bool {
    let pending: u32;
    // SAFETY: counted — promised by the caller; the carrier's own words.
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

/// How many reasons there are right now. One instruction, as in [`preempt_disable`]; where it is not 0 the
/// caller is not moved before the last is gone.
///
/// # Safety
/// - **carried**: as for [`carrier`].
#[inline(always)]
pub unsafe fn preempt_disable_count() -> u32 {
    let count: u32;
    // SAFETY: the carrier's own word.
    unsafe {
        asm!("mov {:e}, dword ptr gs:[16]", out(reg) count, options(nostack, preserves_flags, readonly));
    }
    count
}

/// Makes `carrier` what [`carrier`] finds on this thread. False if the system refuses.
///
/// # Safety
/// - **alive**: `*carrier` stays where it is until this thread ends or [`clear_carrier`] is called.
pub(crate) unsafe fn set_carrier(carrier: *const Carrier) -> bool {
    set_gs(carrier as usize)
}

/// Takes back [`set_carrier`].
pub(crate) fn clear_carrier() -> bool {
    set_gs(0)
}

fn set_gs(base: usize) -> bool {
    if FS_BY_SYSCALL.load(Ordering::Relaxed) == 0 {
        // SAFETY: FSGSBASE was checked in `init`; nothing else in the process uses GS.
        unsafe { asm!("wrgsbase {}", in(reg) base, options(nostack, preserves_flags)) };
        return true;
    }
    // SAFETY: sets this thread's GS base; nothing else in the process uses GS.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, base) == 0 }
}

/// The CPU's number for a fault without an address, such as an address that cannot exist.
const GENERAL_PROTECTION: i64 = 13;

/// Reads the interrupted registers out of a signal handler's third argument.
///
/// # Safety
/// - **context**: `context` is what the kernel passed to an `SA_SIGINFO` handler.
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
