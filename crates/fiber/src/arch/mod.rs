//! Machine-dependent code: the context switch, the first frame of a stack, and the registers that
//! stack walks start from. One folder per CPU.
//!
//! **What a port provides.** The items listed under "contract" below. The compiler checks their
//! types, so a port that lacks an item fails to build with that item's name. A port must also meet
//! these requirements, which types cannot express:
//!
//! - [`switch`] saves everything that the C calling convention requires a callee to preserve (the
//!   callee-saved registers and the floating-point control state) on the departing stack, stores
//!   the stack pointer in `from`, loads the stack pointer from `to`, and *then* writes the thread
//!   pointer. It is symmetric: the same function switches between goroutines, from a thread to a
//!   goroutine, and back.
//! - **One frame, one thread pointer.** The compiler assumes that the address of a thread-local is
//!   constant within a function. Therefore only assembly writes the thread pointer, in functions
//!   whose caller cannot observe the change: either the caller's value is restored before control
//!   returns to the caller ([`switch`], [`call_host`]), or control never returns
//!   ([`restart_stack`]). No Rust function may write the thread pointer, neither here nor in a
//!   crate above.
//! - Unwind tables are correct at every instruction. Every backtrace ends in the frame that
//!   [`first_frame`] lays out or in [`restart_stack`]. A context saved by [`switch`] begins with
//!   [`SAVED_WORDS`] words that [`registers_of_context`] decodes. They are enough to walk the
//!   stack, and the walk writes nothing to it.
//! - [`call_host`], [`take_block`] and [`give_block`] read the carrier and then use it: code that
//!   is interrupted inside them must resume on the same thread. They lie in one section, and
//!   [`is_pinned`] returns whether an address lies in it.
//! - [`redirect`] makes a signal handler return into a stub. The stub saves the state that
//!   [`can_be_saved`] has checked, calls the function given to [`init_async_preempt`], and resumes
//!   the interrupted code.
//! - Assembly that reads the register of the carrier ([`carrier`]) is never `pure`: between two
//!   reads, a goroutine may move to another thread.
//!
//! A port never decides which context runs next: the caller of [`switch`] does.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[path = "x86_64/mod.rs"]
mod imp;

pub(crate) use imp::{
    CALLEE_SAVED, Effect, FP, Instruction, PC, SP, Target, async_preempt_frame_bytes, can_be_saved,
    clear_carrier, decode, init_async_preempt, is_at_system_call, read_interrupted, redirect,
    registers_of_signal, set_carrier, thread_pointer,
};
pub use imp::{
    PC_INDEX, REGISTER_NAMES, SAVED_WORDS, all_registers, call_host, call_on_stack,
    capture_registers, carrier, first_frame, give_block, is_pinned, preempt_disable,
    preempt_disable_count, preempt_enable, registers_of_context, restart_stack, switch,
    switch_context, take_block,
};

use crate::carrier::Carrier;

/// Saved state of a context that is not running. [`switch`] fills it in and resumes from it.
#[repr(C)]
#[derive(Debug)]
pub struct SavedContext {
    /// Stack pointer. The port defines the layout of the words that it points to.
    pub sp: usize,
    /// Thread pointer that the context runs with (FS base on x86-64). Constant for the lifetime of
    /// a thread, and for a goroutine from the time its identity exists.
    pub thread_pointer: usize,
}

impl SavedContext {
    /// Returns a context that has never been saved. The first [`switch`] away from it fills it in.
    ///
    /// `thread_pointer` is the thread pointer of the code that calls this `switch`.
    pub const fn empty(thread_pointer: usize) -> SavedContext {
        SavedContext { sp: 0, thread_pointer }
    }

    /// Returns an empty context with the caller's thread pointer. The caller's own [`switch`] fills
    /// it in.
    pub fn for_caller() -> SavedContext {
        SavedContext::empty(thread_pointer())
    }
}

/// Registers that a stack walk starts from: program counter, stack pointer, and the registers that
/// the calling convention requires callees to preserve.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// Callee-saved registers; [`CALLEE_SAVED`] has their DWARF numbers.
    pub callee_saved: [usize; 6],
    /// Program counter: the address where the code is, or where it will resume.
    pub pc: usize,
    /// Stack pointer at `pc`.
    pub sp: usize,
}

/// Function that runs first on a new stack. Receives the message of the switch that started the
/// stack, and the word given to [`first_frame`]. Must not return or unwind.
pub type Entry = unsafe extern "C" fn(message: usize, data: usize) -> !;

/// Function that [`restart_stack`] runs with the goroutine's own thread pointer. Must not return or
/// unwind.
pub type Start = unsafe extern "C" fn(data: usize) -> !;

/// Function that [`call_host`] and [`call_on_stack`] call. Must not unwind.
pub type Callback = unsafe extern "C" fn(data: *mut u8);

/// Registers of code that a signal interrupted: those that fault reports and preemption need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interrupted {
    /// Address of the interrupted instruction.
    pub(crate) pc: usize,
    /// Stack pointer at that instruction.
    pub(crate) sp: usize,
    /// Whether the signal reports a general-protection fault, for which the CPU provides no
    /// address.
    pub(crate) is_general_protection: bool,
}

// The contract: every port provides these items.
const _: unsafe fn(*mut SavedContext, *const SavedContext, usize) -> usize = imp::switch;
const _: unsafe fn(*mut u8, Entry, usize) -> usize = imp::first_frame;
const _: unsafe extern "C" fn(*mut u8, usize, Start, usize) -> ! = imp::restart_stack;
const _: unsafe extern "C" fn(Callback, *mut u8) = imp::call_host;
const _: unsafe extern "C" fn(*mut u8, Callback, *mut u8) = imp::call_on_stack;
const _: unsafe extern "C" fn(usize) -> *mut u8 = imp::take_block;
const _: unsafe extern "C" fn(usize, *mut u8) -> bool = imp::give_block;
const _: fn(usize) -> bool = imp::is_pinned;
const _: unsafe fn(*const libc::c_void) -> Interrupted = imp::read_interrupted;
const _: fn() -> usize = imp::thread_pointer;
const _: unsafe fn() -> *const Carrier = imp::carrier;
const _: unsafe fn(*const Carrier) -> bool = imp::set_carrier;
const _: unsafe fn() = imp::preempt_disable;
const _: unsafe fn() -> bool = imp::preempt_enable;
const _: unsafe fn() -> u32 = imp::preempt_disable_count;
const _: fn() -> bool = imp::clear_carrier;
const _: unsafe extern "C" fn(*mut Registers) = imp::capture_registers;
const _: fn(&[usize; SAVED_WORDS], usize) -> Registers = imp::registers_of_context;
const _: unsafe fn(*const libc::c_void) -> Registers = imp::registers_of_signal;
const _: [u16; 6] = imp::CALLEE_SAVED;
const _: fn(&[u8]) -> Option<Instruction> = imp::decode;
const _: fn(unsafe extern "C" fn()) = imp::init_async_preempt;
const _: fn() -> Option<usize> = imp::async_preempt_frame_bytes;
const _: unsafe fn(*const libc::c_void) -> bool = imp::can_be_saved;
const _: unsafe fn(usize) -> bool = imp::is_at_system_call;
const _: unsafe fn(*mut libc::c_void) = imp::redirect;
const _: fn() -> Result<(), String> = imp::init;

pub(crate) use imp::init;

/// Number of bytes below the stack pointer that a leaf function may use without moving it.
pub const RED_ZONE_BYTES: usize = imp::RED_ZONE_BYTES;
