//! The switch itself, the first frame, registers for walks: one file per CPU.
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
//!   it ([`switch`], [`call_host`]) or control never returns ([`enter`]). No Rust function here, or
//!   in any crate above, may write it.
//! - Unwind tables are right at every instruction. [`first_frame`] and [`enter`] are where every
//!   backtrace ends. A context saved by [`switch`] begins with [`SAVED_WORDS`] words that
//!   [`registers_of_saved`] reads: enough to walk it without a word written to it.
//! - [`call_host`], [`take_block`] and [`give_block`] ask for the carrier and use what they find: code
//!   that is stopped inside them must go on on the same thread. They lie together, and [`is_pinned`]
//!   tells whether an address is one of theirs.
//! - [`redirect`] makes a signal handler return into a stub instead, which saves what [`can_be_saved`]
//!   says it can, calls what [`init_stop`] was given, and goes on where the code was.
//! - Reads of the thread's own register ([`carrier`]) are never `pure`: a goroutine asks on one
//!   thread and may ask again on another.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[path = "x86_64_frame.rs"]
mod frame;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[path = "x86_64.rs"]
mod imp;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[path = "x86_64_instructions.rs"]
mod instructions;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[path = "x86_64_pinned.rs"]
mod pinned;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[path = "x86_64_registers.rs"]
mod registers;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[path = "x86_64_stop.rs"]
mod stop;

pub use imp::{
    call_on, carrier, enter, first_frame, preempt_off, preempt_off_count, preempt_on, switch,
    switch_context,
};
pub(crate) use imp::{forget_carrier, interrupted, set_carrier, thread_pointer};
pub(crate) use instructions::{Instruction, Target, What, decode};
pub use pinned::{call_host, give_block, is_pinned, take_block};
pub(crate) use registers::{FP, KEPT, PC, SP, registers_of};
pub use registers::{
    NAMES, PC_AMONG_NAMES, SAVED_WORDS, all_registers, registers_here, registers_of_saved,
};
pub(crate) use stop::{can_be_saved, init_stop, is_at_system_call, redirect, stop_frame};

use crate::carrier::Carrier;

/// Where a context that is not running left off: what [`switch`] fills in and takes up again.
#[repr(C)]
#[derive(Debug)]
pub struct Saved {
    /// Stack pointer; the words it points at are the port's business.
    pub sp: usize,
    /// The thread pointer this context runs with (FS base on x86-64). Constant for the life of a
    /// goroutine, and of a thread.
    pub thread_pointer: usize,
}

impl Saved {
    /// A context that has never been saved, to be filled by the first [`switch`] away from it.
    ///
    /// `thread_pointer` is the one that the code about to be saved runs with.
    pub const fn running(thread_pointer: usize) -> Saved {
        Saved { sp: 0, thread_pointer }
    }

    /// A context to be filled by the caller's own [`switch`] away.
    pub fn here() -> Saved {
        Saved::running(thread_pointer())
    }
}

/// What a walk over the frames of code begins with: where it is, and the registers that the calling convention
/// lets a callee rely on. By DWARF's numbers: see the port.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The registers that callees keep.
    pub kept: [usize; 6],
    /// Where the code is, or will go on.
    pub pc: usize,
    /// Its stack pointer there.
    pub sp: usize,
}

/// What runs first on a new stack: gets the message of the switch that started it, and the word
/// given to [`first_frame`]. It must not return or unwind.
pub type Entry = unsafe extern "C" fn(message: usize, data: usize) -> !;

/// What [`enter`] runs on the goroutine's own thread pointer. It must not return or unwind.
pub type Start = unsafe extern "C" fn(data: usize) -> !;

/// What [`call_host`] and [`call_on`] run. It must not unwind.
pub type Callback = unsafe extern "C" fn(data: *mut u8);

/// Registers of the code a signal interrupted, as far as reports need them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interrupted {
    /// Where it was.
    pub(crate) pc: usize,
    /// Its stack pointer.
    pub(crate) sp: usize,
    /// The CPU refused an instruction for a reason that has no address (a general-protection fault).
    pub(crate) refused: bool,
}

// The contract: every port provides these.
const _: unsafe fn(*mut Saved, *const Saved, usize) -> usize = imp::switch;
const _: unsafe fn(*mut u8, Entry, usize) -> usize = imp::first_frame;
const _: unsafe extern "C" fn(*mut u8, usize, Start, usize) -> ! = imp::enter;
const _: unsafe extern "C" fn(Callback, *mut u8) = pinned::call_host;
const _: unsafe extern "C" fn(*mut u8, Callback, *mut u8) = imp::call_on;
const _: unsafe extern "C" fn(usize) -> *mut u8 = pinned::take_block;
const _: unsafe extern "C" fn(usize, *mut u8) -> bool = pinned::give_block;
const _: fn(usize) -> bool = pinned::is_pinned;
const _: unsafe fn(*const libc::c_void) -> Interrupted = imp::interrupted;
const _: fn() -> usize = imp::thread_pointer;
const _: unsafe fn() -> *const Carrier = imp::carrier;
const _: unsafe fn(*const Carrier) -> bool = imp::set_carrier;
const _: unsafe fn() = imp::preempt_off;
const _: unsafe fn() -> bool = imp::preempt_on;
const _: unsafe fn() -> u32 = imp::preempt_off_count;
const _: fn() -> bool = imp::forget_carrier;
const _: unsafe extern "C" fn(*mut Registers) = registers::registers_here;
const _: fn(&[usize; SAVED_WORDS], usize) -> Registers = registers::registers_of_saved;
const _: unsafe fn(*const libc::c_void) -> Registers = registers::registers_of;
const _: [u16; 6] = registers::KEPT;
const _: fn(&[u8]) -> Option<Instruction> = instructions::decode;
const _: fn(unsafe extern "C" fn()) = stop::init_stop;
const _: fn() -> Option<usize> = stop::stop_frame;
const _: unsafe fn(*const libc::c_void) -> bool = stop::can_be_saved;
const _: unsafe fn(usize) -> bool = stop::is_at_system_call;
const _: unsafe fn(*mut libc::c_void) = stop::redirect;
const _: fn() -> Result<(), String> = imp::init;

pub(crate) use imp::init;

/// Bytes below the stack pointer that a leaf function may use without moving it.
pub const RED_ZONE: usize = imp::RED_ZONE;
