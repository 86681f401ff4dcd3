//! The port to x86-64 Linux. Code outside `arch` never names this folder: `arch` re-exports its
//! items.

mod async_preempt;
mod cfi;
mod decode;
mod pinned;
mod registers;
mod switch;

pub(crate) use async_preempt::{
    async_preempt_frame_bytes, can_be_saved, init_async_preempt, is_at_system_call, redirect,
};
pub(crate) use decode::{Effect, Instruction, Target, decode};
pub use pinned::{call_host, give_block, is_pinned, take_block};
pub(crate) use registers::{CALLEE_SAVED, FP, PC, SP, registers_of_signal};
pub use registers::{
    PC_INDEX, REGISTER_NAMES, SAVED_WORDS, all_registers, capture_registers, registers_of_context,
};
pub(crate) use switch::{
    RED_ZONE_BYTES, clear_carrier, init, read_interrupted, set_carrier, thread_pointer,
};
pub use switch::{
    call_on_stack, carrier, first_frame, preempt_disable, preempt_disable_count, preempt_enable,
    restart_stack, switch, switch_context,
};
