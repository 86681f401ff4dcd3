//! The switch itself, the first frame, registers for walks: one folder for each CPU.
//!
//! **What a port provides.** The items listed under "contract" below; the compiler checks their
//! types, so a port that lacks one fails by name. What the types cannot say:
//!
//! - [`switch`] saves everything that the C calling convention lets a callee rely on (callee-saved
//!   registers and the floating-point control state), leaves it on the departing stack, stores the
//!   stack pointer in `from`, takes the other side from `to`, and *then* writes the thread pointer.
//!   It is symmetric: goroutine to goroutine, thread to goroutine and back are one function.
//! - **One frame, one thread pointer.** The compiler takes the address of a thread-local for
//!   constant within a function. So the thread pointer is written in assembly only, by functions
//!   whose caller never sees the difference: it gets the old value back before control returns to
//!   it ([`switch`], [`call_host`]) or control never returns ([`restart_stack`]). No Rust function here, or
//!   in any crate above, may write it.
//! - Unwind tables are right at every instruction. [`first_frame`] and [`restart_stack`] are where every
//!   backtrace ends. A context saved by [`switch`] begins with [`SAVED_WORDS`] words that
//!   [`registers_of_context`] reads: enough to walk it without a word written to it.
//! - [`call_host`], [`take_block`] and [`give_block`] ask for the carrier and use what they find: code
//!   that is stopped inside them must go on on the same thread. They lie together, and [`is_pinned`]
//!   tells whether an address is one of theirs.
//! - [`redirect`] makes a signal handler return into a stub instead, which saves what [`can_be_saved`]
//!   says it can, calls what [`init_async_preempt`] was given, and goes on where the code was.
//! - Reads of the thread's own register ([`carrier`]) are never `pure`: a goroutine asks on one
//!   thread and may ask again on another.

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

/// Where a context that is not running left off: what [`switch`] fills in and takes up again.
#[repr(C)]
#[derive(Debug)]
pub struct SavedContext {
    /// Stack pointer; the words it points at are the port's business.
    pub sp: usize,
    /// The thread pointer this context runs with (FS base on x86-64). Constant for the life of a
    /// goroutine, and of a thread.
    pub thread_pointer: usize,
}

impl SavedContext {
    /// A context that has never been saved, to be filled by the first [`switch`] away from it.
    ///
    /// `thread_pointer` is the one that the code about to be saved runs with.
    pub const fn empty(thread_pointer: usize) -> SavedContext {
        SavedContext { sp: 0, thread_pointer }
    }

    /// A context to be filled by the caller's own [`switch`] away.
    pub fn for_caller() -> SavedContext {
        SavedContext::empty(thread_pointer())
    }
}

/// What a walk over the frames of code begins with: where it is, and the registers that the calling convention
/// lets a callee rely on. By DWARF's numbers: see the port.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The registers that callees keep.
    pub callee_saved: [usize; 6],
    /// Where the code is, or will go on.
    pub pc: usize,
    /// Its stack pointer there.
    pub sp: usize,
}

/// What runs first on a new stack: gets the message of the switch that started it, and the word
/// given to [`first_frame`]. It must not return or unwind.
pub type Entry = unsafe extern "C" fn(message: usize, data: usize) -> !;

/// What [`restart_stack`] runs on the goroutine's own thread pointer. It must not return or unwind.
pub type Start = unsafe extern "C" fn(data: usize) -> !;

/// What [`call_host`] and [`call_on_stack`] run. It must not unwind.
pub type Callback = unsafe extern "C" fn(data: *mut u8);

/// Registers of the code a signal interrupted, as far as reports need them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interrupted {
    /// Where it was.
    pub(crate) pc: usize,
    /// Its stack pointer.
    pub(crate) sp: usize,
    /// The CPU refused an instruction for a reason that has no address (a general-protection fault).
    pub(crate) is_general_protection: bool,
}

// The contract: every port provides these.
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

/// Bytes below the stack pointer that a leaf function may use without moving it.
pub const RED_ZONE_BYTES: usize = imp::RED_ZONE_BYTES;
