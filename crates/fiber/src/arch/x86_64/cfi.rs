//! Assembly macros for instructions that change a frame, each with its unwind-table directives. A
//! macro never moves the stack pointer without recording the move in the unwind tables.

/// Pushes a register and records in the unwind tables where it is saved.
macro_rules! push {
    ($register:literal) => {
        concat!(
            "push ",
            $register,
            "\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset ",
            $register,
            ", 0"
        )
    };
}

/// Pops a register and records in the unwind tables that it holds the caller's value again.
macro_rules! pop {
    ($register:literal) => {
        concat!("pop ", $register, "\n.cfi_adjust_cfa_offset -8\n.cfi_restore ", $register)
    };
}

pub(super) use {pop, push};
